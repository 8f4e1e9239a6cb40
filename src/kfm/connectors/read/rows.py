"""What a reader hands on: loose rows for code and inference, or whole columns for the fast way."""

from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol

from kfm.connectors.arrays import Values
from kfm.connectors.read.geometry import Problem
from kfm.model import Json

__all__ = ["Batch", "Emit", "Fed", "Loose", "Reader", "Row", "Tally", "batch_of"]

Row = dict[str, Any]
Emit = Callable[[Json], None]  # tells the parent something


class Loose(NamedTuple):
    """One record as read; `row` is None when it has a problem, `held` is what could be read of it
    all the same.
    """

    line: int
    raw: Callable[[], str]
    row: Row | None
    problem: Problem | None = None
    held: Row | None = None
    # set aside before connector code could see it: the columns of its source and their types
    early: Mapping[str, str] | None = None
    # early: the records of its source around it
    near: tuple[Callable[[], str] | None, Callable[[], str] | None] | None = None


class Batch(NamedTuple):
    """Some consecutive records of one source as columns of Python values; `cells` marks CSV text,
    where empty means null.
    """

    source_id: str
    size: int
    columns: Mapping[str, Values]
    line: Callable[[int], int]
    raw: Callable[[int], str]
    bad: dict[int, Problem]
    unknown: tuple[str, ...] = ()
    cells: bool = False
    # the records before and after; None: ask `raw`
    near: Callable[[int], tuple[str | None, str | None] | None] | None = None
    early: Mapping[int, Loose] = MappingProxyType({})  # those that connector code has not seen


class Reader(Protocol):
    """One source, read from its beginning by each call."""

    source_id: str
    warnings: set[str]
    record_limit: int  # bytes of one record

    def loose(self) -> Iterator[list[Loose]]:
        """Every record, a block at a time."""
        ...

    def batches(self, names: tuple[str, ...]) -> Iterator[Batch]:
        """Every record as the named columns; other columns are listed in `unknown`."""
        ...


class Tally:
    """Rows into and out of connector code during one pass."""

    def __init__(self) -> None:
        self.read = self.passed = self.returned = 0


class Fed(Protocol):
    """The records of all inputs, with or without connector code on the way."""

    cells: bool  # their values are text, as CSV's are
    headed: bool  # and their columns are named before the first of them
    readers: list[Reader]

    @property
    def hooked(self) -> bool:
        """Whether connector code makes them."""
        ...

    @property
    def tally(self) -> Tally:
        """The counts of the last whole pass."""
        ...

    def batches(self, names: tuple[str, ...]) -> Iterator[Batch]:
        """Every record as columns."""
        ...


def batch_of(
    source_id: str,
    rows: list[Loose],
    names: tuple[str, ...],
    *,
    ignored: frozenset[str] = frozenset(),
) -> Batch:
    """Loose rows as columns."""
    bad = {i: r.problem for i, r in enumerate(rows) if r.problem is not None}
    dicts: list[Row] = [
        r.row if r.row is not None else (r.held or {} if r.early is None else {}) for r in rows
    ]
    columns = {name: [d.get(name) for d in dicts] for name in names}
    seen: dict[str, None] = {}  # in order of appearance, so that two runs name the same one first
    for r in rows:
        seen.update(dict.fromkeys(r.row or ()))
    unknown = tuple(k for k in seen if k not in columns and k not in ignored)
    early = {i: r for i, r in enumerate(rows) if r.early is not None}

    def near(i: int) -> tuple[str | None, str | None] | None:
        around = rows[i].near
        return None if around is None else (around[0] and around[0](), around[1] and around[1]())

    batch = Batch(
        source_id, len(rows), columns, lambda i: rows[i].line, lambda i: rows[i].raw(), bad, unknown
    )
    return batch._replace(near=near, early=early) if early else batch
