"""The nodes and edges of lineage: what the index, the Cypher batch and a graph outside hold of a
record.

A node is known by its kind and key alone. Those of a run, an input, a version and a file never change
what they are; of what may be told again (labels, and when it was first seen) the newest generation
and the earliest time count, in whichever order records arrive.
"""

from typing import Literal, NamedTuple

import msgspec

from kfm.catalog.lineage.record import LineageRecord, Made

__all__ = [
    "EDGES",
    "KEYS",
    "KINDS",
    "LABELS",
    "Edge",
    "EdgeKind",
    "Graph",
    "Node",
    "NodeKind",
    "Value",
    "asset_name",
    "edges_of",
    "graph_of",
    "kind_of",
    "part_of",
    "run_name",
    "version_name",
]

NodeKind = Literal["Run", "Asset", "Dataset", "DatasetVersion"]
EdgeKind = Literal["USED_IN", "GENERATED", "HAS_PART", "SUPERSEDES"]
Value = str | int | tuple[str, ...]

# the properties that a node is known by
KEYS: dict[NodeKind, tuple[str, ...]] = {
    "Run": ("id",),
    "Asset": ("uri", "hash"),
    "Dataset": ("key",),
    "DatasetVersion": ("key",),
}
# the edges there are, each from one kind to another
EDGES: tuple[tuple[NodeKind, EdgeKind, NodeKind], ...] = (
    ("Asset", "USED_IN", "Run"),
    ("DatasetVersion", "USED_IN", "Run"),
    ("Run", "GENERATED", "DatasetVersion"),
    ("Run", "GENERATED", "Dataset"),
    ("DatasetVersion", "HAS_PART", "Dataset"),
    ("DatasetVersion", "SUPERSEDES", "DatasetVersion"),
)
KINDS: dict[str, NodeKind] = {
    "run": "Run",
    "asset": "Asset",
    "file": "Dataset",
    "version": "DatasetVersion",
}
# what a version and its files may lack, and lose again
LABELS = (
    "stac_id",
    "sensitivity",
    "policy_label",
    "care_label",
    "licence",
    "obligations",
    "discharged",
    "h3_resolution",
)
_PREFIX = {kind: prefix for prefix, kind in KINDS.items()}


class Node(msgspec.Struct, frozen=True):
    """A node with what is known of it; one that is only pointed at has its key alone."""

    kind: NodeKind
    key: dict[str, str]
    facts: dict[str, Value] = {}  # the newest generation says them
    first: dict[str, str] = {}  # times of which the earliest counts

    @property
    def name(self) -> str:
        """What the index knows it by."""
        return f"{_PREFIX[self.kind]}:{'#'.join(self.key.values())}"


class Edge(NamedTuple):
    """From one node to another, by their names."""

    source: str
    kind: EdgeKind
    target: str


class Graph(NamedTuple):
    """All that one record tells."""

    nodes: tuple[Node, ...]
    edges: tuple[Edge, ...]


def run_name(run_id: str) -> str:
    return f"run:{run_id}"


def version_name(version: str) -> str:
    """Of DATASET@VERSION."""
    return f"version:{version}"


def asset_name(uri: str, digest: str) -> str:
    return f"asset:{uri}#{digest}"


def kind_of(name: str) -> NodeKind:
    """The kind of node that a name of the index speaks of."""
    return KINDS[name.partition(":")[0]]


def part_of(name: str) -> str:
    """The version that a file belongs to, by their names."""
    return version_name(name.removeprefix("file:").partition("/")[0])


def graph_of(record: LineageRecord) -> Graph:
    """Everything a record tells. Without inputs there is still the run and what it made."""
    run, version = _run(record), _version(record)
    assets = [
        Node("Asset", {"uri": i.uri, "hash": i.hash}, {}, {"first_seen_at": record.started_at})
        for i in record.inputs
    ]
    files = [_file(record, made) for made in record.outputs]
    behind = [_pointed_at(v) for v in dict.fromkeys([*_used(record), *_superseded(record)])]
    nodes = {n.name: n for n in (*behind, run, *assets, version, *files)}
    return Graph(tuple(nodes.values()), edges_of(record))


def edges_of(record: LineageRecord, *, parts: bool = True) -> tuple[Edge, ...]:
    """The edges alone, each once; `parts`: those too that the names of files say."""
    ran, whole = run_name(record.run_id), version_name(record.version)
    files = [f"file:{record.version}/{made.path}" for made in record.outputs]
    edges = [
        *(Edge(asset_name(i.uri, i.hash), "USED_IN", ran) for i in record.inputs),
        *(Edge(version_name(v), "USED_IN", ran) for v in _used(record)),
        *([] if record.of_version else [Edge(ran, "GENERATED", whole)]),
        *(Edge(ran, "GENERATED", file) for file in files),
        *(Edge(whole, "HAS_PART", file) for file in files if parts),
        *(Edge(whole, "SUPERSEDES", version_name(v)) for v in _superseded(record)),
    ]
    return tuple(dict.fromkeys(edges))


def _used(record: LineageRecord) -> list[str]:
    """The versions that went into it."""
    used = [i.version for i in record.inputs if i.version]
    return [*used, f"{record.dataset_id}@{record.base_version}"] if record.merged else used


def _superseded(record: LineageRecord) -> list[str]:
    if not record.base_version or record.base_version == record.version_id or record.of_version:
        return []
    return [f"{record.dataset_id}@{record.base_version}"]


def _pointed_at(version: str) -> Node:
    return Node("DatasetVersion", {"key": version})


def _run(record: LineageRecord) -> Node:
    facts: dict[str, Value] = {
        "dataset_id": record.dataset_id,
        "updater_id": record.updater_id,
        "version": record.updater_version,
        "started_at": record.started_at,
        "trigger_type": record.trigger_type,
        "wal_id": record.wal_id,
        "generation": record.generation,
    }
    return Node("Run", {"id": record.run_id}, facts)


def _version(record: LineageRecord) -> Node:
    if record.of_version:
        return _pointed_at(record.version)
    return Node(
        "DatasetVersion",
        {"key": record.version},
        {"hash": f"sha256:{record.version_digest}", **_of_version(record)},
        {"created_at": record.started_at},
    )


def _file(record: LineageRecord, made: Made) -> Node:
    return Node(
        "Dataset",
        {"key": f"{record.version}/{made.path}"},
        {"kind": made.kind, "path": made.path, "hash": made.hash, **_of_version(record)},
        {"created_at": record.started_at},
    )


def _of_version(record: LineageRecord) -> dict[str, Value]:
    """What a version and each of its files are, and what they owe."""
    told: dict[str, Value | None] = {
        "dataset_id": record.dataset_id,
        "version": record.version_id,
        "generation": record.generation,
        "stac_id": record.stac_id,
        **record.labels,
        "obligations": record.obligations or None,
        "discharged": record.discharged or None,
        "h3_resolution": record.h3_resolution,
    }
    return {name: value for name, value in told.items() if value is not None}
