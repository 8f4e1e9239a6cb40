"""Pull a source: look upstream, keep what is new in raw, make, judge and publish the version that
follows from it.
"""

import msgspec

from kfm.jobs.base import NO_RECEIPT, JobContext, JobResult, JobType, published
from kfm.jobs.drive import run_target
from kfm.model import INGEST, Denied, Fenced, PolicyDecision, Request, trigger_of
from kfm.model.paths import receipt_path
from kfm.store.base import Tx
from kfm.upkeep.derived import owed
from kfm.world.outcome import Outcome, worst

__all__ = ["JOB", "WAIT_S", "Parameters", "told"]

_STATUS = {
    "COMMITTED": "succeeded",
    "PROPOSED": "succeeded",
    "NOOP": "skipped",
    "SUPERSEDED": "skipped",
}
WAIT_S = 5.0


class Parameters(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which part of a dataset; the window is the job's own."""

    partition: str = ""


def run(ctx: JobContext) -> JobResult:
    """Bring the job's target up to date. The engine acknowledges the job itself, in the transaction
    that ends the run.
    """
    job = ctx.job
    asker = msgspec.json.decode(job.envelope).get("requested_by", "system")
    asked = trigger_of(job.reason)
    trigger = f"manual:{asker}" if asked == "manual" and asker != "system" else asked
    every = ctx.targets(ctx.dataset_id, win=job.win, trigger=trigger)
    mine = [
        t for t in every if t.partition == (job.partition or ctx.asked(Parameters).partition)
    ] or (every if not job.partition else [])
    if not mine:
        raise Denied(
            f"{ctx.dataset_id} has no partition {job.partition}.",
            expected="a registered partition",
            remedy="`kfm jobs cancel` ends it.",
        )
    outcomes = []
    for target in mine:
        try:
            taken = (target.partition, target.win) == (job.partition, job.win)
            outcomes.append(
                run_target(
                    ctx.world,
                    target,
                    forced=bool(job.forced),
                    reason=job.reason,
                    wait_s=WAIT_S,
                    taken=taken,
                )
            )
        except Fenced as error:  # another run is at it: look again in a while
            return JobResult(
                status="skipped", reason=error.happened, exit_code=5, receipt=NO_RECEIPT
            )
    kinds = owed(ctx.world, ctx.dataset_id) if max(o.exit_code for o in outcomes) == 0 else []
    if kinds:  # of a version that came while no worker ran, nothing was made yet
        ctx.world.store.transaction(lambda tx: _ask(tx, ctx, kinds))
    return told(ctx, outcomes)


def _ask(tx: Tx, ctx: JobContext, kinds: list[str]) -> None:
    for kind in kinds:
        tx.jobs.submit(
            Request(
                job_type=kind, dataset_id=ctx.dataset_id, reason="the official version has none yet"
            )
        )


def told(ctx: JobContext, outcomes: list[Outcome]) -> JobResult:
    """How runs of a dataset ended, as the result of the job that asked for them."""
    last = worst(outcomes)
    row = ctx.world.store.read(lambda tx: tx.runs.get(last.run_id)) if last.run_id else None
    denied = last.exit_code == 3
    return JobResult(
        status="failed" if last.exit_code not in (0, 7) else _STATUS.get(last.state, "failed"),  # type: ignore[arg-type]
        reason=last.reason,
        error=f"{last.reason} {last.remedy}".strip() if last.exit_code not in (0, 7) else "",
        outputs=tuple(published(outcomes)),
        decisions=(
            tuple(
                PolicyDecision(decision="deny", gate="gates", reason=r["code"])
                for r in last.reasons
            )
            if denied
            else ()
        ),
        retry=not denied,
        exit_code=last.exit_code,
        receipt=receipt_path(row.run_id, row.timestamp) if row is not None else "",
    )


JOB = JobType(
    name=INGEST,
    purpose=(
        "Pull raw source data into Raw, make the version that follows from it, judge and publish it"
    ),
    triggers="schedule, event, manual",
    inputs="source configuration (the registry entry)",
    outputs="raw artifacts, a version when something changed, receipt",
    parameters=Parameters,
    idempotency=(
        "the run key and the channel's head: unchanged content is a NOOP, an interrupted run is"
        " resumed"
    ),
    rules=(
        "books balance",
        "quarantined share at most max_quarantined (0.01)",
        "every gate and the policy",
    ),
    zone_in="Raw",
    zone_out="Published",
    run=run,
    timeout_s=6 * 3600,
)
