"""verify: are the bytes, digests and signatures what they say they are?"""

from contextlib import suppress
from pathlib import Path

import msgspec

from kfm.channel.chain import order_problem
from kfm.channel.roots import root_problem
from kfm.evidence.acts import erasing
from kfm.evidence.approval_count import on_record
from kfm.evidence.captures import parse_checksums
from kfm.evidence.folder_check import (
    Verified,
    kind_of,
    note_unapproved,
    note_uncompared,
    note_unrecorded,
    verify_in_zone,
)
from kfm.evidence.journal import check_chain
from kfm.evidence.proofs import missing_proofs
from kfm.evidence.receipts import JOB_TYPE
from kfm.evidence.removed import removed_versions
from kfm.evidence.version_records import read_facts
from kfm.evidence.withdrawal_check import Compared, taken_away
from kfm.judge.release import suppress_rules
from kfm.keys.approvals import check_recorded, unapproved, unrecorded
from kfm.keys.attest import check_attestation
from kfm.keys.trust import out_of_step
from kfm.model import ids
from kfm.model.canonical import Json
from kfm.model.channel import GenerationPredicate
from kfm.model.errors import Denied, KfmError
from kfm.model.ledger import WalRecord
from kfm.model.paths import (
    approvals_path,
    capture_folder,
    captures_folder,
    channel_folder,
    parts_folder,
    precise_path,
    receipt_path,
    run_path,
    version_folder,
    version_path,
    withdrawals_folder,
    work_folder,
)
from kfm.model.version import ATTESTATION, is_record
from kfm.upkeep.erase import left_behind, left_in_inbox
from kfm.upkeep.named_files import sealed_files, verify_named
from kfm.world.world import World
from kfm.zones.base import Zone

__all__ = [
    "verify_dataset",
    "verify_left",
    "verify_receipts",
    "verify_workspace",
]


def verify_dataset(world: World, dataset_id: str, found: Verified, only: str | None = None) -> None:
    """The whole channel, every version it points at (or one), every receipt it names, every
    capture.
    """
    versions, named = _verify_channel(world, dataset_id, found)
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
    _verify_work(world, dataset_id, found)
    verify_named(world, dataset_id, found)
    for capture_id in sorted(
        {path.split("/")[3] for path in world.data.names(captures_folder(dataset_id))}
    ):
        folder = capture_folder(dataset_id, capture_id)
        # without it the capture was never finished
        if world.data.exists(f"{folder}/checksums.sha256"):
            verify_in_zone(world.data, folder, found)


def verify_receipts(world: World, found: Verified) -> None:
    """The receipts that no channel names: those of failed runs and of other jobs."""
    for path, digest in world.store.read(lambda tx: tx.effects.receipts()):
        try:
            raw = world.root.read(path)
        except OSError:
            found.wrong(path, "the receipt is missing", kind="missing")
            continue
        told = _decoded(raw) if path.endswith(".json") else None
        if ids.digest(raw) != digest:
            found.wrong(path, "the receipt was changed")
        elif told is not None and told.get("job_type") == JOB_TYPE:
            sealed_files(
                world, told["dataset_id"], told["run_id"], told["provenance"]["files"], found
            )


def _verify_channel(
    world: World, dataset_id: str, found: Verified
) -> tuple[dict[str, GenerationPredicate], dict[str, str]]:
    """Every generation and what it names. Returns the versions, and of each the attestation that
    its last receipt vouches for.
    """
    channel, prev, number = world.channel(dataset_id), None, 1
    trust, before, early, named = world.keys.trust(), None, 0, dict[str, str]()
    why = world.store.read(lambda tx: root_problem(tx, world.keys))
    if why is not None and not any(p["where"] == "keys/root" for p in found.problems):
        found.wrong("keys/root", why)
    versions: dict[str, GenerationPredicate] = {}
    sealed: list[GenerationPredicate] = []
    chain: dict[int, GenerationPredicate] = {}
    earlier: GenerationPredicate | None = None  # the last promotion before those in `sealed`
    while world.data.exists(channel.path(number)):
        try:
            predicate = channel.predicate(number)
        except (KfmError, msgspec.ValidationError) as error:
            found.wrong(
                channel.path(number),
                getattr(error, "happened", str(error)),
                getattr(error, "exit_code", 6),
            )
            break
        found.generations += 1
        if predicate is None or predicate.prev != prev:
            found.wrong(channel.path(number), "it does not continue the generation before it")
            break
        why = out_of_step(trust, predicate.root, before)
        why = (
            why
            or (channel.lift_problem(predicate) if predicate.lifts is not None else None)
            or order_problem(chain, predicate)
        )
        if why is not None:
            found.wrong(channel.path(number), why)
            break
        before, early = predicate.root, early + (predicate.root is None)
        prev, chain[number] = ids.digest(world.data.read(channel.path(number))), predicate
        if any(rule.get("erased") for rule in predicate.suppress):
            earlier = sealed[-1] if sealed else earlier
            # their bytes were destroyed, and the generation says by whose authority
            versions, sealed = {}, []
        if predicate.version_id is not None:
            if predicate.kind == "promote":
                sealed.append(predicate)
                versions[predicate.version_id] = predicate
            versions.setdefault(predicate.version_id, predicate)
        number += 1
    for last, predicate in zip([earlier, *sealed], sealed):
        _verify_receipt(world, dataset_id, predicate, found, named, last)
    known = world.store.read(lambda tx: tx.index.last_generation(dataset_id))
    if known is not None and number <= known.generation and not found.problems:
        found.wrong(channel.path(number), "it is missing, and the store knows it", kind="missing")
    files = list(world.data.names(channel_folder(dataset_id)))
    if len(files) != number - 1 and not any(
        p["where"].startswith("catalog/channels") for p in found.problems
    ):
        found.wrong(
            channel_folder(dataset_id), "a generation is missing in the middle", kind="missing"
        )
    _verify_approvals(world, dataset_id, chain, found)
    if early:
        found.notes.append(
            f"{early} generations of {dataset_id} were made before root versions were recorded"
        )
    return versions, named


def _verify_approvals(
    world: World, dataset_id: str, chain: dict[int, GenerationPredicate], found: Verified
) -> None:
    """Enough people agreed to each promoted generation, by the record it names."""
    trust = world.keys.trust()
    if trust is None:
        return
    promoted = {n: g for n, g in chain.items() if g.kind == "promote"}

    def wrong(number: int, what: str, code: int) -> None:
        path = (
            approvals_path(dataset_id, chain[number].run_id)
            if chain[number].run_id
            else world.channel(dataset_id).path(number)
        )
        found.wrong(path, f"generation {number}: {what}", code)

    records, builders = on_record(world, dataset_id, promoted)
    note_unrecorded(found, dataset_id, unrecorded(chain, dataset_id, trust, wrong))
    check_recorded(chain, records, builders, trust, wrong)
    verify_left(world.data, dataset_id, chain, unapproved(chain, records), found)


def verify_left(
    zone: Zone,
    dataset_id: str,
    chain: dict[int, GenerationPredicate],
    alone: list[int],
    found: Verified,
) -> None:
    """What a withdrawal left lay in the version before it; `alone` are those whose new tables
    somebody should have approved.
    """
    for number, made in chain.items():
        if made.kind != "withdraw" or made.version_id is None:
            continue
        before = _tables(zone, dataset_id, chain[number - 1].version_id if number > 1 else None)
        left = _tables(zone, dataset_id, made.version_id)
        # None: one is gone, nobody can compare
        new = left.items() - before.items() if before is not None and left is not None else None
        for path in sorted(p for p, _ in new or () if before is not None and p not in before):
            where = version_path(dataset_id, made.version_id, path)
            found.wrong(
                where,
                f"generation {number} is a withdrawal, and the version before it has no such file",
                3,
            )
        earlier = chain[number - 1].version_id if number > 1 else None
        for path in sorted(
            p for p, _ in new or () if before is not None and p in before and earlier is not None
        ):
            told = (
                taken_away(zone, dataset_id, str(earlier), made.version_id, path)
                if path.endswith(".parquet")
                else Compared("it was changed")
            )
            if told.wrong:
                where = version_path(dataset_id, made.version_id, path)
                found.wrong(
                    where,
                    f"generation {number} is a withdrawal, and takes away only: {told.wrong}",
                    3,
                )
            elif told.not_compared:
                note_uncompared(found, dataset_id, number, told.not_compared)
        if new is None:
            note_uncompared(found, dataset_id, number, "the version before it is not here")
        if number in alone and (new is None or new):
            note_unapproved(found, dataset_id, number)


def _tables(zone: Zone, dataset_id: str, version_id: str | None) -> dict[str, str] | None:
    """The data of a version, path -> digest; None when it is not here or cannot be read, which is
    said elsewhere.
    """
    listing = version_path(dataset_id, version_id, "checksums.sha256")
    if version_id is None:
        return {}
    try:
        return (
            {p: d for p, d in parse_checksums(zone.read(listing)).items() if not is_record(p)}
            if zone.exists(listing)
            else None
        )
    except (UnicodeDecodeError, ValueError):
        return None


def _verify_receipt(
    world: World,
    dataset_id: str,
    predicate: GenerationPredicate,
    found: Verified,
    named: dict[str, str],
    before: GenerationPredicate | None,
) -> None:
    record = run_path(dataset_id, predicate.run_id, "run_record.json")
    if not world.data.exists(record):
        found.wrong(
            record, "the record of the run that made this generation is missing", 3, "missing"
        )
        return
    told = _decoded(world.data.read(record))
    if told is None:
        found.wrong(record, "it is not readable")
        return
    started = told.get("started_at", "")
    path = receipt_path(predicate.run_id, started)
    if not world.root.exists(path):
        found.wrong(path, "the receipt this generation names is missing", 3, "missing")
        return
    raw = world.root.read(path)
    if ids.digest(raw) != predicate.receipts_digest:
        found.wrong(path, "the receipt is not the one that was sealed")
        return
    sealed = _decoded(raw)
    if sealed is None:
        found.wrong(path, "it is not readable")
        return
    for why in missing_proofs(sealed, predicate, before):
        found.wrong(path, why, 3)
    files = dict(sealed["provenance"]["files"])
    if ATTESTATION in files:
        # compared where the version is looked at
        named[str(predicate.version_id)] = files.pop(ATTESTATION)
    sealed_files(world, dataset_id, predicate.run_id, files, found, gone=3)


def _decoded(raw: bytes) -> Json | None:
    try:
        found = msgspec.json.decode(raw)
    except msgspec.DecodeError:
        return None
    return found if isinstance(found, dict) else None


def _verify_work(world: World, dataset_id: str, found: Verified) -> None:
    """Archived journals by their hash chains, parts by their names, raw indexes by what they list,
    rules by what was signed.
    """

    head = world.store.read(lambda tx: tx.index.last_generation(dataset_id))
    try:
        suppress_rules(world, dataset_id, head.suppressed if head is not None else {})
    except Denied as error:
        found.wrong(f"keys/data/{dataset_id}", error.happened, 3, "missing")
    except KfmError as error:
        found.wrong(withdrawals_folder(dataset_id), error.happened)
    precise = precise_path(dataset_id, head.version_id if head is not None else None)
    records: Json = {}
    if (
        world.data.exists(world.lies(precise))
        and world.vaults is not None
        and not world.vaults.has_key(dataset_id)
    ):
        found.wrong(
            f"keys/data/{dataset_id}", "the key of the sealed records is missing", 3, "missing"
        )
    elif world.data.exists(world.lies(precise)):
        try:
            records = _decoded(world.kept(precise)) or {}
        except KfmError as error:
            found.wrong(world.lies(precise), error.happened, kind=kind_of(error))
    for stored in records.values():
        if not world.data.exists(stored["from"]):
            found.wrong(
                stored["from"],
                "the sealed records the official version was released from are missing",
                3,
                "missing",
            )
    for path in world.data.names(work_folder(dataset_id)):
        if path.endswith("/wal.jsonl"):
            found.files += 1
            try:
                check_chain(
                    [
                        msgspec.json.decode(line, type=WalRecord)
                        for line in world.data.read(path).splitlines()
                    ]
                )
            except (KfmError, msgspec.DecodeError, msgspec.ValidationError):
                found.wrong(path, "the archived journal is damaged")
        elif path.startswith(parts_folder(dataset_id) + "/"):
            found.files += 1
            stored = world.data.stat(path)
            if stored is None or not stored.digest.startswith(f"sha256:{path.split('/')[3]}"):
                found.wrong(path, "its bytes are not those it is named after")


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
        full = ids.version_digest(data, facts["transform_hash"], facts["updater_version"])
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
