"""A store in a file is rebuilt beside the old one, then swapped with it."""

import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from kfm.model import Clock
from kfm.store.base import Tx
from kfm.store.sqlite import SqliteStore, carry_over, standing_still
from kfm.zones.durable import sync_folder

__all__ = ["FileRebuild", "rebuilding"]


@contextmanager
def rebuilding(path: Path, clock: Clock, aside: Path) -> "Iterator[FileRebuild]":
    """The old store, which may be damaged, works on until the new one is finished; then it is kept
    in the folder `aside`.
    """
    building = path.with_name(f"{path.name}.new-{os.getpid()}")
    try:
        building.parent.mkdir(parents=True, exist_ok=True)
        yield FileRebuild(path, SqliteStore(building, clock), aside)
    finally:
        for leftover in building.parent.glob(building.name + "*"):
            leftover.unlink()


class FileRebuild:
    """A new file beside the old one."""

    has_work = False  # it comes last: until then somebody may put a job

    def __init__(self, path: Path, store: SqliteStore, aside: Path) -> None:
        self.store, self._path, self._aside = store, path, aside
        self.old_epoch, self.old_root = _epoch(path), _meta(path, "root") or None

    def finish(self, last: Callable[[Tx], None]) -> bool:
        building, clock = self.store.path, self.store.clock
        self.store.settle()
        with standing_still(self._path):
            carried = carry_over(self._path, building)
            _set_aside(self._path, self._aside)
            os.replace(building, self._path)
            sync_folder(self._path.parent)
        with closing(SqliteStore(self._path, clock)) as store:
            store.transaction(last)
        return carried


def _epoch(path: Path) -> int:
    """The epoch of a store that can still be read, else 0."""
    told = _meta(path, "epoch")
    return 0 if told is None else int(told) if told.isdecimal() else 1 if not told else 0


def _meta(path: Path, key: str) -> str | None:
    """What a store says of itself, "" when it does not; None when it cannot be read."""
    if not path.is_file():
        return None
    try:
        with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as db:
            row = db.execute("select value from meta where key = ?", (key,)).fetchone()
            return str(row[0]) if row else ""
    except (sqlite3.Error, OSError):
        return None


def _set_aside(path: Path, folder: Path) -> None:
    for suffix in ("", "-wal", "-shm"):
        old = path.with_name(path.name + suffix)
        if old.exists():
            folder.mkdir(parents=True, exist_ok=True)
            os.replace(old, folder / old.name)
