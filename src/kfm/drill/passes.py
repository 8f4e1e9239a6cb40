"""One pass: the user's command in a session of its own, ended by itself, by strace or by us;
nothing may survive it.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from kfm.drill import trace
from kfm.drill.trace import Point

__all__ = [
    "Commit",
    "Ended",
    "Noted",
    "ended_group",
    "environment",
    "kill_at_call",
    "kill_at_commit",
    "listed",
    "recorded",
    "run",
]

_PATIENCE_S = 600.0


@dataclass(frozen=True)
class Ended:
    """How a pass ended."""

    code: int
    said: str = ""  # what a person would be told when it failed

    @property
    def ok(self) -> bool:
        return self.code == 0


class Noted(msgspec.Struct, frozen=True):
    """One record of the journal, as far as a report names it."""

    seq: int
    step_id: str
    status: str


class Commit(msgspec.Struct, frozen=True):
    """One commit of a run, and what it added to the journal."""

    commit: int
    records: list[Noted]


def environment() -> dict[str, str]:
    """Nothing that would lead a copy to the user's workspace or upstream.

    And no compiled code is kept: its renames would count in the first pass and in no later one.
    """
    found = {k: v for k, v in os.environ.items() if not k.startswith("KFM_")}
    return found | {"PYTHONDONTWRITEBYTECODE": "1"}


def _start(command: Sequence[str], out: Path) -> "subprocess.Popen[bytes]":
    with out.open("wb") as stdout, out.with_suffix(".err").open("wb") as stderr:
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=stderr,
            env=environment(),
            start_new_session=True,
            cwd=out.parent,
        )


def ended_group(process: "subprocess.Popen[bytes]", copy: Path) -> str:
    """Kill the whole group and wait until nobody works in the copy any more; what had to be killed
    by hand.
    """
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    until = time.monotonic() + 5
    while (left := _inside(copy)) and time.monotonic() < until:
        time.sleep(0.005)
    for pid in left:  # they should have died with their parent
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)
    return f"{len(left)} processes outlived the run" if left else ""


def _inside(copy: Path) -> list[int]:
    """Processes whose working folder lies in the copy: connectors work in their scratch."""
    found = []
    for entry in os.scandir("/proc") if os.path.isdir("/proc/self") else ():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                if (
                    os.readlink(f"/proc/{entry.name}/cwd")
                    .removesuffix(" (deleted)")
                    .startswith(f"{copy}/")
                ):
                    found.append(int(entry.name))
    return found


def _window(copy: Path) -> list[str]:
    """The window that was captured, where there was one: another day has other addresses."""
    win = json.loads((copy / "replay.json").read_bytes())["window"]
    return ["--window", win] if win else []


def _command(copy: Path, dataset_id: str) -> list[str]:
    line = [
        sys.executable,
        "-m",
        "kfm",
        "-w",
        str(copy),
        "run",
        dataset_id,
        "--upstream",
        "replay",
        "--wait",
        "60s",
        "--json",
    ]
    return [*line, *_window(copy)]


def _victim(copy: Path, dataset_id: str, *more: str) -> list[str]:
    return [sys.executable, "-m", "kfm.drill.victim", str(copy), dataset_id, *_window(copy), *more]


def _aside(copy: Path, name: str) -> Path:
    """A file beside the copy, for what must not lie inside it."""
    return copy.with_name(f"{copy.name}.{name}")


def run(copy: Path, dataset_id: str) -> Ended:
    """The user's command, to its end."""
    return _to_end(_command(copy, dataset_id), copy)


def _to_end(command: Sequence[str], copy: Path) -> Ended:
    out = _aside(copy, "out")
    process = _start(command, out)
    try:
        code = process.wait(_PATIENCE_S)
    except subprocess.TimeoutExpired:
        ended_group(process, copy)
        return Ended(1, "it did not end")
    left = ended_group(process, copy)
    if left:
        return Ended(1, left)
    return Ended(code, "" if code == 0 else _words(out) or f"exit {code}")


def _words(out: Path) -> str:
    """Why it failed, in its own words."""
    try:
        found = json.loads(out.read_text())
        told = (
            [str(r["reason"]) for r in found["runs"] if r["exit_code"]]
            if "runs" in found
            else [str(found["happened"])]
        )
    except (ValueError, KeyError, TypeError):
        told = out.with_suffix(".err").read_text(errors="replace").strip().splitlines()[-1:]
    return "; ".join(told)


def listed(copy: Path, dataset_id: str) -> tuple[Ended, list[Commit]]:
    """An uninterrupted pass and its commits with their journal records."""
    file = _aside(copy, "commits")
    ended = _to_end(_victim(copy, dataset_id, "--list", str(file)), copy)
    return ended, (
        [msgspec.json.decode(line, type=Commit) for line in file.read_bytes().splitlines()]
        if file.is_file()
        else []
    )


def traced(copy: Path, dataset_id: str) -> tuple[Ended, Path]:
    """An uninterrupted pass under strace."""
    log = _aside(copy, "trace")
    return _to_end(trace.tracing(log, _victim(copy, dataset_id)), copy), log


def recorded(copy: Path, dataset_id: str) -> tuple[Ended, Path, Path]:
    """An uninterrupted pass with its trace, the store after each commit, and each file as it was
    synced.
    """
    log, folder = _aside(copy, "trace"), _aside(copy, "record")
    folder.mkdir()
    return (
        _to_end(trace.tracing(log, _victim(copy, dataset_id, "--record", str(folder))), copy),
        log,
        folder,
    )


def kill_at_commit(copy: Path, dataset_id: str, order: str) -> str:
    """Kill right `before:N` or `after:N`; empty when it was, else why not."""
    mark = _aside(copy, "mark")
    process = _start(
        _victim(copy, dataset_id, "--kill", order, "--mark", str(mark)), _aside(copy, "out")
    )
    try:
        code = process.wait(_PATIENCE_S)
    except subprocess.TimeoutExpired:
        code = 0
    left = ended_group(process, copy)
    if code != -signal.SIGKILL or not mark.exists():
        return f"it was not killed there: exit {code}"
    return left


def kill_at_call(copy: Path, dataset_id: str, point: Point) -> str:
    """Kill at a system call; empty when it was exactly that one, else why not."""
    if point.role == "run":
        return _kill_run(copy, dataset_id, point)
    return _kill_connector(copy, dataset_id, point)


def _kill_run(copy: Path, dataset_id: str, point: Point) -> str:
    log = _aside(copy, "kill")
    order = f"{point.call}:signal=SIGKILL:when={point.nth}"
    process = _start(
        trace.tracing(
            log, _victim(copy, dataset_id), follow=False, calls=[point.call], inject=order
        ),
        _aside(copy, "out"),
    )
    try:
        process.wait(_PATIENCE_S)
    except subprocess.TimeoutExpired:
        ended_group(process, copy)
        return "it did not end"
    left = ended_group(process, copy)
    calls = list(trace.parse(log))
    met = [c for c in calls if c.name == point.call]
    if not any(c.killed for c in calls) or len(met) != point.nth:
        return f"it was not killed there: {len(met)} calls of {point.call}"
    return _same_place(met[-1], point, copy) or left


def _same_place(call: trace.Call, point: Point, copy: Path) -> str:
    there = trace.masked(call.paths[-1], str(copy)) if call.paths else ""
    return (
        ""
        if there == point.path
        else f"its call {point.nth} of {point.call} was another this time: {there}"
    )


def _kill_connector(copy: Path, dataset_id: str, point: Point) -> str:
    """Stop the connector after its call, then kill everything: while it stands still its parent
    waits.
    """
    log, start = _aside(copy, "kill"), _aside(copy, "python")
    order = f"{point.call}:signal=SIGSTOP:when={point.nth}"
    calls = [point.call, "clone", "clone3", "fork", "vfork", "execve"]
    line = trace.tracing(
        log, [sys.executable], follow=point.role != "connector", calls=calls, inject=order
    )
    line.insert(1, "-D")  # the tracer stands aside: the connector must stay a child of its parent
    start.write_text("#!/bin/sh\nexec " + " ".join(f"'{word}'" for word in line) + ' "$@"\n')
    start.chmod(0o755)
    process = _start(_victim(copy, dataset_id, "--child", str(start)), _aside(copy, "out"))
    until = time.monotonic() + _PATIENCE_S
    while process.poll() is None and time.monotonic() < until:
        if log.is_file() and "stopped by SIGSTOP" in log.read_text("latin-1"):
            break
        time.sleep(0.005)
    stopped = (
        process.poll() is None
        and log.is_file()
        and "stopped by SIGSTOP" in log.read_text("latin-1")
    )
    left = ended_group(process, copy)
    if not stopped:
        return "it was not stopped there"
    return _role_met(log, point, copy) or left


def _role_met(log: Path, point: Point, copy: Path) -> str:
    calls = list(trace.parse(log))
    names = trace.roles(calls)
    # in this log the connector is the first process
    role = point.role.replace("connector", "run", 1)
    tid = next((t for t, name in names.items() if name == role), None)
    met = [c for c in calls if c.tid == tid and c.name == point.call]
    if len(met) < point.nth:
        return f"another thread got to its call {point.nth} of {point.call} first"
    return _same_place(met[point.nth - 1], point, copy)
