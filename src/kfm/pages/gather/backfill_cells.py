"""How the partitions of a backfill are laid out: as cells of a calendar where they are few, as
ranges of it where they are many. Arithmetic alone: half a million cost what a hundred cost.
"""

import datetime as dt
from bisect import bisect_left
from collections.abc import Iterator
from itertools import pairwise

from kfm.jobs.backfill_plan import Grid
from kfm.pages.backfill import Block, GridRow

__all__ = ["FEW", "blocks_of", "borders_of", "label_of", "named"]

FEW = 1_000  # partitions that are shown one by one
MOST = 62  # ranges on a page
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_DAY = dt.timedelta(days=1)
_HOUR = dt.timedelta(hours=1)
_UNITS = ("hour", "day", "month", "year", "decade", "century")


# ---- what they are called ------------------------------------------------------------------------
def _begin(grid: Grid, n: int) -> dt.datetime:
    """When a partition begins, in the zone of the plan."""
    return grid.border(n // len(grid.partitions)).astimezone(grid.zone)


def _day(at: dt.datetime) -> str:
    return f"{at.day} {_MONTHS[at.month - 1]} {at.year}"


def label_of(grid: Grid, n: int) -> str:
    """A partition as people say it."""
    at = _begin(grid, n)
    name = grid.partitions[n % len(grid.partitions)]
    time = "" if grid.step % _DAY == dt.timedelta(0) else f"{at:%H:%M} UTC"
    return ", ".join(filter(None, (name, _day(at), time)))


def named(grid: Grid, first: int, last: int) -> str:
    """A range as people say it; `last` is the first after it."""
    if last - first == 1:
        return label_of(grid, first)
    begin, end = _begin(grid, first), _begin(grid, last - 1)
    for unit in ("day", "month", "year"):
        if last % len(grid.partitions) == 0 and _is_one(begin, _begin(grid, last), unit):
            return _called(grid, unit, first, last)
    if begin.date() != end.date():
        return f"{_day(begin)} to {_day(end)}"
    names = len(grid.partitions)
    if names == 1:
        return f"{_day(begin)}, {begin:%H:%M} to {end:%H:%M}"
    ends = grid.partitions[first % names], grid.partitions[(last - 1) % names]
    return f"{_day(begin)}, {ends[0]} to {ends[1]}"


def _is_one(begin: dt.datetime, end: dt.datetime, unit: str) -> bool:
    """Whether that is one whole unit."""
    return _next(begin, unit) == end and _next(begin - dt.timedelta(seconds=1), unit) == begin


# ---- ranges --------------------------------------------------------------------------------------
def borders_of(grid: Grid, first: int, last: int) -> tuple[list[int], list[str]]:
    """Where the ranges of a range begin, its end behind them; and what each is called. The finest
    part of the calendar is taken of which there are not too many.
    """
    names = len(grid.partitions)
    for unit in _UNITS:
        starts = _starts(grid, unit, first, last)
        if starts is None or not starts:
            continue
        inside = [_number(grid, at, first, last) for at in starts]
        found = sorted({first, *inside, last})
        if len(found) > 2 and len(found) - 1 <= (last - first) // 2:
            return found, [_called(grid, unit, a, b) for a, b in pairwise(found)]
    size = max(1, -(-(last - first) // MOST))
    if size > names:  # whole windows
        size -= size % names
    found = [*range(first, last, size), last]
    return found, [named(grid, a, b) for a, b in pairwise(found)]


def _number(grid: Grid, at: dt.datetime, first: int, last: int) -> int:
    """The first partition of the range that begins then or later."""
    names = len(grid.partitions)
    window = bisect_left(range(grid.windows), at, first // names, last // names, key=grid.border)
    return min(last, max(first, window * names))


def _starts(grid: Grid, unit: str, first: int, last: int) -> list[dt.datetime] | None:
    """Where units begin inside the range; None: they are too many."""
    end = _begin(grid, last - 1)
    at, found = _next(_begin(grid, first), unit), list[dt.datetime]()
    while at is not None and at <= end:
        found.append(at)
        if len(found) >= MOST:
            return None
        at = _next(at, unit)
    return found


def _next(at: dt.datetime, unit: str) -> dt.datetime | None:
    """Where the next unit begins."""
    day = at.replace(hour=0, minute=0, second=0, microsecond=0)
    try:
        match unit:
            case "hour":
                return at.replace(minute=0, second=0, microsecond=0) + _HOUR
            case "day":
                return day + _DAY
            case "month":
                return (day.replace(day=1) + 32 * _DAY).replace(day=1)
        years = {"year": 1, "decade": 10, "century": 100}[unit]
        return day.replace(year=at.year - at.year % years + years, month=1, day=1)
    except (ValueError, OverflowError):  # there is no such year
        return None


def _called(grid: Grid, unit: str, first: int, last: int) -> str:
    at, end = _begin(grid, first), _begin(grid, last - 1)
    match unit:
        case "hour":
            return f"{_day(at)}, {at:%H} h"
        case "day":
            return _day(at)
        case "month":
            return f"{_MONTHS[at.month - 1]} {at.year}"
    return str(at.year) if at.year == end.year else f"{at.year} to {end.year}"


# ---- cells ---------------------------------------------------------------------------------------
def blocks_of(grid: Grid, first: int, last: int) -> tuple[Block, ...]:
    """The cells of a range, `first` being cell 0."""
    if len(grid.partitions) > 1:
        return tuple(_by_name(grid, first, last))
    begins = [_begin(grid, n) for n in range(first, last)]
    if grid.step == _DAY:
        days = tuple((str(d), str(d)) for d in range(1, 32))
        placed = [(f"{_MONTHS[at.month - 1]} {at.year}", at.day - 1) for at in begins]
        return _placed("State of each day", "Month", days, placed)
    if grid.step == _HOUR:
        hours = tuple((f"{h:02}", f"{h} o'clock") for h in range(24))
        return _placed("State of each hour", "Day", hours, [(_day(at), at.hour) for at in begins])
    if 28 * _DAY <= grid.step <= 31 * _DAY:
        months = tuple((name[0], name) for name in _MONTHS)
        placed = [(str(at.year), at.month - 1) for at in begins]
        if len(set(placed)) == len(placed):
            return _placed("State of each month", "Year", months, placed)
    columns = tuple((str(n + 1), f"number {n + 1}") for n in range(min(24, last - first)))
    placed = [(_day(begins[n - n % 24]), n % 24) for n in range(last - first)]
    return _placed("State of each window", "From", columns, placed)


def _placed(
    caption: str, corner: str, columns: tuple[tuple[str, str], ...], places: list[tuple[str, int]]
) -> tuple[Block, ...]:
    """One table; a place that is taken begins another row of the same name."""
    rows: list[tuple[str, list[int | None]]] = []
    for at, (name, column) in enumerate(places):
        if not rows or rows[-1][0] != name or rows[-1][1][column] is not None:
            rows.append((name, [None] * len(columns)))
        rows[-1][1][column] = at
    used = [column for _, column in places]
    shown = slice(min(used), max(used) + 1)
    made = tuple(GridRow(name=name, cells=tuple(cells[shown])) for name, cells in rows)
    return (Block(caption=caption, corner=corner, columns=columns[shown], rows=made),)


def _by_name(grid: Grid, first: int, last: int) -> Iterator[Block]:
    """A row for each name, a column for each window, as many tables as that takes."""
    names = len(grid.partitions)
    windows = range(first // names, -(-last // names))
    for at in range(windows.start, windows.stop, 31):
        shown = range(at, min(at + 31, windows.stop))
        begins = [_begin(grid, w * names) for w in shown]
        rows = (
            GridRow(
                name=name,
                cells=tuple(
                    n - first if first <= (n := w * names + place) < last else None for w in shown
                ),
            )
            for place, name in enumerate(grid.partitions)
        )
        yield Block(
            caption=f"State of each partition, {_day(begins[0])} to {_day(begins[-1])}",
            corner="Partition",
            columns=tuple((str(b.day), _day(b)) for b in begins),
            rows=tuple(row for row in rows if any(cell is not None for cell in row.cells)),
        )
