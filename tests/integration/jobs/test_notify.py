"""notify: what people should know is told once here, and under one id elsewhere; of what may not be
read nothing is told.
"""

import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from kfm.samples.upstream import SampleUpstream
from tests.given.verbs import QUAKES, Said, later, receipt, worked

Kfm = Callable[..., Said]


class Hook:
    """A webhook on loopback that keeps what it was told, and fails when asked to."""

    def __init__(self) -> None:
        self.told: list[dict[str, Any]] = []
        self.log: list[str] = []
        self.status = 200
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                outer.told.append({"id": self.headers["X-KFM-Notice"], **json.loads(body)})
                outer.log.append(self.headers["X-Correlation-ID"])
                self.send_response(outer.status)
                self.send_header("Content-Length", "2")
                self.end_headers()
                self.wfile.write(b"ok")

            def log_message(self, *_: Any) -> None: ...

        self._server = HTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}/hook/not-for-everyone"
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.05,), daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@pytest.fixture
def hook(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hook]:
    found = Hook()
    monkeypatch.setenv("KFM_TEST_HOOK", found.url)
    monkeypatch.setenv("KFM_FETCH_ATTEMPTS", "1")
    try:
        yield found
    finally:
        found.close()


def stale(world: Any) -> None:
    """Two days later; and kfm.yml names the webhook."""
    later(2)(world)
    config = world.root.local("kfm.yml")
    if "notify:" not in config.read_text():
        config.write_text(config.read_text() + "notify: {webhook: env:KFM_TEST_HOOK}\n")


def restore_config(ws: Path) -> None:
    config = ws / "kfm.yml"
    config.write_text(
        "".join(
            f"{line}\n"
            for line in config.read_text().splitlines()
            if not line.startswith("notify:")
        )
    )


def lines(ws: Path) -> list[dict[str, Any]]:
    log = ws / "ledger" / "notices.jsonl"
    return [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []


@pytest.mark.job("notify")
def test_happy_a_stale_dataset_is_told_to_the_log_and_the_webhook(
    kfm: Kfm, ws: Path, sample: SampleUpstream, hook: Hook
) -> None:
    kfm("run", QUAKES)
    (ws / "releases" / QUAKES / "00000001.json").unlink()
    result = worked(ws, "notify", prepare=stale)
    assert result.status == "succeeded", result.error
    assert [(n["kind"], n["dataset_id"]) for n in lines(ws)] == [("stale", QUAKES)]
    assert [n["id"] for n in hook.told] == [n["id"] for n in lines(ws)]
    assert lines(ws)[0]["next"] == f"kfm run {QUAKES}"
    assert hook.url not in (ws / result.receipt).read_text()


@pytest.mark.job("notify")
def test_retry_after_a_webhook_that_failed_tells_it_under_the_same_id_and_then_never_again(
    kfm: Kfm, ws: Path, sample: SampleUpstream, hook: Hook
) -> None:
    kfm("run", QUAKES)
    hook.status = 503
    failed = worked(ws, "notify", prepare=stale)
    assert (failed.status, failed.retry, lines(ws)) == ("failed", True, [])
    assert hook.url not in (ws / failed.receipt).read_text()
    hook.status = 200
    restore_config(ws)
    assert worked(ws, "notify", prepare=stale).status == "succeeded"
    restore_config(ws)
    again = worked(ws, "notify", prepare=stale)
    assert (again.status, len(lines(ws))) == ("skipped", 1)
    assert len({n["id"] for n in hook.told}) == 1


@pytest.mark.job("notify")
def test_deny_nothing_is_told_of_a_dataset_that_may_not_be_read(
    kfm: Kfm, ws: Path, sample: SampleUpstream, hook: Hook
) -> None:
    kfm("run", QUAKES)
    entry = ws / "data" / "registry" / f"{QUAKES}.yml"
    entry.write_text(entry.read_text().replace("sensitivity: public", "sensitivity: restricted"))
    result = worked(ws, "notify", prepare=stale)
    assert (result.status, result.retry) == ("failed", False)
    assert receipt(ws, result)["provenance"]["policy_decisions"][0]["decision"] == "deny"
    assert (hook.told, lines(ws)) == ([], [])


def test_a_denied_run_is_told_by_its_code_and_quotes_nothing(
    kfm: Kfm, ws: Path, sample: SampleUpstream
) -> None:
    entry = ws / "data" / "registry" / f"{QUAKES}.yml"
    entry.write_text(entry.read_text().replace("licence: CC0-1.0\n", ""))
    kfm("run", QUAKES)
    worked(ws, "notify")
    assert [(n["kind"], n["reason"]) for n in lines(ws)] == [("denied", "licence.missing")]


def test_the_log_of_the_api_that_is_called_has_the_id_of_worker_log_and_receipt(
    kfm: Kfm, ws: Path, hook: Hook
) -> None:
    (ws / "kfm.yml").write_text(
        (ws / "kfm.yml").read_text() + "notify: {webhook: env:KFM_TEST_HOOK}\n"
    )
    assert kfm("propose", QUAKES).code == 7
    done = kfm(
        "worker", "run-job", "notify", "--dataset", f"kfm://dataset/{QUAKES}", "--json"
    ).json["jobs"][0]
    assert done["status"] == "succeeded"
    logged = [
        json.loads(line)
        for file in (ws / "ledger" / "logs").glob("workers-*.jsonl")
        for line in file.read_text().splitlines()
    ]
    of_worker = {line["correlation_id"] for line in logged if line["job_id"] == done["job_id"]}
    assert (
        of_worker
        == set(hook.log)
        == {json.loads((ws / done["receipt"]).read_text())["correlation_id"]}
    )
