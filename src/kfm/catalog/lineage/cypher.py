"""Lineage as a Cypher batch: separate statements, MERGE on keys alone.

Loading it twice, or after another batch that tells of the same node, changes nothing; without inputs
it still writes the run.
"""

import json
from collections.abc import Iterator

from kfm.catalog.lineage.graph import KEYS, LABELS, Node, Value, graph_of
from kfm.catalog.lineage.record import LineageRecord

__all__ = ["cypher"]


def cypher(record: LineageRecord) -> str:
    """`work/<id>/runs/<run_id>/lineage.cypher`, a statement on each line."""
    graph = graph_of(record)
    nodes = {node.name: node for node in graph.nodes}
    lines = [line for node in graph.nodes for line in _node(node, record.generation)]
    lines += [
        f"MATCH {_pattern('a', nodes[e.source])}, {_pattern('b', nodes[e.target])}"
        f" MERGE (a)-[:{e.kind}]->(b);"
        for e in graph.edges
    ]
    return "".join(f"{line}\n" for line in lines)


def _node(node: Node, generation: int) -> Iterator[str]:
    yield f"MERGE {_pattern('n', node)};"
    for name, value in node.first.items():
        said = _literal(value)
        yield (
            f"MATCH {_pattern('n', node)} WHERE n.{name} IS NULL OR n.{name} > {said}"
            f" SET n.{name} = {said};"
        )
    if node.facts:
        newer = f"n.generation IS NULL OR n.generation <= {generation}"
        # a label that a newer generation does not have is gone
        lost = dict.fromkeys(LABELS) if node.kind != "Run" else {}
        facts: dict[str, Value | None] = {**lost, **node.facts}
        told = ", ".join(f"n.{name} = {_literal(v)}" for name, v in sorted(facts.items()))
        yield f"MATCH {_pattern('n', node)} WHERE {newer} SET {told};"


def _pattern(letter: str, node: Node) -> str:
    key = ", ".join(f"{name}: {_literal(node.key[name])}" for name in KEYS[node.kind])
    return f"({letter}:{node.kind} {{{key}}})"


def _literal(value: Value | None) -> str:
    """Cypher writes texts, numbers and lists of texts as JSON does."""
    return json.dumps(list(value) if isinstance(value, tuple) else value)
