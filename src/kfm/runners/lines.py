"""The command lines that runners call: the same few entry points everywhere, and how one looks when
it is found again in a rendered file.
"""

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from kfm.model import INGEST

__all__ = ["DUE", "REST", "STAY", "TICK", "UP", "Line", "Values", "asked", "joined", "queued"]

TICK = ("kfm", "scheduler", "--once")  # put what is due
DUE = ("kfm", "runner", "due")  # put it, and print the datasets that have work
REST = ("kfm", "worker", "run", "--until-idle", "--concurrency", "4")  # work what waits, then end
STAY = ("python", "-m", "workers", "run", "--concurrency=4", "--grace", "9m")  # until stopped
# scheduler and worker, until stopped; where nobody sits nothing is shown
UP = ("kfm", "up", "--concurrency", "4", "--no-serve")
_JOB = ("python", "-m", "workers", "run-job", INGEST, "--dataset")


def queued(dataset: str) -> tuple[str, ...]:
    """Work what waits of one dataset; `dataset` is how a runner spells its parameter."""
    return (*_JOB, f"kfm://dataset/{dataset}", "--queued")


def asked(dataset: str, window: str = "") -> tuple[str, ...]:
    """Ask for one dataset now, and work it."""
    return (*_JOB, f"kfm://dataset/{dataset}", *((f"--window={window}",) if window else ()))


def joined(*commands: Sequence[str]) -> tuple[str, ...]:
    """Several commands as one: each starts when the one before it succeeded."""
    *before, last = (shlex.join(words) for words in commands)
    return ("/bin/sh", "-c", " && ".join([*before, f"exec {last}"]))


class Values(msgspec.Struct, frozen=True, kw_only=True):
    """What takes the place of a runner's own parameters."""

    dataset: str
    window: str = ""
    output: Path  # a file that steps write results to


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """One command line of a rendered file, parameters filled in."""

    file: str
    name: str
    words: tuple[str, ...]
    environment: Mapping[str, str] = {}
    finds: str = ""  # where the datasets that have work are to be read: `stdout`, or a file
    stays: bool = False  # it goes on until it is stopped
