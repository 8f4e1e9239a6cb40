"""Receiving webhooks beside FastAPI on uvicorn, and whether time tells which sources there are."""

import asyncio
import contextlib
import datetime as dt
import hashlib
import hmac
import json
import re
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks import peers
from benchmarks.measure import LOWER, Result, Took, judge

__all__ = ["guessed", "rate"]

EVENTS, CONNECTIONS, TRIES = 8_000, 64, 20_000
KEY = "k" * 32
PEER = ["fastapi", "uvicorn[standard]"]
_ENTRY = """dataset_id: d
title: d
licence: CC0-1.0
sensitivity: public
policy_label: public
source: {url: "https://example.org/d.csv", format: csv}
"""


# ---- sides ---------------------------------------------------------------------------------------
@contextlib.contextmanager
def _ours(folder: Path) -> Iterator[tuple[int, int]]:
    """(port, process id) of `kfm webhook serve`."""
    (folder / "data" / "registry").mkdir(parents=True)
    (folder / "data" / "registry" / "d.yml").write_text(_ENTRY)
    (folder / "kfm.yml").write_text("format: 1\n")
    hooks = folder / "pipelines" / "orchestration" / "webhooks"
    hooks.mkdir(parents=True)
    told = {"datasets": ["d"], "keys": ["env:HOOK"], "per_minute": 100_000_000}
    (hooks / "s.json").write_text(json.dumps(told))
    command = [peers.kfm(), "-w", str(folder), "webhook", "serve", "--listen", "127.0.0.1:0"]
    with _started(command, folder, {"HOOK": KEY}) as child:
        said = _until(lambda: re.search(r":(\d+)/hooks", (folder / "said").read_text()), child)
        yield int(said[1]), child.pid


@contextlib.contextmanager
def _theirs(folder: Path, mode: str) -> Iterator[tuple[int, int]]:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    uvicorn = str(peers.peer("web", *PEER) / "uvicorn")
    command = [uvicorn, "web_fastapi:app", "--port", str(port), "--no-access-log"]
    command += ["--log-level", "warning", "--app-dir", str(peers.SCRIPTS)]
    with _started(command, folder, {"MODE": mode, "DB": str(folder / "ev.sqlite")}) as child:
        _until(lambda: _listens(port), child)
        yield port, child.pid


@contextlib.contextmanager
def _started(command: list[str], folder: Path, more: dict[str, str]) -> Iterator[subprocess.Popen]:
    with (folder / "said").open("w") as said:
        child = subprocess.Popen(
            command, env=peers.env() | more, cwd=folder, stdout=said, stderr=said
        )
    try:
        yield child
    finally:
        child.send_signal(signal.SIGTERM)
        child.wait(60)


def _until(ready: object, child: subprocess.Popen) -> re.Match[str]:
    end = time.monotonic() + 60
    while time.monotonic() < end and child.poll() is None:
        if found := ready():  # type: ignore[operator]
            return found
        time.sleep(0.05)
    raise peers.Failed("a receiver did not start")


def _listens(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
        return True
    return False


# ---- requests ------------------------------------------------------------------------------------
def _request(source_id: str, number: int, key: str = KEY) -> bytes:
    """One signed request of 600 bytes, all of them different."""
    told = {
        "source_id": source_id,
        "trigger": "etag-change",
        "event_type": "update",
        "sent_at": dt.datetime.now(dt.UTC).isoformat(),
        "metadata": {
            "n": number,
            "sources": [
                {
                    "uri": f"d/{i}",
                    "sha256": hashlib.sha256(b"%d" % i).hexdigest(),
                    "bytes": 1000 + i,
                }
                for i in range(3)
            ],
            "note": "",
        },
        "integrity": {"version": "v1"},
    }
    told["metadata"]["note"] = "n" * (600 - len(json.dumps(told, separators=(",", ":"))))  # type: ignore[index]
    body = json.dumps(told, separators=(",", ":")).encode()
    signed = hmac.new(key.encode(), body, hashlib.sha256).hexdigest()
    return (
        f"POST /hooks/{source_id} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
        f"X-KFM-Signature: sha256={signed}\r\nContent-Length: {len(body)}\r\n\r\n"
    ).encode() + body


class _Client(asyncio.Protocol):
    """One connection that sends the next request when the last was answered."""

    def __init__(self, waiting: list[bytes], counts: dict[str, int], ended: asyncio.Event) -> None:
        self.waiting, self.counts, self.ended = waiting, counts, ended

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport
        self.next()

    def next(self) -> None:
        if self.waiting:
            self.transport.write(self.waiting.pop())  # type: ignore[attr-defined]
        else:
            self.transport.close()

    def data_received(self, data: bytes) -> None:
        if data.startswith(b"HTTP/1.1 "):
            status = data[9:12].decode()
            self.counts[status] = self.counts.get(status, 0) + 1
            if sum(self.counts.values()) == EVENTS:
                self.ended.set()
            if b"}" in data:
                self.next()
        elif b"}" in data:  # the body came by itself
            self.next()

    def connection_lost(self, error: Exception | None) -> None:
        if error is not None:
            self.ended.set()


async def _load(port: int, requests: list[bytes]) -> dict[str, int]:
    counts: dict[str, int] = {}
    ended, loop = asyncio.Event(), asyncio.get_running_loop()
    for _ in range(CONNECTIONS):
        await loop.create_connection(lambda: _Client(requests, counts, ended), "127.0.0.1", port)
    await ended.wait()
    return counts


def _measure(port: int, pid: int) -> Took:
    """Seconds until all are answered, and how long the receiver worked."""
    requests = [_request("s", n) for n in range(EVENTS)]
    before, cpu = time.perf_counter(), peers._processor_seconds(pid)
    counts = asyncio.run(_load(port, requests))
    took = Took(time.perf_counter() - before, peers._processor_seconds(pid) - cpu)
    if counts != {"202": EVENTS}:
        raise peers.Failed(f"not all were accepted: {counts}")
    return took


def rate(repeat: int) -> list[Result]:
    found: dict[str, list[Took]] = {"ours": [], "commit": [], "group": []}
    for number in range(repeat + 1):
        for side, times in found.items():
            with peers.fresh("webhooks") as folder:
                started = _ours(folder) if side == "ours" else _theirs(folder, side)
                with started as (port, pid):
                    took = _measure(port, pid)
            if number:  # the first round warms up
                times.append(took)
    name = f"{peers.version('web', 'fastapi')} on uvicorn"
    note = (
        f"{EVENTS:,} signed events of 600 bytes, {CONNECTIONS} connections, answered after commit"
    )
    more = {
        "unit": "s",
        "ours_name": "kfm webhook serve, replay check and job included",
        "note": note,
    }
    return [
        judge("webhook", found["commit"], found["ours"], 3, LOWER, peer_name=f"{name}, a commit each", **more),
        judge("webhook, grouped", found["group"], found["ours"], 1.5, LOWER, peer_name=f"{name}, grouped", **more),
    ]  # fmt: skip


# ---- time ----------------------------------------------------------------------------------------
def guessed(repeat: int) -> list[Result]:
    """How often one is right who takes the slower of two refusals for the source that is there."""
    shares = []
    for _ in range(repeat):
        with peers.fresh("webhooks") as folder, _ours(folder) as (port, _):
            shares.append(_share(_times(port)))
    return [
        judge(
            "webhook source guessed",
            [50.0] * repeat,
            shares,
            0.97,
            LOWER,
            unit="%",
            peer_name="a coin",
            ours_name="by the time of a refusal",
            note=f"{TRIES:,} requests in turn to a source that is there and to one that is not, forged alike",
        )
    ]


def _times(port: int) -> tuple[list[float], list[float]]:
    known, unknown = (_request(name, 0, key="x" * 32) for name in ("s", "u"))
    found: tuple[list[float], list[float]] = ([], [])
    with socket.create_connection(("127.0.0.1", port)) as there:
        there.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for number in range(TRIES):
            which = number % 2
            before = time.perf_counter()
            there.sendall((known, unknown)[which])
            answer = b""
            while not answer.endswith(b"}"):
                answer += there.recv(4096)
            found[which].append(time.perf_counter() - before)
            assert answer.startswith(b"HTTP/1.1 403")
    return found


def _share(times: tuple[list[float], list[float]]) -> float:
    """The share of pairs in which the better of both guesses is right, in percent."""
    ranked = sorted((t, which) for which in (0, 1) for t in times[which])
    seen, slower = 0, 0
    for _, which in ranked:
        if which:
            seen += 1
        else:
            slower += seen
    share = slower / (len(times[0]) * len(times[1]))
    return 100 * max(share, 1 - share)
