"""judge_again: every gate on a reference, as things are now: a proposal, a denied candidate, or an
official version.
"""

from collections.abc import Sequence

import msgspec

from kfm.access.references import resolve
from kfm.channel.generations import EMPTY
from kfm.evidence.folder_check import Kind, Verified
from kfm.evidence.journal import Journal
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
from kfm.judge.candidate import reason
from kfm.judge.intact import check_files
from kfm.judge.verdicts import judge_candidate
from kfm.model import (
    SAID_NO,
    Generation,
    IntegrityError,
    KfmError,
    LedgerRow,
    Proposal,
    Reason,
    UsageError,
    Verdict,
    denial_codes,
)
from kfm.release.by_rule import candidate_of
from kfm.upkeep.judge_official import judge_official
from kfm.upkeep.verify import verify_dataset
from kfm.world.world import World

__all__ = ["Judgement", "judge_ref"]


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
        verdicts = judge_official(world, dataset_id, head, rows[-1])
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
