"""Durable steps: one run beside DBOS, 64 runs at once beside a bare group-commit log."""

import sys

from benchmarks import peers
from benchmarks.measure import HIGHER, LOWER, Result, judge

__all__ = ["durable_step", "many_runs"]

STEPS, RUNS, STEPS_OF_ALL = 1000, 64, 4000


def _script(python: str, script: str, *numbers: int) -> dict[str, float]:
    with peers.fresh("steps") as folder:
        return peers.run_json(
            [python, str(peers.SCRIPTS / script), str(folder), *map(str, numbers)]
        )


def durable_step(repeat: int) -> list[Result]:
    python = str(peers.peer("dbos", "dbos") / "python")
    theirs: list[dict[str, float]] = []
    ours: list[dict[str, float]] = []
    for number in range(repeat + 1):
        pair = (
            _script(python, "dbos_steps.py", STEPS),
            _script(sys.executable, "kfm_steps.py", STEPS, 1),
        )
        if number:  # the first round warms up: compiled modules, page cache
            theirs.append(pair[0])
            ours.append(pair[1])
    name = peers.version("dbos", "dbos")
    speed = judge(
        "durable step",
        [t["per_s"] for t in theirs],
        [o["per_s"] for o in ours],
        5,
        HIGHER,
        stretch=8,
        unit="steps/s",
        peer_name=f"{name}, SQLite",
        ours_name="Journal on SqliteStore",
        note=f"{STEPS:,} no-op steps in one run, each durable before the next",
    )
    memory = judge(
        "durable step RSS",
        [t["rss_mb"] for t in theirs],
        [o["rss_mb"] for o in ours],
        1,
        LOWER,
        unit="MB",
        peer_name=f"{name}, SQLite",
        ours_name="Journal on SqliteStore",
        note="peak memory (VmHWM) of the processes of the row above",
    )
    return [speed, memory]


def many_runs(repeat: int) -> list[Result]:
    theirs, ours = [], []
    for number in range(repeat + 1):
        pair = [
            _script(sys.executable, s, STEPS_OF_ALL, RUNS)["per_s"]
            for s in ("group_log.py", "kfm_steps.py")
        ]
        if number:
            theirs.append(pair[0])
            ours.append(pair[1])
    return [
        judge(
            "64 runs",
            theirs,
            ours,
            0.3,
            HIGHER,
            unit="steps/s",
            peer_name="bare group-commit log",
            ours_name="64 Wals on one SqliteStore",
            note=f"{STEPS_OF_ALL:,} steps in all from {RUNS} threads, each with its own run and lease",
        )
    ]
