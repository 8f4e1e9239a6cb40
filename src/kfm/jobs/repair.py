"""Put one dataset in order: finish what was left, show and archive what should be, set damage
aside.
"""

from kfm.jobs.base import JobContext, JobResult, JobType, NoParameters
from kfm.jobs.promote_here import promote_run
from kfm.model import KfmError, LedgerRow, PolicyDecision
from kfm.upkeep.doctor import examine

__all__ = ["JOB"]

WAIT_S = 5.0


def run(ctx: JobContext) -> JobResult:
    """Promote what waits for nobody, then do what `kfm doctor --fix` does, then queue what was
    interrupted.
    """
    world, dataset_id = ctx.world, ctx.dataset_id
    done, failed = _promoted(ctx)
    found = examine(world, [dataset_id], fix=True)
    interrupted = {f.where.removeprefix("run ") for f in found if f.code == "run.interrupted"}
    for row in world.store.read(lambda tx: tx.runs.open_runs(dataset_id)):
        if row.run_id in interrupted and row.state == "CLAIMED":
            world.store.transaction(
                lambda tx: tx.jobs.put(dataset_id, row.partition, row.win, reason="repair")
            )
            done.append(f"queued run {row.run_id}")
    done += [f"{f.code} {f.where}" for f in found if f.fixed]
    left = failed + [
        f"{f.code} {f.where}: {f.what}"
        for f in found
        if not f.fixed and f.code != "run.interrupted"
    ]
    return JobResult(
        status="failed" if left else "succeeded" if done else "skipped",
        reason="; ".join(left or done) or "nothing to mend",
        error="; ".join(left),
        retry=False,
        exit_code=6 if left else 0,
        transforms=tuple({"id": "repair", "version": "1", "did": what} for what in done)
        or ({"id": "repair", "version": "1"},),
        decisions=(PolicyDecision(decision="allow", gate="switch", reason="not switched off"),),
    )


def _promoted(ctx: JobContext) -> tuple[list[str], list[str]]:
    """Proposals whose approvals suffice and whose promotion was interrupted; each is judged again
    on the way.
    """
    done, failed = list[str](), list[str]()
    rows: list[LedgerRow] = ctx.world.store.read(lambda tx: tx.runs.promotable(ctx.dataset_id))
    for row in rows:
        try:
            outcome = promote_run(ctx.world, row, WAIT_S)
            done.append(f"run {row.run_id} is {outcome.state}")
        except KfmError as error:
            failed.append(f"run {row.run_id}: {error.happened}")
    return done, failed


JOB = JobType(
    name="repair",
    purpose="Finish interrupted promotions, render and archive what is missing, set damage aside",
    triggers="manual, after a crash",
    inputs="ledger, journals, channel and files of one dataset",
    outputs="mended projections, archives and ledger rows; receipt",
    parameters=NoParameters,
    idempotency="every mend is repeatable; a second repair finds nothing",
    rules=(
        "what is promoted is judged again by every gate",
        "damaged bytes are reported, never altered",
    ),
    zone_in="Work",
    zone_out="Published",
    run=run,
    max_attempts=1,
)
