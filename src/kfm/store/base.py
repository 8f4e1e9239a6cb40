"""What a store promises: one transaction at a time, three views, every fenced write checked against its lease."""

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Protocol, TypeVar, runtime_checkable

from kfm.model.ledger import Generation, HeadKey, JobRow, LedgerRow, NoopRow, OutboxRow, Token, WalRecord

__all__ = [
    "Bell",
    "Generation",
    "HeadKey",
    "Home",
    "JobRow",
    "LedgerRow",
    "NoopRow",
    "OutboxRow",
    "Row",
    "Served",
    "Store",
    "Token",
    "Tx",
    "WalRecord",
    "dataset_of",
]

T = TypeVar("T")
Row = Mapping[str, Any]  # one row by the names of its columns
_PROCESSES = {"worker", "scheduler"}  # leases of processes, not of datasets


def dataset_of(lease: str) -> str | None:
    """The dataset whose transactions wait for each other; None for the lease of a process."""
    name = lease.partition("/")[0]
    return name if name not in _PROCESSES and re.fullmatch(r"[a-z][a-z0-9_]*", name) else None


class Home(Protocol):
    """What the views of one transaction need to know about where they are."""

    clock: Any
    epoch: int
    locks: Any
    served: bool  # other transactions may be at work at the same time

    @property
    def sql(self) -> Mapping[str, str]: ...
    @property
    def timed(self) -> Collection[str]:
        """The queries that `times` goes with."""

    def times(self) -> Mapping[str, int]: ...
    def now_ms(self) -> int: ...
    def boot_id(self) -> str: ...
    def alone(self, name: str) -> None: ...
    def after_commit(self, call: Callable[[], None]) -> None: ...
    def on_rollback(self, call: Callable[[], None]) -> None: ...
    def ring_after_commit(self) -> None: ...


class Bell(Protocol):
    """Readable when somebody rang. Ask for `fileno` before every wait: a lost connection is opened again by `drain`."""

    def fileno(self) -> int: ...
    def drain(self) -> None: ...
    def close(self) -> None: ...


class Leases(Protocol):
    """Who may write. A lease of a dead holder is free at once, that of a frozen one after it ran out."""

    def take(self, name: str, holder: str, seconds: float) -> Token | None: ...
    def check(self, *tokens: Token) -> tuple[str, ...]:
        """Raise `Fenced` when one of `tokens` is not the newest of its lease; what is held is returned, as evidence names it."""

    def renew(self, tokens: Iterable[Token], seconds: float) -> None: ...
    def release(self, *tokens: Token) -> None:
        """Give back what is still ours; a stale token is ignored."""

    def is_free(self, name: str) -> bool: ...


class Jobs(Protocol):
    """A minimal job table: `put` while running marks `again`, and the ack queues it once more."""

    def put(self, dataset_id: str, partition: str, win: str, *, forced: int = 0, reason: str = "") -> JobRow: ...
    def get(self, dataset_id: str, partition: str, win: str) -> JobRow | None: ...
    def start(self, job: JobRow) -> None: ...
    def ack(self, dataset_id: str, partition: str, win: str) -> None: ...
    def requeue(self, dataset_id: str, partition: str, win: str) -> None: ...


class Runs(Protocol):
    """Ledger, journals, and the index over channels. Every transition names the state it leaves."""

    def get(self, run_id: str) -> LedgerRow | None: ...
    def open_runs(self, dataset_id: str, partition: str | None = None) -> list[LedgerRow]: ...
    def by_tuple(self, dataset_id: str, partition: str, spec_hash: str, input_hash: str) -> list[LedgerRow]: ...
    def recent(self, dataset_id: str | None = None, limit: int = 1000) -> list[LedgerRow]: ...
    def insert(self, row: LedgerRow) -> None: ...
    def move(self, run_id: str, leaves: str, **changes: Any) -> LedgerRow:
        """Change a row that is in state `leaves`; raise `Fenced` when it is not."""

    def append(self, records: Sequence[WalRecord]) -> None: ...
    def journal(self, wal_id: str) -> list[WalRecord]: ...


class Tx(Protocol):
    """One transaction and its views."""

    runs: Any
    leases: Any
    jobs: Any
    index: Any


class Store(Protocol):
    """Durable when `transaction` returns. A failing transaction leaves no trace and does not disturb others in its batch.

    With `durable=False` a power cut may take it back as if it had never been, unless a durable one came after it.
    """

    def transaction(self, work: Callable[[Any], T], *, durable: bool = True) -> T: ...
    def read(self, work: Callable[[Any], T]) -> T: ...
    def close(self) -> None: ...
    def abandon(self) -> None: ...
    def check(self) -> str: ...
    def bell(self) -> Bell: ...
    def tidy(self) -> None: ...
    def vacuum(self) -> None:
        """Leave nothing of what was deleted in the files of the store."""


@runtime_checkable
class Served(Protocol):
    """A store that somebody else's server keeps: what is wrong with the server, as (code, what, remedy)."""

    def examine_server(self) -> list[tuple[str, str, str]]: ...
