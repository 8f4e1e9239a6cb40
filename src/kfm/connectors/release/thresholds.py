"""k for every public row: how many records it stands for, and how many there were when that last
changed in public.

What a row shows is a function of one number, `told`. It becomes the number of now when that would
show something else and differs by k or more from `since`, the number of records when the row last
changed; until then the row stays what it was. What was withdrawn is taken off
`told` first, so that a withdrawal shows at once and what else waits does not go out with it.
Numbers are compared, never records: fewer than k records cannot move a number by k, whatever
upstream calls them and however it renumbers them.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from kfm.connectors.arrays import Mask, Whole
from kfm.connectors.base import Step
from kfm.model import Json, Release, canonical

__all__ = ["Explained", "Numbers", "Shown", "band", "in_cells", "in_groups", "settled", "step"]

_COLUMN, _VALUE, _TOLD, _SINCE = "column", "value", "told", "since"
_ABOUT = b"kfm"
Counts = Whole


class Numbers(NamedTuple):
    """Of each row, or of each value a row lists."""

    told: Counts  # the records it is said to stand for
    since: Counts  # the records there were when it last changed in public


class Explained(NamedTuple):
    """What explains the public rows, and each value they list."""

    # the text of each key, then column and value (null: the row itself), then told and since
    rows: "pa.Table"
    rules: tuple[Json, ...] = ()  # the withdrawals that were applied

    @classmethod
    def read(cls, path: str | None, release: Release, keys: Sequence[str]) -> "Explained":
        """What was explained before under the same rules; under others, and where there is nothing,
        nothing was.
        """
        if path is not None:
            rows = pq.read_table(path)
            about = msgspec.json.decode((rows.schema.metadata or {}).get(_ABOUT, b"{}"))
            if about.get("release") == _settings(release) and about.get("keys") == list(keys):
                return cls(rows, tuple(about["rules"]))
        names = [*_numbers(keys), _COLUMN, _VALUE]
        nothing = {_TOLD: pa.array([], pa.int64()), _SINCE: pa.array([], pa.int64())}
        return cls(pa.table({**{n: pa.array([], pa.string()) for n in names}, **nothing}))

    def numbers(self, rows: Mask, ids: Counts, size: int) -> Numbers:
        """The numbers of some rows, each at its place among `size`; nothing explained the
        others.
        """
        found = Numbers(np.zeros(size, np.int64), np.zeros(size, np.int64))
        for into, name in zip(found, (_TOLD, _SINCE)):
            into[ids] = self.rows.column(name).to_numpy()[rows]
        return found

    def of(self, column: str | None) -> Mask:
        """Which rows are of a column's values; None: of the public rows themselves."""
        columns = self.rows.column(_COLUMN)
        return np.asarray(
            columns.is_null() if column is None else pc.equal(columns, column).fill_null(False)
        )

    def write(
        self, path: Path, release: Release, keys: Sequence[str], rules: Sequence[Json]
    ) -> None:
        """Leave it for the next release; the same numbers are the same bytes, in whatever order
        records came.
        """
        about = {
            "release": _settings(release),
            "keys": list(keys),
            "rules": sorted(rules, key=canonical.dumps),
        }
        order = pc.sort_indices(
            self.rows, sort_keys=[(name, "ascending") for name in self.rows.schema.names]
        )
        rows = (
            self.rows.take(order)
            .combine_chunks()
            .replace_schema_metadata({_ABOUT: canonical.dumps(about)})
        )
        pq.write_table(rows, path, compression="zstd")


def _settings(release: Release) -> Json:
    return {
        "h3_resolution": release.h3_resolution,
        "min_records": release.min_records,
        "groups": release.aggregate is not None,
    }


def _numbers(keys: Sequence[str]) -> list[str]:
    """Keys by their place: a column of upstream may be called anything."""
    return [str(n) for n in range(len(keys))]


class Shown(NamedTuple):
    """The rows that may be public."""

    table: "pa.Table"
    written: Mask  # which records they stand for
    explained: "pa.Table"


def step(own: Explained, other: Explained, k: int, *, cells: bool) -> Step:
    """How what is shown of some records differs from what is shown of one more or one less, both
    for the first time: not at all, where that record brings a row over k or over the edge of a
    band, or in a way that one record cannot explain.
    """
    names = own.rows.schema.names[:-2]
    tables = [t.rows.select(names) for t in (own, other)]
    texts = pa.concat_tables(tables)
    ids = _ids(texts, names)
    size = int(ids.max(initial=-1)) + 1
    there, here = (
        np.bincount(at, t.rows.column(_TOLD).to_numpy(), size)
        for at, t in zip(_split(ids, tables), (own, other))
    )
    column = texts.column(_COLUMN).take(pa.array(_first(ids)))
    is_row = np.asarray(column.is_null())
    # rows of groups show bands, all else only that it is there
    edges = np.where(is_row, 5 * k, k) if not cells else np.full(size, k)
    show = [np.where(edges > k, _place(n, _edges(k)), n >= k) for n in (there, here)]
    changed = show[0] != show[1]
    if not changed.any():
        return "none"
    blank = is_row.copy() if cells else np.zeros(size, np.bool_)
    for name in names[1:-2] if cells else ():
        blank &= np.asarray(texts.column(name).take(pa.array(_first(ids))).is_null())
    # What is not shown is less than k. Where a row goes under it, all its other records come to the
    # one without attributes.
    gap = np.abs(np.maximum(there, k - 1) - np.maximum(here, k - 1))
    rows = changed & is_row & ~blank
    values = pc.value_counts(column.filter(pa.array(changed & ~is_row))).field(1).to_pylist()
    fits = (gap[changed & ~blank] <= 1).all() and (gap[changed & blank] <= max(k - 1, 1)).all()
    return (
        "edge"
        if fits and rows.sum() <= 1 and (changed & blank).sum() <= 1 and all(n <= 1 for n in values)
        else "leap"
    )


# -- numbers


def settled(
    records: Counts, before: Numbers, gone: Counts, edges: Sequence[int], k: int
) -> Numbers:
    """What is told from now on; `gone` records were withdrawn since. Only where two numbers lie in
    different bands does anything show.
    """
    lost = (gone > 0) & (before.told >= k)  # what is not shown loses nothing
    told = np.where(lost, np.minimum(np.maximum(before.told - gone, 0), records), before.told)
    since = np.where(lost, records, before.since)
    moved = (_place(records, edges) != _place(told, edges)) & (np.abs(records - since) >= k)
    return Numbers(np.where(moved, records, told), np.where(moved, records, since))


def _place(counts: Counts, edges: Sequence[int]) -> Whole:
    return np.searchsorted(np.asarray(edges), counts, side="right")


def _edges(k: int) -> list[int]:
    # with k = 1 the lowest band is wider, or it would be a count
    return [k, 2 * k, 5 * k] if k > 1 else [1, 5]


def band(count: int, k: int) -> str:
    """How many records a group has, roughly."""
    edges = _edges(k)
    at = int(_place(np.array([count]), edges)[0])
    return f"{edges[at - 1]} to {edges[at] - 1}" if at < len(edges) else f"{edges[-1]} or more"


# -- rows


def in_cells(now: "pa.Table", withdrawn: "pa.Table", before: Explained, k: int) -> Shown:
    """One row for each cell with all the attributes that k records share; the rest of a cell, if it
    is k, is one row without any.

    The first column is the cell. `withdrawn` are the records that were taken out since.
    """
    keys = now.schema.names
    tables = [
        _texts(now),
        _texts(withdrawn),
        before.rows.select(_numbers(keys)).rename_columns(keys),
    ]
    cells = pa.table(
        {keys[0]: pc.unique(pa.concat_tables(t.select(keys[:1]) for t in tables).column(0))}
    )
    for name in keys[1:]:
        cells = cells.append_column(name, pa.nulls(len(cells), pa.string()))
    texts = pa.concat_tables([*tables, cells])
    ids = _ids(texts, keys)
    place = _ids(texts, keys[:1])
    of_now, of_gone, of_before, of_cells = _split(ids, [*tables, cells])
    first = _first(ids)
    blank = np.empty(len(cells), np.int64)
    blank[_split(place, [*tables, cells])[3]] = of_cells
    rest = blank[place[first]]  # by row: the one of its cell without attributes
    is_blank = rest == np.arange(len(first))
    records, gone = _count(of_now, len(first)), _count(of_gone, len(first))
    explained = before.numbers(before.of(None), of_before, len(first))
    own = settled(records, explained, gone, [k], k)
    was, named = (explained.told >= k) & ~is_blank, (own.told >= k) & ~is_blank

    def together(counts: Counts) -> Counts:
        return np.bincount(rest, counts, len(first)).astype(np.int64)

    # What no row with attributes stands for is told together. Records that come to it because such
    # a row went are no news of their own:
    # where it is not shown, as many more must come before it is.
    came = np.where(explained.told < k, together(np.where(was & ~named, records, 0)), 0)
    last = Numbers(explained.told, explained.since + came)
    blanks = settled(
        together(np.where(named, 0, records)), last, together(np.where(was, 0, gone)), [k], k
    )
    own = Numbers(*(np.where(is_blank, a, b) for a, b in zip(blanks, own)))
    shows = own.told >= k
    row = np.where(named[of_now], of_now, rest[of_now])
    shown, example = np.unique(row[shows[row]], return_index=True)
    example = np.flatnonzero(shows[row])[example]
    table = now.take(pa.array(example))
    without = pa.array(is_blank[shown])
    columns = [
        table.column(0),
        *(pc.if_else(without, pa.scalar(None, c.type), c) for c in table.columns[1:]),
    ]
    return Shown(pa.table(columns, names=keys), shows[row], _kept(texts, first, own))


def in_groups(
    now: "pa.Table",
    withdrawn: "pa.Table",
    before: Explained,
    k: int,
    *,
    keys: Sequence[str],
    collect: Sequence[str],
    records: str,
) -> Shown:
    """One row per group of k records, with their number as a band and the values that k of them
    hold.
    """
    named = before.rows.select(_numbers(keys)).rename_columns(list(keys))
    tables = [_texts(now.select(keys)), _texts(withdrawn.select(keys)), named]
    texts = pa.concat_tables(tables)
    ids = (
        _ids(texts, keys)
        if keys
        else np.zeros(len(now) + len(withdrawn) + len(before.rows), np.int64)
    )
    of_now, of_gone, of_before = np.split(ids, np.cumsum([len(now), len(withdrawn)]))
    first, size = _first(ids), int(ids.max(initial=-1)) + 1
    rows = before.of(None)
    own = settled(
        _count(of_now, size),
        before.numbers(rows, of_before[rows], size),
        _count(of_gone, size),
        _edges(k),
        k,
    )
    shows = own.told >= k
    shown, example = np.unique(of_now[shows[of_now]], return_index=True)
    example = np.flatnonzero(shows[of_now])[example]
    arrays = {name: now.column(name).take(pa.array(example)) for name in keys}
    arrays[records] = pa.array([band(n, k) for n in own.told[shown].tolist()], pa.string())
    explained = [_kept(texts, first, own)]
    for name in collect:
        listed, kept = _collected(
            name, (now, withdrawn), before, (of_now, of_gone, of_before), shows, k
        )
        arrays[name] = pa.array(
            ["; ".join(sorted(listed[g])) if g in listed else None for g in shown.tolist()],
            pa.string(),
        )
        explained.append(_kept(texts, first[kept.groups], kept.numbers, name, kept.values))
    return Shown(pa.table(arrays), shows[of_now], pa.concat_tables(explained))


class _Values(NamedTuple):
    groups: Counts
    values: "pa.Array"
    numbers: Numbers


def _collected(
    name: str,
    tables: "tuple[pa.Table, pa.Table]",
    before: Explained,
    ids: tuple[Counts, Counts, Counts],
    shown: Mask,
    k: int,
) -> tuple[dict[int, list[str]], _Values]:
    """By group, the values that k of its records hold, and the numbers behind them; a group that is
    not shown lists nothing.
    """
    of_column = before.of(name)
    columns = [
        *(_text(t.column(name)) for t in tables),
        before.rows.column(_VALUE).filter(pa.array(of_column)),
    ]
    codes, values = _coded(
        pa.chunked_array([c for column in columns for c in column.chunks], pa.string()),
        nulls="mask",
    )
    there, groups = codes >= 0, np.concatenate([ids[0], ids[1], ids[2][of_column]])
    pairs, at = np.unique(groups[there] * max(len(values), 1) + codes[there], return_inverse=True)
    which = np.repeat(np.arange(3), [len(c) for c in columns])[there]
    records, gone = (_count(at[which == n], len(pairs)) for n in (0, 1))
    last = before.numbers(of_column, at[which == 2], len(pairs))
    of_pair, value = pairs // max(len(values), 1), pairs % max(len(values), 1)
    # What went with its row comes back by itself.
    unlisted = Numbers(
        np.zeros(len(pairs), np.int64), np.where(last.told >= k, records, last.since)
    )
    own = Numbers(
        *(
            np.where(shown[of_pair], a, b)
            for a, b in zip(settled(records, last, gone, [k], k), unlisted)
        )
    )
    texts, found = values.to_pylist(), dict[int, list[str]]()
    for group, code in zip(of_pair[own.told >= k].tolist(), value[own.told >= k].tolist()):
        found.setdefault(group, []).append(texts[code])
    return found, _Values(of_pair, values.take(pa.array(value)), own)


def _kept(
    texts: "pa.Table",
    first: Counts,
    own: Numbers,
    column: str | None = None,
    values: "pa.Array | None" = None,
) -> "pa.Table":
    """What the next release must know: rows by the text of their keys, with their numbers, unless
    those are zero.
    """
    there = np.flatnonzero((own.told > 0) | (own.since > 0))
    at = pa.array(first[there])
    rows: dict[str, pa.Array] = {
        number: c.take(at) for number, c in zip(_numbers(texts.schema.names), texts.columns)
    }
    rows[_COLUMN] = pa.array([column] * len(there), pa.string())
    rows[_VALUE] = (
        values.take(pa.array(there)) if values is not None else pa.nulls(len(there), pa.string())
    )
    return pa.table(
        {
            **rows,
            _TOLD: pa.array(own.told[there], pa.int64()),
            _SINCE: pa.array(own.since[there], pa.int64()),
        }
    )


def _texts(table: "pa.Table") -> "pa.Table":
    return pa.table({name: _text(table.column(name)) for name in table.schema.names})


def _text(column: "pa.ChunkedArray") -> "pa.ChunkedArray":
    """Values as text, which stays the same when upstream's other values give the column another
    type.
    """
    codes, values = _coded(column, nulls="mask")
    at = pa.array(codes, mask=codes < 0)
    return pa.chunked_array([pc.cast(values, pa.string()).take(at)], pa.string())


def _coded(column: "pa.ChunkedArray", nulls: str) -> tuple[Counts, "pa.Array"]:
    """A number per row, equal for equal values, and the values; -1 for null when nulls are
    masked.
    """
    column = pc.add(column, 0.0) if pa.types.is_floating(column.type) else column
    encoded = column.combine_chunks().dictionary_encode(nulls)
    return (
        encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64),
        encoded.dictionary,
    )


def _ids(table: "pa.Table", names: Sequence[str]) -> Counts:
    """A number per row, equal for rows that are equal in some columns, without gaps."""
    ids = np.zeros(len(table), np.int64)
    for name in names:
        codes, values = _coded(table.column(name), nulls="encode")
        ids = np.unique(ids * max(len(values), 1) + codes, return_inverse=True)[1]
    return ids


def _split(ids: Counts, tables: "Sequence[pa.Table]") -> list[Counts]:
    return np.split(ids, np.cumsum([len(t) for t in tables])[:-1])


def _first(ids: Counts) -> Counts:
    found: Counts = np.unique(ids, return_index=True)[1]
    return found


def _count(ids: Counts, size: int) -> Counts:
    return np.bincount(ids, minlength=size).astype(np.int64)
