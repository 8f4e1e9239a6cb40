"""ingest.pull_source through the job table: done once, done twice, denied."""

import json
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from tests.given.processes import held_connector, transforming
from tests.given.workers import Workers

pytestmark = pytest.mark.job("ingest.pull_source")
DATASET = "kfm://dataset/ks_earthquakes"


def receipts(ws: Path) -> list[dict[str, Any]]:
    return [
        json.loads(p.read_text())
        for p in sorted((ws / "receipts" / "ingest.pull_source").rglob("*.json"))
    ]


def run_job(workers: Workers) -> dict[str, Any]:
    said = workers.kfm(
        "worker",
        "run-job",
        "ingest.pull_source",
        "--dataset",
        DATASET,
        "--upstream",
        "sample",
        "--json",
    )
    found: dict[str, Any] = json.loads(said.stdout)["jobs"][0]
    return found | {"exit": said.returncode}


def leave_proposed(workers: Workers) -> None:
    """A run that was killed between PROPOSED and the generation; it asks nobody."""
    from kfm.jobs.stepping import drive
    from kfm.run.update import update
    from kfm.workspace.folder import open_workspace
    from kfm.workspace.targets import targets_of
    from kfm.workspace.wiring import open_world

    workspace = open_workspace(workers.ws)
    with open_world(workspace, upstream="sample") as world:
        (target,) = targets_of(workspace, "ks_earthquakes")
        world.store.transaction(lambda tx: tx.jobs.put("ks_earthquakes", "", ""))
        outcome = drive(update(world, target), lambda: time.sleep(0.01))
        assert outcome is not None
        assert outcome.state == "PROPOSED"


def test_happy_path_publishes_a_version_and_leaves_a_receipt(workers: Workers) -> None:
    done = run_job(workers)
    assert (done["exit"], done["status"]) == (0, "succeeded")
    (receipt,) = receipts(workers.ws)
    assert receipt["job_id"] == done["job_id"]
    assert (workers.ws / done["receipt"]).is_file()
    assert receipt["outputs"]
    assert {o["zone"] for o in receipt["outputs"]} == {"Published"}
    assert len(receipt["correlation_id"]) == 36
    assert len(list((workers.ws / "data/catalog/channels/ks_earthquakes").iterdir())) == 1


def test_retry_path_does_it_once_however_often_it_is_delivered_and_killed(workers: Workers) -> None:
    """Three deliveries, one kill in the middle: one generation, one committed run."""
    hold = held_connector(workers.ws)
    workers.kfm("jobs", "put", "ingest.pull_source", "--dataset", DATASET)
    first = workers.start("--concurrency=1", "--upstream", "sample")
    workers.until(lambda: transforming(workers.ws), "a run is in the middle")
    first.send_signal(signal.SIGKILL)
    first.wait()
    hold.unlink()
    for _ in range(2):
        workers.kfm("jobs", "put", "ingest.pull_source", "--dataset", DATASET)
    for _ in range(2):
        assert workers.kfm("worker", "run", "--until-idle", "--upstream", "sample").returncode == 0
    runs = workers.store.read(lambda tx: tx.runs.recent("ks_earthquakes"))
    assert [r.state for r in runs] == ["COMMITTED"]
    assert len(list((workers.ws / "data/catalog/channels/ks_earthquakes").iterdir())) == 1
    told = [r["status"] for r in receipts(workers.ws)]
    assert (told.count("succeeded"), set(told)) == (1, {"succeeded", "skipped"})
    assert run_job(workers)["status"] == "skipped"


def test_deny_path_publishes_nothing_and_is_not_tried_again(workers: Workers) -> None:
    entry = workers.ws / "data/registry/ks_earthquakes.yml"
    entry.write_text(
        "\n".join(
            line for line in entry.read_text().splitlines() if not line.startswith("licence:")
        )
        + "\n"
    )
    done = run_job(workers)
    assert (done["exit"], done["status"]) == (3, "failed")
    (receipt,) = receipts(workers.ws)
    assert "deny" in {d["decision"] for d in receipt["provenance"]["policy_decisions"]}
    assert not (workers.ws / "data/processed/ks_earthquakes").exists()
    assert (
        workers.store.read(
            lambda tx: tx.jobs.listing(
                state="queued", dataset_id="ks_earthquakes", job_type="ingest.pull_source"
            )
        )
        == []
    )


def test_one_forced_command_beside_workers_makes_one_generation(workers: Workers) -> None:
    for name in ("a", "b"):
        workers.start("--concurrency=1", "--upstream", "sample", "--name", name)
    run_job(workers)
    for _ in range(3):
        workers.kfm("jobs", "put", "ingest.pull_source", "--dataset", DATASET)
        assert (
            workers.kfm(
                "run", "ks_earthquakes", "--force", "--reason", "again", "--upstream", "sample"
            ).returncode
            == 0
        )
    workers.until(
        lambda: (
            not workers.store.read(
                lambda tx: tx.jobs.listing(state="queued") + tx.jobs.listing(state="running")
            )
        ),
        "every job ended",
    )
    forced = [
        r for r in workers.store.read(lambda tx: tx.runs.recent("ks_earthquakes")) if r.forced
    ]
    assert len(forced) <= 3
    assert len(list((workers.ws / "data/catalog/channels/ks_earthquakes").iterdir())) <= 4


def test_nothing_that_was_left_half_promoted_outlives_a_worker_that_stops_when_idle(
    workers: Workers,
) -> None:
    leave_proposed(workers)
    assert workers.kfm("worker", "run", "--until-idle", "--upstream", "sample").returncode == 0
    assert [r.state for r in workers.store.read(lambda tx: tx.runs.recent("ks_earthquakes"))] == [
        "COMMITTED"
    ]


def test_a_switched_off_dataset_is_not_promoted(workers: Workers) -> None:
    leave_proposed(workers)
    assert workers.kfm("switch", "off", "ks_earthquakes", "--reason", "bad").returncode == 0
    assert workers.kfm("promote", "ks_earthquakes").returncode == 3
    assert not (workers.ws / "data/catalog/channels/ks_earthquakes").exists()


def test_a_dead_workers_promote_is_finished_by_another(workers: Workers) -> None:
    """Killed between PROPOSED and the generation: the job was acknowledged, and still nothing is
    left half done.
    """
    leave_proposed(workers)
    workers.start("--concurrency=1", "--upstream", "sample")
    workers.until(
        lambda: (
            [r.state for r in workers.store.read(lambda tx: tx.runs.recent("ks_earthquakes"))]
            == ["COMMITTED"]
        )
    )
