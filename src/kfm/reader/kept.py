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

from kfm.reading.memory import Mark, Watched, is_settled, mark_of
from kfm.workspace.folder import Workspace, open_workspace
from kfm.workspace.watched import watched
from kfm.workspace.wiring import open_world

__all__ = ["Kept"]


class _MadeOf(NamedTuple):
    rules: list[tuple[str, Mark]]
    store: int | None


class _Held:
    """One world, and how many requests are at it."""

    def __init__(self, folder: Path) -> None:
        self.users, self.left = 0, False
        self._stack = ExitStack()
        # what is looked at later than it is read would hide a change in between
        began = time.time_ns()
        self._settings = mark_of(folder / "kfm.yml")
        workspace = open_workspace(folder)
        self._rules, self._store = folder / "policy", _store_file(workspace)
        self._rest = self._made_of()
        # a change within the same tick of the clock could not be told: then this is for once
        self._lasts = is_settled(self._settings, began) and all(
            is_settled(mark, began) for _, mark in self._rest.rules
        )
        world = self._stack.enter_context(open_world(workspace, asks=True))
        self.workspace = watched(workspace, world)
        self._stack.callback(self.workspace.close)
        self.world = self.workspace.world

    def is_of_now(self) -> bool:
        """Whether everything it was made of is as it was; nothing is read."""
        seen = mark_of(self.workspace.path / "kfm.yml")
        return self._lasts and (self._settings, self._rest) == (seen, self._made_of())

    def _made_of(self) -> "_MadeOf":
        store = None if self._store is None else mark_of(self._store)
        names = []
        with suppress(FileNotFoundError), os.scandir(self._rules) as files:
            names = sorted(each.name for each in files if each.name.endswith(".rego"))
        # which file the store is, not what is in it
        which = store[0] if store is not None else None
        return _MadeOf([(name, mark_of(self._rules / name)) for name in names], which)

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
        with self._lock:
            held = self._held
            if held is None or not held.is_of_now():
                new = _Held(self.folder)
                old = held if held is not None and self._leave(held) else None
                held = self._held = new
            held.users += 1
        if old is not None:
            old.close()
        return held

    def _leave(self, held: _Held) -> bool:
        """Whether nobody is at it any more."""
        held.left = True
        return not held.users


def _store_file(workspace: Workspace) -> Path | None:
    return None if workspace.server else workspace.lines_file or workspace.store_file
