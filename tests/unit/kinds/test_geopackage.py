"""GeoPackages: the layers that GDAL writes, and each way in which a SQLite file can lie."""

import datetime as dt
import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pyogrio.raw
import pytest
import shapely

from kfm.connectors.base import CaptureRefused, InputFile, TransformResult
from kfm.connectors.child.process import run_inline, run_transform
from kfm.connectors.operations import Read

Aside = list[tuple[int, str]]  # line and rule
Table = Callable[..., tuple[TransformResult, list[dict[str, Any]], Aside]]


def written(path: Path, *wkt: str | None, layer: str = "wells", crs: str = "EPSG:4326") -> Path:
    """A file as GDAL writes it."""
    shapes = np.array(
        [None if w is None else shapely.to_wkb(shapely.from_wkt(w)) for w in wkt], object
    )
    first = next((w for w in wkt if w), "POINT").split(" ")[0]
    n = len(wkt)
    fields = {
        "code": np.array([f"0{i}" for i in range(n)], object),
        "depth": np.arange(n) * 1.5,
        "count": np.arange(n),
        "open": np.arange(n) % 2 == 0,
        "day": np.array([f"2020-01-0{i + 1}" for i in range(n)], "datetime64[D]"),
        "seen": np.array([f"2020-01-0{i + 1}T12:00:00" for i in range(n)], "datetime64[ms]"),
    }
    pyogrio.raw.write(
        path, shapes, list(fields.values()), list(fields), driver="GPKG", layer=layer,
        geometry_type={"POINT": "Point", "POLYGON": "Polygon"}[first], crs=crs, append=path.exists(),
    )  # fmt: skip
    return path


def changed(path: Path, *statements: str) -> Path:
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.create_function("ST_IsEmpty", 1, lambda blob: 1)  # triggers of GDAL ask it
        for name in ("ST_MinX", "ST_MaxX", "ST_MinY", "ST_MaxY"):
            db.create_function(name, 1, lambda blob: 0)
        for statement in statements:
            db.execute(statement)
    return path


def job_of(path: Path, **more: Any) -> Read:
    return Read(
        dataset_id="d",
        source_kind="geopackage",
        format="gpkg",
        inputs=(InputFile(source_id="s", path=str(path), digest=""),),
        artifact="d.parquet",
        **({"max_quarantined": 1.0} | more),
    )


@pytest.fixture
def table(tmp_path: Path) -> Table:
    def make(path: Path, **more: Any) -> tuple[TransformResult, list[dict[str, Any]], Aside]:
        scratch = tmp_path / f"scratch-{sum(1 for _ in tmp_path.iterdir())}"
        scratch.mkdir()
        result = run_inline(job_of(path, **more), scratch)
        rows = pq.read_table(scratch / "d.parquet").to_pylist()
        held = (scratch / result.quarantine).read_text().splitlines() if result.quarantine else []
        return result, rows, [(r["line"], r["rule"]) for r in map(json.loads, held)]

    return make


NO_ZONE = {"options": {"time_zone": "UTC"}}


def test_a_layer_is_read_as_it_is_and_its_shapes_are_brought_to_wgs_84(
    tmp_path: Path, table: Table
) -> None:
    path = written(tmp_path / "a.gpkg", "POINT (-98 38)", None)
    result, rows, _ = table(path, **NO_ZONE)
    assert {c.name: c.type for c in result.schema} == {
        "fid": "integer", "code": "string", "depth": "number", "count": "integer", "open": "boolean", "day": "date",
        "seen": "timestamp", "geometry": "geometry",
    }  # fmt: skip
    assert shapely.from_wkb(rows[0].pop("geometry")).wkt == "POINT (-98 38)"
    assert rows[0] == {
        "fid": 1, "code": "00", "depth": 0.0, "count": 0, "open": True, "day": dt.date(2020, 1, 1),
        "seen": dt.datetime(2020, 1, 1, 12, tzinfo=dt.UTC),
    }  # fmt: skip
    assert rows[1]["geometry"] is None
    _, none, aside = table(path)  # GDAL writes no zone where it knows none
    assert (none, aside) == ([], [(1, "type"), (2, "type")])
    feet = written(tmp_path / "b.gpkg", "POINT (984250 1000000)", crs="EPSG:3435")
    _, (row,), _ = table(feet, options={"columns": ["code", "geom"]})
    assert (row["source_crs"], row["source_x"]) == ("EPSG:3435", 984250.0)
    assert shapely.from_wkb(row["geometry"]).x == pytest.approx(-(88 + 20 / 60), abs=1e-9)


def test_the_child_reads_it_and_a_layer_is_chosen_by_its_name(tmp_path: Path) -> None:
    path = written(tmp_path / "two layers & more.gpkg", "POINT (-98 38)")
    written(path, "POLYGON ((-98 38, -97 38, -97 39, -98 38))", layer="areas")
    (tmp_path / "scratch").mkdir()
    options = {"layer": "areas", "columns": ["code", "geom"]}
    run_transform(job_of(path, options=options), tmp_path / "scratch", timeout_s=60)
    (row,) = pq.read_table(tmp_path / "scratch" / "d.parquet").to_pylist()
    assert shapely.from_wkb(row["geometry"]).geom_type == "Polygon"
    with pytest.raises(CaptureRefused) as caught:
        run_inline(job_of(path), tmp_path / "scratch")
    assert caught.value.code == "geopackage.layer"
    assert "'areas'" in caught.value.happened


def test_a_value_that_is_not_of_its_declared_type_sets_its_row_aside(
    tmp_path: Path, table: Table
) -> None:
    path = written(tmp_path / "a.gpkg", *["POINT (-98 38)"] * 8)
    changed(
        path,
        "UPDATE wells SET count = 'many' WHERE fid = 1",
        "UPDATE wells SET depth = x'00ff' WHERE fid = 2",
        "UPDATE wells SET code = CAST(x'ff' AS TEXT) WHERE fid = 3",
        "UPDATE wells SET geom = x'00' WHERE fid = 4",
        "UPDATE wells SET geom = CAST(substr(geom, 1, 4) || x'01000000' || substr(geom, 9) AS BLOB) WHERE fid = 5",
        "UPDATE wells SET seen = 'yesterday' WHERE fid = 6",
        "UPDATE wells SET open = 7 WHERE fid = 7",
    )
    _, rows, aside = table(path, **NO_ZONE)
    assert [r["fid"] for r in rows] == [8]
    assert aside == [
        (1, "type"), (2, "type"), (3, "encoding"), (4, "geometry"), (5, "crs.contradiction"), (6, "type"), (7, "type"),
    ]  # fmt: skip


def test_the_same_file_gives_the_same_bytes_and_is_not_touched(tmp_path: Path) -> None:
    path = written(tmp_path / "a.gpkg", "POINT (-98 38)")
    changed(path, "PRAGMA journal_mode=WAL")
    before = path.read_bytes()
    made = []
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        run_inline(job_of(path, **NO_ZONE), tmp_path / name)
        made.append((tmp_path / name / "d.parquet").read_bytes())
    assert made[0] == made[1]
    assert path.read_bytes() == before
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.gpkg", "one", "two"]


@pytest.mark.parametrize(
    ("change", "more", "code"),
    [
        pytest.param(b"", {}, "format", id="nothing"),
        pytest.param(b"<html>Sorry", {}, "html", id="a web page"),
        pytest.param(b"PK\x03\x04...", {}, "format", id="a zip"),
        pytest.param(lambda data: data[:-5000], {}, "truncated", id="cut off"),
        pytest.param(lambda data: data[:4096] + b"\xff" * (len(data) - 4096), {}, "geopackage.damaged", id="noise"),
        pytest.param("PRAGMA writable_schema=ON; UPDATE sqlite_master SET sql = CAST(x'4352454154452054ff' AS TEXT) WHERE name = 'wells'", {}, "geopackage.damaged", id="a schema that is no text"),
        pytest.param("DROP TABLE gpkg_contents", {}, "geopackage.format", id="another database"),
        pytest.param("DELETE FROM gpkg_contents", {}, "geopackage.layer", id="no layer"),
        pytest.param("DELETE FROM wells", {}, "empty", id="no record"),
        pytest.param("UPDATE gpkg_geometry_columns SET srs_id = -1", {}, "crs.unknown", id="no system"),
        pytest.param("DELETE FROM gpkg_spatial_ref_sys", {}, "geopackage.crs", id="a system that is not there"),
        pytest.param("ALTER TABLE wells ADD COLUMN picture BLOB", {}, "geopackage.columns", id="bytes"),
        pytest.param("SELECT 1", {"options": {"layer": "lakes"}}, "geopackage.layer", id="no such layer"),
        pytest.param("SELECT 1", {"options": {"columns": ["lake"]}}, "geopackage.columns", id="no such column"),
        pytest.param("SELECT 1", {"options": {"time_zone": "Mars"}}, "options", id="no such zone"),
        pytest.param("SELECT 1", {"max_record_bytes": 1024, "options": {}}, "", id="small records"),
        pytest.param("UPDATE wells SET code = printf('%5000d', 1)", {"max_record_bytes": 1024}, "record.size", id="a long value"),
        pytest.param(
            "ALTER TABLE wells RENAME TO w; CREATE VIEW wells AS WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT x AS fid FROM c",
            {},
            "geopackage.layer",
            id="a view without an end",
        ),
        pytest.param(
            "ALTER TABLE wells ADD COLUMN big TEXT AS (hex(zeroblob(100000000))) VIRTUAL", {"options": {"columns": ["big"]}}, "geopackage.columns", id="a column that is code"
        ),
    ],
)  # fmt: skip
def test_what_is_no_such_file_is_refused(
    tmp_path: Path, table: Table, change: Any, more: dict[str, Any], code: str
) -> None:
    path = written(tmp_path / "a.gpkg", "POINT (-98 38)")
    if isinstance(change, bytes):
        path.write_bytes(change)
    elif isinstance(change, str):
        changed(path, *change.split("; "))
    else:
        path.write_bytes(change(path.read_bytes()))
    if not code:
        assert table(path, **more)[0].books.read == 1
        return
    with pytest.raises(CaptureRefused) as caught:
        table(path, **more)
    assert caught.value.code == code
    assert caught.value.expected and caught.value.remedy
