"""What every view of a transaction is made of: named queries over one connection."""

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from kfm.model import Clock, Json, Token

__all__ = ["MIGRATIONS", "SQL", "Database", "Home", "Locks", "Row", "View", "insert_sql"]

Row = Mapping[str, Any]  # one row by the names of its columns
_HERE = Path(__file__).parent
MIGRATIONS = _HERE / "migrations"  # numbered files, each from one format to the next


class Answer(Protocol):
    """What a query found, or how many rows it changed."""

    @property
    def rowcount(self) -> int: ...
    def fetchone(self) -> Row | None: ...
    def fetchall(self) -> Sequence[Row]: ...


class Database(Protocol):
    """A connection to the tables."""

    def execute(self, query: str, values: Mapping[str, object] | Sequence[object], /) -> Answer: ...


class Locks(Protocol):
    """What tells that the holder of a lease is gone before the lease ran out."""

    def hold(self, token: Token) -> None: ...
    def is_dead(self, token: Token) -> bool: ...
    def drop(self, token: Token) -> None: ...
    def held(self) -> list[Token]: ...
    def stale_files(self) -> list[Path]: ...


class Home(Protocol):
    """What the views of one transaction need to know about where they are."""

    epoch: int
    served: bool  # other transactions may be at work at the same time

    @property
    def clock(self) -> Clock: ...
    @property
    def locks(self) -> Locks: ...
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


def _load_queries() -> dict[str, str]:
    text = "\n".join(file.read_text() for file in sorted(_HERE.glob("*.sql")))
    _, *parts = re.split(r"(?m)^-- name: (\w+)\n", text)
    found = dict(zip(parts[::2], (p.strip() for p in parts[1::2])))
    if len(found) * 2 != len(parts):
        raise AssertionError("two queries have one name, and one of them would never be asked")
    return found


SQL = _load_queries()


def insert_sql(table: str, fields: Sequence[str], key: str = "") -> str:
    """With `key`, a row that is there already is updated, so that it keeps its place in the order
    of arrival.
    """
    update = (
        f" on conflict ({key}) do update set {', '.join(f'{f} = excluded.{f}' for f in fields)}"
        if key
        else ""
    )
    return (
        f"insert into {table} ({', '.join(fields)}) values"
        f" ({', '.join(':' + f for f in fields)}){update}"
    )


class View:
    """Named queries over one connection."""

    def __init__(self, store: Home, db: Database) -> None:
        self._store = store
        self._db = db

    def _run(self, query: str, values: Mapping[str, object]) -> Answer:
        store = self._store
        return self._db.execute(
            store.sql[query], {**values, **store.times()} if query in store.timed else values
        )

    def _all(self, query: str, /, **values: object) -> Sequence[Row]:
        return self._run(query, values).fetchall()

    def _whole(self, query: str, /, **values: object) -> list[Json]:
        """Rows with all their columns, whichever those are."""
        return [dict(row) for row in self._all(query, **values)]

    def _one(self, query: str, /, **values: object) -> Row | None:
        return self._run(query, values).fetchone()

    def _do(self, query: str, /, **values: object) -> int:
        return int(self._run(query, values).rowcount)

    def _alone(self, name: str) -> None:
        """Until this transaction ends, no other one that says the same name goes on. Datasets
        first, then rows: one order everywhere.
        """
        self._store.alone(name)
