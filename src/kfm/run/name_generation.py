"""name_generation: judge a proposal again on what there is now, and name the one generation that
it may create.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from kfm.channel.generations import EMPTY
from kfm.evidence.journal import Journal, Page
from kfm.evidence.proposal import count, load, registry_digest
from kfm.evidence.receipts import promotion_of
from kfm.judge.intact import check_files, inputs_changed
from kfm.judge.verdicts import judge_candidate
from kfm.model import (
    Candidate,
    IntegrityError,
    KfmError,
    LedgerRow,
    LineageMeant,
    PolicyAsked,
    Promotion,
    RunDamaged,
    Token,
    Verdict,
    VersionNamed,
    canonical,
    denied,
    ids,
    is_assembly,
    rfc3339,
)
from kfm.model.paths import proposal_path, run_path
from kfm.policy.base import Decision
from kfm.run.noop import approved
from kfm.store.base import Tx
from kfm.world.run_log import RunLog
from kfm.world.world import World

__all__ = [
    "AlreadyOurs",
    "Answer",
    "Ended",
    "Judged",
    "MustVoid",
    "Named",
    "TakenByAnother",
    "ask_again",
    "judge_again",
    "name_next",
    "why_denied",
]


@dataclass(frozen=True)
class Ended:
    """There is nothing to make official, or not now."""


@dataclass(frozen=True)
class MustVoid:
    """It is denied after it had named a generation, which a frozen holder may still write: its
    number must be taken.
    """


@dataclass(frozen=True)
class TakenByAnother:
    """Somebody else made the generation it had named."""


@dataclass(frozen=True)
class AlreadyOurs:
    """★ has happened: what is left is to say so."""


@dataclass(frozen=True)
class Named:
    """The one generation this run may create is in its row."""


# of the transaction that names a generation
Answer = Ended | MustVoid | TakenByAnother | AlreadyOurs | Named


@dataclass(frozen=True)
class Judged:
    """What a proposal came to when it was judged again."""

    verdicts: Sequence[Verdict]
    candidate: Candidate | None = None  # None: something it relies on is missing
    registry_digest: str | None = None  # of the entry and the rules it was proposed under
    policy_digest: str | None = None
    inputs_changed: bool = False
    asked: Sequence[Decision] = ()  # what the policy decided


def judge_again(world: World, wal: Journal, log: RunLog) -> Judged:
    """On current policy and labels, and on the bytes as they are now."""
    row = wal.run
    try:
        missing = check_files(world, row, wal)
    except IntegrityError as error:
        raise RunDamaged(error.happened, expected=error.expected, remedy=error.remedy) from error
    if missing:
        return Judged([Verdict(gate="integrity", reasons=tuple(missing))])
    path = proposal_path(row.dataset_id, row.run_id, "candidate.json")
    try:
        candidate = msgspec.convert(canonical.loads(world.kept(path)), Candidate)
    except (OSError, KfmError, msgspec.ValidationError) as error:
        raise RunDamaged(
            f"{path} is damaged or missing.",
            expected="what was proposed",
            remedy="Run the dataset again.",
        ) from error
    full = ids.version_digest(
        candidate.digests, candidate.transform_hash, candidate.updater_version
    )
    if full != row.version_digest:
        raise RunDamaged(
            f"The candidate of run {row.run_id} was changed after it was proposed.",
            expected=str(row.version_digest),
            remedy="Run the dataset again with --force.",
        )
    head = world.store.read(lambda tx: tx.index.last_generation(row.dataset_id)) or EMPTY(
        row.dataset_id
    )
    proposal, _ = load(world, row)
    asked: list[Decision] = []
    valid, wanted = count(world, row)
    changed = inputs_changed(world, row)
    found = judge_candidate(
        world, row, candidate, proposal.files, proposal.leak, head, (wanted, valid), log, asked
    )
    return Judged(
        found,
        candidate,
        proposal.registry_digest,
        proposal.policy_digest,
        inputs_changed=changed,
        asked=asked,
    )


def name_next(world: World, wal: Journal, judged: Judged) -> Answer:
    """Name the one generation this run may create: right after the one its candidate was
    assembled on.
    """
    channel, now = world.channel(wal.run.dataset_id), rfc3339(world.clock.now())
    no = denied(judged.verdicts)

    def intend(tx: Tx, page: Page) -> Answer:
        row = tx.runs.get(wal.run.run_id)
        if row is None or row.state != "PROPOSED":
            # another process closed it: what is told is what became of it
            page.run = row or page.run
            tx.leases.release(*wal.tokens)
            return Ended()
        page.run, head = row, channel.head(tx)
        if row.intent is not None and head.generation >= row.intent:
            taken = tx.index.generation(row.dataset_id, row.intent)
            return (
                AlreadyOurs()
                if taken is not None and taken.run_id == row.run_id
                else TakenByAnother()
            )
        changed = judged.inputs_changed or judged.registry_digest not in (
            None,
            registry_digest(world, row.dataset_id),
        )
        if row.intent is not None and (no or changed or not approved(world, row)):
            return MustVoid()  # a frozen holder may still write it
        if changed:
            return _end(
                tx,
                page,
                wal.tokens,
                "SUPERSEDED",
                "the registry entry or an input changed after it was proposed",
                now,
            )
        if no:
            return _end(
                tx,
                page,
                wal.tokens,
                "REJECTED",
                why_denied(world.policy_digest, wal.run, judged),
                now,
            )
        if row.intent is None:
            if row.pinned != head.generation:
                return _end(
                    tx,
                    page,
                    wal.tokens,
                    "SUPERSEDED",
                    f"base {row.pinned} is not the head {head.generation}",
                    now,
                )
            # once, for this generation: an approval given for anything else does not count
            if not approved(world, row):
                tx.leases.release(*wal.tokens)
                page.move(tx, "PROPOSED", promo=0)
                return Ended()
            row = page.move(tx, "PROPOSED", intent=head.generation + 1, promo=1)
            tx.promotions.take(row)
            page.make("UPSERT", "version", "IN_PROGRESS", _named(row, page.held, judged))
            page.make(
                "LINEAGE",
                "lineage",
                "PENDING",
                LineageMeant(cypher=run_path(row.dataset_id, row.run_id, "lineage.cypher")),
            )
        # named by an older kfm, which did not say what it looked at
        elif promotion_of(wal.records, world.veil(row.dataset_id)) is None:
            page.make("UPSERT", "version", "IN_PROGRESS", _named(row, page.held, judged))
        return Named()

    return wal.commit(intend)


def _named(row: LedgerRow, held: Sequence[str], judged: Judged) -> VersionNamed:
    """The generation that is named, and what was looked at first: the words are those of the
    gates, the policy and the store itself.
    """
    seen = Promotion(
        generation=int(row.intent or 0),
        lease=held[0] if held else "",
        gates={v.gate: v.word for v in judged.verdicts},
        policy=next(
            (
                PolicyAsked(
                    decision_id=d.decision_id, policy_digest=d.policy_digest, engine=d.engine
                )
                for d in judged.asked
            ),
            None,
        ),
    )
    return VersionNamed(generation=row.intent, version_id=row.version_id, promotion=seen)


def why_denied(policy_digest: str, row: LedgerRow, judged: Judged) -> str:
    """The codes of a denial; one under another policy than it was proposed with is not
    remembered against the same content.
    """
    changed = row.spec_hash and judged.policy_digest not in (None, policy_digest)
    return "; ".join(
        dict.fromkeys(
            [*(["policy.changed"] if changed else []), *(r.code for r in denied(judged.verdicts))]
        )
    )


def _end(tx: Tx, page: Page, tokens: Sequence[Token], state: str, reason: str, now: str) -> Ended:
    tx.leases.release(*tokens)
    row = page.move(tx, "PROPOSED", state=state, promo=0, reason=reason, ended_at=now)
    if state == "SUPERSEDED":
        ask_again(tx, row)
    return Ended()


def ask_again(tx: Tx, row: LedgerRow) -> None:
    """A superseded run is triggered again; parts that were to be assembled stay STAGED, which asks
    for the next assemble.
    """
    if not is_assembly(row):
        tx.jobs.put(row.dataset_id, row.partition, row.win)
