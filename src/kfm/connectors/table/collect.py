"""Collect: many parts of one table, in their order, into one and into a base version; parts are
read one after the other.
"""

from collections.abc import Iterator, Sequence
from hashlib import blake2b
from itertools import pairwise
from pathlib import Path

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from kfm.connectors.arrays import Mask, Whole
from kfm.connectors.base import Books, InputFile, TransformResult
from kfm.connectors.operations import Collect, Merge
from kfm.connectors.table.merge import cast, columns_after, keys_of, merge, telling, within
from kfm.connectors.table.table import Table
from kfm.connectors.table.writer import arrow_schema
from kfm.model import Column, kind_of

__all__ = ["collect"]

_REPLACED = "in a later part again"
_BATCH = 65_536


def collect(job: Collect, scratch: Path) -> TransformResult:
    """The base, where the first input is one, and every part after it.

    A key keeps the place of its first part and has the values of its last. Where parts bear on each
    other by more than their keys (their windows overlap, or rows tell what became of others), they
    are merged one by one instead.
    """
    base = job.inputs[0] if job.inputs and job.inputs[0].source_id == "base" else None
    parts = job.inputs[1:] if base is not None else job.inputs
    if job.business_key and (_overlap(job, parts) or telling(job, arrow_schema(job.schema))):
        return _one_by_one(job, base, parts, scratch)
    if base is None:
        return _Collected(job, parts).write(scratch / job.artifact)
    (scratch / "collected").mkdir()
    path = scratch / "collected" / job.artifact
    made = _Collected(job, parts).write(path)
    kept = tuple(_joined(job.windows))
    inputs = (base, InputFile(source_id="part", path=str(path), digest=""))
    merged = _merge(job, inputs, scratch, schema=made.schema, windows=kept)
    path.unlink()
    books = msgspec.structs.replace(
        merged.books, read=made.books.read, dropped={**merged.books.dropped, **made.books.dropped}
    )
    return msgspec.structs.replace(merged, books=books)


def _merge(
    job: Collect,
    inputs: tuple[InputFile, ...],
    scratch: Path,
    *,
    schema: tuple[Column, ...],
    windows: tuple[tuple[str, str], ...] = (),
    since: str | None = None,
    until: str | None = None,
    incomplete: bool = False,
) -> TransformResult:
    order = Merge(
        dataset_id=job.dataset_id,
        source_kind=job.source_kind,
        inputs=inputs,
        business_key=job.business_key,
        time_column=job.time_column,
        artifact=job.artifact,
        schema=schema,
        windows=windows,
        since=since,
        until=until,
        incomplete=incomplete,
    )
    if job.business_key:
        return merge(order, scratch)
    from kfm.connectors.table.append import append

    return append(order, scratch)


def _joined(windows: Sequence[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    """Windows that follow each other as one."""
    held: tuple[str, str] | None = None
    for since, until in sorted(w for w in windows if w[0]):
        if held is not None and held[1] >= since:
            held = held[0], max(held[1], until)
            continue
        if held is not None:
            yield held
        held = since, until
    if held is not None:
        yield held


def _overlap(job: Collect, parts: Sequence[InputFile]) -> bool:
    """Whether a part speaks of time that another one covers: then what it lacks is gone from the
    other.
    """
    windows = sorted(w for w in job.windows if w[0])
    if any(after[0] < before[1] for before, after in pairwise(windows)):
        return True
    for part, (since, until) in zip(parts, job.windows):
        with pq.ParquetFile(part.path) as file:
            names = file.schema_arrow.names
            if (
                not since
                or job.time_column not in names
                or not pa.types.is_timestamp(file.schema_arrow.field(job.time_column).type)
            ):
                continue
            times = file.read(columns=[job.time_column]).column(0)
            if not within(times.drop_null(), since, until).all():
                return True
    return False


def _one_by_one(
    job: Collect, base: InputFile | None, parts: Sequence[InputFile], scratch: Path
) -> TransformResult:
    """As if each part had been merged by a run of its own."""
    left = list(zip(parts, job.windows))
    held, books, names = base, Books(), {c.name: c for c in job.schema}
    if held is None:
        held = left.pop(0)[0]
        books = Books(read=(rows := pq.read_metadata(held.path).num_rows), written=rows)
    for number, (part, window) in enumerate(left):
        (folder := scratch / f"step{number % 2}").mkdir(exist_ok=True)
        own = tuple(names[n] for n in pq.read_schema(part.path).names)
        last = _merge(
            job,
            (held, part),
            folder,
            schema=own,
            since=window[0] or None,
            until=window[1] or None,
            incomplete=not window[0],
        )
        books = _sum(books, last.books)
        held = InputFile(source_id="base", path=str(folder / job.artifact), digest="")
    Path(held.path).rename(scratch / job.artifact)
    return msgspec.structs.replace(last, books=books)


def _sum(a: Books, b: Books) -> Books:
    dropped = {k: a.dropped.get(k, 0) + b.dropped.get(k, 0) for k in {**a.dropped, **b.dropped}}
    return Books(
        read=a.read + b.read,
        written=a.written + b.written,
        unchanged=a.unchanged + b.unchanged,
        dropped=dropped,
    )


class _Collected:
    """One pass over the keys of all parts, then one over their rows. Of every row sixteen bytes
    stay in memory.
    """

    def __init__(self, job: Collect, parts: Sequence[InputFile]) -> None:
        self._job, self._parts = job, parts
        self._rows: list[int] = []
        names, order = {c.name: c for c in job.schema}, dict[str, None]()
        for part in parts:
            with pq.ParquetFile(part.path) as file:
                have = file.schema_arrow
                columns_after(have, tuple(names[n] for n in have.names))  # refuses another type
                order |= dict.fromkeys(have.names)
                self._rows.append(file.metadata.num_rows)
        self._columns: tuple[Column, ...] = tuple(names[n] for n in order)
        self._schema = arrow_schema(self._columns)
        self._starts = np.concatenate([[0], np.cumsum(self._rows)]).astype(np.int64)
        self._first: Mask | None = None
        self._last: Whole = np.empty(0, np.int64)
        if job.business_key:
            self._first, self._last = self._places()

    def _places(self) -> tuple[Mask, Whole]:
        """(whether a row is the first of its key, where the last row of its key stands)."""
        total = int(self._starts[-1])
        digests = np.empty((total, 2), np.uint64)
        for start, rows, part in zip(self._starts.tolist(), self._rows, self._parts):
            table = pq.read_table(
                part.path, columns=list(self._job.business_key), partitioning=None
            )
            keys = keys_of(table, self._job.business_key).to_pylist()
            found = b"".join(blake2b((k or "\0").encode(), digest_size=16).digest() for k in keys)
            digests[start : start + rows] = np.frombuffer(found, np.uint64).reshape(-1, 2)
        # stable: equal keys stay in the order of their rows
        order = np.lexsort((digests[:, 1], digests[:, 0]))
        same = np.zeros(total, bool)
        same[1:] = (digests[order][1:] == digests[order][:-1]).all(axis=1)
        first, last = np.ones(total, bool), np.arange(total)
        first[order[same]] = False
        ends = np.flatnonzero(~np.append(same[1:], False)) if total else np.empty(0, np.int64)
        groups = np.cumsum(~same) - 1
        last[order] = order[ends][groups] if total else last[order]
        return first, last

    def write(self, path: Path) -> TransformResult:
        naming = kind.names if (kind := kind_of(self._job.source_kind)) is not None else ""
        with Table(path, self._columns, self._job.business_key, naming=naming) as table:
            for batch in self._batches():
                table.add(batch)
            table.finish()
            read = int(self._starts[-1])
            replaced = read - table.rows
            return table.result(
                Books(
                    read=read, written=table.rows, dropped={_REPLACED: replaced} if replaced else {}
                )
            )

    def _batches(self) -> "Iterator[pa.RecordBatch]":
        late, places = self._late()
        for start, part in zip(self._starts.tolist(), self._parts):
            with pq.ParquetFile(part.path) as file:
                for raw in file.iter_batches(batch_size=_BATCH):
                    table = cast(pa.Table.from_batches([raw]), self._schema)
                    yield from self._chosen(table, start, late, places).to_batches()
                    start += table.num_rows

    def _chosen(
        self, table: "pa.Table", start: int, late: "pa.Table | None", places: Whole
    ) -> "pa.Table":
        """Of some rows those that are the first of their key, each as its last part has it."""
        if self._first is None or late is None:
            return table
        span = slice(start, start + table.num_rows)
        mine, last = np.flatnonzero(self._first[span]), self._last[span]
        at = np.where(last == np.arange(span.start, span.stop), np.arange(table.num_rows), 0)
        moved = last != np.arange(span.start, span.stop)
        at[moved] = table.num_rows + np.searchsorted(places, last[moved])
        return pa.concat_tables([table, late]).take(pa.array(at[mine])).combine_chunks()

    def _late(self) -> "tuple[pa.Table | None, Whole]":
        """The rows that take an earlier one's place, and where they stand; None when no key comes
        twice.
        """
        if self._first is None or self._first.all():
            return None, np.empty(0, np.int64)
        places = np.unique(self._last[self._first & (self._last != np.arange(len(self._last)))])
        found = []
        for start, rows, part in zip(self._starts.tolist(), self._rows, self._parts):
            here = places[(places >= start) & (places < start + rows)] - start
            if len(here):
                found.append(
                    cast(pq.read_table(part.path, partitioning=None), self._schema).take(
                        pa.array(here)
                    )
                )
        return pa.concat_tables(found).combine_chunks(), places
