"""Whether two sides hold the same lineage: how many nodes and edges of each kind there are, and a
sum over a digest of each. The sum is the same in any order, and another as soon as one is missing,
doubled or says something else.
"""

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import msgspec

from kfm.catalog.lineage.graph import EDGES, KEYS, KINDS, EdgeKind, NodeKind, Value, graph_of
from kfm.catalog.lineage.record import LineageRecord
from kfm.model import Json, canonical

__all__ = ["FIRST", "HUBS", "Sums", "around", "of_edges", "of_nodes", "of_records"]

_MODULUS = 1 << 128
# the time of a node of which the earliest counts
FIRST: dict[NodeKind, str] = {
    "Asset": "first_seen_at",
    "Dataset": "created_at",
    "DatasetVersion": "created_at",
}
_PREFIX = {kind: prefix for prefix, kind in KINDS.items()}
# each edge is found once: at its run, or at the version it begins at
_AROUND: dict[NodeKind, list[tuple[NodeKind, EdgeKind, NodeKind]]] = {
    "Run": [edge for edge in EDGES if "Run" in edge],
    "DatasetVersion": [edge for edge in EDGES if "Run" not in edge],
}
HUBS = tuple(_AROUND)


class Sums(msgspec.Struct, frozen=True):
    """What a side holds."""

    counts: dict[str, int]  # by kind of node and of edge
    digest: str

    @classmethod
    def of(cls, counts: Counter[str], total: int) -> "Sums":
        return cls({k: n for k, n in sorted(counts.items()) if n}, f"{total % _MODULUS:032x}")


class _Known(NamedTuple):
    generation: int
    facts: int
    first: str


def _number(*words: object) -> int:
    raw = canonical.dumps([list(w) if isinstance(w, tuple) else w for w in words])
    return int.from_bytes(hashlib.sha256(raw).digest()[:16])


def _facts(kind: str, name: str, facts: dict[str, Value] | Json) -> int:
    told = {k: list(v) if isinstance(v, tuple) else v for k, v in facts.items()}
    return _number(kind, name, told)


# ---- what the index holds ------------------------------------------------------------------------
def of_records(records: Iterable[LineageRecord]) -> Sums:
    """Of all that these tell together, settled as the graph settles it."""
    nodes: dict[tuple[NodeKind, str], _Known] = {}
    edges: set[int] = set()
    counts: Counter[str] = Counter()
    total = 0
    for record in records:
        graph = graph_of(record)
        for node in graph.nodes:
            first = next(iter(node.first.values()), "")
            generation = record.generation if node.facts else -1
            known = nodes.get((node.kind, node.name))
            if known is None or (generation > known.generation):
                told = _facts(node.kind, node.name, node.facts)
            else:
                generation, told = known.generation, known.facts
            earliest = min(filter(None, (first, known.first if known else "")), default="")
            nodes[node.kind, node.name] = _Known(generation, told, earliest)
        for edge in graph.edges:
            number = _number(*edge)
            if number not in edges:
                edges.add(number)
                counts[edge.kind] += 1
    for (kind, name), found in nodes.items():
        counts[kind] += 1
        total += found.facts + _number(name, found.first)
    return Sums.of(counts, total + sum(edges))


# ---- what a graph holds --------------------------------------------------------------------------
def of_nodes(kind: NodeKind, found: Iterable[Json]) -> Iterator[int]:
    """A number for each node, by its properties."""
    for properties in found:
        key = "#".join(str(properties.get(name)) for name in KEYS[kind])
        name = f"{_PREFIX[kind]}:{key}"
        first = properties.get(FIRST.get(kind, ""), "")
        facts = {
            k: v for k, v in properties.items() if k not in KEYS[kind] and k != FIRST.get(kind)
        }
        yield _facts(kind, name, facts) + _number(name, first)


def around(kind: NodeKind) -> str:
    """The query for what `of_edges` reads: each node of a kind once, with the keys at the other ends
    of its edges. An edge by itself would tell both of its ends again.
    """
    lists = ", ".join(_others(kind, *edge) for edge in _AROUND[kind])
    return f"MATCH (n:{kind}) RETURN {_key('n', kind)}, {lists}"


def _others(kind: NodeKind, a: NodeKind, edge: EdgeKind, b: NodeKind) -> str:
    if a == kind:
        return f"[(n)-[:{edge}]->(m:{b}) | {_key('m', b)}]"
    return f"[(m:{a})-[:{edge}]->(n) | {_key('m', a)}]"


def _key(letter: str, kind: NodeKind) -> str:
    return " + '#' + ".join(f"{letter}.{name}" for name in KEYS[kind])


def of_edges(kind: NodeKind, found: Iterable[Sequence[Any]]) -> Iterator[int]:
    """A number for each edge, by its ends."""
    for key, *lists in found:
        node = f"{_PREFIX[kind]}:{key}"
        for (a, edge, b), others in zip(_AROUND[kind], lists, strict=True):
            if a == kind:
                yield from (_number(node, edge, f"{_PREFIX[b]}:{other}") for other in others)
            else:
                yield from (_number(f"{_PREFIX[a]}:{other}", edge, node) for other in others)
