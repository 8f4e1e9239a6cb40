"""propose: what people see of a candidate, and the one transaction that ends its assembly: PROPOSED,
REJECTED, or nothing new.
"""

from collections.abc import Mapping, Sequence

from msgspec import UNSET

from kfm.evidence.journal import Journal, Page
from kfm.evidence.proposal import acceptable, needed, registry_digest
from kfm.evidence.receipts import finish, run_files
from kfm.evidence.run_end import end_parts, follow_up
from kfm.model import (
    Assembled,
    Candidate,
    LedgerRow,
    PartDone,
    Pinned,
    Proposal,
    Reason,
    Verdict,
    denied,
    ids,
    rfc3339,
)
from kfm.model.change import told
from kfm.model.paths import proposal_path
from kfm.release.by_rule import new_columns
from kfm.run.already_official import keep_records, nothing_new
from kfm.run.claim import keep_head_key
from kfm.run.noop import older_told
from kfm.run.tables import Tables
from kfm.run.work import Work
from kfm.store.base import Tx
from kfm.world.outcome import Numbers, Outcome, table_rows

__all__ = ["judgement", "propose", "write_proposal"]


def judgement(
    work: Work, wal: Journal, candidate: Candidate, tables: Tables, verdicts: Sequence[Verdict]
) -> Assembled:
    """What the journal and the run's records say of the judgement."""
    target = work.target
    business = [target.dataset_id, target.partition, target.win]
    artifacts = candidate.artifacts
    warned = wal.require("transform", PartDone).warnings or ()
    return Assembled(
        artifacts=artifacts,
        verdicts=tuple(verdicts),
        output_keys=tuple(
            ids.output_key(target.updater_id, target.pipeline_version, business, a["digest"])
            for a in artifacts.values()
        ),
        licence=target.entry.licence,
        labels={k: getattr(target.entry, k) for k in ("sensitivity", "policy_label", "care_label")},
        steps=tables.result.steps,
        profile=tables.result.profile,
        rows={p: a["rows"] for p, a in artifacts.items()},
        warnings=tuple(
            dict.fromkeys((*warned, *tables.result.warnings, *new_columns(tables.added)))
        ),
        added=tables.added or UNSET,
        change=candidate.change,
    )


def write_proposal(
    work: Work,
    wal: Journal,
    row: LedgerRow,
    judged: Assembled,
    files: Mapping[str, str],
    leak: tuple[Reason, ...] | None,
) -> str:
    """proposal.json: everything an approval speaks of, by digest. Returns its own digest."""
    world = work.world
    receipts = run_files(world, row, wal.records, judged)
    proposal = Proposal(
        proposal=wal.require("pin", Pinned).proposal,
        run_id=row.run_id,
        dataset_id=row.dataset_id,
        version_id=row.version_id,
        version_digest=row.version_digest,
        base_generation=row.pinned,
        policy_digest=world.policy_digest,
        registry_digest=registry_digest(world, row.dataset_id),
        labels=judged.labels,
        files=dict(files),
        receipts=receipts,
        verdicts=judged.verdicts,
        leak=leak,
        approvals=needed(
            world, row.dataset_id, judged.verdicts, row.pinned, canary=work.target.canary
        ),
        canary=work.target.canary or UNSET,
    )
    content = proposal.written()
    path = proposal_path(row.dataset_id, row.run_id)
    if not world.keep(path, content) and world.kept(path) != content:
        # Policy or labels changed between two attempts: nobody has seen the first judgement, so the
        # newest stands.
        world.data.replace(world.lies(path), world.at_rest(path, content))
    return ids.digest(world.data.read(world.lies(path)))


def propose(
    work: Work,
    wal: Journal,
    row: LedgerRow,
    candidate: Candidate,
    verdicts: Sequence[Verdict],
    tables: Tables,
) -> Outcome:
    """PROPOSED (with its promote job when no person is asked) or REJECTED; ack; both leases free:
    one transaction.
    """
    world, target = work.world, work.target
    channel = world.channel(target.dataset_id)
    reasons, pinned = denied(verdicts), candidate.base_generation
    waits = needed(world, target.dataset_id, verdicts, pinned, canary=target.canary)
    facts = {
        "version_id": row.version_id,
        "version_digest": row.version_digest,
        "content_id": row.content_id,
        "rows_written": row.rows_written,
    }
    now = rfc3339(world.clock.now())
    if tables.precise and not reasons:
        keep_records(world, wal, candidate, asked=bool(waits))

    def close(tx: Tx, page: Page) -> None:
        head = channel.head(tx)
        crossed = tables.result.crossed or 0
        if pinned != head.generation or crossed:
            moved = f"base {pinned} is not the head {head.generation}"
            rows = f"{crossed} of its rows became official in another window meanwhile"
            why = rows if crossed else moved
            page.move(tx, "CLAIMED", state="SUPERSEDED", reason=why, ended_at=now, **facts)
            work.requeue(tx)
            tx.leases.release(*wal.tokens)
            return
        again = nothing_new(tx, world, head, wal.run, candidate, asked=bool(reasons or waits))
        if candidate.older and (again is None or again[1]):
            again = older_told(*candidate.older), False
        if again is not None and not wal.run.forced:
            row = page.move(tx, "CLAIMED", state="NOOP", reason=again[0], ended_at=now, **facts)
            if again[1] and work.captured is not None:
                keep_head_key(tx, target, work.captured, str(head.version_id), now)
            end_parts(tx, world.data, row, state="NOOP", reason=again[0], known=again[1])
        elif reasons:
            page.move(
                tx,
                "CLAIMED",
                state="REJECTED",
                reason="; ".join(dict.fromkeys(r.code for r in reasons)),
                ended_at=now,
                error_count=len(reasons),
                latency_ms=work.elapsed_ms(),
                **facts,
            )
        else:
            row = page.move(
                tx,
                "CLAIMED",
                state="PROPOSED",
                promo=int(not waits and not world.propose_only),
                **facts,
            )
            if not row.promo:
                follow_up(tx, world, target.dataset_id, row.run_id, derived=False)
        work.ack(tx)
        tx.leases.release(*wal.tokens)

    wal.commit(close)
    row = wal.run
    with world.ended():
        work.log.say(
            "transform.metadata",
            stage="transform",
            input=candidate.content_id,
            output=candidate.version_digest,
            version_id=row.version_id,
        )
    return _told(work, row, verdicts, tables, candidate.proposal or 0, waits)


def _told(
    work: Work,
    row: LedgerRow,
    verdicts: Sequence[Verdict],
    tables: Tables,
    proposal: int,
    waits: int,
) -> Outcome:
    """Say how it went; a proposal goes on to promote or waits for people, everything else ends
    here.
    """
    numbers = _numbers(work, row, tables, proposal)
    if row.state == "PROPOSED":
        return _proposed(work, row, verdicts, proposal, waits, numbers)
    reasons = denied(verdicts)
    plain = tuple({"code": r.code, "message": r.message, "remedy": r.remedy} for r in reasons)
    with work.world.ended():
        work.close_log(
            row.state,
            row.reason,
            level="error" if row.state == "REJECTED" else "info",
            reasons=[r.code for r in reasons] if work.private else plain,
        )
    with work.world.ended():
        finish(work.world, row.run_id)
    return work.outcome(
        row.state,
        row.reason,
        exit_code={"REJECTED": 3}.get(row.state, 0),
        reasons=plain,
        remedy=reasons[0].remedy if reasons else "",
        names="head" if row.state == "NOOP" else "",
        version_id=row.version_id,
        **numbers,
    )


def _numbers(work: Work, row: LedgerRow, tables: Tables, proposal: int) -> Numbers:
    """What an outcome counts; of private records nothing is told."""
    judged = work.wal.payload("assemble", Assembled) if work.wal is not None else None
    rows = {path: artifact["rows"] for path, artifact in tables.artifacts.items()}
    numbers: Numbers = {
        "proposal": proposal,
        "rows": (
            0 if work.private and tables.released is None else table_rows(rows, row.partition)
        ),
        "change": told(judged.change) if judged is not None and judged.change else "",
    }
    if work.private:  # of what made somebody warn, nothing is said aloud but this
        return numbers | {"warnings": new_columns(tables.added)}
    return numbers | {
        "warnings": judged.warnings or () if judged is not None else (),
        "rows_read": row.rows_read,
        "rows_written": row.rows_written,
        "quarantined": tables.books.quarantined,
    }


def _proposed(
    work: Work,
    row: LedgerRow,
    verdicts: Sequence[Verdict],
    proposal: int,
    waits: int,
    numbers: Numbers,
) -> Outcome:
    asked = [r for v in verdicts for r in v.review]
    why = _why(work, asked, waits) if waits else ""
    with work.world.ended():
        work.log.say(
            "version.proposed", stage="publish", version_id=row.version_id, proposal=proposal
        )
        if waits and asked:
            codes = [r.code for r in asked]
            work.log.say(
                "review.requested",
                stage="publish",
                level="warning",
                proposal=proposal,
                reasons=codes,
            )
        if waits:
            work.close_log("PROPOSED", why)
    following = _following(work, verdicts, asked, proposal) if waits else f"kfm promote {proposal}"
    return work.outcome(
        "PROPOSED",
        why,
        exit_code=7 if waits or work.world.propose_only else 0,
        version_id=row.version_id,
        remedy=following,
        **numbers,
    )


def _why(work: Work, asked: Sequence[Reason], waits: int) -> str:
    """What a proposal waits for."""
    why = (
        "; ".join(r.message for r in asked)
        or f"{waits} approval{' is' if waits == 1 else 's are'} needed"
    )
    if work.target.canary:
        return f"canary {work.target.pipeline_version}, to be compared first: {why}"
    return why


def _following(
    work: Work, verdicts: Sequence[Verdict], asked: Sequence[Reason], proposal: int
) -> str:
    """The commands that a proposal which waits is decided with."""
    dataset_id = work.target.dataset_id
    following = f"kfm review {proposal}"
    if work.target.canary:
        following = f"kfm canary compare {dataset_id}"
    elif acceptable(work.world.registry, dataset_id, verdicts):
        following = (
            f"kfm diff {dataset_id} proposal/{proposal}, then kfm run {dataset_id}"
            " --accept-change --reason …"
        )
    # once for the dataset
    decide = [r.remedy for r in asked if r.code in ("licence.restricted", "records.restricted")]
    return "\n      ".join([*decide, following])
