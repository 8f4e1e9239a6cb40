"""backfill.run_parts: a batch ends with its parts staged, a repeat finds them, and a denied version
leaves them where they are.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from kfm.jobs import backfill_windows as backfill
from kfm.jobs.base import JobResult, job_type, parameters_of, work
from kfm.model import ids
from kfm.workspace.config import change_entry
from kfm.workspace.folder import open_workspace
from kfm.workspace.job_process import context_of
from kfm.workspace.targets import targets_of
from kfm.workspace.wiring import open_world
from tests.given.levels import ID, ledger, made, plan_of, told

TYPE = "backfill.run_parts"


@pytest.fixture
def here(tmp_path: Path) -> Path:
    return made(tmp_path / "ws", days=2)


def begin(here: Path) -> str:
    workspace = open_workspace(here)
    with open_world(workspace) as world:
        row, _ = backfill.start(
            world, "history", plan_of(here), targets_of(workspace, ID)[0], "system"
        )
    return row.backfill_id


def worked(here: Path, **given: Any) -> JobResult:
    """Work the job in this process, as a worker's child would."""
    workspace, kind = open_workspace(here), job_type(TYPE)
    with open_world(workspace) as world:
        (job, *_) = world.store.read(lambda tx: tx.jobs.listing(job_type=TYPE))
        return work(
            kind,
            context_of(
                workspace, world, job, str(ids.new_run_id()), parameters_of(kind, given), "live"
            ),
        )


def receipt(here: Path, result: JobResult) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((here / result.receipt).read_text())
    return found


@pytest.mark.job(TYPE)
def test_happy_a_batch_is_staged_then_assembled_and_the_receipts_name_the_parts(here: Path) -> None:
    name = begin(here)
    first = worked(here, backfill_id=name, first=0, count=2)
    assert first.status == "succeeded" and [r.state for r in ledger(here)] == ["STAGED"] * 2
    parts = receipt(here, first)["outputs"]
    assert len(parts) == 2 and all((here / "data" / p["id"]).is_file() for p in parts)
    second = worked(here, backfill_id=name, assemble=True)
    assert (
        second.status == "succeeded"
        and receipt(here, second)["outputs"][0]["id"]
        == f"kfm://dataset/{ID}@{told(here)['version_id']}"
    )


@pytest.mark.job(TYPE)
def test_retry_a_batch_that_lost_its_worker_makes_nothing_twice(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = begin(here)
    with monkeypatch.context() as patched:
        patched.setattr("kfm.jobs.backfill_batch.FLUSH_S", 1e9)  # only the ledger knows
        patched.setattr(
            "kfm.jobs.backfill_batch.go_on", lambda *a: (_ for _ in ()).throw(KeyboardInterrupt)
        )  # dies before it could say so
        with pytest.raises(KeyboardInterrupt):
            worked(here, backfill_id=name, first=0, count=2)
    before = {(r.run_id, r.part) for r in ledger(here)}
    (here / "inbox" / "levels.csv").unlink()  # nobody is asked again
    again = worked(here, backfill_id=name, first=0, count=2)
    assert (
        again.status == "succeeded"
        and {(r.run_id, r.part) for r in ledger(here)} == before
        and len(before) == 2
    )
    first = worked(here, backfill_id=name, assemble=True)
    assert (
        first.status == "succeeded"
        and worked(here, backfill_id=name, assemble=True).status == "skipped"
    )
    assert told(here)["generation"] == 1


@pytest.mark.job(TYPE)
def test_deny_the_receipt_says_so_the_parts_stay_and_it_is_not_tried_again(here: Path) -> None:
    change_entry(here, ID, {"licence": None})
    name = begin(here)
    worked(here, backfill_id=name, first=0, count=2)
    denied = worked(here, backfill_id=name, assemble=True)
    assert (denied.status, denied.retry, denied.exit_code) == ("failed", False, 3)
    said = receipt(here, denied)["provenance"]["policy_decisions"]
    assert said[0]["decision"] == "deny" and "licence" in said[0]["reason"]
    assert (
        sorted(r.state for r in ledger(here)) == ["REJECTED", "STAGED", "STAGED"]
        and not (here / "data" / "processed").exists()
    )


def test_a_switched_off_dataset_is_not_worked(here: Path) -> None:
    name = begin(here)
    with open_world(open_workspace(here)) as world:
        world.store.transaction(lambda tx: tx.switches.off(ID, "upstream asked us to", "Ada"))
    off = worked(here, backfill_id=name, first=0, count=2)
    assert (off.status, off.exit_code) == ("skipped", 5) and ledger(here) == []
