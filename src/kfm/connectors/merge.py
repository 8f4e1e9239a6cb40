"""Upsert: the rows of a part into the rows of a base version, by business key, in place."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import shapely

from kfm.connectors.base import Books, Refused, TransformJob, TransformResult
from kfm.connectors.values import ARROW
from kfm.connectors.writer import Extent, TableWriter, arrow_schema
from kfm.model.dataset import Column

__all__ = ["merge"]

_TYPES = {str(kind): name for name, kind in reversed(ARROW.items())}  # an Arrow type's plainest column type
_SEPARATOR = "\x1f"


def merge(job: TransformJob, scratch: Path) -> TransformResult:
    """`inputs` are base and part. A row of the part takes the place of the base's row with its key; new keys come last.

    Rows of the base inside the window that the part does not have any more are gone upstream, so they go here too.
    `books` speaks of the part's rows: written = new or changed, unchanged = equal to the base's.
    """
    base, part = (pq.ParquetFile(i.path) for i in job.inputs)
    columns = _columns(base, job)
    schema = arrow_schema(columns)
    fresh = _cast(part.read(), schema)
    work = _Merge(job, fresh, schema)
    writer = TableWriter(scratch / job.artifact, columns, job.business_key)
    geometry = next((c.name for c in columns if c.type == "geometry"), None)
    extent = Extent()
    try:
        for batch in work.rows(base):
            if geometry is not None:
                _extend(extent, batch.column(schema.get_field_index(geometry)))
            writer.add(batch)
        content_id, profile = writer.close((geometry, extent) if geometry is not None else None)
    except BaseException:
        writer.abandon()
        raise
    return TransformResult(
        artifact=job.artifact,
        books=Books(read=fresh.num_rows, written=fresh.num_rows - work.unchanged, unchanged=work.unchanged),
        schema=columns,
        content_id=content_id,
        rows=writer.rows,
        profile=profile,
        bbox=extent.bbox,
        geometry_types=tuple(sorted(extent.types)),
        warnings=(f"{work.removed} rows are gone upstream inside the window",) if work.removed else (),
    )


def _columns(base: "pq.ParquetFile", job: TransformJob) -> tuple[Column, ...]:
    """The base's columns in their order, then new ones of the part: adding passes, another type does not."""
    new = {c.name: c for c in job.schema}
    found = []
    for field in base.schema_arrow:
        column = new.pop(field.name, None) or Column(name=field.name, type=_TYPES.get(str(field.type), "string"))  # type: ignore[arg-type]
        if ARROW[column.type] != field.type:
            raise Refused(
                "schema.type",
                f"The column {field.name} is {column.type} now and was {_TYPES.get(str(field.type), str(field.type))}.",
                expected="the type it has in the official version",
                remedy="State the type in `schema` of the registry entry, or run the dataset without a window.",
            )
        found.append(column)
    return (*found, *(Column(name=c.name, type=c.type, unit=c.unit) for c in new.values()))


def _cast(table: "pa.Table", schema: "pa.Schema") -> "pa.Table":
    have = set(table.schema.names)
    arrays = [table.column(f.name) if f.name in have else pa.nulls(table.num_rows, f.type) for f in schema]
    return pa.table(arrays, schema=schema).combine_chunks()


def _keys(table: "pa.Table", names: tuple[str, ...]) -> "pa.Array":
    """One text per row; the separator is escaped inside a part, so no two keys become one."""
    parts = [pc.cast(table.column(n), pa.string()) for n in names]
    parts = [pc.replace_substring(pc.replace_substring(p, "\\", "\\\\"), _SEPARATOR, "\\u") for p in parts]
    joined = pc.binary_join_element_wise(*parts, _SEPARATOR)
    return joined.combine_chunks() if isinstance(joined, pa.ChunkedArray) else joined


class _Merge:
    """One pass over the base with the part at hand."""

    def __init__(self, job: TransformJob, fresh: "pa.Table", schema: "pa.Schema") -> None:
        self._job, self._fresh, self._schema = job, fresh, schema
        self._keys = _keys(fresh, job.business_key)
        self._used = np.zeros(fresh.num_rows, bool)
        self.unchanged = self.removed = 0

    def rows(self, base: "pq.ParquetFile") -> "Iterator[pa.RecordBatch]":
        for raw in base.iter_batches(batch_size=65_536):
            table = _cast(pa.Table.from_batches([raw]), self._schema)
            at = pc.index_in(_keys(table, self._job.business_key), value_set=self._keys)
            hit = np.asarray(at.is_valid())
            where = at.fill_null(0).to_numpy()
            self._used[where[hit]] = True
            self.unchanged += self._equal(table, where, hit)
            source = np.where(hit, where + table.num_rows, np.arange(table.num_rows))
            keep = hit | ~self._gone(table)
            self.removed += int((~keep).sum())
            both = pa.concat_tables([table, self._fresh])
            yield from both.take(pa.array(source[keep])).combine_chunks().to_batches()
        yield from self._fresh.filter(pa.array(~self._used)).combine_chunks().to_batches()

    def _equal(self, table: "pa.Table", where: Any, hit: Any) -> int:
        if not hit.any():
            return 0
        mine, theirs = table.filter(pa.array(hit)), self._fresh.take(pa.array(where[hit]))
        same = np.ones(mine.num_rows, bool)
        for name in self._schema.names:
            a, b = mine.column(name).combine_chunks(), theirs.column(name).combine_chunks()
            nulls = np.asarray(pc.and_(a.is_null(), b.is_null()))
            same &= np.asarray(pc.equal(a, b).fill_null(False)) | nulls
        return int(same.sum())

    def _gone(self, table: "pa.Table") -> Any:
        """Which rows of the base lie inside the window; those among them that the part lacks were removed upstream."""
        job = self._job
        if job.time_column is None or job.since is None or job.until is None or job.time_column not in self._schema.names:
            return np.zeros(table.num_rows, bool)
        times = table.column(job.time_column)
        if not pa.types.is_timestamp(times.type):
            return np.zeros(table.num_rows, bool)
        since, until = (pa.scalar(t, pa.string()).cast(times.type) for t in (job.since, job.until))
        inside = pc.and_(pc.greater_equal(times, since), pc.less(times, until))
        return np.asarray(inside.fill_null(False).combine_chunks())


def _extend(extent: Extent, column: "pa.Array") -> None:
    shapes = shapely.from_wkb(column.drop_null().to_numpy(zero_copy_only=False))
    if not len(shapes):
        return
    west, south, east, north = shapely.total_bounds(shapes)
    extent.low[:2], extent.high[:2] = np.fmin(extent.low[:2], (west, south)), np.fmax(extent.high[:2], (east, north))
    depth = shapely.get_coordinates(shapes, include_z=True)[:, 2]
    if np.isfinite(depth).any():
        extent.low[2], extent.high[2] = np.fmin(extent.low[2], np.nanmin(depth)), np.fmax(extent.high[2], np.nanmax(depth))
    extent.types |= {f"{s.geom_type} Z" if s.has_z else s.geom_type for s in shapes}
