"""Show a version on the screen: its first rows, what each column holds, where its places are; or the
answer to a question in SQL.
"""

import os
import sys
from pathlib import Path

from kfm.access.boundary import Opened, located
from kfm.access.references import dataset_of
from kfm.cli.answer import Answer, Call, answering
from kfm.cli.call import again, reader_of
from kfm.cli.draw import bars, dots
from kfm.cli.terminal import say, show, table, write
from kfm.data.libraries import library
from kfm.data.shown import Profile, Shown
from kfm.data.sql import Answer as Asked
from kfm.data.sql import ask
from kfm.diff.base import plain, shown
from kfm.model import UsageError
from kfm.workspace.folder import open_workspace
from kfm.workspace.wiring import open_world

__all__ = ["Told", "Viewed", "viewed"]

_CELL = 28  # of a cell on a terminal
_NUMBERS = ("int", "uint", "float", "double", "decimal")


class Viewed(Shown, Answer, frozen=True, kw_only=True):
    """A version: its first rows, what its columns hold, where its places are."""

    dataset_id: str
    version_id: str
    generation: int | None  # None: a proposal
    ref: str
    map: list[str]  # its places as dots, the northern ones first

    def tell(self, call: Call) -> None:
        write(
            f"{self.ref}   {self.rows:,} rows, {len(self.columns)} columns  "
            f" {self.version_id[:9]}…\n"
        )
        _rows(
            [c.name for c in self.columns],
            [list(row.values()) for row in self.first],
            {c.name: c.type for c in self.columns},
        )
        if len(self.first) < self.rows:
            write(f"  {self.rows - len(self.first):,} more rows")
        write("")
        heads = ("column", "type", "missing", "distinct", "shape", "values")
        cells = [_cells(column, self.rows) for column in self.columns]
        for line in table(heads, cells, right=("missing", "distinct")):
            show(line, data=True)
        if self.map and self.bbox:
            west, south, east, north = self.bbox
            write(f"\n  {west:.5g} to {east:.5g} east, {south:.5g} to {north:.5g} north\n")
            for line in self.map:
                show(f"  {line}", data=True)
        if self.generation is not None:
            following = f"get {self.ref} --format csv -o {self.dataset_id}.csv"
            write(f"\nNext  {again(call, following)}")


class Told(Asked, Answer, frozen=True, kw_only=True):
    """What a question in SQL came to."""

    dataset_id: str
    version_id: str
    generation: int | None

    def tell(self, call: Call) -> None:
        _rows([n for n, _ in self.columns], self.rows, dict(self.columns))
        if self.more:
            say(f"There are more: --rows {max(20, len(self.rows) * 10)}")


def viewed(call: Call, ref: str, rows: int, sql: str | None, reader: str | None) -> Viewed | Told:
    workspace = open_workspace(call.workspace)
    with open_world(workspace, asks=True) as world:
        if not ref.startswith("proposal/"):
            name = dataset_of(ref)
            if not world.data.exists(world.channel(name).path(1)):
                workspace.require(name)  # a typing mistake gets the nearest name
        opened = located(world, ref, reader_of(reader))
        tables = {n: p for n, p in sorted(opened.files.items()) if n.endswith(".parquet")}
        if not tables:
            raise UsageError(
                f"{ref} holds no table, but {', '.join(sorted(opened.files))}.",
                expected="a version with a Parquet file",
                remedy=f"`kfm get {ref}` hands its files out.",
            )
        if sql is None:
            return _viewed(opened, tables, rows)
        answer = ask(list(tables.values()), (opened.dataset_id, "data"), sql, rows=rows)
        return answering(
            Told,
            answer,
            dataset_id=opened.dataset_id,
            version_id=opened.version_id,
            generation=opened.generation,
        )


def _viewed(opened: Opened, tables: dict[str, Path], rows: int) -> Viewed:
    library("pyarrow", "reads Parquet")
    from kfm.data.show import preview

    found, places = preview(tables, rows)
    return answering(
        Viewed,
        found,
        dataset_id=opened.dataset_id,
        version_id=opened.version_id,
        generation=opened.generation,
        ref=opened.label,
        map=dots(places.spots) if places is not None else [],
    )


def _cells(column: Profile, rows: int) -> tuple[str, ...]:
    """What a column holds, as a line of the table."""
    return (
        plain(column.name),
        column.type.split("[")[0],
        f"{column.missing:,}" if column.missing else "",
        "" if column.distinct is None else f"{column.distinct:,}",
        bars(column.shape),
        _range(column, rows),
    )


def _range(column: Profile, rows: int) -> str:
    """The commonest values where they are many, else the first and the last."""
    if 10 * sum(count for _, count in column.common) >= rows - column.missing > 0:
        return ", ".join(f"{_cut(shown(text))} {count:,}" for text, count in column.common)
    ends = dict.fromkeys(shown(v) for v in (column.lowest, column.highest) if v is not None)
    return " to ".join(map(_cut, ends))


def _cut(text: str) -> str:
    """A cell for a terminal; a pipe gets all of it."""
    return text[: _CELL - 1] + "…" if len(text) > _CELL and sys.stdout.isatty() else text


def _rows(names: list[str], rows: list[list[object]], types: dict[str, str]) -> None:
    """A table of cells. What does not fit a terminal is left out by the column and named."""
    heads = [plain(name) for name in names]
    cells = [[_cut(plain(shown(cell))) if cell is not None else "" for cell in r] for r in rows]
    kept = len(heads)
    if sys.stdout.isatty():
        room = os.get_terminal_size().columns - 2
        for kept, (head, *column) in enumerate(zip(heads, *cells)):
            room -= max(map(len, (head, *column))) + 2
            if room < 0 and kept:
                break
        else:
            kept = len(heads)
    right = [
        head
        for head, name in zip(heads, names)
        if types[name].lower().rstrip("0123456789(,)").startswith(_NUMBERS)
        or types[name].endswith(("INT", "INTEGER"))
    ]
    for line in table(heads[:kept], [r[:kept] for r in cells], right=right):
        show(line, data=True)
    if kept < len(heads):
        show(f"  and {len(heads) - kept} more: {', '.join(heads[kept:])}", data=True)
