"""Connections to one PostgreSQL server: those that wait to be used again, and the one that
listens; what goes wrong is said in our words.
"""

import contextlib
import os
import re
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from urllib.parse import parse_qsl, urlsplit

import psycopg
from psycopg import errors as pg
from psycopg.conninfo import make_conninfo
from psycopg.pq import TransactionStatus

from kfm.model import IntegrityError, Json, KfmError, StepFailed, StoreUnavailable, UsageError
from kfm.store.address import password_in, shown

__all__ = ["BELL", "POOL", "Connection", "Connections", "ServerBell", "first"]

Connection = psycopg.Connection[Json]
POOL = 8  # connections of one process, beside one that listens
BELL = "'kfm_' || md5(current_schema())"
# A frozen process must not keep a dataset from others for longer than its lease; nobody waits for a
# lock for ever.
_SESSION = """select set_config('idle_in_transaction_session_timeout', '10s', false), set_config('lock_timeout', '60s', false),
  set_config('default_transaction_read_only', 'off', false), current_setting('synchronous_commit'), current_schema()"""
_REFUSED = r"password|authentication|no pg_hba|(role|database) \"[^\"]*\" does not exist"
_DEADLINES = {
    "connect_timeout": 5, "keepalives": 1, "keepalives_idle": 5, "keepalives_interval": 3, "keepalives_count": 3, "tcp_user_timeout": 15_000,
}  # fmt: skip


def _rows(cursor: psycopg.Cursor[object]) -> Callable[[Sequence[object]], Json]:
    """Rows as dictionaries, without the column that stands in for SQLite's rowid."""
    names = [c.name for c in cursor.description or ()]
    if "rowid" not in names:
        return lambda values: dict(zip(names, values))
    return lambda values: {n: v for n, v in zip(names, values) if n != "rowid"}


def first(db: Connection, query: str) -> Json:
    """The row of a query that always has one."""
    found = db.execute(query).fetchone()
    assert found is not None
    return found


class Connections:
    """Connections to one server: some wait to be used again, and what goes wrong is said in our
    words.
    """

    def __init__(self, url: str) -> None:
        self.url = url
        self._idle: list[Connection] = []
        self._mutex = threading.Lock()
        self._room = threading.BoundedSemaphore(POOL)
        self._closed = False

    def _connect(self) -> Connection:
        given = dict(parse_qsl(urlsplit(self.url).query))
        deadlines = {k: v for k, v in _DEADLINES.items() if k not in given}
        address = make_conninfo(self.url, **deadlines)
        db = psycopg.connect(address, autocommit=True, row_factory=_rows)
        with _closed_on_error(db):
            self._must_be_fit(first(db, _SESSION))
        return db

    def _must_be_fit(self, said: Json) -> None:
        """Refuse a session that would lose what it confirmed, or has no place to keep it."""
        if said["current_setting"] == "off":
            raise UsageError(
                f"The server {shown(self.url)} does not wait for its disk: synchronous_commit is"
                " off.",
                expected="what was stored to survive a power cut",
                remedy="Set `synchronous_commit = on` for this database or role.",
            )
        if said["current_schema"] is None:
            raise UsageError(
                f"The server {shown(self.url)} has no schema for the store.",
                expected="the schema that `search_path` names",
                remedy=(
                    "Create it, or name another one in the address: ?options=-csearch_path%3DNAME."
                ),
            )

    @contextlib.contextmanager
    def _begun(self, begin: str, patience: float) -> Iterator[tuple[Connection, Json | None]]:
        """A connection in a new transaction. Nothing has been done yet when the server does not
        answer: we may ask again.
        """
        with self._room:
            db, first = self._begin(begin, patience)
            try:
                yield db, first
            finally:
                with contextlib.suppress(psycopg.Error):
                    if not db.closed and db.info.transaction_status != TransactionStatus.IDLE:
                        db.execute("rollback")
                self._put_back(db)

    def _begin(self, begin: str, patience: float) -> tuple[Connection, Json | None]:
        until, pause = time.monotonic() + patience, 0.02
        while True:
            try:
                db = self._take()
                with _closed_on_error(db):
                    answer = db.execute(begin, prepare=False)
                    while answer.nextset():
                        pass
                    return db, answer.fetchone() if answer.description else None
            except psycopg.Error as error:
                self._forget_idle()  # opened before the server went away, as this one was
                said = self._error(error)
                if not said.retryable or time.monotonic() >= until or self._closed:
                    raise said from error
            time.sleep(pause)
            pause = min(2 * pause, 0.5)

    def _take(self) -> Connection:
        with self._mutex:
            db = self._idle.pop() if self._idle else None
        return db if db is not None else self._connect()

    def _put_back(self, db: Connection) -> None:
        with self._mutex:
            if (
                not self._closed
                and not db.closed
                and db.info.transaction_status == TransactionStatus.IDLE
            ):
                self._idle.append(db)
                return
        db.close()

    def _forget_idle(self) -> None:
        with self._mutex:
            old, self._idle = self._idle, []
        for db in old:
            db.close()

    @contextlib.contextmanager
    def _mapped(self) -> Iterator[None]:
        try:
            yield
        except psycopg.Error as error:
            raise self._error(error) from error

    def _error(self, error: psycopg.Error) -> KfmError:
        """What PostgreSQL said, in our words; a password in it is masked."""
        password, text = password_in(self.url), " ".join(str(error).split()).rstrip(".")
        text = text.replace(password, "***") if password else text
        where = shown(self.url)
        if isinstance(error, pg.InsufficientPrivilege | pg.InvalidSchemaName) or (
            error.sqlstate is None and re.search(_REFUSED, text)
        ):
            return UsageError(
                f"The store at {where} refuses us: {text}.",
                expected="a role that may create and change tables there",
                remedy=(
                    "Mend the address in kfm.yml or the rights of its role; `kfm doctor` looks"
                    " again."
                ),
            )
        if isinstance(error, pg.DataError):
            said = f"The store at {where} cannot keep a value: {text}."
            return StepFailed(said, expected="text without NUL bytes", remedy="Mend the input.")
        # by the server: too long idle, read-only after a switch
        ended = str(error.sqlstate).startswith("25")
        if ended or isinstance(error, pg.OperationalError | pg.InterfaceError):
            return StoreUnavailable(
                f"The store at {where}"
                f" {'did not answer' if error.sqlstate is None else 'ended a transaction'}:"
                f" {text}.",
                expected="a PostgreSQL server that takes connections and confirms commits",
                remedy="Nothing is lost: run again, when the server is back.",
            )
        return IntegrityError(
            f"The store at {where} is damaged: {text}.",
            expected="the tables this kfm made",
            remedy="Run `kfm reindex`: it rebuilds the store from the evidence.",
        )


class ServerBell:
    """A connection that listens. One that is lost counts as a ring, and `drain` opens another."""

    def __init__(self, connect: Callable[[], Connection]) -> None:
        self._connect = connect
        self._quiet, self._end = os.pipe()  # what is waited on while the server is away
        self._db: Connection | None = None
        self._listen()

    def _listen(self) -> None:
        try:
            db = self._connect()
            with _closed_on_error(db):
                db.execute(str(first(db, f"select format('listen %I', {BELL}) as said")["said"]))
            self._db = db
        except (psycopg.Error, KfmError):
            self._db = None

    def fileno(self) -> int:
        return int(self._db.fileno()) if self._db is not None else self._quiet

    def drain(self) -> None:
        """Forget what has rung."""
        db = self._db
        try:
            for _ in db.notifies(timeout=0) if db is not None else ():
                pass
        except psycopg.Error:
            self._drop()
        if self._db is None:
            self._listen()

    def close(self) -> None:
        if self._quiet >= 0:
            os.close(self._quiet)
            os.close(self._end)
            self._quiet = -1
        self._drop()

    def _drop(self) -> None:
        if self._db is not None:
            self._db.close()
            self._db = None


@contextlib.contextmanager
def _closed_on_error(db: Connection) -> Iterator[None]:
    """Close a connection that nobody else knows of yet, also when a signal ends us here."""
    try:
        yield
    except BaseException:
        db.close()
        raise
