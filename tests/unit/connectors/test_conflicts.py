"""Records that share a key and differ: refused with their lines, set aside all, or all but the
newest, as the registry says.
"""

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from kfm.connectors.base import Books, InputFile, Refused
from kfm.connectors.child.process import run_inline
from kfm.connectors.kind import Ask
from kfm.connectors.operations import Acquire, Read
from kfm.extras.agencies import nws, usgs_ogc
from kfm.kinds import arcgis

CSV = "k,v,at\na,1,2020-01-01\nb,2,2020-01-01\nb,2,2020-01-01\na,9,2020-01-03\nx,x,x\na,5,2020-01-02\nc,3,2020-01-01\na,9,2020-01-03\n"
SCHEMA = {"k": "string", "v": "string", "at": "date"}
GIVEN: dict[str, Any] = {"schema": SCHEMA, "business_key": ("k",)}


def lines(table: Any, rule: str = "key.conflict") -> list[tuple[int, str]]:
    return [(r["line"], r["reason"]) for r in table.rejects if r["rule"] == rule]


def test_rows_in_conflict_are_set_aside_with_the_lines_of_the_others(made: Any) -> None:
    table = made("csv", CSV, conflicts="quarantine", **GIVEN)
    assert [(r["k"], r["v"]) for r in table.rows] == [("b", "2"), ("c", "3")]
    assert table.result.books == Books(read=8, written=2, quarantined=5, dropped={"duplicate": 1})
    assert [line for line, _ in lines(table)] == [2, 5, 7, 9]
    assert (
        lines(table)[0][1]
        == "k=a: the record on line 5, on line 7, on line 9 has the same key and differs"
    )
    assert [r["line"] for r in table.rejects if r["rule"] == "type"] == [6]
    assert [r["n"] for r in table.rejects] == [1, 2, 3, 4, 5] and table.rejects[0][
        "record"
    ] == "a,1,2020-01-01"


def test_the_newest_stays_by_its_time_or_as_the_last_one_read(made: Any) -> None:
    table = made("csv", CSV, conflicts="newest", time_column="at", **GIVEN)
    assert [(r["k"], r["v"]) for r in table.rows] == [("b", "2"), ("a", "9"), ("c", "3")]
    assert table.result.books == Books(read=8, written=3, quarantined=3, dropped={"duplicate": 2})
    assert [line for line, _ in lines(table)] == [2, 7]
    assert (
        lines(table)[0][1] == "k=a: the record of this key on line 9 stays, being the newest by at"
    )
    last = made("csv", "k,v\na,1\na,9\na,5\n", conflicts="newest", business_key=("k",))
    assert [r["v"] for r in last.rows] == [
        5
    ] and "on line 4 stays, being the last one read" in lines(last)[0][1]


def test_extents_and_profiles_know_nothing_of_what_was_set_aside(made: Any) -> None:
    def feature(k: str, x: float) -> dict[str, Any]:
        return {
            "type": "Feature",
            "properties": {"k": k},
            "geometry": {"type": "Point", "coordinates": [x, 38.0]},
        }

    text = json.dumps(
        {
            "type": "FeatureCollection",
            "features": [feature("a", -98), feature("b", 10), feature("b", 20), feature("c", -97)],
        }
    )
    table = made("geojson", text, business_key=("k",), conflicts="quarantine")
    assert table.result.bbox == (-98.0, 38.0, -97.0, 38.0)
    assert [line for line, _ in lines(table)] == [2, 3]


def test_a_refusal_lists_the_rows_in_conflict_and_no_others(
    job_of: Any, tmp_path: Path, refused: Any
) -> None:
    error = refused("csv", CSV, **GIVEN)
    assert error.code == "key.conflict" and error.detail["rules"] == {"key.conflict": 4}
    assert [p["line"] for p in error.detail["conflicts"][0]["lines"]] == [2, 5]
    (listed,) = tmp_path.rglob(error.detail["quarantine"])
    rows = [json.loads(line) for line in listed.read_bytes().splitlines()]
    assert [(r["line"], r["rule"]) for r in rows] == [(n, "key.conflict") for n in (2, 5, 7, 9)]
    assert rows[0]["record"] == "a,1,2020-01-01" and "line 5" in rows[0]["reason"]


def test_conflicts_between_files_name_the_file(made: Any) -> None:
    table = made(
        "csv", "k,v\na,1\n", "k,v\na,2\nb,1\n", business_key=("k",), conflicts="quarantine"
    )
    assert [reason for _, reason in lines(table)] == [
        "k=a: the record on line 2 of s1 has the same key and differs",
        "k=a: the record on line 2 of s0 has the same key and differs",
    ]


def test_a_correction_takes_a_record_out_of_its_conflict(made: Any) -> None:
    text = "k,v\na,1\nb,2\na,9\nc,3\n"
    digest = made("csv", text, business_key=("k",), conflicts="quarantine").rejects[1]["digest"]
    for rule in ("refuse", "quarantine", "newest"):
        table = made("csv", text, business_key=("k",), conflicts=rule, fixes={digest: {"k": "d"}})
        assert [(r["k"], r["v"]) for r in table.rows] == [("a", 1), ("b", 2), ("c", 3), ("d", 9)]
        assert not table.rejects
    # into the next one
    table = made(
        "csv", text, business_key=("k",), conflicts="quarantine", fixes={digest: {"k": "c"}}
    )
    assert [(r["k"], r["v"]) for r in table.rows] == [("a", 1), ("b", 2)]
    assert [line for line, _ in lines(table)] == [5, 4]


def test_connector_code_is_judged_alike(made: Any, tmp_path: Path) -> None:
    code = tmp_path / "connector.py"
    code.write_text(
        "def transform(ctx, rows):\n    for row in rows:\n        yield {'k': row['k'].lower(), 'v': int(row['v'])}\n"
    )
    for schema in (None, {"k": "string", "v": "integer"}):
        table = made(
            "csv",
            "k,v\na,1\nA,2\nb,3\n",
            business_key=("k",),
            conflicts="quarantine",
            connector=str(code),
            schema=schema,
        )
        assert [r["k"] for r in table.rows] == ["b"] and [line for line, _ in lines(table)] == [
            2,
            3,
        ]


def test_a_kind_knows_which_column_tells_the_newest(tmp_path: Path) -> None:
    def event(mag: float, updated: int) -> dict[str, Any]:
        point = {"type": "Point", "coordinates": [-98.0, 38.0, 5.0]}
        return {
            "type": "Feature",
            "id": "us1",
            "properties": {"mag": mag, "time": 1528967533010, "updated": updated},
            "geometry": point,
        }

    events = [event(2.5, 1528967887700), event(2.7, 1528967999700), event(2.6, 1528967900000)]
    (tmp_path / "in").write_text(json.dumps({"type": "FeatureCollection", "features": events}))
    source = InputFile(source_id="s", path=str(tmp_path / "in"), digest="")
    job = Read(
        dataset_id="d",
        source_kind="usgs_quakes",
        format="geojson",
        inputs=(source,),
        conflicts="newest",
        max_quarantined=1.0,
        artifact="d.parquet",
    )
    result = run_inline(job, tmp_path)
    assert [r["magnitude"] for r in pq.read_table(tmp_path / "d.parquet").to_pylist()] == [2.7]
    rows = [
        json.loads(line) for line in (tmp_path / "d.quarantine.jsonl").read_bytes().splitlines()
    ]
    assert [r["line"] for r in rows] == [1, 3] and "newest by updated_at" in rows[0]["reason"]
    assert result.books.quarantined == 2


# -- pages that overlap


def asking(folder: Path, kind: str, answers: dict[str, Any], url: str, conflicts: str) -> Ask:
    def fetch(message: dict[str, Any]) -> dict[str, Any]:
        path = folder / message["name"]
        path.write_text(
            json.dumps(next(a for part, a in answers.items() if part in message["url"]))
        )
        return {"path": str(path)}

    job = Acquire(
        dataset_id="d",
        source_kind=kind,
        format="json",
        urls=(url,),
        conflicts=conflicts,
        artifact="x.parquet",  # type: ignore[arg-type]
    )
    return Ask(job, fetch, lambda *_, **__: None)


def _arcgis() -> tuple[str, dict[str, Any]]:
    def page(*ids: int) -> dict[str, Any]:
        return {
            "features": [{"attributes": {"OBJECTID": i}} for i in ids],
            "exceededTransferLimit": ids[-1] < 4,
        }

    about = {
        "currentVersion": 11,
        "maxRecordCount": 3,
        "fields": [{"name": "OBJECTID", "type": "esriFieldTypeOID"}],
    }
    answers = {
        "returnCountOnly": {"count": 4},
        "resultOffset=0": page(1, 2, 3),
        "resultOffset=3": page(3, 4),
        "?f=json": about,
    }
    return "https://gis.test/FeatureServer/0", answers


def _ogc() -> tuple[str, dict[str, Any]]:
    def page(link: str) -> dict[str, Any]:
        links = [{"rel": "next", "href": link}] if link else []
        return {
            "type": "FeatureCollection",
            "features": [{"type": "Feature", "id": "a"}],
            "links": links,
        }

    url = "https://api.test/collections/daily/items"
    return url, {"cursor=2": page(""), "items": page(f"{url}?cursor=2")}


def _nws() -> tuple[str, dict[str, Any]]:
    def page(link: str) -> dict[str, Any]:
        feature = {"type": "Feature", "id": "a", "properties": {}, "geometry": None}
        return {
            "type": "FeatureCollection",
            "features": [feature],
            "pagination": {"next": link} if link else {},
        }

    url = "https://api.test/alerts"
    return url, {"cursor=2": page(""), "alerts": page(f"{url}?cursor=2")}


@pytest.mark.parametrize(("module", "server"), [(arcgis, _arcgis), (usgs_ogc, _ogc), (nws, _nws)])
def test_pages_that_overlap_are_refused_unless_the_registry_says_what_becomes_of_them(
    tmp_path: Path, module: Any, server: Any
) -> None:
    url, answers = server()
    with pytest.raises(Refused):
        module.acquire(asking(tmp_path, module.__name__.rpartition(".")[2], answers, url, "refuse"))
    for rule in ("quarantine", "newest"):
        module.acquire(asking(tmp_path, module.__name__.rpartition(".")[2], answers, url, rule))
