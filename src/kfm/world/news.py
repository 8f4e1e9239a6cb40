"""What receivers outside hear beside generations: how a run goes, and what the world told."""

import msgspec

from kfm.model import DeliveryRow, EventRow
from kfm.store.effects import EVENT
from kfm.world.announcement import Moment, RunNews
from kfm.world.world import HearsEvents, HearsOfRuns, Receiver, TakesLineage, World

__all__ = ["MADE", "MOMENTS", "tell_news", "told_of"]

# what stands for a generation where a moment of a run is told
MADE = -4  # or what a job made of a version
MOMENTS: dict[int, Moment] = {-3: "began", -2: "goes on", -1: "ended"}


def told_of(row: DeliveryRow) -> str:
    """What a receiver is told, in a few words."""
    if row.generation in MOMENTS:
        return f"that run {row.run_id} {MOMENTS[row.generation]}"
    if row.generation == MADE:
        return f"what job {row.run_id} made"
    if row.run_id.startswith(EVENT):
        return f"of event {row.run_id.removeprefix(EVENT)}"
    return f"of generation {row.generation}"


def tell_news(world: World, row: DeliveryRow) -> None:
    """Raises as `Receiver.tell` does."""
    receiver: Receiver = world.receivers.opened(row.receiver)
    if row.run_id.startswith(EVENT):
        if isinstance(receiver, HearsEvents):
            _tell_event(world, receiver, row)
    elif row.generation == MADE:
        if isinstance(receiver, TakesLineage):
            receiver.take(world, row.run_id)
    elif isinstance(receiver, HearsOfRuns):
        run = world.store.read(lambda tx: tx.runs.get(row.run_id))
        if run is not None:
            receiver.hear(world, RunNews(moment=MOMENTS[row.generation], run=run))


def _tell_event(world: World, receiver: HearsEvents, row: DeliveryRow) -> None:
    """Of what not everybody may have nothing is said, also when that is new."""
    for event in world.store.read(lambda tx: tx.events.like(row.run_id.removeprefix(EVENT))):
        datasets = _asked_by(event) or (row.dataset_id,)
        if not any(map(world.is_withheld, datasets)):
            receiver.heed(world, event, datasets)


def _asked_by(event: EventRow) -> tuple[str, ...]:
    """The datasets that an event asked for."""
    started = msgspec.json.decode(event.started, type=list[tuple[str, str, int]])
    return tuple(sorted({dataset_id for dataset_id, _, _ in started}))
