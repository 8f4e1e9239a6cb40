"""What came from what, as rows: the record of each run, and edges between numbered nodes that can be
walked in both directions.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import msgspec

from kfm.store.view import View

__all__ = ["EVER_MS", "EdgeRow", "Indexed", "LineageView"]

EVER_MS = 2**53  # of a walk that is not limited in time


class Indexed(NamedTuple):
    """One record, and the edges it tells as (source, kind, target), nodes by name; its run
    `run:ID` is an end of one at least.
    """

    run_id: str
    dataset_id: str
    generation: int
    record: str
    at_ms: int  # when its run began
    edges: Sequence[tuple[str, str, str]]


class EdgeRow(NamedTuple):
    """An edge between two nodes, by their numbers, and the run that told of it."""

    source: int
    kind: str
    target: int
    at_ms: int
    run_id: str


class LineageView(View):
    """Everything here can be read again from files. A node is known by its name for ever; its
    number is this store's own.
    """

    def put(self, *rows: Indexed) -> None:
        """What is there already stays as it is."""
        names = {end for row in rows for source, _, target in row.edges for end in (source, target)}
        self._do("lineage_put_all", rows=_json(row[:4] for row in rows))
        # in one order everywhere: two that put the same names wait for each other, never crosswise
        new = self._all("lineage_node_put_all", names=_json(sorted(names)))
        # by their numbers: a name is looked for once, however many edges it has
        ids: dict[str, int] = {r["name"]: r["id"] for r in new}
        old = self._all("lineage_ids", names=_json(n for n in names if n not in ids))
        ids |= {r["name"]: r["id"] for r in old}
        edges = (
            (ids[source], kind, ids[target], row.at_ms, ids[f"run:{row.run_id}"])
            for row in rows
            for source, kind, target in row.edges
        )
        self._do("lineage_edge_put_all", edges=_json(edges))

    def get(self, run_id: str) -> str | None:
        """The record of a run."""
        row = self._one("lineage_get", run_id=run_id)
        return None if row is None else str(row["record"])

    def page(
        self, dataset_id: str | None = None, *, after: str = "", limit: int = -1
    ) -> list[tuple[str, str]]:
        """(run id, record) of the runs after one, in the order of their ids."""
        rows = self._all("lineage_list", dataset_id=dataset_id, after=after, limit=limit)
        return [(str(r["run_id"]), str(r["record"])) for r in rows]

    def count(self, dataset_id: str) -> int:
        """How many runs of a dataset that became official are told of."""
        row = self._one("lineage_count", dataset_id=dataset_id)
        return int(row["runs"]) if row is not None else 0

    def forget(self, dataset_id: str, kept: Iterable[str] = ()) -> None:
        """Drop what runs of a dataset told, but those that are `kept`, and the nodes nothing else
        speaks of.
        """
        for query in ("lineage_edge_forget", "lineage_forget"):
            self._do(query, dataset_id=dataset_id, kept=_json(kept))
        self._do("lineage_node_forget")

    # ---- walks -----------------------------------------------------------------------------------
    def node(self, name: str) -> int | None:
        """The number of a node; None: nothing speaks of it."""
        row = self._one("lineage_node_get", name=name)
        return None if row is None else int(row["id"])

    def beginning(self, start: str, limit: int = -1) -> list[tuple[int, str]]:
        """(number, name) of the nodes whose names begin so."""
        rows = self._all("lineage_node_find", first=start, before=f"{start}\U0010ffff", limit=limit)
        return [(int(r["id"]), str(r["name"])) for r in rows]

    def names(self, nodes: Iterable[int]) -> dict[int, str]:
        return {int(r["id"]): str(r["name"]) for r in self._all("lineage_names", ids=_ids(nodes))}

    def up(self, start: int, depth: int, until_ms: int = EVER_MS) -> dict[int, int]:
        """Every node that something comes from, itself included, with how many edges lie between
        at the least; of runs that began until a moment alone.
        """
        return self._walk("lineage_up", start, depth, until_ms)

    def down(self, start: int, depth: int, until_ms: int = EVER_MS) -> dict[int, int]:
        """Every node that comes from something."""
        return self._walk("lineage_down", start, depth, until_ms)

    def _walk(self, query: str, start: int, depth: int, until_ms: int) -> dict[int, int]:
        rows = self._all(query, start=start, depth=depth, until_ms=until_ms)
        return {int(r["node"]): int(r["depth"]) for r in rows}

    def into(self, nodes: Iterable[int]) -> list[EdgeRow]:
        """The edges that end at any of these."""
        return self._edges("lineage_edges_into", nodes)

    def out_of(self, nodes: Iterable[int]) -> list[EdgeRow]:
        """The edges that begin at any of these."""
        return self._edges("lineage_edges_from", nodes)

    def _edges(self, query: str, nodes: Iterable[int]) -> list[EdgeRow]:
        rows = self._all(query, ids=_ids(nodes))
        return [EdgeRow(*(r[name] for name in EdgeRow._fields)) for r in rows]


def _json(rows: Iterable[object]) -> str:
    return msgspec.json.encode(list(rows)).decode()


def _ids(nodes: Iterable[int]) -> str:
    return _json(sorted(set(nodes)))
