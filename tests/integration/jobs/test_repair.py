"""repair: finishes and mends one dataset, twice as well as once."""

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


def left_half_promoted(ws: Path) -> None:
    """A run killed when its proposal was ready and its promotion had begun."""
    workspace = open_workspace(ws)
    with open_world(workspace) as world:
        world.store.transaction(lambda tx: tx.jobs.put(QUAKES, "", ""))
        for _ in update(world, targets_of(workspace, QUAKES)[0]):
            pass
        steps = promote(world, QUAKES)
        while next(steps) != "lineage and outbox":
            pass
        world.store.abandon()
        del steps


@pytest.mark.job("repair")
def test_happy_an_interrupted_promotion_is_finished_and_a_lost_record_rendered(
    kfm: Kfm, ws: Path, sample: SampleUpstream
) -> None:
    left_half_promoted(ws)
    result = worked(ws, "repair")
    assert result.status == "succeeded", result.error
    assert kfm("status", "--json").json["datasets"][0]["state"] == "official"
    (ws / "data" / "catalog" / "dcat" / f"{QUAKES}.json").unlink()
    result = worked(ws, "repair")
    assert "projection.stale" in receipt(ws, result)["reason"]
    assert (ws / "data" / "catalog" / "dcat" / f"{QUAKES}.json").exists()


@pytest.mark.job("repair")
def test_retry_finds_nothing_and_changes_no_version(
    kfm: Kfm, ws: Path, sample: SampleUpstream
) -> None:
    left_half_promoted(ws)
    worked(ws, "repair")
    before = sorted(p.name for p in (ws / "data" / "catalog" / "channels" / QUAKES).iterdir())
    again = worked(ws, "repair")
    assert (again.status, again.reason) == ("skipped", "nothing to mend")
    assert (
        sorted(p.name for p in (ws / "data" / "catalog" / "channels" / QUAKES).iterdir()) == before
    )


@pytest.mark.job("repair")
def test_deny_a_switched_off_dataset_is_left_as_it_is(
    kfm: Kfm, ws: Path, sample: SampleUpstream
) -> None:
    left_half_promoted(ws)

    def off(world: Any) -> None:
        world.store.transaction(
            lambda tx: tx.switches.off(QUAKES, "being looked at", "user:steward")
        )

    result = worked(ws, "repair", prepare=off)
    assert (result.status, result.exit_code) == (
        "skipped",
        5,
    ) and "being looked at" in result.reason
    assert not (ws / "data" / "catalog" / "channels" / QUAKES).exists()


def test_damage_that_cannot_be_mended_is_a_failure_that_names_it(
    kfm: Kfm, ws: Path, sample: SampleUpstream
) -> None:
    version = kfm("run", QUAKES, "--json").json["runs"][0]["version_id"]
    table = ws / "data" / "processed" / QUAKES / version / f"{QUAKES}.parquet"
    table.chmod(0o644)
    table.write_bytes(b"other")
    result = worked(ws, "repair")
    assert (result.status, result.retry, result.exit_code) == ("failed", False, 6)
    assert f"{QUAKES}.parquet" in result.error
