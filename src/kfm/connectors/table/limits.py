"""The least and greatest value of a column, and those that mean "no value", as numbers that its
cells can be compared with.
"""

import datetime as dt
import math
import re

from msgspec import UNSET

from kfm.model import Column

__all__ = ["limit_of", "stated_limits", "wrong_limits"]

_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_DAY = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)


def limit_of(column: Column, value: float | str, *, upper: bool = False) -> float | str:
    """`value` as cells of the column are held: microseconds of a timestamp, days of a date, a
    number, text.

    On a timestamp a day stands for all of it: its first moment, or with `upper` its last. Raises
    ValueError.
    """
    kind = column.type
    if kind == "string" and isinstance(value, str):
        return value
    if kind in ("integer", "number") and not isinstance(value, str):
        if not math.isfinite(value):
            raise ValueError(f"{value} is no finite number")
        return value
    if kind == "date" and isinstance(value, str) and _DAY.fullmatch(value):
        return (dt.date.fromisoformat(value) - _EPOCH.date()).days
    if kind == "timestamp" and isinstance(value, str):
        if _DAY.fullmatch(value):
            first = (dt.date.fromisoformat(value) - _EPOCH.date()).days * 86_400_000_000
            return first + 86_400_000_000 - 1 if upper else first
        found = dt.datetime.fromisoformat(value)
        if found.tzinfo is not None:
            return (found - _EPOCH) // dt.timedelta(microseconds=1)
    wanted = {
        "timestamp": "a moment with Z or an offset, or a day",
        "date": "a day YYYY-MM-DD",
        "string": "text",
    }
    raise ValueError(
        f"{value!r} on a column of type {kind}, which takes {wanted.get(kind, 'a number')}"
    )


def stated_limits(column: Column) -> bool:
    """Whether the registry says anything of what the column may hold."""
    return (column.min, column.max, column.sentinels) != (UNSET, UNSET, UNSET)


def wrong_limits(column: Column) -> str | None:
    """Why what is stated of a column makes no sense; None when it does."""
    ends = {k: v for k, v in (("min", column.min), ("max", column.max)) if v is not UNSET}
    if column.type in ("boolean", "geometry", "json") and stated_limits(column):
        return f"{column.name}: a column of type {column.type} takes no min, max or sentinels"
    if column.type == "string" and ends:
        return f"{column.name}: text has no order that min or max could mean"
    try:
        found = {k: limit_of(column, v, upper=k == "max") for k, v in ends.items()}
        for value in column.sentinels if column.sentinels is not UNSET else ():
            limit_of(column, value)
    except ValueError as error:
        return f"{column.name}: {error}"
    low, high = found.get("min"), found.get("max")
    if isinstance(low, float | int) and isinstance(high, float | int) and low > high:
        return f"{column.name}: min {column.min} is greater than max {column.max}"
    return None
