"""How far long work is, for whoever watches; where nobody does, a tick is one comparison."""

import os
import time
from collections.abc import Callable
from typing import Literal, NamedTuple

__all__ = ["Tick", "Unit", "tick", "watch", "watched"]

Unit = Literal["bytes", "rows", "files", "builds", "partitions"]
_EVERY = 0.2  # seconds


class Tick(NamedTuple):
    """How much of something is done."""

    stage: str
    done: int
    of: int | None  # None: nobody knows how much there is
    unit: Unit
    tells: bool  # of the data of a dataset, which may be private


_watcher: Callable[[Tick], None] | None = None
_next = 0.0


def watch(watcher: Callable[[Tick], None] | None) -> None:
    """Who hears ticks from now on; None: nobody. A forked process begins with nobody."""
    global _watcher
    _watcher = watcher


def watched() -> bool:
    """Whether anybody hears ticks, and more may be counted for their sake."""
    return _watcher is not None


def tick(
    stage: str, done: int, of: int | None = None, unit: Unit = "bytes", *, tells: bool = False
) -> None:
    """Say how far something is. Most of what is said is dropped: it comes for every piece."""
    global _next
    if _watcher is None:
        return
    now = time.monotonic()
    if now >= _next or done == of:
        _next = now + _EVERY
        _watcher(Tick(stage, done, of, unit, tells))


os.register_at_fork(after_in_child=lambda: watch(None))
