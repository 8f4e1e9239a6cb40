"""A table that a transform left, and columns by name and type."""

import json
from pathlib import Path
from typing import Any

from kfm.connectors.base import TransformResult
from kfm.model.dataset import Column


class Made:
    """A finished transform and its scratch folder."""

    def __init__(self, result: TransformResult, scratch: Path) -> None:
        self.result, self.scratch = result, scratch

    @property
    def data(self) -> bytes:
        return (self.scratch / self.result.artifact).read_bytes()

    @property
    def rows(self) -> list[dict[str, Any]]:
        import pyarrow.parquet as pq

        rows: list[dict[str, Any]] = pq.read_table(self.scratch / self.result.artifact).to_pylist()
        return rows

    @property
    def types(self) -> dict[str, str]:
        return {c.name: c.type for c in self.result.schema}

    @property
    def rejects(self) -> list[dict[str, Any]]:
        if self.result.quarantine is None:
            return []
        return [
            json.loads(line)
            for line in (self.scratch / self.result.quarantine).read_bytes().splitlines()
        ]


def columns(**types: str) -> tuple[Column, ...]:
    """Columns by name and type; a type ending in `!` may not be null."""
    return tuple(
        Column(name=n, type=t.rstrip("!"), nullable=not t.endswith("!")) for n, t in types.items()
    )  # type: ignore[arg-type]
