"""What one transaction writes of many records: every node and edge of them once, in one statement.

Rows are lists and edges are places in them, so that nothing is sent or looked for twice: packing and
unpacking what is said is a good part of the time that a graph takes.
"""

from collections.abc import Iterable
from typing import NamedTuple

from kfm.catalog.lineage.graph import EDGES, KEYS, LABELS, EdgeKind, Node, NodeKind, Value, graph_of
from kfm.catalog.lineage.record import LineageRecord
from kfm.extras.neo4j.sums import FIRST
from kfm.model import Json

__all__ = ["MERGE", "batch_of"]

# what is said of each node by itself; "generation" of a run, else of what is said together
_OWN: dict[NodeKind, tuple[str, ...]] = {
    "Run": ("generation", "dataset_id", "updater_id", "version", "started_at", "trigger_type", "wal_id"),
    "Asset": (),
    "Dataset": ("kind", "path", "hash"),
    "DatasetVersion": ("hash",),
}  # fmt: skip
# what a version and all its files say alike; a label that a newer generation does not have is gone
_ALIKE = ("generation", "dataset_id", "version", *LABELS)
_TELLS_ALIKE: tuple[NodeKind, ...] = ("Dataset", "DatasetVersion")
# of each edge the end whose being new makes it new; where there is none, it is always asked for
_NEW_BY: dict[EdgeKind, NodeKind] = {"USED_IN": "Run", "GENERATED": "Run", "HAS_PART": "Dataset"}

Row = list[Value | None]


class _Known(NamedTuple):
    """A node as several records tell it: the facts of the newest generation, the earliest time."""

    node: Node
    generation: int
    first: str | None


def batch_of(records: Iterable[LineageRecord]) -> Json:
    """The values of `MERGE`. Nodes are in the order of their names, so that two writers wait for
    each other and never cross.
    """
    nodes: dict[NodeKind, dict[str, _Known]] = {kind: {} for kind in KEYS}
    edges: dict[tuple[NodeKind, EdgeKind, NodeKind], set[tuple[str, str]]]
    edges = {edge: set() for edge in EDGES}
    for record in records:
        graph, kinds = graph_of(record), dict[str, NodeKind]()
        for node in graph.nodes:
            name = node.name
            kinds[name] = node.kind
            among = nodes[node.kind]
            among[name] = _settled(among.get(name), node, record.generation)
        for source, edge, target in graph.edges:
            edges[kinds[source], edge, kinds[target]].add((source, target))
    alike: dict[tuple[Value | None, ...], int] = {}
    values: Json = {}
    places: dict[str, int] = {}
    for kind, found in nodes.items():
        names = sorted(found)
        places |= zip(names, range(len(names)), strict=True)
        values[kind] = [_row(found[name], alike) for name in names]
    for (a, edge, b), ends in edges.items():
        # one number for both places: half of what there is to pack
        width = len(values[b])
        values[f"{a}_{edge}_{b}"] = sorted(places[s] * width + places[t] for s, t in ends)
    return values | {"alike": [list(told) for told in alike]}


def _settled(known: _Known | None, node: Node, generation: int) -> _Known:
    first = next(iter(node.first.values()), None)
    told = generation if node.facts else -1
    if known is None:
        return _Known(node, told, first)
    earliest = min(filter(None, (known.first, first)), default=None)
    newer = told >= known.generation
    return _Known(node if newer else known.node, max(told, known.generation), earliest)


def _row(known: _Known, alike: dict[tuple[Value | None, ...], int]) -> Row:
    node, facts = known.node, known.node.facts
    row: Row = [*node.key.values()]
    if node.kind in FIRST:
        row.append(known.first)
    row += [facts.get(name) for name in _OWN[node.kind]]
    if node.kind in _TELLS_ALIKE:
        told = tuple(facts.get(name) for name in _ALIKE)
        row.append(alike.setdefault(told, len(alike)))
    return row


# ---- the statement -------------------------------------------------------------------------------
def _nodes(kind: NodeKind) -> str:
    """Merge all of a kind by their keys; `kind` is then the list of them, `new_kind` whether each of
    them was made here: such a node has no edge, and nobody else sees it before the end.
    """
    columns = [*KEYS[kind], *([FIRST[kind]] if kind in FIRST else []), *_OWN[kind]]
    place = {name: f"row[{n}]" for n, name in enumerate(columns)}
    facts = {name: place[name] for name in _OWN[kind]}
    told = ""
    if kind in _TELLS_ALIKE:
        told = f", $alike[row[{len(columns)}]] AS told"
        facts |= {name: f"told[{n}]" for n, name in enumerate(_ALIKE)}
    created, matched = [f"n.{name} = {value}" for name, value in facts.items()], list[str]()
    if first := FIRST.get(kind):
        at = place[first]
        created.append(f"n.{first} = {at}")
        matched.append(
            f"n.{first} = CASE WHEN {at} IS NULL OR n.{first} < {at} THEN n.{first} ELSE {at} END"
        )
    if facts:
        said = ", ".join(f"{name}: {value}" for name, value in facts.items())
        newer = f"coalesce(n.generation, -1) <= {facts['generation']}"
        matched.append(f"n += CASE WHEN {newer} THEN {{{said}}} ELSE {{}} END")
    new, left = "", f"collect(n) AS {kind}"
    if kind in _NEW_BY.values():
        created.append("n.new = true")
        new = ", n.new IS NOT NULL AS new REMOVE n.new WITH n, i, new"
        left += f", count(CASE WHEN new THEN 1 END) = size(${kind}) AS new_{kind}"
    key = ", ".join(f"{name}: {place[name]}" for name in KEYS[kind])
    return f"""CALL () {{
  UNWIND range(0, size(${kind}) - 1) AS i WITH i, ${kind}[i] AS row
  WITH i, row{told}
  MERGE (n:{kind} {{{key}}})
  ON CREATE SET {", ".join(created)}
  ON MATCH SET {", ".join(matched)}
  WITH n, i{new} ORDER BY i RETURN {left}
}}"""


def _edges(a: NodeKind, edge: EdgeKind, b: NodeKind) -> str:
    """Edges of a node that is new are new; all others are merged."""
    lists = ", ".join(dict.fromkeys([a, b]))
    ends = f"UNWIND ${a}_{edge}_{b} AS e WITH {a}[e / size(${b})] AS a, {b}[e % size(${b})] AS b"
    new = _NEW_BY.get(edge)
    if new is None:
        return f"CALL ({lists}) {{ {ends} MERGE (a)-[:{edge}]->(b) }}"
    return (
        f"CALL ({lists}, new_{new}) {{ WITH * WHERE new_{new} {ends} CREATE (a)-[:{edge}]->(b) }}\n"
        f"CALL ({lists}, new_{new}) {{ WITH * WHERE NOT new_{new} {ends} MERGE (a)-[:{edge}]->(b) }}"
    )


MERGE = "\n".join([*map(_nodes, KEYS), *(_edges(*edge) for edge in EDGES)])
