"""Work a batch of partitions of a backfill, or assemble those that are staged into one version."""

import msgspec

from kfm.jobs.backfill_assembly import assemble
from kfm.jobs.backfill_batch import Batch, work_batch
from kfm.jobs.backfill_progress import audit_path
from kfm.jobs.backfill_spans import JOB_TYPE
from kfm.jobs.base import NO_RECEIPT, JobContext, JobResult, JobType, passed
from kfm.model import BackfillRow, Fenced, LedgerRow, PolicyDecision, ReceiptOutput, UsageError
from kfm.model.paths import part_folder
from kfm.world.outcome import Outcome

__all__ = ["JOB", "Parameters"]


class Parameters(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which partitions of which backfill; or that its staged parts are to become a version."""

    backfill_id: str
    first: int = 0
    count: int = 0
    assemble: bool = False


def run(ctx: JobContext) -> JobResult:
    asked = ctx.asked(Parameters)
    row = ctx.world.store.read(lambda tx: tx.backfill.get(asked.backfill_id))
    if row is None or row.dataset_id != ctx.dataset_id:
        raise UsageError(
            f"{ctx.dataset_id} has no backfill {asked.backfill_id}.",
            expected="one that was started",
            remedy="`kfm backfill list` shows them.",
        )
    try:
        if asked.assemble:
            return _assembled(*assemble(ctx.world, asked.backfill_id, ctx.targets))
        with ctx.world.warm():
            batch = work_batch(ctx.world, asked.backfill_id, ctx.targets, asked.first, asked.count)
        return _worked(ctx, batch)
    except Fenced as error:  # another run is at it: look again in a while
        return JobResult(status="skipped", reason=error.happened, exit_code=5, receipt=NO_RECEIPT)


def _worked(ctx: JobContext, batch: Batch) -> JobResult:
    """Failed partitions do not fail the job: they are written down, and a resume tries them
    again.
    """
    staged = [part for part in batch.parts if part.state == "STAGED"]
    rows = ctx.world.store.read(lambda tx: [tx.runs.get(part.run_id) for part in staged])
    outputs = tuple(
        ReceiptOutput(kind="file", id=_path(r), checksum=r.part, zone="Work")
        for r in rows
        if r is not None and r.part
    )
    done, failed = batch.count("STAGED", "COMMITTED", "NOOP"), batch.count("FAILED")
    return JobResult(
        status="succeeded" if batch.parts else "skipped",
        reason=f"{done} partitions done, {failed} failed; the backfill is {batch.row.state}",
        outputs=outputs,
        files={f"data/{audit_path(batch.row)}": ""},
    )


def _path(row: LedgerRow) -> str:
    return f"{part_folder(row.dataset_id, str(row.part))}/{row.partition or row.dataset_id}.parquet"


def _assembled(row: BackfillRow, outcome: Outcome | None) -> JobResult:
    denied = row.state == "denied"
    reasons = outcome.reasons if outcome is not None else ()
    told = tuple(PolicyDecision(decision="deny", gate="gates", reason=r["code"]) for r in reasons)
    name = f"kfm://dataset/{row.dataset_id}@{row.version_id}"
    made = (
        (ReceiptOutput(kind="dataset", id=name, checksum="", zone="Published"),)
        if row.version_id and row.state in ("done", "running")
        else ()
    )
    return JobResult(
        status="failed" if denied else "succeeded" if outcome is not None else "skipped",
        reason=row.reason or f"the backfill is {row.state}",
        error=(
            f"The assembled version was denied: {row.reason}; its parts stay staged."
            if denied
            else ""
        ),
        decisions=(*passed(made), *told)
        or ((PolicyDecision(decision="deny", gate="gates", reason=row.reason),) if denied else ()),
        outputs=made,
        retry=not denied,
        exit_code=3 if denied else 0,
    )


JOB = JobType(
    name=JOB_TYPE,
    purpose="Stage a batch of past partitions, and assemble what is staged into one version",
    triggers="`kfm backfill start` and `resume`; the end of the batch before",
    inputs="source configuration (the registry entry), a backfill plan",
    outputs="raw artifacts, staged parts, one version, receipt, the backfill's own audit trail",
    parameters=Parameters,
    idempotency=(
        "the ledger has one STAGED row per partition and window; what is staged or official is not"
        " made again"
    ),
    rules=(
        "failed share at most max_failed (0)",
        "stops after stop_after failed partitions (20)",
        "every gate and the policy",
    ),
    zone_in="Raw",
    zone_out="Published",
    run=run,
    timeout_s=6 * 3600,
)
