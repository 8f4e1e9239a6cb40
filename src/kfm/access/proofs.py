"""What proves a version that the boundary let out: its records, the generation that made it
official, where it comes from, who agreed.
"""

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from kfm.access.as_signed import damaged
from kfm.access.boundary import NOBODY, Opened, Reader, folder_of
from kfm.access.history import generations_of
from kfm.access.memory import recall
from kfm.evidence.receipts import find_receipt
from kfm.model import Denied, Generation, GenerationPredicate, Json, canonical, ids, is_record
from kfm.model.paths import (
    approvals_path,
    generation_path,
    proposal_path,
    prov_path,
    version_path,
)
from kfm.world.world import World

__all__ = ["EvidenceMissing", "ProofFile", "Proofs", "proof_files", "proofs_of"]


class EvidenceMissing(Denied):
    """What a generation was signed with is not there: nothing can be told that it would show."""


class ProofFile(NamedTuple):
    """A file that proves something, and its bytes as they lie there."""

    path: str  # below the data zone, a receipt below the workspace
    raw: bytes


class Proofs(NamedTuple):
    """What proves one version, each file by its name without its ending."""

    opened: Opened
    made: Generation  # the one the version came with; `opened` may be a later one
    files: dict[str, ProofFile]


def proofs_of(world: World, text: str, reader: Reader = NOBODY) -> dict[str, Json]:
    """What proves the version a reference means, each document by its name. Raises `Denied`."""
    return {
        name: canonical.loads(file.raw)
        for name, file in proof_files(world, text, reader).files.items()
        if file.path.endswith(".json")
    }


def proof_files(world: World, text: str, reader: Reader = NOBODY) -> Proofs:
    """The same as the files they are. Raises `Denied`, and `IntegrityError` for one that is not
    what the version lists, or what its generation was signed with.
    """
    opened = folder_of(world, text, reader)
    found = _records(opened)
    rows = generations_of(world, opened.dataset_id)
    number = int(opened.generation or 0)
    made = _came_with(rows, number, opened.version_id)
    prov = made.run_id if made.kind != "withdraw" else f"withdrawal_{made.generation}"
    places = {
        "checksums": version_path(opened.dataset_id, opened.version_id, "checksums.sha256"),
        "generation": generation_path(opened.dataset_id, number),
        "prov": prov_path(opened.dataset_id, prov),
        "approvals": approvals_path(opened.dataset_id, made.run_id),
    }
    if made.run_id and not world.data.exists(
        places["approvals"]
    ):  # until the next tick shows it in the catalog
        places["approvals"] = proposal_path(opened.dataset_id, made.run_id, "approvals.json")
    if made.generation != number:
        places["made"] = generation_path(opened.dataset_id, made.generation)
    for name, path in places.items():
        if world.data.exists(path):
            found[name] = ProofFile(path, world.data.read(path))
    at = find_receipt(world.root, made.run_id) if made.kind == "promote" else None
    if at is not None:
        found["receipt"] = ProofFile(at, world.root.read(at))
    _hold_against_signed(world, opened, made, found)
    return Proofs(opened, made, found)


class _Sealed(msgspec.Struct, frozen=True):
    files: dict[str, str]


class _Receipt(msgspec.Struct, frozen=True):
    """What a receipt names that is shown beside it."""

    provenance: _Sealed


def _hold_against_signed(
    world: World, opened: Opened, made: Generation, found: dict[str, ProofFile]
) -> None:
    """Receipt and approvals are those that the generation names, the lineage the one that the
    receipt names: nobody can tell without it. What a withdrawal left has the lineage alone, which
    nobody signed.
    """
    for number in {opened.generation or 0, made.generation}:
        signed = _signed(world, opened.dataset_id, number)
        if signed is None:
            raise damaged(f"generation {number}", opened.label, "a signed generation")
    signed = _signed(world, opened.dataset_id, made.generation)
    assert signed is not None
    named = {"receipt": signed.receipts_digest, "approvals": signed.approvals_digest}
    if made.kind == "promote" and signed.receipts_digest and "receipt" not in found:
        raise EvidenceMissing(
            f"The receipt of run {made.run_id} is missing, so what proves {opened.label} cannot be"
            " told.",
            expected="the receipt that its generation names",
            remedy="`kfm verify` lists what is missing; restore it from a backup or a bundle.",
        )
    for name in ("receipt", "approvals", "prov"):
        file, expected = found.get(name), named.get(name)
        if file is not None and not expected and name != "prov":
            del found[name]  # nobody named it
        if file is None or not expected:
            continue
        digest = ids.digest(file.raw)
        if expected not in (digest, world.stand_in(opened.dataset_id, digest)):
            raise damaged(file.path, opened.label, expected)
        if name == "receipt":
            told = msgspec.json.decode(file.raw, type=_Receipt)
            named["prov"] = told.provenance.files.get("prov.json")


def _signed(world: World, dataset_id: str, number: int) -> GenerationPredicate | None:
    key = ("signed", dataset_id, number)
    return recall(world, key, lambda: world.channel(dataset_id).predicate(number))


def _records(opened: Opened) -> dict[str, ProofFile]:
    """The records of a version, each checked against its digest."""
    found = {}
    for name, path in opened.files.items():
        if not is_record(name):
            continue
        raw = path.read_bytes() if path.is_file() else b""
        if ids.digest(raw) != opened.digests[name]:
            raise damaged(name, opened.label, opened.digests[name])
        at = version_path(opened.dataset_id, opened.version_id, name)
        found[name.removesuffix(".json")] = ProofFile(at, raw)
    return found


def _came_with(rows: Sequence[Generation], last: int, version_id: str) -> Generation:
    """The generation that a version came with: the last up to `last` that promoted it, else the
    first that names it.
    """
    named = [g for g in rows if g.version_id == version_id and g.generation <= last]
    return next((g for g in reversed(named) if g.kind == "promote"), named[0])
