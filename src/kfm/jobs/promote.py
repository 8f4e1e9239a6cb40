"""Make official what was proposed and needs nobody any more: of a run that ended on the way, or that
left it to a worker.
"""

from kfm.jobs.base import (
    NO_RECEIPT,
    JobContext,
    JobResult,
    JobType,
    NoParameters,
    passed,
    published,
)
from kfm.jobs.promote_here import promote_run
from kfm.model import PROMOTE, Fenced, KfmError, PolicyDecision
from kfm.world.outcome import Outcome, worst

__all__ = ["JOB"]

WAIT_S = 5.0


def run(ctx: JobContext) -> JobResult:
    """Promote every proposal of the dataset that waits for nobody; the engine ends the job itself,
    in the transaction that ends the last of them.
    """
    world, outcomes, refused = ctx.world, list[Outcome](), None
    for row in world.store.read(lambda tx: tx.runs.promotable(ctx.dataset_id)):
        now = world.store.read(lambda tx: tx.runs.get(row.run_id))
        if now is None or now.state != "PROPOSED":
            continue  # superseded by the one before
        try:
            outcomes.append(promote_run(world, now, WAIT_S))
        except KfmError as error:
            if not outcomes and isinstance(error, Fenced):  # another process is at it: later
                return JobResult(
                    status="skipped", reason=error.happened, exit_code=5, receipt=NO_RECEIPT
                )
            if not outcomes:
                raise
            refused = error
            break
    if not outcomes:
        return JobResult(status="skipped", reason="nothing waits to be promoted")
    last, made = worst(outcomes), tuple(published(outcomes))
    code = refused.exit_code if refused is not None else last.exit_code
    reason = refused.happened if refused is not None else last.reason or last.state
    return JobResult(
        status="failed" if code not in (0, 7) else "succeeded",
        reason=reason,
        error=reason if code not in (0, 7) else "",
        outputs=made,
        decisions=(
            *passed(made),
            *(
                PolicyDecision(decision="deny", gate="gates", reason=r["code"])
                for r in last.reasons
            ),
        ),
        retry=code != 3,
        exit_code=code,
    )


JOB = JobType(
    name=PROMOTE,
    purpose="Make official what was proposed and needs nobody any more",
    triggers="a proposal whose approvals suffice",
    inputs="the proposals of one dataset",
    outputs="a generation in the channel, with catalogs, lineage and receipts",
    parameters=NoParameters,
    idempotency=(
        "the generation a run has named: it is created once, and a second promotion finds it"
    ),
    rules=(
        "judged again by every gate, on current policy, labels and bytes",
        "given up only while its run has named no generation",
    ),
    zone_in="Work",
    zone_out="Published",
    run=run,
)
