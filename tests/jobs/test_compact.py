"""maintenance.compact: packs, archives and forgets; what people must look at stays."""

import datetime as dt
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kfm.model.job import Request
from kfm.sample_upstream import SampleUpstream
from kfm.wiring import open_world
from kfm.workspace import open_workspace
from tests.conftest import Said
from tests.jobs.test_gc import QUAKES, receipt, worked

Kfm = Callable[..., Said]
COMPACT = "maintenance.compact"


def later(days: int) -> Callable[[Any], None]:
    """Let the world's clock go ahead."""

    def shift(world: Any) -> None:
        now = world.clock.now
        world.clock.now = lambda: now() + dt.timedelta(days=days)

    return shift


def ended_jobs(ws: Path) -> None:
    """Two jobs that ended: one cancelled, one that nobody could do."""
    with open_world(open_workspace(ws)) as world:
        for name, change in (("a", "cancelled"), ("b", "dead")):
            job = world.store.transaction(lambda tx, n=name: tx.jobs.submit(Request(job_type="repair", dataset_id=QUAKES, event=n)))
            world.store.transaction(lambda tx, j=job: tx.jobs.cancel(j.job_id))
            if change == "dead":
                world.store.transaction(lambda tx, j=job.job_id: tx.jobs._save(tx.jobs.of(j), outcome="dead"))


def outcomes(ws: Path) -> list[str]:
    with open_world(open_workspace(ws)) as world:
        return sorted(j.outcome for j in world.store.read(lambda tx: tx.jobs.listing(state="ended", job_type="repair")))


@pytest.mark.job(COMPACT)
def test_happy_noops_are_packed_and_old_finished_jobs_forgotten(kfm: Kfm, ws: Path, sample: SampleUpstream) -> None:
    kfm("run", QUAKES)
    kfm("run", QUAKES)
    ended_jobs(ws)
    result = worked(ws, COMPACT, prepare=later(31))
    assert result.status == "succeeded", result.error
    assert "1 noops packed" in receipt(ws, result)["reason"]
    assert list((ws / "data" / "work" / QUAKES / "noops").iterdir())
    assert outcomes(ws) == ["dead"]  # a person has to look at that one
    assert kfm("runs", QUAKES).code == 0


@pytest.mark.job(COMPACT)
def test_retry_finds_nothing_left(kfm: Kfm, ws: Path, sample: SampleUpstream) -> None:
    kfm("run", QUAKES)
    kfm("run", QUAKES)
    worked(ws, COMPACT, prepare=later(2))
    packs = [p.read_bytes() for p in (ws / "data" / "work" / QUAKES / "noops").iterdir()]
    again = worked(ws, COMPACT, prepare=later(2))
    assert (again.status, again.reason) == ("skipped", "nothing to make smaller")
    assert [p.read_bytes() for p in (ws / "data" / "work" / QUAKES / "noops").iterdir()] == packs


@pytest.mark.job(COMPACT)
def test_deny_a_switched_off_job_packs_nothing(kfm: Kfm, ws: Path, sample: SampleUpstream) -> None:
    kfm("run", QUAKES)
    kfm("run", QUAKES)

    def off(world: Any) -> None:
        later(2)(world)
        world.store.transaction(lambda tx: tx.jobs.switch_off(COMPACT, "an audit", "user:auditor"))

    result = worked(ws, COMPACT, prepare=off)
    assert (result.status, result.retry, result.decisions[0].decision) == ("failed", False, "deny")
    assert not (ws / "data" / "work" / QUAKES / "noops").exists()
