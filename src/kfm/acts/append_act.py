"""What a person does to a channel: one generation is appended, and every version stays where it
is.
"""

from collections.abc import Callable

from kfm.acts.intend import intend
from kfm.channel.generations import Channel
from kfm.evidence.append_times import check_clock
from kfm.evidence.folder_check import Verified, verify_in_zone
from kfm.evidence.intended_acts import drop, settle
from kfm.evidence.notify import tell_receivers
from kfm.evidence.projection import project
from kfm.model import Generation, GenerationPredicate, IntegrityError, Json, Kind, Lift, ids
from kfm.model.paths import version_folder
from kfm.store.base import Tx
from kfm.world.world import World
from kfm.zones.base import Zone

__all__ = ["Choice", "append_act", "check_whole", "void"]


# version id, its digest, suppression rules
Choice = tuple[str | None, str | None, list[Json]]


def void(world: World, dataset_id: str, number: int, token: str, reason: str) -> bool:
    """Append a generation that repeats the version before it, so that nobody else can have its
    number.
    """
    channel = world.channel(dataset_id)
    before = channel.predicate(number - 1) if number > 1 else None
    return channel.append(
        GenerationPredicate(
            dataset_id=dataset_id,
            generation=number,
            kind="void",
            version_id=before.version_id if before else None,
            version_digest=before.version_digest if before else None,
            receipts_digest=None,
            run_id="",
            token=token,
            prev=ids.digest(world.data.read(channel.path(number - 1))) if number > 1 else None,
            reason=reason,
        )
    )


def append_act(
    world: World,
    dataset_id: str,
    kind: Kind,
    choose: Callable[[Generation], Choice],
    reason: str,
    lifts: Lift | None = None,
    *,
    sources: bool = False,
) -> GenerationPredicate:
    channel = world.channel(dataset_id)
    while True:
        head: Generation = world.store.transaction(lambda tx: _head(tx, world, channel))
        version_id, full, suppress = choose(head)
        predicate = GenerationPredicate(
            dataset_id=dataset_id,
            generation=head.generation + 1,
            kind=kind,
            version_id=version_id,
            version_digest=full,
            receipts_digest=None,
            run_id="",
            token="0.0",
            prev=head.file_digest or None,
            reason=reason,
            suppress=suppress,
            lifts=lifts,
        )
        if kind == "withdraw":  # before it is true: whoever dies in between has shown too little
            world.latest.hide(world, dataset_id)
        act = world.store.transaction(lambda tx: intend(tx, world, predicate, sources=sources))
        # in no transaction: one that fails later could not take it back
        if channel.append(predicate):
            # what is owed and what is shown follow at the next tick, whatever keeps them from
            # following now
            with world.ended():
                settle(world, dataset_id)
                project(world, dataset_id)
                tell_receivers(world, dataset_id)
            return predicate
        drop(world, act)  # a promote took the number: look again


def _head(tx: Tx, world: World, channel: Channel) -> Generation:
    head = channel.head(tx)
    check_clock(tx, world, head)
    return head


def check_whole(data: Zone, dataset_id: str, found: Generation) -> None:
    folder, whole = version_folder(dataset_id, found.version_id), Verified()
    verify_in_zone(data, folder, whole)
    if whole.problems:
        raise IntegrityError(
            f"{whole.problems[0]['where']}: {whole.problems[0]['what']}.",
            expected="a version folder exactly as it was promoted",
            remedy="Restore it from a backup before going back to it.",
        )
