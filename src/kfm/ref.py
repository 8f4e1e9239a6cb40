"""References: DATASET, DATASET@vHEX (8 or more digits), DATASET@GENERATION."""

import re
from dataclasses import dataclass

from kfm.errors import UsageError
from kfm.model.ledger import Generation
from kfm.world import World

__all__ = ["Ref", "resolve"]


@dataclass(frozen=True)
class Ref:
    dataset_id: str
    version_id: str
    version_digest: str
    generation: int


def resolve(world: World, text: str) -> Ref:
    """The version a reference means; resolved through the channel, never through what happens to lie in a folder."""
    dataset_id, _, which = text.removeprefix("kfm://dataset/").partition("@")
    world.store.transaction(lambda tx: world.channel(dataset_id).head(tx))
    rows: list[Generation] = world.store.read(lambda tx: tx.index.generations(dataset_id))
    if not rows:
        raise UsageError(
            f"{dataset_id} has no official version yet.", expected="a published dataset", remedy=f"Run `kfm run {dataset_id}`."
        )
    if not which:
        found = rows[-1]
    elif re.fullmatch(r"v[0-9a-f]{8,32}", which):
        found = _by_prefix(rows, which, text)
    elif which.isdigit():
        found = next((g for g in rows if g.generation == int(which)), rows[0])
        if found.generation != int(which):
            raise UsageError(
                f"{dataset_id} has no generation {which}.", expected=f"1 to {rows[-1].generation}", remedy="Choose one of them."
            )
    else:
        raise UsageError(
            f"{text!r} is not a reference.", expected="DATASET, DATASET@vHEX (8 or more digits) or DATASET@GENERATION", remedy="Correct it."
        )
    if found.version_id is None:
        raise UsageError(
            f"{text} points at no version: it was withdrawn.", expected="a version", remedy=f"`kfm explain {dataset_id}` says why."
        )
    return Ref(dataset_id, found.version_id, str(found.version_digest), found.generation)


def _by_prefix(rows: list[Generation], prefix: str, text: str) -> Generation:
    fitting = {g.version_id: g for g in rows if g.version_id is not None and g.version_id.startswith(prefix)}
    if len(fitting) != 1:
        what = "no version" if not fitting else f"{len(fitting)} versions"
        raise UsageError(f"{text} names {what}.", expected="a prefix of exactly one version", remedy="Give more digits.")
    return next(iter(fitting.values()))
