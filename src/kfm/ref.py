"""References: DATASET, DATASET@vHEX (8 or more digits), DATASET@GENERATION."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kfm.channel import EMPTY, last_act, whole_withdrawn, withdrawn_by, withdrawn_inside
from kfm.errors import Denied, IntegrityError, UsageError
from kfm.model.ids import check_dataset_id
from kfm.model.ledger import Generation
from kfm.model.version import is_record
from kfm.proposal import run_of
from kfm.raw import parse_checksums
from kfm.release import candidate_of, digest_of, is_withheld, open_table
from kfm.status import shown
from kfm.world import World

__all__ = ["Located", "Ref", "dataset_of", "locate", "proposal_number", "resolve"]


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
            f"{text} is not official.", expected="a version that is", remedy=f"`kfm review {text.removeprefix('proposal/')}` shows it."
        )
    return check_dataset_id(text.removeprefix("kfm://dataset/").partition("@")[0])


def proposal_number(text: str) -> int:
    """The number in N or proposal/N."""
    found = _number(text.removeprefix("proposal/"))
    if found is None:
        raise UsageError(f"{text!r} is not a proposal.", expected="N or proposal/N", remedy="`kfm review` lists those that wait.")
    return found


def _number(text: str) -> int | None:
    """A plain whole number the store can hold, else None."""
    return int(text) if re.fullmatch("[0-9]{1,9}", text) else None


def resolve(world: World, text: str) -> Ref:
    """The version a reference means; resolved through the channel, never through what happens to lie in a folder."""
    dataset_id, which = dataset_of(text), text.partition("@")[2]
    world.store.transaction(lambda tx: world.channel(dataset_id).head(tx))
    rows: list[Generation] = world.store.read(lambda tx: tx.index.generations(dataset_id))
    if not rows:
        raise UsageError(f"{dataset_id} has no official version yet.", expected="a published dataset", remedy=_way_on(world, dataset_id))
    if not which:
        found = rows[-1]
    elif re.fullmatch(r"v[0-9a-f]{8,32}", which):
        found = _by_prefix(world, rows, which, text)
    elif (number := _number(which)) is not None:
        found = next((g for g in rows if g.generation == number), rows[0])
        if found.generation != number:
            raise UsageError(
                f"{dataset_id} has no generation {which}.", expected=f"1 to {rows[-1].generation}", remedy="Choose one of them."
            )
    else:
        raise UsageError(
            f"{text!r} is not a reference.", expected="DATASET, DATASET@vHEX (8 or more digits) or DATASET@GENERATION", remedy="Correct it."
        )
    if found.version_id is None:
        act: Generation = world.store.read(lambda tx: last_act(tx, found))
        if act.kind != "withdraw":  # a store that was rebuilt before anything was official
            raise UsageError(f"{text} has no official version.", expected="a published dataset", remedy=_way_on(world, dataset_id))
        raise _withdrawn(text, dataset_id, str(act.generation))
    names = {"", *(key.split("|")[0] for key in found.contents)}
    gone = withdrawn_inside(rows[-1], found) or next(filter(None, (whole_withdrawn(rows[-1], name) for name in names)), None)
    if gone is not None:
        raise _withdrawn(text, dataset_id, gone)
    _check_kept(world, text, dataset_id, found.version_id)
    return Ref(dataset_id, found.version_id, str(found.version_digest), found.generation)


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


def _check_kept(world: World, text: str, dataset_id: str, version_id: str) -> None:
    from kfm.retention import removed_versions  # it resolves references itself

    if version_id in removed_versions(world.data, dataset_id):
        raise Denied(
            f"{text} is gone: retention removed it, and a receipt of maintenance.gc lists its files.",
            expected="a version that is kept",
            remedy=f"`kfm runs {dataset_id}` lists what there is; a backup or a bundle may still have it.",
        )


def _withdrawn(text: str, dataset_id: str, generation: str) -> Denied:
    return Denied(
        f"{text} may not be shown. Generation {generation} withdrew it.",
        expected="a version that was not withdrawn",
        remedy=f"`kfm explain {dataset_id}@{generation}` says why.",
    )


def _by_prefix(world: World, rows: list[Generation], prefix: str, text: str) -> Generation:
    fitting = {g.version_id: g for g in rows if g.version_id is not None and g.version_id.startswith(prefix)}
    if len(fitting) > 1:
        raise UsageError(f"{text} names {len(fitting)} versions.", expected="a prefix of exactly one version", remedy="Give more digits.")
    if not fitting:
        dataset_id = rows[0].dataset_id
        waiting = world.store.read(lambda tx: tx.index.proposals_waiting())
        number = next((n for n, r in waiting if r.dataset_id == dataset_id and str(r.version_id).startswith(prefix)), None)
        remedy = f"`kfm runs {dataset_id}` lists what there is." if number is None else f"It waits for a person: `kfm review {number}`."
        raise UsageError(f"{text} names no version that is or was official.", expected="one of this dataset's versions", remedy=remedy)
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
    row = run_of(world, proposal_number(text))
    head: Generation = world.store.transaction(lambda tx: world.channel(row.dataset_id).head(tx))
    later = [g for name, g in head.suppressed.items() if name.startswith("rule\n") and int(g) > (row.pinned or 0)]
    gone = withdrawn_by(head, row, str(row.version_id)) or next(iter(later), None)
    if gone is not None:
        raise _withdrawn(text, row.dataset_id, gone)
    candidate = candidate_of(world, row.dataset_id, row.run_id)
    if candidate is None:
        raise UsageError(
            f"{text} has no candidate any more.", expected="one that can be read", remedy="`kfm review` lists those that wait."
        )
    for path, artifact in candidate["artifacts"].items():
        if digest_of(world, artifact) != artifact["digest"] or is_withheld(artifact):
            raise IntegrityError(
                f"{path} of {text} cannot be shown: it is damaged or sealed.", expected=artifact["digest"], remedy="Run the dataset again."
            )
    entry = world.registry(row.dataset_id)
    return Located(
        dataset_id=row.dataset_id,
        label=text,
        version_id=candidate["version_id"],
        generation=None,
        files={path: _opened(world, row.dataset_id, a) for path, a in candidate["artifacts"].items()},
        business_key=entry.business_key if entry is not None else (),
    )


def _opened(world: World, dataset_id: str, artifact: Mapping[str, Any]) -> Path:
    """An artifact of a candidate as a file; what is sealed at rest is opened for as long as this world is."""
    if "at_rest" not in artifact:
        return world.data.local(artifact["from"])
    return open_table(world, dataset_id, artifact, world.opened.enter_context(world.data.scratch()))
