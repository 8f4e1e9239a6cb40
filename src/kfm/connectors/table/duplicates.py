"""Rows that repeat a key: written once where they are equal, told where they differ."""

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from kfm.connectors.base import Refused
from kfm.connectors.operations import Read
from kfm.connectors.table.conflicts import key_text, rows_at, spelt_out
from kfm.connectors.table.keys import Duplicates
from kfm.connectors.table.table import Table

__all__ = ["CONFLICT", "conflict", "of_twins", "without_duplicates"]

CONFLICT = "key.conflict"


def without_duplicates(made: Table, found: Duplicates, key: tuple[str, ...]) -> Table:
    """Write the table once more without the rows that repeat an earlier one."""
    path = made.path
    old = path.with_name(".with-duplicates.parquet")
    path.rename(old)
    table = Table(path, made.columns, key, extent=made.extent)
    try:
        at = 0
        with pq.ParquetFile(old) as file:
            for batch in file.iter_batches(batch_size=16_384):
                keep = ~found.drop[at : at + batch.num_rows]
                at += batch.num_rows
                kept = batch if keep.all() else batch.filter(pa.array(keep))
                table.add(pa.RecordBatch.from_arrays(kept.columns, schema=table.schema))
        table.finish()
    except BaseException:
        table.abandon()
        raise
    finally:
        old.unlink(missing_ok=True)
    return table


def of_twins(path: Path, found: Duplicates, key: tuple[str, ...]) -> Iterator[str]:
    """What is told of keys that were dropped because another one, equal but for its spelling,
    stands before them.
    """
    for pair in found.twins[:3]:
        first, other = (spelt_out(key_text(row, key)) for row in rows_at(path, list(pair)))
        yield (
            f"The key {other} is {first} in another spelling (equal in NFC and white space) and"
            " the rest is equal: the first is kept, the other dropped as a duplicate."
        )


def conflict(job: Read, path: Path, found: Duplicates) -> Refused:
    """The refusal of records that share a key and differ."""
    key = job.business_key
    wanted = sorted({row for pair in found.conflicts for row in pair})
    rows = dict(zip(wanted, rows_at(path, wanted)))
    pairs = [
        {"key": {k: rows[a][k] for k in key}, "rows": [rows[a], rows[b]]}
        for a, b in found.conflicts
    ]
    first, other = (key_text(rows[i], key) for i in found.conflicts[0])
    if first != other:
        first = (
            f"{spelt_out(first)}, which is {spelt_out(other)} in another spelling (equal in NFC"
            " and white space)"
        )
    return Refused(
        CONFLICT,
        f"{found.conflicting} record{'s' * (found.conflicting > 1)} of {job.dataset_id}"
        f" share{'s' * (found.conflicting == 1)} a business key with a different record; the first"
        f" is {first}.",
        expected=f"one record per ({', '.join(key)}), or equal ones",
        remedy=(
            "Decide which one is right with upstream, widen `business_key` in the registry"
            " entry, or state there what becomes of such records: `conflicts: quarantine` or"
            " `newest`."
        ),
        conflicts=pairs,
        rules={CONFLICT: len(found.clashes)},
    )
