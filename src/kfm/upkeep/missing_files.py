"""missing_files: every file of work that evidence names is there, unless retention removed it, an
erasure destroyed it or it was set aside damaged; each of these left a word.
"""

from collections.abc import Iterator, Mapping, Sequence

import msgspec

from kfm.evidence.folder_check import Verified
from kfm.evidence.journal import check_chain, done_of
from kfm.evidence.receipts import archive_key
from kfm.evidence.removed import removed_files
from kfm.evidence.run_files import Packed, read_run_file
from kfm.keys.commitments import SEALED
from kfm.model import (
    Assembled,
    Captured,
    Json,
    KfmError,
    LedgerRow,
    PartDone,
    WalRecord,
    denial_codes,
    ids,
    is_assembly,
)
from kfm.model.paths import (
    approvals_path,
    aside_path,
    capture_folder,
    part_folder,
    pins_path,
    precise_path,
    proposal_path,
    raw_path,
    run_path,
    version_path,
    work_folder,
)
from kfm.release.by_rule import candidate_of
from kfm.world.world import World

__all__ = ["Lawful", "is_erased", "journal_of", "verify_present"]

# what `check_files` says of a file that is not there
GONE = frozenset(f"{kind}.missing" for kind in ("proposal", "attestation", "catalog", "receipts"))
PROPOSED = ("PROPOSED", "COMMITTED", "REJECTED")


class Lawful:
    """What may be missing, and who said so."""

    def __init__(self, world: World, dataset_id: str) -> None:
        self._removed = removed_files(world.data, dataset_id)
        self._aside = [name.rpartition("/")[2] for name in world.root.names(aside_path("")[:-1])]

    def is_gone(self, path: str) -> bool:
        """Whether a sweep had the file on its plan, or a run found it damaged and set it aside."""
        folder, name = path.split("/")[-2:]
        tail = f"-{folder[:8]}-{name}"
        return any(
            p in self._removed or any(kept.endswith(t) for kept in self._aside)
            for p, t in ((path, tail), (path + SEALED, tail + SEALED))
        )


def is_erased(run: LedgerRow) -> bool:
    """Whether an erasure left nothing of a run but that it was."""
    return not run.key and not run.input_hash


def journal_of(world: World, run: LedgerRow, packs: Packed) -> Sequence[WalRecord]:
    """The records of a run, from the store or beside its receipts; none where they are damaged,
    which is said elsewhere.
    """
    records: list[WalRecord] = world.store.read(lambda tx: tx.journals.get(run.wal_id))
    try:
        if not records:
            raw = read_run_file(world.data, run.dataset_id, run.run_id, "wal.jsonl", packs) or b""
            records = [msgspec.json.decode(line, type=WalRecord) for line in raw.splitlines()]
        check_chain(records)
    except (KfmError, msgspec.DecodeError, msgspec.ValidationError):
        return ()
    return records


def verify_present(
    world: World, dataset_id: str, runs: Sequence[LedgerRow], packs: Packed, found: Verified
) -> None:
    """Journals, proposals, parts, captures and lists of every run that was not erased."""
    lawful = Lawful(world, dataset_id)
    for run in (r for r in runs if not is_erased(r)):
        _archived(world, run, packs, lawful, found)
        for path, why in _named(world, run, packs):
            if not world.data.exists(world.lies(path)) and not lawful.is_gone(path):
                found.wrong(path, f"{why}, and it is missing", 3, "missing")


def _archived(world: World, run: LedgerRow, packs: Packed, lawful: Lawful, found: Verified) -> None:
    """The journal of a run that ended, as the store knows it; one that was rebuilt knows those it
    found.
    """
    path = run_path(run.dataset_id, run.run_id, "wal.jsonl")
    told = world.store.read(lambda tx: tx.effects.digest(archive_key(path)))
    raw = read_run_file(world.data, run.dataset_id, run.run_id, "wal.jsonl", packs)
    if told is None or lawful.is_gone(path):
        return
    if raw is None:
        found.wrong(path, "the journal was archived, and it is missing", 3, "missing")
    elif ids.digest(raw) != told:
        found.wrong(path, "it is not the journal that was archived")


def _named(world: World, run: LedgerRow, packs: Packed) -> Iterator[tuple[str, str]]:
    """(path, who names it) of every file of work and raw that a run made and nobody may remove
    without a word.
    """
    dataset_id, records = run.dataset_id, journal_of(world, run, packs)
    veil = world.veil(dataset_id)
    try:
        judged = done_of(records, "assemble", veil, Assembled)
        part = done_of(records, "transform", veil, PartDone)
        captured = done_of(records, "capture", veil, Captured)
    except KfmError:
        return  # sealed, and its key is gone, which is said elsewhere
    if is_assembly(run) and run.part:
        yield pins_path(dataset_id, run.part), "the ledger names it"
    elif part is not None:
        folder = part_folder(dataset_id, part.part)
        yield f"{folder}/{part.artifact}", "the journal of its run names it"
        yield from _stored(dataset_id, part.companions or {})
    if captured is not None and run.ended_at is not None:
        folder = capture_folder(dataset_id, captured.capture_id)
        yield f"{folder}/checksums.sha256", "the journal of its run names it"
        # a staged part is listed by the run that assembles it
        if run.state == "COMMITTED":
            yield from (
                (raw_path(dataset_id, name), "there are captures to list")
                for name in ("manifest.yml", "checksums.sha256")
            )
    # who was denied because a file of the proposal was missing has been told
    told = not GONE.isdisjoint(denial_codes(run.reason))
    if run.state not in PROPOSED or told or judged is None or not judged.proposal:
        return
    yield proposal_path(dataset_id, run.run_id), "the journal of its run names it"
    yield from _proposed(world, run)


def _proposed(world: World, run: LedgerRow) -> Iterator[tuple[str, str]]:
    dataset_id, why = run.dataset_id, "it was proposed"
    try:
        proposal = msgspec.json.decode(world.kept(proposal_path(dataset_id, run.run_id)))
        names = [*proposal["files"]], [*proposal["receipts"]]
    except (KfmError, OSError, msgspec.DecodeError, KeyError, TypeError):
        return  # damaged or missing, which is said elsewhere
    yield from ((proposal_path(dataset_id, run.run_id, name), why) for name in names[0])
    yield from ((run_path(dataset_id, run.run_id, name), why) for name in names[1])
    if world.data.exists(approvals_path(dataset_id, run.run_id)):
        yield proposal_path(dataset_id, run.run_id, "approvals.json"), "its generation names it"
    candidate = candidate_of(world, dataset_id, run.run_id)
    if candidate is None:
        return
    yield from _stored(dataset_id, candidate.artifacts)
    yield from _stored(dataset_id, candidate.precise)
    official = version_path(dataset_id, candidate.version_id, "checksums.sha256")
    if run.state == "COMMITTED" and candidate.precise and world.data.exists(official):
        yield precise_path(dataset_id, candidate.version_id), "its version was released from it"


def _stored(dataset_id: str, stored: Mapping[str, Json]) -> Iterator[tuple[str, str]]:
    for made in stored.values():
        for file in (made, made.get("explained") or {}):
            # the rest lies in versions, which are looked at by themselves
            if str(file.get("from", "")).startswith(work_folder(dataset_id) + "/"):
                yield file["from"], "what was proposed is made from it"
