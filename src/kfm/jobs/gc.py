"""Remove what retention no longer keeps: dry unless `apply` is set, and every removed file stands
in the receipt with its digest.
"""

import msgspec

from kfm.jobs.base import JobContext, JobResult, JobType, write_receipt
from kfm.model import Fenced, PolicyDecision, rfc3339
from kfm.upkeep.reindex import datasets_with_evidence
from kfm.upkeep.retention import GRACE, Swept, doomed, settle, sweep

__all__ = ["JOB", "Parameters"]


class Parameters(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Whether to remove anything, and how young is too young."""

    apply: bool = False
    grace: str = GRACE


def run(ctx: JobContext) -> JobResult:
    """One dataset, or all of them; the receipt is written before the sweep counts as done."""
    started = rfc3339(ctx.world.clock.now())
    named = [ctx.job.dataset_id] if ctx.job.dataset_id else datasets_with_evidence(ctx.world)
    asked = ctx.asked(Parameters)
    if not asked.apply:
        count = sum(
            len(item.paths) for name in named for item in doomed(ctx.world, name, asked.grace)
        )
        return JobResult(
            status="skipped", reason=f"{count} files could be removed; `apply` was not asked for"
        )
    done, busy = list[Swept](), list[str]()
    for name in named:
        try:
            done.append(sweep(ctx.world, name, ctx.run_id, asked.grace))
        except Fenced:
            if len(named) == 1:
                raise
            busy.append(name)
    result = _result(done, busy)
    result = msgspec.structs.replace(result, receipt=write_receipt(JOB, ctx, result, started))
    for swept in done:
        settle(ctx.world, swept)
    return result


def _result(done: list[Swept], busy: list[str]) -> JobResult:
    files = {f"data/{path}": digest for swept in done for path, digest in swept.files.items()}
    said = f"{len(files)} files removed" + (
        f"; a run is at work on {', '.join(busy)}: try again later" if busy else ""
    )
    return JobResult(
        status="succeeded" if files else "skipped",
        reason=said if files or busy else "nothing is older than it may be",
        files=files,
        decisions=(
            PolicyDecision(
                decision="allow",
                gate="retention",
                reason="no channel, run, proposal or hold needs them",
            ),
        ),
    )


JOB = JobType(
    name="maintenance.gc",
    purpose=(
        "Remove versions, captures, parts, quarantine and runs nothing came of that retention no"
        " longer keeps"
    ),
    triggers="schedule, manual",
    inputs="channels, ledger, journals, proposals, holds and the registry's retention",
    outputs="fewer files; a receipt that lists each with its digest",
    parameters=Parameters,
    idempotency=(
        "the plan is durable before the first removal; a repeat finishes what a killed one began"
    ),
    rules=(
        "nothing younger than the grace time (1h)",
        "the head and what a rollback goes back to stay",
        "retention not set: for ever",
    ),
    zone_in="Processed",
    zone_out="Work",
    run=run,
)
