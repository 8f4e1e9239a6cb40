"""The store on a PostgreSQL server: the same tables and queries, transactions of one dataset wait
for each other there.
"""

import contextlib
import re
import select
import sqlite3
import time
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import TypeVar

import psycopg
from psycopg import errors as pg

from kfm.extras.postgres.connections import BELL, POOL, Connection, Connections, ServerBell, first
from kfm.extras.postgres.dialect import TIMES, migration, to_postgres
from kfm.model import Clock, Fenced, IntegrityError, Json, KfmError, StoreUnavailable, UsageError
from kfm.store.address import shown
from kfm.store.base import Tx
from kfm.store.locks import NoLocks
from kfm.store.sqlite import DERIVED, WAIT_AGAIN, SqliteStore
from kfm.store.view import MIGRATIONS, SQL

__all__ = ["PostgresStore", "judge_settings", "open_server"]

T = TypeVar("T")
PATIENCE = 5.0  # seconds until a server that does not answer is given up
# how long a notification may take that arrives at once on a machine that has nothing else to do
RING_S = 10.0
_EPOCH = f"select value, {TIMES['now_ms']} as now_ms from meta where key = 'epoch'"
_WRITE = f"begin isolation level read committed; {_EPOCH}"
_READ = "begin isolation level repeatable read read only"
_BUILD = (
    "begin isolation level read committed; set local idle_in_transaction_session_timeout = 0;"
    f" select {TIMES['now_ms']} as now_ms"
)
_ALONE = "select pg_advisory_xact_lock(hashtextextended(current_schema() || '/' || %s, 0))"


@cache
def _queries(writing: bool) -> dict[str, str]:
    return {name: to_postgres(sql, writing=writing) for name, sql in SQL.items()}


class PostgresTx(Tx):
    """One transaction: its views, the server's time in it, and what happens when it ends."""

    timed: frozenset[str] = frozenset()
    served = True

    def __init__(self, store: "PostgresStore", db: Connection, began_ms: int | None) -> None:
        self.clock, self.epoch, self.locks = store.clock, store.epoch, store.locks
        self.sql = _queries(began_ms is not None)
        self._db, self._began_ms, self._alone = db, began_ms, set[str]()
        self.after: list[Callable[[], None]] = []
        self.undo: list[Callable[[], None]] = []
        self._rings = False
        super().__init__(self, db)

    def times(self) -> dict[str, int]:
        return {}

    def now_ms(self) -> int:
        """The server's time when the transaction began; queries that say `:now_ms` look again."""
        return (
            self._began_ms
            if self._began_ms is not None
            else int(self.clock.now().timestamp() * 1000)
        )

    def boot_id(self) -> str:
        return ""

    def alone(self, name: str) -> None:
        if self._began_ms is not None and name not in self._alone:
            self._db.execute(_ALONE, (name,))
            self._alone.add(name)

    def after_commit(self, call: Callable[[], None]) -> None:
        self.after.append(call)

    def on_rollback(self, call: Callable[[], None]) -> None:
        self.undo.append(call)

    def ring_after_commit(self) -> None:
        """The server tells whoever listens, once this transaction is durable."""
        if not self._rings:
            self._db.execute(f"select pg_notify({BELL}, '')")
            self._rings = True


class PostgresStore(Connections):
    """One server, many machines. `transaction` returns when the server has said that the work is
    durable.
    """

    served = True

    def __init__(
        self,
        url: str,
        clock: Clock,
        *,
        create: bool = True,
        repair: bool = False,
        workspace: str = "",
    ) -> None:
        """`workspace` is the id of the one it is opened for: a schema belongs to the first."""
        super().__init__(url)
        self.clock, self.locks, self._workspace = clock, NoLocks(), workspace
        self.epoch = 0
        try:
            self.epoch = self._open(create)
        except BaseException as error:
            if not (repair and isinstance(error, IntegrityError)):
                self.abandon()
                raise

    def _open(self, create: bool) -> int:
        """Bring the tables up to date; the epoch they are of."""
        with self._begun(_BUILD, PATIENCE) as (db, _), self._mapped():
            if _format(db) != len(_migrations()):
                db.execute(_ALONE, ("migrations",))
                self._migrate(db, create)
            self._must_be_ours(db)
            row = db.execute(_EPOCH).fetchone()
            _finish(db)
        if row is None:
            raise self._missing("holds no epoch")
        return int(row["value"])

    def _must_be_ours(self, db: Connection) -> None:
        """Refuse the schema of another workspace; one that is nobody's becomes ours."""
        if not self._workspace or (owner := _owner(db)) == self._workspace:
            return
        if owner is None:
            db.execute(
                "insert into meta (key, value) values ('workspace', %s) on conflict (key) do"
                " nothing",
                (self._workspace,),
            )
        if _owner(db) != self._workspace:
            raise UsageError(
                f"This schema belongs to another workspace: {shown(self.url)} keeps the store of"
                f" {_owner(db)}.",
                expected=f"a schema of its own for this workspace, {self._workspace}",
                remedy=(
                    "Name another one in kfm.yml: ?options=-csearch_path%3DNAME. If this was the"
                    " same workspace once, bring its files back with `kfm backup restore`: its id"
                    " is among them."
                ),
            )

    # ---- transactions ----------------------------------------------------------------------------
    def now_ms(self) -> int:
        """This machine's time, for what is shown; what decides asks the server inside its
        transaction.
        """
        return int(self.clock.now().timestamp() * 1000)

    def transaction(self, work: Callable[[PostgresTx], T], *, durable: bool = True) -> T:
        return self._write(work, PATIENCE, durable)

    def _write(self, work: Callable[[PostgresTx], T], patience: float, durable: bool = True) -> T:
        with self._begun(_WRITE, patience) as (db, told):
            began = self._check_epoch(told)
            if not durable:
                db.execute("set local synchronous_commit = off")
            tx = PostgresTx(self, db, began)
            try:
                with self._mapped():
                    result = work(tx)
                    _finish(db)
            except BaseException:
                for call in reversed(tx.undo):
                    call()
                raise
        for call in tx.after:
            call()
        return result

    def _check_epoch(self, row: Json | None) -> int:
        """When this transaction began, by the server's clock."""
        if row is None:
            raise self._missing("holds no epoch")
        if int(row["value"]) != self.epoch:
            raise Fenced(
                "The store was rebuilt while this command was running.",
                expected="the store it began with",
                remedy="Run the command again: it finds what is official now.",
            )
        return int(row["now_ms"])

    def read(self, work: Callable[[PostgresTx], T]) -> T:
        """Look without writing: one consistent snapshot, asked for again while the server is
        away.
        """
        until = time.monotonic() + PATIENCE
        while True:
            try:
                with self._begun(_READ, PATIENCE) as (db, _), self._mapped():
                    return work(PostgresTx(self, db, None))
            except StoreUnavailable:
                if time.monotonic() >= until:
                    raise

    @contextlib.contextmanager
    def rebuilding(self, aside: Path) -> Iterator["ServerRebuild"]:
        """Everybody else stands still; what is there is dropped, and the new content appears at
        once or not at all. The old rows are kept in a file in the folder `aside`."""
        with contextlib.suppress(KfmError):  # what is damaged cannot always be kept
            self.copy_to(aside / "idempotency.sqlite")
        root: str | None = None
        with contextlib.suppress(KfmError):  # nor can it always be asked
            root = self.read(lambda tx: tx.index.meta("root"))
        with self._begun(_BUILD, PATIENCE) as (db, told), self._mapped():
            db.execute(_ALONE, ("migrations",))
            if first(db, "select to_regclass('meta') as found")["found"] is not None:
                # every transaction looks there first
                db.execute("lock table meta in access exclusive mode")
                self._must_be_ours(db)
            assert told is not None
            inside = _Inside(self, db, int(told["now_ms"]))
            yield ServerRebuild(inside, self.epoch, root)
            _finish(db)

    # ---- format ----------------------------------------------------------------------------------
    def _migrate(self, db: Connection, create: bool) -> None:
        files, have = _migrations(), _format(db)
        if have > len(files):
            raise UsageError(
                f"The store has format {have}, this kfm knows {len(files)}.",
                expected="a store written by this or an older kfm",
                remedy="Install a newer kfm.",
            )
        if not have and not create:
            raise self._missing("has no tables")
        for statement in (s for file in files[have:] for s in file):
            db.execute(statement)
        if not have:
            db.execute("create table store_format (version bigint not null)")
            db.execute("insert into store_format values (0)")
            db.execute("insert into meta (key, value) values ('epoch', '1')")
        db.execute("update store_format set version = %s", (len(files),))

    def _missing(self, what: str) -> IntegrityError:
        return IntegrityError(
            f"The store at {shown(self.url)} {what}, but this workspace has published data.",
            expected="the store beside its evidence",
            remedy="Run `kfm reindex`: it rebuilds the store from the evidence files.",
        )

    # ---- the rest of what a store does -----------------------------------------------------------
    def bell(self) -> "ServerBell":
        """What rings when somebody puts a job."""
        return ServerBell(self._connect)

    def changes(self) -> None:
        """The server does not say it."""

    def tidy(self) -> None:
        """The server does that by itself."""

    def vacuum(self) -> None:
        """Write the tables anew that hold what runs saw; the server's own log and its backups are
        its keeper's.
        """
        with self._mapped(), contextlib.closing(self._connect()) as db:
            for table in (
                "ledger",
                "journal",
                "plan",
                "generation",
                "outbox",
                "delivery",
                "lineage",
                "lineage_node",
                "lineage_edge",
                "head_key",
                "source_state",
                "noop",
            ):
                db.execute(f"vacuum full {table}")

    def check(self) -> str:
        """'ok', or what is wrong with the tables."""
        try:
            self.read(lambda tx: (tx.runs.recent(limit=1), tx.leases.held(), tx.jobs.depths()))
        except IntegrityError as error:
            return error.happened
        return "ok"

    def examine_server(self) -> list[tuple[str, str, str]]:
        """(code, what, remedy) of settings that would lose data, and of what stands between us and
        the server.
        """
        with self._begun(_READ, PATIENCE) as (db, _), self._mapped():
            before = self.clock.now().timestamp()
            told = first(
                db,
                """select (select json_object_agg(name, setting) from pg_settings) as settings,
                (select count(*) from pg_stat_activity where backend_type = 'client backend') as used,
                cast(extract(epoch from clock_timestamp()) as double precision) as now""",
            )
            after = self.clock.now().timestamp()
        skew = max(before - told["now"], told["now"] - after, 0.0)
        found = judge_settings(told["settings"], told["used"], skew)
        return found if self._rings() else [*found, _POOLER]

    def _rings(self) -> bool:
        """Whether a bell rings here: it does not behind a pooler that hands connections out by
        transaction.
        """
        bell = self.bell()
        try:
            self.ring()
            return bool(select.select([bell.fileno()], [], [], RING_S)[0])
        finally:
            bell.close()

    def ring(self) -> None:
        self.transaction(lambda tx: tx.ring_after_commit())

    def copy_to(self, file: Path) -> None:
        """The rows of every table in a new SQLite store, as of one moment."""
        SqliteStore(file, self.clock).abandon()
        with (
            self._begun(_READ, PATIENCE) as (db, _),
            self._mapped(),
            contextlib.closing(sqlite3.connect(file)) as copy,
        ):
            for (table,) in copy.execute(
                "select name from sqlite_master where type = 'table' order by name"
            ).fetchall():
                names = [row[1] for row in copy.execute(f"pragma table_info({table})")]
                places = (
                    f"insert or replace into {table} ({', '.join(names)}) values"
                    f" ({', '.join(':' + n for n in names)})"
                )
                order = " order by rowid" if db.execute(_HAS_ROWID, (table,)).fetchone() else ""
                with db.cursor(name="copy") as rows:
                    copy.executemany(
                        places, rows.execute(f"select {', '.join(names)} from {table}{order}")
                    )
            copy.commit()

    def close(self) -> None:
        held = self.locks.held()
        if held:
            with contextlib.suppress(Exception):
                self._write(lambda tx: tx.leases.release(*held), 0)
        self.abandon()

    def abandon(self) -> None:
        """Let go as a killed process would: nothing released."""
        self._closed = True
        self._forget_idle()


class ServerRebuild:
    """The tables made anew in one transaction."""

    def __init__(self, store: "_Inside", old_epoch: int, old_root: str | None) -> None:
        self.store, self.old_epoch, self.old_root = store, old_epoch, old_root
        self.has_work = store.clear()

    def finish(self, last: Callable[[Tx], None]) -> bool:
        self.store.transaction(last)
        return self.has_work


class _Inside:
    """A store inside one transaction of another: nothing of it is durable before that ends."""

    def __init__(self, store: PostgresStore, db: Connection, now_ms: int) -> None:
        self.clock, self.epoch = store.clock, store.epoch
        self._store, self._db, self._now_ms = store, db, now_ms

    def clear(self) -> bool:
        """Make every table anew; whether jobs, switches, pools, schedules and backfills could be
        carried over.
        """
        said = "\n".join(s for file in _migrations() for s in file)
        called = dict(re.findall(r"(?m)^alter table (\w+) rename to (\w+)", said))
        made = re.findall(r"(?m)^create table (\w+)", said)
        own = list(dict.fromkeys(called.get(table, table) for table in made))
        self._db.execute("savepoint carry")
        try:
            self._anew(own, [table for table in own if table not in DERIVED])
        except psycopg.DatabaseError as error:
            if isinstance(error, pg.OperationalError):  # the server, not what lies there
                raise
            self._db.execute("rollback to savepoint carry")
            self._anew(own, [])
            return False
        return True

    def _anew(self, own: list[str], carried: list[str]) -> None:
        do = self._db.execute
        for table in carried:
            do(f"create table carried_{table} as table {table}")
        do(f"drop table if exists {', '.join(own)}, store_format")
        self._store._migrate(self._db, create=True)
        self._store._must_be_ours(self._db)
        for table in carried:
            names = ", ".join(row["column_name"] for row in do(_COLUMNS, (table,)).fetchall())
            order = " order by rowid" if do(_HAS_ROWID, (table,)).fetchone() else ""
            do(f"delete from {table}")
            do(f"insert into {table} ({names}) select {names} from carried_{table}{order}")
            do(f"drop table carried_{table}")
        do(WAIT_AGAIN)

    def transaction(self, work: Callable[[PostgresTx], T], *, durable: bool = True) -> T:
        return work(PostgresTx(self._store, self._db, self._now_ms))

    def read(self, work: Callable[[PostgresTx], T]) -> T:
        return self.transaction(work)

    def now_ms(self) -> int:
        return self._now_ms

    def bell(self) -> "ServerBell":
        return self._store.bell()

    def check(self) -> str:
        return "ok"  # it was just made

    def close(self) -> None:
        """Who began the transaction ends it."""

    abandon = tidy = vacuum = close


_HAS_ROWID = """select 1 from information_schema.columns
  where table_schema = current_schema() and table_name = %s and column_name = 'rowid'"""
_COLUMNS = """select column_name from information_schema.columns
  where table_schema = current_schema() and table_name = %s and column_name <> 'rowid'"""
_POOLER = (
    "store.pooler",
    "a notification did not arrive: a pooler hands out connections by transaction",
    (
        "Connect to the server itself, or set the pooler to session mode; locks, LISTEN and session"
        " settings need it."
    ),
)


def _finish(db: Connection) -> None:
    """Commit; a transaction that failed half-way answers ROLLBACK to that."""
    if db.execute("commit").statusmessage != "COMMIT":
        raise pg.InFailedSqlTransaction("the server rolled the transaction back")


def _owner(db: Connection) -> str | None:
    """The workspace this store is of."""
    row = db.execute("select value from meta where key = 'workspace'").fetchone()
    return None if row is None else str(row["value"])


def _format(db: Connection) -> int:
    if first(db, "select to_regclass('store_format') as found")["found"] is None:
        return 0
    return int(first(db, "select version from store_format")["version"])


def open_server(
    url: str, clock: Clock, *, create: bool, repair: bool, workspace: str
) -> "PostgresStore":
    """The store at this address, which belongs to `workspace`."""
    return PostgresStore(url, clock, create=create, repair=repair, workspace=workspace)


@cache
def _migrations() -> list[list[str]]:
    return [migration(file.read_text()) for file in sorted(MIGRATIONS.glob("[0-9]*.sql"))]


def judge_settings(settings: dict[str, str], used: int, skew: float) -> list[tuple[str, str, str]]:
    """What doctor says about a server."""
    found = [
        (
            f"store.{name}",
            f"{name} is off: a power cut would lose what was stored",
            f"Set `{name} = on` on the server.",
        )
        for name in ("fsync", "synchronous_commit", "full_page_writes")
        if settings[name] == "off"
    ]
    if int(settings["server_version_num"]) < 140_000:
        found.append(
            (
                "store.old",
                f"the server is PostgreSQL {settings['server_version']}",
                "Use PostgreSQL 14 or newer.",
            )
        )
    spare = (
        int(settings["max_connections"]) - int(settings["superuser_reserved_connections"]) - used
    )
    if spare < POOL + 1:
        what = (
            f"{max(spare, 0)} connections are left of {settings['max_connections']}; a worker takes"
            f" up to {POOL + 1}"
        )
        found.append(("store.connections", what, "Raise max_connections on the server."))
    if skew > 5:
        what = f"the server's clock differs from this machine's by {skew:.0f} s"
        found.append(
            (
                "store.clock",
                what,
                "Let both follow the same time server: job times and receipts would disagree.",
            )
        )
    return found
