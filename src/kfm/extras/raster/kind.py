"""GRIB2, NetCDF and GeoTIFF rasters to Cloud Optimised GeoTIFFs on their own grid, with an index
row for each.

The rows need the digests of the GeoTIFFs, so reading writes them, into the working folder (the
scratch folder of the child). Published are exactly those that a row of the finished table names
under `asset`: the image of a row that was quarantined, or dropped because it lies outside the
registered area, is removed again. A table without that column has none.
"""

import datetime as dt
import hashlib
import re
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import groupby, product
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np
import pyarrow.parquet as pq
import rasterio
import rasterio.shutil
import shapely
from pyproj import CRS, Transformer
from rasterio.crs import CRS as RasterCrs
from rasterio.dtypes import in_dtype_range
from rasterio.enums import ColorInterp, MaskFlags
from rasterio.errors import NotGeoreferencedWarning, RasterioError
from rasterio.io import DatasetReader as Dataset
from rasterio.windows import Window

from kfm.connectors.arrays import Array, Floats
from kfm.connectors.base import InputFile, Refused
from kfm.connectors.kind import RowReader, options_of
from kfm.connectors.operations import Read
from kfm.connectors.read.crs import fits, to_wgs84
from kfm.connectors.read.geometry import Problem
from kfm.connectors.read.rows import Loose, Row
from kfm.connectors.table.sanity import Sane
from kfm.extras.raster.sniff import (
    BLOCK_BYTES,
    MAX_SAMPLES,
    Sniffed,
    damaged,
    sniff,
    too_large,
)
from kfm.model import KINDS, Column, Json

__all__ = ["COLUMNS", "KEY", "KIND", "SANITY", "Options", "companions", "readers"]

KIND = KINDS["raster"]

COLUMNS = (
    Column(name="asset", type="string", nullable=False),  # file name of the GeoTIFF
    Column(name="variable", type="string"),
    Column(name="level", type="string"),
    Column(name="unit", type="string"),
    Column(name="description", type="string"),
    Column(name="reference_time", type="timestamp"),
    Column(name="valid_time", type="timestamp"),
    Column(name="width", type="integer", nullable=False),
    Column(name="height", type="integer", nullable=False),
    Column(name="band_count", type="integer", nullable=False),
    Column(name="dtype", type="string", nullable=False),
    Column(name="nodata", type="number"),
    Column(name="min", type="number"),  # these five of a single band; several have them in `bands`
    Column(name="max", type="number"),
    Column(name="mean", type="number"),
    Column(name="sum", type="number"),
    Column(name="valid_pixels", type="integer"),
    Column(name="bands", type="json"),
    Column(name="source_crs", type="string", nullable=False),  # EPSG code, else WKT
    Column(name="pixel_width", type="number", nullable=False),  # in units of source_crs
    Column(name="pixel_height", type="number", nullable=False),
    Column(name="source_is_cog", type="boolean"),
    Column(name="sha256", type="string", nullable=False),
    # null where the outline leaves the Earth or goes round a pole
    Column(name="geometry", type="geometry"),
)
KEY = ("asset",)
# Pixels that a file declares as missing are not counted, so one of these as its least or greatest
# is a value nobody declared.
_FILLER = (
    -9999,
    -99999,
    -999999,
    -32768,
    9999,
    99999,
    999999,
    1e20,
    9.969209968386869e36,
    -3.4028234663852886e38,
    3.4028234663852886e38,
)
_KELVIN = ("variable", ("TMP", "DPT", "TMAX", "TMIN"))
SANITY = (
    Sane("reference_time", "1800-01-01", "+1d"),
    Sane("valid_time", "1800-01-01", "2500-01-01"),
    *(Sane(name, sentinels=_FILLER) for name in ("min", "max")),
    *(Sane(name, 100, 400, where=_KELVIN) for name in ("min", "max")),
)

_MOST = 64  # layers made when none are chosen
_TILE = 512
_SCRATCH = ".raster.tif"
_GDAL: dict[str, str | int] = {
    "GDAL_DISABLE_READDIR_ON_OPEN": "EMPTY_DIR",  # no sidecar is looked for
    "GDAL_PAM_ENABLED": "NO",
    "GDAL_SKIP": "VRT DERIVED GTI WMS WCS WMTS HTTP STACIT STACTA PLMOSAIC EEDAI DAAS OGCAPI ZARR",
    "CPL_VSIL_CURL_ALLOWED_EXTENSIONS": "{none}",
    "GDAL_NUM_THREADS": "1",
    "GDAL_CACHEMAX": 64 << 20,
    "GDAL_TIFF_INTERNAL_MASK": "YES",
    "GDAL_ERROR_ON_LIBJPEG_WARNING": "YES",
    "GRIB_NORMALIZE_UNITS": "NO",  # Kelvin stays Kelvin
    "PROJ_NETWORK": "OFF",
}
_OPEN: dict[str, dict[str, str]] = {
    "GRIB": {"USE_IDX": "NO"},
    "GTiff": {"GEOREF_SOURCES": "INTERNAL", "NUM_THREADS": "1"},
    "netCDF": {},
}
_VARIABLE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+@-]*")
_SINCE = re.compile(r"(second|minute|hour|day)s?\s+since\s+(\S+(?:\s+\d\S*)?)", re.IGNORECASE)
_CALENDARS = {None, "standard", "gregorian", "proleptic_gregorian"}
_SECONDS = {"second": 1, "minute": 60, "hour": 3600, "day": 86400}


class Selector(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Layers of a GRIB file by what they hold."""

    element: str  # such as TMP
    level: str | None = None  # such as 2-HTGL; None: every level


class Options(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`source.options` of a raster source."""

    # numbers, names of variables or elements, or {element, level}; none: all, up to 64
    bands: tuple[int | str | Selector, ...] = ()
    crs: str = ""  # of files that state none


class Layer(NamedTuple):
    """What becomes one GeoTIFF."""

    address: str  # for GDAL: the file, or one variable of it
    indexes: tuple[int, ...]
    number: int  # counted through the file
    variable: str | None = None
    level: str | None = None
    unit: str | None = None
    description: str | None = None
    reference_time: dt.datetime | None = None
    valid_time: dt.datetime | None = None


def readers(job: Read) -> list["RasterReader"]:
    """One reader per file."""
    options = options_of(job.options, Options)
    several = len(job.inputs) > 1
    return [
        RasterReader(
            source, f"{job.dataset_id}-{source.source_id}" if several else job.dataset_id, options
        )
        for source in job.inputs
    ]


def companions(job: Read, scratch: Path) -> tuple[str, ...]:
    """The GeoTIFFs that the table in `scratch` names; others that reading has written are
    removed.
    """
    with pq.ParquetFile(scratch / job.artifact) as table:
        named = (
            set(table.read(["asset"])["asset"].to_pylist())
            if "asset" in table.schema_arrow.names
            else set()
        )
    made = [name for reader in readers(job) for name in reader.assets()]
    for name in set(made) - named:
        (scratch / name).unlink(missing_ok=True)
    if missing := [name for name in named if name not in made or not (scratch / name).is_file()]:
        raise FileNotFoundError(
            f"{missing[0]} was not written: rows are read before companions are listed, in the"
            " scratch folder"
        )
    return tuple(name for name in made if name in named)


class RasterReader(RowReader):
    """The layers of one file; reading them writes their GeoTIFFs."""

    def __init__(self, source: InputFile, stem: str, options: Options) -> None:
        super().__init__(source)
        self._source, self._stem, self._options = source, stem, options

    def assets(self) -> list[str]:
        """The names of the GeoTIFFs."""
        with rasterio.Env(**_GDAL), warnings.catch_warnings():
            warnings.simplefilter("ignore", NotGeoreferencedWarning)
            return _names(self._stem, self._layers(sniff(self._source)))

    def rows(self) -> Iterator[Loose]:
        """One row per GeoTIFF."""
        found = sniff(self._source)
        with rasterio.Env(**_GDAL), warnings.catch_warnings():
            warnings.simplefilter("ignore", NotGeoreferencedWarning)
            layers = self._layers(found)
            named = zip(layers, _names(self._stem, layers), strict=True)
            try:
                made = [
                    row
                    for address, some in groupby(named, lambda n: n[0].address)
                    for row in self._made(found, address, list(some))
                ]
            except RasterioError as error:
                damaged(self.source_id, str(error.__cause__ or error)[:200])
        for layer, (row, problem) in zip(layers, made, strict=True):
            yield Loose(layer.number, partial(str, layer), None if problem else row, problem, row)

    def _layers(self, found: Sniffed) -> list[Layer]:
        list_of = {"GRIB": _grib_layers, "netCDF": _netcdf_layers, "GTiff": _tiff_layers}[
            found.driver
        ]
        try:
            layers = list_of(str(self.path.resolve()), self._options)
        except RasterioError as error:
            damaged(self.source_id, str(error.__cause__ or error)[:200])
        if found.driver == "GRIB" and len(layers) != found.fields:
            damaged(self.source_id, f"GDAL sees {len(layers)} of its {found.fields} fields")
        return layers if found.driver == "GTiff" else self._chosen(layers)

    def _chosen(self, layers: list[Layer]) -> list[Layer]:
        wanted = self._options.bands
        kept = (
            [layer for layer in layers if any(_fits(layer, w) for w in wanted)]
            if wanted
            else layers
        )
        idle = next((w for w in wanted if not any(_fits(layer, w) for layer in layers)), None)
        if idle is None and kept and (wanted or len(kept) <= _MOST):
            return kept
        happened = (
            f"has {len(layers)} layers"
            if idle is None
            else f"has no layer {msgspec.to_builtins(idle)}"
        )
        shown = ", ".join(
            f"{layer.variable} at {layer.level}" if layer.level else str(layer.variable)
            for layer in layers[:12]
        )
        raise Refused(
            "raster.bands",
            f"Source {self.source_id} {happened}: {shown}{', …' if len(layers) > 12 else ''}.",
            expected=f"layers chosen by `bands`, or at most {_MOST}",
            remedy="Name the layers you want under `bands` in `source.options`.",
            source_id=self.source_id,
            layers=len(layers),
        )

    def _made(
        self, found: Sniffed, address: str, named: list[tuple[Layer, str]]
    ) -> Iterator[tuple[Row, Problem | None]]:
        with _open(address, found.driver) as src:
            crs = self._crs(src)
            problem = _misplaced(src, crs)
            outline = _outline(src, crs)
            grid = {
                "width": src.width,
                "height": src.height,
                "source_crs": _crs_text(crs),
                "pixel_width": float(np.hypot(src.transform.a, src.transform.d)),
                "pixel_height": float(np.hypot(src.transform.b, src.transform.e)),
                "source_is_cog": found.is_cog,
                "geometry": outline,
            }
            for layer, name in named:
                if outline is None and problem is None:
                    self.warnings.add(
                        f"{name} has no footprint: its outline leaves the Earth, or goes round a"
                        " pole."
                    )
                _check_size(src, layer, self.source_id)
                row = grid | self._row(src, layer, crs, name)
                yield row, problem or _filled(row["bands"] or ())

    def _row(self, src: Dataset, layer: Layer, crs: RasterCrs, name: str) -> Row:
        bands = _write(src, layer, crs, name)
        with Path(name).open("rb") as made:
            digest = hashlib.file_digest(made, "sha256").hexdigest()
        alone = bands[0] if len(bands) == 1 else {}
        nodata = src.nodatavals[layer.indexes[0] - 1]
        return {
            "asset": name,
            **{
                k: getattr(layer, k)
                for k in (
                    "variable",
                    "level",
                    "unit",
                    "description",
                    "reference_time",
                    "valid_time",
                )
            },
            "band_count": len(bands),
            "dtype": _dtype(src, layer),
            "nodata": nodata if nodata is not None and np.isfinite(nodata) else None,
            **{k: alone.get(k) for k in ("min", "max", "mean", "sum", "valid_pixels")},
            "bands": bands if len(bands) > 1 else None,
            "sha256": digest,
        }

    def _crs(self, src: Dataset) -> RasterCrs:
        tags = {value.lower() for key, value in src.tags().items() if key.endswith("#units")}
        if src.crs and not src.transform.is_identity:
            return src.crs
        degrees = any(t.startswith("degrees_e") for t in tags) and any(
            t.startswith("degrees_n") for t in tags
        )
        # CF: such axes are longitude and latitude
        stated = "EPSG:4326" if degrees else self._options.crs
        if stated and not src.transform.is_identity:
            to_wgs84(stated)  # refuses what is no reference system
            return RasterCrs.from_user_input(stated)
        raise Refused(
            "raster.crs",
            f"Source {self.source_id} does not say where on Earth its pixels lie.",
            expected="a coordinate reference system and a transform in the file",
            remedy=(
                "Ask upstream for a georeferenced file; state `crs` in `source.options` when only"
                " that is missing."
            ),
            source_id=self.source_id,
        )


# -- what a file holds


def _open(path: str, driver: str) -> Dataset:
    return rasterio.open(path, driver=driver, sharing=False, **_OPEN[driver])


def _grib_layers(path: str, _: Options) -> list[Layer]:
    with _open(path, "GRIB") as src:
        return [_grib_layer(path, i, src.tags(i)) for i in src.indexes]


def _grib_layer(path: str, index: int, tags: dict[str, str]) -> Layer:
    return Layer(
        path,
        (index,),
        index,
        variable=tags.get("GRIB_ELEMENT"),
        level=tags.get("GRIB_SHORT_NAME"),
        unit=tags.get("GRIB_UNIT", "").strip("[]") or None,
        description=re.sub(r"\s*\[[^]]*\]$", "", tags.get("GRIB_COMMENT", "")) or None,
        reference_time=_epoch(tags.get("GRIB_REF_TIME")),
        valid_time=_epoch(tags.get("GRIB_VALID_TIME")),
    )


def _epoch(text: str | None) -> dt.datetime | None:
    match = re.match(r"-?\d+", text or "")
    return (
        dt.datetime(1970, 1, 1, tzinfo=dt.UTC) + dt.timedelta(seconds=int(match[0]))
        if match
        else None
    )


def _netcdf_layers(path: str, options: Options) -> list[Layer]:
    with _open(path, "netCDF") as src:
        found = [s.rpartition(":")[2] for s in src.subdatasets]
    names = [v for v in found if _VARIABLE.fullmatch(v)]
    layers: list[Layer] = []
    for address in [f'NETCDF:"{path}":{v}' for v in names] or [path]:
        with _open(address, "netCDF") as src:
            layers += [
                _netcdf_layer(address, i, len(layers) + n, src)
                for n, i in enumerate(src.indexes, 1)
            ]
    return layers


def _netcdf_layer(address: str, index: int, number: int, src: Dataset) -> Layer:
    whole, tags = src.tags(), src.tags(index)
    level, valid = [], None
    for key, value in tags.items():
        if key.startswith("NETCDF_DIM_"):
            name = key.removeprefix("NETCDF_DIM_")
            moment = _cf_time(value, whole.get(f"{name}#units", ""), whole.get(f"{name}#calendar"))
            valid = moment or valid
            if moment is None:
                level.append(f"{name}={value}")
    title = tags.get("long_name") or tags.get("standard_name")
    return Layer(
        address,
        (index,),
        number,
        tags.get("NETCDF_VARNAME"),
        " ".join(level) or None,
        tags.get("units") or None,
        title,
        None,
        valid,
    )


def _cf_time(value: str, units: str, calendar: str | None) -> dt.datetime | None:
    """A time as CF writes it: a number and "hours since 2017-02-28 18:00"; a calendar of its own
    has none.
    """
    match = _SINCE.fullmatch(units.strip())
    if not match or calendar not in _CALENDARS:
        return None
    try:
        start = dt.datetime.fromisoformat(match[2])
        start = start.replace(tzinfo=dt.UTC) if start.tzinfo is None else start
        return start + dt.timedelta(seconds=float(value) * _SECONDS[match[1].lower()])
    except (ValueError, OverflowError):
        return None


def _tiff_layers(path: str, options: Options) -> list[Layer]:
    with _open(path, "GTiff") as src:
        chosen = tuple(b for b in options.bands if isinstance(b, int)) or tuple(src.indexes)
        if len(chosen) < len(options.bands) or not set(chosen) <= set(src.indexes):
            raise Refused(
                "raster.bands",
                f"`bands` asks for {msgspec.to_builtins(options.bands)} of a GeoTIFF that has"
                f" {src.count}.",
                expected="numbers of bands it has",
                remedy="Correct `bands` in `source.options`.",
            )
        title = src.tags().get("TIFFTAG_IMAGEDESCRIPTION")
        return [Layer(path, chosen, 1, description=title, unit=src.units[chosen[0] - 1])]


def _fits(layer: Layer, wanted: int | str | Selector) -> bool:
    if isinstance(wanted, Selector):
        return layer.variable == wanted.element and wanted.level in (None, layer.level)
    return wanted in (layer.number, layer.variable)


def _names(stem: str, layers: list[Layer]) -> list[str]:
    """A safe file name for each layer; where two would be alike, all of those carry their
    number.
    """
    plain = [
        "-".join(part for part in (stem, layer.variable, layer.level) if part) for layer in layers
    ]
    plain = [re.sub(r"[^A-Za-z0-9._-]+", "_", name)[:180] for name in plain]
    alike = Counter(name.casefold() for name in plain)
    return [
        f"{name}-{layer.number}.tif" if alike[name.casefold()] > 1 else f"{name}.tif"
        for name, layer in zip(plain, layers, strict=True)
    ]


# -- writing


def _dtype(src: Dataset, layer: Layer) -> str:
    """GDAL unpacks GRIB in single precision and hands it on as double."""
    return "float32" if src.driver == "GRIB" else str(src.dtypes[layer.indexes[0] - 1])


def _check_size(src: Dataset, layer: Layer, where: str) -> None:
    held = {src.dtypes[i - 1] for i in layer.indexes}
    if len(held) != 1 or not re.fullmatch(r"u?int(8|16|32|64)|float(32|64)", min(held)):
        raise Refused(
            "raster.dtype",
            f"Source {where} holds {', '.join(sorted(held))}.",
            expected="bands of one type of real numbers",
            remedy="Choose bands of one type.",
            source_id=where,
        )
    if src.width * src.height * len(layer.indexes) > MAX_SAMPLES:
        too_large(where, f"an image of {src.width} x {src.height} x {len(layer.indexes)}")
    if max(h * w for h, w in src.block_shapes) * 8 > BLOCK_BYTES and src.driver != "GTiff":
        too_large(where, f"blocks of {src.block_shapes[0]}")


def _write(src: Dataset, layer: Layer, crs: RasterCrs, name: str) -> list[Row]:
    """Make the GeoTIFF `name` and say what each of its bands holds."""
    places = [i - 1 for i in layer.indexes]
    kind, nodata = _dtype(src, layer), src.nodatavals[places[0]]
    masked = (
        src.driver == "GTiff"
        and MaskFlags.per_dataset in src.mask_flag_enums[0]
        and MaskFlags.alpha not in src.mask_flag_enums[0]
    )
    tallies = [_Tally(src, i) for i in layer.indexes]
    profile = {
        "driver": "GTiff",
        "width": src.width,
        "height": src.height,
        "count": len(places),
        "dtype": kind,
        "crs": crs,
        "transform": src.transform,
        "nodata": nodata if nodata is None or in_dtype_range(nodata, kind) else None,
        "tiled": True,
        "blockxsize": _TILE,
        "blockysize": _TILE,
        "compress": "deflate",
        "zlevel": 1,
        "bigtiff": "IF_SAFER",
    }
    with rasterio.open(_SCRATCH, "w", **profile) as dst:
        dst.scales, dst.offsets = (
            tuple(src.scales[p] for p in places),
            tuple(src.offsets[p] for p in places),
        )
        dst.descriptions, dst.units = (
            tuple(src.descriptions[p] for p in places),
            tuple(src.units[p] for p in places),
        )
        dst.colorinterp = [src.colorinterp[p] for p in places]
        if dst.colorinterp[0] == ColorInterp.palette:
            dst.write_colormap(1, src.colormap(layer.indexes[0]))
        for window in _windows(src):
            data = src.read(layer.indexes, window=window)
            mask = src.read_masks(1, window=window) if masked else None
            for tally, band in zip(tallies, data, strict=True):
                tally.add(band, mask)
            dst.write(data.astype(kind, copy=False), window=window)
            if mask is not None:
                dst.write_mask(mask, window=window)
    _optimise(name, smooth=kind.startswith("float"))
    found = [tally.row() for tally in tallies]
    _read_back(name, found, masked=masked)
    return found


def _windows(src: Dataset) -> Iterator[Window]:
    for row, column in product(range(0, src.height, _TILE), range(0, src.width, _TILE)):
        yield Window(column, row, min(_TILE, src.width - column), min(_TILE, src.height - row))


def _read_back(name: str, written: list[Row], *, masked: bool) -> None:
    """Read the finished GeoTIFF as a reader would; what it holds must be what was written."""
    with _open(name, "GTiff") as made:
        tallies = [_Tally(made, i) for i in made.indexes]
        for window in _windows(made):
            mask = made.read_masks(1, window=window) if masked else None
            for tally, band in zip(tallies, made.read(window=window), strict=True):
                tally.add(band, mask)
    for tally, row in zip(tallies, written, strict=True):
        if any(tally.row().get(k) != row.get(k) for k in ("valid_pixels", "min", "max")):
            raise Refused(
                "raster.unreadable",
                f"Band {row['band']} of {name} cannot be read back as it was written.",
                expected="the pixels that were written, as GDAL reads them",
                remedy=(
                    "Nothing is published from it. Check the disk and the memory, then run again;"
                    " report it if it stays so."
                ),
            )


def _optimise(name: str, *, smooth: bool) -> None:
    """The scratch file as a Cloud Optimised GeoTIFF: the same bytes every time, so one thread and
    no LERC.
    """
    rasterio.shutil.copy(
        _SCRATCH,
        name,
        driver="COG",
        BLOCKSIZE=_TILE,
        COMPRESS="DEFLATE",
        PREDICTOR="YES",
        OVERVIEWS="IGNORE_EXISTING",
        # the mean of two classes is no class
        OVERVIEW_RESAMPLING="AVERAGE" if smooth else "NEAREST",
        NUM_THREADS="1",
        BIGTIFF="IF_SAFER",
    )
    Path(_SCRATCH).unlink()


class _Tally:
    """Figures of one band, in its unit."""

    def __init__(self, src: Dataset, index: int) -> None:
        self._index, self._name = index, src.descriptions[index - 1]
        self._nodata, self._scale, self._offset = (
            src.nodatavals[index - 1],
            src.scales[index - 1],
            src.offsets[index - 1],
        )
        self._count, self._sum, self._low, self._high = 0, 0.0, np.inf, -np.inf

    def add(self, band: Array, mask: Array | None) -> None:
        """Take in one window; what is missing does not count."""
        good = np.isfinite(band)
        if self._nodata is not None:
            good &= band != self._nodata
        if mask is not None:
            good &= mask != 0
        held = band[good]
        if held.size:
            values = held.astype(np.float64) * self._scale + self._offset
            self._count += int(values.size)
            self._sum += float(values.sum())
            self._low, self._high = (
                min(self._low, float(values.min())),
                max(self._high, float(values.max())),
            )

    def row(self) -> Row:
        """The figures; sums carry twelve digits, which do not depend on the order processors add
        in.
        """
        total = float(f"{self._sum:.12g}")
        figures: Row = (
            {
                "min": self._low,
                "max": self._high,
                "mean": float(f"{self._sum / self._count:.12g}"),
                "sum": total,
            }
            if self._count
            else {}
        )
        return {
            "band": self._index,
            "description": self._name,
            "valid_pixels": self._count,
            **figures,
        }


# -- where it lies


def _crs_text(crs: RasterCrs) -> str:
    code = crs.to_epsg()
    return f"EPSG:{code}" if code else str(crs.to_wkt())


def _degrees(crs: RasterCrs, x: Floats, y: Floats) -> tuple[Floats, Floats]:
    """Longitude and latitude; on a figure of the Earth without a name (weather models, satellites)
    its own are taken for WGS 84.
    """
    text = _crs_text(crs)
    system = CRS.from_user_input(text)
    if system.is_geographic:
        # grids from 0 to 360, and half a pixel beyond the pole
        x, y = (x + 180) % 360 - 180, np.clip(y, -90, 90)
    base = system.geodetic_crs
    if (
        base is not None
        and base.datum is not None
        and re.match(r"unnamed|unknown", base.datum.name, re.IGNORECASE)
    ):
        return (
            (x, y)
            if system.is_geographic
            else Transformer.from_crs(system, base, always_xy=True).transform(x, y)
        )
    return to_wgs84(text, (float(x.min()), float(y.min()), float(x.max()), float(y.max())))(x, y)


def _filled(bands: Sequence[Row]) -> Problem | None:
    """The table of sentinels for images of several bands, whose figures stand in one column
    together.
    """
    for band in bands:
        if odd := next((band[k] for k in ("min", "max") if band.get(k) in _FILLER), None):
            return (
                "value.sentinel",
                (
                    f"band {band['band']}: {odd:g} is what stands where there is no value, and the"
                    " file does not declare it"
                ),
            )
    return None


def _misplaced(src: Dataset, crs: RasterCrs) -> Problem | None:
    """Pixels that count in other units than their reference system does: degrees on a map of
    metres, or metres on the globe.
    """
    system, (left, bottom, right, top) = CRS.from_user_input(_crs_text(crs)), src.bounds
    if system.is_geographic:
        # half a pixel may lie beyond the pole
        wide, high = (abs(right - left) / src.width, abs(top - bottom) / src.height)
        fine = (
            max(map(abs, (left, right))) <= 540 + wide
            and max(map(abs, (bottom, top))) <= 90 + high
            and abs(right - left) <= 360 + 2 * wide
        )
    else:
        fine = not system.is_projected or not bool(
            (~fits(_crs_text(crs), np.array([left, right]), np.array([bottom, top]))).all()
        )
    if fine:
        return None
    shown = f"{left:g}..{right:g}, {bottom:g}..{top:g}"
    return (
        "crs.range",
        (
            f"its pixels lie at {shown}, which cannot be the"
            f" {'degrees' if system.is_geographic else 'lengths'} of its reference system"
        ),
    )


def _outline(src: Dataset, crs: RasterCrs) -> Json | None:
    """The footprint as GeoJSON in -180..180, cut at the antimeridian; None where it leaves the
    Earth or goes round a pole.
    """
    steps = np.linspace(0, 1, 22)[:-1]
    across = np.concatenate([steps, np.ones(21), 1 - steps, np.zeros(21), [0]]) * src.width
    down = np.concatenate([np.zeros(21), steps, np.ones(21), 1 - steps, [0]]) * src.height
    a, b, c, d, e, f = src.transform[:6]
    lon, lat = _degrees(crs, a * across + b * down + c, d * across + e * down + f)
    if not (np.isfinite(lon).all() and np.isfinite(lat).all()):
        return None
    lon = np.unwrap(lon, period=360)
    if abs(lon[-1] - lon[0]) > 1:
        return None
    shape = shapely.Polygon(np.round(np.column_stack([lon, lat]), 7))
    parts = [
        shapely.transform(
            shape.intersection(shapely.box(turn - 180, -90, turn + 180, 90)),
            lambda c, t=turn: c - [t, 0],
        )
        for turn in (-360, 0, 360)
    ]
    outline: Json = shapely.geometry.mapping(shapely.union_all([p for p in parts if p.area]))
    return outline
