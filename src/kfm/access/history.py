"""What was official when: every generation of a dataset, brought up to its channel."""

from collections.abc import Sequence

from kfm.access.memory import recall
from kfm.model import Generation
from kfm.world.world import World

__all__ = ["generations_of", "head_of"]


def head_of(world: World, dataset_id: str) -> Generation:
    """The newest generation of a dataset; of one of which nothing was official number 0."""

    def found() -> Generation:
        head: Generation = world.store.transaction(lambda tx: world.channel(dataset_id).head(tx))
        return head

    return recall(world, ("head", dataset_id), found)


def generations_of(world: World, dataset_id: str) -> Sequence[Generation]:
    """Every generation of a dataset, the first one first; the index is brought up to the channel
    before.
    """

    def found() -> Sequence[Generation]:
        world.store.transaction(lambda tx: world.channel(dataset_id).head(tx))
        rows: Sequence[Generation] = world.store.read(lambda tx: tx.index.generations(dataset_id))
        return rows

    # the head and the name that the next one would have are looked at on the way
    return recall(world, ("generations", dataset_id), found)
