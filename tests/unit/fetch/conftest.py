"""Servers on loopback that say exactly what a test tells them to, broken framing included."""

import socket
import struct
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from tests.given.verbs import until

from kfm.fetch.base import FetchRequest
from kfm.fetch.http import HttpFetcher
from kfm.model import masking


@dataclass(frozen=True)
class Asked:
    """One request as it arrived."""

    line: str
    headers: dict[str, str]
    body: bytes = b""


@dataclass
class Upstream:
    """Answers connection after connection from a script; the last answer is repeated."""

    script: list = field(default_factory=list)
    asked: list[Asked] = field(default_factory=list)
    wrap: Callable | None = None  # turns the accepted socket into a TLS one

    def __post_init__(self) -> None:
        self.stop = threading.Event()
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.speaking: list[threading.Thread] = []
        self.port = self.listener.getsockname()[1]
        self.thread = threading.Thread(target=self._serve, daemon=True)
        self.thread.start()

    def answers(self, *answers) -> None:
        self.script = list(answers)

    def url(self, path: str = "/data.csv", host: str = "127.0.0.1") -> str:
        return f"http://{host}:{self.port}{path}"

    def close(self) -> None:
        if self.stop.is_set():
            return
        self.stop.set()
        socket.create_connection(("127.0.0.1", self.port)).close()  # wakes the accept
        self.thread.join(5)
        self.listener.close()
        for thread in self.speaking:
            thread.join(5)

    def _serve(self) -> None:
        while True:
            conn, _ = self.listener.accept()
            if self.stop.is_set():
                conn.close()
                return
            self.speaking.append(threading.Thread(target=self._speak, args=(conn,), daemon=True))
            self.speaking[-1].start()

    def _speak(self, conn) -> None:
        conn.settimeout(60)
        try:
            with self.wrap(conn) if self.wrap else conn as ready:
                self._answer(ready)
        except OSError:  # the other side hung up, which many tests are about
            pass
        finally:
            conn.close()

    def _answer(self, conn) -> None:
        head = b""
        while b"\r\n\r\n" not in head:
            more = conn.recv(65536)
            if not more:
                return
            head += more
        head, _, body = head.partition(b"\r\n\r\n")
        line, *fields = head.decode("latin-1").split("\r\n")
        headers = {k.lower(): v for k, v in (f.split(": ", 1) for f in fields)}
        while len(body) < int(headers.get("content-length", 0)):
            body += conn.recv(65536)
        self.asked.append(Asked(line, headers, body))
        answer = self.script.pop(0) if len(self.script) > 1 else self.script[0]
        if callable(answer):
            answer(conn)
        else:
            conn.sendall(answer)


def is_read(conn: socket.socket) -> bool:
    """Whether the other end of a connection on this machine has taken all that was sent."""
    ours, theirs = (
        f"{struct.unpack('=I', socket.inet_aton(a))[0]:08X}:{p:04X}"
        for a, p in (conn.getsockname(), conn.getpeername())
    )
    rows = [line.split()[1:5] for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    waiting = {
        (local, remote): [int(n, 16) for n in queues.split(":")]
        for local, remote, _, queues in rows
    }
    return (
        waiting.get((ours, theirs), [0, 0])[0] == 0 and waiting.get((theirs, ours), [0, 0])[1] == 0
    )


class Say:
    """Spells answers."""

    @staticmethod
    def answer(
        status: int = 200, body: bytes = b"", length: int | None = None, **headers: str
    ) -> bytes:
        size = len(body) if length is None else length
        lines = [f"HTTP/1.1 {status} x", f"Content-Length: {size}"]
        lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
        return "\r\n".join([*lines, "", ""]).encode("latin-1") + body

    @staticmethod
    def raw(head: str, body: bytes = b"") -> bytes:
        return head.replace("\n", "\r\n").encode("latin-1") + b"\r\n\r\n" + body

    @staticmethod
    def chunks(*pieces: bytes, end: bytes = b"0\r\n\r\n", head: str = "") -> bytes:
        framed = b"".join(f"{len(p):x}\r\n".encode() + p + b"\r\n" for p in pieces)
        return f"HTTP/1.1 200 x\r\nTransfer-Encoding: chunked\r\n{head}\r\n".encode() + framed + end

    @staticmethod
    def then_reset(answer: bytes) -> Callable:
        def speak(conn) -> None:
            conn.sendall(answer)
            until(lambda: is_read(conn))  # a reset overtakes bytes that were not read yet
            conn.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            conn.close()

        return speak

    @staticmethod
    def dripping(
        start: bytes, stop: threading.Event, drop: bytes = b"x", every: float = 0.03
    ) -> Callable:
        def speak(conn) -> None:
            conn.sendall(start)
            while not stop.wait(every):
                conn.sendall(drop)

        return speak


@pytest.fixture(autouse=True)
def no_secrets_yet(monkeypatch):
    """Each test begins as a process that has resolved nothing."""
    monkeypatch.setattr(masking, "_known", set())
    monkeypatch.setattr(masking, "_pattern", None)


@pytest.fixture
def say() -> type[Say]:
    return Say


@pytest.fixture
def upstream():
    server = Upstream()
    yield server
    server.close()


@pytest.fixture
def tls_upstream():
    servers = []

    def start(wrap: Callable) -> Upstream:
        servers.append(Upstream(wrap=wrap))
        return servers[-1]

    yield start
    for server in servers:
        server.close()


@pytest.fixture
def slept() -> list[float]:
    return []


@pytest.fixture
def fetcher(slept: list[float]) -> Callable[..., HttpFetcher]:
    """Makes a fetcher for loopback that never really sleeps and whose jitter is always the full
    wait.
    """

    def make(**settings) -> HttpFetcher:
        return HttpFetcher(
            **{
                "allow_loopback": True,
                "sleep": slept.append,
                "jitter": lambda: 1.0,
                "read_timeout": 60.0,
                **settings,
            }
        )

    return make


@pytest.fixture
def request_for(upstream: Upstream) -> Callable[..., FetchRequest]:
    def make(path: str = "/data.csv", **changes) -> FetchRequest:
        return FetchRequest(**{"url": upstream.url(path), "hosts": ("127.0.0.1",), **changes})

    return make


@pytest.fixture
def into(tmp_path: Path) -> Path:
    folder = tmp_path / "into"
    folder.mkdir()
    return folder / "body"


@pytest.fixture
def left_over(into: Path) -> Callable[[], list[str]]:
    """Names of all files in the folder of `into`."""
    return lambda: sorted(path.name for path in into.parent.iterdir())
