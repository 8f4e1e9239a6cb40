"""Append: the rows of a part after the rows of a base version, where no business key tells them
apart.
"""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from kfm.connectors.base import Books, Refused, TransformResult
from kfm.connectors.operations import Merge
from kfm.connectors.table.table import Table
from kfm.connectors.table.writer import arrow_schema

__all__ = ["append"]


def append(job: Merge, scratch: Path) -> TransformResult:
    """`inputs` are base and part, of the same columns; every row of the part is new."""
    schema = arrow_schema(job.schema)
    read = 0
    with Table(scratch / job.artifact, job.schema, ()) as table:
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
                    table.add(rows)
                    read += rows.num_rows if number else 0
        return table.result(Books(read=read, written=read))
