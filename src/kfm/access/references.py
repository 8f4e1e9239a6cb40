"""References: DATASET, DATASET@vHEX (8 or more digits), DATASET@GENERATION."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from kfm.access.history import generations_of
from kfm.access.status import shown
from kfm.channel.generations import EMPTY, last_act, whole_withdrawn, withdrawn_inside
from kfm.evidence.removed import removed_versions
from kfm.model import Denied, Generation, UsageError, check_dataset_id
from kfm.store.base import Store
from kfm.world.world import World
from kfm.zones.base import Zone

__all__ = ["Ref", "dataset_of", "generations_of", "proposal_number", "resolve", "withdrawn"]


@dataclass(frozen=True)
class Ref:
    dataset_id: str
    version_id: str
    version_digest: str
    generation: int


def dataset_of(text: str) -> str:
    """The dataset a reference names. A proposal is no version yet: it is shown, not handed out."""
    if re.fullmatch(r"proposal/[0-9]+", text):
        raise UsageError(
            f"{text} is not official.",
            expected="a version that is",
            remedy=f"`kfm review {text.removeprefix('proposal/')}` shows it.",
        )
    return check_dataset_id(text.removeprefix("kfm://dataset/").partition("@")[0])


def proposal_number(text: str) -> int:
    """The number in N or proposal/N."""
    found = _number(text.removeprefix("proposal/"))
    if found is None:
        raise UsageError(
            f"{text!r} is not a proposal.",
            expected="N or proposal/N",
            remedy="`kfm review` lists those that wait.",
        )
    return found


def _number(text: str) -> int | None:
    """A plain whole number the store can hold, else None."""
    return int(text) if re.fullmatch("[0-9]{1,9}", text) else None


def resolve(world: World, text: str) -> Ref:
    """The version a reference means; resolved through the channel, never through what happens to
    lie in a folder.
    """
    dataset_id, which = dataset_of(text), text.partition("@")[2]
    rows = generations_of(world, dataset_id)
    if not rows:
        raise UsageError(
            f"{dataset_id} has no official version yet.",
            expected="a published dataset",
            remedy=_way_on(world, dataset_id),
        )
    if not which:
        found = rows[-1]
    elif re.fullmatch(r"v[0-9a-f]{8,32}", which):
        found = _by_prefix(world.store, rows, which, text)
    elif (number := _number(which)) is not None:
        found = next((g for g in rows if g.generation == number), rows[0])
        if found.generation != number:
            raise UsageError(
                f"{dataset_id} has no generation {which}.",
                expected=f"1 to {rows[-1].generation}",
                remedy=f"`kfm history {dataset_id}` lists them.",
            )
    else:
        raise UsageError(
            f"{text!r} is not a reference.",
            expected="DATASET, DATASET@vHEX (8 or more digits) or DATASET@GENERATION",
            remedy="`kfm dataset list` shows datasets, `kfm history DATASET` the versions of one.",
        )
    if found.version_id is None:
        act: Generation = world.store.read(lambda tx: last_act(tx, found))
        if act.kind != "withdraw":  # a store that was rebuilt before anything was official
            raise UsageError(
                f"{text} has no official version.",
                expected="a published dataset",
                remedy=_way_on(world, dataset_id),
            )
        raise _withdrawn(text, dataset_id, str(act.generation))
    if (gone := withdrawn(rows[-1], found)) is not None:
        raise _withdrawn(text, dataset_id, gone)
    _check_kept(world.data, text, dataset_id, found.version_id)
    return Ref(dataset_id, found.version_id, str(found.version_digest), found.generation)


def withdrawn(head: Generation, meant: Generation) -> str | None:
    """The generation that withdrew what an earlier one made official, or a part of it; None when
    all of it may be shown.
    """
    names = {"", *meant.partitions}
    return withdrawn_inside(head, meant) or next(
        filter(None, (whole_withdrawn(head, name) for name in names)), None
    )


def _way_on(world: World, dataset_id: str) -> str:
    """What leads to an official version from where this dataset is now."""
    head = world.store.read(lambda tx: tx.index.last_generation(dataset_id)) or EMPTY(dataset_id)
    found = shown(world, head)
    said = {
        "proposed": "One waits to be approved or promoted:",
        "denied": f"The newest was denied ({found.reason}):",
        "failed": "The newest run failed:",
        "waiting": "A run was left on its way:",
        "running": "A run is at it;",
        "retired": f"It is {found.reason};",
    }.get(found.state, "Run")
    return f"{said} `{found.next or f'kfm status {dataset_id}'}`."


def _check_kept(data: Zone, text: str, dataset_id: str, version_id: str) -> None:
    if version_id in removed_versions(data, dataset_id):
        raise Denied(
            f"{text} is gone: retention removed it, and a receipt of maintenance.gc lists its"
            " files.",
            expected="a version that is kept",
            remedy=(
                f"`kfm runs {dataset_id}` lists what there is; a backup or a bundle may still"
                " have it."
            ),
        )


def _withdrawn(text: str, dataset_id: str, generation: str) -> Denied:
    return Denied(
        f"{text} may not be shown. Generation {generation} withdrew it.",
        expected="a version that was not withdrawn",
        remedy=f"`kfm explain {dataset_id}@{generation}` says why.",
        code="serve.withdrawn",
    )


def _by_prefix(store: Store, rows: Sequence[Generation], prefix: str, text: str) -> Generation:
    fitting = {
        g.version_id: g
        for g in rows
        if g.version_id is not None and g.version_id.startswith(prefix)
    }
    if len(fitting) > 1:
        raise UsageError(
            f"{text} names {len(fitting)} versions.",
            expected="a prefix of exactly one version",
            remedy="Give more digits.",
        )
    if not fitting:
        dataset_id = rows[0].dataset_id
        waiting = store.read(lambda tx: tx.proposals.waiting())
        number = next(
            (
                n
                for n, r in waiting
                if r.dataset_id == dataset_id and str(r.version_id).startswith(prefix)
            ),
            None,
        )
        remedy = (
            f"`kfm runs {dataset_id}` lists what there is."
            if number is None
            else f"It waits for a person: `kfm review {number}`."
        )
        raise UsageError(
            f"{text} names no version that is or was official.",
            expected="one of this dataset's versions",
            remedy=remedy,
        )
    return next(iter(fitting.values()))
