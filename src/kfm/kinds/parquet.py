"""A Parquet file as a source: its types are kept, what they cannot hold is told, and shapes of
GeoParquet are brought to WGS 84.
"""

import os
from collections.abc import Iterator, Mapping
from functools import lru_cache, partial
from pathlib import Path
from typing import Annotated, Any, NoReturn

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyproj import CRS
from pyproj.exceptions import CRSError

from kfm.connectors.base import MOST_COLUMNS, RECORD_BYTES, InputFile, Refused
from kfm.connectors.kind import in_utc, options_of, zone_of
from kfm.connectors.operations import Read
from kfm.connectors.read.beginning import LOOKED_AT, refuse_beginning
from kfm.connectors.read.crs import Bounds, ToWgs84, to_wgs84
from kfm.connectors.read.geometry import Problem
from kfm.connectors.read.rows import Batch, Loose
from kfm.connectors.read.shapes import place_columns, placed, shapes_of
from kfm.connectors.table.names import check_names
from kfm.connectors.table.values import ARROW
from kfm.model import Column, Json

__all__ = ["Options", "columns", "readers"]

_ROWS = 8192  # at a time
_SHAPES = 512  # of them, where there are shapes: one may be long
_STRING_LIMIT, _LIST_LIMIT = 64 << 20, 1 << 20  # of what stands at the end of a file
_FURTHEST = {"s": 10**12, "ms": 10**15, "us": 10**18}  # 32,000 years; microseconds hold 292,000
_EXACT = 15  # digits that a number holds


class Options(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What may be registered for a Parquet file."""

    columns: tuple[
        Annotated[str, msgspec.Meta(min_length=1)], ...
    ] = ()  # that are wanted; empty: all
    time_zone: str | None = None  # of times that are stored without one; None: they stay text


def columns(job: Read) -> tuple[Column, ...]:
    """The columns of the file, its shape last."""
    return _opened(job.inputs[0], msgspec.json.encode(options_of(job.options, Options))).columns


def readers(job: Read) -> list["_Reader"]:
    """One reader per file."""
    options = msgspec.json.encode(options_of(job.options, Options))
    types = {c.name: c.type for c in job.schema}
    return [_Reader(source, _opened(source, options), types) for source in job.inputs]


def _refuse(
    rule: str,
    why: str,
    expected: str,
    remedy: str = "Look at the captured file, and report it upstream.",
) -> NoReturn:
    raise Refused(
        f"parquet.{rule}",
        f"The Parquet file was not taken: {why}.",
        expected=expected,
        remedy=remedy,
    )


class _Opened:
    """What a file says of itself."""

    def __init__(self, source: InputFile, options: Options) -> None:
        self.path, self.source_id, self.options = Path(source.path), source.source_id, options
        self._check_ends(source)
        try:
            with self.file() as file:
                schema, self.rows = file.schema_arrow, file.metadata.num_rows
                schema.names  # noqa: B018 - they may not be UTF-8
        except (pa.ArrowException, OSError, ValueError) as error:
            self.damaged(error)
        self._check(schema)
        about = _geo(schema)
        self.shape, said = _primary(about)
        left = {self.shape, *_covering(said)} if self.shape else set()
        wanted = options.columns or tuple(n for n in schema.names if n not in left - {self.shape})
        if unknown := next((n for n in wanted if n not in schema.names), None):
            _refuse(
                "columns",
                f"it has no column {unknown!r}",
                f"some of {', '.join(schema.names[:20])}",
                "Correct `columns` in source.options.",
            )
        self.shape = self.shape if self.shape in wanted else ""
        self.names = [n for n in wanted if n != self.shape]
        self.zone = zone_of(options.time_zone)
        types = {n: _type_of(schema.field(n), zoned=self.zone is not None) for n in self.names}
        self.columns = tuple(Column(name=n, type=t) for n, t in types.items())  # type: ignore[arg-type]
        self.to: ToWgs84 | None = None
        if self.shape:
            self.to, self.points = (
                _system(said),
                set(said.get("geometry_types") or ["?"]) <= {"Point", "Point Z"},
            )
            self.columns += tuple(place_columns(self.to, points=self.points))
        made = [c.name for c in self.columns]
        if twice := next((n for n in made if made.count(n) > 1), None):
            _refuse(
                "columns",
                f"it has a column {twice!r}, as kfm would add one",
                "another name",
                "Leave it out with `columns` in source.options.",
            )
        check_names(made)

    def _check_ends(self, source: InputFile) -> None:
        with self.path.open("rb") as file:
            head = file.read(LOOKED_AT)
            file.seek(max(0, file.seek(0, os.SEEK_END) - 8))
            tail = file.read()
        if head.startswith(b"PARE"):
            _refuse("encrypted", "it is encrypted", "a file that can be read without a key")
        if not head.startswith(b"PAR1"):
            refuse_beginning(head, source, "a Parquet file")
        if not tail.endswith(b"PAR1"):
            raise Refused.cut(
                source.source_id, "a Parquet file ends with PAR1, and this one does not"
            )

    def file(self) -> pq.ParquetFile:
        """The file, opened anew; whatever is wrong with it is refused."""
        try:
            return pq.ParquetFile(
                self.path,
                buffer_size=1 << 20,
                pre_buffer=False,
                page_checksum_verification=True,
                thrift_string_size_limit=_STRING_LIMIT,
                thrift_container_size_limit=_LIST_LIMIT,
            )
        except (pa.ArrowException, OSError, ValueError) as error:
            self.damaged(error)

    def damaged(self, error: Exception) -> NoReturn:
        _refuse("damaged", f"it cannot be read: {str(error)[:300]}", "a whole and undamaged file")

    def _check(self, schema: pa.Schema) -> None:
        if len(schema.names) > MOST_COLUMNS:
            _refuse("columns", f"it has {len(schema.names):,} columns", f"at most {MOST_COLUMNS:,}")
        if twice := next((n for n in schema.names if schema.names.count(n) > 1), None):
            _refuse("columns", f"the column {twice!r} is there twice", "each name once")


@lru_cache(maxsize=8)
def _opened(source: InputFile, options: bytes) -> _Opened:
    """Looked at once, for the columns and for the rows."""
    return _Opened(source, msgspec.json.decode(options, type=Options))


def _type_of(field: pa.Field, *, zoned: bool) -> str:
    """The type of a column that holds the values of a field."""
    kind = field.type.value_type if pa.types.is_dictionary(field.type) else field.type
    is_ = pa.types
    if is_.is_boolean(kind):
        return "boolean"
    if is_.is_integer(kind):
        return "integer"
    if is_.is_floating(kind):
        return "number"
    if is_.is_decimal(kind):  # a number would change what it cannot hold
        return "number" if kind.precision <= _EXACT else "string"
    if is_.is_date(kind):
        return "date"
    if is_.is_timestamp(kind):
        return "timestamp" if kind.tz is not None or zoned else "string"
    if is_.is_nested(kind):
        return "json"
    if is_.is_string(kind) or is_.is_large_string(kind) or is_.is_string_view(kind):
        return "string"
    if is_.is_time(kind) or is_.is_duration(kind) or is_.is_null(kind):
        return "string"
    _refuse(
        "columns",
        f"the column {field.name!r} holds {kind}, which no table can show",
        "text, numbers, truths, times, lists, structures, and shapes that its `geo` names",
        "Name the columns that are wanted with `columns` in source.options.",
    )


def _geo(schema: pa.Schema) -> Json:
    """What GeoParquet says of the shapes; empty where there are none."""
    held = (schema.metadata or {}).get(b"geo")
    if held is None:
        return {}
    try:
        found = msgspec.json.decode(held)
        if not isinstance(found, dict) or not isinstance(
            found["columns"][found["primary_column"]], dict
        ):
            raise TypeError
    except (msgspec.DecodeError, UnicodeDecodeError, KeyError, TypeError, RecursionError):
        _refuse("geo", "what it says of its shapes cannot be read", "`geo` as GeoParquet has it")
    return found


def _primary(about: Json) -> tuple[str, Json]:
    name = str(about.get("primary_column", ""))
    said: Json = about["columns"][name] if name else {}
    if name and said.get("encoding") != "WKB":
        _refuse("geo", f"its shapes are {str(said.get('encoding'))[:40]!r}", "shapes as WKB")
    return name, said


def _covering(said: Json) -> set[str]:
    """Columns that repeat the bounds of shapes."""
    boxes = said.get("covering")
    ways = boxes.get("bbox") if isinstance(boxes, dict) else None
    return {str(way[0]) for way in ways.values() if way} if isinstance(ways, dict) else set()


def _system(said: Json) -> ToWgs84:
    bounds = said.get("bbox")
    box: Bounds | None = None
    if (
        isinstance(bounds, list)
        and len(bounds) in (4, 6)
        and all(isinstance(b, int | float) for b in bounds)
    ):
        half = len(bounds) // 2
        box = (bounds[0], bounds[1], bounds[half], bounds[half + 1])
    if "crs" not in said:
        return to_wgs84("OGC:CRS84", box)
    if not isinstance(said["crs"], dict):
        _refuse(
            "geo",
            "its coordinates are in a system that it does not state",
            "`crs` in its `geo`",
            "Ask upstream which system they are in.",
        )
    try:
        return to_wgs84(CRS.from_json_dict(said["crs"]).to_wkt(), box)
    except (CRSError, ValueError, TypeError) as error:
        _refuse(
            "geo", f"its coordinate reference system cannot be read: {str(error)[:200]}", "PROJJSON"
        )


class _Reader:
    """The records of one file."""

    record_limit = RECORD_BYTES

    def __init__(self, source: InputFile, opened: _Opened, types: Mapping[str, str]) -> None:
        self.source_id, self._opened, self._types = source.source_id, opened, types
        self.warnings: set[str] = set()

    def batches(self, names: tuple[str, ...]) -> Iterator[Batch]:
        """Rows as finished columns."""
        opened, at = self._opened, 0
        wanted = [*opened.names, *([opened.shape] if opened.shape else [])]
        try:
            with opened.file() as file:
                for given in file.iter_batches(_SHAPES if opened.shape else _ROWS, columns=wanted):
                    yield self._batch(given, at, names)
                    at += given.num_rows
        except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
            opened.damaged(error)
        if at != opened.rows:
            opened.damaged(ValueError(f"{at} of {opened.rows} rows are there"))

    def loose(self) -> Iterator[list[Loose]]:
        """The same rows as dicts, for connector code."""
        for batch in self.batches(()):
            lists: dict[str, Any] = {
                n: v.to_pylist() if isinstance(v, pa.Array) else v for n, v in batch.columns.items()
            }
            yield [
                Loose(
                    batch.line(i),
                    partial(batch.raw, i),
                    None if i in batch.bad else {n: v[i] for n, v in lists.items()},
                    batch.bad.get(i),
                )
                for i in range(batch.size)
            ]

    def _batch(self, given: pa.RecordBatch, at: int, names: tuple[str, ...]) -> Batch:
        bad: dict[int, Problem] = {}
        found: dict[str, Any] = {}
        for column in self._opened.columns:
            if column.name in given.schema.names and column.name != self._opened.shape:
                array = self._typed(given.column(column.name), column, bad)
                stated = self._types.get(column.name, column.type)
                # the registry may want something else of it, value by value
                found[column.name] = (
                    array if stated == column.type else _values(array, column.name, bad)
                )
        if self._opened.shape:
            found |= self._places(given.column(self._opened.shape), bad)

        def raw(i: int) -> str:
            shown = [n for n in given.schema.names if n != self._opened.shape]
            row = {n: _values(given.column(n).slice(i, 1), n, {})[0] for n in shown}
            return msgspec.json.encode(row, enc_hook=repr).decode()

        unknown = tuple(n for n in found if n not in names) if names else ()
        return Batch(self.source_id, given.num_rows, found, lambda i: at + i + 1, raw, bad, unknown)

    def _typed(self, array: Any, column: Column, bad: dict[int, Problem]) -> Any:
        """The values in the one form that tables have; lists of Python values where they are not
        simply those.
        """
        if isinstance(array, pa.DictionaryArray):
            array = array.dictionary_decode()
        kind = array.type
        if column.type == "string":
            return self._texts(array, column.name, bad)
        if column.type == "json":
            return pa.array(
                [None if v is None else _json(v) for v in _values(array, column.name, bad)],
                pa.string(),
            )
        if column.type == "timestamp":
            return self._times(array, column.name, bad)
        if pa.types.is_floating(kind):
            nan = pc.is_nan(array).fill_null(False)
            if pc.any(nan).as_py():
                self.warnings.add(f"NaN in {self.source_id} is read as no value.")
                array = pc.if_else(nan, pa.scalar(None, kind), array)
        try:
            made = array.cast(ARROW[column.type])
        except pa.ArrowInvalid:
            made = None
        if made is None or (column.type == "number" and not _finite(made)):
            made = self._one_by_one(array, column, bad)
        return made

    def _one_by_one(self, array: Any, column: Column, bad: dict[int, Problem]) -> Any:
        """Values of which some cannot be held: their rows are set aside."""
        out: list[object] = []
        for i, value in enumerate(array):
            one = value.cast(ARROW[column.type], safe=True) if _holds(value, column.type) else None
            if one is None and value.is_valid:
                rule = "number.nonfinite" if column.type == "number" else "type"
                bad.setdefault(
                    i, (rule, f"{column.name}: {str(value)[:80]} cannot be held as {column.type}")
                )
            out.append(None if one is None else one.as_py())
        return pa.array(out, ARROW[column.type])

    def _texts(self, array: Any, name: str, bad: dict[int, Problem]) -> Any:
        kind = array.type
        if not (
            pa.types.is_string(kind)
            or pa.types.is_large_string(kind)
            or pa.types.is_string_view(kind)
        ):
            array = (
                self._cut(array, pa.timestamp("us"), name, bad)
                if pa.types.is_timestamp(kind)
                else array
            )
            told = (
                None if v is None else v.isoformat() if hasattr(v, "isoformat") else str(v)
                for v in _values(array, name, bad)
            )
            return pa.array(list(told), pa.string())
        text = array.cast(pa.string())
        try:
            text.validate(full=True)
        except pa.ArrowInvalid:
            held: list[str | None] = []
            for i, data in enumerate(array.cast(pa.large_binary()).to_pylist()):
                try:
                    held.append(None if data is None else data.decode())
                except UnicodeDecodeError:
                    bad.setdefault(i, ("encoding", f"{name}: the text is not UTF-8"))
                    held.append(None)
            return pa.array(held, pa.string())
        return text

    def _times(self, array: Any, name: str, bad: dict[int, Problem]) -> Any:
        if array.type.tz is None:
            zone = self._opened.zone
            moved: list[str | None] = []
            for i, value in enumerate(
                _values(self._cut(array, pa.timestamp("us"), name, bad), name, bad)
            ):
                moved.append(None if value is None else in_utc(value, zone))
                if value is not None and moved[i] is None:
                    bad.setdefault(
                        i, ("type", f"{name}: the hour of {value.isoformat()} is not certain")
                    )
            return pc.cast(pa.array(moved, pa.string()), ARROW["timestamp"])
        return self._cut(array, ARROW["timestamp"], name, bad)

    def _cut(self, array: Any, kind: Any, name: str, bad: dict[int, Problem]) -> Any:
        """Times in microseconds; what is finer is cut, what is too far away set aside."""
        try:
            return array.cast(kind)
        except pa.ArrowInvalid:
            pass
        if array.type.unit == "ns":
            self.warnings.add(f"Times in {self.source_id} are cut to microseconds.")
            return array.cast(kind, safe=False)
        most = _FURTHEST[array.type.unit]
        ticks = array.cast(pa.int64())
        far = pc.greater(pc.abs(ticks), most).fill_null(False)
        for i in np.flatnonzero(far.to_numpy(zero_copy_only=False)).tolist():
            bad.setdefault(i, ("time.range", f"{name}: the time is too far away to be shown"))
        return pc.if_else(far, pa.scalar(None, array.type), array).cast(kind)

    def _places(self, array: Any, bad: dict[int, Problem]) -> dict[str, list[Any]]:
        opened = self._opened
        assert opened.to is not None
        kind = array.type
        if not (
            pa.types.is_binary(kind)
            or pa.types.is_large_binary(kind)
            or pa.types.is_binary_view(kind)
        ):
            _refuse("geo", f"its shapes are stored as {kind}", "shapes as WKB")
        shapes, wrong = shapes_of(array.to_pylist())
        found = placed(
            shapes,
            opened.to,
            self.source_id,
            self.warnings,
            points=opened.points,
        )
        for i in sorted(wrong):
            bad.setdefault(i, ("geometry", f"{opened.shape}: a shape that cannot be read"))
        for i, (_, lost) in enumerate(found):
            if lost:
                bad.setdefault(i, ("crs.range", f"a position cannot be in {opened.to.name}"))
        names = [c.name for c in place_columns(opened.to, points=opened.points)]
        return {n: [place.get(n) for place, _ in found] for n in names}


def _values(array: Any, name: str, bad: dict[int, Problem]) -> list[Any]:
    """The values of an array; those that Python cannot hold, such as the year 10,000 or text that is
    not UTF-8, go to `bad`.
    """
    try:
        found: list[Any] = array.to_pylist()
        return found
    except (ValueError, OverflowError):
        found = []
    for i, value in enumerate(array):
        try:
            found.append(value.as_py())
        except (ValueError, OverflowError) as error:
            bad.setdefault(i, ("type", f"{name}: a value cannot be read: {str(error)[:80]}"))
            found.append(None)
    return found


def _finite(array: Any) -> bool:
    return pc.all(pc.is_finite(array)).as_py() in (True, None)


def _holds(value: Any, kind: str) -> bool:
    if not value.is_valid:
        return False
    try:
        held = value.cast(ARROW[kind])
    except pa.ArrowInvalid:
        return False
    return kind != "number" or _finite(pa.array([held.as_py()], pa.float64()))


def _json(value: object) -> str:
    return msgspec.json.encode(_plain(value), order="sorted", enc_hook=str).decode()


def _plain(value: object) -> object:
    """A value of nested types; the pairs of a map stay a list, for keys may be anything."""
    if isinstance(value, dict):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(v) for v in value]
    if isinstance(value, float) and value != value:
        return None
    return value
