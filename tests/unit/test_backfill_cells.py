"""The partitions of a backfill on a page: as cells of a calendar, as ranges of it; each once."""

import datetime as dt
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kfm.jobs.backfill_plan import Grid, cut, zone_of
from kfm.pages.gather.backfill_cells import FEW, MOST, blocks_of, borders_of, label_of, named


def grid(since: str, until: str, step: str, zone: str = "UTC", names: int = 1) -> Grid:
    partitions = tuple(f"p{n}" for n in range(names)) if names > 1 else ("",)
    where = zone_of(zone)
    begin, end = (dt.datetime.fromisoformat(t).replace(tzinfo=where) for t in (since, until))
    return cut(begin.astimezone(dt.UTC), end.astimezone(dt.UTC), step, where, partitions)


@pytest.mark.parametrize(
    ("step", "since", "until", "first", "second"),
    [
        ("1h", "1969-01-01", "2026-01-15", ("1969", 8760), ("1970", 8760)),
        ("1h", "2026-01-01", "2027-01-01", ("Jan 2026", 744), ("Feb 2026", 672)),
        ("1d", "1500-01-01", "2026-01-15", ("1500 to 1509", 3652), ("1510 to 1519", 3652)),
        ("1m", "2026-03-01", "2026-03-03", ("1 Mar 2026, 00 h", 60), ("1 Mar 2026, 01 h", 60)),
    ],
)
def test_many_are_summed_by_the_finest_part_of_the_calendar_that_fits(
    step: str, since: str, until: str, first: tuple[str, int], second: tuple[str, int]
) -> None:
    made = grid(since, until, step)
    borders, names = borders_of(made, 0, made.total)
    sizes = [b - a for a, b in pairwise(borders)]
    assert [(names[0], sizes[0]), (names[1], sizes[1])] == [first, second]
    assert sum(sizes) == made.total and min(sizes) > 0 and len(sizes) <= MOST


@given(
    st.sampled_from(["1h", "1d", "7d", "30d", "45m", "90d"]),
    st.integers(1, 60),
    st.integers(1, 9_000),
    st.data(),
)
def test_every_partition_is_in_one_range_and_every_range_leads_to_fewer(
    step: str, names: int, windows: int, data: st.DataObject
) -> None:
    length = {"h": 3600, "d": 86_400, "m": 60}[step[-1]] * int(step[:-1])
    since = dt.datetime(1999, 3, 28, tzinfo=dt.UTC)
    until = since + dt.timedelta(seconds=length * windows)
    made = cut(since, until, step, zone_of("UTC"), tuple(f"p{n}" for n in range(names)))
    first, last = 0, made.total
    while last - first > FEW:
        borders, called = borders_of(made, first, last)
        assert (borders[0], borders[-1]) == (first, last) and borders == sorted(set(borders))
        assert 2 <= len(called) == len(borders) - 1 <= MOST + 1
        at = data.draw(st.integers(0, len(called) - 1))
        first, last = borders[at], borders[at + 1]
    shown = [
        cell
        for block in blocks_of(made, first, last)
        for row in block.rows
        for cell in row.cells
        if cell is not None
    ]
    assert sorted(shown) == list(range(last - first)), "each cell once"
    for block in blocks_of(made, first, last):
        assert {len(row.cells) for row in block.rows} == {len(block.columns)}


def test_days_stand_in_their_month_by_the_calendar_of_the_plan() -> None:
    made = grid("2026-01-30", "2026-03-02", "1d", "America/Chicago")
    (block,) = blocks_of(made, 0, made.total)
    assert [row.name for row in block.rows] == ["Jan 2026", "Feb 2026", "Mar 2026"]
    assert block.rows[0].cells[29:] == (0, 1) and block.rows[1].cells[0] == 2
    assert block.rows[1].cells[28:] == (None, None, None)
    assert label_of(made, 0) == "30 Jan 2026"


def test_an_hour_that_comes_twice_a_year_has_a_cell_of_its_own() -> None:
    made = grid("2026-11-01", "2026-11-03", "1h", "America/Chicago")
    (block,) = blocks_of(made, 0, made.total)
    assert sum(cell is not None for row in block.rows for cell in row.cells) == made.total == 49


@pytest.mark.parametrize(
    ("first", "last", "said"),
    [
        (0, 744, "Jan 2026"),
        (0, 8760, "2026"),
        (0, 24, "1 Jan 2026"),
        (5, 6, "1 Jan 2026, 05:00 UTC"),
        (5, 9, "1 Jan 2026, 05:00 to 08:00"),
        (5, 50, "1 Jan 2026 to 3 Jan 2026"),
    ],
)
def test_a_range_is_called_what_people_call_it(first: int, last: int, said: str) -> None:
    assert named(grid("2026-01-01", "2028-01-01", "1h"), first, last) == said
