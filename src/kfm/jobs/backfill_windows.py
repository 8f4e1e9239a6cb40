"""Backfills: a past range cut into partitions, staged in parallel by jobs, assembled into one
version.

The ledger is the truth about each partition. The rows here say what was handed out and what came
back, so that plan, status and resume look at a few of them, however many partitions there are.
"""

import msgspec

from kfm.jobs.backfill_assembly import assemble
from kfm.jobs.backfill_batch import WAIT_S, Targets, Told, bases_of, work_batch
from kfm.jobs.backfill_plan import BackfillPlan, Grid, backfill_id, grid_of, read_plan, resolved
from kfm.jobs.backfill_progress import audit, summarise
from kfm.jobs.backfill_records import Estimate
from kfm.jobs.backfill_spans import (
    OVER,
    begun,
    due,
    go_on,
    hand_out,
    is_of,
    next_span,
    put_batch,
    slots_of,
)
from kfm.model import GONE, BackfillRow, Evidence, UsageError, canonical, ids, is_assembly, rfc3339
from kfm.model.paths import backfill_path
from kfm.model.window import seconds
from kfm.run.claim import check_kept
from kfm.store.base import Tx
from kfm.world.outcome import Outcome
from kfm.world.target import Target
from kfm.world.world import World

__all__ = ["cancel", "estimate", "find", "resume", "settle", "start", "work_here"]


# ---- before --------------------------------------------------------------------------------------
def settle(world: World, plan: BackfillPlan, target: Target) -> tuple[BackfillPlan, Grid]:
    """The plan with everything written out that its grid follows from, and the grid; refused when
    it names a gate that does not exist.
    """
    plan = resolved(plan, target.entry)
    grid = grid_of(plan)
    if grid.until > world.clock.now():
        raise UsageError(
            f"{plan.until} has not come yet.",
            expected="an end that lies in the past",
            remedy="Schedules fetch what is still to come.",
        )
    nothing = Evidence(entry=None, expected={}, found={}, schema=(), books=GONE)
    known = (
        [gate.look(nothing).gate for gate in world.gates] if plan.acceptance.gates != "all" else []
    )
    strange = (
        [name for name in plan.acceptance.gates if name not in known]
        if plan.acceptance.gates != "all"
        else []
    )
    if plan.every != 1 and world.is_private(plan.dataset):
        raise UsageError(
            f"{plan.dataset} is not public: what is withheld is checked against each capture, so"
            " its parts are not staged.",
            expected="a public dataset, or a version per partition",
            remedy="Write `assemble: every 1`.",
        )
    if strange:
        raise UsageError(
            f"There is no gate {strange[0]}.",
            expected=f"all, or some of {', '.join(known)}",
            remedy="Correct acceptance.gates.",
        )
    return plan, grid


def estimate(world: World, plan: BackfillPlan, target: Target) -> Estimate:
    """Count, requests, bytes and time, from the runs that were measured; nothing is written."""
    plan, grid = settle(world, plan, target)
    rows = [
        r
        for r in world.store.read(lambda tx: tx.runs.recent(plan.dataset, 100))
        if r.latency_ms and r.part and not is_assembly(r)
    ]
    lanes = plan.concurrency or world.store.read(lambda tx: slots_of(tx, plan.pool)) or 1
    asked = grid.total * max(len(target.sources), 1)
    sizes = [sum(s.get("size") or 0 for s in msgspec.json.decode(r.source_metadata)) for r in rows]
    each = sum(r.latency_ms or 0 for r in rows) / len(rows) / 1000 if rows else 0.0
    took = grid.total * each / lanes if rows else seconds(plan.expected_runtime)
    return Estimate(
        partitions=grid.total,
        jobs=-(-grid.total // plan.batch),
        requests=asked,
        bytes=grid.total * sum(sizes) // len(rows) if rows else None,
        seconds=(
            int(max(took, asked / plan.rate.per_second if plan.rate else 0)) + 1 if took else None
        ),
        measured=len(rows),
    )


# ---- commands ------------------------------------------------------------------------------------
def start(
    world: World,
    name: str,
    plan: BackfillPlan,
    target: Target,
    by: str,
    *,
    put: bool = True,
    again: bool = False,
) -> tuple[BackfillRow, bool]:
    """Begin a backfill, or find the one that this plan began already (then False)."""
    check_kept(target.entry)
    plan, grid = settle(world, plan, target)
    now = world.clock.now()

    def begin(tx: Tx) -> tuple[BackfillRow, bool]:
        number = 0
        while (
            old := tx.backfill.get(backfill_id(plan, target.transform_hash, number))
        ) is not None:
            if old.state not in (OVER if again else ("cancelled",)):
                return old, False
            number += 1
        row = BackfillRow(
            backfill_id=backfill_id(plan, target.transform_hash, number),
            name=name,
            dataset_id=plan.dataset,
            state="running",
            plan=canonical.dumps(msgspec.to_builtins(plan)).decode(),
            transform_hash=target.transform_hash,
            total=grid.total,
            put_by=by,
            put_at=rfc3339(now),
            began_ms=tx.backfill.now_ms(),
            touched_ms=tx.backfill.now_ms(),
        )
        tx.backfill.put(row)
        return (hand_out(tx, row) if put else row), True

    row, new = world.store.transaction(begin)
    world.data.create(
        backfill_path(row.dataset_id, row.backfill_id, "plan.json"), row.plan.encode()
    )
    if new:
        audit(
            world,
            row,
            "backfill.started",
            by=by,
            plan_digest=ids.digest(row.plan.encode()),
            partitions=row.total,
        )
    return row, new


def find(world: World, word: str) -> BackfillRow:
    """The newest backfill of this id, name or dataset."""
    row: BackfillRow | None = world.store.read(lambda tx: tx.backfill.find(word))
    if row is None:
        raise UsageError(
            f"No backfill {word} was started.",
            expected="an id, a name or a dataset",
            remedy="`kfm backfill list` shows them.",
        )
    return row


def resume(
    world: World, row: BackfillRow, by: str, *, put: bool = True, targets: Targets | None = None
) -> BackfillRow:
    """Hand out what failed or never came back, then the rest; what is done stays done. With
    `targets` other code is refused at once.
    """
    if row.state == "cancelled":
        raise UsageError(
            f"Backfill {row.backfill_id} was cancelled.",
            expected="one that is not over",
            remedy=f"`kfm backfill start {row.name}` begins anew.",
        )
    if world.registry(row.dataset_id) is None:
        raise UsageError(
            f"{row.dataset_id} is not in the registry any more.",
            expected="the entry it began with",
            remedy=(
                f"Put data/registry/{row.dataset_id}.yml back, or `kfm backfill cancel"
                f" {row.backfill_id}`."
            ),
        )
    if targets is not None and row.state != "done":
        bases_of(row, read_plan(row), targets)

    def again(tx: Tx) -> BackfillRow:
        now = tx.backfill.lock(row.backfill_id)
        if now.state == "done" and not tx.backfill.failing(now.backfill_id, 1):
            return now
        tx.backfill.follow_ledger(now)
        now = msgspec.structs.replace(
            now, state="running", reason="", retry_n=0, ended_at=None, began_ms=tx.backfill.now_ms()
        )
        for first, amount, job_id in tx.backfill.outs(now.backfill_id) if put else ():
            job = tx.jobs.of(job_id) if job_id else None
            if job is None or job.state == "ended":
                put_batch(tx, now, read_plan(now), first, amount)
        return go_on(tx, now, put)

    found: BackfillRow = world.store.transaction(again)
    if found.state != "done":
        audit(world, found, "backfill.resumed", by=by)
    return found


def cancel(world: World, row: BackfillRow, by: str, reason: str) -> BackfillRow:
    """Hand out nothing more. What runs ends its partition; staged parts stay where they are, and
    nothing official changes.
    """

    def end(tx: Tx) -> BackfillRow:
        now = tx.backfill.lock(row.backfill_id)
        if now.state in OVER:
            return now
        jobs = [job for job in tx.jobs.waiting(now.dataset_id) if is_of(job, now)]
        if any(
            job.state == "running" and "assemble" in msgspec.json.decode(job.envelope)["parameters"]
            for job in jobs
        ):
            raise UsageError(
                f"Backfill {now.backfill_id} is being assembled.",
                expected="parts that wait",
                remedy="`kfm rollback` undoes what comes of it.",
            )
        for job in jobs:
            if job.state == "queued":
                tx.jobs.cancel(job.job_id)
        return tx.backfill.save(
            now, state="cancelled", reason=reason, ended_at=rfc3339(world.clock.now())
        )

    found: BackfillRow = world.store.transaction(end)
    if found.state == "cancelled" and row.state != "cancelled":
        audit(world, found, "backfill.cancelled", by=by, reason=reason)
        summarise(world, found)
    return found


def work_here(
    world: World,
    backfill_id: str,
    targets: Targets,
    told: Told | None = None,
    wait_s: float = WAIT_S,
) -> tuple[BackfillRow, Outcome | None]:
    """Work a backfill in this process until it ends or stops; batches that a living worker has are
    left to it.
    """
    for zone in (world.data, world.root):
        zone.sweep()  # what an earlier one left that was killed

    def mine(tx: Tx) -> tuple[int, int] | None:
        row = tx.backfill.lock(backfill_id)
        tx.queue.reap()
        for first, amount, job_id in tx.backfill.outs(backfill_id):
            job = tx.jobs.of(job_id) if job_id else None
            if job is not None and job.state == "queued":  # no worker has it
                tx.jobs.cancel(job_id)
            if job is None or job.state != "running":
                return first, amount
        span, row = next_span(tx, row, read_plan(row))
        if span is not None:
            tx.backfill.put_out(backfill_id, *span, "")
            tx.backfill.put(row)
        return span

    idle = False  # whether the last assemble changed nothing
    with world.warm():
        while True:
            row = begun(world, backfill_id)
            if row.state == "assembling" or (
                not idle and world.store.read(lambda tx: due(tx, row, read_plan(row)))
            ):
                row, outcome = assemble(world, backfill_id, targets)
                if row.state != "running":
                    return row, outcome
                idle = outcome is None or outcome.state == "NOOP"
                continue
            idle = False
            span = world.store.transaction(mine) if row.state == "running" else None
            if span is None:
                return row, None
            work_batch(world, backfill_id, targets, *span, put=False, told=told, wait_s=wait_s)
