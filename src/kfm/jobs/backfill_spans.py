"""Which partitions of a backfill are handed out next, as jobs that each name a span of them."""

import msgspec

from kfm.jobs.backfill_plan import BackfillPlan, read_plan
from kfm.model import BackfillRow, JobRow, Json, Request, UsageError
from kfm.store.base import Tx
from kfm.world.world import World

__all__ = [
    "JOB_TYPE",
    "OVER",
    "at_once",
    "begun",
    "due",
    "go_on",
    "hand_out",
    "is_of",
    "mark_of",
    "next_span",
    "put_batch",
    "said_failed",
    "slots_of",
]

JOB_TYPE = "backfill.run_parts"
AHEAD = 8  # batches that wait or run at once where neither plan nor pool says how many
OVER = ("done", "cancelled")


def slots_of(tx: Tx, pool: str) -> int | None:
    """How much of a pool runs at once; None: not limited."""
    return next((p.slots for p in tx.pools.listing() if p.name == pool), None)


def hand_out(tx: Tx, row: BackfillRow) -> BackfillRow:
    """Put jobs, a bounded number ahead of those who work them."""
    plan = read_plan(row)
    out, most = len(tx.backfill.outs(row.backfill_id)), at_once(tx, plan)
    while out < most:
        span, row = next_span(tx, row, plan)
        if span is None:
            break
        put_batch(tx, row, plan, *span)
        out += 1
    found: BackfillRow = tx.backfill.put(row)
    return found


def at_once(tx: Tx, plan: BackfillPlan) -> int:
    """How many batches may be handed out at the same time."""
    return plan.concurrency or 2 * (slots_of(tx, plan.pool) or AHEAD // 2)


def next_span(
    tx: Tx, row: BackfillRow, plan: BackfillPlan
) -> tuple[tuple[int, int] | None, BackfillRow]:
    """What comes next: failed partitions while a resume goes over them, then those that nobody had
    yet.
    """
    if row.retry_n < row.next_n:
        for failed in tx.backfill.failing(row.backfill_id, 1, row.retry_n):
            first = failed.n
            amount = min(plan.batch, row.next_n - first)
            return (first, amount), msgspec.structs.replace(row, retry_n=first + amount)
    amount = min(plan.batch, row.total - row.next_n)
    span = (row.next_n, amount) if amount else None
    return span, msgspec.structs.replace(
        row, next_n=row.next_n + amount, retry_n=row.next_n + amount
    )


def put_batch(tx: Tx, row: BackfillRow, plan: BackfillPlan, first: int, amount: int) -> None:
    job = tx.jobs.submit(
        _request(row, plan, {"backfill_id": row.backfill_id, "first": first, "count": amount})
    )
    tx.backfill.put_out(row.backfill_id, first, amount, job.job_id)


def _request(row: BackfillRow, plan: BackfillPlan, parameters: Json) -> Request:
    by = (
        row.put_by
        if row.put_by == "system" or row.put_by.startswith("user:")
        else f"user:{row.put_by}"
    )
    return Request(
        job_type=JOB_TYPE,
        dataset_id=row.dataset_id,
        parameters=parameters,
        pool=plan.pool,
        requested_by=by,
        reason=mark_of(row),
    )


def begun(world: World, backfill_id: str) -> BackfillRow:
    """The row of a backfill that was started."""
    found = world.store.read(lambda tx: tx.backfill.get(backfill_id))
    if found is None:
        raise UsageError(
            f"There is no backfill {backfill_id}.",
            expected="one that was begun",
            remedy="`kfm backfill list` shows them.",
        )
    return found


def mark_of(row: BackfillRow) -> str:
    """The reason that jobs of a backfill carry."""
    return f"backfill {row.backfill_id}"


def is_of(job: JobRow, row: BackfillRow) -> bool:
    """Whether a job was put for a backfill: of one partition's ingest the reason is all that
    tells.
    """
    return job.reason == mark_of(row)


def said_failed(count: int) -> str:
    """Why a backfill stopped."""
    return "1 partition failed" if count == 1 else f"{count} partitions failed"


def go_on(tx: Tx, row: BackfillRow, put: bool) -> BackfillRow:
    """After a batch: stop when too many fail, hand out more, assemble when it is time to."""
    plan = read_plan(row)
    if row.state != "running":
        return tx.backfill.put(row)
    failed = tx.backfill.failed_since(row.backfill_id, row.began_ms)
    if failed >= plan.stop_after and failed > plan.acceptance.max_failed * row.total:
        row = msgspec.structs.replace(row, state="stopped", reason=said_failed(failed))
    elif put:
        row = hand_out(tx, row)
    if (
        row.state == "running"
        and not tx.backfill.outs(row.backfill_id)
        and next_span(tx, row, plan)[0] is None
    ):
        failed = tx.backfill.failed_since(row.backfill_id, 0)
        if failed > plan.acceptance.max_failed * row.total:
            row = msgspec.structs.replace(row, state="incomplete", reason=said_failed(failed))
        else:
            row = msgspec.structs.replace(row, state="assembling")
    if put and (row.state == "assembling" or due(tx, row, plan)):
        tx.jobs.submit(_request(row, plan, {"backfill_id": row.backfill_id, "assemble": True}))
    return tx.backfill.put(row)


def due(tx: Tx, row: BackfillRow, plan: BackfillPlan) -> bool:
    """Whether so many parts wait that the plan wants a version of them now."""
    return (
        row.state == "running"
        and plan.every > 1
        and len(tx.backfill.staged(row.backfill_id, plan.every)) >= plan.every
    )
