"""The channel of a dataset: every generation, who agreed to it, and the receipt it names."""

import msgspec

from kfm.access.approval_count import on_record
from kfm.channel.generations import order_problem
from kfm.channel.roots import root_problem
from kfm.evidence.folder_check import Verified, note_unrecorded
from kfm.keys.approvals import check_recorded, unapproved, unrecorded
from kfm.keys.trust import out_of_step
from kfm.model import ATTESTATION, GenerationPredicate, KfmError, ids
from kfm.model.paths import approvals_path, channel_folder, receipt_path, run_path
from kfm.upkeep.after_withdrawal import verify_left
from kfm.upkeep.named_files import decoded, needing_entry, sealed_files
from kfm.upkeep.proofs import missing_proofs
from kfm.world.world import World

__all__ = ["verify_chain"]


def verify_chain(
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
        with needing_entry(dataset_id, found):
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
    with needing_entry(dataset_id, found):
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
    told = decoded(world.data.read(record))
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
    sealed = decoded(raw)
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
