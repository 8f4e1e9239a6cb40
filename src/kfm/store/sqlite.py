"""The store in one SQLite file: WAL mode, synchronous=FULL, `BEGIN IMMEDIATE` only, writers queue
on a flock turnstile.
"""

import contextlib
import fcntl
import os
import re
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

from kfm.model import Clock, Fenced, IntegrityError, KfmError, StepFailed, UsageError, finishing
from kfm.store.base import Tx
from kfm.store.committer import Committer, Ticket
from kfm.store.locks import LockFolder
from kfm.store.view import MIGRATIONS, SQL
from kfm.store.wakeups import Bell, Bells
from kfm.zones.durable import sync_folder

__all__ = ["DERIVED", "WAIT_AGAIN", "SqliteStore", "carry_over", "copy_files", "standing_still"]

T = TypeVar("T")
# What reindex makes from evidence; every other table is coordination state, which only the store
# itself has.
DERIVED = {
    "ledger", "journal", "journal_head", "plan", "generation", "outbox", "lineage", "lineage_edge", "head_key", "source_state", "noop",
    "proposal", "lease", "meta", "sqlite_sequence",
}  # fmt: skip
# nobody of an earlier epoch may end it
WAIT_AGAIN = "update job set state = 'queued', owner = null where state = 'running'"
_TIMES = re.compile(":(now_ms|boot_ns)")  # in a query that asks for the time
_VACUUM_S = 60.0
_UNTIDY = 256  # changes of rows: a few pages each
_NETWORK = {
    "nfs",
    "nfs4",
    "cifs",
    "smb3",
    "smbfs",
    "fuse.sshfs",
    "afs",
    "ceph",
    "glusterfs",
    "lustre",
    "9p",
}


class SqliteStore:
    """One file, many processes. `transaction` returns when the work is durable."""

    served = False

    def __init__(self, path: Path, clock: Clock, *, create: bool = True) -> None:
        self.path, self.clock = path, clock
        if not create and not path.exists():
            raise IntegrityError(
                f"The store {path.name} is missing.",
                expected="ledger/idempotency.sqlite beside the data it describes",
                remedy="Run `kfm reindex` to rebuild it from the evidence files.",
            )
        _refuse_network_file_system(path.parent)
        path.parent.mkdir(parents=True, exist_ok=True)
        new = not path.exists()
        self._turnstile = os.open(
            path.parent / "turnstile.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644
        )
        self.locks = LockFolder(path.parent / "locks")
        self.bells = Bells(path.parent / "bells")
        self.sql, self.timed = SQL, frozenset(n for n, sql in SQL.items() if _TIMES.search(sql))
        self._syncs = True  # whether a commit waits for the disk
        self._tidied = 0  # changes of ours when the log was last brought into the file
        self._after: list[Callable[[], None]] = []
        self._undo: list[Callable[[], None]] = []
        self._db = self._open()
        self._reader = self._open()
        self._reading = threading.Lock()
        self._tx = Tx(self, self._db)
        self._committer = Committer(self._commit)
        try:
            self._migrate()
            row = self._db.execute(SQL["meta_get"], {"key": "epoch"}).fetchone()
        except sqlite3.DatabaseError as error:
            raise _store_error(path, error) from error
        self._file = _identity(path)
        if new:  # SQLite syncs its file, not the way to it
            sync_folder(path.parent)
            sync_folder(path.parent.parent)
        self.epoch = int(row[0]) if row else 1

    def _open(self) -> sqlite3.Connection:
        try:
            db = sqlite3.connect(
                self.path,
                isolation_level=None,
                check_same_thread=False,
                timeout=60,
                cached_statements=256,
            )
            db.row_factory = sqlite3.Row
            # a new file changes its journal mode once, and does not wait for others while it does
            with self._turn():
                db.execute("pragma journal_mode = wal")
            db.execute("pragma synchronous = full")
            db.execute("pragma cache_size = -2048")
            # `tidy` comes first where somebody rests; a longer log grows its file with every commit
            db.execute("pragma wal_autocheckpoint = 1000")
            db.execute("pragma foreign_keys = on")
        except sqlite3.DatabaseError as error:
            raise _store_error(self.path, error) from error
        return db

    def _migrate(self) -> None:
        files = sorted(MIGRATIONS.glob("[0-9]*.sql"))
        have = int(self._db.execute("pragma user_version").fetchone()[0])
        if have > len(files):
            raise UsageError(
                f"The store has format {have}, this kfm knows {len(files)}.",
                expected="a store written by this or an older kfm",
                remedy="Install a newer kfm.",
            )
        if have == len(files):
            return
        with self._turn():
            # another process may have been first
            have = int(self._db.execute("pragma user_version").fetchone()[0])
            for number, file in enumerate(files[have:], have + 1):
                self._db.executescript(
                    f"begin immediate;\n{file.read_text()}\npragma user_version ="
                    f" {number};\ncommit;"
                )

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

    def read(self, work: Callable[[Tx], T]) -> T:
        """Look without writing: one consistent snapshot."""
        with finishing, self._reading:
            try:
                _begin(self._reader, "begin")
                try:
                    return work(Tx(self, self._reader))
                finally:
                    if self._reader.in_transaction:  # else SQLite has ended it, and said why
                        self._reader.execute("rollback")
            except sqlite3.DatabaseError as error:
                raise _store_error(self.path, error) from error

    def times(self) -> dict[str, int]:
        return {"now_ms": self.now_ms(), "boot_ns": self.clock.boot_ns()}

    def boot_id(self) -> str:
        return self.clock.boot_id()

    def alone(self, name: str) -> None:
        """Transactions here come one after the other."""

    def now_ms(self) -> int:
        """Milliseconds since 1970, by the clock that decides when a job is due."""
        return int(self.clock.now().timestamp() * 1000)

    def after_commit(self, call: Callable[[], None]) -> None:
        self._after.append(call)

    def ring_after_commit(self) -> None:
        """Workers that rest look again once this transaction is durable."""
        if self.bells.ring not in self._after:
            self._after.append(self.bells.ring)

    def bell(self) -> Bell:
        """What rings when somebody puts a job."""
        return self.bells.hang()

    def tidy(self) -> None:
        """Bring the log into the file now, while nothing waits, so that no commit has to stop for
        it.
        """
        if self._db.total_changes - self._tidied >= _UNTIDY:
            self.transaction(lambda tx: self.after_commit(self._checkpoint))

    def vacuum(self) -> None:
        """Write the file anew without what was deleted, and empty its log."""
        until = time.monotonic() + _VACUUM_S
        try:
            with contextlib.closing(self._open()) as db, standing_still(self.path):
                db.execute("vacuum")
                # somebody reads what was there before
                while db.execute("pragma wal_checkpoint(truncate)").fetchone()[0]:
                    if time.monotonic() >= until:
                        raise Fenced(
                            "The store is being read, so its log cannot be emptied.",
                            expected="a moment in which nobody reads",
                            remedy="End what reads it for so long, then `kfm resume`.",
                        )
                    time.sleep(0.05)
        except sqlite3.DatabaseError as error:
            raise _store_error(self.path, error) from error

    def _checkpoint(self) -> None:
        # whoever commits next says what is wrong
        with self._turn(), contextlib.suppress(sqlite3.DatabaseError):
            self._db.execute("pragma wal_checkpoint(passive)")
        self._tidied = self._db.total_changes

    def on_rollback(self, call: Callable[[], None]) -> None:
        self._undo.append(call)

    def _commit(self, batch: list[Ticket[object]]) -> None:
        db = self._db
        kept: list[list[Callable[[], None]]] = []
        undo: list[Callable[[], None]] = []
        durable = any(ticket.durable for ticket in batch)
        fcntl.flock(self._turnstile, fcntl.LOCK_EX)
        try:
            self._check_file()
            if durable != self._syncs:
                db.execute(f"pragma synchronous = {'full' if durable else 'normal'}")
                self._syncs = durable
            _begin(db, "begin immediate")
            try:
                for ticket in batch:
                    if self._one(ticket, alone=len(batch) == 1):
                        kept.append(self._after)
                        undo += self._undo
                if kept:
                    db.execute("commit")
                    undo.clear()
            finally:
                if db.in_transaction:
                    db.execute("rollback")
        except sqlite3.DatabaseError as error:
            raise _store_error(self.path, error) from error
        finally:
            for call in reversed(undo):
                call()
            fcntl.flock(self._turnstile, fcntl.LOCK_UN)
        for calls in kept:
            for call in calls:
                call()

    def _check_file(self) -> None:
        """A store that was set aside while we had it open belongs to an earlier epoch: nobody may
        write into it any more.
        """
        if _identity(self.path) != self._file:
            raise Fenced(
                "The store was rebuilt while this command was running.",
                expected="the store it began with",
                remedy="Run the command again: it finds what is official now.",
            )

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
                _store_error(self.path, error)
                if isinstance(error, sqlite3.DatabaseError)
                else error
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

    def check(self) -> str:
        """'ok', or what SQLite finds wrong with the file."""
        try:
            return str(self._reader.execute("pragma quick_check").fetchone()[0])
        except sqlite3.DatabaseError as error:
            return str(error)

    def settle(self) -> None:
        """Bring everything into the one file and close it, so that it can be moved."""
        self._reader.close()  # the journal mode changes only when nobody else looks
        self._db.execute("pragma wal_checkpoint(truncate)")
        self._db.execute("pragma journal_mode = delete")
        self.abandon()

    def forget_work(self) -> None:
        """Drop jobs, leases and unfinished runs: for a copy that must not act on behalf of the
        original.
        """
        with self._turn():
            self._db.execute("begin immediate")
            self._db.execute("delete from job")
            self._db.execute("delete from lease")
            unfinished = (
                "select wal_id from ledger where state in ('CLAIMED', 'STAGED', 'PROPOSED')"
            )
            self._db.execute(f"delete from journal where wal_id in ({unfinished})")
            self._db.execute(f"delete from journal_head where wal_id in ({unfinished})")
            self._db.execute("delete from ledger where state in ('CLAIMED', 'STAGED', 'PROPOSED')")
            self._db.execute("delete from outbox")
            self._db.execute("commit")

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
            self._db.close()
            self._reader.close()
        os.close(self._turnstile)
        self._turnstile = -1


def _begin(db: sqlite3.Connection, how: str) -> None:
    if db.in_transaction:  # the one before was cut off in the middle
        db.execute("rollback")
    db.execute(how)


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        found = os.stat(path)
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino


def copy_files(source: Path, target: Path) -> None:
    """Copy a store without opening it, while no writer is at work."""
    import shutil

    # read-only media can be locked too
    turnstile = os.open(source.parent / "turnstile.lock", os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(turnstile, fcntl.LOCK_EX)
        for suffix in ("", "-wal"):
            if Path(f"{source}{suffix}").exists():
                shutil.copyfile(f"{source}{suffix}", f"{target}{suffix}")
    finally:
        os.close(turnstile)


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


def carry_over(old: Path, new: Path) -> bool:
    """Bring jobs, switches, pools, schedules and backfills into a store rebuilt from evidence;
    False when they cannot be read whole.
    """
    if not old.is_file():
        return False
    with contextlib.closing(sqlite3.connect(new, isolation_level=None, timeout=60)) as db:
        try:
            db.execute("attach ? as old", (str(old),))
            tables = _whole_tables(db)
        except sqlite3.DatabaseError as error:
            if "locked" in str(error):
                raise _store_error(old, error) from error
            return False
        try:
            _carry(db, tables)
        except sqlite3.DatabaseError as error:
            raise _store_error(new, error) from error
    return bool(tables)


def _whole_tables(db: sqlite3.Connection) -> list[str]:
    """The tables to carry over; none when one is missing or damaged. An older kfm did not have all
    of them.
    """
    theirs, ours = (
        {row[0] for row in db.execute(f"select name from {s}.sqlite_master where type = 'table'")}
        for s in ("old", "main")
    )
    older = (
        db.execute("pragma old.user_version").fetchone()[0]
        < db.execute("pragma main.user_version").fetchone()[0]
    )
    wanted = sorted((ours & theirs if older else ours) - DERIVED)
    whole = set(wanted) <= theirs and all(
        db.execute(f"pragma old.quick_check({t})").fetchone()[0] == "ok" for t in wanted
    )
    return wanted if whole else []


def _carry(db: sqlite3.Connection, tables: list[str]) -> None:
    db.execute("begin immediate")
    for table in tables:
        columns = ", ".join(row[1] for row in db.execute(f"pragma old.table_info({table})"))
        db.execute(f"delete from main.{table}")
        db.execute(f"insert into main.{table} ({columns}) select {columns} from old.{table}")
    db.execute(WAIT_AGAIN)
    db.execute("commit")


_NOT_DAMAGE = ("full", "readonly", "disk I/O", "unable to open", "locked")


def _store_error(path: Path, error: BaseException) -> KfmError:
    """A store that cannot be read or written now is not a damaged one."""
    text = str(error)
    if isinstance(error, sqlite3.OperationalError) and any(word in text for word in _NOT_DAMAGE):
        return StepFailed(
            f"The store {path.name} could not be used: {text}.",
            expected="a writable disk with space left",
            remedy="Free space or make it writable, then run again: nothing is lost.",
        )
    return _damaged(path, error)


def _taken_back(path: Path) -> StepFailed:
    return StepFailed(
        f"The store {path.name} took a transaction back before it was done.",
        expected="a transaction that is committed whole",
        remedy="Run again: nothing of it was stored.",
    )


def _damaged(path: Path, error: BaseException) -> IntegrityError:
    return IntegrityError(
        f"The store {path.name} is damaged: {error}.",
        expected="a readable SQLite file",
        remedy=(
            "Run `kfm reindex`: it sets the file aside and rebuilds the store from the evidence."
        ),
    )


def _refuse_network_file_system(folder: Path) -> None:
    try:
        mounts = [line.split() for line in Path("/proc/mounts").read_text().splitlines()]
    except OSError:
        return  # not Linux: SQLite's own locking test is all there is
    here = str(folder.absolute())
    best = max(
        (m for m in mounts if here == m[1] or here.startswith(m[1].rstrip("/") + "/")),
        key=lambda m: len(m[1]),
        default=None,
    )
    if best is not None and best[2] in _NETWORK:
        raise UsageError(
            f"The store would lie on a network file system ({best[2]}).",
            expected="a local disk: locks and WAL files are not reliable over a network",
            remedy="Move the workspace to a local disk, or use the PostgreSQL store.",
        )
