"""Somebody who knows Python, and kfm from its pages alone, brings four sources to official versions:
a paged API, an Excel file with two rows of headings, gzipped text of fixed width, XML. Every file
written here has under forty lines; the slips are those that were made when it was tried.
"""

import gzip
import json
import re
from pathlib import Path

import pytest

from kfm.connectors.child.process import kept_warm
from kfm.testing import Upstream, Workspace, workspace
from tests.given.sheets import sheet, xlsx

SENSORS = '''"""sensors: soil moisture from an API that answers in pages with a cursor."""

from collections.abc import Iterator

from kfm.connect import Ask, Context, Row, column, source

sensors = source(
    "sensors",
    columns=[
        column("sensor", key=True),
        column("latitude", float),
        column("moisture", float, min=0, max=1),
        column("updated", "timestamp"),
    ],
    records="data",
)


@sensors.acquire
def pages(ask: Ask) -> None:
    ask.pages(next="paging.after", token="after", total="paging.total")


@sensors.transform
def tidy(ctx: Context, rows: Iterator[Row]) -> Iterator[Row]:
    for row in rows:
        yield {
            "sensor": row["sensorCode"],
            "latitude": row["site"]["lat"],
            "moisture": row["moisture"],
            "updated": row["updated"],
        }
'''
BIRDS = '''"""birds: adults and young per plot; what a sheet holds is text until it is made a number."""

from collections.abc import Iterator

from kfm.connect import Context, Row, column, source

birds = source(
    "birds",
    columns=[
        column("plot", key=True),
        column("count_adults", int, min=0),
        column("count_young", int, min=0),
        column("both", int),
    ],
)


@birds.transform
def tidy(ctx: Context, rows: Iterator[Row]) -> Iterator[Row]:
    for row in rows:
        yield {**row, "both": int(row["count_adults"]) + int(row["count_young"])}
'''
SOIL = '''"""soil: temperatures at a depth of four inches, in columns of fixed width."""

from collections.abc import Iterator

from kfm.connect import Context, Row, column, source

soil = source(
    "soil",
    columns=[column("station", key=True), column("day", "date", key=True), column("t", float)],
)


@soil.transform
def tidy(ctx: Context, rows: Iterator[Row]) -> Iterator[Row]:
    for row in rows:
        if row["t"] is None:
            ctx.refuse(row, "no measurement")
        else:
            day = row["day"]
            yield {**row, "day": f"{day[:4]}-{day[4:6]}-{day[6:]}"}
'''
PERMITS = '''"""permits: who may pump how much, as XML."""

from kfm.connect import column, source

permits = source(
    "permits",
    columns=[column("permit", key=True), column("rate", float, unit="gpm"), column("uses")],
)
'''
NARROW = """options:
    skip_lines: 2
    columns:
    - {name: station, start: 1, width: 6}
    - {name: day, start: 7, width: 8}
    - {name: t, start: 15, width: 6, nulls: ["-999"]}
"""
PATHS = """options:
    records: /permits/list/permit
    columns: {permit: "@number", rate: rate, uses: {path: use, join: "; "}}
"""


def sensor(number: int) -> dict[str, object]:
    at = f"2026-03-0{number}T06:00:00Z"
    return {"sensorCode": f"S{number}", "site": {"lat": 38.5}, "moisture": 0.25, "updated": at}


def page(numbers: list[int], after: str | None) -> bytes:
    paging = {"after": after, "total": 3}
    return json.dumps({"data": [sensor(n) for n in numbers], "paging": paging}).encode()


def brought(folder: Path) -> dict[str, Path]:
    """The three files as somebody has them on disk."""
    counts: list[list[object]] = [
        ["Plot", "Count", None],
        [None, "adults", "young"],
        ["P1", 3, 1],
        ["P2", 6, 2],
    ]
    narrow = "* degrees F\nST    DATE       T\nKS001 20260401  45.5\nKS001 20260402  -999\n"
    permit = "<p:permit number='{}'><p:rate>100.5</p:rate>{}</p:permit>"
    one, two = (
        permit.format("N1", "<p:use>stock</p:use>"),
        permit.format("N2", "<p:use>a</p:use>" * 2),
    )
    xml = f"<p:permits xmlns:p='http://example.org/p'><p:list>{one}{two}</p:list></p:permits>"
    made = {
        "birds.xlsx": xlsx(
            sheet([["Annual count"]]), sheet(counts, merged=("B1:C1",)), names=("Cover", "Counts")
        ),
        "soil.txt.gz": gzip.compress(narrow.encode(), mtime=0),
        "permits.xml": xml.encode(),
    }
    for name, data in made.items():
        (folder / name).write_bytes(data)
    return {name.partition(".")[0]: folder / name for name in made}


def told(ws: Workspace, *words: str, code: int = 0) -> str:
    ended, out, err = ws.call(*words)
    assert ended == code, f"{words}\n{out}\n{err}"
    return out + err


def change(ws: Workspace, name: str, code: str, options: str = "") -> None:
    assert len(code.splitlines()) < 40
    (ws.path / "scripts/connectors" / name / "connector.py").write_text(code)
    entry = ws.path / f"data/registry/{name}.yml"
    if options:
        kept = re.sub(r"(?ms)^  options:\n.*?(?=^\S)", "", entry.read_text())
        entry.write_text(kept.replace("cadence:", f"  {options}cadence:"))


@pytest.fixture
def ws(tmp_path: Path) -> Workspace:
    return workspace(tmp_path / "ws")


def test_four_sources_become_official_from_what_the_pages_say(
    ws: Workspace, tmp_path: Path
) -> None:
    files = brought(tmp_path)
    with Upstream() as up, kept_warm(private=False, coded=True):
        for path in files.values():
            up.files[f"/{path.name}"] = path.read_bytes()
        up.files["/sensors?size=2"] = page([1, 2], "2")
        up.files["/sensors?size=2&after=2"] = page([3], None)
        _new(ws, up, files)
        _write(ws, up)
        names = ["birds", "permits", "sensors", "soil"]
        told(ws, "run", *names)
        for name in names:
            assert (ws.path / f"data/catalog/dcat/{name}.json").is_file()
            assert any((ws.path / f"data/catalog/prov/{name}").iterdir())
        told(ws, "verify")
        assert "S3" in told(ws, "show", "sensors")
    assert [r["sensor"] for r in ws.rows("sensors")] == ["S1", "S2", "S3"]
    assert [(r["plot"], r["both"]) for r in ws.rows("birds")] == [("P1", 4), ("P2", 8)]
    assert [(r["station"], str(r["day"]), r["t"]) for r in ws.rows("soil")] == [
        ("KS001", "2026-04-01", 45.5)
    ]
    assert [(r["permit"], r["uses"]) for r in ws.rows("permits")] == [
        ("N1", "stock"),
        ("N2", "a; a"),
    ]


def _new(ws: Workspace, up: Upstream, files: dict[str, Path]) -> None:
    """`connector new` of each, as it is typed first, and as its answer says."""

    def new(name: str, *more: str, code: int = 0) -> str:
        given = ["--file", str(files[name]), "--url", f"{up.url}/{files[name].name}"]
        return told(ws, "connector", "new", name, *given, "--licence", "CC0-1.0", *more, code=code)

    new("birds")  # finds the sheet behind the cover, and the second row of headings
    assert "--kind fixed_width" in new("soil", code=2)
    new("soil", "--kind", "fixed_width")
    assert "xml.repeated 1" in (said := new("permits", code=1)) and "no `join` says how" in said
    sensors = (
        "connector",
        "new",
        "sensors",
        "--url",
        f"{up.url}/sensors?size=2",
        "--licence",
        "CC0-1.0",
    )
    assert "--format json" in told(ws, *sensors, code=2)
    told(ws, *sensors, "--format", "json")


def _write(ws: Workspace, up: Upstream) -> None:
    """The connectors, each tried and checked as the page says."""
    change(ws, "birds", BIRDS)
    assert "both=4" in told(ws, "connector", "try", "birds", "--rows", "1")
    change(ws, "soil", SOIL.replace('"date"', "int"), NARROW)
    said = told(ws, "connector", "try", "soil", "--rows", "1", code=1)
    assert "left out\n  no measurement" in said and "set aside\n  day: expected an integer" in said
    assert "A run would refuse this: 1 of 2 records are set aside" in said
    change(ws, "soil", SOIL)
    change(ws, "permits", PERMITS, PATHS)
    change(ws, "sensors", SENSORS)
    fixtures = ws.path / "scripts/connectors/sensors/fixtures"
    fixtures.mkdir()
    (fixtures / "one.json").write_bytes(page([1, 2, 3], "2"))
    (fixtures / "two.json").write_bytes(page([], None))
    answers = {f"{up.url}/sensors?size=2": "one.json"}
    (fixtures / "replay.json").write_text(json.dumps(answers))
    assert "fixtures/replay.json has no answer for it" in told(
        ws, "connector", "check", "sensors", code=1
    )
    answers[f"{up.url}/sensors?size=2&after=2"] = "two.json"
    (fixtures / "replay.json").write_text(json.dumps(answers))
    told(ws, "connector", "check", "--golden", "birds", "permits", "sensors", "soil")


def test_a_first_sheet_without_a_record_is_refused_with_the_names_of_the_others(
    ws: Workspace, tmp_path: Path
) -> None:
    inbox = ws.path / "inbox"
    inbox.mkdir()
    (inbox / "birds.xlsx").write_bytes(brought(tmp_path)["birds"].read_bytes())
    ws.register("birds", source={"url": "file:///inbox/birds.xlsx", "kind": "spreadsheet"})
    said = told(ws, "run", "birds", code=1)
    assert "its sheet 'Cover' has no record; there are: 'Cover', 'Counts'" in said
