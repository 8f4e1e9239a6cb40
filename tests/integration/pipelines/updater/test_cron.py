"""Cron → updater → artifacts → ledger: what the rendered timer starts is called, and what it left is
looked at.
"""

import json
import os
import shlex
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from tests.given.updater import ARTIFACTS, artifacts
from tests.given.verbs import QUAKES, Kfm

from kfm.runners.systemd import FOLDER, calendar
from kfm.samples.upstream import SampleUpstream

CRON = "17 */6 * * *"


@pytest.fixture
def timer(ws: Path, kfm: Kfm) -> Path:
    """The folder of the units that a workspace of one dataset renders."""
    for path in (ws / "data" / "registry").glob("*.yml"):
        if path.stem != QUAKES:
            path.unlink()
    cron = ws / "src/pipelines/updater/scheduler/cron.yml"
    cron.parent.mkdir(parents=True)
    cron.write_text(yaml.safe_dump({"schedule": [{"cron": CRON}]}))
    with (ws / "kfm.yml").open("a") as file:
        file.write(f"runners: {{place: '{ws}', programs: '{Path(sys.executable).parent}'}}\n")
    assert kfm("runner", "render", "systemd").code == 0
    return ws / FOLDER


def pairs(unit: Path) -> list[tuple[str, str]]:
    lines = (line.partition("=") for line in unit.read_text().splitlines())
    return [(name, said) for name, sign, said in lines if sign and not name.startswith("#")]


def tick(timer: Path) -> None:
    """What systemd does when the timer elapses."""
    told = pairs(timer / "kfm-tick.service")
    given = dict(
        word.split("=", 1)
        for name, said in told
        if name == "Environment"
        for word in shlex.split(said)
    )
    (place,) = (said for name, said in told if name == "WorkingDirectory")
    plain = {
        k: os.environ[k] for k in ("HOME", "KFM_SAMPLE_UPSTREAM", "PYTHONPATH") if k in os.environ
    }
    for name, said in told:
        if name == "ExecStart":
            subprocess.run(
                shlex.split(said),
                cwd=place,
                env={**plain, **given},
                check=True,
                capture_output=True,
            )


def ledger(ws: Path) -> list[tuple[str, str, str]]:
    db = sqlite3.connect(ws / "ledger/idempotency.sqlite")
    return db.execute("select run_id, state, key from ledger order by rowid").fetchall()


def test_a_timer_starts_the_updater_which_leaves_artifacts_and_a_ledger_row(
    ws: Path, timer: Path
) -> None:
    assert dict(pairs(timer / "kfm-tick.timer"))["OnCalendar"] == calendar(CRON)
    assert not (ws / "ledger/idempotency.sqlite").exists() or ledger(ws) == []
    tick(timer)
    ((run_id, state, key),) = ledger(ws)
    assert state == "COMMITTED"
    folder = artifacts(ws, run_id)
    assert sorted(p.name for p in folder.iterdir()) == sorted(ARTIFACTS)
    assert json.loads((folder / "idempotency.json").read_text())["key"] == key
    assert os.path.samefile(ws / "artifacts", folder), "the latest run"
    db = sqlite3.connect(ws / "ledger/idempotency.sqlite")
    (reason,) = db.execute("select trigger_type from ledger").fetchone()
    assert reason.startswith("cron:scheduler@")


def test_a_second_tick_of_the_same_hour_asks_nobody(
    ws: Path, timer: Path, sample: SampleUpstream
) -> None:
    tick(timer)
    before, asked = ledger(ws), len(sample.requests)
    tick(timer)
    assert ledger(ws) == before and len(sample.requests) == asked
