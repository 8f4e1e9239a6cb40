"""Rendered workflows really run: on a local runner, without containers, against a clone that holds
the data.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from kfm.cli.init import make_workspace
from tests.brought import go_tool
from tests.given.github import TOKEN, github, named
from tests.given.ports import free_port
from tests.given.verbs import QUAKES, Kfm, caller, had

EVERY = ["ks_earthquakes", "ks_stream_gauges", "ks_weather_stations"]
UPDATER = ".github/workflows/pipelines-updater.yml"
PROMOTION = ".github/workflows/promotion.yml"
Act = Callable[..., "subprocess.CompletedProcess[str]"]


def git(folder: Path, *words: str) -> None:
    named = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
    subprocess.run(["git", "-C", str(folder), *named, *words], check=True)


@pytest.fixture
def repository(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    """What people see, and beside it the clone of the machine that holds the data."""
    folder = tmp_path / "repository"
    make_workspace(folder, sample=True, allow_loopback=True)
    with (folder / "kfm.yml").open("a") as file:
        file.write("runners: {owners: ['@agency/stewards']}\n")
    assert caller(folder, capsys)("runner", "render", "github").code == 0
    git(tmp_path, "init", "-q", "-b", "main", "repository")
    commit(folder)
    subprocess.run(["git", "clone", "-q", str(folder), str(tmp_path / "data")], check=True)
    make_workspace(tmp_path / "data", sample=True)
    return folder


def commit(folder: Path) -> None:
    git(folder, "add", "-A")
    git(folder, "commit", "-q", "-m", "one")


@pytest.fixture
def machine(repository: Path, capsys: pytest.CaptureFixture[str]) -> Kfm:
    """Calls on the machine that holds the data."""
    return caller(repository.parent / "data", capsys)


@pytest.fixture
def act(repository: Path, tmp_path: Path) -> Act:
    program = had(lambda: go_tool("act"))
    kept = tmp_path / "artifacts"
    (kept / "1").mkdir(parents=True)  # act lists a folder that it makes later
    port = str(free_port())
    (tmp_path / "home").mkdir()

    def call(
        event: str, workflow: str, told: object, *more: str
    ) -> "subprocess.CompletedProcess[str]":
        (tmp_path / "event.json").write_text(json.dumps(told))
        words = [
            str(program), event, "-W", workflow, "-e", str(tmp_path / "event.json"), "--pull=false",
            "-P", "self-hosted=-self-hosted", "-P", "ubuntu-latest=-self-hosted",
            "--var", f"KFM_WORKSPACE={tmp_path / 'data'}",
            "--artifact-server-path", str(kept), "--artifact-server-addr", "127.0.0.1",
            "--artifact-server-port", port,
        ]  # fmt: skip
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        plain = {k: v for k, v in os.environ.items() if not k.startswith(("KFM_", "GITHUB_"))}
        return subprocess.run(
            [*words, *more],
            cwd=repository,
            env={**plain, "HOME": str(tmp_path / "home"), "PATH": path},
            capture_output=True,
            text=True,
            check=False,
        )

    return call


def official(machine: Kfm) -> list[str]:
    found = machine("status", "--json").json["datasets"]
    return sorted(each["dataset_id"] for each in found if each["state"] == "official")


def test_a_tick_works_every_dataset_that_is_due_and_the_next_finds_nothing(
    act: Act, machine: Kfm, repository: Path
) -> None:
    said = act("schedule", UPDATER, {})
    assert said.returncode == 0, said.stdout[-3000:]
    assert official(machine) == EVERY
    kept = repository.parent / "artifacts" / "1"
    assert sorted(p.name for p in kept.iterdir()) == [f"pipelines-updater-{n}" for n in EVERY]
    again = act("schedule", UPDATER, {}, "-j", "due")
    assert again.returncode == 0 and "datasets=[]" in again.stdout


def test_a_person_and_an_event_start_one_dataset_and_a_dry_run_changes_nothing(
    act: Act, machine: Kfm
) -> None:
    dry = {"inputs": {"dataset": QUAKES, "dry-run": "true"}}
    said = act("workflow_dispatch", UPDATER, dry)
    assert "dry run: new version" in said.stdout and official(machine) == []
    event = {"source_id": "ks-earthquakes", "event_type": "update"}
    said = act("repository_dispatch", UPDATER, {"client_payload": {"key": "k1", "event": event}})
    assert said.returncode == 0, said.stdout[-3000:]
    assert official(machine) == [QUAKES]


def test_what_a_stranger_wrote_into_an_event_runs_nothing(act: Act, repository: Path) -> None:
    mark = repository.parent / "marked"
    event = {"source_id": f'"; touch {mark} #$(touch {mark})`touch {mark}`'}
    said = act("repository_dispatch", UPDATER, {"client_payload": {"key": "k", "event": event}})
    assert said.returncode != 0 and "is not a dataset id" in " ".join(said.stdout.split())
    assert not mark.exists()


def test_checks_of_a_pull_request_are_green_and_a_broken_gate_link_or_owner_is_red(
    act: Act, repository: Path
) -> None:
    base = subprocess.run(
        ["git", "-C", str(repository), "rev-parse", "HEAD"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()
    told = {"pull_request": {"base": {"sha": base}}}
    entry = repository / "data/registry" / f"{QUAKES}.yml"
    entry.write_text(entry.read_text() + "# looked at\n")
    commit(repository)
    for workflow in ("gates", "workers"):
        said = act("pull_request", f".github/workflows/{workflow}.yml", told)
        assert said.returncode == 0, said.stdout[-3000:]
    lines = entry.read_text().splitlines(keepends=True)
    entry.write_text("".join(line for line in lines if not line.startswith("licence:")))
    (repository / "README.md").write_text("[gone](gone.md)\n")
    (repository / ".github/CODEOWNERS").unlink()
    commit(repository)
    said = act("pull_request", ".github/workflows/gates.yml", told)
    failed = {
        job
        for job in ("gates", "documents", "owners", "policy")
        if f"[gates/{job}" in said.stdout and job_failed(said.stdout, job)
    }
    assert said.returncode != 0 and failed == {"gates", "documents", "owners"}, said.stdout[-3000:]
    assert "gone.md leads nowhere" in said.stdout and "licence.missing" in said.stdout


def job_failed(said: str, job: str) -> bool:
    return any(f"gates/{job}" in line and "Job failed" in line for line in said.splitlines())


def test_a_merge_promotes_what_was_proposed(
    act: Act, machine: Kfm, repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GITHUB_TOKEN", TOKEN)
    monkeypatch.setenv("KFM_TEST_TOKEN", TOKEN)
    told = {"ref": "refs/heads/main", "repository": {"default_branch": "main"}}
    with github() as hub:
        named(repository, hub, token="env:GITHUB_TOKEN")
        commit(repository)
        git(repository.parent / "data", "pull", "-q", "--ff-only")
        assert machine("propose", QUAKES).code == 7
        assert machine("github", "propose").code == 0
        before = act("push", PROMOTION, told, "-s", f"GITHUB_TOKEN={TOKEN}")
        assert before.returncode == 0, before.stdout[-3000:]
        assert official(machine) == [], "nobody has merged it"
        (number,) = hub.repo.pulls
        hub.repo.merge(number)
        said = act("push", PROMOTION, told, "-s", f"GITHUB_TOKEN={TOKEN}")
        assert said.returncode == 0, said.stdout[-3000:]
        assert official(machine) == [QUAKES]
        assert TOKEN not in said.stdout
