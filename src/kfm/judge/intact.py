"""intact: is everything a promotion relies on there, unchanged and signed? Asked before each one,
and by who judges again.
"""

from collections.abc import Callable, Mapping

import msgspec
from msgspec import UNSET

from kfm.channel.generations import pinned_parts
from kfm.evidence.captures import parse_checksums
from kfm.evidence.folder_check import Verified, verify_in_zone
from kfm.evidence.journal import Journal
from kfm.evidence.proposal import load
from kfm.evidence.receipts import find_receipt
from kfm.keys.attest import check_attestation
from kfm.model import (
    ATTESTATION,
    Assembled,
    Captured,
    Denied,
    Generation,
    IntegrityError,
    KfmError,
    LedgerRow,
    Reason,
    ids,
    is_assembly,
    is_record,
)
from kfm.model.paths import capture_folder, pins_path, proposal_path, run_path, version_folder
from kfm.release.dataset_inputs import fetch_table
from kfm.world.world import World
from kfm.zones.base import Zone

__all__ = ["check_files", "check_version_folder", "check_vouched", "inputs_changed"]


def check_files(world: World, row: LedgerRow, wal: Journal | None) -> list[Reason]:
    """Every file the proposal names is there and unchanged; a missing one is a reason, a changed
    one raises.

    The journal says what proposal.json must be and which capture it came from; None once it is
    archived.
    """
    again = f"`kfm run {row.dataset_id} --force --reason …` makes it again."
    try:
        proposal, digest = load(world, row)
    except Denied as error:
        return [Reason(code="proposal.missing", message=error.happened, remedy=error.remedy)]
    listed = {proposal_path(row.dataset_id, row.run_id, n): d for n, d in proposal.files.items()}
    there = {p: ids.digest(world.kept(p)) for p in listed if world.data.exists(world.lies(p))}
    receipts = {run_path(row.dataset_id, row.run_id, n): d for n, d in proposal.receipts.items()}
    # it waited for people: what it was made from must still be what they relied on
    if wal is not None and proposal.approvals:
        receipts |= _capture_files(world.data, row, wal)
    there |= {p: found for p in receipts if (found := world.named(p)) is not None}
    listed |= receipts
    changed = [p for p, d in there.items() if listed[p] != d]
    judged = wal.payload("assemble", Assembled) if wal is not None else None
    if changed or (judged is not None and judged.proposal not in (UNSET, digest)):
        what = changed[0] if changed else proposal_path(row.dataset_id, row.run_id)
        raise IntegrityError(
            f"{what} was changed after it was proposed.", expected="what was judged", remedy=again
        )
    return [
        Reason(code=_missing(p), message=f"{p} is missing.", remedy=again)
        for p in listed
        if p not in there
    ]


def inputs_changed(world: World, row: LedgerRow) -> bool:
    """Whether a dataset this one is joined from has other records, or other withdrawals, than when
    it was made.
    """
    joined = [
        s
        for s in msgspec.json.decode(row.source_metadata)
        if s["source_url"].startswith("kfm://dataset/")
    ]
    if not joined:
        return False
    with world.data.scratch() as scratch:
        veil = world.veil(row.dataset_id)
        return any(
            fetch_table(
                world, s["source_url"], veil.uncover(s["etag"]), scratch / s["source_id"]
            ).status
            != 304
            for s in joined
        )


def _capture_files(data: Zone, row: LedgerRow, wal: Journal) -> dict[str, str]:
    if is_assembly(row):
        found = {pins_path(row.dataset_id, str(row.part)): str(row.part)}
        for part in pinned_parts(data, row) or ():
            found |= _files_of_capture(data, row, part.capture_id)
        return found
    capture = wal.payload("capture", Captured)
    return _files_of_capture(data, row, capture.capture_id if capture is not None else None)


def _files_of_capture(data: Zone, row: LedgerRow, capture_id: str | None) -> dict[str, str]:
    folder = capture_folder(row.dataset_id, str(capture_id))
    if not data.exists(f"{folder}/checksums.sha256"):
        return {f"{folder}/checksums.sha256": ""}
    return {
        f"{folder}/{n}": d
        for n, d in parse_checksums(data.read(f"{folder}/checksums.sha256")).items()
    }


def _missing(path: str) -> str:
    """The code of a missing file: what kind of evidence it is."""
    if path.endswith("attestation.json"):
        return "attestation.missing"
    return (
        "catalog.missing"
        if path.endswith(("dcat.json", "stac.json", "prov.json", "version.json"))
        else "receipts.missing"
    )


def check_version_folder(world: World, row: LedgerRow, artifacts: Mapping[str, str]) -> None:
    """A version folder is accepted only when it is whole: the same data, every byte, no other file,
    signed by a builder.

    Its records are those of its first promotion; they speak of the same bytes.
    """
    found, where = Verified(), version_folder(row.dataset_id, row.version_id)
    verify_in_zone(world.data, where, found)
    listed = {} if found.problems else parse_checksums(world.data.read(f"{where}/checksums.sha256"))
    if not found.problems and {p: d for p, d in listed.items() if not is_record(p)} != artifacts:
        found.wrong(where, "it holds other data under the same version id")
    if not found.problems:
        try:
            check_vouched(
                world,
                row.dataset_id,
                row.version_id,
                world.data.read(f"{where}/{ATTESTATION}"),
                {p: d for p, d in listed.items() if p != ATTESTATION},
                # the gate has judged what was proposed
                lambda: load(world, row)[0].files.get(ATTESTATION),
            )
        except (KfmError, OSError) as error:
            found.wrong(f"{where}/{ATTESTATION}", getattr(error, "happened", "it is missing"))
    if found.problems:
        problem = found.problems[0]
        raise IntegrityError(
            f"{problem['where']} cannot be published: {problem['what']}.",
            expected="a version folder exactly as it was promoted",
            remedy=(
                "`kfm doctor --fix` puts back what is missing and lies elsewhere here; else restore"
                " it from a backup."
            ),
        )


def check_vouched(
    world: World,
    dataset_id: str,
    version_id: str | None,
    raw: bytes,
    files: Mapping[str, str],
    proposed: Callable[[], str | None] = lambda: None,
) -> None:
    """A builder signed exactly these files of a version: one whose key holds, or one for whom a
    generation vouches, or for what was `proposed`. Raises `Denied`, and `IntegrityError` for damage.
    """
    try:
        check_attestation(raw, world.keys, files)
    except Denied:  # by a key that is out of use since
        named = {proposed(), *_vouched_for(world, dataset_id, version_id)}
        check_attestation(raw, world.keys, files, named)


def _vouched_for(world: World, dataset_id: str, version_id: str | None) -> set[str]:
    """The attestations of a version that receipts name which its generations name: they hold,
    whatever became of the key since.
    """
    found = set()
    made: list[Generation] = world.store.read(lambda tx: tx.index.generations(dataset_id))
    for generation in (g for g in made if g.kind == "promote" and g.version_id == version_id):
        told = world.channel(dataset_id).predicate(generation.generation)
        path = find_receipt(world.root, generation.run_id)
        raw = world.root.read(path) if path is not None else b""
        if told is not None and ids.digest(raw) == told.receipts_digest:
            found.add(str(msgspec.json.decode(raw)["provenance"]["files"].get(ATTESTATION)))
    return found
