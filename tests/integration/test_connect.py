"""Connectors written with `kfm.connect`, from upstream to an official version."""

import gzip
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from kfm.testing import Upstream, Workspace, workspace
from tests.given.sheets import sheet, xlsx
from tests.given.verbs import Said

Kfm = Callable[..., Said]
WELLS = """
from collections.abc import Iterator
from kfm.connect import Ask, Context, Row, bearer, column, source

wells = source(
    "wells",
    auth=bearer("wells_token"),
    records="results",
    columns=[column("well_id", key=True), column("depth_ft", float, unit="ft", min=0)],
)

@wells.acquire
def pages(ask: Ask) -> None:
    ask.pages(next="Link", total="count")

@wells.transform
def tidy(ctx: Context, rows: Iterator[Row]) -> Iterator[Row]:
    for row in rows:
        if row["Status"] == "plugged":
            ctx.refuse(row, "plugged")
        elif row["Depth"] == "?":
            ctx.set_aside(row, "its depth is a question")
        else:
            yield {"well_id": row["API"], "depth_ft": float(row["Depth"])}
"""
RAIN = """
from collections.abc import Iterator
from kfm.connect import Context, File, Row, column, source

rain = source("rain", columns=[column("station", key=True), column("day", "date", key=True),
                               column("mm", float)])

@rain.parse
def lines(ctx: Context, file: File) -> Iterator[Row]:
    with file.text("latin-1") as text:
        for line in text:
            if line.startswith("#"):
                ctx.refuse({"line": line}, "comment")
            else:
                yield {"station": line[0:6].strip(), "day": line[6:16], "mm": line[16:22].strip()}
"""


FOUR = re.compile(r"^~~~\w+ ([^\n]+)\n(.*?)^~~~$", re.M | re.S)


@pytest.fixture
def up() -> Iterator[Upstream]:
    with Upstream() as server:
        yield server


def register(ws: Path, name: str, code: str, **source: Any) -> None:
    more = "".join(f"  {k}: {v}\n" for k, v in source.items())
    (ws / "data" / "registry" / f"{name}.yml").write_text(
        f"dataset_id: {name}\ntitle: {name}\nlicence: CC0-1.0\nsensitivity: public\n"
        f"policy_label: public\nsource:\n{more}max_quarantined: 0.5\n"
    )
    folder = ws / "scripts" / "connectors" / name
    folder.mkdir(parents=True)
    (folder / "connector.py").write_text(code)


def rows(ws: Path, name: str, said: Said) -> list[dict[str, Any]]:
    assert said.code == 0, said.err
    version = said.json["runs"][0]["version_id"]
    return list(pq.read_table(ws / f"data/processed/{name}/{version}/{name}.parquet").to_pylist())


def test_a_paged_source_becomes_official_with_the_columns_its_connector_states(
    kfm: Kfm, ws: Path, up: Upstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WELLS_TOKEN", "token-of-the-wells")
    (ws / "kfm.yml").write_text(
        (ws / "kfm.yml").read_text() + "\ncredentials: {wells_token: env:WELLS_TOKEN}\n"
    )
    well = {"API": "1", "Depth": "12.5", "Status": "active"}
    first = [well, well | {"API": "2", "Status": "plugged"}]
    second = [well | {"API": "3", "Depth": "?"}, well | {"API": "4", "Depth": 7}]
    up.files["/wells"] = json.dumps({"count": 4, "results": first, "tags": []}).encode()
    up.files["/wells?after=2"] = json.dumps({"count": 4, "results": second, "tags": []}).encode()
    up.headers["/wells"] = {"Link": '</wells?after=2>; rel="next"'}
    register(ws, "wells", WELLS, url=f"{up.url}/wells", format="json")
    said = kfm("run", "wells", "--json")
    assert rows(ws, "wells", said) == [
        {"well_id": "1", "depth_ft": 12.5},
        {"well_id": "4", "depth_ft": 7.0},
    ]
    record = json.loads(next(ws.glob("data/work/wells/runs/*/run_record.json")).read_text())
    assert record["spec"]["registry"]["business_key"] == ["well_id"]
    assert "token-of-the-wells" not in json.dumps(record)
    books = json.loads(next(ws.glob("data/work/wells/runs/*/validation_report.json")).read_text())
    assert '"connector plugged": 1' in json.dumps(books)
    assert (
        "its depth is a question" in kfm("quarantine", "show", said.json["runs"][0]["run_id"]).out
    )
    assert kfm("run", "wells", "--json").json["runs"][0]["state"] == "NOOP"
    assert kfm("verify", "wells").code == 0


def test_a_format_of_ones_own_is_read_in_the_child(kfm: Kfm, ws: Path, up: Upstream) -> None:
    lines = "# Kansas\nA1    2026-01-01  12.5\nA1    2026-01-02      \n"
    up.files["/rain.gz"] = gzip.compress(lines.encode("latin-1"))
    register(ws, "rain", RAIN, kind="parsed", url=f"{up.url}/rain.gz", format="gz")
    made = rows(ws, "rain", kfm("run", "rain", "--json"))
    assert [(r["station"], str(r["day"]), r["mm"]) for r in made] == [
        ("A1", "2026-01-01", 12.5),
        ("A1", "2026-01-02", None),
    ]
    up.files["/rain.gz"] = gzip.compress(lines.encode())[:-9]
    cut = kfm("run", "rain")
    assert cut.code == 1
    assert "damaged or cut off" in cut.err + cut.out
    up.files["/rain.gz"] = b"<html><body>We are sorry</body></html>"
    assert "probably an error page" in (page := kfm("run", "rain")).err + page.out
    (ws / "scripts/connectors/rain/connector.py").write_text(RAIN.replace("@rain.parse\n", ""))
    assert kfm("run", "rain").code == 2


def test_the_four_connectors_of_the_page_are_short_and_become_official(
    tmp_path: Path, up: Upstream
) -> None:
    ws: Workspace = workspace(tmp_path / "ws")
    page = (Path(__file__).parents[2] / "docs" / "connectors.md").read_text()
    files = dict(FOUR.findall(page))
    assert len(files) == 8
    for name, text in files.items():
        assert len(text.splitlines()) <= 40
        (ws.path / name).parent.mkdir(parents=True, exist_ok=True)
        (ws.path / name).write_text(text.replace("https://example.org", up.url))
    gauge = {"id": "a", "river": "kaw", "stage": 3.5, "status": "open"}
    meta = {"count": 3, "next": "/api/gauges?limit=2&page=2"}
    first = {"meta": meta, "gauges": [gauge, gauge | {"id": "b", "status": "closed"}]}
    second = {"meta": {"count": 3, "next": None}, "gauges": [gauge | {"id": "c", "stage": 12}]}
    rows: list[list[object]] = [
        ["Permits of 2026"],
        ["Permit", "", "Depth"],
        ["number", "County", "ft"],
        ["P-1", "BARTON", 120],
        ["P-2", "RUSH", 80.5],
    ]
    rain = "STATIONDAY       RAIN\nA1    2026-01-01    25\nA1    2026-01-02 -9999\n"
    xml = '<inventory><bridge id="7"><built><year>1931</year></built><span>12.5</span></bridge></inventory>'
    up.files |= {
        "/api/gauges?limit=2": json.dumps(first).encode(),
        "/api/gauges?limit=2&page=2": json.dumps(second).encode(),
        "/permits.xlsx": xlsx(sheet(rows), names=("Permits",)),
        "/rain.txt.gz": gzip.compress(rain.encode()),
        "/bridges.xml": xml.encode(),
    }
    names = ["gauges", "permits", "rain", "bridges"]
    code, out, err = ws.call("run", *names)
    assert code == 0, out + err
    assert ws.rows("gauges") == [
        {"gauge_id": "a", "river": "Kaw", "stage_ft": 3.5},
        {"gauge_id": "c", "river": "Kaw", "stage_ft": 12.0},
    ]
    assert [tuple(r.values()) for r in ws.rows("permits")] == [
        ("P-1", "Barton", 120.0),
        ("P-2", "Rush", 80.5),
    ]
    assert [(r["station"], r["inches"]) for r in ws.rows("rain")] == [("A1", 0.25)]
    assert ws.rows("bridges") == [{"bridge_id": "7", "built": 1931, "span_m": 12.5}]
    for name in names:
        assert (ws.path / f"data/catalog/dcat/{name}.json").is_file()
    assert ws.call("verify")[0] == 0
    assert ws.call("doctor")[0] == 0
    code, out, _ = ws.call("connector", "try", "rain")
    assert (code, "no measurement" in out, "on capture" in out) == (0, True, True)
