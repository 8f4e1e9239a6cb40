"""Asking a server over kept connections: how long all requests took, each of them, and how long the
server worked for them. The same small client asks every side.
"""

import asyncio
import contextlib
import json
import math
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks import peers
from benchmarks.measure import Took

__all__ = [
    "Asked",
    "Server",
    "ask",
    "free_port",
    "get",
    "listens",
    "loaded",
    "p99",
    "started",
    "until",
]


class Server(NamedTuple):
    """One that listens on loopback."""

    port: int
    pids: tuple[int, ...]  # the processes that do its work, with all that they start

    def worked(self) -> float:
        """Processor seconds until now."""
        return sum(peers._processor_seconds(p) for pid in self.pids for p in peers._tree(pid))


class Asked(NamedTuple):
    """What some requests took."""

    took: Took
    each: list[float]  # seconds


def p99(each: Sequence[float]) -> float:
    return sorted(each)[math.ceil(0.99 * len(each)) - 1]


def get(path: str, accept: str = "application/json") -> bytes:
    return f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nAccept: {accept}\r\n\r\n".encode()


_LAST = b"\r\n0\r\n\r\n"  # ends an answer that comes in pieces


class _Client(asyncio.Protocol):
    """One connection that sends the next request when the last was answered whole."""

    def __init__(self, load: "_Load") -> None:
        self.load, self.left, self.head = load, 0, b""
        self.chunked, self.last = False, b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport
        self.next()

    def next(self) -> None:
        if self.load.waiting:
            self.sent = time.perf_counter()
            self.transport.write(self.load.waiting.pop())  # type: ignore[attr-defined]
        else:
            self.transport.close()

    def data_received(self, data: bytes) -> None:
        if self.left:
            self.left -= len(data)
        elif self.chunked:
            self.last = (self.last + data)[-len(_LAST) :]
        elif not self.begun(data):
            return
        if not self.left and (not self.chunked or self.last == _LAST):
            self.chunked = False
            self.load.answered(time.perf_counter() - self.sent)
            self.next()

    def begun(self, data: bytes) -> bool:
        """Whether the head of an answer is there."""
        self.head += data
        end = self.head.find(b"\r\n\r\n")
        if end < 0:
            return False
        head, body = self.head[:end].lower(), self.head[end + 4 :]
        at = head.find(b"\r\ncontent-length:")
        if not head.startswith(b"http/1.1 200"):
            self.load.fail(self.head[:300])
            return False
        if at >= 0:
            self.left = int(head[at + 17 :].split(b"\r\n", 1)[0]) - len(body)
        else:  # in pieces, until an empty one
            self.chunked, self.last = True, body[-len(_LAST) :]
        self.head = b""
        return True

    def connection_lost(self, error: Exception | None) -> None:
        if self.load.waiting:
            self.load.fail(f"a connection was lost: {error}".encode())


class _Load:
    """Requests that wait, and what became of the others."""

    def __init__(self, requests: Sequence[bytes]) -> None:
        self.waiting, self.all = list(requests), len(requests)
        self.each: list[float] = []
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def answered(self, seconds: float) -> None:
        self.each.append(seconds)
        if len(self.each) == self.all and not self.ended.done():
            self.ended.set_result(None)

    def fail(self, said: bytes) -> None:
        self.waiting.clear()
        if not self.ended.done():
            text = said.decode("latin-1")
            self.ended.set_exception(peers.Failed(f"a request was not answered: {text}"))


async def _asked(port: int, requests: Sequence[bytes], connections: int) -> list[float]:
    load, loop = _Load(requests), asyncio.get_running_loop()
    for _ in range(connections):
        await loop.create_connection(lambda: _Client(load), "127.0.0.1", port)
    await load.ended
    return load.each


def loaded(server: Server, requests: Sequence[bytes], connections: int) -> Asked:
    """Seconds until all are answered, of each of them, and of the processors of the server."""
    before, cpu = time.perf_counter(), server.worked()
    each = asyncio.run(_asked(server.port, requests, connections))
    return Asked(Took(time.perf_counter() - before, server.worked() - cpu), each)


def ask(server: Server, path: str, body: object = None) -> Any:
    """One answer, read as JSON."""
    import urllib.request

    asked = urllib.request.Request(
        f"http://127.0.0.1:{server.port}{path}",
        None if body is None else json.dumps(body).encode(),
        {"Accept": "application/json", "Content-Type": "application/json"},
    )
    with urllib.request.urlopen(asked, timeout=120) as answer:
        return json.loads(answer.read())


# ---- processes -----------------------------------------------------------------------------------
def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        return int(free.getsockname()[1])


def listens(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
        return True
    return False


@contextlib.contextmanager
def started(
    command: Sequence[str], said: Path, more: dict[str, str] | None = None, **how: Any
) -> Iterator["subprocess.Popen[bytes]"]:
    """A server, ended by its own id. What it says is kept in the file `said`."""
    with said.open("w") as into:
        child = subprocess.Popen(
            command, env=peers.env() | (more or {}), stdout=into, stderr=into, **how
        )
    try:
        yield child
    finally:
        child.send_signal(signal.SIGTERM)
        try:
            child.wait(60)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()


def until(ready: Callable[[], Any], child: "subprocess.Popen[bytes]", said: Path) -> Any:
    """What `ready` finds, once it finds something."""
    end = time.monotonic() + 120
    while time.monotonic() < end and child.poll() is None:
        with contextlib.suppress(OSError):
            if found := ready():
                return found
        time.sleep(0.05)
    raise peers.Failed(f"a server did not start: {said.read_text(errors='replace')[-300:]}")
