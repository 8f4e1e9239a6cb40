"""Real workers, and types of jobs that tests control, offered to them as an installed package would."""

import contextlib
import io
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import patch

from kfm.cli import main
from kfm.model.clock import SystemClock
from kfm.store.sqlite import SqliteStore

MODULE = """
import dataclasses, os, signal, time
import msgspec
from kfm.model.errors import Denied
from kfm.jobs.base import JobContext, JobResult, JobType


class Parameters(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    seconds: float = 0.0
    megabytes: int = 0
    end: str = ""  # error, deny, kill
    mark: str = ""
    hold: bool = False


def run(ctx: JobContext) -> JobResult:
    p = ctx.parameters
    with open(os.environ["KFM_TEST_MARKS"], "a") as marks:
        marks.write(f"began {p.mark} {os.getpid()}\\n")
    kept = bytearray(p.megabytes << 20)
    if p.end == "deaf":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    time.sleep(p.seconds)
    go = [os.environ["KFM_TEST_MARKS"] + end for end in (".go", f".go-{os.getpid()}")]
    while p.hold and not any(map(os.path.exists, go)):
        time.sleep(0.02)
    if p.end == "odd":
        raise ValueError("\\udcff\\0" + "y" * (20 << 20))
    if p.end == "error":
        raise ValueError("as asked")
    if p.end == "deny":
        raise Denied("the policy says no", expected="a yes", remedy="ask")
    if p.end == "daemon" and os.fork() == 0:
        os.setsid()
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # whoever reads what the worker says need not wait for it
        os.dup2(1, 2)
        with open(os.environ["KFM_TEST_MARKS"], "a") as marks:
            marks.write(f"daemon {p.mark} {os.getpid()}\\n")
        time.sleep(90)
        os._exit(0)
    if p.end == "kill":
        os.kill(os.getpid(), 9)
    with open(os.environ["KFM_TEST_MARKS"], "a") as marks:
        marks.write(f"ended {p.mark} {os.getpid()}\\n")
    return JobResult(reason=str(len(kept)))


JOB = JobType(
    name="test.nap", purpose="sleep", triggers="tests", inputs="none", outputs="none", parameters=Parameters, idempotency="nothing is written",
    rules=("none",), zone_in="Work", zone_out="Work", run=run, timeout_s=int(os.environ.get("KFM_TEST_TIMEOUT", "600")),
    memory_mb=int(os.environ.get("KFM_TEST_MEMORY", "1024")), max_attempts=1,
)
CALM = dataclasses.replace(JOB, name="test.calm", timeout_s=600)
"""


class Workers:
    """Real worker processes of one workspace, and its store."""

    def __init__(self, folder: Path, ws: Path) -> None:
        self.ws, self._folder = ws, folder
        self._package = package = folder / "package"
        (package / "kfmnap-1.dist-info").mkdir(parents=True)
        (package / "kfmnap-1.dist-info" / "METADATA").write_text(
            "Metadata-Version: 2.1\nName: kfmnap\nVersion: 1\n"
        )
        (package / "kfmnap-1.dist-info" / "entry_points.txt").write_text(
            "[kfm.jobs]\ntest.nap = kfmnap\ntest.calm = kfmnap:CALM\n"
        )
        (package / "kfmnap.py").write_text(MODULE)
        self.marks = folder / "marks"
        self.marks.touch()
        self.env = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(
                filter(None, [str(package), os.environ.get("PYTHONPATH")])
            ),
            "KFM_TEST_MARKS": str(self.marks),
        }
        self.store = SqliteStore(ws / "ledger" / "idempotency.sqlite", SystemClock())
        self.started: list[subprocess.Popen[bytes]] = []

    def kfm(self, *args: str, **env: str) -> "subprocess.CompletedProcess[str]":
        """A command in this process, which is given their package for it; what it starts are
        processes all the same.
        """
        out, err = io.StringIO(), io.StringIO()
        with (
            patch.object(sys, "path", [str(self._package), *sys.path]),
            patch.dict(os.environ, {**self.env, **env}),
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(err),
        ):
            code = main(["-w", str(self.ws), *args])
        sys.modules.pop("kfmnap", None)  # the next workspace has its own
        return subprocess.CompletedProcess(args, code, out.getvalue(), err.getvalue())

    def start(self, *args: str, **env: str) -> "subprocess.Popen[bytes]":
        command = [sys.executable, "-m", "workers", "run", "-w", str(self.ws), *args]
        worker = subprocess.Popen(command, env={**self.env, **env}, stderr=subprocess.DEVNULL)
        self.started.append(worker)
        return worker

    def put(self, mark: str, **parameters: Any) -> str:
        """A job's id."""
        sets = [
            f
            for name, value in {"mark": mark, **parameters}.items()
            if name not in ("pool", "priority")
            for f in ("--set", f"{name}={value}")
        ]
        more = [
            f
            for name in ("pool", "priority")
            if name in parameters
            for f in (f"--{name}", str(parameters[name]))
        ]
        said = self.kfm("jobs", "put", "test.nap", *sets, *more)
        assert said.returncode == 0, said.stderr
        return said.stdout.strip()

    def lines(self, word: str) -> list[str]:
        return [
            line.split()[1] for line in self.marks.read_text().splitlines() if line.startswith(word)
        ]

    def pids(self) -> list[int]:
        return [int(line.split()[2]) for line in self.marks.read_text().splitlines()]

    def job(self, job_id: str) -> Any:
        return self.store.read(lambda tx: tx.jobs.of(job_id))

    def go(self, pid: int | None = None) -> None:
        """Let the jobs that hold go on, or the one of this process."""
        Path(f"{self.marks}.go" if pid is None else f"{self.marks}.go-{pid}").touch()

    def until(self, true: Callable[[], Any], what: str = "") -> Any:
        end = time.monotonic() + 300
        while time.monotonic() < end:
            if found := true():
                return found
            time.sleep(0.05)
        raise AssertionError(f"it never came: {what}; marks: {self.marks.read_text()}")

    def close(self) -> None:
        for worker in self.started:
            if worker.poll() is None:
                worker.send_signal(signal.SIGCONT)
                worker.kill()
            worker.wait()
        self.store.abandon()
