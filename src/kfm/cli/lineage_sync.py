"""Build a graph of the lineage outside, or bring one in step."""

import importlib

from kfm.cli.answer import Answer, Call
from kfm.cli.terminal import say, write
from kfm.model import MissingExtra
from kfm.workspace.folder import open_workspace
from kfm.workspace.receivers import graph_address
from kfm.workspace.wiring import open_world

__all__ = ["GraphSynced", "synced"]


class GraphSynced(Answer, frozen=True, kw_only=True):
    """What was written, and what both sides hold."""

    equal: bool
    runs: int  # that were written
    forgotten: int  # runs that were taken out
    retries: int  # times that the graph did not answer
    counts: dict[str, int]  # of each kind of node and edge here
    graph_counts: dict[str, int]  # and there
    digest: str
    graph_digest: str

    @property
    def code(self) -> int:
        return 0 if self.equal else 6

    def tell(self, call: Call) -> None:
        again = f", {self.retries} tries" if self.retries else ""
        gone = f", {self.forgotten} taken out" if self.forgotten else ""
        write(f"{self.runs:,} runs written{gone}{again}")
        for kind in sorted({*self.counts, *self.graph_counts}):
            ours, there = self.counts.get(kind, 0), self.graph_counts.get(kind, 0)
            write(f"  {kind:<16} {there:>12,}" + ("" if ours == there else f"   here {ours:,}"))
        if self.equal:
            write(f"✓ the graph holds what the index holds: {self.digest}")
        else:
            say("The graph holds something else: another writes there, or something was changed.")


def synced(call: Call, to: str | None, batch: int, patience: float) -> GraphSynced:
    workspace = open_workspace(call.workspace)
    address = graph_address(workspace, to)
    try:
        neo4j = importlib.import_module("kfm.extras.neo4j.sync")
    except ImportError as error:
        raise MissingExtra(
            f"A graph needs {error.name}, which is not installed.",
            expected="the extra `neo4j`",
            remedy="pip install 'kfm[neo4j]'",
        ) from error
    graph = neo4j.Neo4j(address)
    try:
        with open_world(workspace, asks=True) as world:
            found = neo4j.sync(world, graph, batch=batch, patience_s=patience)
    finally:
        graph.close()
    return GraphSynced(
        equal=found.equal,
        runs=found.runs,
        forgotten=found.forgotten,
        retries=found.retries,
        counts=found.ours.counts,
        graph_counts=found.graph.counts,
        digest=found.ours.digest,
        graph_digest=found.graph.digest,
    )
