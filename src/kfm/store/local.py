"""What the stores of one machine share: writers queue on a flock turnstile, whoever is first
commits for all who wait, a dead holder is known by its lock file.
"""

import abc
import contextlib
import fcntl
import os
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

from kfm.model import Clock, Fenced, IntegrityError, KfmError, StepFailed
from kfm.store.base import Tx
from kfm.store.committer import Committer, Ticket
from kfm.store.locks import LockFolder
from kfm.store.view import SQL
from kfm.store.wakeups import Bell, Bells

__all__ = ["LocalStore", "begin", "identity", "rebuilt", "standing_still", "store_error"]

T = TypeVar("T")
_TIMES = (":now_ms", ":boot_ns")  # in a query that asks for the time


class LocalStore(abc.ABC):
    """Transactions on one connection, batch after batch. How a batch is kept, and what others kept
    meanwhile, is for the back end to say.
    """

    served = False
    epoch: int
    _db: sqlite3.Connection
    _tx: Tx

    def __init__(self, path: Path, clock: Clock) -> None:
        self.path, self.clock = path, clock
        path.parent.mkdir(parents=True, exist_ok=True)
        self._turnstile = os.open(
            path.parent / "turnstile.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644
        )
        self.locks = LockFolder(path.parent / "locks")
        self.bells = Bells(path.parent / "bells")
        self.sql = SQL
        self.timed = frozenset(n for n, sql in SQL.items() if any(t in sql for t in _TIMES))
        self._after: list[Callable[[], None]] = []
        self._undo: list[Callable[[], None]] = []
        self._committer = Committer(self._commit)

    # ---- what a back end says --------------------------------------------------------------------
    @abc.abstractmethod
    def _look(self, durable: bool) -> None:
        """In turn, before a batch begins: the store is the one that was opened, and what others
        kept in it is there.
        """

    @abc.abstractmethod
    def _keep(self, durable: bool) -> None:
        """Commit what a batch has done; on the disk when this returns, where that is asked for."""

    @abc.abstractmethod
    def _close(self) -> None:
        """Close what is open, in turn."""

    # ---- transactions ----------------------------------------------------------------------------
    @contextlib.contextmanager
    def _turn(self) -> Iterator[None]:
        """Writers queue here, so that a busy one cannot starve another's heartbeat."""
        fcntl.flock(self._turnstile, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.flock(self._turnstile, fcntl.LOCK_UN)

    def transaction(self, work: Callable[[Tx], T], *, durable: bool = True) -> T:
        return self._committer.submit(work, durable)

    def _commit(self, batch: list[Ticket[object]]) -> None:
        kept: list[list[Callable[[], None]]] = []
        undo: list[Callable[[], None]] = []
        durable = any(ticket.durable for ticket in batch)
        fcntl.flock(self._turnstile, fcntl.LOCK_EX)
        try:
            self._look(durable)
            db = self._db
            begin(db, "begin immediate")
            try:
                for ticket in batch:
                    if self._one(ticket, alone=len(batch) == 1):
                        kept.append(self._after)
                        undo += self._undo
                if kept:
                    self._keep(durable)
                    undo.clear()
            finally:
                if db.in_transaction:
                    db.execute("rollback")
        except sqlite3.DatabaseError as error:
            raise store_error(self.path, error) from error
        finally:
            for call in reversed(undo):
                call()
            fcntl.flock(self._turnstile, fcntl.LOCK_UN)
        for calls in kept:
            for call in calls:
                call()

    def _one(self, ticket: Ticket[object], alone: bool) -> bool:
        """Run one ticket; a failing one is dropped from the batch, the others commit.

        Some errors make SQLite take back the whole transaction by itself. Then there is no batch
        any more, and the first error is that of all of it.
        """
        self._after, self._undo = [], []
        if not alone:
            self._db.execute("savepoint ticket")
        try:
            ticket.result = ticket.work(self._tx)
        except BaseException as error:
            ticket.error = (
                store_error(self.path, error) if isinstance(error, sqlite3.DatabaseError) else error
            )
        taken_back = not self._db.in_transaction
        if ticket.error is not None or taken_back:
            for call in reversed(self._undo):
                call()
        if taken_back:
            raise ticket.error or _taken_back(self.path)
        if not alone:
            if ticket.error is not None:
                self._db.execute("rollback to ticket")
            self._db.execute("release ticket")
        return ticket.error is None

    # ---- what views ask --------------------------------------------------------------------------
    def times(self) -> dict[str, int]:
        return {"now_ms": self.now_ms(), "boot_ns": self.clock.boot_ns()}

    def boot_id(self) -> str:
        return self.clock.boot_id()

    def alone(self, name: str) -> None:
        """Transactions here come one after the other."""
        return

    def now_ms(self) -> int:
        """Milliseconds since 1970, by the clock that decides when a job is due."""
        return int(self.clock.now().timestamp() * 1000)

    def after_commit(self, call: Callable[[], None]) -> None:
        self._after.append(call)

    def on_rollback(self, call: Callable[[], None]) -> None:
        self._undo.append(call)

    def ring_after_commit(self) -> None:
        """Workers that rest look again once this transaction is durable."""
        if self.bells.ring not in self._after:
            self._after.append(self.bells.ring)

    def bell(self) -> Bell:
        """What rings when somebody puts a job."""
        return self.bells.hang()

    # ---- endings ---------------------------------------------------------------------------------
    def close(self) -> None:
        for token in self.locks.held():
            with contextlib.suppress(Exception):
                self.transaction(lambda tx: tx.leases.release(token))
        self.abandon()

    def abandon(self) -> None:
        """Let go as a killed process would: nothing released but the locks."""
        self.locks.forget_all()
        if self._turnstile < 0:
            return
        # the last one to close brings the log into the file: nobody copies it meanwhile
        with self._turn():
            self._close()
        os.close(self._turnstile)
        self._turnstile = -1


def begin(db: sqlite3.Connection, how: str) -> None:
    if db.in_transaction:  # the one before was cut off in the middle
        db.execute("rollback")
    db.execute(how)


def identity(path: Path) -> tuple[int, int] | None:
    """What tells a file from another that takes its name; None: there is none."""
    try:
        found = os.stat(path)
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino


def rebuilt() -> Fenced:
    """A store that was set aside while we had it open belongs to an earlier epoch: nobody may write
    into it any more.
    """
    return Fenced(
        "The store was rebuilt while this command was running.",
        expected="the store it began with",
        remedy="Run the command again: it finds what is official now.",
    )


@contextlib.contextmanager
def standing_still(path: Path) -> Iterator[None]:
    """No writer is at work on the store at `path` meanwhile."""
    path.parent.mkdir(parents=True, exist_ok=True)
    turnstile = os.open(
        path.parent / "turnstile.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644
    )
    try:
        fcntl.flock(turnstile, fcntl.LOCK_EX)
        yield
    finally:
        os.close(turnstile)


_NOT_DAMAGE = ("full", "readonly", "disk I/O", "unable to open", "locked")


def store_error(path: Path, error: BaseException) -> KfmError:
    """A store that cannot be read or written now is not a damaged one."""
    text = str(error)
    if isinstance(error, sqlite3.OperationalError) and any(word in text for word in _NOT_DAMAGE):
        return StepFailed(
            f"The store {path.name} could not be used: {text}.",
            expected="a writable disk with space left",
            remedy="Free space or make it writable, then run again: nothing is lost.",
        )
    return IntegrityError(
        f"The store {path.name} is damaged: {error}.",
        expected="a readable SQLite file",
        remedy=(
            "Run `kfm reindex`: it sets the file aside and rebuilds the store from the evidence."
        ),
    )


def _taken_back(path: Path) -> StepFailed:
    return StepFailed(
        f"The store {path.name} took a transaction back before it was done.",
        expected="a transaction that is committed whole",
        remedy="Run again: nothing of it was stored.",
    )
