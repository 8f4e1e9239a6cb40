"""Two things connector code may do beside making rows: say what its source can, and judge the
finished table.
"""

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pyarrow.parquet as pq

from kfm.connectors.base import Books, Refused, TransformResult
from kfm.connectors.child.code import Connector
from kfm.connectors.child.feed import Context, Emit, load_connector
from kfm.connectors.operations import Discover
from kfm.connectors.read.rows import Row
from kfm.model import Capabilities

__all__ = ["discover", "judge_table"]

_SHOWN = 100


def discover(job: Discover, context: Context, emit: Emit) -> TransformResult:
    """Tell the parent what the connector's `discover(ctx)` returns. Writes nothing."""
    own = load_connector(job.connector) if job.connector else None
    hook = own.hook("discover") if own else None
    found = hook(context) if hook is not None else None
    if not isinstance(found, Capabilities):
        raise TypeError(
            f"discover() must return kfm.model.connector.Capabilities, got {type(found).__name__}"
        )
    emit({"op": "capabilities", "found": msgspec.to_builtins(found)})
    return TransformResult(
        artifact=job.artifact, books=Books(), schema=(), content_id="", profile={}
    )


def judge_table(own: Connector | None, context: Context, table: Path) -> None:
    """Refuse the capture when the connector's `validate(ctx, rows)` finds anything in the rows that
    were written.
    """
    hook = own.hook("validate") if own else None
    if hook is None:
        return
    count, shown = 0, []
    for finding in hook(context, _rows(table)) or ():
        count += 1
        if count <= _SHOWN:
            shown.append(
                finding if isinstance(finding, str) else msgspec.to_builtins(finding, str_keys=True)
            )
    if count:
        raise Refused(
            "connector.validate",
            f"The connector's own check found {count} fault{'' if count == 1 else 's'} in"
            f" {context.dataset_id}; the first: {shown[0]}",
            expected="validate() to find nothing",
            remedy=(
                "Look at what upstream sends; correct the connector's transform() or validate() if"
                " it is right."
            ),
            findings=shown,
            count=count,
        )


def _rows(table: Path) -> Iterator[Row]:
    with pq.ParquetFile(table) as file:
        for batch in file.iter_batches(batch_size=8192):
            yield from batch.to_pylist()
