"""The tables of a store in memory: filled from rows, asked by the same queries, and aware of which
rows a transaction changed.
"""

import os
import sqlite3
from collections.abc import Collection, Iterable, Iterator

from kfm.model import Json
from kfm.model.canonical import MAX_INTEGER
from kfm.store.view import MIGRATIONS

__all__ = ["FORMAT", "Tables", "Unknown"]

_FILES = sorted(n for n in os.listdir(MIGRATIONS) if n[0].isdigit() and n.endswith(".sql"))
FORMAT = len(_FILES)
_NOTED = "insert into changed values ('{table}', json_array({key}));"


class Unknown(ValueError):
    """A row that no table has a place for."""


class _Table:
    """How the rows of one table are written and read."""

    def __init__(self, db: sqlite3.Connection, name: str) -> None:
        columns = db.execute(f"pragma table_info({name})").fetchall()
        self.name, self.columns = name, [c[1] for c in columns]
        keyed = sorted((c[5], c[1]) for c in columns if c[5])
        self.key = [column for _, column in keyed]
        # its rows come in the order they arrived in, which is a column nobody named
        self.ordered = "without rowid" not in str(
            db.execute("select lower(sql) from sqlite_master where name = ?", (name,)).fetchone()[0]
        )
        place = ["rowid"] if self.ordered else []
        self.read = f"select {', '.join([*place, *self.columns])} from {name}"
        self.where = " and ".join(f"{k} = ?" for k in self.key)

    def image(self, row: sqlite3.Row) -> Json:
        values = [_plain(v) for v in row]
        at = {"at": values.pop(0)} if self.ordered else {}
        return {**at, "put": dict(zip(self.columns, values)), "table": self.name}

    def triggers(self) -> str:
        noted = {
            word: _NOTED.format(table=self.name, key=", ".join(f"{word}.{k}" for k in self.key))
            for word in ("new", "old")
        }
        kinds = {"insert": ("new",), "update": ("old", "new"), "delete": ("old",)}
        return "\n".join(
            f"create temp trigger changed_{self.name}_{kind} after {kind} on main.{self.name} begin"
            f" {' '.join(noted[w] for w in words)} end;"
            for kind, words in kinds.items()
        )


class Tables:
    """One connection to tables that nobody else sees."""

    def __init__(self, form: int = FORMAT) -> None:
        self.db = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
        self.db.row_factory = sqlite3.Row
        self.migrate(form)
        self._known = self._tables()

    def _tables(self) -> dict[str, _Table]:
        names = self.db.execute("select name from sqlite_master where type = 'table'").fetchall()
        return {n[0]: _Table(self.db, n[0]) for n in names if not n[0].startswith("sqlite_")}

    def migrate(self, form: int = FORMAT) -> None:
        """From the format they have to another."""
        have = int(self.db.execute("pragma user_version").fetchone()[0])
        for number, file in enumerate(_FILES[have:form], have + 1):
            self.db.executescript(
                f"begin;\n{(MIGRATIONS / file).read_text()}\npragma user_version = {number};\ncommit;"
            )
        self._known = self._tables()

    @property
    def names(self) -> list[str]:
        return sorted(self._known)

    def clear(self, names: Collection[str] | None = None) -> None:
        """Drop every row of these tables, of all if none are named; those too that a new store
        begins with.
        """
        for name in self._known if names is None else names:
            self.db.execute(f"delete from {name}")

    def follow(self) -> None:
        """From now on know which rows a transaction changes."""
        self.db.execute("pragma recursive_triggers = on")  # what is replaced is changed, too
        self.db.execute("create temp table changed (name text, key text)")
        for table in self._known.values():
            self.db.executescript(table.triggers())

    def copy(self) -> "Tables":
        """The same rows, in tables of their own."""
        other = object.__new__(Tables)
        other.db = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
        other.db.row_factory = sqlite3.Row
        self.db.backup(other.db)
        other._known = self._known
        return other

    def apply(self, lines: Iterable[list[Json]]) -> None:
        """Take over the rows that others kept."""
        for rows in lines:
            for row in rows:
                try:
                    self._take(row)
                except (KeyError, TypeError, AttributeError, sqlite3.Error) as error:
                    raise Unknown(f"{type(error).__name__}: {error}") from error

    def _take(self, row: Json) -> None:
        table = self._known[row["table"]]
        if "drop" in row:
            self.db.execute(
                f"delete from {table.name} where {table.where}",
                [_value(row["drop"][k]) for k in table.key],
            )
            return
        values = {k: _value(v) for k, v in row["put"].items()}
        if not values.keys() <= {*table.columns}:
            raise KeyError(f"{table.name} has no such column")
        if table.ordered:
            values["rowid"] = _value(row["at"])
        self.db.execute(
            f"insert or replace into {table.name} ({', '.join(values)}) values"
            f" ({', '.join('?' * len(values))})",
            [*values.values()],
        )

    def forget(self) -> None:
        """What was taken over is no change of ours."""
        self.db.execute("delete from changed")

    def changed(self) -> list[Json]:
        """The rows that the open transaction changed, as it leaves them."""
        found = []
        for name, key in self.db.execute("select distinct name, key from changed").fetchall():
            table = self._known[name]
            values = [v for (v,) in self.db.execute("select value from json_each(?)", (key,))]
            row = self.db.execute(f"{table.read} where {table.where}", values).fetchone()
            gone = {"drop": dict(zip(table.key, map(_plain, values))), "table": name}
            found.append(gone if row is None else table.image(row))
        self.forget()
        return found

    def everything(self) -> Iterator[Json]:
        """Every row there is."""
        for name in sorted(self._known):
            table = self._known[name]
            order = "rowid" if table.ordered else ", ".join(table.key)
            for row in self.db.execute(f"{table.read} order by {order}"):
                yield table.image(row)


def _plain(value: object) -> object:
    """A value as every language reads it: a wide integer is written as text, and says so."""
    return {"integer": str(value)} if isinstance(value, int) and abs(value) > MAX_INTEGER else value


def _value(plain: object) -> object:
    return int(plain["integer"]) if isinstance(plain, dict) else plain
