"""Where in its sources a record stands: the lines that hold a key. Connector code is not run."""

from pathlib import Path

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kfm.connectors.arrays import Values
from kfm.connectors.base import Books, TransformResult
from kfm.connectors.child.feed import Context, Emit, Feed
from kfm.connectors.loading import load
from kfm.connectors.operations import Trace
from kfm.connectors.read.packed import unpacked
from kfm.connectors.table.values import cells_text, type_cells, type_values
from kfm.model import Column

__all__ = ["trace"]

_MOST = 20  # lines that are told


def trace(job: Trace, scratch: Path, *, emit: Emit) -> TransformResult:
    """Tell the parent the lines whose columns hold the wanted values. Writes nothing."""
    with unpacked(job.inputs, job.packed, job.format, scratch) as inputs:
        job = msgspec.structs.replace(job, inputs=inputs)
        kind = load(job.source_kind)
        readers = kind.readers(job) if kind is not None else None
        feed = Feed(job, None, Context(job, scratch, emit), readers)
        names = tuple(column.name for column in job.wanted)
        texts = pa.array(job.texts, pa.string())
        values = [type_cells(c, texts.slice(i, 1), {})[0] for i, c in enumerate(job.wanted)]
        found: list[dict[str, object]] = []
        for batch in feed.batches(names):
            hit = np.ones(batch.size, np.bool_)
            for column, value in zip(job.wanted, values):
                array = _typed(column, batch.columns[column.name], cells=batch.cells)
                same = pc.fill_null(pc.equal(array, value), False)
                hit &= same.to_numpy(zero_copy_only=False).astype(np.bool_)
            for i in np.flatnonzero(hit).tolist():
                found.append({"source_id": batch.source_id, "line": batch.line(i)})
        feed.remove()
    emit({"op": "traced", "count": len(found), "lines": found[:_MOST]})
    return TransformResult(
        artifact=job.artifact, books=Books(), schema=(), content_id="", profile={}
    )


def _typed(column: Column, values: Values, *, cells: bool) -> "pa.Array":
    """A column as its table would have it; what does not fit is null."""
    if cells:
        text = (
            values
            if isinstance(values, pa.Array)
            else cells_text(["" if v is None else v for v in values])
        )
        return type_cells(column, text, {})
    return type_values(column, values, {})
