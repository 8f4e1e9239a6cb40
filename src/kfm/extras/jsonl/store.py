"""The store in lines of JSON: a transaction is one line, the tables are in memory, and every process
reads what the others wrote before it looks or decides.
"""

import contextlib
import os
import sqlite3
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import msgspec

from kfm.extras.jsonl.lines import Damaged, Header, Lines, write_lines
from kfm.extras.jsonl.tables import FORMAT, Tables, Unknown
from kfm.model import Clock, IntegrityError, UsageError, finishing, ids
from kfm.store.base import Tx
from kfm.store.local import LocalStore, begin, identity, rebuilt, standing_still, store_error

__all__ = ["JsonlStore", "Replica", "copy_file", "fill_file"]

T = TypeVar("T")
_SMALL = 1 << 20  # a file below this is not worth to be written anew
_TRIES = 3
_GROWN = 4  # times its rows that a file may have


class Replica:
    """The tables as a file of lines has them, as far as it was read."""

    def __init__(self, path: Path, *, writes: bool = True) -> None:
        self.lines = Lines(path, writes=writes)
        header = self.lines.header
        try:
            if header.format > FORMAT:
                raise UsageError(
                    f"The store has format {header.format}, this kfm knows {FORMAT}.",
                    expected="a store written by this or an older kfm",
                    remedy="Install a newer kfm.",
                )
            self.tables = Tables(header.format)
            self.tables.clear()
            self.read()
        except BaseException:
            self.lines.close()
            raise

    @property
    def db(self) -> sqlite3.Connection:
        return self.tables.db

    def read(self) -> None:
        """Take over what came since, all of it or nothing."""
        before = self.lines.at
        begin(self.db, "begin")
        try:
            self.tables.apply(self.lines.read())
            self.db.execute("commit")
        except Unknown as error:
            raise Damaged(self.lines.path, self.lines.at.lines, str(error)) from error
        finally:
            if self.db.in_transaction:
                self.db.execute("rollback")
                self.lines.at = before

    def is_grown(self) -> bool:
        """Whether the file is mostly of what was."""
        return self.lines.at.size > max(_SMALL, _GROWN * self.lines.header.size)

    def written_anew(self) -> None:
        """The file with nothing but the rows there are; in turn."""
        rows = list(self.tables.everything())
        size = sum(len(msgspec.json.encode(row)) for row in rows)
        header = Header(format=FORMAT, size=size, store=self.lines.header.store)
        write_lines(self.lines.path, header, rows)

    def beside(self) -> "Replica":
        """The same for somebody who only looks."""
        other = object.__new__(Replica)
        other.lines = Lines(self.lines.path, writes=False)
        other.lines.at = self.lines.at
        other.tables = self.tables.copy()
        return other

    def close(self) -> None:
        self.lines.close()
        self.db.close()


class JsonlStore(LocalStore):
    """One file, one machine. `transaction` returns when its line is on the disk."""

    def __init__(self, path: Path, clock: Clock) -> None:
        super().__init__(path, clock)
        self._reading = threading.Lock()
        self._aside = path.parent / "quarantine"
        with self._turn():
            if not path.exists() or not path.stat().st_size:
                rows = list(Tables().everything())
                write_lines(path, Header(format=FORMAT, store=str(ids.new_run_id())), rows)
            self._use(self._loaded())
            self._seen = self._own.beside()
        told = self.read(lambda tx: tx.index.meta("epoch"))
        self.epoch = int(told) if told else 1

    # ---- the file --------------------------------------------------------------------------------
    def _loaded(self) -> Replica:
        """The file as it is now, without a line that was cut off, in the newest format; in turn."""
        found = Replica(self.path)
        found.lines.cut_tail(self._aside)
        if found.lines.header.format < FORMAT:
            found.tables.migrate()
        elif not found.is_grown():
            return found
        found.written_anew()
        found.close()
        return Replica(self.path)

    def _use(self, found: Replica) -> None:
        self._own = found
        found.tables.follow()
        self._db = found.db
        self._tx = Tx(self, found.db)

    def _look(self, durable: bool) -> None:
        if identity(self.path) == self._own.lines.file:
            self._own.read()
            self._own.lines.cut_tail(self._aside)
            self._own.tables.forget()
        elif self._store_of_file() == self._own.lines.header.store:  # it was written anew
            self._own.close()
            self._use(self._loaded())
        else:
            raise rebuilt()

    def _store_of_file(self) -> str | None:
        """Whose lines have the name of the file now; None: nobody's."""
        try:
            with contextlib.closing(Lines(self.path, writes=False)) as now:
                return now.header.store
        except FileNotFoundError:
            return None

    def _keep(self, durable: bool) -> None:
        if rows := self._own.tables.changed():
            self._own.lines.append(rows, durable)
        self._db.execute("commit")

    def _close(self) -> None:
        self._own.close()
        self._seen.close()

    # ---- what a store does -----------------------------------------------------------------------
    def read(self, work: Callable[[Tx], T]) -> T:
        """Look without writing: one consistent snapshot."""
        with finishing, self._reading:
            try:
                self._see()
                begin(self._seen.db, "begin")
                try:
                    return work(Tx(self, self._seen.db))
                finally:
                    if self._seen.db.in_transaction:
                        self._seen.db.execute("rollback")
            except sqlite3.DatabaseError as error:
                raise store_error(self.path, error) from error

    def _see(self) -> None:
        """What is there now. A line that cannot be read may just be one that somebody cuts off,
        because its writer died.
        """
        for tried in range(_TRIES):
            try:
                self._follow()
                return
            except Damaged:
                if tried == _TRIES - 1:
                    raise
            self._seen.lines.file = None

    def _follow(self) -> None:
        known = identity(self.path) == self._seen.lines.file
        if known or self._store_of_file() != self._own.lines.header.store:
            self._seen.read()  # who only looks may look at a store that was set aside
            return
        now = Replica(self.path, writes=False)
        self._seen.close()
        self._seen = now

    def changes(self) -> None:
        """It does not count them."""

    def tidy(self) -> None:
        """Write the file anew now, while nothing waits, when it is mostly of what was."""
        if self._own.is_grown():
            self.vacuum()

    def vacuum(self) -> None:
        """Write the file anew without what was."""
        self.transaction(lambda tx: self.after_commit(self._anew))

    def _anew(self) -> None:
        with self._turn():
            self._look(True)
            self._own.written_anew()
            self._own.close()
            self._use(Replica(self.path))

    def check(self) -> str:
        """'ok', or what is wrong with the file."""
        with self._reading:
            self._seen.lines.file = None  # all of it is read again
            try:
                self._see()
            except IntegrityError as error:
                return error.happened
        return "ok"


def copy_file(path: Path, file: Path) -> None:
    """The rows of every table in a new SQLite store, as of one moment."""
    may_wait = os.access(path.parent, os.W_OK)
    with (
        standing_still(path) if may_wait else contextlib.nullcontext(),
        contextlib.closing(Replica(path, writes=False)) as found,
    ):
        file.parent.mkdir(parents=True, exist_ok=True)
        with contextlib.closing(sqlite3.connect(file)) as copy:
            found.db.backup(copy)


def fill_file(file: Path, path: Path) -> None:
    """The rows of an SQLite store as a store in lines."""
    tables = Tables()
    with contextlib.closing(sqlite3.connect(file)) as kept, contextlib.closing(tables.db):
        kept.backup(tables.db)
        write_lines(
            path, Header(format=FORMAT, store=str(ids.new_run_id())), [*tables.everything()]
        )
