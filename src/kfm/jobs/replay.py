"""Work a capture again with what people decided about it; upstream is not asked."""

import msgspec

from kfm.jobs.base import JobContext, JobResult, JobType, passed
from kfm.jobs.drive import run_target
from kfm.jobs.ingest import WAIT_S, told
from kfm.model import LedgerRow, UsageError
from kfm.quarantine.desk import Desk

__all__ = ["JOB", "REPLAY", "Parameters"]

REPLAY = "quarantine.replay"


class Parameters(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The run that set something aside."""

    run_id: str


def run(ctx: JobContext) -> JobResult:
    """Do what `kfm quarantine replay` does."""
    run_id = ctx.asked(Parameters).run_id
    row: LedgerRow | None = ctx.world.store.read(lambda tx: tx.runs.get(run_id))
    if row is None or row.dataset_id != ctx.dataset_id:
        raise UsageError(
            f"{ctx.dataset_id} has no run {run_id}.",
            expected="a run that set something aside",
            remedy="`kfm quarantine list` shows them.",
        )
    every = ctx.targets(ctx.dataset_id, win=row.win)
    target = next((t for t in every if t.partition == row.partition), None)
    if target is None:
        raise UsageError(
            f"{ctx.dataset_id} has no partition {row.partition} any more.",
            expected="a registered one",
            remedy=f"`kfm dataset show {ctx.dataset_id}` lists them.",
        )
    wanted, _ = Desk(ctx.world, ctx.dataset_id).again(target, run_id)
    if wanted is None:
        return JobResult(status="skipped", reason="what was decided is official already")
    found = told(ctx, [run_target(ctx.world, wanted, wait_s=WAIT_S)])
    # the run has its receipt; that it was asked for again is told in one of its own
    decisions = (*passed(found.outputs), *found.decisions)
    return msgspec.structs.replace(found, receipt="", decisions=decisions)


JOB = JobType(
    name=REPLAY,
    purpose="Work a capture again with what people decided about it",
    triggers="manual",
    inputs="a capture in Raw, decisions on what was set aside",
    outputs="a version when something changed, receipt",
    parameters=Parameters,
    idempotency="what was decided is brought in once: a second replay finds it official",
    rules=("upstream is not asked", "every gate and the policy"),
    zone_in="Raw",
    zone_out="Published",
    run=run,
    timeout_s=6 * 3600,
)
