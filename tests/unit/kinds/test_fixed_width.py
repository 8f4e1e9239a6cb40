"""Text of fixed width: columns by their places, and lines that do not fit set aside."""

import datetime as dt
import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from kfm.connectors.base import CaptureRefused, InputFile, TransformResult
from kfm.connectors.child.process import run_inline
from kfm.connectors.operations import Read
from kfm.model.dataset import Column, Packed

COLUMNS = [
    {"name": "well_id", "start": 1, "width": 5},
    {"name": "county", "start": 6, "width": 10},
    {"name": "depth", "start": 16, "width": 6, "nulls": ["-999"]},
    {"name": "drilled", "start": 22, "width": 10},
]
LINES = "00001Barton     182.51998-04-17\n00002Pawnée       96\n00003Stafford   -999 2015-06-30\n"
Table = Callable[..., tuple[TransformResult, list[dict[str, Any]]]]


@pytest.fixture
def table(tmp_path: Path) -> Table:
    def make(text: str | bytes, **more: Any) -> tuple[TransformResult, list[dict[str, Any]]]:
        path = tmp_path / "given.txt"
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        options = {"columns": COLUMNS} | more.pop("options", {})
        job = Read(
            dataset_id="d",
            source_kind="fixed_width",
            format="txt",
            options=options,
            inputs=(InputFile(source_id="s", path=str(path), digest=""),),
            artifact="d.parquet",
            **({"max_quarantined": 1.0} | more),
        )
        result = run_inline(job, tmp_path)
        return result, pq.read_table(tmp_path / "d.parquet").to_pylist()

    return make


def test_columns_are_cut_by_their_places_and_typed_as_those_of_csv(table: Table) -> None:
    result, rows = table(LINES)
    assert {c.name: c.type for c in result.schema} == {
        "well_id": "string", "county": "string", "depth": "number", "drilled": "date",
    }  # fmt: skip
    assert rows == [
        {"well_id": "00001", "county": "Barton", "depth": 182.5, "drilled": dt.date(1998, 4, 17)},
        {"well_id": "00002", "county": "Pawnée", "depth": 96.0, "drilled": None},
        {"well_id": "00003", "county": "Stafford", "depth": None, "drilled": dt.date(2015, 6, 30)},
    ]
    assert any("end before the last column" in w for w in result.warnings)


def test_how_lines_end_and_what_is_no_record_changes_nothing(table: Table, tmp_path: Path) -> None:
    table(LINES)
    plain = (tmp_path / "d.parquet").read_bytes()
    for other in (LINES.replace("\n", "\r\n"), LINES.replace("\n", "\r"), LINES.rstrip("\n")):
        table(other)
        assert (tmp_path / "d.parquet").read_bytes() == plain
    table("WELLS\n-----\n* a note\n" + LINES + "\n\n", options={"skip_lines": 2, "comment": "*"})
    assert (tmp_path / "d.parquet").read_bytes() == plain
    table(LINES.encode("cp1252"), encoding="cp1252")
    assert (tmp_path / "d.parquet").read_bytes() == plain
    table(gzip.compress(LINES.encode()), packed=Packed(by="gzip"))
    assert (tmp_path / "d.parquet").read_bytes() == plain


def test_a_line_that_does_not_fit_is_set_aside_with_its_number(
    table: Table, tmp_path: Path
) -> None:
    full = "00001Barton     182.51998-04-17\n"
    result, rows = table(
        full + "00002 short\n" + full.replace("00001", "00003") + "00004\tBarton" + " " * 19 + "\n",
        options={"line": 31},
    )
    assert [r["well_id"] for r in rows] == ["00001", "00003"]
    aside = [json.loads(x) for x in (tmp_path / "d.quarantine.jsonl").read_text().splitlines()]
    assert [(a["line"], a["rule"]) for a in aside] == [
        (2, "fixed_width.line"),
        (4, "fixed_width.tab"),
    ]
    with pytest.raises(CaptureRefused) as caught:
        table(full + full[:20], options={"line": 31})
    assert caught.value.code == "truncated"
    result, rows = table(full * 300 + full.replace(" 182.5", "abcdef"))
    assert (len(rows), result.books.quarantined) == (300, 1)
    assert any("of 301 values is not" in w for w in result.warnings)


def test_a_stated_column_that_the_list_does_not_name_is_missing(table: Table) -> None:
    schema = tuple(Column(name=c["name"], type="string") for c in COLUMNS)
    more = Column(name="owner", type="string", nullable=False)
    with pytest.raises(CaptureRefused) as caught:
        table(LINES, schema=(*schema, more))
    assert caught.value.code == "schema.missing-column"
    with pytest.raises(CaptureRefused) as caught:
        table(LINES, schema=schema[:2])
    assert caught.value.code == "schema.unknown-column"


@pytest.mark.parametrize(
    ("text", "more", "code"),
    [
        ("", {}, "empty"),
        ("\n \n", {}, "empty"),
        (LINES.encode("cp1252"), {}, "encoding"),
        (b"00001Bar\0ton", {}, "encoding"),
        ("<html><h1>Not found", {}, "html"),
        (b"\x1f\x8b\x08....", {}, "format"),
        (LINES, {"options": {"columns": []}}, "options"),
        (LINES, {"options": {"columns": [{"name": "a", "start": 0, "width": 1}]}}, "options"),
        (LINES, {"options": {"columns": [*COLUMNS, COLUMNS[0]]}}, "options"),
        (LINES, {"options": {"line": 20}}, "options"),
        (
            LINES,
            {"options": {"columns": [{"name": "a\x1b", "start": 1, "width": 1}]}},
            "schema.names",
        ),
        ("x" * (9 << 20), {}, "record.size"),
    ],
)
def test_what_is_no_such_text_is_refused(
    table: Table, text: str | bytes, more: dict[str, Any], code: str
) -> None:
    with pytest.raises(CaptureRefused) as caught:
        table(text, **more)
    assert caught.value.code == code
