"""Groups of rows of tables, column by column, as they were read before: pages of one table lie close
together, and to read a page is to read its group.
"""

import bisect
import threading
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING

from kfm.access.memory import Mark, not_at_hand

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

__all__ = ["TableFile", "rows_between"]

_MOST = 256 << 20  # bytes that are kept
_EACH = 1 << 10  # what a column takes beside its cells
# what takes more is read as far as the page needs, and not kept: bytes of a column, rows of a group
_LARGE, _MANY = 4 << 20, 1 << 18
_BATCH, _BUFFER = 1 << 14, 1 << 16
_REMEMBERED = 1024  # groups of a file


class TableFile:
    """A Parquet file whose bytes were checked, and what its head says."""

    def __init__(self, path: Path, mark: Mark, head: "pq.FileMetaData", is_kept: bool) -> None:
        self.path, self.mark, self.head = path, mark, head
        self.key = f"{path} {mark}"  # another where the bytes are others
        self.is_kept = is_kept  # whether rows of it may stay in memory
        self.names: tuple[str, ...] = tuple(head.schema.to_arrow_schema().names)
        # a column of structures has several in the file, and none of the same name
        at = {head.schema.column(n).path: n for n in range(head.num_columns)}
        self.flat = {name: at[name] for name in self.names if name in at}
        sizes = (head.row_group(n).num_rows for n in range(head.num_row_groups))
        self.starts = tuple(accumulate(sizes, initial=0))  # of the groups, and where the last ends
        self.rows = self.starts[-1]
        self._small: dict[tuple[int, tuple[str, ...]], bool] = {}

    def is_small(self, group: int, names: tuple[str, ...]) -> bool:
        """Whether every one of these columns of a group may be held whole. What the head says stays
        as it is, and to ask it takes longer than to remember.
        """
        if (found := self._small.get((group, names))) is None:
            if len(self._small) >= _REMEMBERED:
                self._small.clear()
            found = self._small[group, names] = self._looked(group, names)
        return found

    def _looked(self, group: int, names: tuple[str, ...]) -> bool:
        head = self.head.row_group(group)
        return (
            bool(names)
            and head.num_rows <= _MANY
            and all(
                name in self.flat and head.column(self.flat[name]).total_uncompressed_size <= _LARGE
                for name in names
            )
        )


class _Shelf:
    """Columns of groups; what was not asked for longest is forgotten first. May be asked by several
    threads.
    """

    def __init__(self) -> None:
        self._kept: OrderedDict[tuple[str, int, str], pa.ChunkedArray] = OrderedDict()
        self._size, self._lock = 0, threading.Lock()

    def columns(self, file: TableFile, group: int, names: Sequence[str]) -> "pa.Table":
        """These columns of a group, all of its rows."""
        import pyarrow as pa

        found, missing = dict[str, "pa.ChunkedArray"](), list[str]()
        with self._lock:
            for name in names:
                key = (file.key, group, name)
                if key in self._kept:
                    self._kept.move_to_end(key)
                    found[name] = self._kept[key]
                else:
                    missing.append(name)
        if missing:
            not_at_hand()
            read = _read(file, group, missing)
            found |= {name: read.column(name) for name in missing}
            self._keep(file, group, {name: found[name] for name in missing})
        return pa.table({name: found[name] for name in names})

    def _keep(self, file: TableFile, group: int, read: "dict[str, pa.ChunkedArray]") -> None:
        with self._lock:
            for name, column in read.items():
                before = self._kept.pop((file.key, group, name), None)
                self._size += _size(column) - (_size(before) if before is not None else 0)
                self._kept[file.key, group, name] = column
            while self._size > _MOST:
                self._size -= _size(self._kept.popitem(last=False)[1])


def _size(column: "pa.ChunkedArray") -> int:
    return int(column.nbytes) + _EACH


_SHELF = _Shelf()


def rows_between(
    file: TableFile, names: Sequence[str], first: int, most: int
) -> Iterator["pa.Table"]:
    """At most so many rows from the `first` of a file on, of those of the columns that it has."""
    names = tuple(name for name in names if name in file.names)
    begin = max(0, bisect.bisect_right(file.starts, first) - 1)
    first -= file.starts[begin]
    for group in range(begin, len(file.starts) - 1):
        if file.is_kept and file.is_small(group, names):
            parts = iter([_SHELF.columns(file, group, names)])
        else:
            parts = _streamed(file, group, names, min(_BATCH, first + most))
        for part in parts:
            piece = part.slice(first, most)
            first, most = max(0, first - part.num_rows), most - piece.num_rows
            if piece.num_rows:
                yield piece
            if not most:
                return


def _read(file: TableFile, group: int, names: Sequence[str]) -> "pa.Table":
    """Texts that the file holds as numbers of different ones are held so: they take no more here."""
    import pyarrow.parquet as pq

    head = file.head.row_group(group)
    few = [
        name
        for name in names
        if head.column(file.flat[name]).physical_type == "BYTE_ARRAY"
        and head.column(file.flat[name]).has_dictionary_page
    ]
    with pq.ParquetFile(file.path, metadata=file.head, read_dictionary=few) as opened:
        return opened.read_row_group(group, columns=list(names), use_threads=False)


def _streamed(file: TableFile, group: int, names: Sequence[str], most: int) -> Iterator["pa.Table"]:
    """No more of a column is brought than the page needs."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    not_at_hand()
    with pq.ParquetFile(file.path, metadata=file.head, buffer_size=_BUFFER) as opened:
        for batch in opened.iter_batches(most, row_groups=[group], columns=list(names)):
            yield pa.Table.from_batches([batch])
