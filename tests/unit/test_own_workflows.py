"""The workflows of this repository: judged as those are that it renders for others."""

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from tests.brought import go_tool
from tests.given.verbs import had

ROOT = Path(__file__).parents[2]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
WORKERS = ROOT / ".github" / "workflows" / "workers.yml"


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda p: p.name)
def test_every_job_may_read_and_nothing_else_and_every_action_is_pinned(path: Path) -> None:
    found = yaml.safe_load(path.read_text())
    assert found["permissions"] == {}
    for job in found["jobs"].values():
        assert job["permissions"] == {"contents": "read"} and job["timeout-minutes"]
        used = [step["uses"] for step in job["steps"] if "uses" in step]
        assert all(re.fullmatch(r"[\w.-]+/[\w.-]+@[0-9a-f]{40}", use) for use in used)


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda p: p.name)
def test_actionlint_and_zizmor_find_nothing(path: Path) -> None:
    program = had(lambda: go_tool("actionlint"))
    lint = subprocess.run(
        [program, "-no-color", "-oneline", path], capture_output=True, text=True, check=False
    )
    assert lint.stdout == ""
    words = ["--offline", "--no-progress", "--format", "json", "--no-exit-codes", str(path)]
    said = subprocess.run(
        [Path(sys.executable).with_name("zizmor"), *words],
        capture_output=True,
        text=True,
        check=True,
    )
    severe = [f["determinations"]["severity"] for f in json.loads(said.stdout)]
    assert set(severe) <= {"Low", "Informational"}


def test_the_workers_tests_are_run() -> None:
    """All of them, by the line that stands in the workflow."""
    (job,) = yaml.safe_load(WORKERS.read_text())["jobs"].values()
    *_, last = (shlex.split(step["run"]) for step in job["steps"] if "run" in step)
    assert last[:3] == [".venv/bin/python", "-m", "pytest"]
    paths = [ROOT / word for word in last if word.startswith("tests/")]
    assert all(path.exists() for path in paths)
    run = {f for p in paths for f in ([p] if p.is_file() else p.rglob("test_*.py"))}
    named = {p for p in (ROOT / "tests").rglob("test_*.py") if _of_workers(p)}
    assert named and named <= run, "a test of the workers that the workflow leaves out"


def _of_workers(path: Path) -> bool:
    return path.parent.name == "jobs" or path.stem in ("test_job_table", "test_scheduler")
