"""verify: are the bytes, digests and signatures what they say they are?"""

import re
from collections.abc import Callable
from contextlib import suppress
from functools import cache, partial
from pathlib import Path

from kfm.evidence.captures import parse_checksums
from kfm.evidence.folder_check import Verified, verify_in_zone
from kfm.evidence.intended_acts import erasing
from kfm.evidence.removed import removed_versions
from kfm.evidence.version_records import read_facts
from kfm.keys.attest import check_attestation
from kfm.model import ATTESTATION, INGEST, GenerationPredicate, Json, KfmError, ids, is_record
from kfm.model.paths import capture_folder, captures_folder, run_path, version_folder
from kfm.upkeep.chain_check import verify_chain
from kfm.upkeep.erase import left_behind, left_in_inbox
from kfm.upkeep.missing_files import Lawful, is_erased
from kfm.upkeep.named_files import decoded, needing_entry, sealed_files, verify_named
from kfm.upkeep.work_check import verify_work
from kfm.world.world import World

__all__ = [
    "verify_dataset",
    "verify_receipts",
    "verify_words",
    "verify_workspace",
]


def verify_dataset(world: World, dataset_id: str, found: Verified, only: str | None = None) -> None:
    """The whole channel, every version it points at (or one), every receipt it names, every
    capture.
    """
    versions, named = verify_chain(world, dataset_id, found)
    for version_id in sorted(
        {v for v in versions if only is None or v == only}
        - removed_versions(world.data, dataset_id)
    ):
        folder = version_folder(dataset_id, version_id)
        found.versions += 1
        if not any(True for _ in world.data.names(folder)):
            found.wrong(folder, "the version is missing", kind="missing")
            continue
        verify_in_zone(world.data, folder, found)
        _verify_version_digest(
            world, dataset_id, version_id, versions[version_id], found, named.get(version_id)
        )
    with suppress(KfmError):  # a damaged generation, which is said already
        for path, why in left_behind(world, dataset_id) if only is None else ():
            found.wrong(path, why, 3)
        for path, (why, needed) in left_in_inbox(world, dataset_id).items() if only is None else ():
            if needed:
                found.notes.append(f"{path}: {why}, for {needed} comes from it, too")
            else:
                found.wrong(path, f"{why}; remove it, or bring one without what was erased", 3)
    # half of it may be gone, and all of it is to go
    if only is not None or erasing(world, dataset_id):
        return
    for look in (verify_work, verify_named):
        with needing_entry(dataset_id, found):
            look(world, dataset_id, found)
    for capture_id in sorted(
        {path.split("/")[3] for path in world.data.names(captures_folder(dataset_id))}
    ):
        folder = capture_folder(dataset_id, capture_id)
        # without it the capture was never finished
        if world.data.exists(f"{folder}/checksums.sha256"):
            verify_in_zone(world.data, folder, found)


def verify_words(world: World, found: Verified) -> None:
    """What stewards signed, grants and permits; each file is named after its bytes."""
    for kind in ("grants", "permits"):
        for path in world.root.names(kind):
            name = Path(path).name.removesuffix(".json")
            if re.fullmatch("[0-9a-f]{16}", name) and not _is_named_after(world, path, name):
                found.wrong(path, "it is not what was signed, and counts for nothing")


def _is_named_after(world: World, path: str, name: str) -> bool:
    return ids.digest(world.root.read(path)).removeprefix("sha256:").startswith(name)


def verify_receipts(world: World, found: Verified) -> None:
    """The receipts that no channel names: those of failed runs and of other jobs."""
    lawful_of = cache(partial(Lawful, world))
    for path, digest in world.store.read(lambda tx: tx.effects.receipts()):
        try:
            raw = world.root.read(path)
        except OSError:
            found.wrong(path, "the receipt is missing", kind="missing")
            continue
        told = decoded(raw) if path.endswith(".json") else None
        if ids.digest(raw) != digest:
            found.wrong(path, "the receipt was changed")
        elif told is not None and told.get("job_type") == INGEST:
            with needing_entry(told["dataset_id"], found):
                _verify_run_receipt(world, told, lawful_of, found)


def _verify_run_receipt(
    world: World, told: Json, lawful_of: Callable[[str], Lawful], found: Verified
) -> None:
    dataset_id, run_id = told["dataset_id"], told["run_id"]
    row = world.store.read(lambda tx: tx.runs.get(run_id))
    files = told["provenance"]["files"]
    if row is None or is_erased(row) or erasing(world, dataset_id):
        sealed_files(world, dataset_id, run_id, files, found)
        return
    lawful = lawful_of(dataset_id)
    sealed_files(world, dataset_id, run_id, files, found, gone=3, lawful=lawful)
    outcome = run_path(dataset_id, run_id, "outcome.json")
    # a store that was rebuilt knows no reason where there was no outcome
    told_so = row.archived and row.state != "COMMITTED" and bool(row.reason)
    if told_so and not world.data.exists(outcome) and not lawful.is_gone(outcome):
        found.wrong(outcome, "the run ended, and it is missing", 3, "missing")


def _verify_version_digest(
    world: World,
    dataset_id: str,
    version_id: str,
    predicate: GenerationPredicate,
    found: Verified,
    named: str | None,
) -> None:
    """The folder's artifacts hash to the digest the generation signed, and its attestation speaks
    of exactly these files.
    """
    folder = version_folder(dataset_id, version_id)
    if not world.data.exists(f"{folder}/checksums.sha256"):
        return  # said already
    listed = parse_checksums(world.data.read(f"{folder}/checksums.sha256"))
    try:
        facts = read_facts(world.data, dataset_id, version_id)
        data = {p: d for p, d in listed.items() if not is_record(p)}
        full = ids.version_digest(data, facts.transform_hash, facts.updater_version)
        if full != predicate.version_digest or ids.version_id(full) != version_id:
            found.wrong(folder, "its contents are not those the generation was signed for")
        if named is not None and listed.get(ATTESTATION) != named:
            found.wrong(
                f"{folder}/{ATTESTATION}", "it is not the attestation that the receipt sealed"
            )
        attested = {p: d for p, d in listed.items() if p != ATTESTATION}
        check_attestation(world.data.read(f"{folder}/{ATTESTATION}"), world.keys, attested, {named})
    except FileNotFoundError as error:
        found.wrong(
            f"{folder}/{Path(str(error.filename)).name}",
            "a record of the version is missing",
            3,
            "missing",
        )
    except (KeyError, TypeError, KfmError) as error:
        found.wrong(
            f"{folder}/{ATTESTATION}",
            getattr(error, "happened", "a record is not readable"),
            getattr(error, "exit_code", 6),
        )


def verify_workspace(world: World, dataset_ids: list[str]) -> Verified:
    found = Verified()
    for dataset_id in dataset_ids:
        verify_dataset(world, dataset_id, found)
    return found
