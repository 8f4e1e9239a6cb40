"""A receiver as a process of its own: killed under load, told through the whole way to a version,
and looked at from the command line.
"""

import contextlib
import http.client
import itertools
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from kfm.model import RunTelemetry
from kfm.model.clock import SystemClock
from kfm.store.sqlite import SqliteStore
from kfm.telemetry.otlp import requests
from kfm.webhook import wire
from kfm.webhook.verify import sign
from tests.given.collector import attributes, collector, every
from tests.given.hooks import SECRET, body_of, source_file, telling, workspace_with
from tests.given.verbs import QUAKES, Kfm, each, until


@pytest.fixture(autouse=True)
def _key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KFM_TEST_HOOK", SECRET)


class Serving:
    """`kfm webhook serve` in a process of its own."""

    def __init__(self, ws: Path, *args: str) -> None:
        command = [sys.executable, "-m", "kfm", "-w", str(ws), "webhook", "serve", *args]
        self._said = ws.parent / f"{id(self)}.err"
        with self._said.open("w") as err:
            self.process = subprocess.Popen(command, stderr=err, start_new_session=True)
        found = until(lambda: self.process.poll() or re.search(r":(\d+)/hooks", self.said))
        assert not isinstance(found, int), self.said
        self.port = int(found[1])

    @property
    def said(self) -> str:
        return self._said.read_text()

    def end(self, number: int) -> int:
        if self.process.poll() is None:
            os.killpg(self.process.pid, number)
        return self.process.wait(60)


@contextlib.contextmanager
def serving(ws: Path, *args: str) -> Iterator[Serving]:
    found = Serving(ws, *(args or ("--listen", "127.0.0.1:0")))
    try:
        yield found
    finally:
        found.end(signal.SIGKILL)


def post(port: int, source_id: str, body: bytes, **headers: str) -> tuple[int, Any]:
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", port, timeout=60)) as there:
        signed = sign("kfm", SECRET.encode(), body)
        there.request("POST", f"/hooks/{source_id}", body, {**signed, **headers})
        answer = there.getresponse()
        return answer.status, json.loads(answer.read())


# ---- killed --------------------------------------------------------------------------------------
def load(port: int, numbers: Iterator[int], accepted: list[str]) -> None:
    """Tell one thing after the other until nobody answers; what was answered 202 is remembered."""
    there = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    with contextlib.closing(there), contextlib.suppress(OSError, http.client.HTTPException):
        while True:
            body = body_of(metadata={"n": next(numbers)})
            there.request("POST", "/hooks/s", body, sign("kfm", SECRET.encode(), body))
            answer = there.getresponse()
            told = json.loads(answer.read())
            assert answer.status == 202, told
            accepted.append(told["event_id"])


@pytest.mark.parametrize("rounds", each([pytest.param(3, id="3"), pytest.param(20, id="20")], "3"))
def test_killed_under_load_what_was_accepted_is_there_and_asked_exactly_once(
    tmp_path: Path, rounds: int
) -> None:
    ws = workspace_with(tmp_path / "ws", "d")
    source_file(ws, "s", per_minute=10_000_000)
    numbers, accepted = itertools.count(), list[str]()
    for number in range(rounds):
        with serving(ws) as receiver:
            before = len(accepted)
            threads = [
                threading.Thread(target=load, args=(receiver.port, numbers, accepted))
                for _ in range(6)
            ]
            for thread in threads:
                thread.start()
            until(lambda: len(accepted) >= before + 20 + 7 * number)
            receiver.end(signal.SIGKILL)
            for thread in threads:
                thread.join()
    with contextlib.closing(
        SqliteStore(ws / "ledger" / "idempotency.sqlite", SystemClock())
    ) as store:
        events = store.read(lambda tx: tx.events.listing(limit=-1))
        visit = store.read(lambda tx: tx.schedule.get("d"))
        (job,) = store.read(lambda tx: tx.jobs.listing())
    kept = [event.event_id for event in events]
    assert len(set(kept)) == len(kept) and {*accepted} <= {*kept}
    assert len(set(accepted)) == len(accepted) >= 20 * rounds
    # each has put the job of its dataset, and none has twice
    assert visit.puts == len(events)
    assert {event.started for event in events} == {
        json.dumps([["d", job.job_id, 1]], separators=(",", ":"))
    }


def test_it_ends_when_it_is_told_to_and_answers_what_it_has_heard(tmp_path: Path) -> None:
    ws = workspace_with(tmp_path / "ws", "d")
    source_file(ws, "s")
    with serving(ws) as receiver:
        assert post(receiver.port, "s", body_of())[0] == 202
        assert receiver.end(signal.SIGTERM) == 143
        assert SECRET not in receiver.said


def test_keys_are_read_again_while_it_runs(tmp_path: Path) -> None:
    ws = workspace_with(tmp_path / "ws", "d")
    key = tmp_path / "key"
    key.write_text("not-the-one-that-signs-0123456789\n")
    (ws / "kfm.yml").write_text(f"format: 1\ncredentials: {{hook: 'file:{key}'}}\n")
    source_file(ws, "s", keys=["credential:hook"])
    with serving(ws) as receiver:
        assert post(receiver.port, "s", body_of())[0] == 403
        key.write_text(f"{SECRET}\n")
        until(lambda: post(receiver.port, "s", body_of())[0] == 202)


def test_after_the_store_was_rebuilt_nothing_older_is_believed_and_who_knew_the_old_one_ends(
    kfm: Kfm, ws: Path
) -> None:
    source_file(ws, "s", datasets=[QUAKES])
    assert kfm("run", QUAKES).code == 0
    with serving(ws) as receiver:
        assert post(receiver.port, "s", body_of())[0] == 202
        before = body_of()
        assert kfm("reindex").code == 0
        assert post(receiver.port, "s", before)[0] == 503, "it could not be kept"
        assert receiver.process.wait(60) == 5, receiver.said
    with serving(ws) as receiver:
        assert post(receiver.port, "s", before)[0] == 403
        assert post(receiver.port, "s", body_of())[0] == 202
    refused = kfm("webhook", "list", "--refused", "--json").json["refused"]
    assert refused[0]["code"] == "time.before_epoch"


@pytest.mark.parametrize(
    "raw",
    [
        b"\x00\x01\x02\r\n\r\n",
        b"POST /hooks/s HTTP/1.1\r\nHost: x\r\nContent-Length: abc\r\n\r\n",
        b"POST /hooks/%ff%00 HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}",
        b"POST /hooks/s HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"POST /hooks/s HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999\r\n\r\n{}",
        b"POST * HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n",
    ],
)
def test_what_is_no_request_is_not_our_fault(receiver: Serving, raw: bytes) -> None:
    answer = said_to(receiver, raw)
    assert not answer or answer.startswith(b"HTTP/1.1 4"), answer
    assert post(receiver.port, "s", body_of())[0] == 202


def said_to(receiver: Serving, raw: bytes) -> bytes:
    """All that is answered to these bytes, by one who asks no more afterwards."""
    with socket.create_connection(("127.0.0.1", receiver.port), timeout=60) as there:
        there.sendall(raw)
        there.shutdown(socket.SHUT_WR)
        return b"".join(iter(lambda: there.recv(4096), b""))


def raw_request(body: bytes, more: str = "", *, sized: bool = True) -> bytes:
    signed = sign("kfm", SECRET.encode(), body)
    lines = [f"{name}: {value}\r\n" for name, value in signed.items()]
    lines += [f"Content-Length: {len(body)}\r\n"] if sized else []
    return f"POST /hooks/s HTTP/1.1\r\nHost: x\r\n{more}{''.join(lines)}\r\n".encode()


def test_many_requests_at_once_on_one_connection_are_answered_in_their_order(
    receiver: Serving,
) -> None:
    bodies = [body_of(metadata={"n": n}) for n in range(40)]
    forged = body_of(metadata={"n": -1})
    raw = [raw_request(body) + body for body in bodies]
    raw[20:20] = [raw_request(forged) + forged[:-1] + b" "]
    statuses = re.findall(rb"HTTP/1.1 (\d+)", said_to(receiver, b"".join(raw)))
    assert statuses == [b"202"] * 20 + [b"403"] + [b"202"] * 20


def test_a_body_may_come_in_pieces_and_is_asked_for_where_that_is_waited_for(
    receiver: Serving,
) -> None:
    body = body_of()
    pieces = b"".join(b"%x\r\n%b\r\n" % (len(p), p) for p in (body[:7], body[7:])) + b"0\r\n\r\n"
    chunked = raw_request(body, "Transfer-Encoding: chunked\r\n", sized=False) + pieces
    assert said_to(receiver, chunked).startswith(b"HTTP/1.1 202")
    with socket.create_connection(("127.0.0.1", receiver.port), timeout=60) as there:
        body = body_of()
        there.sendall(raw_request(body, "Expect: 100-continue\r\n"))
        assert there.recv(4096) == b"HTTP/1.1 100 Continue\r\n\r\n"
        there.sendall(body)
        assert there.recv(4096).startswith(b"HTTP/1.1 202")


def test_what_is_too_large_is_refused_before_it_is_there(receiver: Serving) -> None:
    with socket.create_connection(("127.0.0.1", receiver.port), timeout=60) as there:
        there.sendall(b"POST /hooks/s HTTP/1.1\r\nContent-Length: 2000000000\r\n\r\n{")
        assert there.recv(4096).startswith(b"HTTP/1.1 413")
    with socket.create_connection(("127.0.0.1", receiver.port), timeout=60) as there:
        there.sendall(b"POST /hooks/s HTTP/1.1\r\n" + b"X-Much: " + b"y" * 70_000)
        assert there.recv(4096).startswith(b"HTTP/1.1 431")


def test_who_does_not_go_on_is_cut_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wire, "_PATIENCE_S", 0.2)
    monkeypatch.setattr(wire, "_IDLE_S", 0.2)
    ws = workspace_with(tmp_path / "ws", "d")
    source_file(ws, "s")
    with telling(ws) as told, socket.create_server(("127.0.0.1", 0)) as opened:
        server = wire.Server(told.app)
        thread = threading.Thread(target=server.run, args=(opened,))
        thread.start()
        for begun, ends in (
            (b"POST /hooks/s HTTP/1.1\r\nContent-Length: 9\r\n\r\n{", b"HTTP/1.1 408"),
            (b"POST /hooks/s HT", b""),
            (b"", b""),
        ):
            with socket.create_connection(opened.getsockname()[:2], timeout=60) as there:
                there.sendall(begun)
                answer = b"".join(iter(lambda: there.recv(4096), b""))
            assert answer[:12] == ends, begun
        server.should_exit = True
        thread.join()
        assert [failure.code for failure in told.failures()] == ["body.slow"]


@pytest.fixture(scope="module")
def receiver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KFM_TEST_HOOK", SECRET)
        ws = workspace_with(tmp_path_factory.mktemp("hooks") / "ws", "d")
        source_file(ws, "s")
        with serving(ws) as found:
            yield found


# ---- the whole way -------------------------------------------------------------------------------
def by_webhook(kfm: Kfm, ws: Path) -> None:
    source_file(ws, "store", kind="s3", datasets=[QUAKES], only={"key": "quakes/*"})
    record = {
        "eventName": "ObjectCreated:Put",
        "s3": {"bucket": {"name": "b"}, "object": {"key": "quakes/new.json"}},
    }
    with telling(ws) as told:
        traced = {"traceparent": f"00-{'c3' * 16}-{'d4' * 8}-01", "X-Correlation-ID": "seen-by-us"}
        body = json.dumps({"Records": [record]}).encode()
        assert told.post("store", body, traced).status == 202


def by_cron(kfm: Kfm, ws: Path) -> None:
    for path in (ws / "data" / "registry").glob("*.yml"):
        if path.stem != QUAKES:
            path.unlink()
    assert kfm("scheduler", "--once").code == 0


def by_dispatch(kfm: Kfm, ws: Path) -> None:
    assert kfm("schedule", "run", QUAKES).code == 0


@pytest.mark.parametrize(
    ("start", "trigger"),
    [(by_webhook, "event:store"), (by_cron, "cron:"), (by_dispatch, "manual:")],
    ids=["webhook", "cron", "dispatch"],
)
def test_cron_dispatch_and_webhook_start_the_same_run(
    kfm: Kfm, ws: Path, start: Callable[[Kfm, Path], None], trigger: str
) -> None:
    start(kfm, ws)
    (job,) = kfm("jobs", "list", "--dataset", f"kfm://dataset/{QUAKES}", "--json").json["jobs"]
    assert kfm("worker", "run", "--until-idle", "--upstream", "sample").code == 0
    status = {d["dataset_id"]: d for d in kfm("status", "--json").json["datasets"]}[QUAKES]
    assert status["state"] == "official" and status["version_id"].startswith("vce7ef798")
    with contextlib.closing(
        SqliteStore(ws / "ledger" / "idempotency.sqlite", SystemClock())
    ) as store:
        row = store.read(lambda tx: tx.runs.get(status["last_run_id"]))
        ingest = store.read(lambda tx: tx.jobs.get(QUAKES, "", ""))
    assert row.trigger_type.startswith(trigger)
    assert ingest.job_id == job["job_id"], "whatever starts it, it is this job"


def test_an_object_store_starts_a_run_and_its_trace_is_in_every_line(kfm: Kfm, ws: Path) -> None:
    by_webhook(kfm, ws)
    assert kfm("worker", "run", "--until-idle", "--upstream", "sample").code == 0
    (line,) = kfm("webhook", "list", "--json").json["accepted"]
    assert [(j["dataset_id"], j["outcome"]) for j in line["started"]] == [(QUAKES, "succeeded")]
    (log,) = (ws / "data" / "work" / QUAKES / "runs").glob("*/artifacts/run.jsonl")
    for said in map(json.loads, log.read_text().splitlines()):
        assert said["traceparent"] == f"00-{'c3' * 16}-{'d4' * 8}-01"
        assert said["correlation_id"] == "seen-by-us"
    (file,) = (ws / "ledger" / "logs").glob("telemetry-*.jsonl")
    (ran,) = [msgspec.json.decode(one, type=RunTelemetry) for one in file.read_bytes().splitlines()]
    (span,) = every("traces", [requests([ran], "ws")["/v1/traces"]])
    assert (span["traceId"], span["parentSpanId"]) == ("c3" * 16, "d4" * 8)
    assert attributes(span)["kfm.correlation_id"] == "seen-by-us"
    (judging,) = kfm("jobs", "list", "--type", "validate.qa_dataset", "--json").json["jobs"]
    trace = kfm("jobs", "show", judging["job_id"], "--json").json["envelope"]["trace"]
    assert trace == {
        "parent_run_id": ran.run_id,
        "correlation_id": "seen-by-us",
        "traceparent": f"00-{'c3' * 16}-{span['spanId']}-01",
    }, "what a run asks for is asked by its span"


@pytest.mark.drill
def test_a_real_collector_gets_the_run_as_a_span_of_the_request_that_caused_it(
    kfm: Kfm, ws: Path, tmp_path: Path
) -> None:
    with collector(tmp_path) as got:
        config = ws / "kfm.yml"
        config.write_text(f"{config.read_text()}telemetry: {{otlp: '{got.url}'}}\n")
        by_webhook(kfm, ws)
        assert kfm("worker", "run", "--until-idle", "--upstream", "sample").code == 0
        (span,) = until(lambda: got.all("traces"))
        assert (span["traceId"], span["parentSpanId"]) == ("c3" * 16, "d4" * 8)
        assert attributes(span)["kfm.correlation_id"] == "seen-by-us"


def test_up_receives_and_works_what_it_is_told(ws: Path) -> None:
    config = ws / "kfm.yml"
    config.write_text(f"{config.read_text()}webhooks: {{listen: '127.0.0.1:0'}}\n")
    for path in (ws / "data" / "registry").glob("*.yml"):
        text = re.sub(r"(?m)^(cadence|interval):.*\n", "", path.read_text())
        path.write_text(text) if path.stem == QUAKES else path.unlink()
    source_file(ws, "s", datasets=[QUAKES])
    command = [sys.executable, "-m", "kfm", "-w", str(ws), "up", "--upstream", "sample"]
    said = ws.parent / "up.err"
    with said.open("w") as err:
        process = subprocess.Popen(command, stderr=err, start_new_session=True)
    try:
        port = int(until(lambda: re.search(r":(\d+)/hooks", said.read_text()))[1])
        assert post(port, "s", body_of())[0] == 202
        until(lambda: list((ws / "data" / "processed" / QUAKES).glob("v*")))
        os.killpg(process.pid, signal.SIGTERM)
        assert process.wait(120) in (0, 143), said.read_text()
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


# ---- looking -------------------------------------------------------------------------------------
def test_the_command_line_tells_what_came_why_it_was_refused_and_asks_again(
    kfm: Kfm, ws: Path
) -> None:
    source_file(ws, "s", datasets=[QUAKES])
    with telling(ws) as told:
        event_id = told.post("s", body_of()).json["event_id"]
        told.post("s", body_of(), secret="another-key-of-somebody-else")
        told.post("nobody", body_of())
    found = kfm("webhook", "list", "--json").json
    assert [e["event_id"] for e in found["accepted"]] == [event_id]
    assert [(r["code"], r["why"]) for r in found["refused"]] == [
        ("source.unknown", "there is no such source"),
        ("signature.mismatch", "no key of the source signed it"),
    ]
    shown = kfm("webhook", "list").out
    assert "etag-change" in shown and "no key of the source signed it" in shown
    assert "etag-change" not in kfm("webhook", "list", "--refused").out
    assert QUAKES in kfm("webhook", "show", event_id[:8]).out
    again = kfm("webhook", "replay", event_id, "--json").json
    assert again["event_id"] == event_id and len(again["jobs"]) == 1
    (key,) = kfm("webhook", "keys", "s", "--json").json["sources"][0]["keys"]
    assert key["there"] and key["events"] == 1 and SECRET not in kfm("webhook", "keys").out
    assert kfm("webhook", "show", "e0000").code == 2 and kfm("webhook", "keys", "x").code == 2


def test_a_limit_counts_what_was_accepted_and_what_was_refused_together(kfm: Kfm, ws: Path) -> None:
    source_file(ws, "s", datasets=[QUAKES])
    with telling(ws) as told:
        for number in range(4):  # each by a millisecond of its own: +, -, +, -
            told.post("s" if number % 2 == 0 else "nobody", body_of(trigger=f"t{number}"))
            time.sleep(0.002)

    def listed(*words: str) -> tuple[list[str], int]:
        found = kfm("webhook", "list", *words, "--json").json
        return [d["event"]["trigger"] for d in found["accepted"]], len(found["refused"])

    assert listed("--limit", "1") == ([], 1)
    assert listed("--limit", "2") == (["t2"], 1)
    assert listed("--limit", "3") == (["t2"], 2)
    assert listed("--limit", "4") == listed() == (["t2", "t0"], 2)
    assert listed("--limit", "1", "--source", "s") == (["t2"], 0)
    assert listed("--limit", "1", "--refused") == ([], 1)
    assert len(kfm("webhook", "list", "--limit", "2").out.splitlines()) == 3  # and the heading


def test_what_is_sent_to_a_source_of_github_names_its_event(
    kfm: Kfm, ws: Path, tmp_path: Path
) -> None:
    source_file(ws, "hub", kind="github", datasets=[QUAKES])
    source_file(ws, "s", datasets=[QUAKES])
    (file := tmp_path / "push.json").write_text('{"commits": [], "ref": "refs/heads/main"}')
    with serving(ws) as receiver:
        words = ("webhook", "send", "hub", str(file), "--to", f"http://127.0.0.1:{receiver.port}")
        sent = kfm(*words, "--event", "push", "--json")
        assert (sent.code, sent.json["status"]) == (0, 202), sent.err
        assert kfm(*words, "--event", "release").code == 1, "the body is no release"
    assert kfm("webhook", "show", sent.json["event_id"], "--json").json["event"]["trigger"] == "github:push"  # fmt: skip
    for more, said in (
        ((), "is not told which event"),
        (("--event", "Push it"), "'Push it' is no event of GitHub's"),
    ):
        refused = kfm("webhook", "send", "hub", str(file), *more)
        assert refused.code == 2 and said in refused.err and "--event push" in refused.err
    other = kfm("webhook", "send", "s", "--event", "push")
    assert other.code == 2 and "--type" in other.err


def test_a_new_key_is_for_its_owner_alone_and_never_said(kfm: Kfm, ws: Path) -> None:
    path = ws.parent / "new.key"
    said = kfm("webhook", "keys", "--new", str(path))
    assert said.code == 0 and path.stat().st_mode & 0o777 == 0o600
    assert path.read_text().strip() not in said.out + said.err
    assert kfm("webhook", "keys", "--new", str(path)).code == 2


def test_what_is_signed_by_command_is_accepted_and_a_refusal_has_its_exit_code(
    kfm: Kfm, ws: Path, tmp_path: Path
) -> None:
    source_file(ws, "s", datasets=[QUAKES])
    file = tmp_path / "body.json"
    file.write_bytes(body_of())
    headers = kfm("webhook", "sign", "s", str(file), "--json").json["headers"]
    with telling(ws) as told:
        assert told.post("s", file.read_bytes(), headers, scheme=None).status == 202
    with serving(ws) as receiver:
        to = f"http://127.0.0.1:{receiver.port}"
        assert kfm("webhook", "send", "s", "--to", to, "--set", "a=b").code == 0
        (old := tmp_path / "old.json").write_bytes(body_of(sent_at="2020-01-01T00:00:00Z"))
        refused = kfm("webhook", "send", "s", str(old), "--to", to)
        assert refused.code == 3 and "five minutes" in refused.out
    assert kfm("webhook", "send", "s", "--to", to).code == 4


def test_a_socket_in_a_file_is_for_its_owner_and_group(kfm: Kfm, ws: Path, tmp_path: Path) -> None:
    source_file(ws, "s", datasets=[QUAKES])
    path = tmp_path / "hooks.sock"
    config = ws / "kfm.yml"
    config.write_text(f"{config.read_text()}webhooks: {{listen: 'unix:{path}'}}\n")
    with telling(ws):
        command = [sys.executable, "-m", "kfm", "-w", str(ws), "webhook", "serve"]
        process = subprocess.Popen(command, stderr=subprocess.DEVNULL, start_new_session=True)
        try:
            until(path.exists)
            assert path.stat().st_mode & 0o777 == 0o660
            assert until(lambda: kfm("webhook", "send", "s").code == 0)
        finally:
            os.killpg(process.pid, signal.SIGTERM)
            process.wait()
    assert not path.exists()


def test_what_others_wrote_steers_no_terminal(kfm: Kfm, ws: Path) -> None:
    source_file(ws, "s", datasets=[QUAKES])
    with telling(ws) as told:
        steered = told.post("s", body_of(trigger="\x1b[31mred\nrow" + "x" * 99)).json["event_id"]
    for words in (("list",), ("show", steered[:16])):
        out = kfm("webhook", *words).out
        assert "\\x1b[31mred\\nrow" in out and "\x1b" not in out
