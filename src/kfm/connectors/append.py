"""Append: the rows of a part after the rows of a base version, where no business key tells them apart."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from kfm.connectors.base import Books, Refused, TransformJob, TransformResult
from kfm.connectors.merge import extend
from kfm.connectors.writer import Extent, TableWriter, arrow_schema

__all__ = ["append"]


def append(job: TransformJob, scratch: Path) -> TransformResult:
    """`inputs` are base and part, of the same columns; every row of the part is new."""
    schema = arrow_schema(job.schema)
    writer = TableWriter(scratch / job.artifact, job.schema, ())
    geometry = next((c.name for c in job.schema if c.type == "geometry"), None)
    extent, read = Extent(), 0
    try:
        for number, source in enumerate(job.inputs):
            with pq.ParquetFile(source.path) as file:
                if file.schema_arrow.names != schema.names:
                    raise Refused(
                        "schema.type",
                        f"The columns of {job.dataset_id} are not those of its official version.",
                        expected=", ".join(file.schema_arrow.names),
                        remedy="Run the dataset again, whole.",
                    )
                for batch in file.iter_batches(batch_size=65_536):
                    rows = pa.RecordBatch.from_arrays(batch.columns, schema=schema)
                    if geometry is not None:
                        extend(extent, rows.column(schema.get_field_index(geometry)))
                    writer.add(rows)
                    read += rows.num_rows if number else 0
        content_id, profile = writer.close((geometry, extent) if geometry is not None else None)
    except BaseException:
        writer.abandon()
        raise
    return TransformResult(
        artifact=job.artifact,
        books=Books(read=read, written=read),
        schema=job.schema,
        content_id=content_id,
        rows=writer.rows,
        profile=profile,
        bbox=extent.bbox,
        geometry_types=tuple(sorted(extent.types)),
    )
