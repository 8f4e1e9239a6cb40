"""judge_again: every gate on a reference, as things are now: a proposal, a denied candidate, or an
official version.
"""

from collections.abc import Sequence

import msgspec

from kfm.catalog.check import check_records
from kfm.channel.chain import EMPTY
from kfm.evidence.folder_check import Kind, Verified
from kfm.evidence.journal import Journal
from kfm.evidence.projection import shown_version
from kfm.evidence.proposal import (
    Judged,
    approvals_of,
    builder_of,
    count,
    load,
    one_account,
    registry_digest,
    run_of,
)
from kfm.evidence.references import resolve
from kfm.evidence.version_records import derived_prov, read_facts, version_listing, version_records
from kfm.judge.candidate import (
    asked_of,
    attested,
    catalog_reasons,
    described_candidate,
    evidence_of,
    judge,
    official_candidate,
    reason,
)
from kfm.judge.intact import check_files
from kfm.judge.release import candidate_of
from kfm.model import ids
from kfm.model.candidate import Candidate
from kfm.model.canonical import Json
from kfm.model.errors import Denied, IntegrityError, KfmError, UsageError
from kfm.model.ledger import SAID_NO, Generation, LedgerRow, denial_codes
from kfm.model.paths import dcat_path, prov_folder, prov_path, stac_folder, version_folder
from kfm.model.proposal import Proposal
from kfm.model.transform import Books
from kfm.model.verdict import Evidence, Reason, Verdict
from kfm.run.assemble import judge_candidate
from kfm.run.withdraw import derived_candidate
from kfm.upkeep.verify import verify_dataset
from kfm.world.world import World

__all__ = ["Judgement", "check_version", "judge_ref", "may_show", "policy_input"]


class Judgement(msgspec.Struct, frozen=True, kw_only=True):
    """What every gate says of one reference."""

    dataset_id: str
    what: str  # in words
    version_id: str | None
    verdicts: tuple[Verdict, ...]
    proposal: int | None = None
    state: str = ""
    base_generation: int | None = None
    approvals: tuple[Judged, ...] = ()
    needed: int = 0
    exit_code: int = 0
    one_account: tuple[str, ...] = ()  # who approved from the account that holds the builder's key


def judge_ref(world: World, text: str) -> Judgement:
    """`proposal/N`, DATASET (the newest candidate that is not official, else the official version),
    DATASET@vHEX or DATASET@GENERATION.
    """
    if text.startswith("proposal/") or text.isdigit():
        return _proposal(world, run_of(world, _number(text)))
    dataset_id = text.removeprefix("kfm://dataset/").partition("@")[0]
    if "@" not in text:
        rows: list[LedgerRow] = world.store.read(lambda tx: tx.runs.recent(dataset_id, 200))
        last = next((r for r in rows if r.state not in ("NOOP", "SUPERSEDED", "FAILED")), None)
        left = last is not None and candidate_of(world, dataset_id, last.run_id) is not None
        if last is not None and (last.state == "PROPOSED" or (last.state == "REJECTED" and left)):
            return _proposal(world, last)
    return _official(world, dataset_id, text)


def _number(text: str) -> int:
    digits = text.removeprefix("proposal/")
    if not digits.isdigit():
        raise UsageError(
            f"{text!r} is not a proposal.",
            expected="proposal/N",
            remedy="`kfm review` lists those that wait.",
        )
    return int(digits)


def _proposal(world: World, row: LedgerRow) -> Judgement:
    world.store.transaction(lambda tx: world.channel(row.dataset_id).head(tx))
    head: Generation = world.store.read(
        lambda tx: tx.index.last_generation(row.dataset_id)
    ) or EMPTY(row.dataset_id)
    candidate = candidate_of(world, row.dataset_id, row.run_id)
    code, verdicts, waits, given = 0, list[Verdict](), 0, list[Judged]()
    try:
        records = world.store.read(lambda tx: tx.journals.get(row.wal_id))
        missing = check_files(
            world,
            row,
            (
                Journal(world.store, world.clock, row, records, veil=world.veil(row.dataset_id))
                if records
                else None
            ),
        )
        if candidate is None or missing:
            unread = reason(
                "proposal.missing", "candidate.json cannot be read.", "Run the dataset again."
            )
            verdicts = [Verdict(gate="integrity", reasons=tuple(missing) or (unread,))]
        else:
            proposal, _ = load(world, row)
            given, (_, waits) = approvals_of(world, row), count(world, row)
            numbers = (waits, sum(j.valid for j in given))
            verdicts = judge_candidate(
                world, row, candidate, proposal.files, proposal.leak, head, numbers
            )
            verdicts += _stale(world, row, head, proposal)
    except IntegrityError as error:
        code, verdicts = (
            6,
            [
                Verdict(
                    gate="integrity",
                    reasons=(reason("integrity.damaged", error.happened, error.remedy),),
                )
            ],
        )
    number = (candidate.proposal if candidate is not None else None) or world.store.read(
        lambda tx: tx.proposals.number(row.run_id)
    )
    if not code and any(v.reasons for v in verdicts):
        code = 3
    elif not code and row.state == "REJECTED":
        code = 3 if SAID_NO in denial_codes(row.reason) else 0
    elif not code and row.state == "PROPOSED" and sum(j.valid for j in given) < waits:
        code = 7
    return Judgement(
        dataset_id=row.dataset_id,
        what=f"proposal {number}",
        version_id=row.version_id,
        verdicts=tuple(verdicts),
        proposal=number,
        state=row.state,
        base_generation=row.pinned,
        approvals=tuple(given),
        needed=waits,
        exit_code=code,
        one_account=one_account(world, builder_of(world, row), [j for j in given if j.valid]),
    )


def _stale(world: World, row: LedgerRow, head: Generation, proposal: Proposal) -> list[Verdict]:
    """A proposal on another base, or under another registry entry, will not be promoted whatever
    its gates say.
    """
    why = []
    if row.state == "PROPOSED" and row.pinned != head.generation:
        why.append(
            f"It was made on generation {row.pinned}; generation {head.generation} is official now."
        )
    if row.state == "PROPOSED" and proposal.registry_digest != registry_digest(
        world, row.dataset_id
    ):
        why.append("The registry entry changed after it was proposed.")
    remedy = f"Run `kfm run {row.dataset_id}`: it is made again."
    return (
        [Verdict(gate="base", reasons=tuple(reason("proposal.stale", w, remedy) for w in why))]
        if why
        else []
    )


def check_version(
    world: World, dataset_id: str, generation: Generation, lifting: int | None = None
) -> None:
    """Raise `Denied` when an earlier version may not be shown on the policy and labels of now;
    `lifting`: a withdrawal that is being undone.
    """
    last: Generation = world.store.transaction(lambda tx: world.channel(dataset_id).head(tx))
    if lifting is not None:
        left = {name: by for name, by in last.suppressed.items() if by != str(lifting)}
        last = msgspec.structs.replace(last, suppressed=left)
    no = [
        r
        for v in _judge_official(world, dataset_id, generation, last)
        for r in v.reasons
        if v.gate not in ("schema", "graph")
    ]
    if no:
        raise Denied(
            f"{generation.version_id} may not be official: {'; '.join(r.message for r in no)}",
            expected="a version that passes the gates of now",
            remedy=no[0].remedy,
        )


def may_show(world: World, head: Generation, facts: Json) -> bool:
    """Whether what a withdrawal leaves of `head` may be shown: its catalogs and its signature are
    made here, and again when it is.

    What was looked through when it became official is not searched again, but a column that was not
    public then was never looked at.
    """
    candidate, dataset_id = derived_candidate(world, facts), head.dataset_id
    entry, described = world.registry(dataset_id), described_candidate(world, candidate, head, None)
    if entry is None or described is None:
        return False
    public = (
        read_facts(world.data, dataset_id, head.version_id)["schema"]
        if head.version_id is not None
        else []
    )
    leak: tuple[Reason, ...] | None = (
        None if {c["name"] for c in facts["schema"]} - {c["name"] for c in public} else ()
    )
    found = {p: a["digest"] for p, a in facts["artifacts"].items()}
    records = version_records(world, entry, candidate, [])
    listed = found | {p: ids.digest(raw) for p, raw in records.items()}
    signed, note = attested(world, lambda name: records[name], listed)
    prov = derived_prov(world, entry, head, candidate)
    catalog = catalog_reasons(
        world, described, prov_path(dataset_id, f"withdrawal_{head.generation + 1}"), prov, listed
    )
    evidence = evidence_of(
        world,
        candidate,
        found=found,
        before=None,
        leak=leak,
        catalog=catalog,
        attestation=signed,
        attestation_note=note,
        suppressed=head.suppressed.get(candidate.version_id),
    )
    return not any(
        r.code != "labels.show" for v in judge(world, evidence, candidate) for r in v.reasons
    )


def policy_input(world: World, dataset_id: str) -> Json | None:
    """What the policy is asked about the version that is official now; None when there is none."""
    head: Generation = world.store.transaction(lambda tx: world.channel(dataset_id).head(tx))
    if head.version_id is None:
        return None
    evidence, candidate = _official_evidence(world, dataset_id, head, head)
    return asked_of(world, candidate, evidence)


def _official(world: World, dataset_id: str, text: str) -> Judgement:
    ref = resolve(world, text)
    rows: list[Generation] = world.store.read(lambda tx: tx.index.generations(dataset_id))
    head = next(g for g in rows if g.generation == ref.generation)
    checked = Verified()
    verify_dataset(world, dataset_id, checked, ref.version_id)
    damage = [
        reason(
            _code(p["where"], kind),
            f"{p['where']}: {p['what']}.",
            "Restore it from a backup or a bundle; `kfm doctor` looks further.",
        )
        for p, kind in zip(checked.problems, checked.kinds, strict=True)
    ]
    try:
        verdicts = _judge_official(world, dataset_id, head, rows[-1])
    except (KfmError, OSError) as error:
        verdicts = [
            Verdict(
                gate="integrity",
                reasons=(
                    reason("integrity.damaged", str(error), "`kfm verify` lists what is damaged."),
                ),
            )
        ]
    verdicts = [_with(v, damage) if v.gate == "integrity" else v for v in verdicts]
    denied = any(v.reasons for v in verdicts)
    return Judgement(
        dataset_id=dataset_id,
        what=f"generation {ref.generation}",
        version_id=ref.version_id,
        verdicts=tuple(verdicts),
        state="COMMITTED",
        base_generation=ref.generation - 1,
        exit_code=max(checked.exit_code, 3 if denied else 0),
        one_account=_agreed_here(world, head),
    )


def _agreed_here(world: World, head: Generation) -> tuple[str, ...]:
    """Who approved what is official from the account that built it."""
    row: LedgerRow | None = world.store.read(
        lambda tx: tx.runs.maker_of(head.dataset_id, head.version_id or "")
    )
    try:
        return (
            one_account(world, builder_of(world, row), approvals_of(world, row))
            if row is not None
            else ()
        )
    except (KfmError, OSError):
        return ()  # what is damaged is said above


def _code(where: str, kind: Kind) -> str:
    """The code of a finding of `verify`."""
    if where.startswith("catalog/approvals/"):
        return "approvals.missing"
    if kind == "extra":
        return "integrity.extra"
    of = (
        "receipts"
        if where.startswith("receipts") or "/runs/" in where
        else "attestation"
        if "attestation" in where
        else "integrity"
    )
    return f"{of}.{kind}"


def _with(verdict: Verdict, more: Sequence[Reason]) -> Verdict:
    return msgspec.structs.replace(verdict, reasons=(*verdict.reasons, *more))


def _judge_official(
    world: World, dataset_id: str, head: Generation, last: Generation
) -> list[Verdict]:
    return judge(world, *_official_evidence(world, dataset_id, head, last))


def _official_evidence(
    world: World, dataset_id: str, head: Generation, last: Generation
) -> tuple[Evidence, Candidate]:
    """What there is to look at of a version that is or was official, and the version in the shape
    of a candidate.
    """
    candidate = official_candidate(world, dataset_id, head)
    row = world.store.read(lambda tx: tx.runs.maker_of(dataset_id, head.version_id or ""))
    proposed = candidate_of(world, dataset_id, row.run_id) if row is not None else None
    # what a withdrawal left was judged when it was made
    leak: tuple[Reason, ...] | None = () if row is None else None
    if proposed is not None and row is not None and not check_files(world, row, None):
        candidate = msgspec.structs.replace(
            candidate, books=proposed.books, released=proposed.released
        )
        leak = load(world, row)[0].leak
    elif row is not None:
        gone = Books(read=-1)  # as its evidence is
        candidate = msgspec.structs.replace(
            candidate, books=gone, released=gone if world.is_private(dataset_id) else None
        )
    data, records = version_listing(world.data, dataset_id, str(head.version_id))
    found = {
        p: getattr(world.data.stat(candidate.artifacts[p]["from"]), "digest", None) for p in data
    }
    folder = version_folder(dataset_id, head.version_id)
    signed, note = attested(world, lambda name: world.data.read(f"{folder}/{name}"), data | records)
    if head.generation == last.generation:
        shown = [stac_folder(dataset_id), prov_folder(dataset_id)]
        names = [dcat_path(dataset_id), *(p for folder in shown for p in world.data.names(folder))]
        files = {p: world.data.read(p) for p in names if world.data.exists(p)}
        catalog = [
            reason(*r) for r in check_records(files, shown_version(world, head), world.data.exists)
        ]
    else:  # what they would say of it
        path = prov_path(
            dataset_id, row.run_id if row is not None else f"withdrawal_{head.generation}"
        )
        prov = world.data.read(path) if world.data.exists(path) else None
        catalog = catalog_reasons(world, shown_version(world, head), path, prov, data | records)
    evidence = evidence_of(
        world,
        candidate,
        found=found,
        before=None,
        leak=leak,
        catalog=catalog,
        attestation=signed,
        attestation_note=note,
        suppressed=last.suppressed.get(str(head.version_id)),
    )
    return evidence, candidate
