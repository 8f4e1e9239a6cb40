"""Zipped shapefiles: the counties of Kansas as an independent reader sees them, and every broken
one refused.
"""

import io
import json
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pyogrio.raw
import pytest
import shapely
from pyproj import CRS
from tests.given.verbs import SHARED

from kfm.connectors.base import CaptureRefused, InputFile
from kfm.connectors.child.process import run_inline
from kfm.connectors.operations import Read
from kfm.kinds import shapefile

needs_shared = [
    pytest.mark.needs_shared,
    pytest.mark.skipif(
        not SHARED.exists(), reason="not run: the recordings are not beside this repository"
    ),
]
COUNTIES = SHARED / "data" / "census-tiger" / "cb_2014_us_county_20m.zip"
NAD83, NAD27 = (CRS.from_epsg(code).to_wkt("WKT1_ESRI") for code in (4269, 4267))
SQUARE = "POLYGON ((-98 38, -98 39, -97 39, -97 38, -98 38), (-97.8 38.2, -97.2 38.2, -97.2 38.8, -97.8 38.8, -97.8 38.2))"
Parts = dict[str, bytes]


@pytest.fixture(autouse=True)
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    shapefile._cached.cache_clear()


def parts(
    folder: Path,
    *wkt: str | None,
    prj: str = NAD83,
    encoding: str = "UTF-8",
    names: tuple[str, ...] = (),
) -> Parts:
    """The files of a shapefile written by GDAL."""
    folder.mkdir(exist_ok=True)
    shapes = np.array(
        [None if w is None else shapely.to_wkb(shapely.from_wkt(w)) for w in wkt], object
    )
    first = next(w for w in wkt if w is not None)
    fields = {
        "CODE": np.array([f"0{i}" for i in range(len(wkt))], object),
        "SIZE": np.arange(len(wkt)) * 10,
    }
    fields["NAME"] = np.array(names or [f"n{i}" for i in range(len(wkt))], object)
    pyogrio.raw.write(
        folder / "made.shp",
        shapes,
        list(fields.values()),
        list(fields),
        driver="ESRI Shapefile",
        geometry_type="Point" if first.startswith("POINT") else "Polygon",
        crs="EPSG:4269",
        encoding=encoding,
    )
    found = {p.suffix: p.read_bytes() for p in folder.iterdir()}
    return found | {".prj": prj.encode()}


def zipped(files: Parts, stem: str = "x/made") -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as file:
        for suffix, data in files.items():
            file.writestr(stem + suffix if suffix.startswith(".") else suffix, data)
    return out.getvalue()


def table(folder: Path, source: Path | bytes, **more: Any) -> tuple[Any, list[dict[str, Any]]]:
    if isinstance(source, bytes):
        (folder / "given.zip").write_bytes(source)
        source = folder / "given.zip"
    inputs = (InputFile(source_id="s", path=str(source), digest=""),)
    job = Read(
        dataset_id="d",
        source_kind="shapefile",
        format="zip",
        inputs=inputs,
        artifact="d.parquet",
        **more,
    )
    return run_inline(job, folder), pq.read_table(folder / "d.parquet").to_pylist()


def code(folder: Path, source: bytes, **more: Any) -> str:
    with pytest.raises(CaptureRefused) as caught:
        table(folder, source, **more)
    return caught.value.code


def test_polygons_keep_their_holes_their_codes_and_turn_as_geojson_wants(tmp_path: Path) -> None:
    result, rows = table(
        tmp_path, zipped(parts(tmp_path / "w", SQUARE, None)), business_key=("code",)
    )
    shape = shapely.from_wkb(rows[0]["geometry"])
    assert (rows[0]["code"], rows[0]["size"], rows[0]["name"], rows[0]["source_crs"]) == (
        "00",
        0,
        "n0",
        "EPSG:4269",
    )
    assert shape.equals(shapely.from_wkt(SQUARE))
    assert shape.exterior.is_ccw
    assert rows[1]["geometry"] is None
    assert any("no shape" in w for w in result.warnings)


def test_points_in_feet_are_moved_and_keep_what_they_were(tmp_path: Path) -> None:
    feet = CRS.from_epsg(3435).to_wkt("WKT1_ESRI")
    _, (row,) = table(tmp_path, zipped(parts(tmp_path / "w", "POINT (984250 1000000)", prj=feet)))
    point = shapely.from_wkb(row["geometry"])
    assert point.x == pytest.approx(-(88 + 20 / 60), abs=1e-9)
    assert (row["source_crs"], row["source_x"], row["source_y"]) == (
        "EPSG:3435",
        984250.0,
        1000000.0,
    )


def test_a_position_outside_its_system_is_set_aside(tmp_path: Path) -> None:
    result, rows = table(
        tmp_path,
        zipped(parts(tmp_path / "w", "POINT (-98 38)", "POINT (5000 38)")),
        max_quarantined=1,
    )
    assert (len(rows), result.books.quarantined) == (1, 1)
    assert json.loads((tmp_path / result.quarantine).read_text())["rule"] == "crs.range"


def test_only_the_records_wanted_are_written_and_the_others_are_counted(tmp_path: Path) -> None:
    data = zipped(parts(tmp_path / "w", *["POINT (-98 38)"] * 5))
    result, rows = table(tmp_path, data, options={"where": {"CODE": ["01", "03"]}})
    assert [r["code"] for r in rows] == ["01", "03"]
    assert result.books.dropped == {"where": 3}


@pytest.mark.parametrize("gone", [{0}, {1, 2}, {3}, {0, 1, 2, 3}])
def test_records_marked_as_deleted_are_counted_and_dropped_by_rule(
    tmp_path: Path, gone: set[int]
) -> None:
    files = parts(tmp_path, *(f"POINT (-9{n} 38)" for n in range(4)))
    raw = bytearray(files[".dbf"])
    first, width = struct.unpack("<HH", raw[8:12])
    for n in gone:
        raw[first + n * width] = ord("*")
    files[".dbf"] = bytes(raw)
    result, rows = table(tmp_path, zipped(files))
    assert (result.books.read, result.books.written, result.books.dropped) == (
        4,
        4 - len(gone),
        {"deleted-upstream": len(gone)},
    )
    assert len(rows) == 4 - len(gone)


def test_a_shape_that_is_too_long_is_refused_with_its_record_and_the_limit(tmp_path: Path) -> None:
    ring = ", ".join(f"{-98 + n / 1000} 38" for n in range(200))
    files = zipped(
        parts(
            tmp_path,
            "POLYGON ((-98 38, -97 38, -97 39, -98 38))",
            f"POLYGON (({ring}, -97 39, -98 38))",
        )
    )
    assert table(tmp_path, files)[0].books.written == 2
    with pytest.raises(CaptureRefused, match="record at line 2") as refused:
        table(tmp_path, files, max_record_bytes=2048)
    assert (
        refused.value.code == "record.size"
        and "`source.max_record_bytes` is 2048" in refused.value.expected
    )


def test_text_is_read_in_the_code_page_it_says(tmp_path: Path) -> None:
    files = parts(tmp_path / "w", "POINT (-98 38)", encoding="ISO-8859-1", names=("Doña Ana",))
    for sheet in (b"ISO 88591", b"ISO-8859-1", b"ANSI 1252", b"cp1252", b"1252"):
        assert table(tmp_path, zipped(files | {".cpg": sheet}))[1][0]["name"] == "Doña Ana"
        shapefile._cached.cache_clear()
    unsaid = {k: v for k, v in files.items() if k != ".cpg"}
    unsaid[".dbf"] = unsaid[".dbf"][:29] + b"\x00" + unsaid[".dbf"][30:]
    assert code(tmp_path, zipped(unsaid)) == "shapefile.encoding"
    assert code(tmp_path, zipped(files | {".cpg": b"klingon"})) == "shapefile.encoding"
    shapefile._cached.cache_clear()
    assert table(tmp_path, zipped(unsaid), encoding="latin-1")[1][0]["name"] == "Doña Ana"


def _without(suffix: str) -> Callable[[Parts], Parts]:
    return lambda files: {k: v for k, v in files.items() if k != suffix}


def _with(suffix: str, change: Callable[[bytes], bytes]) -> Callable[[Parts], Parts]:
    return lambda files: files | {suffix: change(files[suffix])}


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (_without(".shp"), "shapefile.layer"),
        (_without(".shx"), "shapefile.member"),
        (_without(".dbf"), "shapefile.member"),
        (_without(".prj"), "shapefile.member"),
        (_with(".shp", lambda b: b[:-20]), "shapefile.damaged"),
        (_with(".shp", lambda b: b"<OGRVRTDataSource/>" + b), "shapefile.damaged"),
        (_with(".shp", lambda b: b[:50]), "shapefile.damaged"),
        (_with(".shx", lambda b: b[:-8]), "shapefile.damaged"),
        (_with(".shx", lambda b: b[:-8] + struct.pack(">ii", 1 << 30, 10)), "shapefile.damaged"),
        (_with(".shx", lambda b: b[:-8] + struct.pack(">ii", -5, 10)), "shapefile.damaged"),
        (_with(".dbf", lambda b: b[:20]), "shapefile.damaged"),
        (_with(".dbf", lambda b: b[:-60]), "shapefile.damaged"),
        (_with(".dbf", lambda b: b[:4] + struct.pack("<I", 10**9) + b[8:]), "shapefile.damaged"),
        (_with(".prj", lambda _: b"Kansas"), "crs.unknown"),
        (_with(".prj", lambda _: b""), "crs.unknown"),
        (_with(".prj", lambda _: NAD27.encode()), "crs.grid"),
        (lambda files: files | {"x/other.shp": b"1"}, "shapefile.layer"),
        (lambda files: files | {"../x": b"1"}, "archive.path"),
        (lambda files: files | {"x/MADE.SHP": b"1"}, "archive.duplicate"),
    ],
)
def test_a_shapefile_that_is_not_whole_or_not_placed_is_refused(
    tmp_path: Path, change: Callable[[Parts], Parts], expected: str
) -> None:
    files = change(parts(tmp_path / "w", SQUARE, SQUARE))
    assert code(tmp_path, zipped(files)) == expected
    assert not (tmp_path / "d.parquet").exists()


def test_a_shape_that_cannot_be_read_is_set_aside_and_not_taken_for_an_empty_one(
    tmp_path: Path,
) -> None:
    files = parts(tmp_path / "w", SQUARE, SQUARE, SQUARE)
    at = 2 * struct.unpack(">i", files[".shx"][108:112])[0]
    spoilt = bytearray(files[".shp"])
    # rings and corners of the second shape
    spoilt[at + 44 : at + 52] = struct.pack("<ii", 2**30, 2**30)
    result, rows = table(tmp_path, zipped(files | {".shp": bytes(spoilt)}), max_quarantined=1)
    assert ([r["code"] for r in rows], result.books.quarantined) == (["00", "02"], 1)


def test_one_of_several_layers_is_chosen_by_name(tmp_path: Path) -> None:
    files = parts(tmp_path / "w", "POINT (-98 38)")
    both = {f"{stem}{suffix}": data for stem in ("a", "b") for suffix, data in files.items()}
    assert code(tmp_path, zipped(both, "")) == "shapefile.layer"
    shapefile._cached.cache_clear()
    assert len(table(tmp_path, zipped(both, ""), options={"layer": "b"})[1]) == 1


def test_what_macos_puts_beside_the_files_is_no_second_layer(tmp_path: Path) -> None:
    files = parts(tmp_path / "w", "POINT (-98 38)")
    notes = {f"__MACOSX/x/._made{suffix}": b"\0\x05\x16\x07\0\x02\0\0Mac OS X" for suffix in files}
    _, rows = table(
        tmp_path,
        zipped(
            notes | files | {"x/._made.shp": b"\0\x05\x16\x07"} | {"x/.DS_Store": b"\0\0\0\1Bud1"}
        ),
    )
    assert len(rows) == 1


def test_a_condition_on_a_column_that_is_not_there_is_refused(tmp_path: Path) -> None:
    assert (
        code(tmp_path, zipped(parts(tmp_path / "w", SQUARE)), options={"where": {"STATE": "20"}})
        == "shapefile.where"
    )


def dbf(data: bytes) -> list[dict[str, str]]:
    """A .dbf by its published layout, with nothing but struct."""
    count, first, width = struct.unpack("<IHH", data[4:12])
    fields, at = [], 32
    while data[at] != 0x0D:
        fields.append((data[at : at + 11].split(b"\0")[0].decode(), data[at + 16]))
        at += 32
    rows = []
    for i in range(count):
        record, start, row = data[first + i * width : first + (i + 1) * width], 1, {}
        for name, size in fields:
            row[name] = record[start : start + size].decode("latin-1").strip()
            start += size
        rows.append(row)
    return rows


class TestCounties:
    pytestmark = needs_shared

    def test_kansas_has_105_counties_where_fiona_sees_them(self, tmp_path: Path) -> None:
        import fiona

        result, rows = table(
            tmp_path, COUNTIES, business_key=("geoid",), options={"where": {"STATEFP": "20"}}
        )
        assert (result.books.read, result.books.written, result.books.dropped) == (
            3220,
            105,
            {"where": 3115},
        )
        with zipfile.ZipFile(COUNTIES) as file:
            file.extractall(tmp_path / "other")
        with fiona.open(tmp_path / "other" / "cb_2014_us_county_20m.shp") as source:
            others = {
                f["properties"]["GEOID"]: f for f in source if f["properties"]["STATEFP"] == "20"
            }
        assert {r["geoid"] for r in rows} == set(others)
        for row in rows:
            other = shapely.force_2d(shapely.geometry.shape(others[row["geoid"]]["geometry"]))
            assert shapely.equals(shapely.from_wkb(row["geometry"]), other)
        bounds = shapely.total_bounds(
            [shapely.geometry.shape(o["geometry"]) for o in others.values()]
        )
        assert (
            result.bbox
            == tuple(bounds.tolist())
            == (-102.051744, 36.993083, -94.591933, 40.003077999999995)
        )

    def test_the_table_says_what_the_dbf_says(self, tmp_path: Path) -> None:
        result, rows = table(tmp_path, COUNTIES, business_key=("geoid",))
        with zipfile.ZipFile(COUNTIES) as file:
            others = {r["GEOID"]: r for r in dbf(file.read("cb_2014_us_county_20m.dbf"))}
        assert result.books.written == len(others) == 3220
        for row in rows:
            other = others[row["geoid"]]
            assert (row["statefp"], row["name"], row["aland"]) == (
                other["STATEFP"],
                other["NAME"],
                int(other["ALAND"]),
            )
        assert sum(r["aland"] for r in rows if r["statefp"] == "20") == 211_752_875_517
        assert {"Doña Ana", "Bayamón"} <= {r["name"] for r in rows}
        assert {r["source_crs"] for r in rows} == {"EPSG:4269"}

    def test_the_same_bytes_give_the_same_table(self, tmp_path: Path) -> None:
        first = table(tmp_path, COUNTIES)[0].content_id
        shapefile._cached.cache_clear()
        assert table(tmp_path, COUNTIES)[0].content_id == first
