"""Every type of job is worked by a worker from the queue and by run-job, and ends the same; no
script is needed for any.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kfm.cli import main
from kfm.jobs import JOB_MODULES
from kfm.jobs import backfill_windows as backfill
from kfm.jobs.backfill_spans import JOB_TYPE
from kfm.jobs.replay import REPLAY
from kfm.workspace.folder import open_workspace
from kfm.workspace.targets import targets_of
from kfm.workspace.wiring import open_world
from tests.given.levels import ID, made, plan_of
from tests.given.verbs import Said, caller

Kfm = Callable[..., Said]


@pytest.fixture
def here(tmp_path: Path) -> Path:
    folder = made(tmp_path / "ws", days=2)
    assert main(["-w", str(folder), "run", ID]) == 0
    return folder


@pytest.fixture
def kfm(here: Path, capsys: pytest.CaptureFixture[str]) -> Kfm:
    return caller(here, capsys)


def corrected(here: Path) -> str:
    """The run that set a row aside, which somebody has corrected since."""
    entry, file = here / "data" / "registry" / f"{ID}.yml", here / "inbox" / "levels.csv"
    entry.write_text(f"{entry.read_text()}max_quarantined: 0.5\n")
    file.write_text(f"{file.read_text()}S7,2026-01-01,deep\n")
    assert main(["-w", str(here), "run", ID]) == 0
    with open_world(open_workspace(here)) as world:
        run_id: str = world.store.read(lambda tx: tx.runs.recent(ID, 1))[0].run_id
    said = ("quarantine", "fix", run_id, "--row", "1", "--set", "level=7", "--reason", "seen")
    assert main(["-w", str(here), *said]) == 0
    return run_id


def parameters(here: Path, kind: str) -> list[str]:
    """What the type cannot do without."""
    if kind == REPLAY:
        return ["--set", f"run_id={corrected(here)}"]
    if kind != JOB_TYPE:
        return []
    workspace = open_workspace(here)
    with open_world(workspace) as world:
        row, _ = backfill.start(
            world, "history", plan_of(here), targets_of(workspace, ID)[0], "system", put=False
        )
    return [
        flag
        for pair in (f"backfill_id={row.backfill_id}", "first=0", "count=1")
        for flag in ("--set", pair)
    ]


def receipts(here: Path, kind: str) -> list[dict[str, Any]]:
    return [json.loads(p.read_text()) for p in (here / "receipts" / kind).rglob("*.json")]


@pytest.mark.parametrize("kind", JOB_MODULES)
def test_a_type_is_worked_from_the_queue_and_by_run_job(here: Path, kfm: Kfm, kind: str) -> None:
    asked = [kind, "--dataset", f"kfm://dataset/{ID}", *parameters(here, kind)]
    job_id = kfm("jobs", "put", *asked).out.strip()
    assert kfm("worker", "run", "--until-idle").code == 0
    job = kfm("jobs", "show", job_id, "--json").json["job"]
    assert (job["state"], job["job_type"]) == ("ended", kind) and job["outcome"] in (
        "succeeded",
        "skipped",
    ), job
    before = len(receipts(here, kind))
    alone = kfm("worker", "run-job", *asked, "--no-follow", "--json")
    (done,) = alone.json["jobs"]
    assert (
        alone.code == 0 and done["job_type"] == kind and done["status"] in ("succeeded", "skipped")
    ), alone
    assert done["job_id"] == job_id, "the same work has the same id whichever way it is asked for"
    assert len(receipts(here, kind)) == before + 1 >= 2, "each working left its receipt"


@pytest.mark.parametrize("way", [("jobs", "put"), ("worker", "run-job")])
def test_a_type_nobody_registered_is_refused_by_both(kfm: Kfm, way: tuple[str, ...]) -> None:
    said = kfm(*way, "transform.build_everything", "--dataset", f"kfm://dataset/{ID}")
    assert said.code == 2 and "transform.build_everything" in said.err
