"""One byte-stable Parquet file, its content id and its profile, from batches of any size."""

import datetime as dt
import hashlib
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from kfm.connectors.arrays import Mask, Whole
from kfm.connectors.base import ColumnProfile, Refused
from kfm.connectors.read.geometry import GeoColumn
from kfm.connectors.table.values import ARROW
from kfm.model import Column, Json, canonical, rfc3339

__all__ = ["Extent", "TableWriter", "arrow_schema"]

# A row group ends at whichever comes first, counted over rows alone, so that where the reader cut
# its blocks leaves no trace.
GROUP_ROWS = 65_536
GROUP_BYTES = 48 << 20
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


class Extent:
    """Bounds and types of a geometry column, gathered as rows pass."""

    def __init__(self) -> None:
        self.low, self.high = np.full(3, np.inf), np.full(3, -np.inf)
        self.types: set[str] = set()

    def add(self, column: GeoColumn) -> None:
        """Take in some rows."""
        if not column.codes.any():
            return
        self.low, self.high = (
            np.fmin(self.low, np.fmin.reduce(column.low)),
            np.fmax(self.high, np.fmax.reduce(column.high)),
        )
        self.types |= column.type_names()

    @property
    def bbox(self) -> tuple[float, float, float, float] | None:
        """West, south, east, north; None without geometry."""
        if not self.types:
            return None
        return float(self.low[0]), float(self.low[1]), float(self.high[0]), float(self.high[1])

    def geoparquet(self, column: str) -> bytes:
        """The `geo` metadata of GeoParquet 1.1; no `crs` member means longitude and latitude on WGS
        84.
        """
        about: Json = {"encoding": "WKB", "geometry_types": sorted(self.types)}
        if self.types:
            axes = 3 if np.isfinite(self.low[2]) else 2
            about["bbox"] = [*self.low[:axes].tolist(), *self.high[:axes].tolist()]
        return canonical.dumps(
            {"version": "1.1.0", "primary_column": column, "columns": {column: about}}
        )


def arrow_schema(columns: tuple[Column, ...]) -> "pa.Schema":
    """The columns as Arrow fields."""
    return pa.schema([pa.field(c.name, ARROW[c.type], nullable=c.nullable) for c in columns])


class TableWriter:
    """Writes rows in the order they come.

    Encoding and hashing each run in a thread beside the reader: both let go of the interpreter
    lock.
    """

    def __init__(self, path: Path, columns: tuple[Column, ...], keys: tuple[str, ...]) -> None:
        self.rows = 0
        self._path, self._columns, self._schema = path, columns, arrow_schema(columns)
        self._hash = hashlib.sha256(canonical.dumps([msgspec.to_builtins(c) for c in columns]))
        self._checked: list[Future[_Found]] = []
        self._profiles = [_Profile(c) for c in columns]
        self._pending: list[pa.RecordBatch] = []
        self._pending_rows = self._pending_bytes = 0
        self._pool, self._beside = ThreadPoolExecutor(1, "parquet"), ThreadPoolExecutor(1, "hash")
        self._busy: list[Future[None]] = []
        self._groups = 0
        # row groups and columns whose extremes their statistics tell
        self._stated: list[tuple[int, int]] = []
        names = [c.name for c in columns if c.type != "geometry"]
        self._file = pq.ParquetWriter(
            path,
            self._schema,
            compression="zstd",
            compression_level=3,
            # numbers and single-column keys rarely repeat: a dictionary would be built only to be
            # thrown away
            use_dictionary=[
                c.name
                for c in columns
                if c.type in ("string", "date", "json") and keys != (c.name,)
            ],
            write_statistics=names,
            # Parquet's own types say it all; Arrow's copy would hide the `geo` entry from readers
            store_schema=False,
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
            room = GROUP_ROWS - self._pending_rows
            head = batch.slice(0, room)
            size = _payload(head)
            if self._pending_bytes + size < GROUP_BYTES:
                self._pending_rows += head.num_rows
                self._pending_bytes += size
                yield head, head.num_rows == room
                batch = batch.slice(head.num_rows)
                continue
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
        group = pa.Table.from_batches(self._pending, self._schema)
        self.rows += group.num_rows
        self._pending, self._pending_rows, self._pending_bytes = [], 0, 0
        self._wait()
        whole = self._beside.submit(group.combine_chunks)
        self._busy = [
            self._pool.submit(self._write, whole),
            self._beside.submit(self._look, whole, self._groups),
        ]
        self._groups += 1

    def _wait(self) -> None:
        for work in self._busy:
            work.result()

    def _write(self, group: "Future[pa.Table]") -> None:
        self._file.write_table(group.result(), row_group_size=GROUP_ROWS)

    def _look(self, group: "Future[pa.Table]", number: int) -> None:
        for at, (column, profile) in enumerate(zip(group.result().columns, self._profiles)):
            array = _whole(column)
            lengths = np.diff(_offsets(array)) if _is_long(array) else None
            # else the chunk may have no statistics
            short = lengths is not None and int(lengths.max(initial=0)) <= _STATED
            if profile.add(array, stated=short and bool(pa.types.is_string(array.type))):
                self._stated.append((number, at))
            _hash_array(self._hash, array, lengths)

    def finish(self, geo: tuple[str, Extent] | None) -> tuple[str, dict[str, ColumnProfile]]:
        """Finish the file and begin to read it back; its content id and profile. `verify` has the
        last word.
        """
        try:
            self._flush()
            self._wait()
            if geo is not None:
                self._file.add_key_value_metadata({"geo": geo[1].geoparquet(geo[0])})
        finally:
            self.abandon()
        # reading back takes as much again: what the encoder had is given back before
        pa.default_memory_pool().release_unused()
        self._take_stated()
        profile = {p.column.name: p.result() for p in self._profiles}
        pool = ThreadPoolExecutor(_READERS, "read-back")
        self._checked = [
            pool.submit(_read_back, self._path, self._columns, part) for part in range(_READERS)
        ]
        pool.shutdown(wait=False)
        return "sha256:" + self._hash.hexdigest(), profile

    def verify(self) -> None:
        """Wait until the file is read back. Raises `Refused` when it is not what was written."""
        if not self._checked:
            return
        parts = [part.result() for part in self._checked]
        profiles = [_Profile.of_all(some) for some in zip(*(part.profiles for part in parts))]
        if sum(part.rows for part in parts) != self.rows or [p.found for p in profiles] != [
            p.found for p in self._profiles
        ]:
            raise _unreadable(self._path.name, "it holds other values than were written")

    def _take_stated(self) -> None:
        """What the encoder saw of texts as it wrote them: comparing all of them once more would
        take as long again.
        """
        if not self._stated:
            return
        try:
            metadata = pq.read_metadata(self._path)
        except (pa.ArrowException, OSError) as error:
            raise _unreadable(self._path.name, str(error)[:200]) from error
        for group, at in self._stated:
            told = metadata.row_group(group).column(at).statistics
            if told is None or not told.has_min_max:
                raise _unreadable(
                    self._path.name, f"it tells no extremes of {self._columns[at].name}"
                )
            self._profiles[at].widen(told.min, told.max)

    def abandon(self) -> None:
        """Let go of the file and the thread; what was written is not used."""
        for pool in (self._pool, self._beside):
            pool.shutdown(wait=True, cancel_futures=True)
        self._file.close()


class _Found(NamedTuple):
    """What is read back: rows, and of each column nulls and extremes."""

    rows: int
    profiles: "list[_Profile]"


def _read_back(path: Path, columns: tuple[Column, ...], part: int) -> _Found:
    """What a table holds as its own library reads it, a row group at a time; of several readers
    each takes its turn.
    """
    rows, profiles = 0, [_Profile(c) for c in columns]
    try:
        with pq.ParquetFile(path) as file:
            coded = _coded(file)
        with pq.ParquetFile(path, read_dictionary=coded) as file:
            for number in range(part, file.num_row_groups, _READERS):
                # beside the search for keys that are there twice
                group = file.read_row_group(number, use_threads=False)
                rows += group.num_rows
                for column, profile in zip(group.columns, profiles):
                    for chunk in column.chunks:
                        profile.add(chunk)
    except (pa.ArrowException, OSError) as error:
        raise _unreadable(path.name, str(error)[:200]) from error
    return _Found(rows, profiles)


def _coded(file: "pq.ParquetFile") -> list[str]:
    """Text that repeats so much that its few values need not be written out again for every row."""
    if not file.num_row_groups:
        return []
    group = file.metadata.row_group(0)
    chunks = [(f, group.column(i)) for i, f in enumerate(file.schema_arrow)]
    return [
        f.name
        for f, c in chunks
        if pa.types.is_string(f.type) and c.total_uncompressed_size < 2 * group.num_rows
    ]


def _whole(column: "pa.ChunkedArray") -> "pa.Array":
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def _unreadable(name: str, why: str) -> Refused:
    return Refused(
        "table.unreadable",
        f"{name} cannot be read back as it was written: {why}.",
        expected="the rows that were written, as pyarrow reads them",
        remedy=(
            "Nothing is published from it. Check the disk and the memory, then run again; report it"
            " if it stays so."
        ),
    )


def _payload(batch: "pa.RecordBatch") -> int:
    """The bytes of text and binary in some rows: additive, so independent of how they were cut."""
    return sum(_ends(c)[1] - _ends(c)[0] for c in batch.columns if _is_long(c))


def _row_sizes(batch: "pa.RecordBatch") -> Whole:
    sizes = np.zeros(batch.num_rows, np.int64)
    for column in batch.columns:
        if _is_long(column):
            sizes += np.diff(_offsets(column))
    return sizes


def _is_long(array: "pa.Array") -> bool:
    return bool(pa.types.is_string(array.type) or pa.types.is_binary(array.type))


def _offsets(array: "pa.Array") -> npt.NDArray[np.int32]:
    return np.frombuffer(array.buffers()[1], np.int32, len(array) + 1, array.offset * 4)


def _ends(array: "pa.Array") -> tuple[int, int]:
    offsets = _offsets(array)
    return int(offsets[0]), int(offsets[-1])


def _hash_array(
    into: "hashlib._Hash", array: "pa.Array", lengths: npt.NDArray[np.int32] | None
) -> None:
    """Nulls, lengths (of text and binary), values: nothing of how Arrow happened to lay them out,
    such as what lies under a null.
    """
    nulls = array.null_count
    into.update(len(array).to_bytes(8, "little") + nulls.to_bytes(8, "little"))
    valid = _valid(array) if nulls else None
    if valid is not None:
        into.update(np.packbits(valid).data)
    if lengths is not None:
        # most arrays have nothing under a null
        if valid is not None and (lengths.astype(np.bool_) > valid).any():
            array = array.fill_null("" if pa.types.is_string(array.type) else b"")
            lengths = np.diff(_offsets(array))
        into.update(lengths.data)
        first, end = _ends(array)
        if end > first:
            into.update(memoryview(array.buffers()[2])[first:end])
        return
    if pa.types.is_boolean(array.type):
        array = array.cast(pa.uint8())
    elif pa.types.is_timestamp(array.type):
        array = array.view(pa.int64())
    elif pa.types.is_date32(array.type):
        array = array.view(pa.int32())
    into.update((array.fill_null(0) if nulls else array).to_numpy(zero_copy_only=False))


def _valid(array: "pa.Array") -> Mask:
    """Where there is a value, straight from the bits that say so."""
    bits = array.buffers()[0]
    if bits is None:  # a column of nothing but nulls has none
        return np.asarray(array.is_valid())
    held = np.frombuffer(bits, np.uint8)[array.offset // 8 :]
    return np.unpackbits(held, count=array.offset % 8 + len(array), bitorder="little")[
        array.offset % 8 :
    ].view(np.bool_)


# of row groups, at the same time: what is read back is waited for, and its reading lets go of the
# interpreter lock
_READERS = 2
# bytes of a text: Parquet's statistics are left out when both together have more than 4096
_STATED = 1000
_TOLD = 200  # characters of a text that its profile tells
_LONG_TEXTS = 4096  # bytes of a value, on average


Extreme = float | str  # times as numbers


class _Profile:
    """Nulls and extremes of one column as its row groups pass."""

    def __init__(self, column: Column) -> None:
        self.column = column
        self._nulls = 0
        self._ordered = column.type not in ("geometry", "json")
        self._low: Extreme | None = None
        self._high: Extreme | None = None

    def add(self, array: "pa.Array", *, stated: bool = False) -> bool:
        """Take in some rows; whether their extremes are yet to be told, because they are `stated`
        elsewhere.
        """
        self._nulls += array.null_count
        if not self._ordered or array.null_count == len(array):
            return False
        if stated:
            return True
        if pa.types.is_dictionary(array.type):
            array = array.dictionary  # a file holds none but those that are used
        if pa.types.is_timestamp(array.type):
            array = array.view(pa.int64())  # a year beyond 9999 has no datetime
        elif pa.types.is_date32(array.type):
            array = array.view(pa.int32())
        if pa.types.is_string(array.type) and array.nbytes > _LONG_TEXTS * len(array):
            # no more is told of them, and both ends would be held whole
            array = pc.utf8_slice_codeunits(array, 0, _TOLD)
        ends = pc.min_max(array)
        self.widen(ends["min"].as_py(), ends["max"].as_py())
        return False

    def widen(self, low: Extreme, high: Extreme) -> None:
        """Take in the extremes of some values."""
        self._low = low if self._low is None else min(self._low, low)
        self._high = high if self._high is None else max(self._high, high)

    @classmethod
    def of_all(cls, parts: "Sequence[_Profile]") -> "_Profile":
        """What several parts of one column are together."""
        found = cls(parts[0].column)
        for part in parts:
            found._nulls += part._nulls
            if part._low is not None and part._high is not None:
                found.widen(part._low, part._high)
        return found

    @property
    def found(self) -> tuple[int, Extreme | None, Extreme | None]:
        """What was seen so far, as far as it is told: long texts may have been cut before they were
        compared.
        """
        low, high = (v[:_TOLD] if isinstance(v, str) else v for v in (self._low, self._high))
        return self._nulls, low, high

    def result(self) -> ColumnProfile:
        return ColumnProfile(
            nulls=self._nulls, min=self._shown(self._low), max=self._shown(self._high)
        )

    def _shown(self, value: Extreme | None) -> str | None:
        if value is None:
            return None
        if self.column.type in ("timestamp", "date") and not isinstance(value, str):
            try:
                if self.column.type == "date":
                    return str(_EPOCH.date() + dt.timedelta(days=value))
                return rfc3339(_EPOCH + dt.timedelta(microseconds=value))
            except OverflowError:
                raise Refused(
                    "time.range",
                    f"{self.column.name} holds a time outside the years 1 to 9999, which no reader"
                    " can show.",
                    expected="times that can be read back",
                    remedy=(
                        "Withdraw the record that holds it (`kfm withdraw … --record`), then run"
                        " again."
                    ),
                    column=self.column.name,
                ) from None
        if isinstance(value, bool):
            return str(value).lower()
        return str(value)[:_TOLD]
