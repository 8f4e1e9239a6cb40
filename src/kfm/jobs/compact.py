"""Make small what is kept for long: NOOPs and their receipts into packs, ended journals beside
their receipts, old finished jobs out of the table.
"""

import datetime as dt

import msgspec

from kfm.evidence.projection import tick
from kfm.jobs.base import JobContext, JobResult, JobType
from kfm.model import UsageError, rfc3339
from kfm.upkeep.pack import pack_noops, pack_receipts
from kfm.upkeep.reindex import datasets_with_evidence

__all__ = ["JOB", "Parameters"]


class Parameters(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How long finished jobs are remembered."""

    days: int = 30


def run(ctx: JobContext) -> JobResult:
    """One dataset, or all of them, then the job table and the store's own file."""
    days = ctx.asked(Parameters).days
    if days < 1:
        raise UsageError(
            "`days` is less than 1.",
            expected="at least one day of finished jobs",
            remedy="Correct --set days=N.",
        )
    world = ctx.world
    named = [ctx.job.dataset_id] if ctx.job.dataset_id else datasets_with_evidence(world)
    packed = sum(pack_noops(world, name) for name in named)
    receipts = pack_receipts(world)
    archived = sum(
        len([done for done in tick(world, name) if done.startswith("archive")]) for name in named
    )
    before = rfc3339(world.clock.now() - dt.timedelta(days=days))
    forgotten = world.store.transaction(lambda tx: tx.jobs.forget(before))
    if hasattr(world.store, "tidy"):
        world.store.tidy()
    counts = {
        "noops packed": packed,
        "receipts packed": receipts,
        "journals archived": archived,
        "jobs forgotten": forgotten,
    }
    return JobResult(
        status="succeeded" if any(counts.values()) else "skipped",
        reason=", ".join(f"{count} {what}" for what, count in counts.items() if count)
        or "nothing to make smaller",
    )


JOB = JobType(
    name="maintenance.compact",
    purpose=(
        "Pack NOOP runs and their receipts, archive ended journals, forget finished jobs, tidy the"
        " store"
    ),
    triggers="schedule, manual",
    inputs="ledger, journals, job table",
    outputs="packs of NOOP runs and of receipts, archived journals; receipt",
    parameters=Parameters,
    idempotency=(
        "what is packed, archived or forgotten is not found again; the same addresses answer"
    ),
    rules=("failed and dead jobs stay until a person has looked", "finished ones stay 30 days"),
    zone_in="Work",
    zone_out="Work",
    run=run,
)
