"""Spreadsheets: the values people see, as dates where they see dates, and nothing guessed where a
cell holds none.
"""

import datetime as dt
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from tests.given.sheets import ods, ods_row, sheet, xlsx, zipped

from kfm.connectors.base import CaptureRefused, InputFile, TransformResult
from kfm.connectors.child.process import run_inline
from kfm.connectors.operations import Read

HEAD: list[object] = ["Well ID", "Depth (ft)", "Drilled"]
DAY = '<c s="1"><v>{}</v></c>'
Table = Callable[..., tuple[TransformResult, list[dict[str, Any]]]]


@pytest.fixture
def table(tmp_path: Path) -> Table:
    def make(
        data: bytes, form: str = "xlsx", **more: Any
    ) -> tuple[TransformResult, list[dict[str, Any]]]:
        path = tmp_path / f"given.{form}"
        path.write_bytes(data)
        job = Read(
            dataset_id="d",
            source_kind="spreadsheet",
            format=form,
            inputs=(InputFile(source_id="s", path=str(path), digest=""),),
            artifact="d.parquet",
            **({"max_quarantined": 1.0} | more),
        )
        result = run_inline(job, tmp_path)
        return result, pq.read_table(tmp_path / "d.parquet").to_pylist()

    return make


@pytest.fixture
def code(table: Table) -> Callable[..., str]:
    def refused(data: bytes, form: str = "xlsx", **more: Any) -> str:
        with pytest.raises(CaptureRefused) as caught:
            table(data, form, **more)
        assert caught.value.expected and caught.value.remedy
        return caught.value.code

    return refused


def aside(folder: Path) -> list[tuple[int, str]]:
    lines = (folder / "d.quarantine.jsonl").read_text().splitlines()
    return [(r["line"], r["rule"]) for r in map(json.loads, lines)]


def test_values_have_the_types_that_people_see(table: Table) -> None:
    rows: list[list[object]] = [
        ["Id", "Name", "Depth (ft)", "Drilled", "Seen", "At", "Took", "Open", "Note"],
        ["007", '<c t="s"><v>0</v></c>', 182.5, DAY.format(43861), '<c s="2"><v>43861.5</v></c>',
         '<c s="3"><v>0.25</v></c>', '<c s="4"><v>1.25</v></c>', True, '<c t="str"><f>A1</f><v>made</v></c>'],
        ["008", '<c t="s"><v>1</v></c>', 96, None, '<c s="2"><v>43862</v></c>', None, None, False, " two\nlines "],
        ["009", None, "12", '<c t="d"><v>2020-02-29</v></c>', None, None, None, None, '<c t="str"><f>A1</f><v></v></c>'],
    ]  # fmt: skip
    strings = ("Barton _x0026_ Co", "<r><t>Paw</t></r><r><t>nee</t></r><rPh><t>spoken</t></rPh>")
    result, found = table(
        xlsx(sheet(rows), strings=strings), options={"time_zone": "America/Chicago"}
    )
    assert {c.name: c.type for c in result.schema} == {
        "id": "string", "name": "string", "depth_ft": "number", "drilled": "date", "seen": "timestamp", "at": "string",
        "took": "string", "open": "boolean", "note": "string",
    }  # fmt: skip
    utc = dt.UTC
    assert [tuple(r.values()) for r in found] == [
        ("007", "Barton & Co", 182.5, dt.date(2020, 1, 31), dt.datetime(2020, 1, 31, 18, tzinfo=utc), "06:00:00", "30:00:00", True, "made"),
        ("008", "Pawnee", 96.0, None, dt.datetime(2020, 2, 1, 6, tzinfo=utc), None, None, False, "two\nlines"),
        ("009", None, 12.0, dt.date(2020, 2, 29), None, None, None, None, None),
    ]  # fmt: skip


def test_a_sheet_is_chosen_and_its_header_may_stand_in_two_rows(table: Table) -> None:
    rows: dict[int, list[object]] = {
        1: ["Wells of the county, 2026"],
        3: ["Well", None, "Depth", None],
        4: ["Id", "County", "ft", "m"],
        5: ["a", "Barton", 10, 3],
        9: ["b", "Rush", 20, 6],
    }
    book = xlsx(sheet([["x"]]), sheet(rows, ("A1:D1", "C3:D3")), names=("Read me", "Wells & more"))
    for chosen in ("Wells & more", 2):
        _, found = table(book, options={"sheet": chosen, "header": [3, 4]})
        assert found == [
            {"well_id": "a", "county": "Barton", "depth_ft": 10, "depth_m": 3},
            {"well_id": "b", "county": "Rush", "depth_ft": 20, "depth_m": 6},
        ]
    _, found = table(
        ods(
            First=[["x"]],
            Wells=[
                ["A title", *[None] * 3],
                ["Well", '<table:table-cell table:number-rows-spanned="2"><text:p>County</text:p></table:table-cell>',
                 '<table:table-cell table:number-columns-spanned="2"><text:p>Depth</text:p></table:table-cell>', "<table:covered-table-cell/>"],
                ["Id", "<table:covered-table-cell/>", "ft", "m"],
                ["a", "Barton", 10, 3],
            ],
        ),
        "ods",
        options={"sheet": "Wells", "header": [2, 3]},
    )  # fmt: skip
    assert found == [{"well_id": "a", "county": "Barton", "depth_ft": 10, "depth_m": 3}]


def test_days_are_those_of_1904_where_the_file_says_so(table: Table) -> None:
    rows: list[list[object]] = [["id", "day"], ["a", DAY.format(0)], ["b", DAY.format(42399)]]
    _, found = table(xlsx(sheet(rows), from_1904=True))
    assert [r["day"] for r in found] == [dt.date(1904, 1, 1), dt.date(2020, 1, 31)]
    rows = [["id", "day"], ["a", DAY.format(1)], ["b", DAY.format(59)], ["c", DAY.format(61)]]
    _, found = table(xlsx(sheet(rows)))
    assert [r["day"] for r in found] == [
        dt.date(1900, 1, 1),
        dt.date(1900, 2, 28),
        dt.date(1900, 3, 1),
    ]


def test_an_ods_sheet_says_the_same(table: Table) -> None:
    day = '<table:table-cell office:value-type="date" office:date-value="{}"/>'
    note = "<office:annotation><text:p>ask Ann</text:p></office:annotation>"
    rows: list[list[object] | str] = [
        HEAD,
        ["007", 182.5, day.format("2020-01-31")],
        ods_row([None, None, None], 'table:number-rows-repeated="3"'),
        ["008", f'<table:table-cell office:value-type="float" office:value="96">{note}<text:p>96</text:p></table:table-cell>'],
        ods_row(["009", 12, day.format("2020-02-29")], 'table:number-rows-repeated="2"'),
        ods_row([None], 'table:number-rows-repeated="1048560"'),
    ]  # fmt: skip
    result, found = table(ods(Wells=rows), "ods")
    assert {c.name: c.type for c in result.schema} == {
        "well_id": "string", "depth_ft": "number", "drilled": "date",
    }  # fmt: skip
    assert [tuple(r.values()) for r in found] == [
        ("007", 182.5, dt.date(2020, 1, 31)),
        ("008", 96.0, None),
        *[("009", 12.0, dt.date(2020, 2, 29))] * 2,
    ]


def test_a_row_with_a_cell_that_holds_no_value_is_set_aside(table: Table, tmp_path: Path) -> None:
    cases: list[tuple[str, list[object]]] = [
        ("spreadsheet.error", ["a", '<c t="e"><f>B2/0</f><v>#REF!</v></c>']),
        ("spreadsheet.formula", ["a", "<c><f>1+1</f><v></v></c>"]),
        ("spreadsheet.formula", ["a", "<c><f>1+1</f></c>"]),
        ("spreadsheet.cell", ["a", '<c t="s"><v>99</v></c>']),
        ("spreadsheet.cell", ["a", "<c><v>1e999</v></c>"]),
        ("spreadsheet.cell", ["a", '<c s="1"><v>60</v></c>']),
        ("spreadsheet.cell", ["a", '<c s="1"><v>99999999</v></c>']),
        ("spreadsheet.columns", ["a", 1, "beyond the header"]),
    ]
    rows = [["id", "n"], *(row for _, row in cases), ["z", 5]]
    _, found = table(xlsx(sheet(rows)))
    assert found == [{"id": "z", "n": 5}]
    assert aside(tmp_path) == [(n, rule) for n, (rule, _) in enumerate(cases, 2)]
    table(
        xlsx(
            sheet(
                [["id", "n"], ["a", 1], ["b", None], ["c", 3], ["note", None]], ("B2:B3", "A5:B5")
            )
        )
    )
    assert aside(tmp_path) == [(3, "spreadsheet.merged"), (5, "spreadsheet.merged")]
    error = '<table:table-cell table:formula="of:=1/0" office:value-type="string" calcext:value-type="error"><text:p>#DIV/0!</text:p></table:table-cell>'
    table(
        ods(
            W=[
                ["id", "n"],
                ["a", error],
                ["b", '<table:table-cell table:formula="of:=1"/>'],
                ["c", 1],
            ]
        ),
        "ods",
    )
    assert aside(tmp_path) == [(2, "spreadsheet.error"), (3, "spreadsheet.formula")]


def test_the_same_file_gives_the_same_bytes(table: Table, tmp_path: Path) -> None:
    book = xlsx(sheet([HEAD, ["007", 1.1, DAY.format(43861)]]))
    table(book)
    first = (tmp_path / "d.parquet").read_bytes()
    table(book)
    assert (tmp_path / "d.parquet").read_bytes() == first


WHOLE = xlsx(sheet([HEAD, ["a", 1, None]]))
LAUGHS = '<!DOCTYPE x [<!ENTITY a "ha"><!ENTITY b "&a;&a;">]><worksheet>&b;</worksheet>'


@pytest.mark.parametrize(
    ("data", "more", "expected"),
    [
        pytest.param(b"", {}, "format", id="nothing"),
        pytest.param(b"<html>Sorry</html>", {}, "html", id="a web page"),
        pytest.param(b"a,b\n1,2\n", {}, "format", id="CSV"),
        pytest.param(b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + b"\0" * 600, {}, "spreadsheet.encrypted", id="encrypted"),
        pytest.param(WHOLE[:-30], {}, "archive.damaged", id="cut off"),
        pytest.param(WHOLE[:200], {}, "archive.damaged", id="cut in half"),
        pytest.param(zipped({"a.txt": "x"}), {}, "spreadsheet.format", id="another archive"),
        pytest.param(ods(A=[HEAD]), {}, "spreadsheet.format", id="an .ods"),
        pytest.param(xlsx(sheet([])), {}, "spreadsheet.header", id="an empty sheet"),
        pytest.param(xlsx(sheet([HEAD])), {}, "empty", id="no record"),
        pytest.param(xlsx(sheet([["a", "b", "a"], [1, 2, 3]])), {}, "spreadsheet.header", id="a name twice"),
        pytest.param(WHOLE, {"options": {"sheet": 2}}, "spreadsheet.sheet", id="no such number"),
        pytest.param(WHOLE, {"options": {"sheet": "Wells"}}, "spreadsheet.sheet", id="no such name"),
        pytest.param(WHOLE, {"options": {"header": 9}}, "spreadsheet.header", id="no such row"),
        pytest.param(WHOLE, {"options": {"header": 0}}, "options", id="row 0"),
        pytest.param(WHOLE, {"options": {"time_zone": "Mars"}}, "options", id="no such zone"),
        pytest.param(xlsx(LAUGHS), {}, "xml.doctype", id="a billion laughs"),
        pytest.param(xlsx("<worksheet>" + "<a>" * 300), {}, "xml.depth", id="deep"),
        pytest.param(xlsx(sheet([HEAD])[:-20]), {}, "truncated", id="a sheet that is cut off"),
        pytest.param(xlsx("<worksheet><sheetData><row></sheetData>"), {}, "xml.syntax", id="no XML"),
        pytest.param(xlsx(sheet([["\udcff".encode("utf-8", "surrogatepass").decode("latin-1")]]).encode("latin-1")), {}, "encoding", id="no UTF-8"),  # type: ignore[arg-type]
        pytest.param(
            xlsx(sheet({1: HEAD, 5: ["a"]}).replace('r="A5"', 'r="XFE5"')), {}, "spreadsheet.damaged", id="far out"
        ),
        pytest.param(
            xlsx(sheet({1: HEAD, 5: ["a"]}).replace('<row r="5"', '<row r="9999999"')), {}, "spreadsheet.damaged", id="far down"
        ),
        pytest.param(xlsx(sheet([HEAD, ["0" * (3 << 20)]])), {}, "archive.ratio", id="a bomb"),
        pytest.param(
            xlsx(sheet([HEAD, *[['<c t="s"><v>0</v></c>']] * 300]), strings=("x" * 50_000,)),
            {"options": {"max_bytes": 1 << 20}},
            "spreadsheet.size",
            id="one text again and again",
        ),
    ],
)  # fmt: skip
def test_what_is_no_such_sheet_is_refused(
    code: Callable[..., str], data: bytes, more: dict[str, Any], expected: str
) -> None:
    assert code(data, **more) == expected


def test_a_sheet_of_errors_alone_is_refused_by_what_they_are(code: Callable[..., str]) -> None:
    rows: list[list[object]] = [["a"], ['<c t="e"><v>#REF!</v></c>'], ['<c t="e"><v>#N/A</v></c>']]
    assert code(xlsx(sheet(rows)), max_quarantined=0.01) == "quarantine.share"


def test_a_sparse_sheet_takes_no_memory_for_what_is_not_there(table: Table) -> None:
    far = sheet({1: ["a"], 1 << 20: ["z"]})
    _, found = table(xlsx(far))
    assert found == [{"a": "z"}]
    row = ods_row(["x"], 'table:number-rows-repeated="99999999"')
    with pytest.raises(CaptureRefused) as caught:
        table(ods(W=[["a"], row]), "ods")
    assert caught.value.code == "spreadsheet.damaged"
    encrypted = zipped(
        {"content.xml": b"\x01", "META-INF/manifest.xml": "<m><encryption-data/></m>"}
    )
    with pytest.raises(CaptureRefused) as caught:
        table(encrypted, "ods")
    assert caught.value.code == "spreadsheet.encrypted"
