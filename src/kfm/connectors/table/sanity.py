"""Values that cannot be true, found a whole column at a time: each condemns its row and nothing
else.

What a kind of source knows of its columns stands beside them as `SANITY`, a table of `Sane`; what
the registry states of a column takes the place of that. Everywhere, whoever knows nothing, a time
must have a year that readers of the table can show.
"""

import datetime as dt
import math
import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import UNSET

from kfm.connectors.arrays import Mask, Whole
from kfm.connectors.read.geometry import Problem
from kfm.connectors.table.limits import limit_of, stated_limits
from kfm.model import Column

__all__ = ["LATITUDE", "LONGITUDE", "Sane", "Sanity", "limits_for"]

LATITUDE, LONGITUDE = {"lat", "latitude"}, {"lon", "lng", "longitude"}
_TIMES = ("timestamp", "date")
_NEVER = "2100-01-01"  # the latest time where nothing says when the capture was made
_AFTER = re.compile(r"\+(\d+)d")
_DAY_US = 86_400_000_000
_INT64 = 2.0**63
# Seconds since 1970 up to the year 2103, taken for milliseconds, lie in the first seven weeks of
# 1970.
_SECONDS_END = 4_200_000_000_000
_MINUTE = "minute"


class Sane(NamedTuple):
    """What can be true of one column; a row that breaks it is set aside."""

    column: str
    low: float | str | None = None  # in the column's unit; a moment or day as RFC 3339
    high: float | str | None = None  # of a time also "+1d": that long after the capture
    sentinels: tuple[float | str, ...] = ()  # what upstream writes where it has no value
    # (column, texts): only rows in which that column holds one of them
    where: tuple[str, tuple[str, ...]] | None = None
    # (column, marks): rows that upstream marked so itself stay; no marks: any
    flagged: tuple[str, tuple[str, ...]] | None = None
    # Whether seconds may have been taken for milliseconds: the name of the column that says when
    # the record was written, shortly after it
    # happened; or "minute" where true times are whole minutes.
    seconds: str = ""


class _Check(NamedTuple):
    """A rule, ready to be compared with cells as Arrow holds them."""

    at: int
    column: Column
    rule: str
    low: float | None
    high: float | None
    sentinels: tuple[float | str, ...] = ()
    where: tuple[int, "pa.Array"] | None = None
    flagged: tuple[int, "pa.Array | None"] | None = None
    seconds: int | str = ""  # the place of the other column


def limits_for(
    rules: Iterable[Sane], column: str, **said: str | None
) -> tuple[float, float, tuple[float | str, ...]]:
    """(least, greatest, sentinels) of a number in a row where other columns hold what is `said`;
    for readers that judge as they read.
    """
    fit = [
        r
        for r in rules
        if r.column == column and (r.where is None or said.get(r.where[0]) in r.where[1])
    ]
    lows, highs = (
        (
            [v for v in ends if isinstance(v, int | float)]
            for ends in zip(*((r.low, r.high) for r in fit))
        )
        if fit
        else ([], [])
    )
    return (
        max(lows, default=-math.inf),
        min(highs, default=math.inf),
        tuple(s for r in fit for s in r.sentinels),
    )


class Sanity:
    """Every rule for the columns of one table."""

    def __init__(
        self, columns: Sequence[Column], rules: Iterable[Sane], captured_at: str | None
    ) -> None:
        self._places = {c.name: i for i, c in enumerate(columns)}
        self._columns, self._captured = columns, captured_at
        known = list(rules)
        wanted = [Sane(c.name, "0001-01-01", "9999-12-31") for c in columns if c.type in _TIMES]
        wanted += [Sane(c.name, -end, end) for c in columns if (end := _end_of_globe(c))]
        wanted += [
            _stated(columns[self._places[r.column]], r) for r in known if r.column in self._places
        ]
        named = {r.column for r in known}
        wanted += [
            _stated(c, Sane(c.name)) for c in columns if c.name not in named and stated_limits(c)
        ]
        self._checks = [check for rule in wanted if (check := self._ready(rule)) is not None]

    def judge(self, arrays: Sequence["pa.Array"], bad: dict[int, Problem]) -> dict[str, set[int]]:
        """Put the rows that cannot be true into `bad`; {column: rows} whose time is no time."""
        timeless: dict[str, set[int]] = {}
        for check in self._checks:
            wrong = _wrong(check, arrays)
            if wrong is None:
                continue
            rows = np.flatnonzero(wrong).tolist()
            values = _plain(arrays[check.at])
            for i in rows:
                bad.setdefault(i, self._problem(check, values[i].as_py()))
            if rows and check.column.type in _TIMES:
                timeless.setdefault(check.column.name, set()).update(rows)
        return timeless

    def _ready(self, rule: Sane) -> _Check | None:
        at = self._places[rule.column]
        column = self._columns[at]
        try:
            low, high = (
                self._limit(column, v, upper=n == 1) for n, v in enumerate((rule.low, rule.high))
            )
            sentinels = tuple(limit_of(column, s) for s in rule.sentinels)
        except ValueError:
            # the registry gives the column of this kind another type, and with it another meaning
            return None
        where = self._pair(rule.where)
        if rule.where is not None and where is None:
            return None
        name = (
            "time.range"
            if column.type in _TIMES
            else "geometry.range"
            if _end_of_globe(column)
            else "value.range"
        )
        seconds: int | str = self._places.get(
            rule.seconds, rule.seconds if rule.seconds == _MINUTE else ""
        )
        if (low, high, sentinels, seconds) == (None, None, (), ""):
            return None
        if column.type == "integer":
            low, high = _whole(low, up=True), _whole(high, up=False)
            sentinels = tuple(
                s
                for s in sentinels
                if isinstance(s, int | float) and float(s).is_integer() and abs(s) < _INT64
            )
        return _Check(
            at, column, name, low, high, sentinels, where, self._pair(rule.flagged), seconds
        )

    def _limit(self, column: Column, value: float | str | None, *, upper: bool) -> float | None:
        if value is None:
            return None
        after = _AFTER.fullmatch(value) if isinstance(value, str) else None
        if after is not None:
            if self._captured is None:
                value = _NEVER
            else:
                day = dt.datetime.fromisoformat(self._captured).astimezone(dt.UTC) + dt.timedelta(
                    days=int(after[1])
                )
                value = day.isoformat() if column.type == "timestamp" else str(day.date())
        found = limit_of(column, value, upper=upper)
        if isinstance(found, str):
            raise ValueError("text has no order")
        return found

    def _pair(
        self, pair: tuple[str, tuple[str, ...]] | None
    ) -> "tuple[int, pa.Array | None] | None":
        if pair is None or pair[0] not in self._places:
            return None
        return self._places[pair[0]], pa.array(pair[1], pa.string()) if pair[1] else None

    def _problem(self, check: _Check, value: float) -> Problem:
        name, unit = check.column.name, f" {check.column.unit}" if check.column.unit else ""
        if value in check.sentinels:
            return (
                "value.sentinel",
                (
                    f"{name}: {_shown(check, value)} is what stands where there is no value, not a"
                    " value"
                ),
            )
        least, most = check.low, check.high
        if (least is None or value >= least) and (most is None or value <= most):
            return (
                "time.unit",
                (
                    f"{name}: {_shown(check, value)} looks like seconds since 1970 that were taken"
                    " for milliseconds"
                ),
            )
        if least is None or most is None:
            end = (
                f"less than {_shown(check, least)}"
                if most is None
                else f"more than {_shown(check, most)}"
            )
            return check.rule, f"{name}: {_shown(check, value)} is {end}{unit}"
        return (
            check.rule,
            (
                f"{name}: {_shown(check, value)} lies outside"
                f" {_shown(check, least)}..{_shown(check, most)}{unit}"
            ),
        )


def _end_of_globe(column: Column) -> int:
    """How far from zero a coordinate can be; 0: it is none."""
    name = column.name.lower() if column.type in ("number", "integer") else ""
    return 90 if name in LATITUDE else 180 if name in LONGITUDE else 0


def _stated(column: Column, rule: Sane) -> Sane:
    """The rule of a kind with what the registry states in place of it."""
    return rule._replace(
        low=rule.low if column.min is UNSET else column.min,
        high=rule.high if column.max is UNSET else column.max,
        sentinels=rule.sentinels if column.sentinels is UNSET else column.sentinels,
        seconds=rule.seconds if column.min is UNSET else "",
    )


def _whole(end: float | None, *, up: bool) -> float | None:
    """A bound of whole numbers, None where 64 bits end before it."""
    if end is None or abs(end) >= _INT64:
        return None
    return math.ceil(end) if up else math.floor(end)


def _plain(array: "pa.Array") -> "pa.Array":
    """Times as whole numbers, so that any year can be compared."""
    if pa.types.is_timestamp(array.type):
        return array.view(pa.int64())
    return array.view(pa.int32()) if pa.types.is_date32(array.type) else array


def _wrong(check: _Check, arrays: Sequence["pa.Array"]) -> Mask | None:
    """A mask of the rows that break a rule; None when none does."""
    array = _plain(arrays[check.at])
    if array.null_count == len(array):
        return None
    found = []
    if pa.types.is_string(array.type):
        found.append(pc.is_in(array, pa.array(check.sentinels, pa.string())))
    else:
        ends = pc.min_max(array)
        least, most = ends["min"].as_py(), ends["max"].as_py()
        if check.low is not None and least < check.low:
            found.append(pc.less(array, check.low))
        if check.high is not None and most > check.high:
            found.append(pc.greater(array, check.high))
        found += [pc.equal(array, s) for s in check.sentinels if least <= s <= most]
        if check.seconds != "" and least < _SECONDS_END and most > 0:
            found.append(pa.array(_in_seconds(array, check.seconds, arrays)))
    if not found:
        return None
    wrong = np.zeros(len(array), np.bool_)
    for part in found:
        wrong |= _truths(part)
    if wrong.any() and check.where is not None:
        wrong &= _truths(pc.is_in(arrays[check.where[0]], check.where[1]))
    if wrong.any() and check.flagged is not None:
        marks = arrays[check.flagged[0]]
        wrong &= ~_truths(
            marks.is_valid() if check.flagged[1] is None else pc.is_in(marks, check.flagged[1])
        )
    return wrong if wrong.any() else None


def _truths(mask: "pa.Array") -> Mask:
    return np.asarray(mask.fill_null(False).to_numpy(zero_copy_only=False))


def _in_seconds(array: "pa.Array", other: int | str, arrays: Sequence["pa.Array"]) -> Mask:
    """Times of early 1970 that, as seconds, would fit the time the record was written, or that are
    no whole minute.
    """
    times: Whole = array.fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
    early: Mask = (times > 0) & (times < _SECONDS_END)
    if isinstance(other, str):
        wrong: Mask = early & (times % 60_000_000 != 0)
        return wrong
    written = arrays[other]
    known = _truths(written.is_valid())
    at: Whole = _plain(written).fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
    later = at - np.where(early, times, 0) * 1000
    fits = (later >= -_DAY_US) & (later <= 400 * _DAY_US)
    late: Mask = early & (~known | (at < _SECONDS_END) | fits)
    return late


def _shown(check: _Check, value: float | None) -> str:
    if check.column.type == "timestamp" and value is not None:
        return str(np.datetime64(int(value), "us")).removesuffix(".000000") + "Z"
    if check.column.type == "date" and value is not None:
        return str(np.datetime64(int(value), "D"))
    return f"{value:g}" if isinstance(value, float) and float(f"{value:g}") == value else str(value)
