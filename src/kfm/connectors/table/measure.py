"""How much a candidate's tables differ from those of the official version, with memory that does
not grow with them.
"""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from kfm.connectors.arrays import Array
from kfm.connectors.base import Books, TransformResult
from kfm.connectors.operations import Measure
from kfm.connectors.table.hashing import mixed
from kfm.connectors.table.keys import buckets
from kfm.connectors.table.merge import tombstones_of
from kfm.model import Measured

__all__ = ["measure"]

_ROW = np.dtype([("hash", np.int64), ("body", np.uint64), ("deleted", np.bool_)])
_COUNTS = ("before", "after", "added", "changed", "removed", "deleted")


def measure(job: Measure, scratch: Path) -> TransformResult:
    """`inputs` are base and candidate, in turn for each table. Rows are the same when their key is;
    without a key, when all of them is.

    Values are compared as 64-bit hashes: the counts ask for a person's eye, they decide nothing
    about bytes.
    """
    total = Measured(before=0, after=0)
    for old, new in zip(job.inputs[::2], job.inputs[1::2]):
        found = _compared(job, Path(old.path), Path(new.path), scratch)
        total = Measured(**{name: getattr(total, name) + getattr(found, name) for name in _COUNTS})
    return TransformResult(
        artifact=job.artifact, books=Books(), schema=(), content_id="", profile={}, change=total
    )


def _compared(job: Measure, old: Path, new: Path, scratch: Path) -> Measured:
    schemas = [pq.read_schema(path) for path in (old, new)]
    shared = [
        f.name
        for f in schemas[0]
        if f.name in schemas[1].names and schemas[1].field(f.name).type == f.type
    ]
    key = job.business_key if set(job.business_key) <= set(shared) else ()
    state = tombstones_of(job, schemas[1]).get("state", "") if key else ""
    files = [scratch / ".base.bin", scratch / ".candidate.bin"]
    try:
        for path, into in zip((old, new), files):
            _spill(
                path,
                into,
                key,
                [n for n in shared if n not in (*key, state)],
                state if state in shared else "",
            )
        size = sum(f.stat().st_size for f in files)
        counts = np.zeros(4, np.int64)
        for a, b in zip(buckets(files[0], _ROW, of=size), buckets(files[1], _ROW, of=size)):
            counts += _by_key(a, b) if key else _whole(a, b)
        before, after = (f.stat().st_size // _ROW.itemsize for f in files)
    finally:
        for file in files:
            file.unlink(missing_ok=True)
    added, changed, removed, deleted = counts.tolist()
    return Measured(
        before=before, after=after, added=added, changed=changed, removed=removed, deleted=deleted
    )


def _spill(path: Path, into: Path, key: tuple[str, ...], rest: list[str], state: str) -> None:
    """One entry a row: the hash it is found by, the hash of its other values, and whether it is
    marked as deleted.
    """
    with into.open("wb") as out, pq.ParquetFile(path) as file:
        for batch in file.iter_batches(
            batch_size=65_536, columns=[*key, *rest, *([state] if state else [])]
        ):
            rows = np.zeros(batch.num_rows, _ROW)
            body = _mixed(batch, rest)
            rows["hash"] = (_mixed(batch, list(key)) if key else body).view(np.int64)
            rows["body"] = body
            if state:
                rows["deleted"] = np.asarray(
                    pc.fill_null(
                        pc.equal(batch.column(batch.schema.get_field_index(state)), "deleted"),
                        False,
                    )
                )
            rows.tofile(out)


def _mixed(batch: "pa.RecordBatch", names: list[str]) -> Array:
    return (
        mixed([batch.column(batch.schema.get_field_index(name)) for name in names])
        if names
        else np.zeros(batch.num_rows, np.uint64)
    )


def _by_key(old: Array, new: Array) -> Array:
    """(added, changed, removed, deleted) among rows that have a key."""
    new = new[np.argsort(new["hash"], kind="stable")]
    if not len(new):
        return np.array([0, 0, len(old), 0])
    at = np.minimum(np.searchsorted(new["hash"], old["hash"]), len(new) - 1)
    hit = new["hash"][at] == old["hash"]
    deleted = hit & new["deleted"][at] & ~old["deleted"]
    changed = (
        hit & ~deleted & ((new["body"][at] != old["body"]) | (new["deleted"][at] != old["deleted"]))
    )
    return np.array([len(new) - hit.sum(), changed.sum(), (~hit).sum(), deleted.sum()])


def _whole(old: Array, new: Array) -> Array:
    """The same among rows without a key: as many as came and went together count as changed."""
    (a, times_a), (b, times_b) = (
        np.unique(side["hash"], return_counts=True) for side in (old, new)
    )
    _, in_a, in_b = np.intersect1d(a, b, assume_unique=True, return_indices=True)
    kept = int(np.minimum(times_a[in_a], times_b[in_b]).sum())
    removed, added = len(old) - kept, len(new) - kept
    changed = min(removed, added)
    return np.array([added - changed, changed, removed - changed, 0])
