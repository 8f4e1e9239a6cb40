"""A table that connector code had a hand in, read and written again by code that it cannot
reach.
"""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import shapely

from kfm.connectors.base import Refused, TransformResult
from kfm.connectors.operations import Recheck
from kfm.connectors.table.keys import KeyFile
from kfm.connectors.table.table import Table
from kfm.connectors.table.writer import arrow_schema

__all__ = ["recheck"]


def recheck(job: Recheck, scratch: Path) -> TransformResult:
    """Write the one input again as `job.schema` says; rows, content, profile and bounds are what
    this pass finds.
    """
    schema, into = arrow_schema(job.schema), scratch / job.artifact
    table, keys, invalid = Table(into, job.schema, job.business_key), KeyFile(scratch), 0
    try:
        with pq.ParquetFile(job.inputs[0].path) as file:
            if file.schema_arrow.names != schema.names:
                raise _refused("has other columns than it said")
            for raw in file.iter_batches(batch_size=65_536):
                batch = pa.RecordBatch.from_arrays(
                    [c.cast(f.type) for c, f in zip(raw.columns, schema)], schema=schema
                )
                if any(batch.column(k).null_count for k in job.business_key):
                    raise _refused("has rows without a business key")
                if table.geometry is not None:
                    shapes = batch.column(schema.get_field_index(table.geometry))
                    invalid += int(
                        (
                            ~shapely.is_valid(
                                shapely.from_wkb(shapes.drop_null().to_numpy(zero_copy_only=False))
                            )
                        ).sum()
                    )
                table.add(batch)
                if job.business_key and batch.num_rows:
                    keys.add([batch.column(k) for k in job.business_key])
        result = table.result(invalid_geometries=invalid, key=job.business_key)
        found = keys.resolve(into, job.business_key) if job.business_key else None
        if found is not None:
            raise _refused(
                f"has {int(np.count_nonzero(found.drop)) + found.conflicting} rows with the"
                " business key of another"
            )
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, OSError, shapely.GEOSException) as error:
        raise _refused(f"cannot be read ({str(error)[:200]})") from error
    finally:
        table.abandon()
        keys.remove()
    return result


def _refused(why: str) -> Refused:
    return Refused(
        "connector.table",
        f"The table that was left behind {why}.",
        expected="the table the transform wrote",
        remedy="Connector code may change rows, not the file; correct it.",
    )
