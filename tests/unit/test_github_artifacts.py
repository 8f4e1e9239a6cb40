"""Artifacts of a job of GitHub Actions: with the job's own token, whole, once."""

import io
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.given.github import github
from tests.given.github_results import Results as Service
from tests.given.github_results import runtime_token
from tests.given.github_server import GithubServer

from kfm.extras.github.artifacts import Results, keep_artifact, open_results, zipped
from kfm.extras.github.wire import Carrier
from kfm.fetch.connect import Dialer, lookup
from kfm.model import Denied, UpstreamUnavailable, UsageError, masked


def carrier() -> Carrier:
    return Carrier(
        Dialer(allow_loopback=True, reroute=None, timeout=5.0, resolve=lookup), "kfm/test"
    )


@pytest.fixture
def hub() -> Iterator[GithubServer]:
    with github() as server:
        yield server


def asked(hub: GithubServer, attempts: int = 5) -> Results:
    return Results(
        carrier(), hub.url + "/", runtime_token(), attempts=attempts, sleep=lambda _: None
    )


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    zipped({"r/run.jsonl": b"{}\n", "r/idempotency.json": b"{}\n"}, tmp_path / "a.zip")
    return tmp_path / "a.zip"


def test_an_artifact_is_created_put_and_finalized_with_the_token_of_the_job(
    hub: GithubServer, archive: Path
) -> None:
    service = Service(hub)
    kept = keep_artifact(asked(hub), "pipelines-updater-wells", archive)
    assert service.artifacts == {"pipelines-updater-wells": archive.read_bytes()}
    assert (kept.new, kept.size) == (True, archive.stat().st_size)
    token = f"Bearer {runtime_token()}"
    twirp = [c for c in hub.calls if c.path.startswith("/twirp/")]
    assert [c.headers["authorization"] for c in twirp] == [token] * 3
    (put,) = [c for c in hub.calls if c.method == "PUT"]
    assert "authorization" not in put.headers, "its address is signed"
    assert runtime_token() not in masked(runtime_token())
    assert "secret-00000001" not in masked("sig=secret-00000001")


def test_the_same_archive_is_uploaded_once_and_another_takes_its_place(
    hub: GithubServer, archive: Path, tmp_path: Path
) -> None:
    service = Service(hub)
    keep_artifact(asked(hub), "a", archive)
    assert keep_artifact(asked(hub), "a", archive).new is False
    assert sum(c.method == "PUT" for c in hub.calls) == 1
    zipped({"x": b"other"}, tmp_path / "b.zip")
    assert keep_artifact(asked(hub), "a", tmp_path / "b.zip").new is True
    assert service.artifacts == {"a": (tmp_path / "b.zip").read_bytes()}


def test_an_archive_follows_from_its_files_alone(tmp_path: Path) -> None:
    for name, files in (("1", {"b": b"2", "a": b"1"}), ("2", {"a": b"1", "b": b"2"})):
        zipped(files, tmp_path / name)
    assert (tmp_path / "1").read_bytes() == (tmp_path / "2").read_bytes()
    with zipfile.ZipFile(io.BytesIO((tmp_path / "1").read_bytes())) as opened:
        assert {n: opened.read(n) for n in opened.namelist()} == {"a": b"1", "b": b"2"}


@pytest.mark.parametrize("how", ["close", "fail"])
@pytest.mark.parametrize("after", [False, True])
def test_whichever_answer_is_lost_there_is_one_whole_artifact(
    hub: GithubServer, archive: Path, how: Any, after: bool
) -> None:
    service = Service(hub)
    keep_artifact(asked(hub), "a", archive)
    calls = len(hub.calls)
    for number in range(1, calls + 1):
        with github() as other:
            service = Service(other)
            other.fault(number, how, after=after)
            keep_artifact(asked(other), "a", archive)
            assert list(service.artifacts.values()) == [archive.read_bytes()], number


@pytest.mark.parametrize("after", [False, True])
def test_who_was_cut_off_uploads_again_without_doubling(archive: Path, after: bool) -> None:
    for number in range(1, 5):
        with github() as other:
            service = Service(other)
            other.fault(number, "close", after=after)
            with pytest.raises(UpstreamUnavailable):
                keep_artifact(asked(other, attempts=1), "a", archive)
            keep_artifact(asked(other), "a", archive)
            assert list(service.artifacts.values()) == [archive.read_bytes()], number


def test_a_signed_address_on_another_host_is_refused(hub: GithubServer, archive: Path) -> None:
    with pytest.raises(Denied, match=r"elsewhere\.example"):
        asked(hub).put("https://elsewhere.example/x?sig=0123456789", archive)


@pytest.mark.parametrize("token", ["no-jwt", "a.e30.c", "a.eyJzY3AiOiJBY3Rpb25zLlJlc3VsdHM6MSJ9.c"])
def test_a_token_that_names_no_job_is_refused(hub: GithubServer, token: str) -> None:
    with pytest.raises(UsageError, match="does not name"):
        Results(carrier(), hub.url, token)


def test_outside_of_a_job_there_is_nothing_to_upload_to(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ACTIONS_RUNTIME_TOKEN", raising=False)
    with pytest.raises(UsageError, match="ACTIONS_RUNTIME_TOKEN"):
        open_results(carrier())
