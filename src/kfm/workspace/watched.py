"""A world that is kept open between questions, and notices what it is asked: every file that is
looked at is noted, so that what was found can be told from what has to be found anew.
"""

import datetime as dt
import os
from collections.abc import Callable, Iterator
from contextvars import copy_context
from functools import partial
from pathlib import Path
from typing import TypeVar

from kfm.access.memory import Memory, Watched, note, recall_folder, unsettled, watching
from kfm.keys.key_folder import KeyFolder
from kfm.keys.trust import Trust
from kfm.model import Clock, DatasetEntry
from kfm.store.base import Store, Tx
from kfm.workspace.config import entry_files
from kfm.workspace.folder import Workspace
from kfm.world.world import World
from kfm.zones.base import Held, Stored, Zone
from kfm.zones.local import LocalZone

__all__ = ["Remembered", "SeenStore", "watched"]

T = TypeVar("T")


def watched(workspace: Workspace, world: World) -> "Remembered":
    """`workspace` and its `world`, remembering."""
    memory = Memory()

    def entry(dataset_id: str) -> DatasetEntry | None:
        for file in entry_files(workspace.path, dataset_id):
            note(str(file))
        return world.registry(dataset_id)

    seams = {name: getattr(world, name) for name in World.__struct_fields__} | {
        "data": _SeenZone(_folder(world.data)),
        "root": _SeenZone(_folder(world.root)),
        "keys": _SeenKeys(workspace.keys),
        "clock": _SeenClock(world.clock),
        "store": SeenStore(world.store),
        "registry": lambda name: memory.recall(("entry", name), partial(entry, name)),
    }
    return Remembered(workspace.path, workspace.config, Watched(**seams, memory=memory))


class Remembered(Workspace, frozen=True):
    """A workspace whose registry is read again when a file of it has changed."""

    world: Watched

    def entry(self, dataset_id: str) -> DatasetEntry | None:
        return self.world.registry(dataset_id)

    def registered(self) -> list[str]:
        folder = str(self.path / "data" / "registry")
        return list(recall_folder(self.world, folder, super().registered))

    def close(self) -> None:
        """Let go of its folders; the rest is whose it was."""
        for zone in (self.world.data, self.world.root):
            zone.close()


def _folder(zone: Zone) -> Path:
    if not isinstance(zone, LocalZone):
        raise TypeError("only folders of this machine can be watched")
    return zone.root


class _SeenZone(LocalZone):
    """A folder whose files are noted when they are looked at."""

    def read(self, path: str) -> bytes:
        note(self._prefix + path)
        return super().read(path)

    def exists(self, path: str) -> bool:
        note(self._prefix + path)
        return super().exists(path)

    def stat(self, path: str) -> Stored | None:
        note(self._prefix + path)
        return super().stat(path)

    def held(self, path: str) -> Held | None:
        note(self._prefix + path)
        return super().held(path)

    def names(self, prefix: str) -> Iterator[str]:
        if watching():
            note(self._prefix + prefix)
            for folder, below, _ in os.walk(self.root / prefix):
                for name in below:
                    note(os.path.join(folder, name))
        return super().names(prefix)


class SeenStore:
    """A store whose transactions may be done by another thread, which commits for all who wait: what
    is looked at in one is noted for who asked for it, not for who did it.
    """

    def __init__(self, store: Store) -> None:
        self._store = store

    def __getattr__(self, name: str) -> object:
        return getattr(self._store, name)

    def transaction(self, work: Callable[[Tx], T], *, durable: bool = True) -> T:
        asked = copy_context()
        return self._store.transaction(lambda tx: asked.run(work, tx), durable=durable)


class _SeenKeys(KeyFolder):
    """Keys that are noted when something is verified with them."""

    def trust(self) -> Trust | None:
        if watching():
            note(str(self._folder / "root"))
            for file in self._root_files():
                note(file.path)
        found = super().trust()
        if found is None:  # an older folder says by other files whom it trusts
            unsettled()
        return found


class _SeenClock(Clock):
    """What depends on the time is not kept."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def now(self) -> dt.datetime:
        unsettled()
        return self._clock.now()

    def boot_ns(self) -> int:
        unsettled()
        return self._clock.boot_ns()

    def boot_id(self) -> str:
        return self._clock.boot_id()
