"""One byte-stable Parquet file, its content id and its profile, from batches of any size."""

import datetime as dt
import hashlib
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from kfm import canonical
from kfm.clock import rfc3339
from kfm.connectors.base import ColumnProfile
from kfm.connectors.geometry import GeoColumn
from kfm.connectors.values import ARROW
from kfm.model.dataset import Column

__all__ = ["Extent", "TableWriter", "arrow_schema"]

# A row group ends at whichever comes first, counted over rows alone, so that where the reader cut its blocks leaves no trace.
GROUP_ROWS = 65_536
GROUP_BYTES = 48 << 20


class Extent:
    """Bounds and types of a geometry column, gathered as rows pass."""

    def __init__(self) -> None:
        self.low, self.high = np.full(3, np.inf), np.full(3, -np.inf)
        self.types: set[str] = set()

    def add(self, column: GeoColumn) -> None:
        """Take in some rows."""
        if not column.codes.any():
            return
        self.low, self.high = np.fmin(self.low, np.fmin.reduce(column.low)), np.fmax(self.high, np.fmax.reduce(column.high))
        self.types |= column.type_names()

    @property
    def bbox(self) -> tuple[float, float, float, float] | None:
        """West, south, east, north; None without geometry."""
        if not self.types:
            return None
        return float(self.low[0]), float(self.low[1]), float(self.high[0]), float(self.high[1])

    def geoparquet(self, column: str) -> bytes:
        """The `geo` metadata of GeoParquet 1.1; no `crs` member means longitude and latitude on WGS 84."""
        about: dict[str, Any] = {"encoding": "WKB", "geometry_types": sorted(self.types)}
        if self.types:
            axes = 3 if np.isfinite(self.low[2]) else 2
            about["bbox"] = [*self.low[:axes].tolist(), *self.high[:axes].tolist()]
        return canonical.dumps({"version": "1.1.0", "primary_column": column, "columns": {column: about}})


def arrow_schema(columns: tuple[Column, ...]) -> "pa.Schema":
    """The columns as Arrow fields."""
    return pa.schema([pa.field(c.name, ARROW[c.type], nullable=c.nullable) for c in columns])


class TableWriter:
    """Writes rows in the order they come.

    Encoding and hashing run in one thread beside the reader: both let go of the interpreter lock.
    """

    def __init__(self, path: Path, columns: tuple[Column, ...], keys: tuple[str, ...]) -> None:
        self.rows = 0
        self._columns, self._schema = columns, arrow_schema(columns)
        self._hash = hashlib.sha256(canonical.dumps([msgspec.to_builtins(c) for c in columns]))
        self._profiles = [_Profile(c) for c in columns]
        self._pending: list[pa.RecordBatch] = []
        self._pending_rows = self._pending_bytes = 0
        self._pool = ThreadPoolExecutor(1, "parquet")
        self._busy: Future[None] | None = None
        names = [c.name for c in columns if c.type != "geometry"]
        self._file = pq.ParquetWriter(
            path,
            self._schema,
            compression="zstd",
            compression_level=3,
            # numbers and single-column keys rarely repeat: a dictionary would be built only to be thrown away
            use_dictionary=[c.name for c in columns if c.type in ("string", "date", "json") and keys != (c.name,)],
            write_statistics=names,
            store_schema=False,  # Parquet's own types say it all; Arrow's copy would hide the `geo` entry from readers
        )

    def add(self, batch: "pa.RecordBatch") -> None:
        """Take in some rows."""
        for piece, full in self._cut(batch):
            self._pending.append(piece)
            if full:
                self._flush()

    def _cut(self, batch: "pa.RecordBatch") -> Iterator[tuple["pa.RecordBatch", bool]]:
        """The batch in pieces, each marked when it fills a row group."""
        while batch.num_rows:
            size = _payload(batch)
            room = GROUP_ROWS - self._pending_rows
            if batch.num_rows < room and self._pending_bytes + size < GROUP_BYTES:
                self._pending_rows += batch.num_rows
                self._pending_bytes += size
                yield batch, False
                return
            sums = np.cumsum(_row_sizes(batch)) + self._pending_bytes
            take = min(room, int(np.searchsorted(sums, GROUP_BYTES)) + 1, batch.num_rows)
            full = take == room or bool(sums[take - 1] >= GROUP_BYTES)
            self._pending_rows += take
            self._pending_bytes = int(sums[take - 1])
            yield batch.slice(0, take), full
            batch = batch.slice(take)

    def _flush(self) -> None:
        if not self._pending:
            return
        group = pa.Table.from_batches(self._pending, self._schema).combine_chunks()
        self.rows += group.num_rows
        self._pending, self._pending_rows, self._pending_bytes = [], 0, 0
        self._wait()
        self._busy = self._pool.submit(self._write, group)

    def _wait(self) -> None:
        if self._busy is not None:
            self._busy.result()

    def _write(self, group: "pa.Table") -> None:
        self._file.write_table(group, row_group_size=GROUP_ROWS)
        for column, profile in zip(group.columns, self._profiles):
            array = column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
            profile.add(array)
            _hash_array(self._hash, array)

    def close(self, geo: tuple[str, Extent] | None) -> tuple[str, dict[str, ColumnProfile]]:
        """Finish the file; its content id and profile."""
        try:
            self._flush()
            self._wait()
            if geo is not None:
                self._file.add_key_value_metadata({"geo": geo[1].geoparquet(geo[0])})
        finally:
            self.abandon()
        return "sha256:" + self._hash.hexdigest(), {p.column.name: p.result() for p in self._profiles}

    def abandon(self) -> None:
        """Let go of the file and the thread; what was written is not used."""
        self._pool.shutdown(wait=True, cancel_futures=True)
        self._file.close()


def _payload(batch: "pa.RecordBatch") -> int:
    """The bytes of text and binary in some rows: additive, so independent of how they were cut."""
    return sum(_ends(c)[1] - _ends(c)[0] for c in batch.columns if _is_long(c))


def _row_sizes(batch: "pa.RecordBatch") -> Any:
    sizes = np.zeros(batch.num_rows, np.int64)
    for column in batch.columns:
        if _is_long(column):
            sizes += np.diff(_offsets(column))
    return sizes


def _is_long(array: "pa.Array") -> bool:
    return bool(pa.types.is_string(array.type) or pa.types.is_binary(array.type))


def _offsets(array: "pa.Array") -> Any:
    return np.frombuffer(array.buffers()[1], np.int32, len(array) + 1, array.offset * 4)


def _ends(array: "pa.Array") -> tuple[int, int]:
    offsets = _offsets(array)
    return int(offsets[0]), int(offsets[-1])


def _hash_array(into: Any, array: "pa.Array") -> None:
    """Nulls, lengths, values: nothing of how Arrow happened to lay them out, such as what lies under a null."""
    nulls = array.null_count
    into.update(len(array).to_bytes(8, "little") + nulls.to_bytes(8, "little"))
    if nulls:
        into.update(np.packbits(array.is_valid().to_numpy(zero_copy_only=False)))
    if _is_long(array):
        plain = array.fill_null("" if pa.types.is_string(array.type) else b"") if nulls else array
        offsets = _offsets(plain)
        into.update(np.diff(offsets))
        if offsets[-1] > offsets[0]:
            into.update(memoryview(plain.buffers()[2])[int(offsets[0]) : int(offsets[-1])])
        return
    if pa.types.is_boolean(array.type):
        array = array.cast(pa.uint8())
    elif pa.types.is_timestamp(array.type):
        array = array.view(pa.int64())
    elif pa.types.is_date32(array.type):
        array = array.view(pa.int32())
    into.update((array.fill_null(0) if nulls else array).to_numpy(zero_copy_only=False))


class _Profile:
    """Nulls and extremes of one column as its row groups pass."""

    def __init__(self, column: Column) -> None:
        self.column = column
        self._nulls = 0
        self._ordered = column.type not in ("geometry", "json")
        self._low: Any = None
        self._high: Any = None

    def add(self, array: "pa.Array") -> None:
        self._nulls += array.null_count
        if not self._ordered or array.null_count == len(array):
            return
        if pa.types.is_timestamp(array.type):
            array = array.view(pa.int64())  # a year beyond 9999 has no datetime
        ends = pc.min_max(array)
        low, high = ends["min"].as_py(), ends["max"].as_py()
        self._low = low if self._low is None else min(self._low, low)
        self._high = high if self._high is None else max(self._high, high)

    def result(self) -> ColumnProfile:
        return ColumnProfile(nulls=self._nulls, min=self._shown(self._low), max=self._shown(self._high))

    def _shown(self, value: Any) -> str | None:
        if value is None:
            return None
        if self.column.type == "timestamp":
            try:
                return rfc3339(dt.datetime(1970, 1, 1, tzinfo=dt.UTC) + dt.timedelta(microseconds=value))
            except OverflowError:
                return f"{value} us"
        if isinstance(value, bool):
            return str(value).lower()
        return str(value)[:200]
