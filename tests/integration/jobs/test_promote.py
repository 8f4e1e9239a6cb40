"""promote: what was proposed and needs nobody becomes official, by whoever comes next."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kfm.run.promote import promote
from kfm.run.update import update
from kfm.samples.upstream import SampleUpstream
from kfm.workspace.folder import open_workspace
from kfm.workspace.targets import targets_of
from kfm.workspace.wiring import open_world
from tests.given.verbs import QUAKES, Said, receipt, worked

Kfm = Callable[..., Said]
pytestmark = pytest.mark.job("promote")


def killed(ws: Path, at: str) -> None:
    """A run that was killed on its way from PROPOSED to official."""
    workspace = open_workspace(ws)
    with open_world(workspace) as world:
        world.store.transaction(lambda tx: tx.jobs.put(QUAKES, "", ""))
        for _ in update(world, targets_of(workspace, QUAKES)[0]):
            pass
        if at:
            steps = promote(world, QUAKES)
            while next(steps) != at:
                pass
        world.store.abandon()


def jobs(kfm: Kfm) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = kfm("jobs", "list", "--json").json["jobs"]
    return [j for j in found if j["job_type"] == "promote" and j["outcome"]]


@pytest.mark.parametrize("at", ["", "promote: dataset lease taken", "★"])
def test_happy_a_worker_goes_on_where_a_run_was_killed(
    kfm: Kfm, ws: Path, sample: SampleUpstream, at: str
) -> None:
    killed(ws, at)
    assert kfm("worker", "run", "--until-idle").code == 0
    assert kfm("status", "--json").json["datasets"][0]["state"] == "official"
    assert [(j["state"], j["outcome"]) for j in jobs(kfm)] == [("ended", "succeeded")]
    assert len(list((ws / "data" / "catalog" / "channels" / QUAKES).glob("*.json"))) == 1


def test_retry_what_failed_is_tried_again_and_a_second_time_finds_nothing(
    kfm: Kfm, ws: Path, sample: SampleUpstream
) -> None:
    killed(ws, "")
    channel = ws / "data" / "catalog" / "channels" / QUAKES
    in_the_way = channel / "00000001.json"
    in_the_way.mkdir(parents=True)
    assert worked(ws, "promote").status == "failed"
    assert [(j["state"], j["outcome"], j["attempts"]) for j in jobs(kfm)] == [
        ("queued", "failed", 1)
    ]
    in_the_way.rmdir()
    result = worked(ws, "promote")
    assert result.status == "succeeded", result.error
    assert receipt(ws, result)["outputs"][0]["id"].startswith(f"kfm://dataset/{QUAKES}@v")
    assert worked(ws, "promote").reason == "nothing waits to be promoted"
    assert len(list(channel.glob("*.json"))) == 1


def test_deny_a_switched_off_dataset_is_left_as_it_is(
    kfm: Kfm, ws: Path, sample: SampleUpstream
) -> None:
    killed(ws, "")

    def off(world: Any) -> None:
        world.store.transaction(
            lambda tx: tx.switches.off(QUAKES, "being looked at", "user:steward")
        )

    result = worked(ws, "promote", prepare=off)
    assert (result.status, result.exit_code) == ("skipped", 5)
    assert "being looked at" in result.reason
    assert not (ws / "data" / "catalog" / "channels" / QUAKES).exists()


def test_a_run_that_ends_leaves_no_promote_job_behind(
    kfm: Kfm, ws: Path, sample: SampleUpstream
) -> None:
    assert kfm("run", QUAKES).code == 0
    assert [(j["state"], j["outcome"]) for j in jobs(kfm)] == [("ended", "succeeded")]


def test_proposing_twice_publishes_nothing(kfm: Kfm, ws: Path, sample: SampleUpstream) -> None:
    for _ in range(2):
        kfm("propose", QUAKES)
    assert kfm("worker", "run", "--until-idle").code == 0
    assert not (ws / "data" / "catalog" / "channels" / QUAKES).exists()


def test_who_switches_promoting_off_stops_every_way_to_it(
    kfm: Kfm, ws: Path, sample: SampleUpstream
) -> None:
    kfm("switch", "off", "promote", "--reason", "being looked at")
    assert kfm("run", QUAKES).code != 0
    assert not (ws / "data" / "catalog" / "channels" / QUAKES).exists()
    kfm("switch", "on", "promote")
    assert kfm("worker", "run", "--until-idle").code == 0
    assert kfm("status", "--json").json["datasets"][0]["state"] == "official"
