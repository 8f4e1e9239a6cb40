"""Print the ledger: every run key and what became of it."""

import msgspec

from kfm.cli.answer import Answer, Call
from kfm.cli.terminal import show, sign, table, when
from kfm.model import Json
from kfm.workspace.folder import open_workspace
from kfm.workspace.wiring import open_world

__all__ = ["Ledger", "ledger"]


class Ledger(Answer, frozen=True, kw_only=True):
    """Rows of the ledger, newest first."""

    epoch: int
    rows: list[Json]

    def tell(self, call: Call) -> None:
        cells = [
            (
                sign(r["state"]),
                when(r["timestamp"]),
                r["dataset_id"],
                r["state"],
                f"{r['key'][:12]}…",
                f"{r['spec_hash'][:8]}…",
                r["pipeline_version"] + (" forced" if r["forced"] else ""),
            )
            for r in self.rows
        ]
        heads = ("", "began", "dataset", "state", "key", "spec", "version")
        for line in table(heads, cells) if cells else ():
            show(line)


def ledger(call: Call, dataset: str | None, limit: int) -> Ledger:
    workspace = open_workspace(call.workspace)
    if dataset:
        workspace.require(dataset)
    with open_world(workspace) as world:
        rows = world.store.read(lambda tx: tx.runs.recent(dataset, limit))
        epoch = world.store.epoch
    return Ledger(
        epoch=epoch,
        rows=[
            msgspec.to_builtins(r) | {"source_metadata": msgspec.json.decode(r.source_metadata)}
            for r in rows
        ],
    )
