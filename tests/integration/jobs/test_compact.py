"""maintenance.compact: packs, archives and forgets; what people must look at stays."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kfm.evidence.receipts import read_receipt
from kfm.model.job import Request
from kfm.samples.upstream import SampleUpstream
from kfm.workspace.folder import open_workspace
from kfm.workspace.wiring import open_world
from tests.given.verbs import QUAKES, Said, later, receipt, worked

Kfm = Callable[..., Said]
COMPACT, INGEST = "maintenance.compact", "ingest.pull_source"


def ended_jobs(ws: Path) -> None:
    """Two jobs that ended: one cancelled, one that nobody could do."""
    with open_world(open_workspace(ws)) as world:
        for name, change in (("a", "cancelled"), ("b", "dead")):
            job = world.store.transaction(
                lambda tx, n=name: tx.jobs.submit(
                    Request(job_type="repair", dataset_id=QUAKES, event=n)
                )
            )
            world.store.transaction(lambda tx, j=job: tx.jobs.cancel(j.job_id))
            if change == "dead":
                world.store.transaction(
                    lambda tx, j=job.job_id: tx.jobs._save(tx.jobs.of(j), outcome="dead")
                )


def outcomes(ws: Path) -> list[str]:
    with open_world(open_workspace(ws)) as world:
        return sorted(
            j.outcome
            for j in world.store.read(lambda tx: tx.jobs.listing(state="ended", job_type="repair"))
        )


@pytest.mark.job(COMPACT)
def test_happy_noops_are_packed_and_old_finished_jobs_forgotten(
    kfm: Kfm, ws: Path, sample: SampleUpstream
) -> None:
    for _ in range(3):  # `artifacts` leads to the last one, which stays
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
    for _ in range(3):  # `artifacts` leads to the last one, which stays
        kfm("run", QUAKES)
    worked(ws, COMPACT, prepare=later(2))
    packs = [p.read_bytes() for p in (ws / "data" / "work" / QUAKES / "noops").iterdir()]
    again = worked(ws, COMPACT, prepare=later(2))
    assert (again.status, again.reason) == ("skipped", "nothing to make smaller")
    assert [p.read_bytes() for p in (ws / "data" / "work" / QUAKES / "noops").iterdir()] == packs


def polled(kfm: Kfm, ws: Path, times: int) -> list[Path]:
    """The receipts of looks that found nothing new."""
    assert kfm("run", QUAKES).code == 0
    before = set((ws / "receipts").rglob("*.json"))
    for _ in range(times):
        assert (
            kfm(
                "worker", "run-job", INGEST, "--dataset", f"kfm://dataset/{QUAKES}", "--no-follow"
            ).code
            == 0
        )
    return sorted(set((ws / "receipts").rglob("*.json")) - before)


def test_receipts_of_looks_that_found_nothing_are_packed_by_the_day_and_still_found_and_missed(
    kfm: Kfm, ws: Path, sample: SampleUpstream
) -> None:
    loose = polled(kfm, ws, 3)
    texts = [path.read_bytes() for path in loose]
    assert len(loose) == 3
    assert "receipts packed" not in worked(ws, COMPACT, prepare=later(1)).reason, (
        "a job that began before midnight may still end"
    )
    assert "3 receipts packed" in worked(ws, COMPACT, prepare=later(2)).reason
    assert [path.exists() for path in loose] == [False] * 3
    assert [read_receipt(path) for path in loose] == texts
    assert kfm("verify").code == 0
    (pack,) = loose[0].parent.glob("*.jsonl")
    pack.chmod(0o644)
    pack.write_bytes(pack.read_bytes().replace(b"skipped", b"succeeded"))
    assert kfm("verify").code == 6


def test_a_receipt_that_was_changed_is_not_hidden_in_a_pack(
    kfm: Kfm, ws: Path, sample: SampleUpstream
) -> None:
    first, second, third = polled(kfm, ws, 3)
    first.chmod(0o644)
    first.write_text(first.read_text().replace("skipped", "succeeded"))
    third.unlink()
    assert "1 receipts packed" in worked(ws, COMPACT, prepare=later(2)).reason
    assert first.exists() and not second.exists()
    assert {p["what"] for p in kfm("verify", "--json").json["problems"]} == {
        "the receipt was changed",
        "the receipt is missing",
    }


def test_a_compaction_that_is_killed_half_way_leaves_every_receipt_somewhere(
    kfm: Kfm, ws: Path, sample: SampleUpstream
) -> None:
    loose = polled(kfm, ws, 2)
    texts = [path.read_bytes() for path in loose]

    class Killed(BaseException):
        """Not one that anybody handles."""

    def kill(*_: Any) -> None:
        raise Killed

    for at in ("kfm.store.effects.EffectView.receipts_packed", "kfm.zones.local.LocalZone.remove"):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(at, kill)
            with pytest.raises(Killed):
                worked(ws, COMPACT, prepare=later(2))
        assert [read_receipt(path) for path in loose] == texts
        assert kfm("verify").code == 0
    worked(ws, COMPACT, prepare=later(2))
    assert [read_receipt(path) for path in loose] == texts and kfm("verify").code == 0


@pytest.mark.job(COMPACT)
def test_deny_a_switched_off_job_packs_nothing(kfm: Kfm, ws: Path, sample: SampleUpstream) -> None:
    for _ in range(3):
        kfm("run", QUAKES)

    def off(world: Any) -> None:
        later(2)(world)
        world.store.transaction(lambda tx: tx.switches.off(COMPACT, "an audit", "user:auditor"))

    result = worked(ws, COMPACT, prepare=off)
    assert result.status != "succeeded" and "an audit" in result.reason
    assert not (ws / "data" / "work" / QUAKES / "noops").exists()
