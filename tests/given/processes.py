"""Commands in processes of their own that are held, killed or die at a chosen call."""

import multiprocessing
import os
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from kfm.channel.generations import Channel
from kfm.samples.upstream import SampleUpstream
from kfm.zones.local import LocalZone
from tests.given.verbs import QUAKES

HELD = """
import os, time

def transform(ctx, rows):
    for number, row in enumerate(rows):
        while number == 0 and os.path.exists({hold!r}):
            time.sleep(0.02)
        yield row
"""


class Started:
    """A command in a process of its own, its output in files."""

    def __init__(self, ws: Path, sample: SampleUpstream, *args: str) -> None:
        env = {**os.environ, "KFM_SAMPLE_UPSTREAM": sample.url, "KFM_FETCH_ATTEMPTS": "2"}
        command = [sys.executable, "-m", "kfm", "-w", str(ws), *args]
        self._files = [ws.parent / f"{id(self)}.{name}" for name in ("out", "err")]
        with self._files[0].open("w") as out, self._files[1].open("w") as err:
            listens = lambda: signal.signal(signal.SIGINT, signal.SIG_DFL)  # noqa: E731  # a suite in the background is deaf to it
            self.process = subprocess.Popen(
                command, env=env, stdout=out, stderr=err, start_new_session=True, preexec_fn=listens
            )
        self.pid = self.process.pid
        _started.append(self)

    def wait(self) -> int:
        return self.process.wait(300)

    def kill(self) -> None:
        os.killpg(self.pid, signal.SIGKILL)
        self.process.wait()

    @property
    def out(self) -> str:
        return self._files[0].read_text()

    @property
    def err(self) -> str:
        return self._files[1].read_text()


start = Started


_started: list[Started] = []


def end_what_was_started() -> None:
    while _started:
        process = _started.pop()
        if process.process.poll() is None:
            process.kill()


def held_connector(ws: Path) -> Path:
    """Code that goes on with its first row when the file that is returned is gone."""
    folder, hold = ws / "scripts" / "connectors" / QUAKES, ws.parent / "hold"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "connector.py").write_text(HELD.format(hold=str(hold)))
    hold.touch()
    return hold


def transforming(ws: Path) -> bool:
    db = (
        sqlite3.connect(ws / "ledger" / "idempotency.sqlite")
        if (ws / "ledger" / "idempotency.sqlite").exists()
        else None
    )
    try:
        return bool(
            db
            and db.execute(
                "select 1 from journal where step_id = 'check' and status = 'IN_PROGRESS'"
            ).fetchone()
        )
    except sqlite3.OperationalError:
        return False
    finally:
        if db:
            db.close()


def apart() -> multiprocessing.context.ForkServerContext:
    """For functions of tests in processes that share nothing with this one: they are forked from one
    that has loaded what such tests need and has opened nothing.
    """
    context = multiprocessing.get_context("forkserver")
    shared = ("ledger", "processes", "services", "sweeping", "verbs")
    context.set_forkserver_preload(
        ["hypothesis", "kfm.extras.postgres.store", *(f"tests.given.{name}" for name in shared)]
    )
    return context


class Killed(BaseException):
    """What nothing in the product catches."""


def die_at(name: str, number: int, patch: pytest.MonkeyPatch) -> None:
    """End the process, as far as one can from inside, right after ★ or before the n-th call of one
    of the zone's own.
    """
    if name == "star":
        append = Channel.append
        patch.setattr(
            Channel, "append", lambda *args: append(*args) and (_ for _ in ()).throw(Killed)
        )
        return
    real, calls = getattr(LocalZone, name), [0]

    def call(self: LocalZone, *args: Any) -> Any:
        calls[0] += 1
        if calls[0] == number:
            raise Killed
        return real(self, *args)

    patch.setattr(LocalZone, name, call)
