"""A store in lines is rebuilt beside the old one, then takes its name."""

import os
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from kfm.extras.jsonl.store import JsonlStore, Replica
from kfm.model import Clock, KfmError
from kfm.store.base import Tx
from kfm.store.local import standing_still
from kfm.store.sqlite import DERIVED, WAIT_AGAIN
from kfm.zones.durable import sync_folder

__all__ = ["LinesRebuild", "rebuilding"]


@contextmanager
def rebuilding(path: Path, clock: Clock, aside: Path) -> "Iterator[LinesRebuild]":
    """The old store, which may be damaged, works on until the new one is finished; then it is kept
    in the folder `aside`.
    """
    building = path.with_name(f"{path.name}.new-{os.getpid()}")
    building.unlink(missing_ok=True)
    store = JsonlStore(building, clock)
    try:
        yield LinesRebuild(path, store, aside)
    finally:
        store.abandon()
        building.unlink(missing_ok=True)


class LinesRebuild:
    """A new file beside the old one."""

    has_work = False  # it comes last: until then somebody may put a job

    def __init__(self, path: Path, store: JsonlStore, aside: Path) -> None:
        self.store, self._path, self._aside = store, path, aside
        told = _meta(path)
        self.old_root = told.get("root") or None
        self.old_epoch = int(told.get("epoch", 1)) if told else 0

    def finish(self, last: Callable[[Tx], None]) -> bool:
        building, clock = self.store.path, self.store.clock
        self.store.abandon()
        with standing_still(self._path):
            carried = self._carry_over(building)
            if self._path.exists():
                self._aside.mkdir(parents=True, exist_ok=True)
                os.link(self._path, self._aside / self._path.name)
                sync_folder(self._aside)
            os.replace(building, self._path)
            sync_folder(self._path.parent)
        with closing(JsonlStore(self._path, clock)) as store:
            store.transaction(last)
        return carried

    def _carry_over(self, building: Path) -> bool:
        """Bring over jobs, switches, pools, schedules and backfills; False when they cannot be
        read.
        """
        try:
            old = Replica(self._path, writes=False)
        except (KfmError, OSError):
            return False
        with closing(old), closing(Replica(building)) as new:
            old.tables.migrate()
            rows = [row for row in old.tables.everything() if row["table"] not in DERIVED]
            new.tables.clear(set(old.tables.names) - DERIVED)
            new.tables.apply([rows])
            new.db.execute(WAIT_AGAIN)
            new.written_anew()
        return True


def _meta(path: Path) -> dict[str, str]:
    """What a store says of itself; nothing when it cannot be read."""
    try:
        with closing(Replica(path, writes=False)) as old:
            return {"": "", **dict(old.db.execute("select key, value from meta").fetchall())}
    except (KfmError, OSError):
        return {}
