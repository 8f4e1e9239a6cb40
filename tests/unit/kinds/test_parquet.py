"""Parquet as a source: types stay what they are, and what a table cannot hold is told."""

import datetime as dt
import io
import json
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import shapely
from pyproj import CRS

from kfm.connectors.base import CaptureRefused, InputFile, TransformResult
from kfm.connectors.child.process import run_inline
from kfm.connectors.operations import Read
from kfm.model.dataset import Column

UTC = dt.UTC
Table = Callable[..., tuple[TransformResult, list[dict[str, Any]]]]


def parquet(geo: dict[str, Any] | None = None, **columns: Any) -> bytes:
    table = pa.table(columns)
    if geo is not None:
        table = table.replace_schema_metadata({b"geo": json.dumps(geo).encode()})
    out = io.BytesIO()
    pq.write_table(table, out)
    return out.getvalue()


def shapes(crs: Any = ..., **said: Any) -> dict[str, Any]:
    about = {"encoding": "WKB", "geometry_types": ["Point"], **said} | (
        {} if crs is ... else {"crs": crs}
    )
    return {"version": "1.1.0", "primary_column": "geom", "columns": {"geom": about}}


def wkb(*texts: str) -> "pa.Array":
    return pa.array([shapely.to_wkb(shapely.from_wkt(t)) for t in texts])


@pytest.fixture
def table(tmp_path: Path) -> Table:
    number = [0]

    def make(data: bytes, **more: Any) -> tuple[TransformResult, list[dict[str, Any]]]:
        number[0] += 1
        path = tmp_path / f"{number[0]}.parquet"
        path.write_bytes(data)
        job = Read(
            dataset_id="d",
            source_kind="parquet",
            format="parquet",
            inputs=(InputFile(source_id="s", path=str(path), digest=""),),
            artifact="d.parquet",
            **({"max_quarantined": 1.0} | more),
        )
        result = run_inline(job, tmp_path)
        return result, pq.read_table(tmp_path / "d.parquet").to_pylist()

    return make


def aside(folder: Path) -> list[tuple[int, str]]:
    lines = (folder / "d.quarantine.jsonl").read_text().splitlines()
    return [(r["line"], r["rule"]) for r in map(json.loads, lines)]


def test_types_stay_what_they_are(table: Table) -> None:
    data = parquet(
        id=pa.array(["007", None]).dictionary_encode(),
        n=pa.array([1, 2], pa.uint8()),
        x=pa.array([1.5, float("nan")]),
        money=pa.array([Decimal("1.25"), None], pa.decimal128(9, 2)),
        exact=pa.array([Decimal("12345678901234567890.5"), None], pa.decimal128(30, 1)),
        yes=[True, None],
        day=pa.array([dt.date(2020, 1, 31), None]),
        at=pa.array([dt.datetime(2020, 1, 31, 12, tzinfo=UTC), None], pa.timestamp("ns", "UTC")),
        here=pa.array([dt.datetime(2020, 1, 31, 12), None], pa.timestamp("ms")),
        clock=pa.array([dt.time(10, 5), None]),
        tags=pa.array([["a", "b"], None]),
        both=pa.array([{"b": 1, "a": 2.5}, None]),
    )
    result, rows = table(data)
    assert {c.name: c.type for c in result.schema} == {
        "id": "string", "n": "integer", "x": "number", "money": "number", "exact": "string", "yes": "boolean", "day": "date",
        "at": "timestamp", "here": "string", "clock": "string", "tags": "json", "both": "json",
    }  # fmt: skip
    assert list(rows[0].values()) == [
        "007", 1, 1.5, 1.25, "12345678901234567890.5", True, dt.date(2020, 1, 31), dt.datetime(2020, 1, 31, 12, tzinfo=UTC),
        "2020-01-31T12:00:00", "10:05:00", '["a","b"]', '{"a":2.5,"b":1}',
    ]  # fmt: skip
    assert list(rows[1].values()) == [None, 2, *[None] * 10]
    assert any("NaN" in w for w in result.warnings)
    more = {"columns": ["here", "n"], "time_zone": "America/Chicago"}
    result, rows = table(data, options=more)
    assert rows[0] == {"here": dt.datetime(2020, 1, 31, 18, tzinfo=UTC), "n": 1}
    schema = (Column(name="n", type="string"), Column(name="x", type="string"))
    _, rows = table(data, options={"columns": ["n", "x"]}, schema=schema)
    assert rows == [{"n": "1", "x": "1.5"}, {"n": "2", "x": None}]


def test_shapes_are_brought_to_wgs_84_and_keep_what_they_were(table: Table, tmp_path: Path) -> None:
    box = {"covering": {"bbox": {"xmin": ["box", "xmin"]}}}
    data = parquet(
        shapes(**box), a=[1, 2], geom=wkb("POINT (-98 38)", "POINT EMPTY"), box=[{"xmin": 1.0}] * 2
    )
    result, rows = table(data)
    assert {c.name: c.type for c in result.schema} == {"a": "integer", "geometry": "geometry"}
    assert shapely.from_wkb(rows[0]["geometry"]).wkt == "POINT (-98 38)"
    assert rows[1]["geometry"] is None
    metres = CRS.from_epsg(26914).to_json_dict()
    given = wkb("POINT (600000 4260000)", "POINT (-98 38)")
    _, rows = table(parquet(shapes(metres), a=[1, 2], geom=given))
    (row,) = rows
    assert (row["source_crs"], row["source_x"], row["source_y"]) == (
        "EPSG:26914",
        600000.0,
        4260000.0,
    )
    assert shapely.from_wkb(row["geometry"]).x == pytest.approx(-97.85, abs=0.01)
    assert aside(tmp_path) == [(2, "crs.range")]
    broken = pa.array([b"junk", shapely.to_wkb(shapely.Point(1, 2))])
    _, rows = table(parquet(shapes(), a=[1, 2], geom=broken))
    assert (len(rows), aside(tmp_path)) == (1, [(1, "geometry")])


def test_what_a_table_cannot_hold_is_set_aside(table: Table, tmp_path: Path) -> None:
    binary = pa.array([b"ok", b"\xff", b"ok"], pa.binary())
    text = pa.Array.from_buffers(pa.string(), 3, binary.buffers())
    data = parquet(id=["a", "b", "c"], t=text, big=pa.array([1, 2, 2**64 - 1], pa.uint64()))
    _, rows = table(data)
    assert [r["id"] for r in rows] == ["a"]
    assert aside(tmp_path) == [(2, "encoding"), (3, "type")]
    far = pa.array([0, 2**58], pa.timestamp("ms"))
    nested = pa.ListArray.from_arrays(pa.array([0, 1, 2, 3], pa.int32()), text)
    table(parquet(id=["a", "b", "c"], n=nested))
    assert aside(tmp_path) == [(2, "type")]
    table(parquet(id=["a", "b"], at=far), options={"time_zone": "UTC"})
    assert aside(tmp_path) == [(2, "time.range")]
    table(parquet(id=["a", "b"], at=far.cast(pa.timestamp("ms", "UTC"))))
    assert aside(tmp_path) == [(2, "time.range")]
    table(parquet(id=["a", "b"], at=far))
    assert aside(tmp_path) == [(2, "time.range")]
    table(parquet(id=["a", "b"], x=[1.0, float("inf")]))
    assert aside(tmp_path) == [(2, "number.nonfinite")]


WHOLE = parquet(a=[1, 2, 3])


@pytest.mark.parametrize(
    ("data", "more", "code"),
    [
        pytest.param(b"", {}, "format", id="nothing"),
        pytest.param(b"<html>Sorry", {}, "html", id="a web page"),
        pytest.param(b"PARE" + b"\0" * 40, {}, "parquet.encrypted", id="encrypted"),
        pytest.param(WHOLE[:-20], {}, "truncated", id="cut off"),
        pytest.param(WHOLE[:8] + WHOLE[-8:], {}, "parquet.damaged", id="the middle is gone"),
        pytest.param(b"PAR1" + b"\xff" * 60 + b"\x20\0\0\0PAR1", {}, "parquet.damaged", id="noise"),
        pytest.param(parquet(a=pa.array([], pa.int64())), {}, "empty", id="no record"),
        pytest.param(parquet(a=[b"x"]), {}, "parquet.columns", id="bytes"),
        pytest.param(WHOLE, {"options": {"columns": ["b"]}}, "parquet.columns", id="no such column"),
        pytest.param(WHOLE, {"options": {"time_zone": "Mars"}}, "options", id="no such zone"),
        pytest.param(WHOLE, {"schema": (Column(name="b", type="string"),)}, "schema.unknown-column", id="another schema"),
        pytest.param(parquet(**{"a\x1b[2J": [1]}), {}, "schema.names", id="a name that steers terminals"),
        pytest.param(parquet(shapes(None), geom=wkb("POINT (1 2)")), {}, "parquet.geo", id="no system"),
        pytest.param(parquet(shapes({"type": "odd"}), geom=wkb("POINT (1 2)")), {}, "parquet.geo", id="an odd system"),
        pytest.param(parquet(shapes("GEO!"), geom=wkb("POINT (1 2)")).replace(b"GEO!", b"\xfa\xfa\xfa\xfa"), {}, "parquet.geo", id="a geo that is no text"),
        pytest.param(parquet({"primary_column": "x"}, geom=wkb("POINT (1 2)")), {}, "parquet.geo", id="half a geo"),
        pytest.param(parquet(shapes(CRS.from_epsg(4267).to_json_dict()), geom=wkb("POINT (-98 38)")), {}, "crs.grid", id="NAD27"),
    ],
)  # fmt: skip
def test_what_is_no_such_file_is_refused(
    table: Table, data: bytes, more: dict[str, Any], code: str
) -> None:
    with pytest.raises(CaptureRefused) as caught:
        table(data, **more)
    assert caught.value.code == code
    assert caught.value.expected and caught.value.remedy


def test_the_same_file_gives_the_same_bytes(table: Table, tmp_path: Path) -> None:
    table(WHOLE)
    first = (tmp_path / "d.parquet").read_bytes()
    table(WHOLE)
    assert (tmp_path / "d.parquet").read_bytes() == first
