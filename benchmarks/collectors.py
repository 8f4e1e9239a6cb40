"""A run whose collector of telemetry is slow, is down, or answers 500, and the same run without one."""

import contextlib
import functools
import http.server
import json
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

from benchmarks import peers
from benchmarks.generate import points
from benchmarks.measure import LOWER, Result, Took, interleave, judge
from benchmarks.serve import serve
from benchmarks.workspace import make_workspace

__all__ = ["KINDS", "LEAST", "collector"]

LEAST = 1 / 1.01  # at most one hundredth longer
TIMES = 10  # a hundredth is little beside what chance makes of one run
MEGABYTES = 10


def _answers(seconds: float) -> type[http.server.BaseHTTPRequestHandler]:
    ended = threading.Event()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            ended.wait(seconds)
            with contextlib.suppress(OSError):
                self.send_error(500)

        def log_message(self, *_: object) -> None: ...

    return Handler


@contextlib.contextmanager
def _serving(seconds: float) -> Iterator[str]:
    """Answers 500, `seconds` after it was asked."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _answers(seconds))
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()


@contextlib.contextmanager
def _down() -> Iterator[str]:
    """Nobody listens there."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    yield f"http://127.0.0.1:{port}"


KINDS: dict[str, Callable[[], contextlib.AbstractContextManager[str]]] = {
    "collector slow": lambda: _serving(20.0),
    "collector down": _down,
    "collector 500": lambda: _serving(0.0),
}


def _ran(space: Path) -> Took:
    ran = peers.run(
        [peers.kfm(), "run", "points", "--force", "--reason", "measured", "--json"], cwd=space
    )
    assert json.loads(ran.stdout)["runs"][0]["state"] in ("COMMITTED", "NOOP"), ran.stdout
    return ran.seconds


def collector(repeat: int) -> list[Result]:
    found = []
    with peers.fresh("collector") as folder:
        served = folder / "served"
        served.mkdir()
        rows = points(served / "points.geojson", MEGABYTES)
        with serve(served) as url:
            source = f"{url}/points.geojson"
            for row, kind in KINDS.items():
                own = folder / row.replace(" ", "-")  # as many runs lie in the one as in the other
                plain, told = (
                    make_workspace(own / "plain", source),
                    make_workspace(own / "told", source),
                )
                with kind() as address:
                    config = told / "kfm.yml"
                    config.write_text(f"{config.read_text()}telemetry: {{otlp: '{address}'}}\n")
                    sides = {
                        "peer": functools.partial(_ran, plain),
                        "ours": functools.partial(_ran, told),
                    }
                    took = interleave(sides, repeat * TIMES, warm=1)
                found.append(_judged(row, took["peer"], took["ours"], rows))
    return found


def _judged(row: str, peer: list[Took], ours: list[Took], rows: int) -> Result:
    return judge(
        row,
        peer,
        ours,
        LEAST,
        LOWER,
        unit="s",
        peer_name="kfm run without a collector",
        ours_name="kfm run, told to one",
        note=f"whole process, {rows:,} features read, checked and judged each time",
    )
