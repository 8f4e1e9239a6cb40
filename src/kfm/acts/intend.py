"""intend: an act is written down before it is official, with the files it will destroy."""

import msgspec

from kfm.acts import inbox
from kfm.evidence.intended_acts import Act
from kfm.evidence.notify import act_of
from kfm.evidence.receipts import pretty
from kfm.model import GenerationPredicate, IntegrityError, rfc3339
from kfm.model.paths import version_path
from kfm.store.base import Tx
from kfm.world.world import World

__all__ = ["intend", "planned_sources"]


def intend(tx: Tx, world: World, predicate: GenerationPredicate, *, sources: bool = False) -> Act:
    """Say durably what is about to be appended. A sweep looks for this in a transaction like this
    one: the version stays from here on.

    `sources`: an erasure of records destroys the files they came from, too; one of everything that
    is in them does so anyway.
    """
    dataset_id, version_id = predicate.dataset_id, predicate.version_id
    tx.schedule.alone(dataset_id)
    if version_id is not None and not world.data.exists(
        version_path(dataset_id, version_id, "checksums.sha256")
    ):
        raise IntegrityError(
            f"The files of version {version_id} of {dataset_id} are gone.",
            expected="a version that retention has kept",
            remedy=f"`kfm runs {dataset_id}` lists others.",
        )
    act = Act(
        at=rfc3339(world.clock.now()),
        predicate=predicate,
        inbox=planned_sources(tx, world, predicate, sources) or msgspec.UNSET,
    )
    world.data.create(act.path, pretty(act))
    if predicate.kind == "withdraw":  # who holds files of versions is to give them back
        names = world.receivers.names()
        tx.deliveries.put(act_of(dataset_id), dataset_id, predicate.generation, names)
    return act


def planned_sources(
    tx: Tx, world: World, predicate: GenerationPredicate, asked: bool
) -> dict[str, int]:
    """The files of the inbox that an erasure destroys; one that another dataset comes from as well
    stays.
    """
    if not any(rule.get("erased") for rule in predicate.suppress) or not (
        asked or inbox.swept(predicate.suppress)
    ):
        return {}
    found = inbox.brought(world, tx, predicate.dataset_id, inbox.scope(predicate.suppress))
    shared = inbox.others(world, tx, predicate.dataset_id, found)
    own = (path for path in found if path.startswith(f"{inbox.INBOX}/") and path not in shared)
    return {path: at for path in own if (at := inbox.written(world.root, path)) is not None}
