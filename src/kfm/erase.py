"""erase: destroy the bytes of what was withdrawn, everywhere; its commitment, the authority and the date stay in the channel."""

from kfm.model.ledger import Generation
from kfm.projection import project
from kfm.raw import render_raw
from kfm.world import World

__all__ = ["erase"]

_KEPT = ("run_record.json", "validation_report.json", "run_manifest.json", "outcome.json")  # sealed by public receipts


def erase(world: World, dataset_id: str) -> int:
    """Remove earlier versions, every capture, part, proposal, journal and refused row, then the data key. Repeatable."""
    head: Generation = world.store.transaction(lambda tx: world.channel(dataset_id).head(tx))
    kept = f"processed/{dataset_id}/{head.version_id}/"
    gone = [p for p in world.data.names(f"processed/{dataset_id}") if not p.startswith(kept)]
    gone += world.data.names(f"raw/{dataset_id}/captures")
    for folder in ("parts", "proposals", "quarantine", "noops"):
        gone += world.data.names(f"work/{dataset_id}/{folder}")
    gone += [p for p in world.data.names(f"work/{dataset_id}/runs") if p.rsplit("/", 1)[-1] not in _KEPT]
    gone += [p for p in world.data.names(f"catalog/stac/{dataset_id}/items") if str(head.version_id) not in p]
    for path in gone:
        world.data.remove(path)
    for path in sorted({str(world.data.local(p).parent) for p in gone}, key=len, reverse=True):
        _remove_folder(path)
    if world.vaults is not None:
        world.vaults.erase(dataset_id)
    render_raw(world.data, dataset_id, world.publisher.update_metadata)
    project(world, dataset_id)
    return len(gone)


def _remove_folder(path: str) -> None:
    import os

    try:
        os.rmdir(path)
    except OSError:
        return  # not empty: something that stays
