"""Garbage of every family through the whole command line: refused or set aside, kept as it came,
and what is official stays.
"""

import io
import json
import os
import signal
import struct
import subprocess
import sys
import time
import warnings
import zipfile
from collections.abc import Callable, Iterator
from itertools import count, repeat
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import netCDF4
import numpy as np
import pyarrow.parquet as pq
import pytest
import rasterio

from kfm.connectors.base import CaptureRefused, InputFile
from kfm.connectors.child.process import run_transform
from kfm.connectors.operations import Read
from kfm.samples.kansas import answer as sample
from tests.given.stand import Speaker, Stand, answer
from tests.given.verbs import each

COLUMNS = [
    {"name": "id", "type": "integer"},
    {"name": "name", "type": "string"},
    {"name": "value", "type": "number"},
]


@pytest.fixture(scope="module")
def stand(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stand]:
    with Stand(tmp_path_factory.mktemp("malformed")) as found:
        yield found


def given(stand: Stand, name: str, good: bytes, source: dict[str, Any], **more: Any) -> str:
    """A dataset of that name whose good version is official."""
    if name not in stand.good:
        stand.register(name, source, **more)
        stand.publish(name, answer(good))
    return name


def refuses(stand: Stand, name: str, body: bytes, code: str, *words: str) -> dict[str, Any]:
    stand.speaker.says[f"/{name}"] = answer(body)
    return stand.refuses(name, code, *words, kept=[body])


# -- JSON

RECORDS = [{"id": i, "name": f"n{i}", "value": i / 2} for i in range(60)]
JSON = json.dumps(RECORDS).encode()


@pytest.fixture(scope="module")
def people(stand: Stand) -> str:
    return given(stand, "people", JSON, {"format": "json"}, business_key=["id"])


def test_json_records_that_cannot_be_used_are_set_aside_each_under_its_rule(stand: Stand) -> None:
    bad = {
        b'{"id": 100, "name": "n", "value": NaN}': "number.nonfinite",
        b'{"id": 101, "name": "n", "value": -Infinity}': "number.nonfinite",
        b'{"id": 102, "name": "n", "value": 1e400}': "number.nonfinite",
        b'{"id": 1000000000000000000000000000000, "name": "n", "value": 1}': "type",
        b'{"id": 103, "name": "n", "value": %b}' % (b"9" * 5000): "json.value",
        b'{"id": 104, "name": "\\ud800", "value": 1}': "json.value",
        b'{"id": 105, "name": "n", "value": 1, "value": 2}': "json.duplicate",
        b'{"id": 106, "name": {"a": 1, "a": 2}, "value": 1}': "json.duplicate",
        b'{"id": 107, "name": "n", "value": {"a": 1}}': "type",
        b"7": "json.record",
        b'"text"': "json.record",
        b"null": "json.record",
        b"[1, 2]": "json.record",
    }
    name = given(
        stand,
        "stated",
        JSON,
        {"format": "json"},
        business_key=["id"],
        schema=COLUMNS,
        max_quarantined=0.5,
    )
    stand.speaker.says["/stated"] = answer(
        b"[" + b",".join([*bad, b'{"id": 108, "name": "new", "value": 1}', JSON[1:]])
    )
    rows = stand.sets_aside(name, *bad.values())
    assert [(r["record"].encode(), r["rule"]) for r in rows] == [
        (record[: len(r["record"])], rule) for r, (record, rule) in zip(rows, bad.items())
    ]


def test_a_member_that_is_there_twice_is_found_however_far_down(stand: Stand) -> None:
    """A long document is not read twice to look for it: the members of each block are counted."""
    # more than one block
    many = [b'{"id": %d, "name": "n", "value": 1.5}' % i for i in range(120_000)]
    name = given(
        stand,
        "long_one",
        b"[" + b",".join(many) + b"]",
        {"format": "json"},
        business_key=["id"],
        schema=COLUMNS,
    )
    late = [*many[:-3], b'{"id": 119997, "name": "n", "name": "m", "value": 1.5}', *many[-2:]]
    stand.speaker.says["/long_one"] = answer(b"[" + b",".join(late) + b"]")
    assert stand.sets_aside(name, "json.duplicate")[0]["line"] == 119_998
    every = b"[" + b",".join(m.replace(b'"value"', b'"name": "x", "value"') for m in many) + b"]"
    refuses(stand, name, every, "quarantine.share", "json.duplicate")


def test_what_is_odd_but_plain_is_the_same_content(stand: Stand, people: str) -> None:
    stand.speaker.says["/people"] = answer(b"\xef\xbb\xbf" + JSON)
    assert stand.run(people)["state"] == "NOOP"


# -- CSV

ROWS = [f"{i},n{i},{i / 2}" for i in range(60)]
CSV = ("id,name,value\n" + "\n".join(ROWS) + "\n").encode()


@pytest.fixture(scope="module", params=["csv", "delimited"])
def table(stand: Stand, request: pytest.FixtureRequest) -> str:
    """The same table as a plain CSV and through a mapping."""
    if request.param == "csv":
        return given(
            stand,
            "plain_table",
            CSV,
            {"format": "csv"},
            business_key=["id"],
            schema=COLUMNS,
            max_quarantined=0.5,
        )
    folder = stand.ws / "scripts" / "connectors" / "mapped_table"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "mapping.yml").write_text(
        json.dumps(
            {"columns": [{"from": c["name"], "to": c["name"], "type": c["type"]} for c in COLUMNS]}
        )
    )
    return given(
        stand, "mapped_table", CSV, {"kind": "delimited"}, business_key=["id"], max_quarantined=0.5
    )


def test_rows_that_cannot_be_used_are_set_aside_and_formulas_stay_text(
    stand: Stand, table: str
) -> None:
    bad = {
        "100,n": "csv.columns",
        "101,n,1,2": "csv.columns",
        "102,n,NaN": "number.nonfinite",
        "103,n,1e400": "number.nonfinite",
    }
    bad |= {
        "104,n,=1+1": "type",
        "1" + "0" * 30 + ",n,1": "type",
        "\u0667,n,1": "type",
        ",n,1": "key.missing",
        "109,a\x0cb,1": "text.control",
    }
    long = "x" * (1 << 20)
    kept = {
        105: '=HYPERLINK("http://evil.example","x")',
        106: "@SUM(A1:A9)",
        107: long,
        108: "a\u2028b",
    }
    more = [
        *bad,
        f'105,"{kept[105].replace(chr(34), chr(34) * 2)}",1',
        *(f"{k},{v},1" for k, v in list(kept.items())[1:]),
    ]
    stand.speaker.says[f"/{table}"] = answer(CSV + "\n".join(more).encode())
    stand.sets_aside(table, *bad.values())
    path = (
        stand.ws
        / "data"
        / "processed"
        / table
        / stand.good[table]["version_id"]
        / f"{table}.parquet"
    )
    found = {r["id"]: r["name"] for r in pq.read_table(path).to_pylist()}
    assert {k: found[k] for k in kept} == kept


def test_other_line_ends_separators_and_marks_are_the_same_content(stand: Stand) -> None:
    name = given(stand, "line_ends", CSV, {"format": "csv"}, business_key=["id"])
    for body in (CSV.replace(b"\n", b"\r"), CSV.replace(b",", b";"), b"\xef\xbb\xbf" + CSV):
        stand.speaker.says["/line_ends"] = answer(body)
        assert stand.run(name)["state"] == "NOOP"


# -- geometry

POINT = {"type": "Point", "coordinates": [-98.0, 38.0]}
SQUARE = {
    "type": "Polygon",
    "coordinates": [[[-98, 38], [-97, 38], [-97, 39], [-98, 39], [-98, 38]]],
}


def feature(number: int, geometry: Any) -> dict[str, Any]:
    return {
        "type": "Feature",
        "id": f"f{number}",
        "properties": {"name": f"n{number}"},
        "geometry": geometry,
    }


FEATURES = [feature(i, SQUARE if i % 2 else POINT) for i in range(60)]


def collection(*more: Any, **members: Any) -> bytes:
    return json.dumps(
        {"type": "FeatureCollection", "features": [*FEATURES, *more]} | members
    ).encode()


def nested(depth: int) -> Any:
    found: Any = POINT
    for _ in range(depth):
        found = {"type": "GeometryCollection", "geometries": [found]}
    return found


@pytest.fixture(scope="module")
def places(stand: Stand) -> str:
    return given(
        stand,
        "places",
        collection(),
        {"format": "geojson"},
        business_key=["feature_id"],
        max_quarantined=0.5,
    )


def test_shapes_that_cannot_be_used_are_set_aside_and_those_that_can_stay(
    stand: Stand, places: str
) -> None:
    line = [[-98, 38], [-97, 38]]
    bad = {
        "geometry.range": [
            {"type": "Point", "coordinates": [38.0, -98.0]},
            {"type": "Point", "coordinates": [1e300, 38]},
            {
                "type": "Polygon",
                "coordinates": [[[179, 50], [181, 50], [181, 51], [179, 51], [179, 50]]],
            },
        ],
        "geometry": [
            {"type": "Polygon", "coordinates": [SQUARE["coordinates"][0][:-1]]},
            *(
                {"type": "Point", "coordinates": c}
                for c in ([], [-98], [-98, 38, 1, 2], [None, 38], ["-98", "38"], [True, 38])
            ),
            *(
                {"type": t, "coordinates": []}
                for t in ("Polygon", "MultiPolygon", "LineString", "MultiPoint")
            ),
            {"type": "LineString", "coordinates": [[-98, 38], [-97, 38, 5]]},
            {"type": "LineString", "coordinates": line[:1]},
            *({"type": t, "coordinates": [-98, 38]} for t in ("Pointy", "point", "Polygon")),
            {"coordinates": [-98, 38]},
            {
                "type": "GeometryCollection",
                "geometries": [POINT, {"type": "Point", "coordinates": [1, 2, 3]}],
            },
            {"type": "GeometryCollection", "geometries": []},
            nested(100),
            "POINT (1 2)",
            {},
        ],
    }
    fine = [
        {"type": "Point", "coordinates": [-98, 38, 300]},
        {"type": "LineString", "coordinates": [[-98, 38, 1], [-97, 38, 2]]},
        {
            "type": "MultiPolygon",
            "coordinates": [
                [[[179, 50], [180, 50], [180, 51], [179, 50]]],
                [[[-180, 50], [-179, 50], [-179, 51], [-180, 50]]],
            ],
        },
        nested(10),
        None,
    ]
    wrong = [(rule, shape) for rule, shapes in bad.items() for shape in shapes]
    body = collection(
        *(feature(100 + i, shape) for i, (_, shape) in enumerate(wrong)),
        *(feature(200 + i, s) for i, s in enumerate(fine)),
    )
    nan = (
        json.dumps(feature(300, {"type": "Point", "coordinates": ["@", 38]}))
        .encode()
        .replace(b'"@"', b"NaN")
    )
    stand.speaker.says["/places"] = answer(
        body.replace(b'"features": [', b'"features": [' + nan + b", ")
    )
    rows = stand.sets_aside(places, "number.nonfinite", *(rule for rule, _ in wrong))
    assert len(rows) == len(wrong) + 1
    assert stand.good[places]["rows_written"] == len(FEATURES) + len(fine)


def test_a_polygon_that_crosses_itself_is_denied(stand: Stand, places: str) -> None:
    bow = {
        "type": "Polygon",
        "coordinates": [[[-98, 38], [-97, 39], [-97, 38], [-98, 39], [-98, 38]]],
    }
    stand.speaker.says["/places"] = answer(collection(feature(400, bow)))
    before = stand.official()
    outcome = stand.run(places)
    assert (outcome["state"], outcome["exit_code"], [r["code"] for r in outcome["reasons"]]) == (
        "REJECTED",
        3,
        ["quality.geometry"],
    )
    assert stand.official() == before


# -- zipped shapefiles

SAMPLE = sample("www2.census.gov", "/x.zip", "")
assert SAMPLE is not None
ZIP = SAMPLE[2]
with zipfile.ZipFile(io.BytesIO(ZIP)) as _file:
    PARTS = {"c" + Path(n).suffix: _file.read(n) for n in _file.namelist()}
NAD27 = b'GEOGCS["GCS_North_American_1927",DATUM["D_North_American_1927",SPHEROID["Clarke_1866",6378206.4,294.9786982]],PRIMEM["Greenwich",0.0],UNIT["Degree",0.0174532925199433]]'


def packed(members: dict[str, bytes], **how: Any) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as file:
        for name, data in members.items():
            file.writestr(how.get("info", zipfile.ZipInfo)(name), data, zipfile.ZIP_DEFLATED)
    return out.getvalue()


def symlink(name: str) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo(name)
    info.external_attr = 0o120777 << 16 if name == "link" else 0
    return info


def patched(data: bytes, place: int, value: bytes, mark: bytes = b"PK\x01\x02") -> bytes:
    """The archive with some bytes of the first entry of its list (or of its end) changed."""
    at = data.rindex(mark) if mark == b"PK\x05\x06" else data.index(mark)
    return data[: at + place] + value + data[at + place + len(value) :]


def overlapping(data: bytes) -> bytes:
    """The second entry of the list points to the first member."""
    second = data.index(b"PK\x01\x02", data.index(b"PK\x01\x02") + 4)
    return data[: second + 42] + bytes(4) + data[second + 46 :]


@pytest.fixture(scope="module")
def counties(stand: Stand) -> str:
    return given(stand, "counties", ZIP, {"kind": "shapefile"}, business_key=["geoid"])


GOOD = packed(PARTS)


@pytest.mark.parametrize(
    ("make", "code"),
    each(
        [
            pytest.param(
                lambda: packed(PARTS | {"c.shp": bytes(64 << 20)}),
                "archive.ratio",
                id="a bomb by ratio",
            ),
            pytest.param(
                lambda: packed(dict.fromkeys(map(str, range(10_001)), b"")),
                "archive.count",
                id="a bomb by count",
            ),
            pytest.param(
                lambda: packed({"inner.zip": GOOD}),
                "shapefile.layer",
                id="an archive in an archive",
            ),
            pytest.param(
                lambda: packed(PARTS | {"../../evil.txt": b"x"}), "archive.path", id="upwards"
            ),
            pytest.param(
                lambda: packed(PARTS | {"/tmp/evil.txt": b"x"}), "archive.path", id="absolute"
            ),
            pytest.param(
                lambda: packed(PARTS | {"..\\evil.txt": b"x"}),
                "archive.path",
                id="upwards elsewhere",
            ),
            pytest.param(
                lambda: packed(PARTS | {"link": b"/etc/passwd"}, info=symlink),
                "archive.link",
                id="a link",
            ),
            pytest.param(
                lambda: packed(PARTS | {"C.SHP": b"x"}),
                "archive.duplicate",
                id="alike but for case",
            ),
            pytest.param(lambda: patched(GOOD, 8, b"\x01"), "archive.encrypted", id="encrypted"),
            pytest.param(lambda: GOOD[:-60], "archive.damaged", id="cut in its list"),
            pytest.param(lambda: GOOD[: len(GOOD) // 2], "archive.damaged", id="cut in the middle"),
            pytest.param(
                lambda: patched(GOOD, 24, b"\x10\0\0\0"), "archive.header", id="lying sizes"
            ),
            pytest.param(lambda: overlapping(GOOD), "archive.overlap", id="overlapping members"),
            pytest.param(
                lambda: patched(GOOD, 16, b"\xff\xff\0\0", b"PK\x05\x06"),
                "archive.overlap",
                id="a list that says it lies further on",
            ),
            pytest.param(lambda: GOOD + b"more", "archive.damaged", id="bytes behind its end"),
            pytest.param(
                lambda: packed({k: v for k, v in PARTS.items() if k != "c.dbf"}),
                "shapefile.member",
                id="no .dbf",
            ),
            pytest.param(
                lambda: packed({k: v for k, v in PARTS.items() if k != "c.prj"}),
                "shapefile.member",
                id="no .prj",
            ),
            pytest.param(
                lambda: packed(PARTS | {"c.prj": NAD27}), "crs.grid", id="NAD27 without its grid"
            ),
            pytest.param(
                lambda: packed(PARTS | {"c.prj": b"nowhere"}),
                "crs.unknown",
                id="no coordinate system",
            ),
            pytest.param(
                lambda: packed(PARTS | {"c.dbf": PARTS["c.dbf"][:-200]}),
                "shapefile.damaged",
                id="a short .dbf",
            ),
            pytest.param(
                lambda: packed(PARTS | {"c.shx": PARTS["c.shx"][:100] + b"\x7f" * 856}),
                "shapefile.damaged",
                id="a wild index",
            ),
            pytest.param(
                lambda: packed(PARTS | {"c.cpg": b"utf\0-8"}),
                "shapefile.encoding",
                id="a code page with a NUL",
            ),
            pytest.param(
                lambda: packed(
                    PARTS | {"c.dbf": PARTS["c.dbf"][:32] + b"\xff\xfe" + PARTS["c.dbf"][34:]}
                ),
                "shapefile.damaged",
                id="a name that is no text",
            ),
            pytest.param(lambda: b"<html>gone</html>", "archive.magic", id="a web page"),
            pytest.param(lambda: b"", "archive.magic", id="nothing"),
        ],
        "a bomb by ratio",
        "a bomb by count",
    ),
)
def test_an_archive_that_cannot_be_trusted_is_quarantined_whole(
    stand: Stand, counties: str, make: Callable[[], bytes], code: str
) -> None:
    refuses(stand, counties, make(), code)


# -- rasters


def written(path: Path, **more: Any) -> bytes:
    profile = {
        "driver": "GTiff",
        "count": 1,
        "dtype": "uint8",
        "crs": "EPSG:32614",
        "transform": rasterio.Affine(30, 0, 6e5, 0, -30, 4.3e6),
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with rasterio.open(path, "w", **(profile | {"width": 40, "height": 30} | more)) as out:
            if "width" not in more:
                out.write(np.arange(1200, dtype="uint8").reshape(1, 30, 40))
    return path.read_bytes()


@pytest.fixture(scope="module")
def tif(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return written(tmp_path_factory.mktemp("tif") / "a.tif")


def looping(data: bytes) -> bytes:
    at = int.from_bytes(data[4:8], "little")
    after = at + 2 + 12 * int.from_bytes(data[at : at + 2], "little")
    return data[:after] + at.to_bytes(4, "little") + data[after + 4 :]


def pointing_nowhere(folder: Path) -> bytes:
    """A BigTIFF in which the value of a tag stands where no file reaches."""
    data = written(folder / "big.tif", bigtiff="YES")
    at = data.index(struct.pack("<HH", 34735, 3))
    return data[: at + 12] + b"\xff" * 8 + data[at + 20 :]


def referring(folder: Path, text: str) -> bytes:
    """A TIFF whose metadata names another file."""
    path = folder / "r.tif"
    written(path)
    with rasterio.open(path, "r+") as out:
        out.update_tags(ns="OVERVIEWS", OVERVIEW_FILE=text)
    return path.read_bytes()


def vrt(name: str) -> bytes:
    return (
        f'<VRTDataset rasterXSize="40" rasterYSize="30"><VRTRasterBand dataType="Byte" band="1"><SimpleSource>'
        f'<SourceFilename relativeToVRT="0">{name}</SourceFilename></SimpleSource></VRTRasterBand></VRTDataset>'
    ).encode()


def test_pictures_that_cannot_be_trusted_are_quarantined_and_nobody_is_asked_for_what_they_name(
    stand: Stand, tif: bytes, tmp_path: Path
) -> None:
    name = given(
        stand, "pictures", tif, {"kind": "raster", "format": "tif"}, business_key=["asset"]
    )
    trap = f"{stand.speaker.url}/trap.tif"
    huge = {
        "width": 1_000_000,
        "height": 1_000_000,
        "sparse_ok": True,
        "tiled": True,
        "blockxsize": 4096,
        "blockysize": 4096,
        "bigtiff": "YES",
    }
    cases = {
        vrt("/etc/passwd"): "raster.format",
        vrt(trap): "raster.format",
        vrt(f"/vsicurl/{trap}"): "raster.format",
        f"/vsicurl/{trap}".encode(): "raster.format",
        b'<GDAL_WMS><Service name="TMS"><ServerUrl>'
        + trap.encode()
        + b"</ServerUrl></Service></GDAL_WMS>": "raster.format",
        b"<PAMDataset><Metadata/></PAMDataset>": "raster.format",
        written(tmp_path / "huge.tif", **huge): "raster.size",
        tif[: len(tif) // 2]: "raster.damaged",
        looping(tif): "raster.damaged",
        tif[:4] + b"\xf0\xff\xff\xff" + tif[8:]: "raster.damaged",
        referring(tmp_path, f"/vsicurl/{trap}"): "raster.reference",
        referring(tmp_path, "/etc/passwd"): "raster.reference",
        pointing_nowhere(tmp_path): "raster.damaged",
        b"": "raster.format",
    }
    stand.speaker.asked.clear()  # making them may have asked
    for body, code in cases.items():
        refuses(stand, name, body, code)
    assert not [target for target in stand.speaker.asked if "trap" in target]


def test_grids_that_cannot_be_trusted_are_quarantined(stand: Stand) -> None:
    made = sample("nomads.ncep.noaa.gov", "/nam.20260101/x", "")
    assert made is not None
    grib = made[2]
    name = given(
        stand, "grids", grib, {"kind": "raster", "format": "grib2"}, business_key=["asset"]
    )
    cases = {
        grib[:8] + struct.pack(">Q", len(grib) + 999) + grib[16:]: "raster.damaged",
        grib[:8] + struct.pack(">Q", len(grib) - 8) + grib[16:]: "raster.damaged",
        grib[:16] + b"\xff\xff\xff\xff" + grib[20:]: "raster.damaged",
        grib[:-20]: "raster.damaged",
        grib[:7] + b"\1" + grib[8:]: "raster.format",
        vrt("/etc/passwd"): "raster.format",
    }
    for body, code in cases.items():
        refuses(stand, name, body, code)


def test_arrays_that_cannot_be_trusted_are_quarantined(stand: Stand, tmp_path: Path) -> None:
    with netCDF4.Dataset(tmp_path / "a.nc", "w", format="NETCDF3_CLASSIC") as out:
        for axis, unit, values in (
            ("lat", "degrees_north", np.linspace(40, 37, 8)),
            ("lon", "degrees_east", np.linspace(-102, -95, 9)),
        ):
            out.createDimension(axis, len(values))
            variable = out.createVariable(axis, "f8", (axis,))
            variable.units, variable[:] = unit, values
        variable = out.createVariable("rain", "f4", ("lat", "lon"))
        variable.units, variable[:] = "mm", np.ones((8, 9))
    good = (tmp_path / "a.nc").read_bytes()
    name = given(stand, "arrays", good, {"kind": "raster", "format": "nc"}, business_key=["asset"])
    cases = {
        b"<!doctype html><title>Busy</title>": "raster.format",
        good[:-100]: "raster.damaged",
        good[:100]: "raster.damaged",
        good.replace(
            b"\0\0\0\x03lat\0\0\0\0\x08", b"\0\0\0\x03lat\0\x7f\xff\xff\xff"
        ): "raster.size",
        good.replace(
            b"\0\0\0\x05units\0\0\0\0\0\0\x02", b"\0\0\0\x05units\0\0\0\0\0\0\x63"
        ): "raster.damaged",
        vrt("/etc/passwd"): "raster.format",
    }
    for body, code in cases.items():
        assert body != good
        refuses(stand, name, body, code)


def test_a_reader_that_crashes_over_a_capture_refuses_it(tmp_path: Path) -> None:
    """C libraries read rasters and shapes: bytes that break one are set aside like any others."""
    (tmp_path / "in.json").write_bytes(b"[" + b",".join(repeat(b'{"id": 1}', 3_000_000)) + b"]")

    def break_it(event: dict[str, Any]) -> None:
        if event.get("event") == "child.start":
            os.kill(event["fields"]["pid"], signal.SIGSEGV)

    job = Read(
        dataset_id="d",
        format="json",
        inputs=(InputFile(source_id="s", path=str(tmp_path / "in.json"), digest=""),),
        artifact="d.parquet",
    )
    with pytest.raises(CaptureRefused) as refused:
        run_transform(job, tmp_path, on_event=break_it)
    assert refused.value.code == "reader.crashed" and "SIGSEGV" in refused.value.happened


# -- STAC


def item(name: str = "a", **changes: Any) -> dict[str, Any]:
    made: dict[str, Any] = {
        "type": "Feature",
        "stac_version": "1.0.0",
        "id": name,
        "collection": "naip",
        "geometry": SQUARE,
        "bbox": [-98, 38, -97, 39],
        "properties": {"datetime": "2023-06-22T16:00:00Z"},
        "assets": {"image": {"href": "https://blob.example/a.tif"}},
        "links": [],
    }
    return made | changes


def page(*items: Any, **more: Any) -> dict[str, Any]:
    return {"type": "FeatureCollection", "features": list(items), **more}


def following(href: str) -> dict[str, Any]:
    return {"rel": "next", "href": href}


@pytest.fixture(scope="module")
def scenes(stand: Stand) -> str:
    """A search, and what it says when it is well."""
    if "scenes" not in stand.good:
        stand.register(
            "scenes",
            {
                "kind": "stac",
                "url": f"{stand.speaker.url}/stac/search",
                "options": {"max_documents": 20},
            },
            max_quarantined=0.5,
        )
        stand.speaker.says["/stac/search"] = answer(page(item("a"), item("b"), item("c")))
        stand.publish("scenes")
    return "scenes"


@pytest.mark.parametrize(
    ("said", "code"),
    each(
        [
            pytest.param(page(item(stac_version="0.9.0")), "stac.version", id="version 0.9"),
            pytest.param(
                page(item(), links=[following("https://evil.example/next")]),
                "stac.host",
                id="another host",
            ),
            pytest.param(
                page(item(), links=[following("file:///etc/passwd")]), "stac.host", id="a file"
            ),
            pytest.param(
                page(item(), links=[following("http://169.254.169.254/latest/meta-data/")]),
                "stac.host",
                id="the cloud's metadata",
            ),
            pytest.param(page(item(), links=[following("http://[")]), "stac.host", id="no address"),
            pytest.param(page(item(), links=7), "stac.link", id="links that are none"),
            pytest.param(
                page(item(), links=[following("") | {"headers": {"Authorization": "x"}}]),
                "stac.headers",
                id="a header of its own",
            ),
            pytest.param({"type": "FeatureCollection"}, "stac.document", id="no features"),
            pytest.param(
                {"code": "500", "description": "\x1b[31mdown"},
                "stac.document",
                id="an error with status 200",
            ),
            pytest.param(page(), "empty", id="nothing found"),
            pytest.param(
                page(item(), numberMatched=9, links=[following("?page=2")]),
                "stac.incomplete",
                id="the same page again and again",
            ),
        ],
        "version 0.9",
        "another host",
    ),
)
def test_a_search_that_cannot_be_trusted_is_quarantined_whole(
    stand: Stand, scenes: str, said: Any, code: str
) -> None:
    body = json.dumps(said).encode()
    stand.speaker.says["/stac/search"] = answer(body)
    asked = len(stand.speaker.asked)
    stand.refuses(scenes, code, kept=[body])
    assert len(stand.speaker.asked) - asked <= 3


def test_a_search_that_never_ends_is_left_and_what_came_is_kept(stand: Stand, scenes: str) -> None:
    number = count()
    said: list[bytes] = []

    def more(_: str, __: bytes) -> bytes:
        n = next(number)
        said.append(json.dumps(page(item(f"i{n}"), links=[following(f"?page={n + 1}")])).encode())
        return answer(said[-1])

    stand.speaker.says["/stac/search"] = more
    stand.refuses(scenes, "stac.budget", kept=said)
    assert len(said) == 20


def test_a_static_catalogue_without_an_end_is_left_and_a_circle_is_walked_once(
    stand: Stand,
) -> None:
    def catalog(*links: dict[str, Any]) -> dict[str, Any]:
        return {
            "type": "Catalog",
            "stac_version": "1.0.0",
            "id": "c",
            "description": "c",
            "links": list(links),
        }

    says = stand.speaker.says
    stand.register(
        "shelf",
        {
            "kind": "stac",
            "url": f"{stand.speaker.url}/shelf/c.json",
            "options": {"mode": "static", "max_documents": 20},
        },
    )
    says["/shelf/c.json"] = answer(
        catalog({"rel": "child", "href": "d.json"}, {"rel": "item", "href": "i.json"})
    )
    says["/shelf/d.json"] = answer(
        catalog({"rel": "child", "href": "c.json"}, {"rel": "child", "href": "d.json"})
    )
    says["/shelf/i.json"] = answer(item())
    stand.publish("shelf")
    assert sorted(t for t in stand.speaker.asked if "/shelf/" in t) == [
        "/shelf/c.json",
        "/shelf/d.json",
        "/shelf/i.json",
    ]
    says["/shelf/c.json"] = answer(catalog({"rel": "child", "href": "deeper/c.json"}))
    number = count()
    says["/shelf/deeper/c.json"] = lambda *_: answer(
        catalog({"rel": "child", "href": f"c.json?{next(number)}"})
    )
    stand.refuses("shelf", "stac.depth")


def test_items_that_break_a_rule_are_set_aside_and_no_signature_is_stored(
    stand: Stand, scenes: str
) -> None:
    secret = "sv=2024&sig=Zm9yZ2Vk"  # kfm: not a secret
    bad = [
        item("reversed", bbox=[-97, 39, -98, 38]),
        item("nowhere", geometry="gone"),
        item("elsewhere", bbox=[10, 10, 11, 11]),
        item("never", properties={"datetime": None}),
        {"type": "Feature"},
        "text",
    ]
    fine = [
        item("signed", assets={"image": {"href": f"https://user:pw@blob.example/a.tif?{secret}"}}),
        *map(item, "abcde"),
    ]
    fine.append(
        item(
            "odd",
            assets={"image": {"href": "//["}},
            links=[{"rel": "self", "href": "https://blob.example/odd.json"}],
        )
    )
    stand.speaker.says["/stac/search"] = answer(page(*fine, *bad))
    outcome = stand.run(scenes)
    assert (outcome["state"], outcome["quarantined"]) == ("COMMITTED", len(bad))
    stand.good[scenes] = outcome
    folder = stand.ws / "data" / "processed" / scenes / outcome["version_id"]
    assets = {
        r["item_id"]: r["assets"] for r in pq.read_table(folder / "scenes.parquet").to_pylist()
    }
    assert json.loads(assets["signed"]) == {
        "image": {"href": "https://blob.example/a.tif", "signed": True}
    }
    published = b"".join(p.read_bytes() for p in folder.rglob("*") if p.is_file())
    assert b"sig=" not in published and b"user:pw" not in published


# -- alerts and the outlines they are drawn with

OUTLINES = [{"type": "Feature", "id": "20001", "properties": {}, "geometry": SQUARE}]
ARCS = {
    "type": "Topology",
    "transform": {"scale": [1, 1], "translate": [0, 0]},
    "objects": {"counties": {"geometries": []}},
}


def alerts(*ids: Any) -> dict[str, Any]:
    said = {
        "geocode": {"SAME": ["020001"], "UGC": []},
        "references": [],
        "event": "Flood",
        "expires": "2019-09-03T06:15:00Z",
    }
    found = [
        {
            "type": "Feature",
            "id": f"https://a.example/{i}",
            "geometry": None,
            "properties": said | {"id": i},
        }
        for i in ids
    ]
    return {"type": "FeatureCollection", "features": found}


def test_outlines_that_cannot_be_trusted_are_quarantined_with_the_alerts(stand: Stand) -> None:
    options = {"resource": "alerts", "state": "KS", "counties_url": f"{stand.speaker.url}/outlines"}
    stand.register("alerts", {"kind": "nws", "options": options}, max_quarantined=0.5)
    stand.speaker.says["/outlines"] = answer({"type": "FeatureCollection", "features": OUTLINES})
    stand.publish("alerts", answer(alerts("a", "b")))
    body = json.dumps(alerts("a", "b", "c")).encode()
    stand.speaker.says["/alerts"] = answer(body)
    for wrong in (
        {
            "type": "FeatureCollection",
            "features": [OUTLINES[0] | {"geometry": {"type": "\x1b[31m", "coordinates": []}}],
        },
        {"type": "FeatureCollection", "features": 7},
        ARCS | {"arcs": [[[10**30, 0]]]},
        ARCS
        | {
            "arcs": [[[0, 0]]],
            "objects": {
                "counties": {"geometries": [{"type": "Polygon", "id": "20001", "arcs": [[9]]}]}
            },
        },
        [],
        "<html>",
    ):
        stand.speaker.says["/outlines"] = answer(wrong)
        stand.refuses("alerts", "nws.counties", kept=[body])
    stand.speaker.says["/outlines"] = answer({"type": "FeatureCollection", "features": OUTLINES})
    stand.speaker.says["/alerts"] = answer(alerts("a", "b", "c", ["d"], {"e": 1}))
    stand.sets_aside("alerts", "type", "type")


# -- ArcGIS

FIELDS = [
    {"name": "OBJECTID", "type": "esriFieldTypeOID"},
    {"name": "Name", "type": "esriFieldTypeString"},
]
LAYER = {
    "currentVersion": 10.9,
    "fields": FIELDS,
    "geometryType": "esriGeometryPoint",
    "maxRecordCount": 4,
}
LAYER |= {"advancedQueryCapabilities": {"supportsPagination": True}}
WELLS = [
    {"attributes": {"OBJECTID": 10 + i, "Name": f"n{i}"}, "geometry": {"x": -98.0, "y": 38.0}}
    for i in range(10)
]
DOWN = {"error": {"code": 500, "message": "down\x1b[2J", "details": []}}
Server = Callable[[str, dict[str, str], Any], Any]


def layer(wrong: Server = lambda what, query, said: said) -> Callable[[str, bytes], bytes]:
    """A layer of ten wells; `wrong` may change what it says to a question of some kind: layer,
    count, ids or page.
    """

    def say(target: str, _: bytes) -> bytes:
        query = dict(parse_qsl(urlsplit(target).query))
        if "where" not in query:
            return answer(wrong("layer", query, LAYER))
        if "returnCountOnly" in query:
            return answer(wrong("count", query, {"count": len(WELLS)}))
        if "returnIdsOnly" in query:
            return answer(
                wrong("ids", query, {"objectIds": [w["attributes"]["OBJECTID"] for w in WELLS]})
            )
        start = int(query.get("resultOffset", 0))
        found = {
            "features": WELLS[start : start + 4],
            "spatialReference": {"wkid": 4326},
            "exceededTransferLimit": start + 4 < len(WELLS),
        }
        return answer(wrong("page", query, found))

    return say


@pytest.fixture(scope="module")
def wells(stand: Stand) -> str:
    if "wells" not in stand.good:
        stand.register(
            "wells", {"kind": "arcgis", "url": f"{stand.speaker.url}/wells/0"}, max_quarantined=0.5
        )
        stand.speaker.says |= dict.fromkeys(("/wells/0", "/wells/0/query"), layer())
        stand.publish("wells")
    return "wells"


def changed(what: str, **members: Any) -> Server:
    return lambda asked, query, said: said | members if asked == what else said


def ids_as(kind: Callable[[int], Any]) -> Server:
    def wrong(asked: str, _: dict[str, str], said: Any) -> Any:
        features = [
            f | {"attributes": f["attributes"] | {"OBJECTID": kind(f["attributes"]["OBJECTID"])}}
            for f in said.get("features", [])
        ]
        return said | {"features": features} if asked == "page" else said

    return wrong


@pytest.mark.parametrize(
    ("wrong", "code"),
    each(
        [
            *(
                pytest.param(
                    lambda a, q, said, w=what: DOWN if a == w else said,
                    "arcgis.error",
                    id=f"an error with 200: {what}",
                )
                for what in ("layer", "count", "page")
            ),
            pytest.param(
                changed("count", count=11), "arcgis.count", id="fewer records than counted"
            ),
            pytest.param(changed("count", count="10"), "arcgis.page", id="a count in words"),
            pytest.param(
                lambda a, q, said: said | {"features": WELLS[:4]} if a == "page" else said,
                "arcgis.duplicate",
                id="one page for ever",
            ),
            pytest.param(
                lambda a, q, said: (
                    said | {"features": [], "exceededTransferLimit": True} if a == "page" else said
                ),
                "arcgis.pages",
                id="always more",
            ),
            pytest.param(ids_as(str), "arcgis.page", id="ids in words"),
            pytest.param(ids_as(lambda i: i + 0.5), "arcgis.page", id="half ids"),
            pytest.param(
                changed("page", spatialReference={"wkid": 999_999}),
                "crs.unknown",
                id="an unknown coordinate system",
            ),
            pytest.param(
                changed("page", spatialReference={"wkid": 4267}),
                "crs.grid",
                id="NAD27 without its grid",
            ),
            pytest.param(
                changed("layer", geometryType={"a": 1}), "arcgis.geometry", id="no type of geometry"
            ),
            pytest.param(changed("layer", fields=None), "arcgis.layer", id="no fields"),
            pytest.param(
                lambda a, q, said: [1] if a == "page" else said, "arcgis.json", id="a list"
            ),
            pytest.param(changed("page", features="none"), "arcgis.page", id="no features"),
        ],
        "an error with 200: layer",
        "an error with 200: count",
    ),
)
def test_a_layer_that_cannot_be_trusted_is_quarantined_with_every_answer(
    stand: Stand, wells: str, wrong: Server, code: str
) -> None:
    said: list[bytes] = []

    def say(target: str, body: bytes) -> bytes:
        said.append(layer(wrong)(target, body))
        return said[-1]

    stand.speaker.says |= dict.fromkeys(("/wells/0", "/wells/0/query"), say)
    stand.refuses(wells, code, kept=[s.partition(b"\r\n\r\n")[2] for s in said])
    assert len(said) < 130


def test_wells_without_a_usable_place_are_set_aside(stand: Stand, wells: str) -> None:
    odd = [
        {"x": "a", "y": 1},
        {"x": 1e308, "y": 38},
        {"x": 38.0, "y": -98.0},
        {"x": -98.0, "y": None},
        {"curveRings": []},
    ]
    shapes = dict(zip((10, 11, 12, 13, 14), odd)) | {15: {"x": "NaN", "y": "NaN"}}

    def wrong(asked: str, _: dict[str, str], said: Any) -> Any:
        if asked != "page":
            return said
        return said | {
            "features": [
                f | {"geometry": shapes.get(f["attributes"]["OBJECTID"], f["geometry"])}
                for f in said["features"]
            ]
        }

    stand.speaker.says |= dict.fromkeys(("/wells/0", "/wells/0/query"), layer(wrong))
    rows = stand.sets_aside(wells, "geometry", "geometry", "geometry", "crs.range", "crs.range")
    assert [json.loads(r["record"])["attributes"]["OBJECTID"] for r in rows] == [10, 11, 12, 13, 14]


# -- memory


def flood(
    megabytes: int, head: bytes, record: Callable[[int], bytes], between: bytes, tail: bytes
) -> Iterator[bytes]:
    """An answer of about that size, made while it is sent."""
    yield b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    yield b"%x\r\n%b\r\n" % (len(head), head)
    sent, number = 0, 0
    while sent < megabytes << 20:
        piece = between.join(record(number + i) for i in range(5000))
        piece = piece if number == 0 else between + piece
        yield b"%x\r\n%b\r\n" % (len(piece), piece)
        sent, number = sent + len(piece), number + 5000
    yield b"%x\r\n%b\r\n0\r\n\r\n" % (len(tail), tail)


def quake(number: int) -> bytes:
    return (
        b'{"type":"Feature","properties":{"mag":1.5,"place":"%d km N of Kansas","time":1700000000000,"updated":1700000000000,"url":'
        b'"https://earthquake.example/%d","felt":null,"status":"reviewed","tsunami":0,"net":"us","code":"%d","ids":",us%d,","magType":"ml",'
        b'"type":"earthquake"},"geometry":{"type":"Point","coordinates":[-98.25,38.5,5.0]},"id":"us%d"}'
        % ((number,) * 5)
    )


FLOODS: dict[str, tuple[dict[str, Any], list[str], tuple[Any, ...]]] = {
    "quakes": (
        {"kind": "usgs_quakes"},
        ["event_id"],
        (b'{"type":"FeatureCollection","features":[', quake, b",", b"]}"),
    ),
    "rows": (
        {"format": "csv"},
        ["id"],
        (b"id,name,value\n", lambda n: b"%d,some name of number %d,%d.5" % (n, n, n), b"\n", b"\n"),
    ),
}
BIG = os.environ.get("KFM_BIG") == "1"


def peak(stand: Stand, name: str, megabytes: int) -> int:
    """MB of memory the largest process of a run took; the run publishes."""
    said = FLOODS[name][2]
    stand.speaker.says[f"/{name}"] = lambda *_: flood(megabytes, *said)
    code = "import sys; from kfm.cli import main; sys.exit(main(sys.argv[1:]))"
    command = [sys.executable, "-c", code, "-w", str(stand.ws), "run", name, "--json"]
    root = str(Path(__file__).parents[2] / "src")
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, env={**os.environ, "PYTHONPATH": root}
    ) as process:
        most = 0
        while process.poll() is None:
            most = max(most, *(_high_water(pid) for pid in (process.pid, *_children(process.pid))))
            time.sleep(0.02)
        assert process.stdout is not None
        outcome = json.loads(process.stdout.read())["runs"][0]
    assert (outcome["state"], process.returncode) == ("COMMITTED", 0), outcome
    return most >> 10


def _children(pid: int) -> list[int]:
    try:
        found = [int(c) for c in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []
    return [*found, *(grandchild for child in found for grandchild in _children(child))]


def _high_water(pid: int) -> int:
    """kB"""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0
    return next(
        (int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM")), 0
    )


@pytest.mark.skipif(
    sys.platform != "linux", reason="not run: memory of other processes is read from /proc"
)
@pytest.mark.parametrize("name", each(FLOODS, "rows"))
def test_memory_does_not_grow_with_the_input(stand: Stand, name: str) -> None:
    """KFM_BIG=1 sends 600 MB; otherwise a small and a larger input show that nothing holds a whole
    one.
    """
    source, key, _ = FLOODS[name]
    stand.register(name, source, business_key=key)
    small = peak(stand, name, 120)  # as much as the row groups hold that are on their way at once
    large = peak(stand, name, 600 if BIG else 240)
    print(f"{name}: {small} MB at 120 MB, {large} MB at {600 if BIG else 240} MB")
    assert large < 500
    if not BIG:
        assert large - small < 90, "of 120 MB more: who holds them all holds several times as much"


def test_a_speaker_says_what_it_is_told() -> None:
    """The helper itself: what is not told is 404, pieces arrive as one answer."""
    speaker = Speaker()
    speaker.says["/x"] = [b"HTTP/1.1 200 OK\r\n", b"Content-Length: 2\r\n\r\n", b"ok"]
    import urllib.request

    with urllib.request.urlopen(f"{speaker.url}/x") as found:
        assert found.read() == b"ok"
    speaker.close()
