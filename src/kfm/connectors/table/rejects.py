"""The rows that were set aside, with line, rule, reason and neighbours, as JSON lines; and what
people's corrections make of them.
"""

import datetime as dt
import hashlib
from collections import Counter
from collections.abc import Callable, Mapping, Set
from functools import cache
from pathlib import Path
from types import NoneType
from typing import BinaryIO

import msgspec
import pyarrow as pa

from kfm.connectors.arrays import Values
from kfm.connectors.read.geometry import Problem, encode
from kfm.connectors.read.rows import Batch, Loose, Row
from kfm.connectors.table.values import cells_text, type_cells
from kfm.model import Column, Json

__all__ = [
    "Fixes",
    "Rejects",
    "check_value",
    "corrected",
    "mend",
    "picked",
    "record_digest",
    "types_of",
]

_RAW_CAP = 4096  # bytes of a record that are shown; the capture itself is kept whole
_NEAR_CAP = 1024  # of its neighbours
_SHOWN = 3
_MOST = 200_000  # rows written; nobody decides on more one by one, and the counts go on
# digest of a record -> column -> the text that is right
Fixes = Mapping[str, Mapping[str, str | None]]
_HELD: dict[str, set[type]] = {
    "boolean": {bool},
    "integer": {int},
    "number": {int, float},
    "timestamp": {dt.datetime},
    "date": {dt.date},
}


def record_digest(text: str) -> str:
    """What stands for a record: its text as it came."""
    return "sha256:" + hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()


def _cut(text: str | None, cap: int) -> str | None:
    return text if text is None else text.encode("utf-8", "replace")[:cap].decode("utf-8", "ignore")


class Rejects:
    """Counts quarantined rows by rule and writes each to a file that exists only when there is
    one.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.counts: Counter[str] = Counter()
        self.examples: dict[str, list[Json]] = {}
        self._file: BinaryIO | None = None
        self._written = 0
        # the last row of a batch waits for the one after it
        self._held: Json | None = None
        # source and last record of the batch before
        self._last: tuple[str, Callable[[], str]] | None = None
        # reasons that are known only when everything was read, by what stands for them
        self._later: dict[str, Callable[[], str]] = {}
        path.unlink(missing_ok=True)

    @property
    def total(self) -> int:
        """Rows set aside so far."""
        return self.counts.total()

    def take(self, batch: Batch) -> None:
        """Set the bad rows of a batch aside, each with the record before and after it in the
        source.
        """
        raw = cache(batch.raw)
        ours = self._last is not None and self._last[0] == batch.source_id
        self._release(raw(0) if self._held is not None and ours and batch.size else None)
        for i in sorted(batch.bad):
            around = batch.near(i) if batch.near is not None else None
            if around is not None:
                before, after = around
            else:
                before = (
                    raw(i - 1)
                    if i
                    else self._last[1]()
                    if ours and self._last is not None
                    else None
                )
                after = raw(i + 1) if i + 1 < batch.size else None
            self._add(batch.source_id, batch.line(i), batch.bad[i], raw(i), before)
            self._held = {**(self._held or {}), **_asked(batch, i)}
            if around is not None or i + 1 < batch.size:
                self._release(after)
        if batch.size:
            self._last = (batch.source_id, lambda: raw(batch.size - 1))

    def explain_later(self, reason: Callable[[], str]) -> str:
        """What to give as the reason of a row that can be explained only when everything was
        read.
        """
        mark = f"\0{len(self._later)}"
        self._later[mark] = reason
        return mark

    def _explain(self) -> None:
        later, self._later = self._later, {}
        if not later:
            return
        for example in (e for examples in self.examples.values() for e in examples):
            example["reason"] = _known(later, example["reason"])
        draft = self.path.with_name(f".{self.path.name}")
        self.path.rename(draft)
        with draft.open("rb") as lines, self.path.open("wb") as out:
            for line in lines:
                row = msgspec.json.decode(line)
                out.write(
                    msgspec.json.encode(row | {"reason": _known(later, row["reason"])}) + b"\n"
                )
        draft.unlink()

    def _add(
        self, source_id: str, line: int, problem: Problem, raw: str, before: str | None
    ) -> None:
        rule, reason = problem
        reason = reason.encode("utf-8", "replace").decode()
        row = {
            "source_id": source_id,
            "line": line,
            "rule": rule,
            "reason": reason,
            "record": _cut(raw, _RAW_CAP),
        }
        self._held = {**row, "digest": record_digest(raw), "before": _cut(before, _NEAR_CAP)}
        self.counts[rule] += 1
        if self.counts[rule] <= _SHOWN:
            self.examples.setdefault(rule, []).append(
                {k: row[k] for k in ("source_id", "line", "reason")}
            )

    def _release(self, after: str | None) -> None:
        """Write the row that waits."""
        if self._held is None:
            return
        held, self._held = self._held, None
        if self._file is None:
            self._file = self.path.open("wb")
        if self._written < _MOST:
            self._written += 1
            row = {"n": self._written, **held, "after": _cut(after, _NEAR_CAP)}
            self._file.write(msgspec.json.encode(row) + b"\n")

    def close(self) -> None:
        """Finish the file."""
        self._release(None)
        self._last = None
        if self._file is not None:
            self._file.close()
            self._file = None
            self._explain()


def _known(later: dict[str, Callable[[], str]], reason: str) -> str:
    found = later.get(reason)
    return reason if found is None else found()


def _asked(batch: Batch, i: int) -> Json:
    """What a correction of this row has to know: the columns of a source that connector code
    changes, and whether it holds no value at all.
    """
    early = batch.early.get(i)
    if early is not None and early.early is not None:
        blank = all(v is None for v in (early.held or {}).values())
        return {"columns": early.early} | ({"blank": list(early.early)} if blank else {})
    empty = all(_is_empty(values, i) for values in batch.columns.values())
    return {"blank": list(batch.columns)} if empty else {}


def _is_empty(values: Values, i: int) -> bool:
    value = values[i].as_py() if isinstance(values, pa.Array) else values[i]
    return value is None or value == ""


# -- what people decided


def picked(batch: Batch, lines: Set[int]) -> Batch | None:
    """The records of a batch that begin on one of `lines`; None when there is none."""
    at = [i for i in range(batch.size) if batch.line(i) in lines]
    return _of(batch, at, {}) if at else None


def mend(batch: Batch, fixes: Fixes, columns: tuple[Column, ...]) -> dict[int, Batch]:
    """Bad rows whose very text a person has corrected -> the row as corrected; a good row is
    nobody's business.

    What connector code has not seen is corrected on its way there, see `corrected`.
    """
    found = {}
    for i in sorted(batch.bad):
        fix = fixes.get(record_digest(batch.raw(i)))
        if fix is not None:
            typed = {
                c.name: _value(c, fix[c.name], cells=batch.cells) for c in columns if c.name in fix
            }
            found[i] = _of(batch, [i], typed)._replace(bad={})
    return found


def corrected(record: Loose, fix: Mapping[str, str | None], types: Mapping[str, str]) -> Row:
    """A record as its reader would have handed it to connector code, had it said what a person
    says.
    """
    row: Row = dict.fromkeys(types) | (record.held or {})
    for name, text in fix.items():
        column = Column(name=name, type=types.get(name, "string"))  # type: ignore[arg-type]
        row[name] = _value(column, text, cells=False, as_text=("string",))
    return row


def types_of(rows: list[Row]) -> dict[str, str]:
    """The columns of some rows and the types that hold their values."""
    names = dict.fromkeys(name for row in rows for name in row)
    return {name: _type({type(row.get(name)) for row in rows} - {NoneType}) for name in names}


def _type(kinds: set[type]) -> str:
    if not kinds or str in kinds:
        return "string"
    return next((name for name, held in _HELD.items() if kinds <= held), "json")


def _of(batch: Batch, at: list[int], instead: Row) -> Batch:
    """Some rows of a batch, which keep their lines and neighbours; `instead` takes the place of
    their values.
    """

    def near(i: int) -> tuple[str | None, str | None]:
        around = batch.near(at[i]) if batch.near is not None else None
        return around or (
            batch.raw(at[i] - 1) if at[i] else None,
            batch.raw(at[i] + 1) if at[i] + 1 < batch.size else None,
        )

    columns: dict[str, Values] = {
        name: _taken(values, at) for name, values in batch.columns.items()
    }
    columns |= {name: [value] * len(at) for name, value in instead.items()}
    bad = {n: batch.bad[i] for n, i in enumerate(at) if i in batch.bad}
    return batch._replace(
        size=len(at),
        columns=columns,
        line=lambda i: batch.line(at[i]),
        raw=lambda i: batch.raw(at[i]),
        bad=bad,
        near=near,
    )


def _taken(values: Values, at: list[int]) -> Values:
    return (
        values.take(pa.array(at, pa.int64()))
        if isinstance(values, pa.Array)
        else [values[i] for i in at]
    )


def _value(
    column: Column,
    text: str | None,
    *,
    cells: bool,
    as_text: tuple[str, ...] = ("string", "timestamp", "date"),
) -> object:
    """The text a person gave, as the reader of this source would have handed it on; what does not
    fit is judged with the row.
    """
    if cells:
        return text or ""
    if not text or column.type in as_text:
        return text or None
    bad: dict[int, Problem] = {}
    if column.type in ("geometry", "json"):
        try:
            return msgspec.json.decode(text)
        except msgspec.DecodeError:
            return text
    typed = type_cells(column, cells_text([text]), bad)
    return text if bad else typed[0].as_py()


def check_value(column: Column, text: str) -> str | None:
    """Why `text` cannot stand in a column, None when it can."""
    bad: dict[int, Problem] = {}
    if not text:
        return None if column.nullable else f"{column.name}: no value"
    if column.type == "geometry":
        encode([_value(column, text, cells=False)], column.name, bad)
    else:
        type_cells(column, cells_text([text]), bad)
    return bad[0][1] if bad else None
