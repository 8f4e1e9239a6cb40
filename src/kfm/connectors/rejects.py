"""The rows that were set aside, with line, rule and reason, as JSON lines."""

from collections import Counter
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from kfm.connectors.geometry import Problem

__all__ = ["Rejects"]

_RAW_CAP = 4096  # bytes of a record that are shown; the capture itself is kept whole
_SHOWN = 3


class Rejects:
    """Counts quarantined rows by rule and writes each to a file that exists only when there is one."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.counts: Counter[str] = Counter()
        self.examples: dict[str, list[dict[str, Any]]] = {}
        self._file: BinaryIO | None = None
        path.unlink(missing_ok=True)

    @property
    def total(self) -> int:
        """Rows set aside so far."""
        return self.counts.total()

    def add(self, source_id: str, line: int, problem: Problem, raw: str) -> None:
        """Set one row aside."""
        rule, reason = problem
        text = raw.encode("utf-8", "replace")[:_RAW_CAP].decode("utf-8", "ignore")
        reason = reason.encode("utf-8", "replace").decode()
        row = {"source_id": source_id, "line": line, "rule": rule, "reason": reason, "record": text}
        if self._file is None:
            self._file = self.path.open("wb")
        self._file.write(msgspec.json.encode(row) + b"\n")
        self.counts[rule] += 1
        if self.counts[rule] <= _SHOWN:
            self.examples.setdefault(rule, []).append({k: row[k] for k in ("source_id", "line", "reason")})

    def close(self) -> None:
        """Finish the file."""
        if self._file is not None:
            self._file.close()
            self._file = None
