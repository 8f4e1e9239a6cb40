"""Throw-away environments for the peers, and child processes that both sides start the same way."""

import contextlib
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.measure import Took, spent_by_children

__all__ = [
    "HERE",
    "PEERS",
    "SCRIPTS",
    "Failed",
    "PeerMissing",
    "Ran",
    "env",
    "fresh",
    "kfm",
    "machine",
    "masked",
    "peer",
    "run",
    "run_json",
    "run_watched",
    "work",
]

HERE = Path(__file__).parent
PEERS = HERE / ".peers"  # git-ignored; remove it to start over
SCRIPTS = HERE / "scripts"


class Failed(Exception):
    """A child ended with an error; the message is its last words."""


class PeerMissing(Exception):
    """A peer could not be installed; the message says why."""


class Ran(NamedTuple):
    seconds: Took
    stdout: str
    peak_bytes: int = 0  # only from run_watched, as is the next
    worked: tuple[tuple[float, float], ...] = ()  # (time, processor seconds until then)


def work() -> Path:
    """Where measured files lie: on the disk of the repository, so that every side writes to the
    same one.
    """
    folder = PEERS / "work"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@contextlib.contextmanager
def fresh(name: str) -> Iterator[Path]:
    """An empty folder, gone afterwards."""
    folder = work() / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def env() -> dict[str, str]:
    """The environment of every measured child: a normal user's, whatever the caller's shell has
    set.

    PYTHONDONTWRITEBYTECODE above all would make each start compile everything again, on both sides.
    """
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "KFM_", "DVC_"))}
    home = work() / "home"
    home.mkdir(exist_ok=True)
    site = work() / "dvc-site"
    return kept | {
        "HOME": str(home),
        "DVC_NO_ANALYTICS": "1",
        "DVC_SITE_CACHE_DIR": str(site),
        "DO_NOT_TRACK": "1",
        "LC_ALL": "C.UTF-8",
    }


@cache
def peer(name: str, *packages: str) -> Path:
    """The `bin` folder of the environment `name` with `packages` in it, made on first use."""
    folder = PEERS / name
    stamp = folder / "installed.txt"
    wanted = " ".join(packages)
    if not (stamp.is_file() and stamp.read_text() == wanted):
        print(f"… installing {wanted} into benchmarks/.peers/{name}", file=sys.stderr, flush=True)
        shutil.rmtree(folder, ignore_errors=True)
        for command in (
            [sys.executable, "-m", "venv", str(folder)],
            [
                str(folder / "bin" / "python"),
                "-m",
                "pip",
                "install",
                "--quiet",
                "--disable-pip-version-check",
                *packages,
            ],
        ):
            made = subprocess.run(command, capture_output=True, text=True, check=False)
            if made.returncode:
                raise PeerMissing(
                    f"{wanted} could not be installed ({_last_words(made.stderr or made.stdout)})"
                )
        stamp.write_text(wanted)
    return folder / "bin"


@cache
def version(name: str, package: str) -> str:
    """`package` and its version in the environment `name`."""
    code = f"from importlib.metadata import version; print(version({package!r}))"
    return f"{package} {run([str(PEERS / name / 'bin' / 'python'), '-c', code]).stdout.strip()}"


def kfm() -> str:
    """The `kfm` command beside the interpreter that runs this."""
    return str(Path(sys.executable).parent / "kfm")


def machine() -> str:
    return f"{os.cpu_count()} cores, Python {platform.python_version()}"


def masked(text: str) -> str:
    """`text` without addresses and folders of this machine: reasons are kept in results.json."""
    text = re.sub(r"\w+://\S+|host='[^']*'", "…", text)
    return re.sub(r"(?<![\w.…])/(?:[^/\s'\":]+/)+", "…/", text)[:300]


def _last_words(text: str) -> str:
    lines = [line for line in text.strip().splitlines() if line.strip()]
    return masked(lines[-1] if lines else "no output")


def run(command: Sequence[str], *, cwd: Path | None = None, check: bool = True) -> Ran:
    """A whole process from start to end."""
    before, cpu = time.perf_counter(), spent_by_children()
    ended = subprocess.run(
        command,
        env=env(),
        cwd=cwd or work(),
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        check=False,
    )
    took = Took(time.perf_counter() - before, spent_by_children() - cpu)
    if check and ended.returncode:
        raise Failed(
            f"{Path(command[0]).name} {' '.join(command[1:3])} exited {ended.returncode}: {_last_words(ended.stderr or ended.stdout)}"
        )
    return Ran(took, ended.stdout)


def run_json(command: Sequence[str], *, cwd: Path | None = None) -> dict[str, Any]:
    """What a script printed as its last line."""
    found: dict[str, Any] = json.loads(run(command, cwd=cwd).stdout.strip().splitlines()[-1])
    return found


# ---- memory --------------------------------------------------------------------------------------
def run_watched(command: Sequence[str], *, cwd: Path | None = None, every: float = 0.01) -> Ran:
    """Like `run`, and the peak memory of the process and all it started, and how its processor time
    grew.

    Each process's own high-water mark counts in full, also when the marks were not reached at the
    same moment.
    """
    marks: dict[int, int] = {}
    worked: list[tuple[float, float]] = []
    before, cpu = time.perf_counter(), spent_by_children()
    with subprocess.Popen(
        command,
        env=env(),
        cwd=cwd or work(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as child:
        while child.poll() is None:
            tree = _tree(child.pid)
            worked.append((time.time(), sum(map(_processor_seconds, tree))))
            for pid in tree:
                mark = high_water(pid)
                if mark:
                    # the latest: a mark from before exec belongs to the parent's image
                    marks[pid] = mark
            time.sleep(every)
        took = Took(time.perf_counter() - before, spent_by_children() - cpu)
        out = child.stdout.read() if child.stdout else ""
    if child.returncode:
        raise Failed(f"{Path(command[0]).name} exited {child.returncode}: {_last_words(out)}")
    return Ran(took, out, sum(marks.values()), tuple(worked))


def high_water(pid: int | str = "self") -> int:
    """VmHWM of a process in bytes, 0 when it is gone."""
    try:
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    return 0


def _processor_seconds(pid: int) -> float:
    """User and system time of a process and of those it waited for, 0 when it is gone."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")


def _tree(pid: int) -> list[int]:
    found, waiting = [], [pid]
    while waiting:
        at = waiting.pop()
        found.append(at)
        with contextlib.suppress(OSError, ValueError):
            for task in Path(f"/proc/{at}/task").iterdir():
                waiting += map(int, (task / "children").read_text().split())
    return found
