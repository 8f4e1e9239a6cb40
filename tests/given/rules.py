"""Evaluators of rules that rest between two workspaces of one test process, instead of being started
anew for each: the rules of the next one replace those before, as in one that lives on.
"""

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from kfm.model import Json
from kfm.policy import embedded
from kfm.policy.process import Child

_MOST = 4

_LOCK = threading.Lock()
_RESTING: dict[int, list["Resting"]] = {}  # by process: a forked one has pipes of its own


class Resting(Child):
    """A child that is put aside when it is let go of; one that met trouble is ended."""

    def __init__(self) -> None:
        super().__init__()
        self._is_asked = False

    def exchange(self, question: Json, seconds: float) -> Json:
        self._is_asked = True
        answer = super().exchange(question, seconds)
        self._is_asked = False
        return answer

    def close(self) -> None:
        with _LOCK:
            resting = _RESTING.setdefault(os.getpid(), [])
            if not self._is_asked and self.alive() and len(resting) < _MOST:
                resting.append(self)
                return
        super().close()

    def end(self) -> None:
        super().close()


def child() -> Child:
    """One that rests, or a new one."""
    with _LOCK:
        resting = _RESTING.get(os.getpid(), [])
        while resting:
            if (found := resting.pop()).alive():
                return found
    return Resting()


@contextmanager
def started_rules() -> Iterator[None]:
    """For tests of how they are started and ended: a process of its own for each."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(embedded, "Child", Child)
        yield


@contextmanager
def resting_rules() -> Iterator[None]:
    """Whoever asks rules meanwhile is given one of these."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(embedded, "Child", child)
        try:
            yield
        finally:
            for each in _RESTING.pop(os.getpid(), []):
                each.end()
