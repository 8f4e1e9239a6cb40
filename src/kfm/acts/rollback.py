"""rollback: a generation that points at an earlier version, and holds what it left."""

from collections.abc import Callable

from kfm.acts.append_act import Choice, append_act, check_whole
from kfm.channel.generations import version_kept_out, withdrawn_inside
from kfm.model import Denied, Generation, GenerationPredicate, UsageError
from kfm.store.base import Store
from kfm.world.world import World
from kfm.zones.base import Zone

__all__ = ["rollback"]


def rollback(
    world: World,
    dataset_id: str,
    version_id: str | None,
    reason: str,
    check: Callable[[Generation], None] | None = None,
) -> GenerationPredicate:
    """Append a generation that points at an earlier version and holds what it left; `check` raises
    when that version may not be shown.
    """
    return append_act(
        world,
        dataset_id,
        "rollback",
        lambda head: _rollback_to(world.data, world.store, dataset_id, head, version_id, check),
        reason,
    )


def _rollback_to(
    data: Zone,
    store: Store,
    dataset_id: str,
    head: Generation,
    version_id: str | None,
    check: Callable[[Generation], None] | None,
) -> Choice:
    rows: list[Generation] = store.read(lambda tx: tx.index.generations(dataset_id))
    others = [
        g
        for g in rows
        if g.version_id is not None and g.version_id != head.version_id and g.kind != "withdraw"
    ]
    earlier = [g for g in others if not _is_held(head, g)]  # a rollback left it
    if version_id is not None:
        earlier = [g for g in rows if g.version_id == version_id]
    elif others and not earlier:
        back = version_kept_out(head, str(others[-1].version_id))
        raise UsageError(
            f"{dataset_id} has no earlier version to go back to: {others[-1].version_id} was left"
            f" by generation {back.generation if back else ''}.",
            expected="a version that no rollback has left",
            remedy=(
                f"`kfm rollback {dataset_id} --to {str(others[-1].version_id)[:9]}` goes there all"
                " the same."
            ),
        )
    if version_id is not None and version_id == head.version_id:
        raise UsageError(
            f"{version_id} is what is official of {dataset_id} already, by generation"
            f" {head.generation}.",
            expected="an earlier version",
            remedy=(
                f"`kfm rollback {dataset_id} --reason …` goes back to the one before it."
                if any(g.version_id not in (None, version_id) for g in rows)
                else "There is no earlier one: `kfm withdraw` takes it out of publication."
            ),
        )
    if not earlier:
        raise UsageError(
            f"{dataset_id} has no {'such' if version_id else 'earlier'} version to go back to.",
            expected="an earlier official version",
            remedy=f"`kfm runs {dataset_id}` lists what there is.",
        )
    found = earlier[-1]
    gone = withdrawn_inside(head, found)
    if gone is not None:
        raise Denied(
            f"{found.version_id} holds what generation {gone} withdrew.",
            expected="a version that may be shown",
            remedy="Choose another.",
        )
    check_whole(data, dataset_id, found)
    if check is not None:
        check(found)
    return str(found.version_id), str(found.version_digest), []


def _is_held(head: Generation, one: Generation) -> bool:
    out = version_kept_out(head, str(one.version_id))
    return out is not None and out.how == "held"
