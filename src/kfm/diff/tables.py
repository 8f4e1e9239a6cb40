"""Compares two versions: keys are matched once, then one column of each side is in memory at a
time.
"""

import filecmp
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kfm.diff.base import Change, Columns, Diff, Measure, Place, Value
from kfm.diff.cells import rows_of, values
from kfm.diff.side import Rows, Side, aligned, same

__all__ = ["diff_files"]

_BLOCK = 1 << 18  # rows compared at once
_EARTH_M = 6_371_008.8  # mean radius


def diff_files(
    a: Mapping[str, Path],
    b: Mapping[str, Path],
    key: Sequence[str],
    *,
    limit: int | None = 50,
    dataset_id: str = "",
    labels: tuple[str, str] = ("a", "b"),
) -> Diff:
    """What changed from the Parquet files of `a` to those of `b`; several are partitions, their
    rows count together.

    Rows are matched by `key`, or compared whole where there is none. `limit` bounds the samples,
    never the counts.
    """
    left, right = Side(a), Side(b)
    left.imitate(right)
    right.imitate(left)
    common = [name for name in left.types if name in right.types]
    by = tuple(key) if set(key) <= set(common) else ()
    pairs = _match(left, right, by, common)
    geometry = left.geometry if left.geometry == right.geometry else ""
    touched, changed, moved, profile = _compare(left, right, pairs, by or common, geometry)
    found = Diff(
        dataset_id=dataset_id,
        a=labels[0],
        b=labels[1],
        key=tuple(key),
        keyed=bool(by),
        rows_a=left.rows,
        rows_b=right.rows,
        added=len(pairs.added),
        removed=len(pairs.removed),
        changed=len(changed) + len(moved),
        equal=len(pairs.a) - len(changed) - len(moved),
        moved=len(moved),
        duplicates=pairs.duplicates,
        columns=Columns(
            added=tuple(n for n in right.types if n not in left.types),
            removed=tuple(n for n in left.types if n not in right.types),
            retyped={
                n: (left.shown[n], right.shown[n])
                for n in common
                if left.shown[n] != right.shown[n]
            },
            common=len(common),
        ),
        touched=touched,
        samples=_samples(left, right, pairs, (moved, changed), by, geometry, limit),
        profile=(_measure("rows", "", left.rows, right.rows), *profile, *_bounds(left, right)),
    )
    if (
        not found.same
        or not a
        or not b
        or (a.keys() == b.keys() and all(filecmp.cmp(a[n], b[n], shallow=False) for n in a))
    ):
        return found
    return msgspec.structs.replace(found, reencoded=True)


@dataclass(frozen=True)
class _Pairs:
    """Which row of one side is which of the other."""

    a: Rows
    b: Rows
    removed: Rows
    added: Rows
    duplicates: tuple[int, int]


def _match(left: Side, right: Side, key: tuple[str, ...], common: Sequence[str]) -> _Pairs:
    codes, split, duplicates = _codes(left, right, key or common), left.rows, (0, 0)
    if key:
        size = int(codes.max(initial=-1)) + 1
        often = (np.bincount(codes[:split], minlength=size) > 1) | (
            np.bincount(codes[split:], minlength=size) > 1
        )
        again = np.flatnonzero(often[codes])
        if len(again):  # none of them is *the* row with that key: they are compared whole
            codes[again] = size + _codes(left, right, common, again)
        duplicates = int((again < split).sum()), int((again >= split).sum())
    if sum(duplicates) or not key:  # equal rows are told apart by counting them
        turn = np.concatenate([_occurrence(codes[:split]), _occurrence(codes[split:])])
        codes = _dense(codes * (int(turn.max(initial=0)) + 1) + turn)
    where = np.full(int(codes.max(initial=-1)) + 1, -1, np.int64)
    where[codes[split:]] = np.arange(right.rows)
    found = where[codes[:split]]
    lonely = np.ones(right.rows, bool)
    lonely[found[found >= 0]] = False
    return _Pairs(
        np.flatnonzero(found >= 0),
        found[found >= 0],
        np.flatnonzero(found < 0),
        np.flatnonzero(lonely),
        duplicates,
    )


def _codes(left: Side, right: Side, names: Iterable[str], rows: Rows | None = None) -> Rows:
    """A number below the count of rows for each row of both sides (or for `rows` of them), equal
    where these columns are.
    """
    codes: Rows | None = None
    for name in names:
        column = pa.concat_arrays(aligned(left.column(name), right.column(name)))
        encoded = (column if rows is None else column.take(pa.array(rows))).dictionary_encode(
            "encode"
        )
        fresh = encoded.indices.to_numpy().astype(np.int64)
        codes = fresh if codes is None else _dense(codes * len(encoded.dictionary) + fresh)
    # without a common column no two rows are equal
    return np.arange(left.rows + right.rows) if codes is None else codes


def _dense(codes: Rows) -> Rows:
    return np.asarray(pa.array(codes).dictionary_encode().indices.to_numpy(), np.int64)


def _occurrence(codes: Rows) -> Rows:
    """How many equal ones came before each."""
    order = np.argsort(codes, kind="stable")
    ranked = codes[order]
    starts = np.flatnonzero(np.r_[True, ranked[1:] != ranked[:-1]][: len(codes)])
    found = np.empty(len(codes), np.int64)
    found[order] = np.arange(len(codes)) - np.repeat(starts, np.diff(np.r_[starts, len(codes)]))
    return found


def _compare(
    left: Side, right: Side, pairs: _Pairs, matched: Sequence[str], geometry: str
) -> tuple[dict[str, int], Rows, Rows, list[Measure]]:
    """In how many pairs each column differs, which pairs differ, which have moved, and the profile:
    one pass over the columns.
    """
    differs, moved = np.zeros(len(pairs.a), bool), np.zeros(len(pairs.a), bool)
    touched, profile = {}, []
    for name in {**left.types, **right.types}:
        a, b = (side.column(name) if name in side.types else None for side in (left, right))
        profile += _profile(name, a, b)
        if a is None or b is None or name in matched:
            continue
        a, b = aligned(a, b)
        other = np.zeros(len(pairs.a), bool)
        for block in (slice(start, start + _BLOCK) for start in range(0, len(other), _BLOCK)):
            other[block] = ~same(a.take(pa.array(pairs.a[block])), b.take(pa.array(pairs.b[block])))
        if other.any():
            touched[name] = int(other.sum())
        differs |= other
        moved |= other & (name == geometry)
    return touched, np.flatnonzero(differs & ~moved), np.flatnonzero(moved), profile


def _profile(name: str, *sides: "pa.Array | None") -> list[Measure]:
    missing = [None if x is None else x.null_count / max(1, len(x)) for x in sides]
    found = [_measure("missing", name, *missing)]
    times, numbers = (
        all(x is None or test(x.type) for x in sides) for test in (pa.types.is_temporal, _is_number)
    )
    if times or numbers:
        ends = [
            (None, None) if x is None else values(pa.array(list(pc.min_max(x).values()), x.type))
            for x in sides
        ]
        words = ("earliest", "latest") if times else ("lowest", "highest")
        found += [_measure(word, name, *pair) for word, pair in zip(words, zip(*ends))]
    return found


def _is_number(kind: "pa.DataType") -> bool:
    return bool(
        pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)
    )


def _bounds(left: Side, right: Side) -> list[Measure]:
    """The box around all geometries, as the files state it."""
    boxes = [
        [end(e) for end, e in zip((min, min, max, max), zip(*s.boxes))] or [None] * 4
        for s in (left, right)
    ]
    return [
        _measure(w, "", *ends)
        for w, ends in zip(("west", "south", "east", "north"), zip(*boxes))
        if ends != (None, None)
    ]


def _measure(measure: str, column: str, before: Value, after: Value) -> Measure:
    change = None
    if isinstance(before, int | float) and isinstance(after, int | float):
        change = (
            after - before
            if isinstance(after, int) and isinstance(before, int)
            else float(f"{after - before:.12g}")
        )
    return Measure(measure=measure, column=column, before=before, after=after, change=change)


def _samples(
    left: Side,
    right: Side,
    pairs: _Pairs,
    differs: tuple[Rows, Rows],
    key: tuple[str, ...],
    geometry: str,
    limit: int | None,
) -> tuple[Change, ...]:
    """Some rows of each kind, so that many of one do not hide the others."""
    kinds = _shares((*differs, pairs.removed, pairs.added), limit)
    both, size = np.r_[kinds[0], kinds[1]], len(kinds[0]) + len(kinds[1])
    rows = np.r_[pairs.a[both], kinds[2]], np.r_[pairs.b[both], kinds[3]]
    old, new = (
        {n: side.column(n).take(pa.array(at)) for n in side.types if len(at)}
        for side, at in zip((left, right), rows)
    )
    other = {
        n: ~same(*aligned(old[n][:size], new[n][:size])) for n in old if n in new and n not in key
    }
    (was, was_at), (now, now_at) = (
        rows_of(picked, len(at), geometry) for picked, at in zip((old, new), rows)
    )
    found = []
    for i in range(size):
        cells = {n: (was[i][n], now[i][n]) for n, differ in other.items() if differ[i]}
        far = _metres(was_at[i], now_at[i]) if geometry in cells else None
        found.append(
            Change(
                kind="changed",
                key={k: was[i][k] for k in key},
                cells=cells,
                moved_m=far,
                old_at=was_at[i],
                new_at=now_at[i],
            )
        )
    for row, at in zip(was[size:], was_at[size:]):
        cells = {n: (v, None) for n, v in row.items() if n not in key}
        found.append(Change(kind="removed", key={k: row[k] for k in key}, cells=cells, old_at=at))
    for row, at in zip(now[size:], now_at[size:]):
        cells = {n: (None, v) for n, v in row.items() if n not in key}
        found.append(Change(kind="added", key={k: row[k] for k in key}, cells=cells, new_at=at))
    return tuple(found)


def _shares(kinds: Sequence[Rows], limit: int | None) -> list[Rows]:
    """The first of each kind: all when there is room, else alike, and what one kind leaves goes to
    the others.
    """
    found, room = list(kinds), limit
    for rank, at in enumerate(sorted(range(len(kinds)), key=lambda i: len(kinds[i]))):
        if room is not None:
            found[at] = kinds[at][: room // (len(kinds) - rank)]
            room -= len(found[at])
    return found


def _metres(a: Place | None, b: Place | None) -> float | None:
    """Great-circle distance (haversine); None where one is unknown or no longitude and latitude."""
    if a is None or b is None or not all(abs(x) <= 360 and abs(y) <= 90 for x, y in (a, b)):
        return None
    (x1, y1), (x2, y2) = ((math.radians(x), math.radians(y)) for x, y in (a, b))
    h = math.sin((y2 - y1) / 2) ** 2 + math.cos(y1) * math.cos(y2) * math.sin((x2 - x1) / 2) ** 2
    return round(2 * _EARTH_M * math.asin(min(1.0, math.sqrt(h))), 3)
