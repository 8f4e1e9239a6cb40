"""Finds rows that share a business key, with memory that does not grow with the file."""

from collections.abc import Iterator, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from kfm.connectors.arrays import Array
from kfm.connectors.read.characters import composed
from kfm.connectors.table.hashing import mixed, whole_numbers

__all__ = ["MOST", "Array", "Duplicates", "KeyFile", "buckets"]

_BUCKET = 1 << 25  # bytes sorted at once
_READ = 1 << 23  # bytes read at once; files are not mapped, their pages would count as ours
_RUN = 1 << 17  # hashes put in order at once, while the writer is at work
_KEPT = 1 << 26  # bytes of hashes in order that are kept; beyond, they are looked for in buckets
_SHOWN = 20
_TRIAL = 1 << 16  # so many rows are hashed before their order is trusted
_SHORTEST = 8  # rows of a stretch, on average: below, hashes cost no more
_STRETCH = np.dtype([("others", np.uint64), ("first", np.int64), ("last", np.int64)])
_ROW = np.dtype(
    [
        ("hash", np.int64),
        ("key", np.uint64, 2),
        ("body", np.uint64, 2),
        ("spelling", np.uint64, 2),
        ("row", np.int64),
    ]
)
_CLASH = np.dtype([("row", np.int64), ("first", np.int64), ("body", np.uint64, 2)])
MOST = 200_000  # rows in conflict that are told one by one; nobody decides on more


class Duplicates(NamedTuple):
    """What sharing a key came to: rows to drop because an equal one stands before them, and pairs
    that contradict each other.
    """

    drop: Array  # one flag per row
    conflicts: list[tuple[int, int]]  # (first row, other row), the first few by row
    conflicting: int
    # every row of a key that is contradicted: its number, that of the first, and what it says;
    # `MOST` or a few more
    clashes: Array
    # of those to drop, the first few whose key is spelt otherwise than the one that stays
    twins: list[tuple[int, int]] = []


class _Stretches:
    """Stretches of rows in which one column of the key grows and the others stay: no row of one is
    there twice, and of two only where they overlap.

    So come series: a station's days one after the other. They are a fraction of the rows.
    """

    def __init__(self) -> None:
        self._found = [np.empty(0, _STRETCH)]
        self._rows = self._count = 0

    def add(self, arrays: Sequence["pa.Array"]) -> bool:
        """Note some rows; False when they come in another order, and this leads nowhere."""
        numbers = [whole_numbers(array) for array in arrays]
        grows = max((i for i, n in enumerate(numbers) if n is not None), default=None)
        if grows is None or any(array.null_count for array in arrays):
            return False
        growing = numbers[grows]
        assert growing is not None
        begins = np.ones(len(growing), np.bool_)
        np.less_equal(growing[1:], growing[:-1], out=begins[1:])
        others = [array for i, array in enumerate(arrays) if i != grows]
        for array in others:
            begins[_changes(array)] = True
        starts = np.flatnonzero(begins)
        self._rows, self._count = self._rows + len(begins), self._count + len(starts)
        if self._count > self._rows // _SHORTEST + 64 or self._count * _STRETCH.itemsize > _KEPT:
            return False
        found = np.zeros(len(starts), _STRETCH)
        if others:
            found["others"] = mixed([composed(array.take(pa.array(starts))) for array in others])
        found["first"], found["last"] = (
            growing[starts],
            growing[np.append(starts[1:], len(begins)) - 1],
        )
        self._found.append(found)
        return True

    def are_apart(self) -> bool:
        """Whether no two of them overlap."""
        found = np.concatenate(self._found)
        found = found[np.lexsort((found["first"], found["others"]))]
        same = found["others"][1:] == found["others"][:-1]
        return not (same & (found["first"][1:] <= found["last"][:-1])).any()


def _changes(array: "pa.Array") -> Array:
    """The rows whose value is not that of the row before."""
    if pa.types.is_string(array.type) and len(array) > 1:
        ends = np.frombuffer(array.buffers()[1], np.int32, len(array) + 1, array.offset * 4)
        width = int(ends[1] - ends[0])
        # of one width, as codes are: all are compared at once
        if width > 0 and (np.diff(ends) == width).all():
            text = np.frombuffer(array.buffers()[2], np.uint8)[ends[0] : ends[-1]]
            if width in (1, 2, 4, 8):
                words = text.view(f"u{width}")
                return np.flatnonzero(words[1:] != words[:-1]) + 1
            if (text[width:] == text[:-width]).all():
                return np.empty(0, np.int64)
    found: Array = pc.run_end_encode(array).run_ends.to_numpy()[:-1]
    return found


class KeyFile:
    """Whether keys are there twice: by stretches in which they cannot be, or by one 64-bit hash per
    row, spilled to scratch.

    A hash only nominates; equality is decided on whole keys and rows, so it may be weak and may
    differ between processes.
    """

    def __init__(self, folder: Path) -> None:
        self._path, self._nominees = folder / ".keys.bin", folder / ".nominees.bin"
        self._file = self._path.open("wb")
        self._fresh: list[Array] = []  # not in order yet
        self._runs: list[Array] = []  # each in order; all of them while they are few enough to keep
        self._stretches: _Stretches | None = _Stretches()
        self._count = self._hashed = 0

    def add(self, arrays: Sequence["pa.Array"]) -> None:
        """Note the keys of some rows, one array per key column."""
        if self._stretches is not None and not self._stretches.add(arrays):
            self._stretches = None
        if self._stretches is None or self._count < _TRIAL:
            self._hash(arrays)
        self._count += len(arrays[0])

    def _hash(self, arrays: Sequence["pa.Array"]) -> None:
        hashes = mixed([composed(array) for array in arrays]).view(np.int64)
        hashes.tofile(self._file)
        self._hashed += len(hashes)
        if self._hashed * 8 < _KEPT:
            self._fresh.append(hashes)
            if sum(map(len, self._fresh)) >= _RUN:
                self._order()
        else:
            self._fresh, self._runs = [], []

    def _order(self) -> None:
        run = np.concatenate([np.empty(0, np.int64), *self._fresh])
        run.sort()
        self._runs.append(run)
        self._fresh = []

    def _twice(self) -> Array:
        """The hashes that more than one row has, in order."""
        if self._hashed * 8 >= _KEPT:
            return np.sort(
                np.concatenate(
                    [
                        _repeated(np.sort(bucket))
                        for bucket in buckets(self._path, np.dtype(np.int64))
                    ]
                )
            )
        self._order()
        together = np.concatenate(self._runs)
        self._runs = []
        together.sort(kind="stable")  # merges runs, where the other kind would begin anew
        return _repeated(together)

    def _hash_all(self, table: Path, key: tuple[str, ...]) -> None:
        """From the table itself: the first rows were in an order that made their hashes needless,
        and others were not.
        """
        self._file.truncate(0)
        self._file.seek(0)
        self._fresh, self._runs, self._hashed = [], [], 0
        with pq.ParquetFile(table) as file:
            for batch in file.iter_batches(batch_size=65_536, columns=list(key)):
                self._hash([batch.column(batch.schema.get_field_index(name)) for name in key])

    def resolve(self, table: Path, key: tuple[str, ...]) -> Duplicates | None:
        """Compare the rows of `table` whose keys were seen twice; None when there are none."""
        apart = self._stretches is not None and self._stretches.are_apart()
        if not apart and self._hashed < self._count:
            self._hash_all(table, key)
        self._file.close()
        if apart:
            return None
        twice = self._twice()
        if not len(twice):
            return None
        self._nominate(table, key, twice)
        return _judge(buckets(self._nominees, _ROW), self._count)

    def _nominate(self, table: Path, key: tuple[str, ...], twice: Array) -> None:
        """Write (key digest, row digest, row number) of every row whose hash is in `twice`, which
        is sorted.
        """
        at = 0
        with self._nominees.open("wb") as out, pq.ParquetFile(table) as file:
            for batch in file.iter_batches(batch_size=8192):
                hashes = np.fromfile(self._path, np.int64, batch.num_rows, offset=8 * at)
                # `isin` would sort all of `twice` for every batch
                places = np.searchsorted(twice, hashes)
                rows = np.flatnonzero(twice[np.minimum(places, len(twice) - 1)] == hashes)
                if len(rows):
                    _digests(batch.take(pa.array(rows)), key, hashes[rows], at + rows).tofile(out)
                at += batch.num_rows

    def remove(self) -> None:
        """Delete the scratch files."""
        self._file.close()
        self._path.unlink(missing_ok=True)
        self._nominees.unlink(missing_ok=True)


def plain(array: "pa.Array") -> list[object]:
    """Values that compare and print cheaply: times as integers."""
    if pa.types.is_timestamp(array.type):
        array = array.view(pa.int64())
    elif pa.types.is_date32(array.type):
        array = array.view(pa.int32())
    return list(array.to_pylist())


def buckets(path: Path, kind: "np.dtype[np.generic]", of: int = 0) -> Iterator[Array]:
    """Hashes, or rows with one, in groups that fit into memory; equal hashes fall into one group,
    whichever file `of` bytes they are in.
    """
    count = (of or path.stat().st_size) // _BUCKET + 1
    if count == 1:
        yield np.fromfile(path, kind)
        return
    for bucket in range(count):
        pieces = (
            piece[(piece["hash"] if kind.names else piece) % count == bucket]
            for piece in _pieces(path, kind)
        )
        yield np.concatenate([np.empty(0, kind), *pieces])


def _pieces(path: Path, kind: "np.dtype[np.generic]") -> Iterator[Array]:
    at = 0
    while len(piece := np.fromfile(path, kind, _READ // kind.itemsize, offset=at)):
        yield piece
        at += piece.nbytes


def _repeated(hashes: Array) -> Array:
    """What is there more than once among hashes in order."""
    return np.unique(hashes[1:][hashes[1:] == hashes[:-1]])


def _digests(batch: "pa.RecordBatch", key: tuple[str, ...], hashes: Array, rows: Array) -> Array:
    columns = [
        plain(composed(c) if n in key else c) for n, c in zip(batch.schema.names, batch.columns)
    ]
    places = [batch.schema.names.index(k) for k in key]
    spelt = [batch.column(p).to_pylist() for p in places]
    out = np.empty(len(rows), _ROW)
    out["hash"], out["row"] = hashes, rows
    for i, (body, spelling) in enumerate(zip(zip(*columns), zip(*spelt))):
        out["key"][i] = _digest(tuple(body[p] for p in places))
        out["body"][i] = _digest(body)
        out["spelling"][i] = _digest(spelling)
    return out


def _digest(values: tuple[object, ...]) -> Array:
    return np.frombuffer(blake2b(repr(values).encode(), digest_size=16).digest(), np.uint64)


def _judge(groups: Iterator[Array], size: int) -> Duplicates | None:
    drop = np.zeros(size, np.bool_)
    pairs: list[tuple[int, int]] = []
    twins: list[tuple[int, int]] = []
    clashes = [np.empty(0, _CLASH)]
    conflicting = 0
    for group in groups:
        group = group[np.lexsort((group["row"], group["key"][:, 1], group["key"][:, 0]))]
        new = np.ones(len(group), np.bool_)
        new[1:] = (group["key"][1:] != group["key"][:-1]).any(axis=1)
        first = np.maximum.accumulate(np.where(new, np.arange(len(group)), 0))
        same = (group["body"] == group["body"][first]).all(axis=1)
        drop[group["row"][~new & same]] = True
        clash = np.flatnonzero(~same)
        conflicting += len(clash)
        found = zip(group["row"][first[clash]].tolist(), group["row"][clash].tolist())
        if len(clash) and sum(map(len, clashes)) <= MOST:
            torn = np.isin(first, first[clash])
            clashes.append(np.empty(int(torn.sum()), _CLASH))
            clashes[-1]["row"], clashes[-1]["first"] = group["row"][torn], group["row"][first[torn]]
            clashes[-1]["body"] = group["body"][torn]
        pairs = sorted([*pairs, *found], key=lambda p: p[1])[:_SHOWN]
        other = np.flatnonzero(same & (group["spelling"] != group["spelling"][first]).any(axis=1))
        twins = sorted(
            [*twins, *zip(group["row"][first[other]].tolist(), group["row"][other].tolist())]
        )[:_SHOWN]
    return (
        Duplicates(drop, pairs, conflicting, np.concatenate(clashes), twins)
        if conflicting or drop.any()
        else None
    )
