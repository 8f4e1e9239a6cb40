"""What is left to do around a dataset after a run: projections, archives, locks of the dead."""

from kfm.channel.generations import projected_generation
from kfm.evidence.intended_acts import meant
from kfm.model.paths import gc_folder
from kfm.store.base import Tx
from kfm.upkeep.pack import pack_noops
from kfm.world.world import World

__all__ = ["tell_outside", "tidy"]


def tidy(world: World, dataset_id: str) -> None:
    """Leave nothing for later that can be done now."""
    if _unfinished_business(world, dataset_id):
        from kfm.evidence.projection import tick

        tick(world, dataset_id)
    tell_outside(world, dataset_id)
    pack_noops(world, dataset_id)
    if world.store.read(lambda tx: tx.leases.sweep(False)):  # locks of dead processes
        world.store.transaction(lambda tx: tx.leases.sweep(True), durable=False)


def tell_outside(world: World, dataset_id: str) -> None:
    """Tell receivers what is due; a run that failed has nothing else to tidy up."""
    if world.receivers.names():
        from kfm.evidence.notify import tell_receivers

        tell_receivers(world, dataset_id)


def _unfinished_business(world: World, dataset_id: str) -> bool:
    """Whether a tick would find anything: a stale projection, an unarchived journal, a waiting
    release, an act of a person.
    """
    channel = world.channel(dataset_id)

    def look(tx: Tx) -> bool:
        head = tx.index.last_generation(dataset_id)
        number = head.generation if head is not None else 0
        stale = number > 0 and projected_generation(world.data, dataset_id) != number
        waiting = any(row.dataset_id == dataset_id for row in tx.outbox.waiting())
        more = (
            world.data.exists(channel.path(number + 1))
            or bool(meant(world.data, dataset_id))
            or _swept_half(world, dataset_id)
        )
        return stale or waiting or more or bool(tx.runs.unarchived(dataset_id))

    found: bool = world.store.read(look)
    return found


def _swept_half(world: World, dataset_id: str) -> bool:
    """Whether a sweep was killed: what is shown may still name what it removed."""
    plans = set(world.data.names(gc_folder(dataset_id)))
    return any(
        path.endswith(".json") and f"{path.removesuffix('.json')}.done" not in plans
        for path in plans
    )
