"""What jobs made of versions: its record, which lies beside it, and its rows."""

from collections.abc import Sequence

import msgspec

from kfm.catalog.lineage.record import LineageRecord, Made, Used, read
from kfm.evidence.lineage import LINEAGE, indexed, made_by
from kfm.evidence.notify import MADE
from kfm.model import rfc3339
from kfm.model.paths import all_tiles_folder
from kfm.store.base import Tx
from kfm.world.world import World

__all__ = ["index_job_lineage", "job_lineage", "keep_job_lineage"]


def keep_job_lineage(world: World, folder: str) -> bool:
    """Index the record of a folder, and have receivers told; whether there is one. Repeatable."""
    path = f"{folder}/{LINEAGE}"
    if not world.data.exists(path):
        return False
    try:
        record = read(world.data.read(path))
    except msgspec.DecodeError:  # damaged: what it speaks of can be made again
        return False

    def put(tx: Tx) -> None:
        if tx.lineage.get(record.run_id) is None:
            tx.lineage.put(indexed(record))
            names = world.receivers.names()
            tx.deliveries.put(record.run_id, record.dataset_id, MADE, names)

    world.store.transaction(put)
    return True


def index_job_lineage(world: World, dataset_id: str) -> int:
    """Read again what jobs of a dataset left; how many there are."""
    names = world.data.names(all_tiles_folder(dataset_id))
    folders = [n.rpartition("/")[0] for n in names if n.endswith("/tiles.json")]
    return sum(keep_job_lineage(world, folder) for folder in folders)


def job_lineage(
    world: World,
    version: str,
    run_id: str,
    job: tuple[str, str],
    trigger: str,
    made: Sequence[Made],
) -> LineageRecord | None:
    """What a job, by its type and version, made of DATASET@VERSION; it owes what that owes. None:
    nobody knows where that comes from.
    """
    behind = world.store.read(lambda tx: made_by(tx, version))
    if behind is None:
        return None
    used = Used(
        uri=f"kfm://dataset/{behind.dataset_id}",
        hash=f"sha256:{behind.version_digest}",
        version=version,
    )
    return msgspec.structs.replace(
        behind,
        run_id=run_id,
        updater_id=job[0],
        updater_version=job[1],
        wal_id=run_id,
        trigger_type=trigger,
        started_at=rfc3339(world.clock.now()),
        base_version=None,
        merged=False,
        inputs=(used,),
        outputs=tuple(made),
        of_version=True,
    )
