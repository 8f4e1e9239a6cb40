"""List the generations of a dataset, newest first: when, how many rows, what changed, who is behind
it and why, and the command that goes back to each.
"""

from kfm.access.references import dataset_of
from kfm.cli.answer import Answer, Call, answering
from kfm.cli.call import again, reader_of
from kfm.cli.terminal import say, show, sign, table, when, write
from kfm.data.history import Entry, History, history
from kfm.model import UsageError
from kfm.workspace.folder import open_workspace
from kfm.workspace.wiring import open_world

__all__ = ["Generations", "generations"]

_SIGNS = {"promote": "COMMITTED", "withdraw": "REJECTED", "rollback": "SUPERSEDED"}


class Generations(History, Answer, frozen=True, kw_only=True):
    """The generations of a dataset, newest first."""

    def tell(self, call: Call) -> None:
        if not self.generations:
            write(f"Nothing of {self.dataset_id} was ever official.")
            write(f"\nNext  {again(call, f'status {self.dataset_id}')}")
            return
        heads = ("", "gen", "when", "version", "rows", "change", "by", "why")
        lines = table(heads, [_cells(e) for e in self.generations], right=("gen", "rows"))
        show(lines[0])
        for line, entry in zip(lines[1:], self.generations):
            show(line)
            if entry.rollback is not None:
                write(f"        {entry.rollback}")
        if self.not_told:
            say(f"Rows are not counted here: {self.not_told}")
        if self.earlier:
            more = f"history {self.dataset_id} --limit {len(self.generations) + self.earlier}"
            say(f"{self.earlier:,} earlier: {again(call, more)}")


def generations(call: Call, dataset: str, limit: int, reader: str | None) -> Generations:
    workspace = open_workspace(call.workspace)
    dataset_id = dataset_of(dataset)
    if "@" in dataset:
        raise UsageError(
            f"{dataset} is one version.",
            expected="a dataset",
            remedy=f"`kfm history {dataset_id}` lists all of them.",
        )
    with open_world(workspace, asks=True) as world:
        if not world.data.exists(world.channel(dataset_id).path(1)):
            workspace.require(dataset_id)  # a typing mistake gets the nearest name
        return answering(Generations, history(world, dataset_id, reader_of(reader), limit))


def _cells(entry: Entry) -> tuple[str, ...]:
    by = ", ".join(entry.approved_by) or (entry.asked_by or "").removeprefix("user:")
    by = by or entry.signed_by or "?"
    return (
        sign("PASS" if entry.official else _SIGNS.get(entry.kind, "NOOP")),
        str(entry.generation),
        when(entry.at),
        f"{entry.version_id[:9]}…" if entry.version_id else "none",
        "" if entry.rows is None else f"{entry.rows:,}",
        entry.in_words,
        by,
        entry.reason,
    )
