"""Records that share a key and differ: which of them stay, which are set aside, and what is said of
each.
"""

from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from kfm.connectors.arrays import Array
from kfm.connectors.loading import module_of
from kfm.connectors.operations import Read
from kfm.connectors.table.keys import Duplicates
from kfm.model import Column

__all__ = ["Clashes", "Place", "key_text", "rows_at", "settle", "spelt_out"]

_ORDERED = ("timestamp", "date", "integer", "number")
_SHOWN = 5


class Place(NamedTuple):
    """Where a record came from."""

    source_id: str
    line: int


class Clashes:
    """What is to be done with rows of the table that a first pass wrote, by their number in it; and
    where they came from, once read again.
    """

    def __init__(
        self,
        rows: Array | None = None,
        stays: dict[int, int] | None = None,
        words: dict[int, str] | None = None,
        *,
        why: str = "",
        corrected: Array | None = None,
        mode: Literal["mend", "list", "set aside"] = "set aside",
    ) -> None:
        self.rows = np.empty(0, np.int64) if rows is None else rows  # in conflict, in order
        # row that is set aside -> the one of its key that stays; itself when none does
        self.stays = stays or {}
        self.words = words or {}  # its key
        self.why, self.mode = why, mode
        # rows that may have been corrected
        self.corrected = np.empty(0, np.int64) if corrected is None else corrected
        self.groups: dict[int, list[int]] = {}
        self.places: dict[int, Place] = {}

    def reason(self, row: int) -> str:
        """Why a row is set aside; keys that are spelt in more than one way are spelt out."""
        group = self.groups[row]
        spelt = len({self.words[r] for r in group}) > 1
        key, kept = spelt_out(self.words[row], spelt), self.stays[row]
        if kept != row:
            return (
                f"{key}: the record of this key {self._where(kept, row, spelt)} stays, {self.why}"
            )
        others = [self._where(r, row, spelt) for r in group if r != row]
        more = f" and {len(others) - _SHOWN} more" if len(others) > _SHOWN else ""
        return f"{key}: the record {', '.join(others[:_SHOWN])}{more} has the same key and differs"

    def _where(self, other: int, row: int, spelt: bool) -> str:
        there, here = self.places.get(other), self.places.get(row)
        said = (
            f" ({self.words[other]!a}, equal in NFC and white space)"
            if spelt and self.words[other] != self.words[row]
            else ""
        )
        if there is None:
            return f"elsewhere{said}"
        same = here is not None and here.source_id == there.source_id
        return f"on line {there.line}{'' if same else f' of {there.source_id}'}{said}"


def settle(
    job: Read, columns: tuple[Column, ...], path: Path, found: Duplicates, corrected: Array | None
) -> Clashes:
    """Which of the rows in conflict are set aside, by the rule of the registry; to refuse the
    capture all of them are listed.
    """
    held = found.clashes
    rows = np.sort(held["row"])
    groups: dict[int, list[int]] = {}
    for first, row in sorted(zip(held["first"].tolist(), held["row"].tolist())):
        groups.setdefault(first, []).append(row)
    keys = rows_at(path, rows.tolist(), job.business_key)
    texts = {row: key_text(key, job.business_key) for row, key in zip(rows.tolist(), keys)}
    stays, why = {row: row for row in rows.tolist()}, ""
    if job.conflicts == "newest":
        name = _revision(job, columns)
        values = dict(zip(rows.tolist(), _values_at(path, name, rows.tolist()))) if name else {}
        why = f"being the newest by {name}" if name else "being the last one read"
        bodies = {r: b.tobytes() for r, b in zip(held["row"].tolist(), held["body"])}
        stays = {}
        for group in groups.values():
            best = max(
                group,
                key=lambda r: (
                    values.get(r) is not None,
                    values.get(r) if values.get(r) is not None else 0,
                    r,
                ),
            )
            stays |= {r: best for r in group if bodies[r] != bodies[best]}
    clashes = Clashes(
        rows,
        stays,
        texts,
        why=why,
        corrected=corrected,
        mode="list" if job.conflicts == "refuse" else "set aside",
    )
    clashes.groups = {row: group for group in groups.values() for row in group}
    return clashes


def _revision(job: Read, columns: tuple[Column, ...]) -> str:
    """The column that says which of two records is newer: the kind's revision, else the registered
    time.
    """
    module = module_of(job.source_kind)
    marks = getattr(module, "TOMBSTONES", {})
    wanted = (marks.get("revision"), getattr(module, "REVISION", None), job.time_column)
    types = {c.name: c.type for c in columns}
    return next((name for name in wanted if name is not None and types.get(name) in _ORDERED), "")


def _values_at(path: Path, column: str, wanted: list[int]) -> list[float | None]:
    """The values of some rows, times as numbers."""
    order, pieces, at = np.argsort(wanted, kind="stable"), [], 0
    rows = np.asarray(wanted, np.int64)[order]
    with pq.ParquetFile(path) as file:
        for batch in file.iter_batches(batch_size=65_536, columns=[column]):
            mine = rows[(rows >= at) & (rows < at + batch.num_rows)] - at
            at += batch.num_rows
            pieces.append(batch.column(0).take(pa.array(mine)))
    array = pa.concat_arrays(pieces).take(pa.array(np.argsort(order, kind="stable")))
    if pa.types.is_timestamp(array.type):
        array = array.view(pa.int64())
    elif pa.types.is_date32(array.type):
        array = array.view(pa.int32())
    found: list[float | None] = array.to_pylist()
    return found


def rows_at(
    path: Path, wanted: list[int], names: tuple[str, ...] | None = None
) -> list[dict[str, str | None]]:
    """Some rows of a table as text, in order."""
    out: list[dict[str, str | None]] = []
    places, at = np.array(wanted, np.int64), 0
    with pq.ParquetFile(path) as file:
        for batch in file.iter_batches(
            batch_size=8192, columns=list(names) if names is not None else None
        ):
            local = places[(places >= at) & (places < at + batch.num_rows)] - at
            at += batch.num_rows
            for row in batch.take(pa.array(local)).to_pylist() if len(local) else []:
                out.append(
                    {
                        k: (
                            None
                            if v is None
                            else (v.hex() if isinstance(v, bytes) else str(v))[:500]
                        )
                        for k, v in row.items()
                    }
                )
    return out


def key_text(row: dict[str, str | None], key: tuple[str, ...]) -> str:
    """A key as it is shown."""
    return ", ".join(f"{k}={row[k]}" for k in key)


def spelt_out(text: str, spelt: bool = True) -> str:
    """A text in quotes, with every character outside ASCII as its code: what looks alike is told
    apart.
    """
    return ascii(text) if spelt else text
