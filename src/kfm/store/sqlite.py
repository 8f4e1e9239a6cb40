"""The store in one SQLite file: WAL mode, synchronous=FULL, `BEGIN IMMEDIATE` only, writers queue
on a flock turnstile.
"""

import contextlib
import fcntl
import os
import sqlite3
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from kfm.model import Clock, Fenced, IntegrityError, UsageError, finishing
from kfm.store.base import Tx
from kfm.store.local import LocalStore, begin, identity, rebuilt, standing_still, store_error
from kfm.store.view import MIGRATIONS, SQL
from kfm.zones.durable import sync_folder

__all__ = ["DERIVED", "WAIT_AGAIN", "SqliteStore", "carry_over", "copy_files"]

T = TypeVar("T")
# What reindex makes from evidence; every other table is coordination state, which only the store
# itself has.
DERIVED = {
    "ledger", "journal", "journal_head", "plan", "generation", "outbox", "delivery", "lineage", "lineage_node", "lineage_edge", "head_key", "source_state", "noop",
    "proposal", "lease", "meta", "sqlite_sequence",
}  # fmt: skip
# nobody of an earlier epoch may end it
WAIT_AGAIN = "update job set state = 'queued', owner = null where state = 'running'"
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


class SqliteStore(LocalStore):
    """One file, many processes. `transaction` returns when the work is durable."""

    def __init__(self, path: Path, clock: Clock, *, create: bool = True) -> None:
        if not create and not path.exists():
            raise IntegrityError(
                f"The store {path.name} is missing.",
                expected="ledger/idempotency.sqlite beside the data it describes",
                remedy="Run `kfm reindex` to rebuild it from the evidence files.",
            )
        _refuse_network_file_system(path.parent)
        new = not path.exists()
        super().__init__(path, clock)
        self._syncs = True  # whether a commit waits for the disk
        self._tidied = 0  # changes of ours when the log was last brought into the file
        self._db = self._open()
        self._reader = self._open(cache_kb=512)
        self._reading = threading.Lock()
        self._tx = Tx(self, self._db)
        try:
            self._migrate()
            row = self._db.execute(SQL["meta_get"], {"key": "epoch"}).fetchone()
        except sqlite3.DatabaseError as error:
            raise store_error(path, error) from error
        self._file = identity(path)
        if new:  # SQLite syncs its file, not the way to it
            sync_folder(path.parent)
            sync_folder(path.parent.parent)
        self.epoch = int(row[0]) if row else 1

    def _open(self, cache_kb: int = 2048) -> sqlite3.Connection:
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
            # who commits finds its pages there; who only looks can do with less memory
            db.execute(f"pragma cache_size = -{cache_kb}")
            # `tidy` comes first where somebody rests; a longer log grows its file with every commit
            db.execute("pragma wal_autocheckpoint = 1000")
            db.execute("pragma foreign_keys = on")
        except sqlite3.DatabaseError as error:
            raise store_error(self.path, error) from error
        return db

    def _migrate(self) -> None:
        files = sorted(n for n in os.listdir(MIGRATIONS) if n[0].isdigit() and n.endswith(".sql"))
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
                    f"begin immediate;\n{(MIGRATIONS / file).read_text()}\npragma user_version ="
                    f" {number};\ncommit;"
                )

    def read(self, work: Callable[[Tx], T]) -> T:
        """Look without writing: one consistent snapshot."""
        with finishing, self._reading:
            try:
                begin(self._reader, "begin")
                try:
                    return work(Tx(self, self._reader))
                finally:
                    if self._reader.in_transaction:  # else SQLite has ended it, and said why
                        self._reader.execute("rollback")
            except sqlite3.DatabaseError as error:
                raise store_error(self.path, error) from error

    def changes(self) -> int:
        """Only what this very store answered before compares with it."""
        with self._reading:
            return int(self._reader.execute("pragma data_version").fetchone()[0])

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
            raise store_error(self.path, error) from error

    def _checkpoint(self) -> None:
        # whoever commits next says what is wrong
        with self._turn(), contextlib.suppress(sqlite3.DatabaseError):
            self._db.execute("pragma wal_checkpoint(passive)")
        self._tidied = self._db.total_changes

    def _look(self, durable: bool) -> None:
        if identity(self.path) != self._file:
            raise rebuilt()
        if durable != self._syncs:
            self._db.execute(f"pragma synchronous = {'full' if durable else 'normal'}")
            self._syncs = durable

    def _keep(self, durable: bool) -> None:
        self._db.execute("commit")

    def _close(self) -> None:
        self._db.close()
        self._reader.close()

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
            self._db.execute("delete from delivery")
            self._db.execute("commit")


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
                raise store_error(old, error) from error
            return False
        try:
            _carry(db, tables)
        except sqlite3.DatabaseError as error:
            raise store_error(new, error) from error
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
            remedy=(
                "Move the workspace to a local disk, or say `store: jsonl:///ledger/ledger.jsonl` or"
                " that of a PostgreSQL server in kfm.yml."
            ),
        )
