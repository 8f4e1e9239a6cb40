"""Rebuild the store from the evidence files, in a new epoch; the old store is set aside."""

from typing import Literal

from kfm.cli.answer import Answer, Call
from kfm.cli.call import again
from kfm.cli.terminal import say, show, write
from kfm.model import IntegrityError, KfmError
from kfm.workspace.folder import Workspace, open_workspace
from kfm.workspace.wiring import open_world, reindex_workspace

__all__ = ["Reindexed", "reindexed"]


class Reindexed(Answer, frozen=True, kw_only=True):
    """What was found again."""

    status: Literal["reindexed"]
    datasets: int
    runs: int
    noops: int
    generations: int
    lineage: int
    epoch: int
    coordination: str  # jobs, switches, schedules, backfills: carried over, or lost and why
    damaged: list[str]
    # proposals that waited for a person; null: the store that was replaced could not be read
    ended: int | None = 0

    @property
    def code(self) -> int:
        return IntegrityError.exit_code if self.damaged else 0

    def tell(self, call: Call) -> None:
        names = ("datasets", "runs", "noops", "generations", "lineage", "epoch")
        show(", ".join(f"{getattr(self, name):,} {name}" for name in names))
        show(f"jobs, switches, schedules, backfills  {self.coordination}")
        if self.ended is None and self.runs:
            show(
                "no earlier store could be read: proposals that waited have ended, if there were any;"
                f" {again(call, 'run --all')} makes them again"
            )
        elif self.ended:
            which = (
                "1 proposal that waited has"
                if self.ended == 1
                else f"{self.ended:,} proposals that waited have"
            )
            show(
                f"{which} ended, with the approvals given: {again(call, 'run --all')} makes them again"
            )
        for path in self.damaged:
            say(f"{path} is damaged and was left out; restore it from a backup and reindex again")
        write(f"\nNext  {again(call, 'status')}")


def reindexed(call: Call) -> Reindexed:
    damaged: list[str] = []
    workspace = open_workspace(call.workspace)
    waited = _waiting(workspace)
    counts = reindex_workspace(workspace, damaged)
    return Reindexed(status="reindexed", **counts, damaged=damaged, ended=waited)


def _waiting(workspace: Workspace) -> int | None:
    """Proposals that wait for a person; None: the store that is replaced cannot be read."""
    lines = workspace.lines_file
    if workspace.server is None and not (lines or workspace.store_file).exists():
        return None
    try:
        with open_world(workspace) as world:
            return len(world.store.read(lambda tx: tx.proposals.waiting()))
    except KfmError:
        return None
