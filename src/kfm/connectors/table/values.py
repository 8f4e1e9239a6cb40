"""Values to typed Arrow columns, a whole column at a time; a value that does not fit condemns its
row, not the column.

The fast way must never accept a value the slow way would refuse or read differently: whether a row
is good may not depend on its neighbours in a block.
"""

import datetime as dt
import re
from collections.abc import Callable, Sequence
from types import NoneType

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from kfm.connectors.arrays import Values
from kfm.connectors.read.geometry import Problem
from kfm.connectors.read.repeated_members import Twice, decode_once
from kfm.model import Column

__all__ = [
    "ARROW",
    "DECIMAL",
    "IDENTIFIER",
    "INT64",
    "WHOLE",
    "agrees",
    "cells_text",
    "fast_cast",
    "moment",
    "plain_values",
    "type_cells",
    "type_values",
]

_STAMP = pa.timestamp("us", tz="UTC")
ARROW: "dict[str, pa.DataType]" = {
    "string": pa.string(),
    "integer": pa.int64(),
    "number": pa.float64(),
    "boolean": pa.bool_(),
    "timestamp": _STAMP,
    "date": pa.date32(),
    "geometry": pa.binary(),
    "json": pa.string(),
}
# What Arrow converts as we mean it. It would also turn 1.5 into the integer 1 and true into the
# number 1, hence the exact types.
_PLAIN: dict[str, set[type]] = {
    "string": {str},
    "integer": {int},
    "number": {int, float},
    "boolean": {bool},
}
_INTEGER = re.compile(r"[+-]?\d{1,19}", re.ASCII)
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
_NONFINITE = re.compile(r"[+-]?(nan|inf|infinity)", re.IGNORECASE)
_TRUE, _FALSE = {"true", "t", "yes", "y", "1"}, {"false", "f", "no", "n", "0"}
INT64 = range(-(2**63), 2**63)
_ARROW_ERRORS = (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError, UnicodeEncodeError)
_encode = msgspec.json.Encoder(order="sorted").encode
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
# Codes and ids keep their text: a leading zero may turn up in the next capture.
IDENTIFIER = re.compile(r"(?:.*_)?(?:id|code|cd|fips|geoid|zip|key)|.*[a-z](?:Id|ID|Code)")


class _Misfit(Exception):
    """A value that is not of its column's type."""

    def __init__(self, reason: str, rule: str = "type") -> None:
        super().__init__(reason)
        self.rule = rule


def moment(text: object) -> int:
    """An RFC 3339 time, or whatever may stand for one, as microseconds since 1970. Raises ValueError."""
    try:
        return _stamp(text)
    except _Misfit as error:
        raise ValueError(str(error)) from None


def type_values(column: Column, values: Values, bad: dict[int, Problem]) -> "pa.Array":
    """JSON values as an Arrow array of the column's type; misfits go to `bad` by row and become
    null.
    """
    array = plain_values(column, values)
    return array if array is not None else _slow(column, values, bad, cells=False)


def plain_values(column: Column, values: Values) -> "pa.Array | None":
    """The same all at once where each is written as its column's type is; None where one is not, or
    cannot be held.
    """
    kinds = set(map(type, values))
    kinds.discard(NoneType)
    if not kinds:
        return pa.nulls(len(values), ARROW[column.type])
    array = None
    if kinds <= _PLAIN.get(column.type, set()):
        array = _fast_plain(column.type, values)
    elif column.type in ("timestamp", "date") and kinds == {str}:
        text = _fast_plain("string", values)
        array = None if text is None else fast_cast(text, column.type)
    return array if array is not None and _finite(array) else None


def cells_text(cells: Sequence[str]) -> "pa.Array":
    """CSV cells as text, null where they are empty."""
    text = pa.array(cells, pa.string())
    empty = pc.equal(text, "")
    return pc.if_else(empty, pa.scalar(None, pa.string()), text) if pc.any(empty).as_py() else text


def type_cells(column: Column, text: "pa.Array", bad: dict[int, Problem]) -> "pa.Array":
    """CSV text as an Arrow array of the column's type; an empty cell is null, never zero."""
    if column.type == "string":
        return text
    if text.null_count == len(text):
        return pa.nulls(len(text), ARROW[column.type])
    array = (
        fast_cast(text, column.type)
        if column.type in ("integer", "number", "timestamp", "date")
        else None
    )
    return (
        array
        if array is not None and _finite(array)
        else _slow(column, text.to_pylist(), bad, cells=True)
    )


def _fast_plain(kind: str, values: Values) -> "pa.Array | None":
    try:
        return pa.array(values, ARROW[kind])
    except _ARROW_ERRORS:
        return None


def fast_cast(text: "pa.Array", kind: str) -> "pa.Array | None":
    """All texts as values of a type at once; None when one of them is not."""
    if kind == "integer" and pc.any(pc.match_substring(text, "x", ignore_case=True)).as_py():
        return None  # Arrow reads 0x1F as 31
    try:
        return pc.cast(text, ARROW[kind])
    except pa.ArrowInvalid:
        return None


def _finite(array: "pa.Array") -> bool:
    return not pa.types.is_floating(array.type) or bool(
        pc.all(pc.is_finite(array)).as_py() in (True, None)
    )


def _slow(column: Column, values: Values, bad: dict[int, Problem], *, cells: bool) -> "pa.Array":
    convert = _json_cell if cells and column.type == "json" else _CONVERT[column.type]
    blank = cells and column.type not in ("string", "json")
    out: list[object] = [None] * len(values)
    for i, value in enumerate(values):
        if value is None or (blank and value.isspace()):
            continue
        try:
            out[i] = convert(value)
        except _Misfit as error:
            # the other columns of a bad row keep what they hold
            bad.setdefault(i, (error.rule, f"{column.name}: {error}"))
    return pa.array(out, ARROW[column.type])


def _shown(value: object) -> str:
    return repr(value)[:80]


def _string(value: object) -> str:
    if isinstance(value, str):
        if not value.isascii():
            try:
                value.encode()
            except UnicodeEncodeError:
                raise _Misfit(f"{_shown(value)} holds half a surrogate pair") from None
        return value
    if isinstance(value, bool | int):
        return str(value).lower()
    if isinstance(value, float):
        return _json(value)
    raise _Misfit(f"expected text, got {_shown(value)}")


def _integer(value: object) -> int:
    if isinstance(value, str):
        value = int(value) if _INTEGER.fullmatch(value.strip()) else value
    elif isinstance(value, float) and value.is_integer() and abs(value) <= 2**53:
        value = int(value)
    if type(value) is not int:
        raise _Misfit(f"expected an integer, got {_shown(value)}", _rule_of(value))
    if value not in INT64:
        raise _Misfit(f"{_shown(value)} does not fit 64 bits")
    return value


def _number(value: object) -> float:
    if isinstance(value, str) and _NUMBER.fullmatch(value.strip()):
        value = float(value)
    if type(value) is int:
        try:
            exact = int(float(value)) == value
        except OverflowError:
            exact = False
        if not exact:
            raise _Misfit(
                f"{_shown(value)} cannot be held exactly as a number; declare it as string or"
                " integer"
            )
        value = float(value)
    if type(value) is not float or _rule_of(value) != "type":
        raise _Misfit(f"expected a finite number, got {_shown(value)}", _rule_of(value))
    return value


def _rule_of(value: object) -> str:
    """The rule for a value that is no number: it may be one that is not finite."""
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return "number.nonfinite"
    return (
        "number.nonfinite"
        if isinstance(value, str) and _NONFINITE.fullmatch(value.strip())
        else "type"
    )


def _boolean(value: object) -> bool:
    if isinstance(value, bool):
        return value
    word = value.strip().lower() if isinstance(value, str) else ""
    if word in _TRUE or word in _FALSE:
        return word in _TRUE
    raise _Misfit(f"expected true or false, got {_shown(value)}")


def _stamp(value: object) -> int:
    if type(value) is int and abs(value) < 10**15:
        # JSON sources give epoch milliseconds (USGS, ArcGIS); seconds are never seen
        return value * 1000
    if isinstance(value, dt.datetime) and value.tzinfo is not None:
        return (value - _EPOCH) // dt.timedelta(microseconds=1)
    if isinstance(value, str):
        for text in (value, value.strip().upper()):
            try:
                return int(pa.scalar(text).cast(_STAMP).value)
            except (pa.ArrowInvalid, UnicodeEncodeError):
                continue
    raise _Misfit(
        f"expected a time with Z or an offset (RFC 3339, at most microseconds), got {_shown(value)}"
    )


def _date(value: object) -> dt.date:
    if isinstance(value, dt.date) and not isinstance(value, dt.datetime):
        return value
    if isinstance(value, str) and re.fullmatch(r"\d{4}-\d\d-\d\d", text := value.strip(), re.ASCII):
        try:
            return dt.date.fromisoformat(text)
        except ValueError:
            pass
    raise _Misfit(f"expected a date YYYY-MM-DD, got {_shown(value)}")


def _json(value: object) -> str:
    try:
        return _encode(value).decode()
    except (TypeError, UnicodeEncodeError, RecursionError) as error:
        raise _Misfit(f"expected JSON, got {_shown(value)} ({error})") from None


def _json_cell(cell: str) -> str:
    try:
        return _json(decode_once(cell.encode()))
    except (msgspec.DecodeError, RecursionError):
        raise _Misfit(f"expected JSON, got {_shown(cell)}") from None
    except Twice as twice:
        raise _Misfit(f"the member {_shown(str(twice))} is there twice", "json.duplicate") from None


_CONVERT: dict[str, Callable[[object], object]] = {
    "string": _string,
    "integer": _integer,
    "number": _number,
    "boolean": _boolean,
    "timestamp": _stamp,
    "date": _date,
    "json": _json,
}


def agrees(kind: str, text: str) -> bool:
    """Whether a text can stand in a column of this type."""
    try:
        _CONVERT[kind](text)
    except _Misfit:
        return False
    return True


# -- what texts in CSV look like that are numbers

# More than 15 digits is an identifier, and floating point would change it; a leading zero is a
# code.
WHOLE = r"-?(0|[1-9][0-9]{0,14})"
DECIMAL = r"[+-]?((0|[1-9][0-9]{0,14})(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]{1,3})?"
