"""Lineage of many runs: how fast it is indexed and walked, beside the same walk without our indexes, and
how fast a Neo4j graph is built of it, beside MERGE written plainly.

    .venv/bin/python -m benchmarks.lineage --runs 100000 --graph-runs 10000
"""

import argparse
import json
import math
import random
import shutil
import sqlite3
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from typing import Any

from benchmarks import peers
from benchmarks.measure import HIGHER, LOWER, Result, Took, judge
from kfm.catalog.lineage.graph import version_name
from kfm.catalog.lineage.record import LineageRecord, Made, Used
from kfm.cli.init import make_workspace
from kfm.evidence.lineage import indexed
from kfm.workspace.folder import open_workspace
from kfm.workspace.wiring import open_world
from kfm.world.world import World

__all__ = ["ROWS", "main", "walks"]

RUNS, GRAPH_RUNS, BATCH = 100_000, 10_000, 1_000
INDEXED = (
    5_000  # runs of one transaction: a page of the index that many of them touch is written once
)
LAYERS, DEEP, STARTS, PLAIN_STARTS = 11, 10, 300, 12
ASKED = 5_000  # runs a second that are to be indexed
ROWS = {
    "lineage: 10 runs back, p99": 10.0,
    "lineage: 10 runs on, p99": 10.0,
    "lineage: indexed": 1.0,
    "lineage: graph built": 1.0,
}
_MERGE = """UNWIND $runs AS run
MERGE (r:Run {id: run.id}) SET r += run.facts
MERGE (v:DatasetVersion {key: run.version}) SET v += run.version_facts
MERGE (r)-[:GENERATED]->(v)
FOREACH (base IN run.bases | MERGE (b:DatasetVersion {key: base}) MERGE (v)-[:SUPERSEDES]->(b))
FOREACH (i IN run.inputs | MERGE (a:Asset {uri: i.uri, hash: i.hash})
  SET a.first_seen_at = i.first_seen_at MERGE (a)-[:USED_IN]->(r))
FOREACH (u IN run.used | MERGE (b:DatasetVersion {key: u}) MERGE (b)-[:USED_IN]->(r))
FOREACH (f IN run.files | MERGE (d:Dataset {key: f.key}) SET d += f.facts
  MERGE (r)-[:GENERATED]->(d) MERGE (v)-[:HAS_PART]->(d))"""


# ---- invented lineage ----------------------------------------------------------------------------
def _dataset(layer: int, place: int) -> str:
    return f"l{layer}_{place}"


def records(runs: int) -> Iterator[LineageRecord]:
    """Layers of datasets, each run with five inputs and five outputs: two versions of the layer
    below, and three files of elsewhere.
    """
    places = max(LAYERS + 1, math.ceil(runs / LAYERS / 100))
    for number in range(runs):
        row, place = divmod(number, places)
        generation, layer = divmod(row, LAYERS)
        yield _record(number, generation + 1, layer, place, places)


def _version(layer: int, place: int, generation: int) -> str:
    return f"v{layer:04x}{place:012x}{generation:016x}"


def _record(number: int, generation: int, layer: int, place: int, places: int) -> LineageRecord:
    name, version = _dataset(layer, place), _version(layer, place, generation)
    below = [(layer - 1, place), (layer - 1, (place + 1) % places)] if layer else []
    of = [
        Used(
            uri=f"kfm://dataset/{_dataset(*b)}",
            hash=f"sha256:{_version(*b, generation)}",
            version=f"{_dataset(*b)}@{_version(*b, generation)}",
        )
        for b in below
    ]
    of += [
        Used(uri=f"https://example.org/{name}/{n}", hash=f"sha256:{number:058x}{n:06x}")
        for n in range(5 - len(of))
    ]
    made = tuple(
        Made(kind="partition", path=f"p{n}.parquet", hash=f"sha256:{number:060x}{n:04x}")
        for n in range(5)
    )
    return LineageRecord(
        run_id=f"01a00000-0000-7000-8000-{number:012x}",
        updater_id=f"http_file.{name}",
        updater_version="1.0.0",
        wal_id=f"{number:064x}",
        trigger_type="schedule",
        started_at=f"2026-01-01T{number // 3600 % 24:02}:{number // 60 % 60:02}:{number % 60:02}Z",
        dataset_id=name,
        generation=generation,
        version_id=version,
        version_digest=f"{number:064x}",
        base_version=_version(layer, place, generation - 1) if generation > 1 else None,
        inputs=tuple(of),
        outputs=made,
        labels={"sensitivity": "public", "policy_label": "public", "licence": "CC0-1.0"},
    )


def _batches(found: Iterator[LineageRecord], size: int = BATCH) -> Iterator[list[LineageRecord]]:
    while batch := list(islice(found, size)):
        yield batch


# ---- the index -----------------------------------------------------------------------------------
def _load(world: World, runs: int) -> Took:
    """Index everything, each batch one durable transaction; making the records up is not counted."""
    clock = cpu = 0.0
    for batch in _batches(records(runs), INDEXED):
        before, worked = time.perf_counter(), time.process_time()
        rows = [indexed(record) for record in batch]
        world.store.transaction(lambda tx: tx.lineage.put(*rows))
        clock, cpu = (
            clock + time.perf_counter() - before,
            cpu + time.process_time() - worked,
        )
    return Took(clock, cpu)


def _starts(world: World, runs: int, layer: int, many: int) -> list[int]:
    """Versions of a layer, by their numbers in the index."""
    chosen = random.Random(7)
    names = [r.version for r in records(runs) if r.dataset_id.startswith(f"l{layer}_")]
    picked = chosen.sample(names, min(many, len(names)))
    found = [world.store.read(lambda tx: tx.lineage.node(version_name(n))) for n in picked]
    return [node for node in found if node is not None]


def _p99(ask: Callable[[int], object], starts: Sequence[int]) -> Took:
    """The 99th percentile of asking once for each."""
    clock, cpu = [], []
    for start in starts:
        before, worked = time.perf_counter(), time.process_time()
        ask(start)
        clock.append(time.perf_counter() - before)
        cpu.append(time.process_time() - worked)
    at = max(0, math.ceil(0.99 * len(clock)) - 1)
    return Took(sorted(clock)[at], sorted(cpu)[at])


_PLAIN = """with recursive walk(node, depth) as (
  select ?, 0 union select e.{far}, walk.depth + 1 from walk join plain as e on e.{near} = walk.node
  where walk.depth < ? and e.kind in ('GENERATED', 'USED_IN')
) select node, min(depth) from walk group by node"""


class _Plain:
    """The same rows in a table without any index; a quick engine makes one for the time of a query."""

    def __init__(self, file: Path) -> None:
        self._db = sqlite3.connect(file)
        self._db.execute("create temp table plain as select * from lineage_edge")

    def walk(self, start: int, *, up: bool) -> dict[int, int]:
        far, near = ("source", "target") if up else ("target", "source")
        rows = self._db.execute(_PLAIN.format(far=far, near=near), (start, 2 * DEEP))
        return {int(node): int(depth) for node, depth in rows}


def _direction(world: World, plain: _Plain, runs: int, row: str, up: bool) -> Result:
    starts = _starts(world, runs, LAYERS - 1 if up else 0, STARTS)

    def ours(start: int) -> dict[int, int]:
        walk: Callable[[Any], dict[int, int]] = (
            (lambda tx: tx.lineage.up(start, 2 * DEEP))
            if up
            else (lambda tx: tx.lineage.down(start, 2 * DEEP))
        )
        return world.store.read(walk)

    for start in starts[:3]:
        if ours(start) != plain.walk(start, up=up):
            raise peers.Failed("two walks over the same rows differ")
    size = len(ours(starts[0]))
    ours_p99 = _p99(ours, starts)
    peer_p99 = _p99(lambda s: plain.walk(s, up=up), starts[:PLAIN_STARTS])
    return judge(
        row,
        [peer_p99],
        [ours_p99],
        ROWS[row],
        LOWER,
        unit="s",
        peer_name="the same recursive query without our indexes",
        ours_name="tx.lineage",
        note=f"{runs:,} runs × 5 inputs × 5 outputs, {len(starts)} starts, {size} nodes each; the same sets",
    )


# ---- a graph -------------------------------------------------------------------------------------
def _plain_rows(batch: Sequence[LineageRecord]) -> list[dict[str, Any]]:
    return [
        {
            "id": r.run_id,
            "facts": {"dataset_id": r.dataset_id, "generation": r.generation, "wal_id": r.wal_id, "version": r.updater_version, "updater_id": r.updater_id, "started_at": r.started_at, "trigger_type": r.trigger_type},
            "version": r.version,
            "version_facts": {"dataset_id": r.dataset_id, "version": r.version_id, "generation": r.generation, "hash": f"sha256:{r.version_digest}", "created_at": r.started_at, **r.labels},
            "bases": [f"{r.dataset_id}@{r.base_version}"] if r.base_version else [],
            "inputs": [{"uri": i.uri, "hash": i.hash, "first_seen_at": r.started_at} for i in r.inputs],
            "used": [i.version for i in r.inputs if i.version],
            "files": [{"key": f"{r.version}/{m.path}", "facts": {"kind": m.kind, "path": m.path, "hash": m.hash, "dataset_id": r.dataset_id, "version": r.version_id, "generation": r.generation, "created_at": r.started_at, **r.labels}} for m in r.outputs],
        }
        for r in batch
    ]  # fmt: skip


def _same_sets(world: World, graph: Any, runs: int) -> int:
    """Ancestors and descendants in the graph are those of the index; how many starts were asked."""
    asked = 0
    for layer, up in ((LAYERS - 1, True), (0, False)):
        for start in _starts(world, runs, layer, 10):
            name = world.store.read(lambda tx: tx.lineage.names([start]))[start]
            walk = (
                "(n)-[:USED_IN|GENERATED*1..20]->(v)"
                if up
                else "(v)-[:USED_IN|GENERATED*1..20]->(n)"
            )
            found = graph.rows(
                f"MATCH (v:DatasetVersion {{key: $key}}) MATCH {walk}"
                " RETURN DISTINCT coalesce(n.id, n.key, n.uri + '#' + n.hash) AS name",
                key=name.partition(":")[2],
            )
            nodes = world.store.read(
                lambda tx: (tx.lineage.up if up else tx.lineage.down)(start, 2 * DEEP)
            )
            names = world.store.read(lambda tx: tx.lineage.names(n for n in nodes if n != start))
            if {row["name"] for row in found} != {n.partition(":")[2] for n in names.values()}:
                raise peers.Failed(f"the graph and the index differ around {name}")
            asked += 1
    return asked


def _graph(runs: int) -> Result:
    """A graph of its own for each side, of the same server: constraints are there for both."""
    from tests.given.graph import Graph

    from kfm.extras.neo4j.receiver import Neo4j
    from kfm.extras.neo4j.sync import sync

    row, folder = "lineage: graph built", Path(tempfile.mkdtemp(dir=peers.work()))
    make_workspace(folder / "ws", sample=False)
    server = Graph(folder / "graph").start()
    try:
        graph = Neo4j(server.url)
        with open_world(open_workspace(folder / "ws")) as world:
            _load(world, runs)
            sync(world, graph, batch=BATCH)  # constraints, and a server that is warm
            rates: dict[str, list[float]] = {"peer": [], "ours": []}
            for side in ("peer", "ours"):
                while graph.rows(
                    "MATCH (n) WITH n LIMIT 20000 DETACH DELETE n RETURN count(*) AS n"
                )[0]["n"]:
                    pass
                before = time.perf_counter()
                for batch in _batches(records(runs)):
                    if side == "peer":
                        graph.rows(_MERGE, runs=_plain_rows(batch))
                    else:
                        graph.write(batch, batch[-1].run_id)
                rates[side].append(runs / (time.perf_counter() - before))
            graph.finished()
            done = sync(world, graph, batch=BATCH)
            if not done.equal:
                raise peers.Failed("the graph is not what the index holds")
            asked = _same_sets(world, graph, runs)
        graph.close()
    finally:
        server.kill()
        shutil.rmtree(folder, ignore_errors=True)
    return judge(
        row,
        rates["peer"],
        rates["ours"],
        ROWS[row],
        HIGHER,
        unit="runs/s",
        peer_name="one UNWIND with MERGE for everything, written plainly",
        ours_name="kfm lineage sync",
        note=f"{runs:,} runs; counted and digested equal, and the sets of {asked} starts are those of the index",
    )


# ---- rows ----------------------------------------------------------------------------------------
def walks(repeat: int, runs: int = RUNS, graph_runs: int = GRAPH_RUNS) -> list[Result]:
    """All rows; one round, for it is the percentile of many that counts."""
    folder = Path(tempfile.mkdtemp(dir=peers.work()))
    try:
        make_workspace(folder / "ws", sample=False)
        with open_world(open_workspace(folder / "ws")) as world:
            loaded = _load(world, runs)
            plain = _Plain(folder / "ws" / "ledger" / "idempotency.sqlite")
            up = _direction(world, plain, runs, "lineage: 10 runs back, p99", True)
            down = _direction(world, plain, runs, "lineage: 10 runs on, p99", False)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    rate = runs / min(loaded, loaded.cpu)
    indexing = judge(
        "lineage: indexed",
        [float(ASKED)],
        [rate],
        ROWS["lineage: indexed"],
        HIGHER,
        unit="runs/s",
        peer_name="what is asked for",
        ours_name="tx.lineage.put",
        note=f"{runs:,} runs in durable batches of {INDEXED:,}; {runs / loaded:,.0f}/s by the clock, {runs / loaded.cpu:,.0f}/s of processor time",
    )
    return [up, down, indexing, _graph(graph_runs)]


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.lineage", description=__doc__)
    parser.add_argument("--runs", type=int, default=RUNS, metavar="N")
    parser.add_argument("--graph-runs", type=int, default=GRAPH_RUNS, metavar="N")
    args = parser.parse_args(argv)
    found = walks(1, args.runs, args.graph_runs)
    print(json.dumps([asdict(r) for r in found], indent=1, ensure_ascii=False))
    return 0 if all(r.ok for r in found) else 1


if __name__ == "__main__":
    sys.exit(main())
