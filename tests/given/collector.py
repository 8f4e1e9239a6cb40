"""A real OpenTelemetry collector on loopback, and what it took."""

import contextlib
import json
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from tests.brought import go_tool
from tests.given.ports import free_port
from tests.given.verbs import had, until

KINDS = {
    "logs": ("resourceLogs", "scopeLogs", "logRecords"),
    "traces": ("resourceSpans", "scopeSpans", "spans"),
    "metrics": ("resourceMetrics", "scopeMetrics", "metrics"),
}


class Took:
    """Where a collector is, and what it has written down."""

    def __init__(self, url: str, file: Path) -> None:
        self.url, self._file = url, file

    def lines(self) -> list[dict[str, Any]]:
        """Every request it took, as it understood it."""
        text = self._file.read_text() if self._file.exists() else ""
        return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]

    def all(self, kind: str) -> list[dict[str, Any]]:
        """The log records, spans or metrics of all of them."""
        return every(kind, self.lines())


def every(kind: str, requests: list[dict[str, Any]]) -> list[dict[str, Any]]:
    outer, scopes, inner = KINDS[kind]
    found = (resource for request in requests for resource in request.get(outer, ()))
    return [each for resource in found for scope in resource[scopes] for each in scope[inner]]


def attributes(of: dict[str, Any]) -> dict[str, Any]:
    """Key -> value, without its type."""
    return {a["key"]: next(iter(a["value"].values())) for a in of.get("attributes", ())}


@contextlib.contextmanager
def collector(folder: Path) -> Iterator[Took]:
    """One that is ready; it ends with the block."""
    program = had(lambda: go_tool("collector"))
    for _ in range(5):  # another may take a port that is free
        port = free_port()
        with _started(program, folder, port) as process:
            until(lambda: _answers(port) or process.poll() is not None)
            if process.poll() is None:
                yield Took(f"http://127.0.0.1:{port}", folder / "took.jsonl")
                return
    raise AssertionError((folder / "collector.log").read_text())


@contextlib.contextmanager
def _started(program: Path, folder: Path, port: int) -> Iterator[subprocess.Popen[bytes]]:
    pipeline = {"receivers": ["otlp"], "exporters": ["file"]}
    config = {
        "receivers": {"otlp": {"protocols": {"http": {"endpoint": f"127.0.0.1:{port}"}}}},
        "exporters": {"file": {"path": str(folder / "took.jsonl"), "flush_interval": "50ms"}},
        "service": {
            "telemetry": {"metrics": {"level": "none"}},
            "pipelines": dict.fromkeys(KINDS, pipeline),
        },
    }
    (folder / "collector.yml").write_text(yaml.safe_dump(config))
    with (folder / "collector.log").open("wb") as log:
        command = [str(program), "--config", str(folder / "collector.yml")]
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def _answers(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
        return True
    return False
