"""What proves a version that the boundary let out: its records, the generation that made it
official, where it comes from, who agreed.
"""

from collections.abc import Sequence
from typing import NamedTuple

from kfm.access.boundary import NOBODY, Opened, Reader, folder_of
from kfm.access.history import generations_of
from kfm.model import Generation, IntegrityError, Json, canonical, ids, is_record
from kfm.model.paths import approvals_path, generation_path, prov_path, version_path
from kfm.world.world import World

__all__ = ["ProofFile", "Proofs", "proof_files", "proofs_of"]


class ProofFile(NamedTuple):
    """A file that proves something, and its bytes as they lie there."""

    path: str  # below the data zone
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
    """The same as the files they are. Raises `Denied`, and `IntegrityError` for a record that is
    not what the version lists.
    """
    opened = folder_of(world, text, reader)
    found = _records(opened, text)
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
    if made.generation != number:
        places["made"] = generation_path(opened.dataset_id, made.generation)
    for name, path in places.items():
        if world.data.exists(path):
            found[name] = ProofFile(path, world.data.read(path))
    return Proofs(opened, made, found)


def _records(opened: Opened, text: str) -> dict[str, ProofFile]:
    """The records of a version, each checked against its digest."""
    found = {}
    for name, path in opened.files.items():
        if not is_record(name):
            continue
        raw = path.read_bytes() if path.is_file() else b""
        if ids.digest(raw) != opened.digests[name]:
            raise IntegrityError(
                f"{name} of {text} is damaged.",
                expected=opened.digests[name],
                remedy="Run `kfm verify`; restore it from a backup.",
            )
        at = version_path(opened.dataset_id, opened.version_id, name)
        found[name.removesuffix(".json")] = ProofFile(at, raw)
    return found


def _came_with(rows: Sequence[Generation], last: int, version_id: str) -> Generation:
    """The generation that a version came with: the last up to `last` that promoted it, else the
    first that names it.
    """
    named = [g for g in rows if g.version_id == version_id and g.generation <= last]
    return next((g for g in reversed(named) if g.kind == "promote"), named[0])
