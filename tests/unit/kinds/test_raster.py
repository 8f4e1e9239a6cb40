"""Rasters: byte-stable Cloud Optimised GeoTIFFs, honest index rows, and files that would lead
elsewhere or blow up.
"""

import json
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import h5py
import msgspec
import netCDF4
import numpy as np
import pyarrow.parquet as pq
import pytest
import rasterio
import shapely
from rasterio import Affine
from rasterio.enums import ColorInterp
from rasterio.warp import transform_bounds
from tests.given.verbs import SHARED, tree

from kfm.connectors.base import CaptureRefused, InputFile
from kfm.connectors.child.process import run_inline, run_transform
from kfm.connectors.operations import Read
from kfm.extras.raster import kind as raster

DATA = SHARED / "data/raster"
NAM, GFS, GOES = (
    DATA / "nam.t00z.awp21100.tm00.grib2",
    DATA / "gfs_output.nc",
    DATA / "goes.cog.tif",
)
NAIP = DATA / "m_3610332_se_13_060_20200903-downsampled.tif"
shared = [
    pytest.mark.needs_shared,
    pytest.mark.skipif(
        not SHARED.exists(), reason="not run: the recordings are not beside this repository"
    ),
]


@pytest.fixture(autouse=True)
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The working folder, as in the child."""
    (tmp_path / "scratch").mkdir()
    monkeypatch.chdir(tmp_path / "scratch")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", rasterio.errors.NotGeoreferencedWarning)
        yield tmp_path / "scratch"


def from_origin(west: float, north: float, width: float, height: float) -> Affine:
    return Affine(width, 0, west, 0, -height, north)


def cleared() -> None:
    for path in Path.cwd().iterdir():
        path.unlink()


def job(*paths: Path, **options: Any) -> Read:
    inputs = tuple(
        InputFile(source_id=f"s{n}", path=str(p), digest="") for n, p in enumerate(paths, 1)
    )
    kind = paths[0].suffix.lstrip(".")
    return Read(
        dataset_id="ds",
        source_kind="raster",
        format=kind,
        inputs=inputs,
        options=options,
        artifact="x.parquet",
    )


def made(*paths: Path, **options: Any) -> list[dict[str, Any]]:
    cleared()
    result = run_inline(job(*paths, **options), Path.cwd())
    rows = pq.read_table("x.parquet").to_pylist()
    assert sorted(result.files) == sorted(r["asset"] for r in rows)
    assert set(result.files) | {"x.parquet"} == {p.name for p in Path.cwd().iterdir()}
    return rows


def refused(*paths: Path, **options: Any) -> str:
    cleared()
    with pytest.raises(CaptureRefused) as error:
        run_inline(job(*paths, **options), Path.cwd())
    assert not list(Path.cwd().glob("ds*"))
    return error.value.code


def tif(
    path: Path,
    data: Any,
    *,
    crs: Any = "EPSG:32614",
    origin: Any = (600_000, 4_300_000, 30, 30),
    **more: Any,
) -> Path:
    bands = np.atleast_3d(data) if data.ndim == 3 else data[None]
    profile = {
        "driver": "GTiff",
        "count": len(bands),
        "height": bands.shape[1],
        "width": bands.shape[2],
        "dtype": bands.dtype,
        "crs": crs,
    }
    with rasterio.open(path, "w", **profile, transform=from_origin(*origin), **more) as out:
        out.write(bands)
    return path


def netcdf(path: Path, values: Any, *, lon: Any = None, **more: Any) -> Path:
    with netCDF4.Dataset(path, "w", format=more.pop("format", "NETCDF4")) as out:
        for name, size, unit, axis in (
            ("lat", values.shape[-2], "degrees_north", np.linspace(40, 37, values.shape[-2])),
            (
                "lon",
                values.shape[-1],
                "degrees_east",
                np.linspace(-102, -95, values.shape[-1]) if lon is None else lon,
            ),
        ):
            out.createDimension(name, size)
            variable = out.createVariable(name, "f8", (name,))
            variable.units, variable[:] = unit, axis
        extra = tuple(f"d{n}" for n in range(values.ndim - 2))
        for name, size in zip(extra, values.shape, strict=False):
            out.createDimension(name, size)
        variable = out.createVariable("rain", values.dtype, (*extra, "lat", "lon"), **more)
        variable.units, variable[:] = "mm", values
    return path


def assert_cog(path: str) -> None:
    """Tiled, directories in front and in order, overviews down to one tile and their data first: by
    what GDAL says of the offsets.
    """
    with rasterio.open(path) as src:
        levels = [None, *range(len(src.overviews(1)))]
        assert (
            src.profile["tiled"]
            and src.block_shapes[0] == (512, 512)
            and src.compression.name == "deflate"
        )
        assert min(-(-src.width // f) for f in [1, *src.overviews(1)]) <= 512
        where = [int(src.get_tag_item("IFD_OFFSET", "TIFF", bidx=1, ovr=o)) for o in levels]
        data = [int(src.get_tag_item("BLOCK_OFFSET_0_0", "TIFF", bidx=1, ovr=o)) for o in levels]
        assert src.tags(ns="IMAGE_STRUCTURE")["LAYOUT"] == "COG"
        assert (
            where == sorted(where) and max(where) < min(data) and data == sorted(data, reverse=True)
        )
        assert not {"TIFFTAG_DATETIME", "TIFFTAG_SOFTWARE"} & set(src.tags())


# -- what is made


def test_a_geotiff_becomes_a_cog_on_its_own_grid_with_the_same_pixels(tmp_path: Path) -> None:
    data = (np.arange(1100 * 700) % 251).astype("uint16").reshape(1100, 700)
    source = tif(tmp_path / "a.tif", data, nodata=0)
    (row,) = made(source)
    assert_cog("ds.tif")
    with rasterio.open("ds.tif") as out:
        assert np.array_equal(out.read(1), data)
        assert (out.crs.to_epsg(), out.transform, out.nodata) == (
            32614,
            from_origin(600_000, 4_300_000, 30, 30),
            0,
        )
    good = data[data > 0]
    assert (row["min"], row["max"], row["sum"], row["valid_pixels"]) == (
        1,
        250,
        int(good.sum()),
        good.size,
    )
    assert row["mean"] == pytest.approx(good.mean(), rel=1e-11) and row["source_is_cog"] is False
    assert (row["source_crs"], row["pixel_width"], row["dtype"]) == ("EPSG:32614", 30, "uint16")
    bounds = transform_bounds("EPSG:32614", "EPSG:4326", 600_000, 4_267_000, 621_000, 4_300_000)
    assert shapely.from_wkb(row["geometry"]).bounds == pytest.approx(bounds, abs=1e-6)


@pytest.mark.usefixtures("started_children")
def test_the_same_bytes_are_made_every_time_in_any_process(tmp_path: Path, scratch: Path) -> None:
    rng = np.random.default_rng(7)
    source = tif(tmp_path / "a.tif", rng.random((2, 900, 1300)).astype("float32").round(3))
    made(source)
    first = tree(scratch)
    (tmp_path / "again").mkdir()
    run_transform(job(source), tmp_path / "again")
    assert tree(tmp_path / "again") == first
    made(Path("ds.tif").rename(tmp_path / "b.tif"))
    assert tree(scratch)["ds.tif"] == first["ds.tif"]  # a GeoTIFF that is one already


def test_overviews_of_whole_numbers_invent_no_class(tmp_path: Path) -> None:
    made(tif(tmp_path / "a.tif", np.tile(np.array([[10, 20]], "uint8"), (1024, 512))))
    with rasterio.open("ds.tif", overview_level=0) as small:
        assert set(np.unique(small.read(1))) <= {10, 20}


def test_scale_mask_palette_and_names_of_bands_are_kept(tmp_path: Path) -> None:
    source = tif(tmp_path / "a.tif", np.full((600, 600), 5, "uint8"))
    with rasterio.Env(GDAL_TIFF_INTERNAL_MASK="YES"), rasterio.open(source, "r+") as src:
        src.scales, src.offsets, src.units, src.descriptions = (
            (0.5,),
            (10.0,),
            ("Cel",),
            ("surface",),
        )
        mask = np.full((600, 600), 255, "uint8")
        mask[:, :300] = 0
        src.write_mask(mask)
    (row,) = made(source)
    assert (row["min"], row["max"], row["valid_pixels"], row["unit"]) == (
        12.5,
        12.5,
        180_000,
        "Cel",
    )
    with rasterio.open("ds.tif") as out:
        assert (out.scales, out.offsets, out.descriptions) == ((0.5,), (10.0,), ("surface",))
        assert np.array_equal(out.dataset_mask(), mask)
    coloured = tif(tmp_path / "b.tif", np.zeros((8, 8), "uint8"), photometric="palette")
    with rasterio.open(coloured, "r+") as src:
        src.write_colormap(1, {0: (1, 2, 3, 255)})
    made(coloured)
    with rasterio.open("ds.tif") as out:
        assert out.colorinterp[0] == ColorInterp.palette and out.colormap(1)[0] == (1, 2, 3, 255)


def test_missing_is_neither_nought_nor_counted(tmp_path: Path) -> None:
    data = np.array([[np.nan, -9999, 1, 2]], "float32")
    (row,) = made(tif(tmp_path / "a.tif", data, nodata=-9999))
    assert (row["valid_pixels"], row["sum"], row["nodata"]) == (2, 3, -9999)
    (row,) = made(tif(tmp_path / "b.tif", np.full((4, 4), np.nan, "float32")))
    assert (row["valid_pixels"], row["min"], row["mean"], row["sum"]) == (0, None, None, None)


def test_every_level_of_a_netcdf_variable_is_a_layer_with_a_safe_name(tmp_path: Path) -> None:
    source = netcdf(tmp_path / "a.nc", np.arange(3 * 20 * 30, dtype="f4").reshape(3, 20, 30))
    rows = made(source)
    assert [r["asset"] for r in rows] == [
        "ds-rain-d0_1.tif",
        "ds-rain-d0_2.tif",
        "ds-rain-d0_3.tif",
    ]
    assert [r["sum"] for r in rows] == [np.arange(n * 600, n * 600 + 600).sum() for n in range(3)]
    assert [r["source_crs"] for r in rows] == ["EPSG:4326"] * 3 and rows[0]["unit"] == "mm"
    assert [r["sum"] for r in made(source, bands=[2])] == [rows[1]["sum"]]


def test_longitudes_beyond_180_have_a_footprint_within_180(tmp_path: Path) -> None:
    (row,) = made(netcdf(tmp_path / "a.nc", np.ones((4, 10), "f4"), lon=np.arange(258, 268)))
    assert shapely.from_wkb(row["geometry"]).bounds[0::2] == pytest.approx((-102.5, -92.5))
    (row,) = made(
        tif(tmp_path / "b.tif", np.ones((180, 360), "u1"), crs="EPSG:4326", origin=(0, 90, 1, 1))
    )
    assert shapely.from_wkb(row["geometry"]).bounds == (-180, -90, 180, 90)
    (row,) = made(
        tif(tmp_path / "c.tif", np.ones((10, 20), "u1"), crs="EPSG:4326", origin=(170, 10, 1, 1))
    )
    shape = shapely.from_wkb(row["geometry"])
    assert (
        shape.geom_type == "MultiPolygon"
        and shape.area == pytest.approx(200)
        and shape.bounds == (-180, 0, 180, 10)
    )


def test_a_grid_round_the_pole_has_no_footprint(tmp_path: Path) -> None:
    source = tif(
        tmp_path / "a.tif", np.ones((10, 10), "u1"), crs="EPSG:3995", origin=(-1e6, 1e6, 2e5, 2e5)
    )
    result = run_inline(job(source), Path.cwd())
    assert result.bbox is None and "no footprint" in result.warnings[0]


def test_several_files_keep_their_own_names(tmp_path: Path) -> None:
    one, two = (tif(tmp_path / f"{n}.tif", np.ones((8, 8), "u1")) for n in "ab")
    assert [r["asset"] for r in made(one, two)] == ["ds-s1.tif", "ds-s2.tif"]


IN_KANSAS = ((-102.1, 36.9), (-94.5, 36.9), (-94.5, 40.1), (-102.1, 40.1), (-102.1, 36.9))


def test_the_image_of_a_row_outside_the_area_is_not_published(
    tmp_path: Path, scratch: Path
) -> None:
    here = tif(tmp_path / "a.tif", np.ones((9, 9), "u1"))
    # in Texas
    away = tif(tmp_path / "b.tif", np.ones((9, 9), "u1"), origin=(600_000, 3_300_000, 30, 30))
    result = run_inline(msgspec.structs.replace(job(here, away), area=IN_KANSAS), scratch)
    assert result.books.dropped == {"outside-area": 1}
    assert [r["asset"] for r in pq.read_table("x.parquet").to_pylist()] == ["ds-s1.tif"]
    assert (result.files, [p.name for p in scratch.glob("*.tif")]) == (
        ("ds-s1.tif",),
        ["ds-s1.tif"],
    )


def test_the_image_of_a_quarantined_row_is_not_published(tmp_path: Path, scratch: Path) -> None:
    good = tif(tmp_path / "a.tif", np.array([[0, 5]], "u1"), nodata=0)
    # nothing in it, so no lowest value
    blank = tif(tmp_path / "b.tif", np.array([[0, 0]], "u1"), nodata=0)
    strict = tuple(
        msgspec.structs.replace(c, nullable=c.nullable and c.name != "min") for c in raster.COLUMNS
    )
    result = run_inline(
        msgspec.structs.replace(job(blank, good), schema=strict, max_quarantined=1.0), scratch
    )
    assert (result.books.written, result.books.quarantined) == (1, 1)
    assert (result.files, [p.name for p in scratch.glob("*.tif")]) == (
        ("ds-s2.tif",),
        ["ds-s2.tif"],
    )


def test_a_table_that_names_no_image_has_none_beside_it(tmp_path: Path, scratch: Path) -> None:
    source = tif(tmp_path / "a.tif", np.ones((9, 9), "u1"))
    run_inline(job(source), scratch)
    # as connector code may make it
    pq.write_table(pq.read_table("x.parquet").drop_columns(["asset"]), "x.parquet")
    assert (raster.companions(job(source), scratch), list(scratch.glob("*.tif"))) == ((), [])


def test_nad27_without_its_grid_is_refused(tmp_path: Path) -> None:
    assert refused(tif(tmp_path / "a.tif", np.ones((8, 8), "u1"), crs="EPSG:26714")) == "crs.grid"


def test_pixels_without_a_place_are_refused_unless_the_system_is_stated(tmp_path: Path) -> None:
    source = tif(tmp_path / "a.tif", np.ones((8, 8), "u1"), crs=None)
    assert refused(source) == "raster.crs"
    assert made(source, crs="EPSG:32614")[0]["source_crs"] == "EPSG:32614"


def test_a_choice_that_matches_nothing_is_refused(tmp_path: Path) -> None:
    assert (
        refused(netcdf(tmp_path / "a.nc", np.ones((4, 4), "f4")), bands=["snow"]) == "raster.bands"
    )
    assert refused(tif(tmp_path / "a.tif", np.ones((8, 8), "u1")), bands=[2]) == "raster.bands"
    assert refused(netcdf(tmp_path / "b.nc", np.ones((65, 4, 4), "f4"))) == "raster.bands"


# -- what is not followed, not unpacked and not believed


@pytest.mark.parametrize(
    "text",
    [
        b'<VRTDataset rasterXSize="1" rasterYSize="1"/>',
        b'<?xml version="1.0"?><GDAL_WMS/>',
        b"/vsicurl/http://127.0.0.1/x.tif",
        b"GRIB\0\0\0\1" + b"\0" * 20,
        b"",
        b"PK\x03\x04",
    ],
)
@pytest.mark.parametrize("kind", ["tif", "nc", "grib2"])
def test_what_is_no_raster_is_refused_whatever_its_name(
    tmp_path: Path, text: bytes, kind: str
) -> None:
    (tmp_path / f"a.{kind}").write_bytes(text)
    assert refused(tmp_path / f"a.{kind}") == "raster.format"


def test_a_tiff_that_names_another_file_is_refused_and_sidecars_are_not_seen(
    tmp_path: Path,
) -> None:
    secret = tif(tmp_path / "secret.tif", np.full((25, 25), 7, "u1"))
    source = tif(tmp_path / "a.tif", np.zeros((50, 50), "u1"))
    (tmp_path / "a.tif.ovr").write_bytes(secret.read_bytes())
    with rasterio.Env(GDAL_TIFF_INTERNAL_MASK="NO"), rasterio.open(source, "r+") as out:
        out.write_mask(np.zeros((50, 50), "u1"))
    assert (tmp_path / "a.tif.msk").exists()
    (tmp_path / "a.tif.aux.xml").write_text("<PAMDataset><SRS>EPSG:3857</SRS></PAMDataset>")
    (row,) = made(source)
    assert (row["max"], row["valid_pixels"], row["source_crs"]) == (0, 2500, "EPSG:32614")
    with rasterio.open(source, "r+") as out:
        out.update_tags(ns="OVERVIEWS", OVERVIEW_FILE=str(secret))
    assert refused(source) == "raster.reference"


def test_an_hdf5_file_that_keeps_data_in_another_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(b"TOPSECRET" * 8)
    other = netcdf(tmp_path / "other.nc", np.ones((8, 8), "u1"))
    ways = {
        "external": lambda f: f.create_dataset(
            "b", (8, 8), "u1", external=[(str(tmp_path / "secret"), 0, 64)]
        ),
        "link": lambda f: f.__setitem__("b", h5py.ExternalLink(str(other), "/rain")),
        "soft": lambda f: f.__setitem__("b", h5py.SoftLink("/rain")),
        "virtual": lambda f: f.create_virtual_dataset("b", _virtual(other)),
    }
    for name, way in ways.items():
        source = netcdf(tmp_path / f"{name}.nc", np.ones((8, 8), "u1"))
        with h5py.File(source, "a") as file:
            way(file)
        assert refused(source) == "raster.reference", name


def _virtual(other: Path) -> Any:
    layout = h5py.VirtualLayout((8, 8), "u1")
    layout[:] = h5py.VirtualSource(str(other), "rain", shape=(8, 8))
    return layout


@pytest.mark.parametrize("share", [0.02, 0.5, 0.97])
@pytest.mark.parametrize("kind", ["tif", "nc", "classic"])
def test_a_file_that_is_cut_off_is_refused(tmp_path: Path, kind: str, share: float) -> None:
    values = (
        np.random.default_rng(1)
        .integers(1, 200, (300, 300))
        .astype("u1" if kind == "tif" else "f4")
    )
    if kind == "tif":
        source = tif(tmp_path / "a.tif", values, compress="deflate")
    else:
        source = netcdf(
            tmp_path / "a.nc", values, format="NETCDF4" if kind == "nc" else "NETCDF3_CLASSIC"
        )
    made(source)
    source.write_bytes(source.read_bytes()[: int(source.stat().st_size * share)])
    assert refused(source) == "raster.damaged"


def test_a_damaged_block_is_refused(tmp_path: Path) -> None:
    values = np.random.default_rng(1).integers(1, 200, (900, 900)).astype("u1")
    source = tif(
        tmp_path / "a.tif", values, compress="deflate", tiled=True, blockxsize=256, blockysize=256
    )
    raw = bytearray(source.read_bytes())
    # the beginning of a block is among them
    raw[len(raw) // 2 : len(raw) // 2 + 80_000] = bytes(80_000)
    source.write_bytes(raw)
    assert refused(source) == "raster.damaged"


def test_a_small_file_that_claims_a_huge_image_is_refused_before_it_is_read(tmp_path: Path) -> None:
    profile = {
        "driver": "GTiff",
        "count": 1,
        "dtype": "uint8",
        "crs": "EPSG:32614",
        "transform": from_origin(0, 0, 1, 1),
        "sparse_ok": True,
    }
    bomb = tmp_path / "bomb.tif"
    with rasterio.open(
        bomb,
        "w",
        width=1_000_000,
        height=1_000_000,
        **profile,
        tiled=True,
        blockxsize=4096,
        blockysize=4096,
        bigtiff="YES",
    ):
        pass
    strip = tmp_path / "strip.tif"
    with rasterio.open(strip, "w", width=30_000, height=30_000, **profile, blockysize=30_000):
        pass
    axis = tmp_path / "axis.nc"
    with h5py.File(axis, "w") as file:
        file.create_dataset("lon", (10**9,), "f8", chunks=(10**6,), compression="gzip")
    assert [refused(p) for p in (bomb, strip, axis)] == ["raster.size"] * 3


def test_a_tiff_whose_directories_go_in_a_circle_is_refused(tmp_path: Path) -> None:
    raw = bytearray(tif(tmp_path / "a.tif", np.ones((8, 8), "u1")).read_bytes())
    at = int.from_bytes(raw[4:8], "little")
    after = at + 2 + 12 * int.from_bytes(raw[at : at + 2], "little")
    raw[after : after + 4] = at.to_bytes(4, "little")
    (tmp_path / "a.tif").write_bytes(raw)
    assert refused(tmp_path / "a.tif") == "raster.damaged"


@pytest.mark.skipif(
    not Path("/proc/self/status").exists(),
    reason="not run: this system does not say how much memory was used at most",
)
@pytest.mark.drill
def test_memory_does_not_grow_with_the_image(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    # 100 MB that cannot be compressed
    source = tif(tmp_path / "big.tif", rng.integers(1, 255, (4, 5000, 5000), dtype="u1"))
    code = (
        "import sys; from pathlib import Path; from kfm.connectors.base import *; from kfm.connectors.operations import Read; from kfm.extras.raster import kind as raster;"
        "j = Read(dataset_id='ds', format='tif', artifact='x', inputs=(InputFile(source_id='s', path=sys.argv[1], digest=''),));"
        "print(next(raster.readers(j)[0].rows()).row['width'], Path('/proc/self/status').read_text().split('VmHWM:')[1].split()[0])"
    )
    out = subprocess.run(
        [sys.executable, "-c", code, str(source)], capture_output=True, text=True, check=True
    )
    width, peak = map(int, out.stdout.split())
    assert width == 5000 and peak < 380 << 10


# -- the recordings


ECCODES = """
import sys, eccodes, numpy
counts = []
for several in (eccodes.codes_grib_multi_support_off, eccodes.codes_grib_multi_support_on):
    several()
    counts.append(0)
    with open(sys.argv[1], "rb") as file:
        while (found := eccodes.codes_grib_new_from_file(file)) is not None:
            counts[-1] += 1
            if eccodes.codes_get(found, "shortName") == "2t":
                numpy.save(sys.argv[2], eccodes.codes_get_values(found))
            eccodes.codes_release(found)
print(*counts)
"""


def read_by_eccodes(folder: Path) -> tuple[int, int, Any]:
    """(messages, fields, 2 m temperatures); in a process of its own, because it brings a PROJ that
    breaks pyproj's.
    """
    out = subprocess.run(
        [sys.executable, "-c", ECCODES, NAM, folder / "t.npy"],
        capture_output=True,
        text=True,
        check=True,
    )
    messages, fields = map(int, out.stdout.split())
    return messages, fields, np.load(folder / "t.npy")


class TestRecordings:
    pytestmark = shared

    def test_the_model_has_154_messages_and_181_fields_because_winds_travel_in_pairs(
        self, tmp_path: Path
    ) -> None:
        messages, fields, _ = read_by_eccodes(tmp_path)
        assert (messages, fields) == (154, 181)
        assert refused(NAM) == "raster.bands"
        assert len(made(NAM, bands=["UGRD", "VGRD"])) == 2 * 27 == 2 * (fields - messages)

    def test_two_metre_temperature_is_what_eccodes_reads(self, tmp_path: Path) -> None:
        values = read_by_eccodes(tmp_path)[2].reshape(65, 93)[::-1]  # its rows run northwards
        (row,) = made(NAM, bands=[{"element": "TMP", "level": "2-HTGL"}])
        assert (row["min"], row["max"], row["mean"]) == pytest.approx(
            (269.177, 313.717, 292.9157), abs=5e-4
        )
        assert (row["min"], row["max"], row["mean"]) == pytest.approx(
            (values.min(), values.max(), values.mean()), abs=5e-3
        )
        with rasterio.open(row["asset"]) as out:
            assert np.abs(out.read(1) - values).max() < 5e-3  # packed in hundredths
        assert (row["asset"], row["unit"], row["valid_pixels"]) == ("ds-TMP-2-HTGL.tif", "K", 6045)
        assert (
            row["valid_time"].isoformat()
            == row["reference_time"].isoformat()
            == "2018-09-17T00:00:00+00:00"
        )
        assert shapely.from_wkb(row["geometry"]).contains(shapely.Point(-98.5, 38.5)) and row[
            "source_crs"
        ].startswith("PROJCS")
        assert_cog(row["asset"])

    def test_a_model_file_that_is_cut_off_or_changed_is_refused(self, tmp_path: Path) -> None:
        raw = NAM.read_bytes()
        for name, broken in {
            "half": raw[: len(raw) // 2],
            "tail": raw[:-2],
            "more": raw + b"\0\0",
            "end": raw.replace(b"7777", b"7776", 1),
        }.items():
            (tmp_path / f"{name}.grib2").write_bytes(broken)
            assert refused(tmp_path / f"{name}.grib2", bands=[1]) == "raster.damaged", name

    def test_the_global_forecast_is_what_netcdf4_reads(self) -> None:
        rows = made(GFS)
        assert [r["variable"] for r in rows] == [
            "temp",
            "precip_water",
            "heights_300",
            "heights_500",
            "vort_500",
            "winds_300",
        ]
        assert {(r["width"], r["height"], r["source_crs"]) for r in rows} == {
            (361, 201, "EPSG:4326")
        }
        with netCDF4.Dataset(GFS) as other:
            for row in rows:
                values = np.asarray(other[row["variable"]][0])
                assert (row["min"], row["max"]) == (values.min(), values.max()) and row[
                    "mean"
                ] == pytest.approx(values.mean(), rel=1e-9)
                with rasterio.open(row["asset"]) as out:
                    north_first = values if other["lat"][0] > other["lat"][-1] else values[::-1]
                    assert np.array_equal(out.read(1), north_first)
            assert (other["lon"][0], other["lon"][-1]) == (220, 310)
        assert shapely.from_wkb(rows[0]["geometry"]).bounds == (-140.125, 14.875, -49.875, 65.125)
        assert rows[0]["valid_time"].isoformat() == "2017-02-28T21:00:00+00:00"
        assert (rows[0]["sum"], rows[0]["unit"]) == (pytest.approx(20345600.0049), "kelvin")

    def test_the_aerial_photograph_is_no_cog_and_becomes_one(self) -> None:
        (row,) = made(NAIP)
        assert row["source_is_cog"] is False and (
            row["width"],
            row["height"],
            row["band_count"],
        ) == (192, 233, 4)
        assert [b["sum"] for b in json.loads(row["bands"])] == [5876934, 5587900, 4611547, 7141239]
        with rasterio.open(NAIP) as src, rasterio.open("ds.tif") as out:
            assert [int(b.sum()) for b in src.read().astype("int64")] == [
                5876934,
                5587900,
                4611547,
                7141239,
            ]
            assert np.array_equal(src.read(), out.read())
        assert row["source_crs"] == "EPSG:26913"
        assert shapely.from_wkb(row["geometry"]).bounds == pytest.approx(
            (-103.066352, 36.497078, -102.996057, 36.565388), abs=1e-6
        )
        assert_cog("ds.tif")

    def test_the_full_disk_keeps_its_projection_and_has_no_footprint(self) -> None:
        (row,) = made(GOES)
        assert row["source_is_cog"] is True and row["geometry"] is None
        assert 'PROJECTION["Geostationary_Satellite"]' in row["source_crs"]
        with rasterio.open(GOES) as src, rasterio.open("ds.tif") as out:
            assert np.array_equal(src.read(), out.read()) and np.array_equal(
                src.dataset_mask(), out.dataset_mask()
            )
        assert_cog("ds.tif")

    def test_a_metadata_sidecar_is_no_raster(self) -> None:
        assert refused(DATA / "m_3610332_se_13_060_20200903_20201204.fgdc.xml") == "raster.format"

    @pytest.mark.parametrize("path", [GFS, NAIP, GOES])
    def test_recordings_give_the_same_bytes_in_the_child(
        self, path: Path, tmp_path: Path, scratch: Path
    ) -> None:
        made(path)
        (tmp_path / "child").mkdir()
        run_transform(job(path), tmp_path / "child")
        assert tree(tmp_path / "child") == tree(scratch)


# -- what cannot be true


def test_an_image_that_cannot_be_read_back_is_refused(tmp_path, monkeypatch):
    path = tif(tmp_path / "a.tif", np.arange(64, dtype=np.float32).reshape(8, 8))
    optimise = raster._optimise

    def spoil(name: str, *, smooth: bool) -> None:
        optimise(name, smooth=smooth)
        with rasterio.open(name, "r+", IGNORE_COG_LAYOUT_BREAK="YES") as image:
            image.write(np.zeros((8, 8), np.float32), 1)

    monkeypatch.setattr(raster, "_optimise", spoil)
    with pytest.raises(CaptureRefused) as error:
        run_inline(job(path), Path.cwd())
    assert error.value.code == "raster.unreadable"


@pytest.mark.parametrize("bands", [1, 3])
def test_an_undeclared_filler_sets_the_image_aside_and_a_declared_one_does_not(tmp_path, bands):
    data = np.full((bands, 8, 8), 15, np.float32)
    data[-1, 2, 2] = -9999
    assert len(made(tif(tmp_path / "declared.tif", data, nodata=-9999))) == 1
    with pytest.raises(CaptureRefused) as error:
        run_inline(job(tif(tmp_path / "not.tif", data)), Path.cwd())
    assert "value.sentinel 1" in error.value.happened


def test_a_map_of_metres_with_pixels_of_degrees_is_set_aside(tmp_path):
    data = np.full((8, 8), 15, np.float32)
    for crs, origin in (
        ("EPSG:32614", (-98.5, 38.5, 0.01, 0.01)),
        ("EPSG:4326", (600_000, 4_300_000, 30, 30)),
    ):
        with pytest.raises(CaptureRefused) as error:
            run_inline(job(tif(tmp_path / "a.tif", data, crs=crs, origin=origin)), Path.cwd())
        assert "crs.range 1" in error.value.happened
