"""Events that were kept are told to those outside who want to know of them: put with the event, told
by whoever comes first, again until it was heard.
"""

import contextlib
import threading
from collections.abc import Sequence

from kfm.evidence.notify import tell_receivers
from kfm.model import KfmError
from kfm.store.base import Tx
from kfm.store.effects import EVENT
from kfm.webhook.keep import Also
from kfm.webhook.receive import Heard
from kfm.world.world import World

__all__ = ["fan_out", "keep_telling", "tell_events"]

_LOOK_S = 1.0


def fan_out(world: World) -> Also:
    """What is put with events. One that starts nothing is told to nobody, nor one that asks for
    anything that not everybody may have.
    """
    names = world.receivers.of_events()

    def put(tx: Tx, heard: Sequence[Heard]) -> None:
        for one in heard if names else ():
            datasets = sorted(table.dataset for table in one.source.tables)
            if datasets and not one.note and not any(map(world.is_private, datasets)):
                tx.deliveries.put_event(one.event_id, datasets[0], names)

    return put


def tell_events(world: World) -> int:
    """Tell the events that are due; how many were told."""
    due = world.store.read(lambda tx: tx.deliveries.due_datasets())
    return sum(tell_receivers(world, d, lambda row: row.run_id.startswith(EVENT)) for d in due)


def keep_telling(world: World, ended: threading.Event) -> None:
    """Until `ended`; also what was put by somebody who is gone."""
    while not ended.wait(_LOOK_S):
        with contextlib.suppress(KfmError, OSError, ValueError):  # it looks again
            tell_events(world)
