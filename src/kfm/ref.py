"""References: DATASET, DATASET@vHEX (8 or more digits), DATASET@GENERATION."""

import re
from dataclasses import dataclass
from pathlib import Path

from kfm.commitments import SEALED
from kfm.errors import IntegrityError, UsageError
from kfm.model.ledger import Generation
from kfm.model.version import is_record
from kfm.proposal import run_of
from kfm.raw import parse_checksums
from kfm.release import candidate_of
from kfm.world import World

__all__ = ["Located", "Ref", "locate", "resolve"]


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


@dataclass(frozen=True)
class Located:
    """A version and the files that hold its data."""

    dataset_id: str
    label: str
    version_id: str
    generation: int | None
    files: dict[str, Path]  # artifact -> where it can be read
    business_key: tuple[str, ...]


def locate(world: World, text: str) -> Located:
    """The data artifacts of the version a reference means, each checked against its digest."""
    if text.startswith("proposal/"):
        return _proposed(world, text)
    ref = resolve(world, text)
    folder = f"processed/{ref.dataset_id}/{ref.version_id}"
    listed = {p: d for p, d in parse_checksums(world.data.read(f"{folder}/checksums.sha256")).items() if not is_record(p)}
    for path, digest in listed.items():
        stored = world.data.stat(f"{folder}/{path}")
        if stored is None or stored.digest != digest:
            raise IntegrityError(f"{path} of {text} is damaged.", expected=digest, remedy="Run `kfm verify`; restore it from a backup.")
    entry = world.registry(ref.dataset_id)
    return Located(
        dataset_id=ref.dataset_id,
        label=f"{ref.dataset_id}@{ref.generation}",
        version_id=ref.version_id,
        generation=ref.generation,
        files={path: world.data.local(f"{folder}/{path}") for path in listed},
        business_key=entry.business_key if entry is not None else (),
    )


def _proposed(world: World, text: str) -> Located:
    row = run_of(world, int(text.removeprefix("proposal/")) if text.removeprefix("proposal/").isdigit() else 0)
    candidate = candidate_of(world, row.dataset_id, row.run_id)
    if candidate is None:
        raise UsageError(
            f"{text} has no candidate any more.", expected="one that can be read", remedy="`kfm review` lists those that wait."
        )
    for path, artifact in candidate["artifacts"].items():
        stored = world.data.stat(artifact["from"])
        if stored is None or stored.digest != artifact["digest"] or artifact["from"].endswith(SEALED):
            raise IntegrityError(
                f"{path} of {text} cannot be shown: it is damaged or sealed.", expected=artifact["digest"], remedy="Run the dataset again."
            )
    entry = world.registry(row.dataset_id)
    return Located(
        dataset_id=row.dataset_id,
        label=text,
        version_id=candidate["version_id"],
        generation=None,
        files={path: world.data.local(a["from"]) for path, a in candidate["artifacts"].items()},
        business_key=entry.business_key if entry is not None else (),
    )
