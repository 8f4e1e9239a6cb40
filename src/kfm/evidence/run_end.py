"""run_end: the last lines every run leaves, whatever became of it."""

import datetime as dt
from collections.abc import Sequence

import msgspec
from msgspec import UNSET

from kfm.channel.generations import pinned_parts
from kfm.evidence.journal import Journal
from kfm.model import (
    PARTIAL,
    Assembled,
    Clock,
    IdempotencyState,
    IntegrityError,
    Json,
    LedgerRow,
    Ran,
    Request,
    Trace,
    denial_codes,
    head_key_of,
    ids,
    is_assembly,
    phase_of,
    rfc3339,
    without_emitter,
)
from kfm.store.base import Tx
from kfm.world.killed import killed_in_promotion
from kfm.world.run_log import RunLog
from kfm.world.world import World
from kfm.zones.base import Zone

__all__ = [
    "DERIVED",
    "FOLLOWING",
    "close_log",
    "close_runs",
    "end_parts",
    "follow_up",
    "idempotency_state",
    "killed_in_promotion",
    "latency",
    "ran_in",
    "ran_of",
    "tell_end",
    "tell_killed",
    "workers_alive",
]

DERIVED = {"tiles": "transform.build_tiles", "search": "index.build_embeddings"}
FOLLOWING = ("validate.qa_dataset", *DERIVED.values())  # what a new version may ask for


def workers_alive(tx: Tx) -> bool:
    """Whether a worker runs, or a command that works a single job."""
    return any(not h.lapsed for h in tx.leases.held() if h.name.startswith("worker/"))


def follow_up(
    tx: Tx, world: World, dataset_id: str, run_id: str | None, *, derived: bool = True
) -> None:
    """What a new version asks for: to be judged by every gate, and what its registry entry wants
    made from it. Asked twice it is one job.

    Only where a worker runs: a plain command has judged the version itself, and offers what else
    could be made of it.
    """
    entry = world.registry(dataset_id) if world.follows and workers_alive(tx) else None
    if entry is None:
        return
    trace = _trace(tx, world, run_id)
    for job_type in ("validate.qa_dataset", *(DERIVED[name] for name in entry.derive if derived)):
        tx.jobs.submit(
            Request(
                job_type=job_type,
                dataset_id=dataset_id,
                trace=trace,
                reason="follows a new version",
            )
        )


def _trace(tx: Tx, world: World, run_id: str | None) -> Trace:
    """Of what a run asks for: the cause is the same, and the run is the span that calls."""
    from kfm.model.trace import asked_by  # nobody needs it where no worker runs

    correlation, given = world.marks.get("correlation_id", ""), world.marks.get("traceparent")
    row = tx.runs.get(run_id) if given and run_id is not None else None
    if given and row is not None:
        given = asked_by(given, correlation, row.run_id)
    return Trace(parent_run_id=run_id, correlation_id=correlation, traceparent=given or UNSET)


def end_parts(
    tx: Tx, zone: Zone, row: LedgerRow, *, state: str, reason: str = "", known: bool = True
) -> None:
    """The parts of an assembling run end with it, in the transaction that ends it; `known`: what is
    official is what upstream said.
    """
    if not is_assembly(row):
        return
    parts = pinned_parts(zone, row)
    if parts is None:
        raise IntegrityError(
            f"The list of parts that run {row.run_id} assembled is missing or damaged.",
            expected=str(row.part),
            remedy="Restore data/work from a backup, then run `kfm resume`.",
        )
    told = {
        "state": state,
        "reason": reason,
        "version_id": row.version_id,
        "version_digest": row.version_digest,
    }
    for part in parts:
        moved = tx.runs.move(part.run_id, "STAGED", **told)
        if known:
            before = tx.index.head_key(moved.dataset_id, moved.partition, moved.win)
            tx.index.put_head_key(head_key_of(moved, moved.timestamp, before))


def close_log(
    world: World,
    log: RunLog,
    idempotency: IdempotencyState,
    *,
    source_id: str,
    trigger: str,
    reason: str,
    elapsed_ms: int,
    ran: Ran,
    artifacts: int = 0,
    level: str = "info",
    fields: Json | None = None,
) -> None:
    """Telemetry, then the ledger's last word, then the key and what became of it."""
    state = idempotency.state
    payload = {
        "run_id": log.run_id,
        "duration_ms": elapsed_ms,
        "dataset": log.dataset_id,
        "source_id": source_id,
        "trigger": without_emitter(trigger),
        "idempotency_state": state,
        "artifact_count": artifacts,
    }
    event = log.event("updater.run", payload)
    world.publish(log).emit_event("updater.run", event)
    log.say("telemetry.emitted", stage="telemetry", event_id=event["event_id"])
    log.say(
        "run.ended",
        stage="ledger",
        level=level,
        state=state,
        reason=reason,
        duration_ms=elapsed_ms,
        **(fields or {}),
    )
    world.telemetry.ended(world, log, state, elapsed_ms, ran)
    log.idempotency(msgspec.to_builtins(_told(world, log.dataset_id, idempotency)))
    world.latest.ran(world, log.dataset_id, log.run_id)


def ran_of(
    updater_id: str, version: str, sources: Sequence[Json], journal: Journal | None, trigger: str
) -> Ran:
    """What is known of a run that ended; without a journal it was not even planned."""
    row = journal.run if journal is not None else None
    judged = journal.payload("assemble", Assembled) if journal is not None else None
    made = judged.artifacts.values() if judged is not None else ()
    refused = row is not None and row.state == "REJECTED"
    return Ran(
        updater_id=updater_id,
        version=version,
        trigger=without_emitter(trigger),
        ended_at=(row.ended_at or "") if row is not None else "",
        began=row.timestamp if row is not None else "",
        # gates stand before the first file of a version
        stage="UPSERT" if refused else phase_of(journal.records if journal is not None else ()),
        partial=refused and PARTIAL in denial_codes(row.reason if row is not None else ""),
        retries=sum(int(s.get("attempts") or 1) - 1 for s in sources),
        inputs=len(sources),
        outputs=len(made),
        bytes_in=sum(int(s.get("size") or 0) for s in sources),
        bytes_out=sum(int(each.get("size") or 0) for each in made),
    )


def ran_in(journal: Journal) -> Ran:
    """The same, of a run that is in the ledger."""
    row = journal.run
    sources = msgspec.json.decode(row.source_metadata)
    return ran_of(row.updater_id, row.updater_version, sources, journal, row.trigger_type)


def latency(row: LedgerRow, now: str) -> int:
    """Milliseconds from the begin of a run."""
    took = dt.datetime.fromisoformat(now) - dt.datetime.fromisoformat(row.timestamp)
    return max(0, int(took.total_seconds() * 1000))


def tell_killed(world: World, log: RunLog, journal: Journal) -> None:
    """The attempt before this one did not live to tell how it ended: it failed, where the journal
    ends.
    """
    row, found = journal.run, ran_in(journal)
    # what is proposed is judged again before it names a generation
    stage = "UPSERT" if (row.state, found.stage) == ("PROPOSED", "EXECUTE") else found.stage
    killed = msgspec.structs.replace(found, stage=stage, killed=True, ended_at="")
    world.telemetry.ended(world, log, "FAILED", latency(row, rfc3339(world.clock.now())), killed)


def tell_end(world: World, log: RunLog, journal: Journal) -> None:
    """Telemetry of a run that ended: before its journal is archived, for until then it is known
    that there may be something to tell.
    """
    row = journal.run
    world.telemetry.ended(world, log, row.state, latency(row, str(row.ended_at)), ran_in(journal))


def _told(world: World, dataset_id: str, state: IdempotencyState) -> IdempotencyState:
    """What may be told of a private input: validators and keys that follow its content become
    commitments.
    """
    if not world.is_private(dataset_id):
        return state

    def hidden(value: str) -> str:
        return world.stand_in(dataset_id, value).rpartition(":")[2] if value else ""

    veil = world.veil(dataset_id)
    return msgspec.structs.replace(
        state,
        etag=hidden(veil.uncover(state.etag)),
        key=hidden(state.key),
        sources=tuple(
            {**s, "etag": hidden(veil.uncover(s["etag"])), "key": hidden(s["key"])}
            for s in state.sources
        ),
    )


def idempotency_state(
    run_id: str,
    dataset_id: str,
    sources: Sequence[Json],
    *,
    window: str,
    pipeline_version: str,
    key: str,
    spec_hash: str,
    state: str,
    output_keys: Sequence[str] = (),
) -> IdempotencyState:
    """`idempotency.json`; several sources as a list beside the first."""
    return IdempotencyState(
        run_id=run_id,
        dataset_id=dataset_id,
        source_url=sources[0]["source_url"],
        etag=sources[0]["etag"] or "",
        window=window,
        pipeline_version=pipeline_version,
        key=key,
        output_keys=tuple(output_keys),
        spec_hash=spec_hash,
        state=state,
        sources=tuple(
            {
                "source_id": s["source_id"],
                "source_url": s["source_url"],
                "etag": s["etag"] or "",
                "key": ids.run_key(s["source_url"], s["etag"], window, pipeline_version),
            }
            for s in (sources if len(sources) > 1 else ())
        ),
    )


def close_runs(tx: Tx, clock: Clock, rows: list[LedgerRow], why: str) -> None:
    """The runs end SUPERSEDED; parts of an assembling one stay as they are."""
    for row in rows:
        tx.runs.move(
            row.run_id,
            row.state,
            state="SUPERSEDED",
            promo=0,
            reason=why,
            ended_at=rfc3339(clock.now()),
        )
