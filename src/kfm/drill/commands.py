"""Kill any command that changes something at system calls of its own; afterwards `resume` and the
next run must leave nothing to mend.
"""

import contextlib
import io
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from kfm.cli import main
from kfm.cli.init import make_workspace
from kfm.drill import trace
from kfm.drill.passes import ended_group, environment
from kfm.drill.trace import Point
from kfm.model import StepFailed, UsageError
from kfm.workspace.backup import UNFINISHED

__all__ = ["SCENES", "Killed", "Sweep", "drill_commands"]

ID = "levels"
_PATIENCE_S = 300.0
_ENTRY = """dataset_id: levels
title: Levels
licence: CC0-1.0
sensitivity: public
policy_label: public
source: {kind: http_file, format: csv, url: "file:///inbox/levels.csv", time_column: day}
schema: [{name: site, type: string, nullable: false}, {name: day, type: date, nullable: false}, {name: level, type: number}]
business_key: [site, day]
merge: upsert
max_quarantined: 0.5
cadence: daily
"""
_PLAN = """dataset: levels
since: 2026-01-01
until: 2026-01-04
partitioning: {window: 1d}
expected_runtime: 1m
pool: default
acceptance: {gates: all}
batch: 2
concurrency: 1
"""


class Stage:
    """A folder with a workspace `ws` of its own, made for one command, and room beside it."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.ws = folder, folder / "ws"

    def kfm(self, *args: str) -> tuple[int, str]:
        """A command in this process: (exit code, what it printed)."""
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = main(["-w", str(self.ws), *args])
        return code, out.getvalue() or err.getvalue()

    def done(self, *args: str, codes: tuple[int, ...] = (0,)) -> str:
        code, said = self.kfm(*args)
        if code not in codes:
            raise StepFailed(
                f"`kfm {' '.join(args)}` ended with {code}: {said[-300:]}",
                expected=f"exit {codes[0]}",
                remedy="Mend it first.",
            )
        return said

    def rows(self, days: int, bad: str = "") -> None:
        """What upstream has: so many days, two sites each."""
        lines = [f"S{s},2026-01-{d:02},{d}.{s}" for d in range(1, days + 1) for s in range(2)]
        (self.ws / "inbox").mkdir(exist_ok=True)
        (self.ws / "inbox" / "levels.csv").write_text(
            "\n".join(["site,day,level", *lines, *([bad] if bad else [])]) + "\n"
        )

    def entry(self, more: str = "") -> None:
        (self.ws / "data" / "registry" / f"{ID}.yml").write_text(_ENTRY + more)

    def two(self) -> None:
        """Two versions."""
        for days in (4, 6):
            self.rows(days)
            self.done("run", ID)

    def last_run(self) -> str:
        return str(json.loads(self.done("runs", ID, "--json"))["runs"][0]["run_id"])


@dataclass(frozen=True)
class Scene:
    """A command, and what is done before it; `{stage}` is the folder, `{run}` the newest run."""

    command: tuple[str, ...]
    before: Callable[[Stage], None] = Stage.two
    workspace: str = "{stage}/ws"  # what -w says


def _proposed(stage: Stage) -> None:
    stage.rows(4)
    stage.done("propose", ID, codes=(0, 7))


def _approvable(stage: Stage) -> None:
    stage.entry("approvals: 1\n")
    stage.done("keys", "new", "--name", "Drill", "--role", "approver")
    stage.rows(4)
    stage.done("run", ID, codes=(7,))


def _old(stage: Stage) -> None:
    stage.entry("retention: 0s\n")
    stage.two()
    stage.rows(8)
    stage.done("run", ID)


def _new_rows(stage: Stage) -> None:
    stage.two()
    stage.rows(8)


def _person(stage: Stage) -> None:
    stage.two()
    stage.done("keys", "new", "--name", "Drill", "--role", "approver")


def _withdrawn(stage: Stage) -> None:
    _person(stage)
    stage.done("withdraw", ID, "--yes", "--record", "site=S0", "--reason", "drill")


def _backed_up(stage: Stage) -> None:
    stage.two()
    stage.done("backup", "make", f"{stage.folder}/backup", "--with-keys")


def _set_aside(stage: Stage) -> None:
    stage.rows(4, bad="S9,2026-01-01,tall")
    stage.done("run", ID)


def _fixed(stage: Stage) -> None:
    _set_aside(stage)
    run = stage.last_run()
    stage.done("quarantine", "fix", run, "--row", "1", "--set", "level=3.5", "--reason", "drill")


def _history(stage: Stage) -> None:
    stage.rows(3)
    plan = stage.ws / "pipelines" / "orchestration" / "backfills" / "history.yml"
    plan.parent.mkdir(parents=True, exist_ok=True)
    plan.write_text(_PLAN)


SCENES = {
    "run": Scene(("run", ID), _new_rows),
    "promote": Scene(("promote", "1"), _proposed),
    "approve": Scene(("approve", "1", "--key", "Drill"), _approvable),
    "rollback": Scene(("rollback", ID, "--reason", "drill")),
    "withdraw": Scene(("withdraw", ID, "--yes", "--record", "site=S0", "--reason", "drill")),
    "withdraw-undo": Scene(
        ("withdraw", ID, "--undo", "3", "--key", "Drill", "--reason", "drill"), _withdrawn
    ),
    "withdraw-erase": Scene(
        ("withdraw", ID, "--yes", "--erase", "--authority", "drill", "--reason", "drill")
    ),
    "gc": Scene(("gc", ID, "--apply", "--grace", "0s"), _old),
    "reindex": Scene(("reindex",)),
    "backup": Scene(("backup", "make", "{stage}/backup")),
    "restore": Scene(("backup", "restore", "{stage}/backup"), _backed_up, "{stage}/restored"),
    "keys-rotate": Scene(("keys", "rotate")),
    "keys-revoke": Scene(("keys", "revoke", "Drill", "--reason", "drill"), _person),
    "quarantine-fix": Scene(
        ("quarantine", "fix", "{run}", "--row", "1", "--set", "level=3.5", "--reason", "drill"),
        _set_aside,
    ),
    "quarantine-replay": Scene(("quarantine", "replay", "{run}"), _fixed),
    "backfill": Scene(("backfill", "start", "history", "--inline"), _history),
}


@dataclass(frozen=True)
class Killed:
    """A command that was killed, and what was wrong afterwards; empty: nothing."""

    command: str
    point: str
    wrong: str


@dataclass
class Sweep:
    """What the killing of commands found."""

    listed: dict[str, int] = field(default_factory=dict)  # command -> calls it could be killed at
    killed: list[Killed] = field(default_factory=list)

    @property
    def failures(self) -> list[Killed]:
        return [k for k in self.killed if k.wrong]

    @property
    def ok(self) -> bool:
        return bool(self.killed) and not self.failures


def drill_commands(
    names: list[str],
    kills: int,
    seed: int = 1,
    told: Callable[[Killed], None] = lambda killed: None,
) -> Sweep:
    """Kill each command at `kills` random calls, each in a fresh copy of a workspace made for
    it.
    """
    unknown = [name for name in names if name not in SCENES]
    if unknown:
        raise UsageError(
            f"There is no command {unknown[0]} to drill.",
            expected=f"all, or one of {', '.join(SCENES)}",
            remedy="Name one of these.",
        )
    if why := trace.strace_works():
        raise StepFailed(
            f"No command can be killed at its calls: {why}.",
            expected="strace",
            remedy="Install it, or allow tracing.",
        )
    found = Sweep()
    for name in names:
        with tempfile.TemporaryDirectory(
            prefix=".kfm-drill-", dir=os.environ.get("TMPDIR")
        ) as temp:
            for killed in _scene(
                Path(temp).resolve(), name, kills, random.Random(f"{seed} {name}"), found
            ):
                found.killed.append(killed)
                told(killed)
    return found


def _scene(
    folder: Path, name: str, kills: int, chance: random.Random, found: Sweep
) -> Iterator[Killed]:
    scene, seed = SCENES[name], Stage(folder / "seed")
    seed.folder.mkdir()
    make_workspace(seed.ws, sample=False)
    seed.entry()
    scene.before(seed)
    words = {
        "stage": str(folder / "pass"),
        "run": seed.last_run() if any("{run}" in w for w in scene.command) else "",
    }
    line = [
        sys.executable,
        "-m",
        "kfm",
        "-w",
        scene.workspace.format(**words),
        *(w.format(**words) for w in scene.command),
    ]
    log = folder / "trace"
    stage = _fresh(seed, folder / "pass")
    code, said = _run(trace.tracing(log, line), stage)
    if code not in (0, 7):
        raise StepFailed(
            f"{name} does not end well by itself: exit {code}: {said}",
            expected="exit 0",
            remedy="Mend it first.",
        )
    points = [p for p in trace.list_points(log, stage.folder)[0] if p.role == "run"]
    found.listed[name] = len(points)
    for point in _chosen(points, kills, chance):
        stage = _fresh(seed, folder / "pass")
        yield Killed(
            name, str(point), _kill(line, stage, point, folder / "kill") or _wrong(stage, name)
        )


def _chosen(points: list[Point], kills: int, chance: random.Random) -> list[Point]:
    """Half of them where the store is not written: those are few, and each is another place in the
    protocol.
    """
    outside = [p for p in points if "/ledger/" not in p.path]
    first = chance.sample(outside, min(len(outside), (kills + 1) // 2))
    rest = [p for p in points if p not in set(first)]
    return first + chance.sample(rest, min(len(rest), kills - len(first)))


def _fresh(seed: Stage, folder: Path) -> Stage:
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(seed.folder, folder)
    return Stage(folder)


def _run(line: list[str], stage: Stage) -> tuple[int, str]:
    """(exit code, its last words) of a command in a session of its own, of which nothing is left
    afterwards.
    """
    out = stage.folder.with_name("out")
    with out.open("wb") as file:
        process = subprocess.Popen(
            line,
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=file,
            env=environment(),
            start_new_session=True,
            cwd=stage.folder.parent,
        )
    try:
        process.wait(_PATIENCE_S)
    except subprocess.TimeoutExpired:
        pass
    left = ended_group(process, stage.folder)
    return process.returncode, left or out.read_text(errors="replace")[-400:]


def _kill(line: list[str], stage: Stage, point: Point, log: Path) -> str:
    """Kill on entering the call; empty when it was, else why not."""
    inject = f"{point.call}:signal=SIGKILL:when={point.nth}"
    code, said = _run(
        trace.tracing(log, line, follow=False, calls=[point.call], inject=inject), stage
    )
    if code == -signal.SIGKILL or any(call.killed for call in trace.parse(log)):
        return ""
    return f"it was not killed there: exit {code}: {said}"


def _wrong(stage: Stage, name: str) -> str:
    """What is wrong after `resume` and the next run; before them, damage that nobody did."""
    code, said = stage.kfm("verify")
    if code and not (code == 3 and name == "withdraw-erase"):
        return f"right after the kill verify says {code}: {said[-400:]}"
    gone = (4,) if name == "withdraw-erase" else ()  # its source in inbox/ went with it
    for finisher, codes in ((("resume",), (0,)), (("run", ID), (0, 7, *gone))):
        code, said = stage.kfm(*finisher)
        if code not in codes:
            return f"`kfm {' '.join(finisher)}` ended with {code}: {said[-400:]}"
    code, said = stage.kfm("verify")
    if code:
        return f"afterwards verify says {code}: {said[-400:]}"
    code, said = stage.kfm("doctor", "--json")
    left = [f"{f['code']} {f['where']}: {f['what']}" for f in json.loads(said)["findings"]]
    if left:
        return f"afterwards doctor finds {left[0]}"
    return _again(stage, name)


def _again(stage: Stage, name: str) -> str:
    """A copy that was not finished is made by the same command; one that was is whole."""
    scene = SCENES[name]
    target = {"backup": stage.folder / "backup", "restore": stage.folder / "restored"}.get(name)
    if target is None:
        return ""
    where = Stage(stage.folder)
    where.ws = Path(scene.workspace.format(stage=stage.folder))
    if not target.exists() or (target / UNFINISHED).exists():
        code, said = where.kfm(*(w.format(stage=stage.folder) for w in scene.command))
        if code:
            return f"once more it ended with {code}: {said[-400:]}"
    code, said = (
        where.kfm("verify") if name == "restore" else where.kfm("backup", "check", str(target))
    )
    return f"what it made is not whole, {code}: {said[-400:]}" if code else ""
