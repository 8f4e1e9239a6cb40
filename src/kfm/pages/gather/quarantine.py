"""What lies in quarantine and is to be decided: for home, and for the bar of every page."""

from kfm.access.memory import recall
from kfm.model.paths import quarantine_folder
from kfm.pages.gather.asks import Asks
from kfm.quarantine.desk import Item, waiting
from kfm.world.world import World

__all__ = ["to_decide"]


def to_decide(asks: Asks) -> list[Item]:
    """Every capture and run whose records wait for somebody."""
    return [item for name in asks.workspace.registered() for item in _of(asks.world, name)]


def _of(world: World, name: str) -> list[Item]:
    """Found anew when somebody committed something, or decided; most have nothing there."""
    folder = quarantine_folder(name)
    if not recall(world, ("set aside", name), lambda: any(world.data.names(folder))):
        return []
    as_of = world.store.changes()

    def found() -> list[Item]:
        return waiting(world, name)

    return found() if as_of is None else recall(world, ("to decide", name, as_of), found)
