"""kfm diff compares any two tables as a careful person with a dictionary would, and says it without
being fooled by the data.
"""

import datetime as dt
import html as stdlib_html
import json
import math
from collections import Counter
from collections.abc import Sequence
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kfm.diff.base import Change, Columns, Diff, Measure, to_json
from kfm.diff.page import html
from kfm.diff.text import text
from kfm.model.errors import IntegrityError

pa = pytest.importorskip("pyarrow")
shapely = pytest.importorskip("shapely")
import pyarrow.parquet as pq  # noqa: E402

from kfm.diff.tables import diff_files  # noqa: E402

SCHEMA = pa.schema(
    [
        ("station", pa.string()),
        ("day", pa.int64()),
        ("value", pa.float64()),
        ("at", pa.timestamp("us", "UTC")),
        ("tags", pa.list_(pa.int64())),
        ("geometry", pa.binary()),
    ]
)
POINTS = [None, *(shapely.to_wkb(shapely.Point(x, 38.0)) for x in (-98.0, -97.5))]
row = st.fixed_dictionaries(
    {
        "station": st.sampled_from(["a", "b", "<i>", None]),
        "day": st.sampled_from([0, 1, 2**60, None]),
        "value": st.sampled_from([0.0, -0.0, 1.5, math.nan, -math.nan, None]),
        "at": st.sampled_from(
            [
                dt.datetime(2024, 1, 1, tzinfo=dt.UTC),
                dt.datetime(2024, 1, 1, 0, 0, 0, 1, tzinfo=dt.UTC),
                None,
            ]
        ),
        "tags": st.sampled_from([[1], [1, 2], [], None]),
        "geometry": st.sampled_from(POINTS),
    }
)


def write(
    path: Path, rows: list[dict[str, Any]], schema: Any = SCHEMA, *, pieces: int = 1, group: int = 2
) -> dict[str, Path]:
    """`rows` as one or more GeoParquet files of small row groups."""
    geo = {
        "version": "1.1.0",
        "primary_column": "geometry",
        "columns": {"geometry": {"encoding": "WKB", "geometry_types": []}},
    }
    files = {}
    path.mkdir(parents=True, exist_ok=True)
    for i in range(pieces):
        files[f"{i}.parquet"] = path / f"{i}.parquet"
        table = pa.Table.from_pylist(
            rows[i::pieces], schema.with_metadata({"geo": json.dumps(geo)})
        )
        pq.write_table(table, files[f"{i}.parquet"], row_group_size=group)
    return files


def plain_row(r: dict[str, Any], names: Sequence[str] = SCHEMA.names) -> tuple[Any, ...]:
    """A row in which equal means equal."""
    cells = [r[n] for n in names]
    return tuple(
        "NaN"
        if isinstance(v, float) and math.isnan(v)
        else json.dumps(v)
        if isinstance(v, list)
        else v
        for v in cells
    )


def oracle(
    a: list[dict[str, Any]], b: list[dict[str, Any]], key: tuple[str, ...]
) -> dict[str, Any]:
    """The same comparison, a row at a time."""

    def of(r: dict[str, Any]) -> tuple[Any, ...]:
        return plain_row(r, key)

    counts = [Counter(map(of, side)) for side in (a, b)]
    single = {k for k in (*counts[0], *counts[1]) if key and all(c[k] <= 1 for c in counts)}
    whole = [Counter(plain_row(r) for r in side if of(r) not in single) for side in (a, b)]
    one, two = ({of(r): r for r in side if of(r) in single} for side in (a, b))
    touched: Counter[str] = Counter()
    changed = 0
    for k in one.keys() & two.keys():
        other = [n for n, x, y in zip(SCHEMA.names, plain_row(one[k]), plain_row(two[k])) if x != y]
        touched.update(other)
        changed += bool(other)
    return {
        "added": len(two.keys() - one.keys()) + (whole[1] - whole[0]).total(),
        "removed": len(one.keys() - two.keys()) + (whole[0] - whole[1]).total(),
        "changed": changed,
        "equal": len(one.keys() & two.keys()) - changed + (whole[0] & whole[1]).total(),
        "touched": dict(touched),
        "moved": touched["geometry"],
        "duplicates": tuple(sum(n for k, n in c.items() if k not in single) for c in counts)
        if key
        else (0, 0),
    }


@settings(
    max_examples=250,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(
    a=st.lists(row, max_size=12),
    b=st.lists(row, max_size=12),
    key=st.sampled_from([(), ("station",), ("station", "day"), ("value", "day")]),
    data=st.data(),
)
def test_any_two_tables_compare_as_the_oracle_says(
    tmp_path: Path, a: list[Any], b: list[Any], key: tuple[str, ...], data: Any
) -> None:
    # rows that stay are the usual case
    b = b + data.draw(st.lists(st.sampled_from(a), max_size=6)) if a else b
    files = [
        write(tmp_path / name, rows, pieces=pieces)
        for name, rows, pieces in (("a", a, 1), ("b", b, 2))
    ]
    diff = diff_files(*files, key, limit=None)
    expected = oracle(a, b, key)
    assert {name: getattr(diff, name) for name in expected} == expected
    assert (
        (diff.rows_a, diff.rows_b)
        == (len(a), len(b))
        == (diff.removed + diff.changed + diff.equal, diff.added + diff.changed + diff.equal)
    )
    kinds = Counter(c.kind for c in diff.samples)
    assert (kinds["added"], kinds["removed"], kinds["changed"]) == (
        diff.added,
        diff.removed,
        diff.changed,
    )
    assert (
        Counter(n for c in diff.samples if c.kind == "changed" for n in c.cells)
        == expected["touched"]
    )
    assert diff.keyed is bool(key) and all(list(c.key) == list(key) for c in diff.samples)
    json.dumps(to_json(diff), allow_nan=False)
    assert diff.reencoded is diff.same
    few = diff_files(*files, key, limit=3)
    assert len(few.samples) == min(3, diff.differences) and few.changed == diff.changed


def station(name: str, x: float | None, **more: Any) -> dict[str, Any]:
    here = None if x is None else shapely.to_wkb(shapely.Point(x, 38.0))
    return {
        "station": name,
        "day": 1,
        "value": 1.0,
        "at": None,
        "tags": None,
        "geometry": here,
    } | more


def test_a_moved_geometry_is_told_in_metres(tmp_path: Path) -> None:
    a = write(
        tmp_path / "a", [station("s", -98.0), station("lost", -98.0), station("still", -98.0)]
    )
    b = write(
        tmp_path / "b",
        [station("s", -97.0), station("lost", None), station("still", -98.0, value=2.0)],
    )
    diff = diff_files(a, b, ("station",))
    found = {c.key["station"]: c for c in diff.samples}
    assert diff.moved == 2 and diff.touched == {"geometry": 2, "value": 1}
    assert found["s"].moved_m == pytest.approx(
        math.radians(1) * 6371008.8 * math.cos(math.radians(38)), rel=1e-4
    )
    assert found["s"].cells == {"geometry": ("POINT (-98 38)", "POINT (-97 38)")}
    assert found["lost"].moved_m is None and found["lost"].new_at is None
    assert found["still"].moved_m is None and found["still"].new_at == (-98.0, 38.0)


MOMENT = dt.datetime(2025, 3, 1, tzinfo=dt.UTC)
UTC_TIME = pa.timestamp("us", "UTC")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ((pa.float64(), [4.0, 0.1, 1e22, -0.0]), (pa.string(), ["4.0", "0.1", "1e22", "0"])),
        ((pa.float64(), [4.0, 1234567.0]), (pa.string(), ["4", "1234567.00"])),
        ((pa.int64(), [4, 2**60 + 1]), (pa.string(), ["4.0", str(2**60 + 1)])),
        ((pa.int64(), [4, -7]), (pa.float64(), [4.0, -7.0])),
        ((pa.bool_(), [True, False]), (pa.string(), ["TRUE", "false"])),
        ((pa.int64(), [1, 0]), (pa.bool_(), [True, False])),
        ((UTC_TIME, [MOMENT]), (pa.string(), ["2025-03-01T00:00:00Z"])),
        ((UTC_TIME, [MOMENT]), (pa.string(), ["2025-02-28T18:00:00-06:00"])),
        ((UTC_TIME, [MOMENT]), (pa.date32(), [MOMENT.date()])),
        ((pa.date32(), [MOMENT.date()]), (pa.string(), ["2025-03-01"])),
    ],
)
def test_a_change_of_type_is_told_once_and_cells_that_say_the_same_are_equal(
    tmp_path: Path, old: Any, new: Any
) -> None:
    for n, (a, b) in enumerate(((old, new), (new, old))):
        sides = []
        for name, (kind, cells) in (("a", a), ("b", b)):
            cells = [*cells, None]
            rows = [{"id": i, "v": cell, "w": cell} for i, cell in enumerate(cells)]
            sides.append(
                write(
                    tmp_path / f"{n}{name}",
                    rows,
                    pa.schema([("id", pa.int64()), ("v", kind), ("w", kind)]),
                )
            )
        diff = diff_files(*sides, ("id",))
        assert (diff.changed, diff.touched, diff.samples) == (0, {}, ()) and set(
            diff.columns.retyped
        ) == {"v", "w"}
        assert text(diff).count("type ") == 2 and not diff.reencoded
        keyed = diff_files(*sides, ("v",))
        assert (keyed.added, keyed.removed, keyed.changed) == (0, 0, 0), (
            "keys too are what they say"
        )


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ((pa.int64(), [7, 2**53 + 1]), (pa.string(), ["007", "four"])),
        ((pa.int64(), [2**53 + 1]), (pa.float64(), [2.0**53])),
        ((pa.float64(), [4.0]), (pa.string(), ["4.0000000001"])),
        ((pa.float64(), [0.0]), (pa.string(), ["1e-999999"])),
        ((pa.bool_(), [True]), (pa.string(), ["yes"])),
        ((UTC_TIME, [MOMENT]), (pa.string(), ["2025-03-01T00:00:01Z"])),
        ((UTC_TIME, [MOMENT]), (pa.string(), ["yesterday"])),
    ],
)
def test_a_change_of_type_hides_no_change_of_value(tmp_path: Path, old: Any, new: Any) -> None:
    files = []
    for name, (kind, cells) in (("a", old), ("b", new)):
        rows = [{"id": i, "v": cell} for i, cell in enumerate(cells)]
        files.append(write(tmp_path / name, rows, pa.schema([("id", pa.int64()), ("v", kind)])))
    assert diff_files(*files, ("id",)).touched == {"v": len(old[1])}


def test_columns_that_come_go_or_change_type_are_named_and_the_others_still_compared(
    tmp_path: Path,
) -> None:
    a = write(tmp_path / "a", [{"id": 1, "n": 5, "code": 7, "old": "x"}, {"id": 2, "n": 6, "code": 8, "old": "y"}],
              pa.schema([("id", pa.int64()), ("n", pa.int64()), ("code", pa.int64()), ("old", pa.string())]))  # fmt: skip
    b = write(tmp_path / "b", [{"id": "1", "n": 5.0, "code": "7", "new": "x"}, {"id": "2", "n": 6.5, "code": "8", "new": "y"}],
              pa.schema([("id", pa.string()), ("n", pa.float64()), ("code", pa.string()), ("new", pa.string())]))  # fmt: skip
    diff = diff_files(a, b, ("id",))
    assert (diff.columns.added, diff.columns.removed) == (("new",), ("old",))
    assert diff.columns.retyped == {
        "id": ("int64", "string"),
        "n": ("int64", "double"),
        "code": ("int64", "string"),
    }
    assert (diff.changed, diff.equal, diff.touched) == (1, 1, {"n": 1})
    assert diff.samples[0].cells == {"n": (6, 6.5)}
    assert not diff.same and "type int64 → double" in text(diff)


def test_times_are_compared_exactly(tmp_path: Path) -> None:
    schema = pa.schema([("id", pa.int64()), ("at", pa.timestamp("us", "UTC"))])
    a = write(
        tmp_path / "a", [{"id": 1, "at": 1_700_000_000_000_000}, {"id": 2, "at": 2**62}], schema
    )
    b = write(
        tmp_path / "b", [{"id": 1, "at": 1_700_000_000_000_001}, {"id": 2, "at": 2**62}], schema
    )
    diff = diff_files(a, b, ("id",))
    assert diff.samples[0].cells == {"at": ("2023-11-14T22:13:20Z", "2023-11-14T22:13:20.000001Z")}
    assert diff.changed == 1


def test_a_key_that_is_not_in_both_versions_is_not_used(tmp_path: Path) -> None:
    a = write(tmp_path / "a", [{"x": 1}], pa.schema([("x", pa.int64())]))
    b = write(
        tmp_path / "b", [{"x": 1, "id": 9}], pa.schema([("x", pa.int64()), ("id", pa.int64())])
    )
    diff = diff_files(a, b, ("id",))
    assert (diff.keyed, diff.equal, diff.added) == (False, 1, 0)
    nothing = diff_files(a, write(tmp_path / "c", [{"y": 1}], pa.schema([("y", pa.int64())])), ())
    assert (nothing.added, nothing.removed, nothing.equal) == (1, 1, 0), (
        "no column in common: no two rows are equal"
    )


def test_other_bytes_of_the_same_rows_are_only_written_anew(tmp_path: Path) -> None:
    rows = [station(f"s{i}", -98.0) for i in range(9)]
    a, b = write(tmp_path / "a", rows), write(tmp_path / "b", rows[::-1], pieces=2)
    assert diff_files(a, b, ("station",)).reencoded and not diff_files(a, a, ("station",)).reencoded
    assert "written anew" in text(diff_files(a, b, ("station",))) and "written anew" not in text(
        diff_files(a, a, ("station",))
    )
    assert "written anew" in html(diff_files(a, b, ("station",)))


def test_a_partition_without_a_column_has_nulls_there(tmp_path: Path) -> None:
    one = write(tmp_path / "one", [{"id": 1}], pa.schema([("id", pa.int64())]))["0.parquet"]
    two = write(
        tmp_path / "two", [{"id": 2, "x": 5}], pa.schema([("id", pa.int64()), ("x", pa.int64())])
    )["0.parquet"]
    both = write(
        tmp_path / "both",
        [{"id": 1, "x": None}, {"id": 2, "x": 5}],
        pa.schema([("id", pa.int64()), ("x", pa.int64())]),
    )
    diff = diff_files(
        {"a.parquet": one, "b.parquet": two, "notes.txt": tmp_path / "none"}, both, ("id",)
    )
    assert diff.same and diff.equal == 2


def test_nothing_compares_with_nothing(tmp_path: Path) -> None:
    assert diff_files({}, {}, ("id",)).same
    diff = diff_files({}, write(tmp_path / "a", [station("s", -98.0)]), ("station",))
    assert (diff.added, diff.equal, len(diff.samples)) == (1, 0, 1)


def test_a_damaged_file_is_an_integrity_error(tmp_path: Path) -> None:
    files = write(tmp_path / "a", [station("s", -98.0)])
    files["0.parquet"].write_bytes(b"PAR1 not really PAR1")
    with pytest.raises(IntegrityError):
        diff_files(files, files, ())


def test_the_profile_measures_both_sides(tmp_path: Path) -> None:
    a = write(tmp_path / "a", [station("s", -98.0, value=1.0), station("t", -98.0, value=None)])
    b = write(tmp_path / "b", [station("s", -98.0, value=3.5), station("t", -98.0, value=math.nan)])
    found = {(m.column, m.measure): m for m in diff_files(a, b, ("station",)).profile}
    assert (
        found["value", "missing"].before,
        found["value", "missing"].after,
        found["value", "missing"].change,
    ) == (0.5, 0.0, -0.5)
    assert found["value", "highest"].change == 2.5
    assert found["", "rows"].before == 2 and ("geometry", "lowest") not in found


def test_many_of_one_kind_do_not_hide_the_others(tmp_path: Path) -> None:
    a = write(tmp_path / "a", [station("gone", -98.0), station("kept", -98.0)], group=50)
    b = write(
        tmp_path / "b",
        [station("kept", -98.0, value=9.0), *(station(f"n{i}", -98.0) for i in range(200))],
        group=50,
    )
    assert Counter(c.kind for c in diff_files(a, b, ("station",), limit=10).samples) == {
        "removed": 1,
        "changed": 1,
        "added": 8,
    }
    assert len(diff_files(a, b, ("station",), limit=0).samples) == 0
    c = write(
        tmp_path / "c", [station(f"n{i}", -98.0, value=2.0) for i in range(100, 300)], group=50
    )
    assert Counter(c.kind for c in diff_files(b, c, ("station",), limit=9).samples) == {
        "removed": 3,
        "changed": 3,
        "added": 3,
    }


HOSTILE = "</td><script>alert(1)</script><img src=\"https://example.org/x\" onerror='x'>&amp;\x1b[31m\u202e"


def hostile() -> Diff:
    change = {
        "key": {HOSTILE: HOSTILE},
        "cells": {HOSTILE: (HOSTILE, 1.5)},
        "old_at": (-98.0, 38.0),
        "new_at": (-97.0, 38.5),
        "moved_m": 9.0,
    }
    return Diff(
        dataset_id="x", a=HOSTILE, b=HOSTILE, key=(HOSTILE,), keyed=True, rows_a=1, rows_b=1, added=1, removed=1, changed=1, equal=0, moved=1,
        columns=Columns(added=(HOSTILE,), removed=(HOSTILE,), retyped={HOSTILE: (HOSTILE, HOSTILE)}, common=1), touched={HOSTILE: 1},
        samples=tuple(Change(kind=kind, **change) for kind in ("added", "removed", "changed")),
        profile=(Measure(measure=HOSTILE, column=HOSTILE, before=HOSTILE, after="b"),),
    )  # fmt: skip


class Reader(HTMLParser):
    """Every tag and attribute of a page, and whether the tags close in order."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: Counter[str] = Counter()
        self.attributes: set[str] = set()
        self._open: list[str] = []
        self.feed(page)
        assert not self._open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags[tag] += 1
        self.attributes |= {name for name, _ in attrs}
        if tag not in ("meta", "br"):
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags[tag] += 1
        self.attributes |= {name for name, _ in attrs}

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag


def test_hostile_cells_stay_text_in_the_page() -> None:
    page = html(hostile())
    found = Reader(page)
    assert not found.tags.keys() & {"script", "img", "link", "iframe", "a", "object"}
    assert not {n for n in found.attributes if n.startswith("on") or n in ("src", "href", "style")}
    assert "\x1b" not in page and "\u202e" not in page
    assert stdlib_html.escape(HOSTILE[:50], quote=True) in page, "and yet it can be read"
    assert "default-src 'none'" in page and "http:" not in page


def test_hostile_cells_do_not_steer_the_terminal() -> None:
    said = text(hostile())
    assert "\x1b" not in said and "\u202e" not in said and "alert(1)" in said


@pytest.mark.parametrize("ascii", [False, True])
def test_lines_fit_a_terminal_and_a_pipe_cuts_nothing(tmp_path: Path, ascii: bool) -> None:
    a = write(tmp_path / "a", [station("s" * 100, -98.0), station("t", -98.0)])
    b = write(tmp_path / "b", [station("s" * 100, -97.0, value=1234567.25), station("u", -98.0)])
    diff = diff_files(a, b, ("station",))
    assert all(len(line) <= 80 for line in text(diff, ascii=ascii).splitlines())
    assert "s" * 100 in text(diff, width=None, ascii=ascii)
    assert "1,234,567.25" in text(diff, ascii=ascii)
    assert text(diff, ascii=ascii).isascii() is ascii
