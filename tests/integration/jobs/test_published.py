"""What workers publish goes by approved ways: no job knows a database, and no receipt tells of
something official or user-facing without the decision that let it.
"""

import ast
import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kfm.jobs import JOB_MODULES
from kfm.jobs import backfill_windows as backfill
from kfm.jobs.base import JobResult, job_type, parameters_of, work
from kfm.model import ReceiptOutput, ids
from kfm.run.update import update
from kfm.samples.upstream import SampleUpstream
from kfm.workspace.folder import open_workspace
from kfm.workspace.job_process import context_of
from kfm.workspace.targets import targets_of
from kfm.workspace.wiring import open_world
from tests.given import levels, papers
from tests.given.house import SRC
from tests.given.reading import entry
from tests.given.tiles import tiles
from tests.given.verbs import QUAKES, Said, receipt, worked
from tests.given.ways_out import HANDING_JOBS

Kfm = Callable[..., Said]
DRIVERS = {
    "sqlite3", "apsw", "psycopg", "psycopg2", "asyncpg", "duckdb", "neo4j", "sqlalchemy", "pymysql",
    "pymongo", "redis",
}  # fmt: skip


def _imported(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            yield str(node.module).split(".")[0]


def decided(told: dict[str, Any]) -> list[tuple[str, str]]:
    return [(d["decision"], d["gate"]) for d in told["provenance"]["policy_decisions"]]


def newest(ws: Path, kind: str) -> dict[str, Any]:
    """The receipt of the last job of a type that wrote something."""
    found = [json.loads(p.read_text()) for p in (ws / "receipts").rglob("*.json")]
    return max((r for r in found if r["job_type"] == kind), key=lambda r: str(r["finished_at"]))


# ---- a job of every type that writes for others, worked once ---------------------------------------
def _ingest(kfm: Kfm, ws: Path) -> dict[str, Any]:
    kfm("jobs", "put", "ingest.pull_source", "--dataset", QUAKES)
    assert kfm("worker", "run", "--until-idle").code == 0
    return newest(ws, "ingest.pull_source")


def _left_to_a_worker(ws: Path) -> None:
    """A run that was killed before it was promoted."""
    workspace = open_workspace(ws)
    with open_world(workspace) as world:
        world.store.transaction(lambda tx: tx.jobs.put(QUAKES, "", ""))
        for _ in update(world, targets_of(workspace, QUAKES)[0]):
            pass
        world.store.abandon()


def _promote(kfm: Kfm, ws: Path) -> dict[str, Any]:
    _left_to_a_worker(ws)
    told = receipt(ws, worked(ws, "promote"))
    assert told["outputs"][0]["zone"] == "Published"
    assert told["outputs"][0]["id"] in told["provenance"]["policy_decisions"][0]["reason"]
    return told


def _repair(kfm: Kfm, ws: Path) -> dict[str, Any]:
    _left_to_a_worker(ws)
    told = receipt(ws, worked(ws, "repair"))
    assert told["status"] == "succeeded"
    assert ("allow", "policy") in decided(newest(ws, "ingest.pull_source"))  # of what it promoted
    return told


def _replay(kfm: Kfm, ws: Path) -> dict[str, Any]:
    entry(
        ws,
        "wells",
        "",
        "max_quarantined: 0.9\nschema: [{name: id, type: string}, {name: m, type: number}]\n",
    )
    registered = ws / "data" / "registry" / "wells.yml"
    registered.write_text(
        registered.read_text().replace("url: '/wells.csv'", "url: 'file:///inbox/wells.csv'")
    )
    (ws / "inbox").mkdir(exist_ok=True)
    (ws / "inbox" / "wells.csv").write_text("id,m\n1,7\n2,deep\n3,7\n")
    run = kfm("run", "wells", "--json").json["runs"][0]["run_id"]
    kfm("quarantine", "fix", run, "--row", "1", "--set", "m=7", "--reason", "seen")
    result = worked(ws, "quarantine.replay", "wells", run_id=run)
    assert result.status == "succeeded", result.error
    return receipt(ws, result)


def _backfill(kfm: Kfm, ws: Path) -> dict[str, Any]:
    here = levels.made(ws.parent / "levels", days=2)
    workspace, kind = open_workspace(here), job_type("backfill.run_parts")
    with open_world(workspace) as world:
        target = targets_of(workspace, levels.ID)[0]
        row, _ = backfill.start(world, "history", levels.plan_of(here), target, "system")

    def step(**given: Any) -> JobResult:
        with open_world(workspace) as world:
            (job, *_) = world.store.read(lambda tx: tx.jobs.listing(job_type=kind.name))
            asked, run_id = parameters_of(kind, given), str(ids.new_run_id())
            return work(kind, context_of(workspace, world, job, run_id, asked, "live"))

    step(backfill_id=row.backfill_id, first=0, count=2)
    told = receipt(here, step(backfill_id=row.backfill_id, assemble=True))
    assert told["outputs"][0]["zone"] == "Published"
    return told


def _embeddings(kfm: Kfm, ws: Path) -> dict[str, Any]:
    here = papers.library(ws.parent / "papers")
    return receipt(here, papers.index(here))


def _tiles(kfm: Kfm, ws: Path) -> dict[str, Any]:
    kfm("run", QUAKES)
    return receipt(ws, tiles(ws, QUAKES)[0])


def _notify(kfm: Kfm, ws: Path) -> dict[str, Any]:
    kfm("run", QUAKES)
    return receipt(ws, worked(ws, "notify"))


WRITES: dict[str, Callable[[Kfm, Path], dict[str, Any]]] = {
    "ingest.pull_source": _ingest,
    "quarantine.replay": _replay,
    "promote": _promote,
    "repair": _repair,
    "backfill.run_parts": _backfill,
    "transform.build_tiles": _tiles,
    "index.build_embeddings": _embeddings,
    "notify": _notify,
}


@pytest.mark.parametrize("kind", sorted(WRITES))
def test_a_job_knows_no_database_and_what_it_writes_for_others_has_its_decision(
    kfm: Kfm, ws: Path, sample: SampleUpstream, kind: str
) -> None:
    """Every type that publishes, or makes something for readers; hidden imports counted."""
    publish = {name for name in JOB_MODULES if job_type(name).zone_out == "Published"}
    assert publish | HANDING_JOBS == WRITES.keys(), "a new type: who lets what it writes?"
    rooms = ("jobs", "run", "evidence", "acts", "quarantine", "judge", "release", "upkeep")
    files = [path for room in rooms for path in sorted((SRC / room).rglob("*.py"))]
    assert [p.name for p in files if DRIVERS & set(_imported(p))] == []
    told = WRITES[kind](kfm, ws)
    assert "allow" in [word for word, _ in decided(told)], told


def test_a_job_that_publishes_without_a_decision_fails_and_its_receipt_says_so(
    ws: Path, sample: SampleUpstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = ReceiptOutput(kind="dataset", id="kfm://dataset/x@v1", checksum="", zone="Published")
    kind = job_type("notify")
    silent = replace(kind, run=lambda ctx: JobResult(outputs=(out,)))
    monkeypatch.setattr("tests.given.verbs.job_type", lambda name: silent)
    result = worked(ws, "notify")
    assert result.status == "failed" and "no decision" in result.error
    assert receipt(ws, result)["status"] == "failed"
