"""Rows that were set aside: numbered, with their neighbours; only some of them read again;
corrected by their very text.
"""

import datetime as dt
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kfm.connectors.base import InputFile
from kfm.connectors.child.feed import Context, Feed
from kfm.connectors.child.process import run_inline
from kfm.connectors.kind import RowReader
from kfm.connectors.operations import Read
from kfm.connectors.read import text
from kfm.connectors.read.rows import Loose, batch_of
from kfm.connectors.table.rejects import check_value, record_digest
from kfm.connectors.table.values import cells_text, type_cells
from kfm.model.dataset import Column

Made = Callable[..., Any]
SCHEMA = {"id": "string", "n": "integer"}


def csv(*bad: int, count: int = 40) -> str:
    return "id,n\n" + "".join(f"r{i},{'x' if i in bad else i}\n" for i in range(1, count + 1))


def near(row: dict[str, Any]) -> tuple[str | None, str | None]:
    return row["before"], row["after"]


def test_each_row_keeps_its_number_digest_and_neighbours(made: Made) -> None:
    first, second = made("csv", csv(1, 40), schema=SCHEMA).rejects
    assert (first["n"], first["line"], first["record"], *near(first)) == (
        1,
        2,
        "r1,x",
        None,
        "r2,2",
    )
    assert (second["n"], second["line"], second["record"], *near(second)) == (
        2,
        41,
        "r40,x",
        "r39,39",
        None,
    )
    assert first["digest"] == record_digest("r1,x")


@pytest.mark.parametrize("block", [8, 64, 1 << 20])
def test_neighbours_do_not_depend_on_where_the_reader_cuts(
    made: Made, monkeypatch: pytest.MonkeyPatch, block: int
) -> None:
    monkeypatch.setattr(text, "BLOCK", block)
    rows = made("csv", csv(7, 8, 21, 33), schema=SCHEMA).rejects
    assert [near(r) for r in rows] == [
        ("r6,6", "r8,x"),
        ("r7,x", "r9,9"),
        ("r20,20", "r22,22"),
        ("r32,32", "r34,34"),
    ]


def test_a_neighbour_is_a_record_of_the_same_source(made: Made) -> None:
    first, second = made("csv", csv(3, count=3), csv(1, count=3), schema=SCHEMA).rejects
    assert (near(first), near(second)) == (("r2,2", None), (None, "r2,2"))


def test_a_long_record_is_cut_but_its_digest_is_of_all_of_it(made: Made) -> None:
    record = "r" * 9000 + ",x"
    (row,) = made("csv", f"id,n\n{'a' * 9000},1\n{record}\n", schema=SCHEMA).rejects
    assert (len(row["record"]), len(row["before"]), row["digest"]) == (
        4096,
        1024,
        record_digest(record),
    )


@pytest.mark.parametrize("block", [16, 1 << 20])
def test_only_the_records_asked_for_are_read(
    made: Made, monkeypatch: pytest.MonkeyPatch, block: int
) -> None:
    monkeypatch.setattr(text, "BLOCK", block)
    found = made("csv", csv(5, 9), schema=SCHEMA, only=(("s0", 6), ("s0", 12), ("elsewhere", 3)))
    assert (
        found.result.books.read,
        found.result.books.written,
        found.result.books.quarantined,
    ) == (2, 1, 1)
    assert [r["id"] for r in found.rows] == ["r11"]
    assert near(found.rejects[0])[1] in ("r6,6", None) and found.rejects[0]["record"] == "r5,x"


@pytest.mark.parametrize("block", [16, 1 << 20])
def test_corrected_rows_come_last_wherever_the_reader_cuts(
    made: Made, monkeypatch: pytest.MonkeyPatch, block: int
) -> None:
    monkeypatch.setattr(text, "BLOCK", block)
    fixes = {
        record_digest("r3,x"): {"n": "33"},
        record_digest("r9,x"): {"n": "still no number"},
        record_digest("r4,4"): {"n": "0"},
    }
    found = made("csv", csv(3, 9, count=10), schema=SCHEMA, fixes=fixes)
    assert [(r["id"], r["n"]) for r in found.rows] == [
        (f"r{i}", i) for i in (1, 2, 4, 5, 6, 7, 8, 10)
    ] + [("r3", 33)]
    assert found.result.books.read == 10 and found.result.books.quarantined == 1
    assert "still no number" in found.rejects[0]["reason"], (
        "a correction is judged like any other value"
    )


def test_json_values_take_corrections_as_text(made: Made) -> None:
    rows = [
        {"id": "a", "n": 1, "ok": True, "at": "2020-01-01T00:00:00Z"},
        {"id": "b", "n": "x", "ok": "maybe", "at": "soon"},
    ]
    schema = SCHEMA | {"ok": "boolean", "at": "timestamp"}
    (bad,) = made("json", json.dumps(rows), schema=schema).rejects
    fix = {"n": "2", "ok": "false", "at": "2021-01-01T00:00:00Z"}
    found = made("json", json.dumps(rows), schema=schema, fixes={bad["digest"]: fix})
    assert [(r["id"], r["n"], r["ok"], r["at"].year) for r in found.rows] == [
        ("a", 1, True, 2020),
        ("b", 2, False, 2021),
    ]


def test_a_row_that_could_not_be_read_is_what_its_correction_says(made: Made) -> None:
    fixes = {record_digest("r2"): {"id": "r2", "n": "2"}}
    found = made("csv", "id,n\nr1,1\nr2\n", schema=SCHEMA, business_key=("id",), fixes=fixes)
    assert [(r["id"], r["n"]) for r in found.rows] == [("r1", 1), ("r2", 2)]


# ---- only what a correction names is changed


def test_the_other_columns_of_a_bad_row_keep_their_values() -> None:
    bad = {0: ("type", "depth: no number")}
    found = type_cells(
        Column(name="drilled", type="date"), cells_text(["2001-01-22", "never"]), bad
    )
    assert found.to_pylist() == [dt.date(2001, 1, 22), None]
    assert bad[0] == ("type", "depth: no number") and "drilled" in bad[1][1], (
        "the first reason stands"
    )


def test_a_correction_changes_nothing_but_the_column_it_names(made: Made) -> None:
    mapping = {
        "columns": [
            {"from": n, "to": n, "type": t}
            for n, t in (("id", "string"), ("n", "number"), ("on", "date"), ("s", "string"))
        ]
    }
    content = "id,n,on,s\nr1,abc,2001-01-22,active\nr2,2,never,active\n"
    fixes = {record_digest("r1,abc,2001-01-22,active"): {"n": "124.5"}}
    found = made("csv", content, source_kind="delimited", mapping=mapping, fixes=fixes)
    assert found.rows == [{"id": "r1", "n": 124.5, "on": dt.date(2001, 1, 22), "s": "active"}]


def test_what_a_reader_could_read_of_a_bad_record_is_held() -> None:
    rows = [
        Loose(1, lambda: "a", {"x": 1}),
        Loose(2, lambda: "b", None, ("type", "y: bad"), {"x": 2, "z": 3}),
        Loose(3, lambda: "c", None),
    ]
    batch = batch_of("s", rows, ("x",))
    assert batch.columns == {"x": [1, 2, None]} and batch.unknown == (), (
        "a bad record does not say what columns there are"
    )


def test_a_record_that_holds_nothing_says_which_columns_it_would_have(made: Made) -> None:
    ragged, typed = made("csv", "id,n\nr1,1\nr2\nr3,x\n", schema=SCHEMA).rejects
    assert (ragged["blank"], "blank" in typed) == (["id", "n"], False)


# ---- connector code sees what was corrected

DROPS = "def transform(ctx, rows):\n    for row in rows:\n        if row['n'] != '0':\n            yield {'id': row['id'], 'twice': 2 * int(row['n'])}\n"


@pytest.mark.parametrize("schema", [{"id": "string", "twice": "integer"}, None])
def test_a_corrected_record_goes_through_connector_code(
    made: Made, tmp_path: Path, schema: dict[str, str] | None
) -> None:
    (tmp_path / "connector.py").write_text(DROPS)
    content = "id,n\nr1\nr2,2\nr3\nr4,4\nr5\n"
    more: dict[str, Any] = {"schema": schema, "connector": str(tmp_path / "connector.py")}
    first, second, third = made("csv", content, **more).rejects
    assert (first["columns"], first["blank"]) == ({"id": "string", "n": "string"}, ["id", "n"])
    assert [near(r) for r in (first, second, third)] == [
        (None, "r2,2"),
        ("r2,2", "r4,4"),
        ("r4,4", None),
    ], "as the source has them"
    fixes = {first["digest"]: {"id": "r1", "n": "1"}, second["digest"]: {"id": "r3", "n": "0"}}
    found = made("csv", content, fixes=fixes, **more)
    assert [(r["id"], r["twice"]) for r in found.rows] == [("r1", 2), ("r2", 4), ("r4", 8)]
    assert found.result.books.dropped == {"connector": 1}, "what connector code drops stays dropped"
    assert [r["record"] for r in found.rejects] == ["r5"]


def test_connector_code_behind_a_mapping_gets_the_columns_nobody_corrected(
    made: Made, tmp_path: Path
) -> None:
    (tmp_path / "connector.py").write_text(
        "def transform(ctx, rows):\n    return (r for r in rows if r['status'] == 'active')\n"
    )
    types = {"well_id": "string", "depth_ft": "number", "drilled": "date", "status": "string"}
    mapping = {"columns": [{"from": n, "to": n, "type": t} for n, t in types.items()]}
    lines = [
        "W-049,abc,2001-01-22,active",
        "W-050,50,2001-01-23,active",
        "W-051,abc,2001-01-24,plugged",
    ]
    fixes = {record_digest(line): {"depth_ft": "124.5"} for line in lines}
    more: dict[str, Any] = {
        "connector": str(tmp_path / "connector.py"),
        "source_kind": "delimited",
        "mapping": mapping,
        "schema": types,
    }
    content = "\n".join([",".join(types), *lines]) + "\n"
    first, _ = made("csv", content, **more).rejects
    assert (first["columns"], "blank" in first) == (types, False)
    found = made("csv", content, fixes=fixes, **more)
    assert [tuple(r.values()) for r in found.rows] == [
        ("W-049", 124.5, dt.date(2001, 1, 22), "active"),
        ("W-050", 50.0, dt.date(2001, 1, 23), "active"),
    ]


class Wells(RowReader):
    """A good record and a bad one, of which all but one value could be read."""

    def rows(self) -> Iterator[Loose]:
        yield Loose(1, lambda: "one", {"id": "a", "depth": 1.5, "on": dt.date(2001, 1, 21), "n": 1})
        yield Loose(
            2,
            lambda: "two",
            None,
            ("type", "depth: bad"),
            {"id": "b", "depth": None, "on": dt.date(2001, 1, 22), "n": 2},
        )
        yield Loose(3, lambda: "three", None, ("drop:unwanted", "not asked for"))


def test_connector_code_is_given_typed_corrections_and_what_was_held(tmp_path: Path) -> None:
    source = InputFile(source_id="s", path="", digest="")
    fixes = {
        record_digest("two"): {"depth": "2", "on": "2002-02-02"},
        record_digest("three"): {"id": "c"},
    }
    job = Read(
        dataset_id="d",
        format="csv",
        inputs=(source,),
        schema=(Column(name="id", type="string"),),
        fixes=fixes,
        artifact="d",
    )
    seen: list[Any] = []
    context = Context(job, tmp_path, lambda _: None)
    feed = Feed(job, lambda _, rows: (seen.append(r) or r for r in rows), context, [Wells(source)])
    list(feed.batches(("id", "depth", "on", "n")))
    assert (
        seen[1:] == [{"id": "b", "depth": 2.0, "on": dt.date(2002, 2, 2), "n": 2}]
        and type(seen[1]["depth"]) is float
    )


def test_rows_beyond_what_people_can_decide_are_counted_only(
    job_of: Callable[..., Read], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kfm.connectors.table.rejects._MOST", 5)
    result = run_inline(job_of("csv", csv(*range(1, 10)), schema=SCHEMA), tmp_path)
    assert result.books.quarantined == 9
    assert len((tmp_path / str(result.quarantine)).read_text().splitlines()) == 5


@pytest.mark.parametrize(
    ("kind", "good", "bad"),
    [
        ("integer", "7", "7.5"),
        ("number", "-1e3", "NaN"),
        ("boolean", "yes", "perhaps"),
        ("date", "2020-02-29", "2021-02-29"),
    ],
)
def test_a_value_is_judged_by_its_column(kind: Any, good: str, bad: str) -> None:
    column = Column(name="c", type=kind, nullable=False)
    assert check_value(column, good) is None
    assert "c: " in str(check_value(column, bad)) and check_value(column, "") == "c: no value"
