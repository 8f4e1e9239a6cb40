"""Ask where something comes from, what comes from it, and what would break without it."""

from pathlib import Path

from kfm.catalog.lineage.columns import ColumnLineage
from kfm.catalog.lineage.cypher import cypher
from kfm.cli.answer import Answer, Call, answering
from kfm.cli.call import again, reader_of
from kfm.cli.terminal import say, show, write
from kfm.lineage.ask import Impact, Line, Walk, impact, path, records_in, walk
from kfm.lineage.columns import columns_behind
from kfm.lineage.draw import dot, said, svg, tree
from kfm.workspace.folder import open_workspace
from kfm.workspace.wiring import open_world
from kfm.zones.durable import replace_durably

__all__ = ["Exported", "Impacted", "Shown", "Way", "exported", "impacted", "shown", "way"]

_HIDDEN = "Some of it is hidden: `--for NAME` asks as somebody who was granted it."


class Shown(Walk, Answer, frozen=True, kw_only=True):
    """The lineage around a version, a run or a source."""

    columns: tuple[ColumnLineage, ...] | None = None  # None: nobody asked for them

    def tell(self, call: Call) -> None:
        write(said(self.start))
        for title, up in (("comes from", True), ("goes into", False)):
            lines = list(tree(self, up=up))
            if lines:
                write(f"\n{title}")
                for line in lines:
                    show(f"  {line}")
        if not self.lines:
            write("\nNothing is known to lead here or away from here.")
        if self.columns is not None:
            write("\ncolumns" if self.columns else "\nNothing is told of its columns.")
        for column in self.columns or ():
            of = ", ".join(dict.fromkeys(o.column for o in column.of))
            places = ", ".join(dict.fromkeys(o.uri for o in column.of))
            show(f"  {column.name:<24} {column.how:<12} {of:<24} {column.by or places}".rstrip())
        if self.hidden:
            say(_HIDDEN)


class Way(Answer, frozen=True, kw_only=True):
    """The shortest way from one to the other; empty: there is none."""

    lines: tuple[Line, ...]

    @property
    def code(self) -> int:
        return 0 if self.lines else 1

    def tell(self, call: Call) -> None:
        if not self.lines:
            write("Neither comes from the other, as far as may be told.")
            return
        show(said(self.lines[0].source))
        for number, line in enumerate(self.lines, 1):
            verb = "was used in" if line.kind == "USED_IN" else "made"
            show(f"{'  ' * number}{verb} {said(line.target)}")


class Impacted(Impact, Answer, frozen=True, kw_only=True):
    """What would break without a source."""

    def tell(self, call: Call) -> None:
        for each in self.affected:
            state = f"official {each.official[:9]}… comes from it" if each.official else "earlier"
            runs = "run" if each.distance == 1 else "runs"
            show(
                f"  {each.dataset_id:<28} {state:<40} {each.versions} versions, {each.distance} {runs} away"
            )
        if not self.affected:
            write("Nothing comes from it.")
        elif broken := [a.dataset_id for a in self.affected if a.official]:
            write(f"\n{len(broken)} official. Next  {again(call, f'explain {broken[0]}')}")
        if self.hidden:
            say(_HIDDEN)


class Exported(Answer, frozen=True, kw_only=True):
    """A drawing or a batch of lineage."""

    format: str
    nodes: int
    edges: int
    output: str | None  # the file; None: it is `text`
    text: str | None

    def tell(self, call: Call) -> None:
        if self.text is not None:
            print(self.text, end="")
        else:
            write(f"{self.output}: {self.nodes:,} nodes, {self.edges:,} edges")


def shown(
    call: Call, what: str, up: int, down: int, as_of: str | None, columns: bool, reader: str | None
) -> Shown:
    who = reader_of(reader)
    with open_world(open_workspace(call.workspace), asks=True) as world:
        found = walk(world, what, up=up, down=down, as_of=as_of, reader=who)
        told = columns_behind(world, found.start, who) if columns else None
        return answering(Shown, found, columns=told)


def way(call: Call, one: str, other: str, reader: str | None) -> Way:
    with open_world(open_workspace(call.workspace), asks=True) as world:
        return Way(lines=path(world, one, other, reader_of(reader)) or ())


def impacted(call: Call, source: str, reader: str | None) -> Impacted:
    with open_world(open_workspace(call.workspace), asks=True) as world:
        return answering(Impacted, impact(world, source, reader_of(reader)))


def exported(
    call: Call,
    what: str,
    format: str,
    output: Path | None,
    up: int,
    down: int,
    as_of: str | None,
    reader: str | None,
) -> Exported:
    with open_world(open_workspace(call.workspace), asks=True) as world:
        found = walk(world, what, up=up, down=down, as_of=as_of, reader=reader_of(reader))
        records = records_in(world, found) if format == "cypher" else []
    texts = {"dot": dot, "svg": svg}
    text = texts[format](found) if format in texts else "".join(map(cypher, records))
    if output is not None:
        replace_durably(output, text.encode(), 0o644)
    return Exported(
        format=format,
        nodes=len(found.points),
        edges=len(found.lines),
        output=str(output) if output is not None else None,
        text=None if output is not None else text,
    )
