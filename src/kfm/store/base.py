"""What a store promises: one transaction at a time, its views, every fenced write checked against
its lease.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol, TypeVar, runtime_checkable

from kfm.model import (
    Clock,
    Generation,
    HeadKey,
    JobRow,
    LedgerRow,
    NoopRow,
    OutboxRow,
    Token,
    WalRecord,
)
from kfm.store.backfill import BackfillView
from kfm.store.effects import DeliveryView, EffectView, OutboxView
from kfm.store.events import EventView
from kfm.store.index import IndexView, LineageView
from kfm.store.jobs import JobView, PromotionView
from kfm.store.journals import JournalView
from kfm.store.leases import UPKEEP, LeaseView
from kfm.store.looks import LookView
from kfm.store.pools import PoolView, SwitchView
from kfm.store.proposals import ProposalView
from kfm.store.queue import QueueView
from kfm.store.runs import RunView
from kfm.store.schedule import ScheduleView
from kfm.store.view import Database, Home

__all__ = [
    "UPKEEP",
    "Bell",
    "FileKeeper",
    "Generation",
    "HeadKey",
    "JobRow",
    "LedgerRow",
    "NoopRow",
    "OutboxRow",
    "Rebuild",
    "Served",
    "Store",
    "Token",
    "Tx",
    "WalRecord",
]

T = TypeVar("T")


class Tx:
    """One transaction and what can be done in it, by noun. Nothing outside of it is touched until
    the store said yes.
    """

    def __init__(self, home: Home, db: Database) -> None:
        self.leases = LeaseView(home, db)
        self.runs = RunView(home, db)
        self.journals = JournalView(home, db)
        self.looks = LookView(home, db)
        self.proposals = ProposalView(home, db)
        self.index = IndexView(home, db)
        self.lineage = LineageView(home, db)
        self.outbox = OutboxView(home, db)
        self.deliveries = DeliveryView(home, db)
        self.jobs = JobView(home, db)
        self.queue = QueueView(home, db)
        self.promotions = PromotionView(home, db)
        self.pools = PoolView(home, db)
        self.switches = SwitchView(home, db)
        self.effects = EffectView(home, db)
        self.schedule = ScheduleView(home, db)
        self.events = EventView(home, db)
        self.backfill = BackfillView(home, db)


class Bell(Protocol):
    """Readable when somebody rang. Ask for `fileno` before every wait: a lost connection is opened
    again by `drain`.
    """

    def fileno(self) -> int: ...
    def drain(self) -> None: ...
    def close(self) -> None: ...


class Store(Protocol):
    """Durable when `transaction` returns. A failing transaction leaves no trace and does not
    disturb others in its batch.

    With `durable=False` a power cut may take it back as if it had never been, unless a durable one
    came after it.
    """

    epoch: int  # of its tokens: a store that was rebuilt has a higher one

    def transaction(self, work: Callable[[Tx], T], *, durable: bool = True) -> T: ...
    def now_ms(self) -> int:
        """The time that jobs wait by, in milliseconds since 1970."""

    def read(self, work: Callable[[Tx], T]) -> T: ...
    def changes(self) -> int | None:
        """Another number whenever somebody has committed since it was asked before; None: it cannot
        tell.
        """

    def close(self) -> None: ...
    def abandon(self) -> None: ...
    def check(self) -> str: ...
    def bell(self) -> Bell: ...
    def tidy(self) -> None: ...
    def vacuum(self) -> None:
        """Leave nothing of what was deleted in the files of the store."""


class Rebuild(Protocol):
    """A new store, to be filled from evidence. It takes the place of the old one in `finish`, whole
    or not at all; left before that, nothing changed.
    """

    @property
    def store(self) -> Store: ...

    old_epoch: int  # 0: the old one cannot be asked
    old_root: str | None  # the newest root it has seen, as it wrote that down
    has_work: bool  # jobs, switches, pools, schedules and backfills are in the new store already

    def finish(self, last: Callable[[Tx], None]) -> bool:
        """Bring over what no evidence tells, do `last`, and be the store; whether that could be
        brought over.
        """


class FileKeeper(Protocol):
    """A module that keeps stores in files of another kind than SQLite's."""

    def open_file(self, path: Path, clock: Clock) -> Store: ...
    def copy_file(self, path: Path, file: Path) -> None:
        """The rows of every table in a new SQLite store, as of one moment."""

    def fill_file(self, file: Path, path: Path) -> None:
        """The rows of an SQLite store as a store of this kind."""

    def rebuilding(
        self, path: Path, clock: Clock, aside: Path
    ) -> AbstractContextManager[Rebuild]: ...


@runtime_checkable
class Served(Store, Protocol):
    """A store that somebody else's server keeps."""

    def examine_server(self) -> list[tuple[str, str, str]]:
        """What is wrong with the server: (code, what, remedy)."""

    def rebuilding(self, aside: Path) -> AbstractContextManager[Rebuild]:
        """Everybody else stands still meanwhile; the old rows are kept in a file in the folder
        `aside`.
        """

    def copy_to(self, file: Path) -> None:
        """The rows of every table in a new SQLite store, as of one moment."""
