"""Lineage of many runs: how fast it is indexed and walked, beside the same walk without our indexes, and
how fast a Neo4j graph is built of it, beside MERGE written plainly.

    .venv/bin/python -m benchmarks.lineage --runs 100000 --graph-runs 5000
    .venv/bin/python -m benchmarks.lineage --runs 100000 --same-sets 50
"""

import argparse
import json
import math
import os
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
from benchmarks.measure import HIGHER, LOWER, Result, Took, interleave, judge, median
from kfm.catalog.lineage.graph import version_name
from kfm.catalog.lineage.record import LineageRecord, Made, Used
from kfm.cli.init import make_workspace
from kfm.evidence.lineage import indexed
from kfm.workspace.folder import open_workspace
from kfm.workspace.wiring import open_world
from kfm.world.world import World

__all__ = ["ROWS", "main", "walks"]

RUNS, GRAPH_RUNS, GRAPH_ROUNDS, BATCH = 100_000, 5_000, 3, 1_000
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


def _same_sets(world: World, graph: Any, starts: Sequence[tuple[int, bool]]) -> int:
    """Ancestors (up) or descendants in the graph are those of the index; how many nodes they are."""
    seen = 0
    for start, up in starts:
        name = world.store.read(lambda tx: tx.lineage.names([start]))[start]
        walk = (
            "(n)-[:USED_IN|GENERATED*1..20]->(v)" if up else "(v)-[:USED_IN|GENERATED*1..20]->(n)"
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
        seen += len(found)
    return seen


class _Server:
    """A graph, how long work on it takes here, and how many seconds processors worked for it here
    and there.
    """

    def __init__(self, folder: Path) -> None:
        from tests.given.graph import Graph

        from kfm.extras.neo4j.receiver import Neo4j

        self._server = Graph(folder).start()
        self.graph = Neo4j(self._server.url)

    def __enter__(self) -> "_Server":
        return self

    def __exit__(self, *_: object) -> None:
        self.graph.close()
        self._server.kill()

    def now(self) -> Took:
        assert self._server.process is not None
        stat = Path(f"/proc/{self._server.process.pid}/stat").read_text().rpartition(")")[2].split()
        ticks = int(stat[11]) + int(stat[12])
        return Took(time.perf_counter(), time.process_time() + ticks / os.sysconf("SC_CLK_TCK"))

    def since(self, before: Took) -> Took:
        now = self.now()
        return Took(now - before, now.cpu - before.cpu)

    def empty(self) -> None:
        while self.graph.rows("MATCH (n) WITH n LIMIT 20000 DETACH DELETE n RETURN count(*) AS n")[
            0
        ]["n"]:
            pass

    def synced(self, world: World) -> tuple[Took, Took]:
        """By `kfm lineage sync` from nothing: until all is written, and the proof after it."""
        from kfm.extras.neo4j.sync import sync

        before = written = self.now()

        def say(runs: int) -> None:
            nonlocal written
            written = self.now()

        if not sync(world, self.graph, batch=BATCH, say=say).equal:
            raise peers.Failed("the graph is not what the index holds")
        return Took(written - before, written.cpu - before.cpu), self.since(written)

    def merged(self, batches: Sequence[Sequence[LineageRecord]]) -> Took:
        """By MERGE written plainly, of records that lie ready."""
        before = self.now()
        for batch in batches:
            self.graph.rows(_MERGE, runs=_plain_rows(batch))
        return self.since(before)


def _graph(runs: int, repeat: int = GRAPH_ROUNDS) -> Result:
    """The same server for both sides, in turn, emptied before each; constraints are there for both."""
    row, folder = "lineage: graph built", Path(tempfile.mkdtemp(dir=peers.work()))
    try:
        make_workspace(folder / "ws", sample=False)
        with (
            _Server(folder / "graph") as server,
            open_world(open_workspace(folder / "ws")) as world,
        ):
            _load(world, runs)
            batches, proofs = list(_batches(records(runs))), list[Took]()

            def peer() -> Took:
                server.empty()
                return server.merged(batches)

            def ours() -> Took:
                server.empty()
                took, proof = server.synced(world)
                proofs.append(proof)
                return took

            server.synced(world)  # constraints, and a server that is warm
            peer()
            found = interleave({"peer": peer, "ours": ours}, repeat)
            chosen = [
                (start, up)
                for layer, up in ((LAYERS - 1, True), (0, False))
                for start in _starts(world, runs, layer, 10)
            ]
            _same_sets(world, server.graph, chosen)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    rate = runs / median(found["ours"])
    return judge(
        row,
        found["peer"],
        found["ours"],
        ROWS[row],
        LOWER,
        unit="s",
        peer_name="one UNWIND with MERGE for everything, written plainly",
        ours_name="kfm lineage sync",
        raw={"proof": proofs, "proof CPU": [proof.cpu for proof in proofs]},
        note=f"{runs:,} runs, {rate:,.0f}/s; the proof after it, which the peer does not have, {median(proofs):.3g} s more, {median([p.cpu for p in proofs]):.3g} s of processor time; the sets of {len(chosen)} starts are those of the index",
    )


def same_sets(runs: int, many: int) -> dict[str, float]:
    """All runs synced into a graph, then ancestors and descendants of so many versions, chosen
    blindly, compared with the index; how long each part took.
    """
    folder = Path(tempfile.mkdtemp(dir=peers.work()))
    try:
        make_workspace(folder / "ws", sample=False)
        with (
            _Server(folder / "graph") as server,
            open_world(open_workspace(folder / "ws")) as world,
        ):
            loaded = _load(world, runs)
            print(f"indexed in {loaded:.0f} s", flush=True)
            written, proof = server.synced(world)
            print(f"written in {written:.0f} s, proved in {proof:.0f} s", flush=True)
            names = random.Random(17).sample([r.version for r in records(runs)], many)
            nodes = [world.store.read(lambda tx: tx.lineage.node(version_name(n))) for n in names]
            before = server.now()
            asked = [(node, up) for node in nodes if node is not None for up in (True, False)]
            seen = _same_sets(world, server.graph, asked)
            compared = server.since(before)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return {
        "runs": runs,
        "indexed_s": loaded,
        "written_s": written,
        "written_cpu_s": written.cpu,
        "proved_s": proof,
        "proved_cpu_s": proof.cpu,
        "sets": len(asked),
        "nodes_in_sets": seen,
        "compared_s": compared,
    }


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
    parser.add_argument(
        "--same-sets",
        type=int,
        metavar="N",
        help="only sync all --runs into a graph and compare what N versions come from, and what comes from them",
    )
    args = parser.parse_args(argv)
    if args.same_sets:
        print(json.dumps(same_sets(args.runs, args.same_sets), indent=1))
        return 0
    found = walks(1, args.runs, args.graph_runs)
    print(json.dumps([asdict(r) for r in found], indent=1, ensure_ascii=False))
    return 0 if all(r.ok for r in found) else 1


if __name__ == "__main__":
    sys.exit(main())
