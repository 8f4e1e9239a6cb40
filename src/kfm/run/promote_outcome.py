"""promote_outcome: how a promotion ended: its outcome, its log, the audit line of a refusal."""

import datetime as dt
from collections.abc import Sequence
from email.utils import parsedate_to_datetime
from typing import TypedDict, Unpack

import msgspec

from kfm.evidence.journal import Journal
from kfm.evidence.proposal import approvals_of, count, load, rejected_by, uncompared
from kfm.evidence.receipts import finish
from kfm.evidence.report import without_values
from kfm.evidence.run_end import close_log, idempotency_state, latency, ran_in
from kfm.model import (
    SAID_NO,
    Assembled,
    IntegrityError,
    LedgerRow,
    PartDone,
    Pinned,
    Verdict,
    denied,
    rfc3339,
)
from kfm.model.change import told
from kfm.model.paths import proposal_path
from kfm.release.by_rule import new_columns
from kfm.world.outcome import Outcome, table_rows
from kfm.world.run_log import RunLog
from kfm.world.world import Registry, World

__all__ = ["Ending", "freshness", "latency", "outcome_of", "tell"]


class Ending(TypedDict, total=False):
    """What the end of a promotion adds to what its assembly said."""

    exit_code: int
    generation: int | None
    proposal: int | None
    reasons: tuple[dict[str, str], ...]
    remedy: str


def outcome_of(
    world: World, wal: Journal, state: str, reason: str = "", /, **more: Unpack[Ending]
) -> Outcome:
    """How a promotion ended, with what its assembly said of the version."""
    row = wal.run
    judged = wal.payload("assemble", Assembled)
    private = world.is_private(row.dataset_id)
    rows = judged.rows if judged is not None else {}
    added = judged.added or () if judged is not None else ()
    warnings = judged.warnings or () if judged is not None else ()
    return Outcome(
        dataset_id=row.dataset_id,
        run_id=row.run_id,
        state=state,
        reason=reason,
        version_id=row.version_id,
        rows=table_rows(rows, row.partition),
        rows_read=0 if private else row.rows_read,  # of a private input no count is told
        rows_written=sum(rows.values()) if private else row.rows_written,
        quarantined=0 if private else _quarantined(wal),
        partition=row.partition,
        window=row.win,
        change=told(judged.change) if judged is not None and judged.change else "",
        warnings=new_columns(added) if private else warnings,
        **more,
    )


def _quarantined(wal: Journal) -> int:
    part = wal.payload("transform", PartDone)
    return part.books.quarantined if part is not None else 0


def tell(
    world: World,
    wal: Journal,
    log: RunLog,
    verdicts: Sequence[Verdict] = (),
    damaged: IntegrityError | None = None,
) -> Outcome:
    """Say how it went, into the log and to whoever asked."""
    row = wal.run
    if row.state == "PROPOSED":
        return _waits(world, wal, log)
    if row.ended_at is not None:
        with world.ended():
            _close_log(world, wal, log)
        with world.ended():
            finish(world, row.run_id)
    reasons = tuple(
        {"code": r.code, "message": r.message, "remedy": r.remedy} for r in denied(verdicts)
    )
    if row.state == "REJECTED":
        _decided(world, row, log, reasons)
    code = {"COMMITTED": 0, "REJECTED": 3, "SUPERSEDED": 6 if damaged else 0}.get(row.state, 0)
    remedy = damaged.remedy if damaged else reasons[0]["remedy"] if reasons else ""
    return outcome_of(
        world,
        wal,
        row.state,
        row.reason,
        exit_code=code,
        reasons=reasons,
        remedy=remedy,
        generation=row.intent,
    )


def _waits(world: World, wal: Journal, log: RunLog) -> Outcome:
    """Denied for want of valid approvals, with what is wrong with those there are; recorded,
    and nothing else has changed.
    """
    valid, wanted = count(world, wal.run)
    void = [j for j in approvals_of(world, wal.run) if not j.valid]
    pin = wal.payload("pin", Pinned)
    number = pin.proposal if pin is not None else 0
    remedy = f"kfm approve {number} --key NAME"
    reasons = [
        {
            "code": "approval.missing",
            "message": f"{valid} of {wanted} approvals are valid.",
            "remedy": remedy,
        }
    ]
    if uncompared(world, wal.run, load(world, wal.run)[0]):
        reasons.append(
            {
                "code": "approval.uncompared",
                "message": "It is a canary's, and nobody has compared it.",
                "remedy": f"kfm canary compare {wal.run.dataset_id}",
            }
        )
    no = rejected_by(world.data, world.keys, wal.run)
    reasons += (
        [
            {
                "code": SAID_NO,
                "message": f"{no} rejected it.",
                "remedy": f"kfm reject {number} --reason …",
            }
        ]
        if no
        else []
    )
    reasons += [
        {"code": "approval.void", "message": f"{j.name}: {j.why}", "remedy": f"kfm review {number}"}
        for j in void
    ]
    _decided(world, wal.run, log, reasons)
    return outcome_of(
        world,
        wal,
        "PROPOSED",
        "waits for a person",
        exit_code=7,
        reasons=tuple(reasons),
        remedy=remedy,
        proposal=number,
    )


def _decided(world: World, row: LedgerRow, log: RunLog, reasons: Sequence[dict[str, str]]) -> None:
    """The audit line of a promotion that was refused."""
    told = without_values(reasons) if world.is_private(row.dataset_id) else list(reasons)
    line = {
        "ts": rfc3339(world.clock.now()),
        "verdict": "deny",
        "holder": world.holder,
        "reasons": told,
    }
    codes = [r["code"] for r in reasons]
    with world.ended():
        path = proposal_path(row.dataset_id, row.run_id, "decisions.jsonl")
        world.data.append(path, msgspec.json.encode(line) + b"\n")
    with world.ended():
        log.say("promote.denied", stage="publish", level="warning", reasons=codes)


def _close_log(world: World, wal: Journal, log: RunLog) -> None:
    row = wal.run
    judged = wal.payload("assemble", Assembled)
    sources = msgspec.json.decode(row.source_metadata)
    found = idempotency_state(
        row.run_id,
        row.dataset_id,
        sources,
        window=row.win,
        pipeline_version=row.pipeline_version,
        key=row.key,
        spec_hash=row.spec_hash,
        state=row.state,
        output_keys=judged.output_keys if judged is not None else (),
    )
    fields = {
        "version_id": row.version_id,
        "generation": row.intent,
        "rows_read": row.rows_read,
        "rows_written": row.rows_written,
    }
    close_log(
        world,
        log,
        found,
        source_id=sources[0]["source_id"],
        trigger=row.trigger_type,
        reason=row.reason,
        elapsed_ms=latency(row, row.ended_at or row.timestamp),
        ran=ran_in(wal),
        artifacts=len(judged.artifacts) if judged is not None else 0,
        fields=fields,
    )


def freshness(registry: Registry, wal: Journal, now: str) -> int:
    """Minutes between the newest moment the data speaks of (else upstream's own date, else the
    capture) and now.
    """
    entry = registry(wal.run.dataset_id)
    part = wal.payload("transform", PartDone)
    told = (
        part.result.profile.get(entry.source.time_column or "")
        if part is not None and entry is not None
        else None
    )
    newest = told.max if told is not None else None
    dated = msgspec.json.decode(wal.run.source_metadata)[0].get("last_modified")
    try:
        moment = (
            dt.datetime.fromisoformat(newest)
            if newest
            else parsedate_to_datetime(dated)
            if dated
            else None
        )
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is None:
        moment = dt.datetime.fromisoformat(wal.run.timestamp)
    return max(0, int((dt.datetime.fromisoformat(now) - moment).total_seconds() // 60))
