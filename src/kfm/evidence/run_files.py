"""Files of runs, wherever they lie: NOOP runs are packed daily into one file, under the same
addresses.
"""

import datetime as dt
import re
from functools import partial

from kfm.evidence.packs import pack, unpacked
from kfm.model import Json
from kfm.model.paths import noops_folder, noops_path, run_folder, run_path, runs_folder
from kfm.world.world import World
from kfm.zones.base import Zone

__all__ = ["Packed", "load_packs", "pack_noops", "read_run_file", "run_ids", "started_at"]


Packed = dict[str, dict[str, str]]


def started_at(run_id: str) -> dt.datetime:
    """The moment a UUIDv7 holds; of an id that somebody chose, the beginning of time."""
    stamped = re.fullmatch(
        r"([0-9a-f]{8})-([0-9a-f]{4})-7[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}", run_id
    )
    return dt.datetime.fromtimestamp(
        int(stamped[1] + stamped[2], 16) / 1000 if stamped else 0, dt.UTC
    )


def load_packs(zone: Zone, dataset_id: str) -> Packed:
    """Every packed run of a dataset: run id -> file name -> text."""
    found: Packed = {}
    for name in zone.names(noops_folder(dataset_id)):
        found |= unpacked(zone.read(name), "files")
    return found


def read_run_file(
    zone: Zone, dataset_id: str, run_id: str, name: str, packed: Packed | None = None
) -> bytes | None:
    """A file of a run, from its folder or from the pack it went into."""
    path = run_path(dataset_id, run_id, name)
    if zone.exists(path):
        return zone.read(path)
    text = (load_packs(zone, dataset_id) if packed is None else packed).get(run_id, {}).get(name)
    return None if text is None else text.encode()


def run_ids(zone: Zone, dataset_id: str, packed: Packed | None = None) -> list[str]:
    """Every run that left files, packed or not, oldest first."""
    base = runs_folder(dataset_id) + "/"
    found = {path.removeprefix(base).split("/", 1)[0] for path in zone.names(base.rstrip("/"))}
    return sorted(found | set(load_packs(zone, dataset_id) if packed is None else packed))


def pack_noops(world: World, dataset_id: str) -> int:
    """Pack the NOOP runs of days that are over. A crash half-way leaves a run in both places, never
    in none.
    """
    today = world.clock.now().date()
    rows = world.store.read(lambda tx: tx.looks.unpacked_noops(dataset_id, today.isoformat()))
    days: dict[str, list[str]] = {}
    for row in rows:
        days.setdefault(row.timestamp[:10], []).append(row.run_id)
    for day, runs in days.items():
        lines = [
            line for run_id in runs if (line := _packed(world.data, dataset_id, run_id))["files"]
        ]
        files = [
            run_path(dataset_id, line["run_id"], name) for line in lines for name in line["files"]
        ]
        path = partial(noops_path, dataset_id, day)
        pack(
            world.data,
            lines,
            files,
            path,
            lambda *_: world.store.transaction(lambda tx: tx.looks.mark_packed(runs)),
        )
        for run_id in runs:
            world.data.remove_folders(
                [run_folder(dataset_id, run_id), run_path(dataset_id, run_id, "artifacts")]
            )
    return len(rows)


def _packed(zone: Zone, dataset_id: str, run_id: str) -> Json:
    base = run_folder(dataset_id, run_id)
    return {
        "run_id": run_id,
        "files": {p.removeprefix(base + "/"): zone.read(p).decode() for p in zone.names(base)},
    }
