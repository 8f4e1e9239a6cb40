"""update: from a look at upstream to a durable part.

Every `yield` stands between two durable operations: a driver may stop there, a test may kill or
freeze the run there. The order of operations is that of the checked model; see docs/protocol.md.
"""

from pathlib import Path

from kfm.connectors.base import TransformResult
from kfm.evidence.acts import check_erased
from kfm.evidence.journal import Journal, Page
from kfm.evidence.receipts import finish
from kfm.model.clock import rfc3339
from kfm.model.errors import UsageError
from kfm.model.job import INGEST
from kfm.model.journal import PartDone
from kfm.model.ledger import LedgerRow
from kfm.model.paths import (
    captures_folder,
    channel_folder,
    parts_folder,
    proposals_folder,
    version_folder,
)
from kfm.model.plan import Plan, SourceRef, Step
from kfm.model.schedule import without_emitter
from kfm.run.claim import Answer, Claimed, LookAgain, Settle, check_switch, claim
from kfm.run.look import Captured, capture_again, look, replay_capture, source_refs
from kfm.run.noop import Noop, is_noop
from kfm.run.part import make_part, part_fields
from kfm.run.work import MustSettle, Reached, Steps, Taken, Work, guarded
from kfm.store.base import Tx
from kfm.world.outcome import Outcome
from kfm.world.target import Target
from kfm.world.world import AlreadyStaged, World

__all__ = ["look_and_plan", "make_plan", "update"]


def make_plan(target: Target, inputs: tuple[SourceRef, ...]) -> Plan:
    """The plan for these inputs: pure, so the same inputs always give the same bytes."""
    part = parts_folder(target.dataset_id)
    steps = (
        Step(
            id="capture",
            phase="EXECUTE",
            effect="keyed",
            targets=tuple(captures_folder(target.dataset_id) for _ in inputs[:1]),
        ),
        Step(
            id="transform",
            phase="EXECUTE",
            effect="keyed",
            needs=("capture",),
            targets=(f"{part}/{target.artifact}",),
        ),
        Step(
            id="assemble",
            phase="EXECUTE",
            effect="keyed",
            needs=("transform",),
            targets=(proposals_folder(target.dataset_id),),
        ),
        Step(
            id="version",
            phase="UPSERT",
            effect="keyed",
            needs=("assemble",),
            targets=(version_folder(target.dataset_id, target.artifact),),
        ),
        Step(
            id="lineage", phase="LINEAGE", effect="keyed", needs=("version",), targets=("lineage",)
        ),
        Step(
            id="channel",
            phase="LINEAGE",
            effect="keyed",
            needs=("lineage",),
            targets=(channel_folder(target.dataset_id),),
        ),
    )
    return Plan(
        dataset_id=target.dataset_id,
        partition=target.partition,
        updater_id=target.updater_id,
        updater_version=target.pipeline_version,
        spec_hash=target.spec_hash,
        inputs=inputs,
        steps=steps,
    )


# ---- take ----------------------------------------------------------------------------------------
def _take(tx: Tx, world: World, target: Target) -> Taken | None:
    """Take the job and the lease of its partition in one transaction; what is switched off does not
    begin.
    """
    check_switch(tx, target.dataset_id, INGEST)
    check_erased(world, target.dataset_id)
    job = tx.jobs.get(target.dataset_id, target.partition, target.win)
    if job is None or job.state == "ended":
        return None
    token = tx.leases.take(target.partition_lease, world.holder, world.lease_seconds)
    if token is None:
        return None
    tx.jobs.start(job)
    return Taken(token, job.forced)


def update(world: World, target: Target, replay: LedgerRow | None = None) -> Steps:
    """Work the queued job of `target`. None: there is no such job, or another run holds its lease.

    With `target.staged` it ends when its part is durable. `replay` feeds an unfinished run from its
    own capture instead of asking upstream again.
    """
    if target.staged and world.is_private(target.dataset_id):
        raise UsageError(
            f"{target.dataset_id} is not public: what is withheld is checked against each capture,"
            " so its parts are not staged.",
            expected="a public dataset",
            remedy=f"`kfm run {target.dataset_id} --window …` runs one window after the other.",
        )
    work = Work(world, target)
    return (yield from guarded(work, _steps(work, replay)))


def _steps(work: Work, replay: LedgerRow | None) -> Steps:
    """Take the job; look, claim, make the part, assemble."""
    taken = work.take(lambda tx: _take(tx, work.world, work.target))
    if taken is None:
        return None
    work.forced = taken.forced
    trigger = without_emitter(work.target.trigger)
    work.log.say("run.triggered", stage="watch", trigger=trigger, forced=bool(taken.forced))
    yield Reached.JOB_TAKEN
    conditional = True
    while True:
        with work.world.data.scratch() as scratch:
            work.captured = captured = _look(work, replay, scratch, conditional)
            yield Reached.CAPTURED
            match _decide(work, captured):
                case Settle(row):
                    yield MustSettle(row.run_id)
                    yield from _settle(work, row)
                case LookAgain():
                    # the head moved after the conditional request, or the replayed run is gone
                    conditional = conditional and replay is not None
                    replay = None
                case Noop() as noop:
                    return _noop(work, noop)
                case Claimed(wal=wal) as claimed:
                    work.begin(claimed)
                    yield Reached.CLAIMED
                    result = yield from make_part(work, wal, captured, scratch)
                    if work.target.staged:
                        _stage(work, wal, result)
                        yield Reached.STAGED
                        return _staged(work, result)
                    return (yield from _assemble(work, wal, result))


def _assemble(work: Work, wal: Journal, result: TransformResult) -> Steps:
    from kfm.run.assemble import assemble  # a NOOP never gets here, and starts faster for it

    work.partial = wal.require("transform", PartDone).replays or None
    return (yield from assemble(work, wal, result))


def _stage(work: Work, wal: Journal, result: TransformResult) -> None:
    """The part is durable, the run STAGED, its job done, the lease free: one transaction."""
    changes = {
        "state": "STAGED",
        "ended_at": rfc3339(work.world.clock.now()),
        "latency_ms": work.elapsed_ms(),
    }
    changes |= part_fields(wal.require("transform", PartDone), wal.run)

    def stage(tx: Tx, page: Page) -> None:
        page.move(tx, "CLAIMED", **changes)
        work.ack(tx)
        tx.leases.release(*work.tokens)

    wal.commit(stage)


def _staged(work: Work, result: TransformResult) -> Outcome:
    row = work.row
    assert row is not None
    with work.world.ended():
        work.close_log("STAGED", "")
        finish(work.world, row.run_id)
    numbers = {
        "rows_read": row.rows_read,
        "rows_written": row.rows_written,
        "quarantined": result.books.quarantined,
    }
    return work.outcome("STAGED", names=f"backfill {row.backfill}", **numbers)


def _settle(work: Work, row: LedgerRow) -> Steps:
    from kfm.run.promote import promote  # the same

    return (yield from promote(work.world, row.dataset_id, row.run_id, wait=True))


def _look(work: Work, replay: LedgerRow | None, scratch: Path, conditional: bool) -> Captured:
    if work.target.again is not None:
        return capture_again(work.world, work.target.again.row, scratch)
    kept = replay_capture(work.world, replay, scratch) if replay is not None else None
    if kept is None and work.target.asks and work.target.connector is None:
        work.world.prepare(work.world.is_private(work.target.dataset_id))
    return kept or look(
        work.world, work.target, work.log, scratch, conditional=conditional and not work.forced
    )


def _decide(work: Work, captured: Captured) -> Answer:
    toolchain = "" if captured.unchanged else work.world.toolchain_digest()
    plan: Plan | None = None
    if not captured.unchanged:
        plan = make_plan(work.target, source_refs(work.target, captured))
    work.run_id = work.world.new_run_id()
    answer = work.world.store.transaction(
        lambda tx: claim(
            tx, work.world, work.target, work.token, captured, plan, toolchain, work.run_id
        )
    )
    work.forced = answer.forced if isinstance(answer, LookAgain | Claimed) else 0
    return answer


def _noop(work: Work, noop: Noop) -> Outcome:
    with work.world.ended():
        work.log.bind(work.run_id)
        work.log.say("run.noop", stage="idempotency", reason=noop.reason, names=noop.names)
        told = {"code": noop.code, "names": noop.names, "partition": work.target.partition}
        work.close_log("NOOP", noop.reason, **told)  # what a rebuilt store knows of it
    head, kind = noop.head, AlreadyStaged if noop.code == "staged" else Outcome
    return kind(
        dataset_id=work.target.dataset_id,
        run_id=work.run_id,
        state="NOOP",
        reason=noop.reason,
        names=noop.names,
        exit_code=noop.exit_code,
        remedy={
            3: f"kfm explain deny {work.target.dataset_id}",
            7: f"kfm review {noop.names.rpartition(' ')[2]}",
        }.get(noop.exit_code, ""),
        version_id=head.version_id if head else None,
        generation=head.generation if head else None,
        partition=work.target.partition,
        window=work.target.win,
    )


def look_and_plan(world: World, target: Target) -> tuple[Plan, bool]:
    """The plan for what upstream has now, and whether running it would do anything."""
    with world.data.scratch() as scratch:
        captured = look(world, target, world.log(target.dataset_id), scratch, conditional=False)
        plan = make_plan(target, source_refs(target, captured))

        def would(tx: Tx) -> bool:
            return (
                is_noop(tx, world, target, captured, world.channel(target.dataset_id).head(tx), [])
                is None
            )

        return plan, world.store.transaction(would)
