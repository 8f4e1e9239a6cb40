"""maintenance.gc: removes what retention no longer keeps, says so file by file, and is finished by
whoever comes next.
"""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kfm.samples.upstream import SampleUpstream
from tests.given.verbs import QUAKES, Said, receipt, retain, revisions, versions, worked

Kfm = Callable[..., Said]
GC = "maintenance.gc"
KILLED = """
import os, sys
from pathlib import Path
from kfm.zones.local import LocalZone
from tests.given.verbs import worked
remove, gone = LocalZone.remove, []
def dying(zone, path):
    if len(gone) == 2:
        os.kill(os.getpid(), 9)
    gone.append(path)
    remove(zone, path)
LocalZone.remove = dying
worked(Path(sys.argv[1]), "maintenance.gc", apply=True, grace="0s")
"""


@pytest.mark.job(GC)
def test_happy_old_versions_go_and_the_receipt_lists_every_file(
    kfm: Kfm, ws: Path, sample: SampleUpstream
) -> None:
    made = revisions(kfm, sample, 0, 1, 2)
    retain(ws, QUAKES, "0s")
    folder = ws / "data" / "processed" / QUAKES / made[0]
    before = {f"data/{p.relative_to(ws / 'data')}" for p in folder.iterdir()}
    dry = worked(ws, GC, grace="0s")
    assert (dry.status, versions(ws)) == ("skipped", set(made))
    result = worked(ws, GC, apply=True, grace="0s")
    told = receipt(ws, result)
    assert result.status == told["status"] == "succeeded"
    assert versions(ws) == set(made[1:])  # the head, and what a rollback goes back to
    assert before <= set(told["provenance"]["files"])
    assert all(digest.startswith("sha256:") for digest in told["provenance"]["files"].values())
    assert not any((ws / path).exists() for path in told["provenance"]["files"])


@pytest.mark.job(GC)
def test_retry_after_a_kill_between_two_removals_does_the_rest(
    kfm: Kfm, ws: Path, sample: SampleUpstream
) -> None:
    made = revisions(kfm, sample, 0, 1, 2)
    retain(ws, QUAKES, "0s")
    whole = {
        str(p.relative_to(ws)) for p in (ws / "data" / "processed" / QUAKES / made[0]).iterdir()
    }
    killed = subprocess.run(
        [sys.executable, "-c", KILLED, str(ws)],
        cwd=Path(__file__).parents[3],
        timeout=300,
        check=False,
    )
    assert killed.returncode == -9
    left = {p for p in whole if (ws / p).exists()}
    assert left and left != whole
    # no version without it
    assert not (ws / "data" / "processed" / QUAKES / made[0] / "checksums.sha256").exists()
    result = worked(ws, GC, apply=True, grace="0s")
    assert versions(ws) == set(made[1:])
    # also what the killed one removed
    assert whole <= set(receipt(ws, result)["provenance"]["files"])
    again = worked(ws, GC, apply=True, grace="0s")
    assert (again.status, receipt(ws, again)["provenance"]["files"]) == ("skipped", {})


@pytest.mark.job(GC)
def test_deny_a_switched_off_job_removes_nothing(
    kfm: Kfm, ws: Path, sample: SampleUpstream
) -> None:
    made = revisions(kfm, sample, 0, 1, 2)
    retain(ws, QUAKES, "0s")

    def off(world: Any) -> None:
        world.store.transaction(lambda tx: tx.switches.off(GC, "a lawsuit", "user:counsel"))

    result = worked(ws, GC, prepare=off, apply=True, grace="0s")
    assert result.status != "succeeded" and "a lawsuit" in result.reason
    said = kfm("gc", "--apply", "--grace", "0s")
    assert said.code == 3 and "a lawsuit" in said.err
    assert versions(ws) == set(made)
