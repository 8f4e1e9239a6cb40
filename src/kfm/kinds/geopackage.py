"""A layer of a GeoPackage: read as the SQLite file it is, with nothing in it executed, its shapes
brought to WGS 84.
"""

import datetime as dt
import sqlite3
import struct
from collections.abc import Iterator
from contextlib import closing
from functools import lru_cache, partial
from pathlib import Path
from typing import Annotated, Any, NamedTuple, NoReturn
from urllib.parse import quote

import msgspec

from kfm.connectors.base import MOST_COLUMNS, InputFile, Refused, refuse_record
from kfm.connectors.kind import RowReader, in_utc, options_of, zone_of
from kfm.connectors.operations import Read
from kfm.connectors.read.beginning import LOOKED_AT, refuse_beginning
from kfm.connectors.read.crs import Bounds, ToWgs84, to_wgs84
from kfm.connectors.read.geometry import Problem
from kfm.connectors.read.rows import Loose, Row
from kfm.connectors.read.shapes import place_columns, placed, shapes_of
from kfm.connectors.table.names import check_names
from kfm.model import Column

__all__ = ["Options", "columns", "readers"]

_MAGIC = b"SQLite format 3\x00"
_ROWS, _SHAPES = 4096, 512  # read at a time; a shape may be long
_LISTED = 1000  # layers
_ENVELOPE = {0: 0, 1: 32, 2: 48, 3: 48, 4: 64}  # bytes before the WKB, by a mark in the flags
_BROKEN = (sqlite3.Error, UnicodeDecodeError)  # the latter where an error quotes what is broken
_READS = (sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ)
# how declared types begin; a length may follow
_TYPES = (
    ("BOOLEAN", "boolean"), ("TINYINT", "integer"), ("SMALLINT", "integer"), ("MEDIUMINT", "integer"), ("BIGINT", "integer"),
    ("INT", "integer"), ("FLOAT", "number"), ("DOUBLE", "number"), ("REAL", "number"), ("NUMERIC", "number"), ("DECIMAL", "number"),
    ("DATETIME", "timestamp"), ("TIMESTAMP", "timestamp"), ("DATE", "date"), ("TEXT", "string"), ("VARCHAR", "string"),
    ("CHAR", "string"), ("JSON", "string"), ("CLOB", "string"),
)  # fmt: skip


class Options(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What may be registered for a GeoPackage."""

    layer: Annotated[str, msgspec.Meta(min_length=1)] | None = None  # when there are several
    columns: tuple[
        Annotated[str, msgspec.Meta(min_length=1)], ...
    ] = ()  # that are wanted; empty: all
    time_zone: str | None = None  # of times that are stored without one


def columns(job: Read) -> tuple[Column, ...]:
    """The columns of the table, then the shape with what it was before."""
    return _opened(job.inputs[0], msgspec.json.encode(options_of(job.options, Options))).columns


def readers(job: Read) -> list["_Reader"]:
    """One reader per file."""
    options = msgspec.json.encode(options_of(job.options, Options))
    return [_Reader(source, _opened(source, options)) for source in job.inputs]


def _refuse(
    rule: str,
    why: str,
    expected: str,
    remedy: str = "Look at the captured file, and report it upstream.",
) -> NoReturn:
    raise Refused(
        f"geopackage.{rule}",
        f"The GeoPackage was not taken: {why}.",
        expected=expected,
        remedy=remedy,
    )


class _Layer(NamedTuple):
    name: str
    kind: str  # features or attributes
    bounds: Bounds | None


class _Shapes(NamedTuple):
    """The column of shapes, and the system that each of them says it is in."""

    column: str
    srs: int
    to: ToWgs84
    points: bool


class _Opened:
    """What a file says of itself and of the one layer that is wanted."""

    def __init__(self, source: InputFile, options: Options) -> None:
        self.path, self.source_id = Path(source.path), source.source_id
        self._check_beginning(source)
        self.zone = zone_of(options.time_zone)
        with closing(self.connect()) as db:
            try:
                self._look(db, options)
            except _BROKEN as error:
                self.damaged(error)

    def _check_beginning(self, source: InputFile) -> None:
        with self.path.open("rb") as file:
            head = file.read(LOOKED_AT)
        if not head.startswith(_MAGIC) or len(head) < 100:
            refuse_beginning(head, source, "a GeoPackage")
        size = struct.unpack(">H", head[16:18])[0]
        pages, counter, stamp = (struct.unpack(">I", head[at : at + 4])[0] for at in (28, 24, 92))
        stated = pages * (65536 if size == 1 else size)
        if counter == stamp and self.path.stat().st_size < stated:  # else the count may be old
            raise Refused.cut(
                source.source_id, f"it is {self.path.stat().st_size:,} of {stated:,} bytes long"
            )

    def connect(self) -> sqlite3.Connection:
        """The file, of which nothing can be done but read tables."""
        # A connection that can only read the file as it is: the child allows no other.
        db = sqlite3.connect(
            f"file:{quote(str(self.path.absolute()))}?mode=ro&immutable=1",
            uri=True,
            isolation_level=None,
        )
        db.text_factory = lambda data: data.decode("utf-8", "surrogateescape")
        for setting in ("trusted_schema=OFF", "cell_size_check=ON", "mmap_size=0"):
            db.execute(f"PRAGMA {setting}")
        return db

    def only_reads(self, db: sqlite3.Connection) -> None:
        """Functions of SQL could do anything; nothing we ask needs one."""
        db.set_authorizer(
            lambda action, *_: sqlite3.SQLITE_OK if action in _READS else sqlite3.SQLITE_DENY
        )

    def damaged(self, error: Exception) -> NoReturn:
        _refuse("damaged", f"it cannot be read: {str(error)[:200]}", "a whole and undamaged file")

    def _look(self, db: sqlite3.Connection, options: Options) -> None:
        plain = {
            name
            for name, sql in db.execute("SELECT name, sql FROM sqlite_master WHERE type = 'table'")
            if isinstance(name, str) and not str(sql).upper().startswith("CREATE VIRTUAL")
        }
        if missing := next(
            (n for n in ("gpkg_contents", "gpkg_spatial_ref_sys") if n not in plain), None
        ):
            _refuse(
                "format",
                f"it has no table {missing}",
                "a GeoPackage",
                "If it is another SQLite file, export the table that is wanted.",
            )
        layer = self._layer(db, options.layer, plain)
        self.table = layer.name
        fields = [
            (str(name), str(kind).upper())
            for name, kind in db.execute(
                "SELECT name, type FROM pragma_table_info(?)", (layer.name,)
            )
        ]
        self.only_reads(db)
        self.shapes = self._shapes(db, layer) if "gpkg_geometry_columns" in plain else None
        shape = self.shapes.column if self.shapes is not None else ""
        names = [n for n, _ in fields]
        if unknown := next((n for n in options.columns if n not in names), None):
            _refuse(
                "columns",
                f"{layer.name} has no column {unknown!r}",
                f"some of {', '.join(names[:20])}",
                "Correct `columns` in source.options.",
            )
        wanted = options.columns or tuple(names)
        self.shapes = self.shapes if shape in wanted else None
        self.fields = {n: _type_of(n, kind) for n, kind in fields if n in wanted and n != shape}
        found = [Column(name=n, type=t) for n, t in self.fields.items()]  # type: ignore[arg-type]
        if self.shapes is not None:
            found += place_columns(self.shapes.to, points=self.shapes.points)
        self.columns = tuple(found)
        self._check_names()

    def _check_names(self) -> None:
        made = [c.name for c in self.columns]
        if len(made) > MOST_COLUMNS:
            _refuse("columns", f"it has {len(made):,} columns", f"at most {MOST_COLUMNS:,}")
        if twice := next((n for n in made if made.count(n) > 1), None):
            _refuse(
                "columns",
                f"it has a column {twice!r}, as kfm would add one",
                "another name",
                "Leave it out with `columns` in source.options.",
            )
        check_names(made)

    def _layer(self, db: sqlite3.Connection, wanted: str | None, plain: set[str]) -> _Layer:
        asked = "SELECT table_name, data_type, min_x, min_y, max_x, max_y FROM gpkg_contents"
        listed = [
            _Layer(str(name), str(kind), _bounds(box))
            for name, kind, *box in db.execute(asked).fetchmany(_LISTED)
            if kind in ("features", "attributes")
        ]
        fitting = [
            layer
            for layer in listed
            if layer.name == wanted or (wanted is None and layer.kind == "features")
        ]
        fitting = fitting or ([] if wanted else listed)
        if len(fitting) != 1:
            there = ", ".join(repr(layer.name) for layer in listed[:20]) or "none"
            _refuse(
                "layer",
                f"one layer is wanted, there are: {there}",
                "exactly one, or its name",
                "Name it with `layer` in source.options.",
            )
        if fitting[0].name not in plain:
            _refuse(
                "layer",
                f"{fitting[0].name!r} is a view or made by code",
                "a table",
                "Ask upstream for a table, or take another layer.",
            )
        return fitting[0]

    def _shapes(self, db: sqlite3.Connection, layer: _Layer) -> _Shapes | None:
        found = db.execute(
            "SELECT column_name, geometry_type_name, srs_id FROM gpkg_geometry_columns"
            " WHERE table_name = ?",
            (layer.name,),
        ).fetchmany(2)
        if not found:
            return None
        column, kind, srs = found[0]
        row = db.execute(
            "SELECT organization, organization_coordsys_id, definition FROM gpkg_spatial_ref_sys"
            " WHERE srs_id = ?",
            (srs,),
        ).fetchone()
        if len(found) > 1 or row is None or not isinstance(srs, int):
            _refuse(
                "crs",
                "it states no one reference system for its shapes",
                "one system for one layer",
            )
        by, code, text = row
        known = isinstance(by, str) and by.upper() in ("EPSG", "ESRI", "OGC") and code
        to = to_wgs84(f"{by}:{code}" if known else str(text), layer.bounds)
        return _Shapes(str(column), srs, to, str(kind).upper() == "POINT")


@lru_cache(maxsize=8)
def _opened(source: InputFile, options: bytes) -> _Opened:
    """Looked at once, for the columns and for the rows."""
    return _Opened(source, msgspec.json.decode(options, type=Options))


def _bounds(box: list[Any]) -> Bounds | None:
    if not all(isinstance(b, int | float) and abs(b) < 1e12 for b in box):
        return None
    west, south, east, north = map(float, box)
    return west, south, east, north


def _type_of(name: str, declared: str) -> str:
    for begins, kind in _TYPES:
        if declared.startswith(begins):
            return kind
    if declared.startswith("BLOB"):
        _refuse(
            "columns",
            f"the column {name!r} holds bytes, which no table can show",
            "text, numbers, truths, times and shapes",
            "Name the columns that are wanted with `columns` in source.options.",
        )
    return "string"


class _Reader(RowReader):
    """The records of one layer; the line of a record is its number."""

    def __init__(self, source: InputFile, opened: _Opened) -> None:
        super().__init__(source)
        self._opened = opened

    def rows(self) -> Iterator[Loose]:
        opened, at = self._opened, 0
        names = [*opened.fields, *([opened.shapes.column] if opened.shapes is not None else [])]
        asked = f"SELECT {', '.join(map(_quoted, names))} FROM {_quoted(opened.table)}"
        try:
            with closing(opened.connect()) as db:
                opened.only_reads(db)
                db.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, self.record_limit)
                cursor = db.execute(asked)
                while chunk := cursor.fetchmany(_SHAPES if opened.shapes is not None else _ROWS):
                    yield from self._chunk(chunk, at)
                    at += len(chunk)
        except _BROKEN as error:
            if getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_TOOBIG:
                refuse_record(self.source_id, at + 1, self.record_limit)
            opened.damaged(error)

    def _chunk(self, chunk: list[Any], at: int) -> Iterator[Loose]:
        fields, shapes = self._opened.fields, self._opened.shapes
        places = self._places([row[-1] for row in chunk], shapes) if shapes is not None else None
        for i, values in enumerate(chunk):
            raw = partial(_shown, list(fields), values)
            row: Row = {}
            problem = places[i][1] if places is not None else None
            for (name, kind), value in zip(fields.items(), values):
                row[name], wrong = self._value(name, kind, value)
                problem = problem or wrong
            row |= places[i][0] if places is not None else {}
            if problem is not None:
                yield Loose(at + i + 1, raw, None, problem, row)
            else:
                yield Loose(at + i + 1, raw, row)

    def _value(self, name: str, kind: str, value: Any) -> tuple[Any, Problem | None]:
        """A value of SQLite, which keeps whatever it is given."""
        if isinstance(value, bytes):
            return None, ("type", f"{name}: bytes, where {kind} is declared")
        if isinstance(value, str) and not value.isascii():
            try:
                value.encode()
            except UnicodeEncodeError:
                return None, ("encoding", f"{name}: the text is not UTF-8")
        if kind == "boolean" and value in (0, 1):
            return bool(value), None
        if kind == "timestamp" and isinstance(value, str):
            return self._time(name, value)
        if kind == "timestamp" and isinstance(value, int):
            return None, ("type", f"{name}: {value} is a number, not a time")
        return value, None

    def _time(self, name: str, text: str) -> tuple[str | None, Problem | None]:
        try:
            moment = dt.datetime.fromisoformat(text)
        except ValueError:
            return text, None  # typing it says what is wrong
        if moment.tzinfo is not None:
            return text, None
        moved = in_utc(moment, self._opened.zone)
        why = "has no time zone; state `time_zone` in source.options"
        if self._opened.zone is not None:
            why = "is an hour that is not certain"
        return moved, None if moved is not None else ("type", f"{name}: {text[:40]} {why}")

    def _places(self, blobs: list[Any], shapes: _Shapes) -> list[tuple[Row, Problem | None]]:
        problems: dict[int, Problem] = {}
        wkb: list[bytes | None] = []
        for i, blob in enumerate(blobs):
            found = _wkb(blob, shapes.srs)
            if isinstance(found, tuple):
                problems[i] = found
            wkb.append(None if isinstance(found, tuple) else found)
        read, wrong = shapes_of(wkb)
        made = placed(read, shapes.to, self.source_id, self.warnings, points=shapes.points)
        for i, (_, lost) in enumerate(made):
            if i in wrong:
                problems.setdefault(
                    i, ("geometry", f"{shapes.column}: a shape that cannot be read")
                )
            elif lost:
                problems.setdefault(i, ("crs.range", f"a position cannot be in {shapes.to.name}"))
        return [(place, problems.get(i)) for i, (place, _) in enumerate(made)]


def _wkb(blob: Any, srs: int) -> bytes | Problem | None:
    """The shape behind the header of a GeoPackage, or what is wrong; None: there is none."""
    if blob is None:
        return None
    if not isinstance(blob, bytes) or blob[:2] != b"GP" or len(blob) < 8:
        return "geometry", "a shape does not begin as those of a GeoPackage do"
    flags = blob[3]
    said = struct.unpack("<i" if flags & 1 else ">i", blob[4:8])[0]
    if said != srs:
        return "crs.contradiction", f"a shape is in the system {said}, its layer in {srs}"
    if flags & 0x20 or (flags >> 1 & 7) not in _ENVELOPE:
        return "geometry", "a shape is of a kind that is not known"
    if flags & 0x10:
        return None
    return blob[8 + _ENVELOPE[flags >> 1 & 7] :]


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _shown(names: list[str], values: Any) -> str:
    row = {n: v if not isinstance(v, bytes) else f"{len(v)} bytes" for n, v in zip(names, values)}
    try:
        return msgspec.json.encode(row).decode()
    except UnicodeEncodeError:
        return repr(row)
