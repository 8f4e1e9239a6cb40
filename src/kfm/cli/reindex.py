"""Rebuild the store from the evidence files, in a new epoch; the old store is set aside."""

from typing import Literal

from kfm.cli.answer import Answer, Call
from kfm.cli.call import again
from kfm.cli.terminal import say, show, write
from kfm.model import IntegrityError
from kfm.workspace.folder import open_workspace
from kfm.workspace.wiring import reindex_workspace

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

    @property
    def code(self) -> int:
        return IntegrityError.exit_code if self.damaged else 0

    def tell(self, call: Call) -> None:
        names = ("datasets", "runs", "noops", "generations", "lineage", "epoch")
        show(", ".join(f"{getattr(self, name):,} {name}" for name in names))
        show(f"jobs, switches, schedules, backfills  {self.coordination}")
        for path in self.damaged:
            say(f"{path} is damaged and was left out; restore it from a backup and reindex again")
        write(f"\nNext  {again(call, 'status')}")


def reindexed(call: Call) -> Reindexed:
    damaged: list[str] = []
    counts = reindex_workspace(open_workspace(call.workspace), damaged)
    return Reindexed(status="reindexed", **counts, damaged=damaged)
