"""A table while it is written, and the one way it ends: everything told of it is taken from what
was written.
"""

from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import shapely

from kfm.connectors.base import Books, ColumnProfile, TransformResult
from kfm.connectors.read.geometry import GeoColumn
from kfm.connectors.table.writer import Extent, TableWriter, arrow_schema
from kfm.model import Column

__all__ = ["Table"]


class Table:
    """`with Table(…) as table:` lets go of the file however that ends; `result` finishes it and
    reads it back.
    """

    def __init__(
        self,
        path: Path,
        columns: tuple[Column, ...],
        keys: tuple[str, ...],
        *,
        naming: str = "",  # a column whose values name the companions of the table
        extent: Extent | None = None,  # that of the same rows, where it is known already
    ) -> None:
        self.path, self.columns, self.schema = path, columns, arrow_schema(columns)
        self.geometry = next((c.name for c in columns if c.type == "geometry"), None)
        self.extent, self._bounded = extent or Extent(), extent is not None
        self._naming = naming if naming in self.schema.names else ""
        self._files: set[str | None] = set()
        self._writer = TableWriter(path, columns, keys)
        self._told: tuple[str, dict[str, ColumnProfile]] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        where: TracebackType | None,
    ) -> None:
        self.abandon()

    def abandon(self) -> None:
        """Let go of the file; of one that is not finished nothing is used."""
        self._writer.abandon()

    @property
    def rows(self) -> int:
        """How many there are; known once it is finished."""
        return self._writer.rows

    def add(self, batch: "pa.RecordBatch", geo: GeoColumn | None = None) -> None:
        """Take in some rows; `geo`: their shapes, where their bounds are known already."""
        if geo is not None:
            self.extent.add(geo)
        elif self.geometry is not None and not self._bounded:
            _extend(self.extent, batch.column(self.schema.get_field_index(self.geometry)).unique())
        if self._naming:
            self._files.update(
                pc.unique(batch.column(self.schema.get_field_index(self._naming))).to_pylist()
            )
        self._writer.add(batch)

    def finish(self) -> None:
        """Write the end of the file and begin to read it back; `verify` has the last word."""
        self._told = self._writer.finish(
            (self.geometry, self.extent) if self.geometry is not None else None
        )

    def verify(self) -> None:
        """Wait until the file is read back. Raises `Refused` when it is not what was written."""
        self._writer.verify()

    def result(self, books: Books | None = None, **more: Any) -> TransformResult:
        """What is told of it, with `more` members; without `books` every row was read and
        written.
        """
        if self._told is None:
            self.finish()
        self.verify()
        assert self._told is not None
        content_id, profile = self._told
        return TransformResult(
            artifact=self.path.name,
            books=Books(read=self.rows, written=self.rows) if books is None else books,
            schema=self.columns,
            content_id=content_id,
            rows=self.rows,
            files=tuple(sorted(f for f in self._files if f is not None)),
            profile=profile,
            bbox=self.extent.bbox,
            geometry_types=tuple(sorted(self.extent.types)),
            **more,
        )


def _extend(extent: Extent, column: "pa.Array") -> None:
    """Take the bounds and types of some shapes in."""
    shapes = shapely.from_wkb(column.drop_null().to_numpy(zero_copy_only=False))
    if not len(shapes):
        return
    west, south, east, north = shapely.total_bounds(shapes)
    extent.low[:2], extent.high[:2] = (
        np.fmin(extent.low[:2], (west, south)),
        np.fmax(extent.high[:2], (east, north)),
    )
    depth = shapely.get_coordinates(shapes, include_z=True)[:, 2]
    if np.isfinite(depth).any():
        extent.low[2], extent.high[2] = (
            np.fmin(extent.low[2], np.nanmin(depth)),
            np.fmax(extent.high[2], np.nanmax(depth)),
        )
    extent.types |= {f"{s.geom_type} Z" if s.has_z else s.geom_type for s in shapes}
