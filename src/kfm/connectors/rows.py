"""What a reader hands on: loose rows for code and inference, or whole columns for the fast way."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from kfm.connectors.geometry import Problem

__all__ = ["Batch", "Loose", "Reader", "batch_of"]

Row = dict[str, Any]


class Loose(NamedTuple):
    """One record as read; `row` is None when it has a problem."""

    line: int
    raw: Callable[[], str]
    row: Row | None
    problem: Problem | None = None


class Batch(NamedTuple):
    """Some consecutive records of one source as columns of Python values; `cells` marks CSV text, where empty means null."""

    source_id: str
    size: int
    columns: Mapping[str, Sequence[Any]]
    line: Callable[[int], int]
    raw: Callable[[int], str]
    bad: dict[int, Problem]
    unknown: tuple[str, ...] = ()
    cells: bool = False
    near: Callable[[int], tuple[str | None, str | None]] | None = None  # the records before and after; None: ask `raw`


class Reader(Protocol):
    """One source, read from its beginning by each call."""

    source_id: str
    warnings: set[str]

    def loose(self) -> Iterator[list[Loose]]:
        """Every record, a block at a time."""
        ...

    def batches(self, names: tuple[str, ...]) -> Iterator[Batch]:
        """Every record as the named columns; other columns are listed in `unknown`."""
        ...


def batch_of(source_id: str, rows: list[Loose], names: tuple[str, ...], *, ignored: frozenset[str] = frozenset()) -> Batch:
    """Loose rows as columns."""
    bad = {i: r.problem for i, r in enumerate(rows) if r.problem is not None}
    dicts: list[Row] = [r.row if r.row is not None else {} for r in rows]
    columns = {name: [d.get(name) for d in dicts] for name in names}
    seen: dict[str, None] = {}  # in order of appearance, so that two runs name the same one first
    for d in dicts:
        seen.update(dict.fromkeys(d))
    unknown = tuple(k for k in seen if k not in columns and k not in ignored)
    return Batch(source_id, len(rows), columns, lambda i: rows[i].line, lambda i: rows[i].raw(), bad, unknown)
