"""Runs in a job of GitHub Actions: outputs, words on its page, artifacts, and a comment when asked for."""

import io
import json
import os
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from kfm.extras.github.step import FILES
from kfm.samples.upstream import SampleUpstream
from tests.given.github import TOKEN, github, named
from tests.given.github_results import Results, runtime_token
from tests.given.github_server import GithubServer
from tests.given.verbs import QUAKES, Said, need_tool

Kfm = Callable[..., Said]
FOUR = {"run.jsonl", "event_log.jsonl", "idempotency.json", "publisher_trace.jsonl"}


@pytest.fixture
def hub(tmp_path: Path, ws: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[GithubServer]:
    """A job of Actions for a pull request of our own repository."""
    with github() as server:
        server.results = Results(server)  # type: ignore[attr-defined]
        repo = server.repo
        repo.push("feature", {"x": b"1"})
        number = (repo.pulls and 0) or repo.new_id()
        from tests.given.github_repo import Pull

        repo.pulls[number] = Pull(
            number, "a change", "", "feature", "main", False, "ada", repo.name
        )
        settings(ws, api=server.url)
        job(tmp_path, monkeypatch, server, number)
        yield server


def settings(ws: Path, **said: Any) -> None:
    file = ws / "kfm.yml"
    whole = yaml.safe_load(file.read_text())
    whole["github"] = {**whole.get("github", {}), **said}
    file.write_text(yaml.safe_dump(whole))


def job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hub: GithubServer, number: int, fork: str = ""
) -> None:
    repo = {"full_name": hub.repo.name}
    head = {"sha": "0" * 40, "repo": {"full_name": fork or hub.repo.name}}
    event = {
        "number": number,
        "pull_request": {"number": number, "head": head, "base": {"repo": repo}},
    }
    (tmp_path / "event.json").write_text(json.dumps(event))
    os.utime(tmp_path / "event.json", (1, 1))
    for name, value in {
        "GITHUB_ACTIONS": "true",
        "GITHUB_EVENT_NAME": "pull_request",
        "GITHUB_EVENT_PATH": str(tmp_path / "event.json"),
        "GITHUB_REPOSITORY": hub.repo.name,
        "GITHUB_REF": f"refs/pull/{number}/merge",
        "GITHUB_OUTPUT": str(tmp_path / "outputs"),
        "GITHUB_STEP_SUMMARY": str(tmp_path / "summary"),
        "GITHUB_TOKEN": TOKEN,
        "ACTIONS_RUNTIME_TOKEN": runtime_token(),
        "ACTIONS_RESULTS_URL": hub.url + "/",
        "KFM_PUBLISHER": "github_actions",
    }.items():
        monkeypatch.setenv(name, value)


def outputs(tmp_path: Path) -> dict[str, str]:
    """As the runner reads them."""
    lines, found = (tmp_path / "outputs").read_text().splitlines(), dict[str, str]()
    while lines:
        name, _, fence = lines.pop(0).partition("<<")
        end = lines.index(fence)
        found[name], lines = "\n".join(lines[:end]), lines[end + 1 :]
    return found


def archived(hub: Any, name: str) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(hub.results.artifacts[name])) as opened:
        return {n: opened.read(n) for n in opened.namelist()}


def test_a_run_in_actions_uploads_its_artifacts_with_the_jobs_token_and_tells_its_outputs(
    kfm: Kfm, ws: Path, hub: Any, tmp_path: Path
) -> None:
    said = kfm("run", QUAKES, "--json")
    assert said.code == 0
    run_id = said.json["runs"][0]["run_id"]
    told = outputs(tmp_path)
    assert json.loads(told["updater_run"])["run_id"] == run_id
    assert told["concurrency_group"] == f"pipelines-updater-{QUAKES}"
    assert told["release"] == f"{QUAKES}/00000001"
    assert f"| {QUAKES} | {run_id} | COMMITTED |" in (tmp_path / "summary").read_text()
    files = archived(hub, f"pipelines-updater-{QUAKES}")
    assert files.keys() == {f"{run_id}/{name}" for name in FOUR}
    folder = ws / "data" / "work" / QUAKES / "runs" / run_id / "artifacts"
    assert all(files[f"{run_id}/{name}"] == (folder / name).read_bytes() for name in FOUR)
    created = next(c for c in hub.calls if c.path.endswith("/CreateArtifact"))
    assert created.headers["authorization"] == f"Bearer {runtime_token()}"


def test_the_step_that_always_runs_uploads_what_a_failed_run_left(
    kfm: Kfm, ws: Path, hub: Any, sample: SampleUpstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("KFM_PUBLISHER")
    sample.control(QUAKES, mode=503)
    failed = kfm("run", QUAKES, "--json")
    assert failed.code not in (0, 3, 7)
    first = kfm("github", "upload", QUAKES, "--json")
    assert first.code == 0 and first.json["datasets"][0]["artifact"]["new"] is True
    names = {n.partition("/")[2] for n in archived(hub, f"pipelines-updater-{QUAKES}")}
    assert names == FOUR
    again = kfm("github", "upload", QUAKES, "--json")
    assert again.json["datasets"][0]["artifact"]["new"] is False


def test_a_dry_run_in_actions_touches_neither_outputs_nor_github(
    kfm: Kfm, hub: Any, tmp_path: Path
) -> None:
    assert kfm("run", QUAKES, "--dry-run").code == 0
    assert hub.calls == [] and not (tmp_path / "outputs").exists()


def test_comments_are_off_unless_kfm_yml_asks_for_them(kfm: Kfm, ws: Path, hub: Any) -> None:
    assert kfm("run", QUAKES).code == 0
    assert hub.repo.comments == {}


def test_one_comment_is_kept_up_to_date_when_kfm_yml_asks_for_it(
    kfm: Kfm, ws: Path, hub: Any
) -> None:
    settings(ws, comments=True)
    assert kfm("run", QUAKES).code == 0
    ((number, first),) = [(c.number, c.body) for c in hub.repo.comments.values()]
    assert "`COMMITTED`" in first and number in hub.repo.pulls
    assert kfm("run", QUAKES).code == 0
    (second,) = [c.body for c in hub.repo.comments.values()]
    assert "`NOOP`" in second


def test_a_fork_gets_no_comment_and_the_run_stands(
    kfm: Kfm, ws: Path, hub: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings(ws, comments=True)
    job(tmp_path, monkeypatch, hub, next(iter(hub.repo.pulls)), fork="stranger/open-data")
    said = kfm("run", QUAKES)
    assert said.code == 0 and "::warning title=kfm::" in said.err
    assert hub.repo.comments == {}


def test_github_down_does_not_change_how_a_run_ends_and_is_recorded(
    kfm: Kfm, ws: Path, hub: Any
) -> None:
    for number in range(1, 20):
        hub.fault(number, "fail", status=500)
    said = kfm("run", QUAKES, "--json")
    assert (said.code, said.json["runs"][0]["state"]) == (0, "COMMITTED")
    assert "::warning title=kfm::" in said.err
    run_id = said.json["runs"][0]["run_id"]
    log = ws / "data" / "work" / QUAKES / "runs" / run_id / "artifacts" / "run.jsonl"
    last = json.loads(log.read_text().splitlines()[-1])
    assert (last["event"], last["level"]) == ("report.failed", "error")


def test_a_publisher_that_nobody_knows_is_refused(
    kfm: Kfm, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KFM_PUBLISHER", "gitlab")
    assert kfm("run", QUAKES).code == 2


def test_the_action_in_the_repository_hands_the_token_to_the_upload_and_ends_as_it_ends(
    kfm: Kfm, ws: Path, hub: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a runner starts it: with the inputs in its environment."""
    need_tool("node")
    monkeypatch.delenv("KFM_PUBLISHER")
    kfm("run", QUAKES)
    (tmp_path / "index.js").write_text(FILES[".github/actions/kfm-upload/index.js"])
    inputs = {"INPUT_KFM": f"{sys.executable} -m kfm", "INPUT_WORKSPACE": str(ws)}

    def step(datasets: str) -> int:
        env = {**os.environ, **inputs, "INPUT_DATASETS": datasets}
        return subprocess.run(["node", str(tmp_path / "index.js")], env=env, check=False).returncode

    assert step(QUAKES) == 0
    assert hub.results.artifacts.keys() == {f"pipelines-updater-{QUAKES}"}
    assert step("no_such_dataset") == 2


def test_what_is_published_is_an_artifact_a_release_and_where_it_is_enabled_a_comment(
    kfm: Kfm, ws: Path, hub: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KFM_TEST_TOKEN", TOKEN)
    named(ws, hub, receiver=True, comments=True)
    assert kfm("run", QUAKES).code == 0
    assert hub.results.artifacts.keys() == {f"pipelines-updater-{QUAKES}"}
    assert f"{QUAKES}.parquet" in hub.repo.assets_of(f"{QUAKES}/00000001")
    assert len(hub.repo.comments) == 1
