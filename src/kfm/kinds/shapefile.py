"""A zipped shapefile: unpacked with care, its shapes brought to WGS 84, its codes left as text."""

import codecs
import re
import shutil
import struct
import tempfile
import weakref
from collections.abc import Iterator
from functools import lru_cache, partial
from itertools import chain
from pathlib import Path
from typing import Annotated, Any, NoReturn

import msgspec
import numpy as np
import pyogrio.raw
import shapely
from pyogrio.errors import DataSourceError, FeatureError

from kfm.connectors.base import DECODED, InputFile, Refused, refuse_record
from kfm.connectors.kind import RowReader, options_of
from kfm.connectors.mapping import column_names
from kfm.connectors.operations import Read
from kfm.connectors.read.archive import MAX_BYTES, unpack
from kfm.connectors.read.crs import Bounds, ToWgs84, to_wgs84
from kfm.connectors.read.geometry import Problem
from kfm.connectors.read.rows import Loose, Row
from kfm.connectors.read.shapes import place_columns, placed
from kfm.model import Column

__all__ = ["Options", "columns", "readers"]

_NEEDED = (".shp", ".shx", ".dbf", ".prj")
_CRS = "crs.wkt"  # the .prj is read by us: GDAL stumbles over some that are none
_ROWS = 1024  # at a time, and as many bytes of shapes at most, for they can be large
_AT_ONCE = 4 << 20
_GROWS = 8  # times that a shape takes in memory, on its way to GeoJSON and back
_POINT = (1, 11, 21)  # shape types of single points: plain, with Z, with M
_TYPES = {
    "OFTString": "string",
    "OFTInteger": "integer",
    "OFTInteger64": "integer",
    "OFTReal": "number",
    "OFTDate": "date",
}
_STATE = "State `encoding` under `source` in the registry entry."
_LANGUAGE = {0x01: "cp437", 0x02: "cp850", 0x03: "cp1252", 0x57: "cp1252"}  # byte 29 of a .dbf


class Options(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What may be registered for a shapefile."""

    layer: str | None = None  # the name without .shp, when the archive holds several
    # original column: the value, or values, of the records wanted
    where: dict[str, str | tuple[str, ...]] = {}
    max_bytes: Annotated[int, msgspec.Meta(ge=1)] = MAX_BYTES  # of the archive, unpacked


def columns(job: Read) -> tuple[Column, ...]:
    """The columns of the table, then the shape with what it was before."""
    return _opened(job.inputs[0], options_of(job.options, Options), job.encoding).columns


def readers(job: Read) -> list["_Reader"]:
    """One reader per archive."""
    options = options_of(job.options, Options)
    return [
        _Reader(source, _opened(source, options, job.encoding), options) for source in job.inputs
    ]


def _refuse(
    rule: str,
    why: str,
    expected: str,
    remedy: str = "Look at the captured archive, and report it upstream.",
) -> NoReturn:
    raise Refused(
        f"shapefile.{rule}",
        f"The shapefile was not taken: {why}.",
        expected=expected,
        remedy=remedy,
    )


class _Opened:
    """A shapefile in a folder of its own, with nothing else beside it."""

    def __init__(self, source: InputFile, options: Options, encoding: str | None) -> None:
        # the child's working folder is its scratch
        folder = Path(tempfile.mkdtemp(prefix=".unpacked-", dir=Path.cwd()))
        weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
        members = unpack(Path(source.path), folder / "members", max_bytes=options.max_bytes)
        self.path = _alone(members, folder / "layer", options.layer)
        self.shape_types, bounds = _check(self.path)
        self.deleted = _deleted(self.path, len(self.shape_types))
        self.encoding = _codec(encoding or _encoding(self.path))
        self.to: ToWgs84 = to_wgs84(
            _head(self.path.with_name(_CRS), 1 << 17).decode("utf-8", "replace"), bounds
        )
        self.is_points = set(np.unique(self.shape_types).tolist()) <= {0, *_POINT}
        self.columns = self._columns()

    def _columns(self) -> tuple[Column, ...]:
        try:
            about = pyogrio.read_info(self.path, encoding=self.encoding)
        except (DataSourceError, UnicodeDecodeError) as error:
            _refuse("damaged", f"it cannot be opened: {error}", "a table that can be read")
        if about["driver"] != "ESRI Shapefile":
            _refuse("damaged", f"it is read as {about['driver']}", "an ESRI shapefile")
        self.names = column_names(about["fields"].tolist())
        kinds = [_TYPES.get(t, "string") for t in about["ogr_types"]]
        found = [Column(name=n, type=k) for n, k in zip(self.names.values(), kinds)]  # type: ignore[arg-type]
        return (*found, *place_columns(self.to, points=self.is_points))


@lru_cache(maxsize=8)
def _cached(source: InputFile, options: bytes, encoding: str | None, _: Path) -> _Opened:
    return _Opened(source, msgspec.json.decode(options, type=Options), encoding)


def _opened(source: InputFile, options: Options, encoding: str | None) -> _Opened:
    """Unpacked once, for the columns and for the rows."""
    return _cached(source, msgspec.json.encode(options, order="sorted"), encoding, Path.cwd())


def _alone(members: list[Path], own: Path, layer: str | None) -> Path:
    """The parts of the one shapefile wanted, under a name of our own: GDAL looks at whatever lies
    beside it.
    """
    # what macOS notes of each file, under the same name
    members = [m for m in members if not m.name.startswith("._")]
    shapes = sorted(
        m for m in members if m.suffix.lower() == ".shp" and (layer is None or m.stem == layer)
    )
    if len(shapes) != 1:
        names = ", ".join(sorted(m.name for m in members if m.suffix.lower() == ".shp")) or "none"
        _refuse(
            "layer",
            f"one .shp is wanted, there are: {names}",
            "exactly one",
            "Name it with `layer` in source.options.",
        )
    stem = shapes[0].with_suffix("").as_posix()
    parts = {m.suffix.lower(): m for m in members if m.with_suffix("").as_posix() == stem}
    if missing := [s for s in _NEEDED if s not in parts]:
        _refuse(
            "member",
            f"{shapes[0].stem} has no {', '.join(missing)}",
            f"{', '.join(_NEEDED)} of the same name",
        )
    own.mkdir()
    for suffix in (*_NEEDED, ".cpg"):
        if suffix in parts:
            parts[suffix].rename(own / (_CRS if suffix == ".prj" else f"layer{suffix}"))
    return own / "layer.shp"


def _check(path: Path) -> tuple[Any, Bounds | None]:
    """(the type of each shape, the bounds of all); the parts must be whole and agree on how many
    records there are.
    """
    sizes = {s: path.with_suffix(s).stat().st_size for s in (".shp", ".shx", ".dbf")}
    for suffix in (".shp", ".shx"):
        head = _head(path.with_suffix(suffix), 100)
        if len(head) < 100 or struct.unpack(">i", head[:4])[0] != 9994:
            _refuse("damaged", f"the {suffix} does not begin as one", "the number 9994")
        if 2 * struct.unpack(">i", head[24:28])[0] != sizes[suffix]:
            _refuse(
                "damaged",
                f"the {suffix} is {sizes[suffix]} bytes long and says otherwise",
                "whole files",
            )
    head = _head(path.with_suffix(".dbf"), 32)
    records, first, width = struct.unpack("<IHH", head[4:12]) if len(head) == 32 else (0, 0, 0)
    if sizes[".shx"] != 100 + 8 * records or sizes[".dbf"] < first + records * width or width < 1:
        _refuse(
            "damaged",
            f"{(sizes['.shx'] - 100) // 8} shapes and {records} records do not fit together",
            "a record for each shape",
        )
    if not records:
        _refuse("empty", "it has no records", "at least one record")
    shapes, types = np.memmap(path, np.uint8, "r"), np.empty(records, np.uint8)
    index = np.memmap(path.with_suffix(".shx"), ">i4", "r", offset=100)[0::2]
    for at in range(0, records, 1 << 20):  # a block at a time: there may be millions
        starts = index[at : at + (1 << 20)].astype(np.int64) * 2
        if starts.min() < 100 or starts.max() + 12 > sizes[".shp"]:
            _refuse("damaged", "its index points outside the shapes", "an index of the shapes")
        types[at : at + len(starts)] = shapes[starts + 8]
    bounds = struct.unpack("<4d", bytes(shapes[36:68]))
    return types, bounds if np.isfinite(bounds).all() else None


def _deleted(path: Path, records: int) -> set[int]:
    """The records that are marked as deleted; GDAL passes over them."""
    table = path.with_suffix(".dbf")
    first, width = struct.unpack("<HH", _head(table, 12)[8:12])
    marks = np.memmap(table, np.uint8, "r", first, (records, width))[:, 0]
    return set(np.flatnonzero(marks == ord("*")).tolist())


def _head(path: Path, size: int) -> bytes:
    with path.open("rb") as file:
        return file.read(size)


def _encoding(path: Path) -> str:
    """What the .cpg or the .dbf itself says of its text; UTF-8, strictly, where neither says
    anything.
    """
    sheet = path.with_suffix(".cpg")
    said = (
        sheet.read_bytes()[:64].decode("ascii", "replace").strip().lower() if sheet.exists() else ""
    )
    if not said:
        return _LANGUAGE.get(_head(path.with_suffix(".dbf"), 32)[29], "utf-8")
    if found := re.fullmatch(r"(?:iso)?[ _-]?8859[ _-]?(\d{1,2})", said):
        return f"iso8859-{found[1]}"
    if found := re.fullmatch(r"(?:ansi|cp|windows|oem|ibm)?[ _-]?(\d{3,4})", said):
        return f"cp{found[1]}"
    return "utf-8" if said == "65001" else said


def _codec(name: str) -> str:
    """The name GDAL knows it by too: no nicknames such as latin-1."""
    try:
        return codecs.lookup(name).name
    except (LookupError, ValueError):  # a name with a NUL in it is the latter
        _refuse(
            "encoding", f"the code page {name!r} is not known", "a code page that is known", _STATE
        )


class _Reader(RowReader):
    """The records of one shapefile."""

    def __init__(self, source: InputFile, opened: _Opened, options: Options) -> None:
        super().__init__(source)
        self._opened = opened
        self._where = {k: {v} if isinstance(v, str) else set(v) for k, v in options.where.items()}
        if unknown := [k for k in self._where if k not in opened.names]:
            _refuse(
                "where",
                f"it has no column {unknown[0]!r}",
                f"one of {', '.join(opened.names)}",
                "Correct `where` in source.options.",
            )

    def rows(self) -> Iterator[Loose]:
        opened = self._opened
        try:
            how = {
                "encoding": opened.encoding,
                "use_pyarrow": True,
                "batch_size": self._at_once(),
                "return_fids": True,
            }
            with pyogrio.raw.open_arrow(opened.path, **how) as (_, batches):
                yield from self._all(row for batch in batches for row in self._batch(batch))
        except (DataSourceError, FeatureError, shapely.GEOSException) as error:
            _refuse("damaged", f"it cannot be read: {error}", "shapes and records that can be read")
        except UnicodeDecodeError as error:
            _refuse(
                "encoding",
                f"its text is not {opened.encoding}: {error.reason}",
                "text in its code page",
                _STATE,
            )

    def _at_once(self) -> int:
        """How many records are read together, by the longest shape; one that is too long is
        refused.
        """
        lengths = np.memmap(self._opened.path.with_suffix(".shx"), ">i4", "r", offset=100)[1::2]
        at, longest = int(lengths.argmax()), 2 * int(lengths.max(initial=0))
        if longest > self.record_limit or longest * _GROWS > DECODED * self.record_limit:
            refuse_record(self.source_id, at + 1, self.record_limit, decoded=longest * _GROWS)
        return max(1, min(_ROWS, _AT_ONCE // max(1, longest)))

    def _all(self, rows: Iterator[Loose]) -> Iterator[Loose]:
        """The rows, and those that upstream marked as deleted where they stood: every record is in
        the books.
        """
        following = 1
        for row in chain(rows, [None]):
            for line in range(
                following, row.line if row is not None else len(self._opened.shape_types) + 1
            ):
                if line - 1 not in self._opened.deleted:
                    _refuse(
                        "damaged",
                        f"record {line} cannot be read",
                        "every record of the table, or a mark that it is deleted",
                    )
                yield Loose(
                    line,
                    partial(str, f"record {line}"),
                    None,
                    ("drop:deleted-upstream", "marked as deleted in the .dbf"),
                )
            if row is not None:
                following = row.line + 1
                yield row

    def _batch(self, batch: Any) -> Iterator[Loose]:
        # the id stands first, the shape last
        fids, *fields, wkb = (column.to_pylist() for column in batch.columns)
        places = self._places(shapely.from_wkb(np.array(wkb, object)), fids)
        for at, (fid, values, (place, problem)) in enumerate(zip(fids, zip(*fields), places)):
            record = dict(zip(self._opened.names, values))
            raw = partial(_text, record, wkb[at])
            if other := next(
                (k for k, wanted in self._where.items() if str(record[k]) not in wanted), None
            ):
                yield Loose(fid + 1, raw, None, ("drop:where", f"{other} is {record[other]!r}"))
            elif problem is not None:
                yield Loose(
                    fid + 1, raw, None, problem, dict(zip(self._opened.names.values(), values))
                )
            else:
                yield Loose(fid + 1, raw, dict(zip(self._opened.names.values(), values)) | place)

    def _places(self, shapes: Any, fids: list[int]) -> list[tuple[Row, Problem | None]]:
        """The columns that say where each record is."""
        opened = self._opened
        found = placed(shapes, opened.to, self.source_id, self.warnings, points=opened.is_points)
        return [
            (place, self._problem(place["geometry"], lost, fid))
            for (place, lost), fid in zip(found, fids)
        ]

    def _problem(self, text: str | None, lost: bool, fid: int) -> Problem | None:
        if lost:
            return ("crs.range", f"a position cannot be in {self._opened.to.name}")
        if text is None and self._opened.shape_types[fid] != 0:
            return (
                "geometry",
                f"a shape of type {self._opened.shape_types[fid]} that cannot be read",
            )
        if text is None:
            self.warnings.add(f"Some records of {self.source_id} have no shape.")
        return None


def _text(record: Row, wkb: bytes | None) -> str:
    shown = msgspec.json.encode(record).decode()
    return shown if wkb is None else f'{shown[:-1]},"shape":"{len(wkb)} bytes"}}'
