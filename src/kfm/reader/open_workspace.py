"""The workspace, kept open between requests and opened anew when its rules, its settings or its
store are others than they were.
"""

import os
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from kfm.access.memory import (
    Mark,
    NotAtHand,
    Watched,
    is_at_hand,
    is_settled,
    mark_of,
    not_at_hand,
)
from kfm.workspace.folder import Workspace, open_workspace
from kfm.workspace.watched import watched
from kfm.workspace.wiring import open_world

__all__ = ["Kept"]


class _MadeOf(NamedTuple):
    marks: list[Mark]  # of kfm.yml, of the folder of the rules, of each of them
    store: int | None


class _Held:
    """One world, and how many requests are at it."""

    def __init__(self, folder: Path) -> None:
        self.users, self.left = 0, False
        self._stack = ExitStack()
        # what is looked at later than it is read would hide a change in between
        began = time.time_ns()
        rules = folder / "policy"
        # a rule that comes or goes is another name in the folder
        own = [(str(path), mark_of(path)) for path in (folder / "kfm.yml", rules)]
        own += [(path, mark_of(path)) for path in _rules(rules)]
        workspace = open_workspace(folder)
        store = _store_file(workspace)
        self._store = None if store is None else str(store)
        self._paths = [path for path, _ in own]
        self._made = _MadeOf([mark for _, mark in own], self._which_store())
        # a change within the same tick of the clock could not be told: then this is for once
        self._lasts = all(is_settled(mark, began) for mark in self._made.marks)
        world = self._stack.enter_context(open_world(workspace, asks=True))
        self.workspace = watched(workspace, world)
        self._stack.callback(self.workspace.close)
        self.world = self.workspace.world

    def is_of_now(self) -> bool:
        """Whether everything it was made of is as it was; nothing is read."""
        return self._lasts and self._made == _MadeOf(
            [mark_of(path) for path in self._paths], self._which_store()
        )

    def _which_store(self) -> int | None:
        """Which file the store is, not what is in it."""
        mark = None if self._store is None else mark_of(self._store)
        return None if mark is None else mark[0]

    def close(self) -> None:
        self._stack.close()


class Kept:
    """A workspace as it is now. Labels, licences, grants and keys are read for every question
    anyway; what a world reads once is looked at here.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._lock = threading.Lock()
        self._held: _Held | None = None

    @contextmanager
    def opened(self) -> Iterator[tuple[Workspace, Watched]]:
        """The workspace and its world, for one request."""
        held = self._taken()
        try:
            yield held.workspace, held.world
        finally:
            with self._lock:
                held.users -= 1
                done = held.left and not held.users
            if done:
                held.close()

    def close(self) -> None:
        """Let go; who is still at it ends first."""
        with self._lock:
            held, self._held = self._held, None
            done = held is not None and self._leave(held)
        if held is not None and done:
            held.close()

    def _taken(self) -> _Held:
        old = None
        if not self._lock.acquire(blocking=not is_at_hand()):
            raise NotAtHand  # another may be opening it
        try:
            held = self._held
            if held is None or not held.is_of_now():
                not_at_hand()
                new = _Held(self.folder)
                old = held if held is not None and self._leave(held) else None
                held = self._held = new
            held.users += 1
        finally:
            self._lock.release()
        if old is not None:
            old.close()
        return held

    def _leave(self, held: _Held) -> bool:
        """Whether nobody is at it any more."""
        held.left = True
        return not held.users


def _rules(folder: Path) -> list[str]:
    with suppress(FileNotFoundError), os.scandir(folder) as files:
        return sorted(each.path for each in files if each.name.endswith(".rego"))
    return []


def _store_file(workspace: Workspace) -> Path | None:
    return None if workspace.server else workspace.lines_file or workspace.store_file
