"""Make official what was proposed and needs nobody any more: of a run that ended on the way, or that
left it to a worker.
"""

from kfm.jobs.base import JobContext, JobResult, JobType, NoParameters
from kfm.jobs.promotion import promote_run
from kfm.model.errors import Fenced
from kfm.model.receipt import PolicyDecision, ReceiptOutput
from kfm.store.job_rows import PROMOTE
from kfm.world.outcome import Outcome

__all__ = ["JOB"]

WAIT_S = 5.0


def run(ctx: JobContext) -> JobResult:
    """Promote every proposal of the dataset that waits for nobody; the engine ends the job itself,
    in the transaction that ends the last of them.
    """
    world, outcomes = ctx.world, list[Outcome]()
    for row in world.store.read(lambda tx: tx.runs.promotable(ctx.dataset_id)):
        try:
            outcomes.append(promote_run(world, row, WAIT_S))
        except Fenced as error:  # another process is at it: look again in a while
            return JobResult(status="skipped", reason=error.happened, exit_code=5, receipt="-")
    if not outcomes:
        return JobResult(status="skipped", reason="nothing waits to be promoted")
    last = max(outcomes, key=lambda o: o.exit_code)
    return JobResult(
        status="failed" if last.exit_code not in (0, 7) else "succeeded",
        reason=last.reason or last.state,
        error=last.reason if last.exit_code not in (0, 7) else "",
        outputs=tuple(
            ReceiptOutput(
                kind="dataset",
                id=f"kfm://dataset/{o.dataset_id}@{o.version_id}",
                checksum="",
                zone="Published",
            )
            for o in outcomes
            if o.state == "COMMITTED" and o.version_id
        ),
        decisions=tuple(
            PolicyDecision(decision="deny", gate="gates", reason=r["code"]) for r in last.reasons
        ),
        retry=last.exit_code != 3,
        exit_code=last.exit_code,
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
