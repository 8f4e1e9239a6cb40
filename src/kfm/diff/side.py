"""One side of a comparison: the Parquet files of a version, read a column at a time in types that
can be compared.
"""

import contextlib
import datetime as dt
import json
import math
import re
from collections.abc import Callable, Mapping
from decimal import Decimal
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from kfm.model import IntegrityError, Json

__all__ = ["Rows", "Side", "aligned", "same"]

Rows = npt.NDArray[np.int64]
_EXACT = 1 << 53  # beyond it a float does not hold every integer
_NUMBER = re.compile(r"-?(?:0|[1-9]\d{0,400})(?:\.\d{1,400})?(?:[eE][+-]?\d{1,6})?", re.ASCII)


class Side:
    """The rows of all files together, in the order of the files' names; what is not Parquet is not
    looked at.
    """

    def __init__(self, files: Mapping[str, Path]) -> None:
        self.files = [
            _open(path) for name, path in sorted(files.items()) if name.endswith(".parquet")
        ]
        self.rows = sum(f.metadata.num_rows for f in self.files)
        self.types: dict[str, pa.DataType] = {}  # what a column is compared in
        self.shown: dict[str, str] = {}  # what it is called
        for field in (field for f in self.files for field in f.schema_arrow):
            kind = _comparable(field.type)
            self.types[field.name] = _common(self.types.get(field.name, kind), kind)
            self.shown.setdefault(field.name, str(field.type).removeprefix("large_"))
        about = [_geo(f) for f in self.files]
        self.geometry = next(
            (g["primary_column"] for g in about if g.get("primary_column") in self.types), ""
        )
        boxes = [
            g["columns"][self.geometry].get("bbox")
            for g in about
            if self.geometry in g.get("columns", {})
        ]
        # without heights
        self.boxes = [[*box[:2], *box[len(box) // 2 :][:2]] for box in boxes if box]

    def imitate(self, other: "Side") -> None:
        """Without any file, be a table of the other's columns that has no rows."""
        if not self.files:
            self.types, self.shown, self.geometry = other.types, other.shown, other.geometry

    def column(self, name: str) -> "pa.Array":
        """All rows of a column."""
        return pa.chunked_array(
            [chunk for f in self.files for chunk in self._chunks(f, name)], self.types[name]
        ).combine_chunks()

    def _chunks(self, file: "pq.ParquetFile", name: str) -> list["pa.Array"]:
        if name not in file.schema_arrow.names:  # another partition has it
            return [pa.nulls(file.metadata.num_rows, self.types[name])]
        try:
            return [
                _as(chunk, self.types[name])
                for chunk in file.read(columns=[name]).column(name).chunks
            ]
        except (pa.ArrowException, OSError) as error:
            raise _damaged(error) from error


def _open(path: Path) -> "pq.ParquetFile":
    try:
        return pq.ParquetFile(path)
    except pa.ArrowException as error:
        raise _damaged(error) from error


def _damaged(error: Exception) -> IntegrityError:
    why = str(error).splitlines()[0].removesuffix(".")
    return IntegrityError(
        f"A file of this version cannot be read: {why}.",
        expected="whole Parquet files",
        remedy="Run `kfm verify`.",
    )


def _geo(file: "pq.ParquetFile") -> Json:
    """The GeoParquet metadata of a file; nothing when it has none."""
    with contextlib.suppress(ValueError, AttributeError, KeyError, TypeError):
        found: Json = json.loads((file.metadata.metadata or {})[b"geo"])
        return found if found["columns"][found["primary_column"]]["encoding"] == "WKB" else {}
    return {}


def _comparable(kind: "pa.DataType") -> "pa.DataType":
    """64-bit offsets, because a whole column becomes one array; text for what Arrow cannot
    compare.
    """
    if pa.types.is_binary(kind) or pa.types.is_fixed_size_binary(kind):
        return pa.large_binary()
    text = (
        pa.types.is_string(kind)
        or pa.types.is_null(kind)
        or pa.types.is_nested(kind)
        or pa.types.is_dictionary(kind)
    )
    return pa.large_string() if text else kind


def _common(a: "pa.DataType", b: "pa.DataType") -> "pa.DataType":
    """A type for the values of both: the wider number, the finer time, else text."""
    if a == b:
        return a
    try:
        return (
            pa.unify_schemas(
                [pa.schema([("x", a)]), pa.schema([("x", b)])], promote_options="permissive"
            )
            .field(0)
            .type
        )
    except pa.ArrowException:
        return pa.large_string()


def _as(array: "pa.Array", kind: "pa.DataType") -> "pa.Array":
    if array.type == kind:
        return array
    if kind != pa.large_string():
        return array.cast(kind, safe=False)
    try:
        return array.cast(kind)
    except pa.ArrowException:
        # nested, or bytes that are no text: kfm writes none, so this may be slow
        return pa.array(
            [
                None if v is None else json.dumps(v, sort_keys=True, default=str)
                for v in array.to_pylist()
            ],
            kind,
        )


def aligned(a: "pa.Array", b: "pa.Array") -> tuple["pa.Array", "pa.Array"]:
    """Two columns in one type; floats with one zero and one NaN, for hashing sees their bits.

    Where the type changed, cells are compared by what they say: the text `4.0`, the number 4.0 and
    the integer 4 are one value.
    """
    if a.type != b.type and (how := _reading(a, b)) is not None:
        return _spelled(a, how), _spelled(b, how)
    kind = _common(a.type, b.type)
    a, b = _as(a, kind), _as(b, kind)
    if pa.types.is_floating(kind):
        a, b = (
            pc.if_else(pc.is_nan(x), pa.scalar(math.nan, kind), pc.add(x, pa.scalar(0.0, kind)))
            for x in (a, b)
        )
    return a, b


def _reading(a: "pa.Array", b: "pa.Array") -> Callable[[object], str] | None:
    """How cells of two types are spelled alike; None where Arrow has a type that holds the values
    of both exactly.
    """
    kinds = {_kind(a.type), _kind(b.type)}
    if kinds == {"number"}:
        whole = [pc.min_max(x) for x in (a, b) if pa.types.is_integer(x.type)]
        big = any(
            abs(end) > _EXACT for ends in whole for end in ends.as_py().values() if end is not None
        )
        # as a float it would be another integer
        return _number if big and len(whole) == 1 else None
    if kinds in ({"number", "text"}, {"number", "truth"}):
        return _number
    if kinds == {"truth", "text"}:
        return lambda cell: str(cell).strip().lower()
    return _moment if kinds in ({"day", "text"}, {"time", "text"}, {"day", "time"}) else None


def _kind(kind: "pa.DataType") -> str:
    if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        return "number"
    named = {
        "text": pa.types.is_large_string,
        "truth": pa.types.is_boolean,
        "day": pa.types.is_date,
        "time": pa.types.is_timestamp,
    }
    return next((name for name, test in named.items() if test(kind)), "other")


def _spelled(array: "pa.Array", how: Callable[[object], str]) -> "pa.Array":
    """Every cell by its value; each distinct one is spelled once."""
    encoded = array.dictionary_encode()
    values = (
        encoded.dictionary.cast(pa.large_string())
        if pa.types.is_temporal(array.type)
        else encoded.dictionary
    )
    return pa.array([how(cell) for cell in values.to_pylist()], pa.large_string()).take(
        encoded.indices
    )


def _number(cell: object) -> str:
    """A number by its digits and exponent, so that nothing is rounded; other text, such as an id
    with leading zeros, as it is.
    """
    text = str(int(cell)) if isinstance(cell, bool) else str(cell)
    if not _NUMBER.fullmatch(text):
        return text
    sign, digits, exponent = Decimal(text).as_tuple()
    kept = "".join(map(str, digits)).lstrip("0").rstrip("0")
    shift = len(digits) - len("".join(map(str, digits)).rstrip("0"))
    return f"{'-' * sign}{kept}e{int(exponent) + shift}" if kept else "0"


def _moment(cell: object) -> str:
    """A moment in UTC; a day is its midnight, and text that is no moment stays as it is."""
    text = str(cell)
    try:
        found = dt.datetime.fromisoformat(text.strip())
        return (
            (found if found.tzinfo is not None else found.replace(tzinfo=dt.UTC))
            .astimezone(dt.UTC)
            .isoformat()
        )
    except (ValueError, OverflowError):
        return text


def same(a: "pa.Array", b: "pa.Array") -> "npt.NDArray[np.bool_]":
    """Where two aligned columns agree: null is null, NaN is NaN."""
    found = pc.or_(pc.fill_null(pc.equal(a, b), False), pc.and_(pc.is_null(a), pc.is_null(b)))
    if pa.types.is_floating(a.type):
        found = pc.or_(found, pc.fill_null(pc.and_(pc.is_nan(a), pc.is_nan(b)), False))
    return np.asarray(found.to_numpy(zero_copy_only=False), np.bool_)
