"""A store in a file is rebuilt beside the old one, then swapped with it."""

import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from kfm.model import Clock
from kfm.store.base import Tx
from kfm.store.local import standing_still
from kfm.store.sqlite import SqliteStore, carry_over
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
    """Keep the old store. Its name is the new one's to take: whoever is killed between leaves one
    or the other, never none.

    A log that still holds something of the old store goes only together with it: without its log it
    would be another store, and the new one would take in what is not its own.
    """
    logs = [path.with_name(path.name + end) for end in ("-wal", "-shm")]
    whole = path.is_file() and _log_is_empty(path)
    left = [old for old in (logs if whole else (path, *logs)) if old.exists()]
    if whole or left:
        folder.mkdir(parents=True, exist_ok=True)
    if whole:
        os.link(path, folder / path.name)
        sync_folder(folder)
    for old in left:
        os.replace(old, folder / old.name)


def _log_is_empty(path: Path) -> bool:
    """Whether the file alone is the whole store, after all that was logged is brought into it."""
    try:
        with closing(sqlite3.connect(path, timeout=5)) as db:
            db.execute("pragma wal_checkpoint(truncate)")
    except sqlite3.Error:  # damaged, or somebody reads it still
        pass
    log = path.with_name(path.name + "-wal")
    return not log.exists() or log.stat().st_size == 0
