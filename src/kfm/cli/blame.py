"""Find who gave a row or a cell its value, over all versions."""

from kfm.access.references import dataset_of
from kfm.cli.answer import Answer, Call, answering
from kfm.cli.call import reader_of
from kfm.cli.terminal import say, show, table, write
from kfm.diff.base import shown
from kfm.model import MissingExtra
from kfm.story.blame import Blame, Origin, blame
from kfm.story.words import when
from kfm.workspace.folder import open_workspace
from kfm.workspace.targets import rebuilt_target
from kfm.workspace.wiring import open_world

__all__ = ["Blamed", "blamed"]


class Blamed(Blame, Answer, frozen=True, kw_only=True):
    """Who gave a row or a cell its value."""

    def tell(self, call: Call) -> None:
        named = ", ".join(f"{name} {value}" for name, value in self.key.items())
        if not self.there:
            write(_absent(self, named))
        else:
            show(f"{self.ref}  {named}", data=True)
            rows = [
                (
                    cell.column,
                    shown(cell.value),
                    f"{'' if cell.certain else 'at the latest '}generation {cell.generation}",
                    "" if cell.given_by == cell.generation else f"first {cell.given_by}",
                    when(cell.at),
                    cell.run_id,
                )
                for cell in self.cells
            ]
            for line in table(("column", "value", "since", "given by", "when", "run"), rows):
                show(line, data=True)
        if self.origin is not None:
            _origin(self.origin)
        if len(self.was) > 1:
            write("\nBefore that, newest first:")
            for one in self.was[1:]:
                value = shown(one.value) if one.there else "the row was not there"
                show(f"  generation {one.generation}  {when(one.at)}  {value}", data=True)
        if self.not_shown:
            say(f"May not be looked at: generations {', '.join(map(str, self.not_shown))}.")


def _absent(found: Blame, named: str) -> str:
    if found.last_seen is None:
        return f"No version up to {found.ref} that may be looked at has {named}."
    return (
        f"{found.ref} has no {named}. Generation {found.last_seen} had it, generation"
        f" {found.gone_by} has it no more."
    )


def _origin(origin: Origin) -> None:
    write("")
    if origin.file:
        lines = ", ".join(map(str, origin.lines))
        at = f", line{'' if len(origin.lines) == 1 else 's'} {lines}" if origin.lines else ""
        write(f"  from     {origin.file}{at}")
        write(f"           {origin.digest}")
    if origin.receipt:
        write(f"  receipt  {origin.receipt}")
    if origin.note:
        write(f"  note     {origin.note}")
    for command in origin.next:
        write(f"  next     {command}")


def blamed(call: Call, ref: str, key: list[str], column: str | None, reader: str | None) -> Blamed:
    workspace = open_workspace(call.workspace)
    dataset_id = dataset_of(ref)
    with open_world(workspace, asks=True) as world:
        if not world.data.exists(world.channel(dataset_id).path(1)):
            workspace.require(dataset_id)  # a typing mistake gets the nearest name
        try:
            found = blame(
                world, ref, key, column, reader_of(reader), lambda r: rebuilt_target(workspace, r)
            )
        except ImportError as error:
            raise MissingExtra(
                f"{error.name} is not installed.",
                expected="what reads Parquet",
                remedy="Run `pip install 'kfm[geo]'`.",
            ) from error
    return answering(Blamed, found)
