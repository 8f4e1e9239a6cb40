"""List runs, newest first; NOOPs with --all."""

import msgspec

from kfm.cli.answer import Answer, Call
from kfm.cli.terminal import say, show, sign, table, when
from kfm.model import Json
from kfm.workspace.folder import open_workspace
from kfm.workspace.wiring import open_world

__all__ = ["Runs", "runs"]


class Runs(Answer, frozen=True, kw_only=True):
    """Runs, newest first: rows of the ledger, and of looks that found nothing new."""

    runs: list[Json]

    def tell(self, call: Call) -> None:
        cells = [
            (
                sign(row["state"]),
                row["run_id"],
                when(row["timestamp"]),
                row["dataset_id"],
                row["state"],
                (row.get("version_id") or "")[:9],
                row["reason"] if row["state"] != "COMMITTED" else "",
            )
            for row in self.runs
        ]
        heads = ("", "run", "began", "dataset", "state", "version", "why")
        for line in table(heads, cells) if cells else ():
            show(line)
        if not cells:
            say("No runs yet. Next: kfm run --all")


def runs(call: Call, dataset: str | None, all: bool, limit: int) -> Runs:
    workspace = open_workspace(call.workspace)
    if dataset:
        workspace.require(dataset)
    with open_world(workspace) as world:
        ran = world.store.read(lambda tx: tx.runs.recent(dataset, limit))
        looked = world.store.read(lambda tx: tx.looks.noops(dataset, limit)) if all else []
    rows: list[Json] = [msgspec.to_builtins(row) for row in ran]
    rows += [msgspec.to_builtins(row) | {"state": "NOOP"} for row in looked]
    return Runs(runs=sorted(rows, key=lambda r: str(r["run_id"]), reverse=True)[:limit])
