"""The staged parts of a backfill become one version."""

from kfm.jobs.backfill_batch import WAIT_S, Targets, bases_of
from kfm.jobs.backfill_plan import read_plan
from kfm.jobs.backfill_progress import audit, summarise
from kfm.jobs.backfill_spans import OVER, begun
from kfm.jobs.promote_here import promote_pending
from kfm.jobs.stepping import Patience, drive
from kfm.jobs.tidy import tidy
from kfm.model import BackfillRow, Fenced, Json, StepFailed, rfc3339
from kfm.store.base import Tx
from kfm.world.outcome import Outcome, PartsGone
from kfm.world.world import World

__all__ = ["assemble"]


def assemble(
    world: World, backfill_id: str, targets: Targets
) -> tuple[BackfillRow, Outcome | None]:
    """Make one version of the parts that are staged, and promote it. Repeated after a crash it goes
    on where it stopped.
    """
    row = begun(world, backfill_id)
    if row.state in OVER:
        return row, None
    bases, _ = bases_of(row, read_plan(row), targets)
    target = next(iter(bases.values()))
    patience = Patience(WAIT_S, row.dataset_id)
    # an earlier attempt got that far
    while (before := promote_pending(world, target, patience)) is not None:
        _check(before)
    outcome: Outcome | None = None
    while run_ids := world.store.transaction(lambda tx: _ready(tx, row)):
        from kfm.run.assemble_parts import assemble_staged

        outcome = drive(assemble_staged(world, target, backfill_id, run_ids), patience)
        if isinstance(outcome, PartsGone):
            continue
        if outcome is not None and not outcome.exit_code:
            outcome = promote_pending(world, target, patience) or outcome
        _check(outcome)
        break
    found = _conclude(world, row, outcome)
    tidy(world, row.dataset_id)
    return found, outcome


def _ready(tx: Tx, row: BackfillRow) -> list[str]:
    """The runs whose parts are to become a version now; none while more are missing than the plan
    accepts at the end.
    """
    tx.backfill.follow_ledger(row)
    too_many = row.state != "running" and _lacks(tx, row)
    return [] if too_many else tx.backfill.staged(row.backfill_id)


def _lacks(tx: Tx, row: BackfillRow) -> bool:
    """Whether more partitions failed than the plan accepts."""
    failed: int = tx.backfill.failed_since(row.backfill_id, 0)
    return failed > read_plan(row).acceptance.max_failed * row.total


def _check(outcome: Outcome | None) -> None:
    """Go on only with what ended for good; the rest is tried again by whoever works the job."""
    if outcome is not None and outcome.state in ("FENCED", "SUPERSEDED"):
        raise Fenced(
            outcome.reason or "What is official has moved.",
            expected="to stand on it",
            remedy="It is assembled again.",
        )
    if outcome is not None and outcome.state == "FAILED":
        raise StepFailed(outcome.reason, expected="a version", remedy=outcome.remedy)


def _conclude(world: World, row: BackfillRow, outcome: Outcome | None) -> BackfillRow:
    """Write down what became of it: in the middle it goes on, at the end it is over."""
    code = outcome.exit_code if outcome is not None else 0

    def end(tx: Tx) -> BackfillRow:
        now = tx.backfill.lock(row.backfill_id)
        tx.backfill.follow_ledger(now)
        made = _made(tx, now, outcome)
        state = "denied" if code == 3 else "waiting" if code == 7 else now.state
        if state == "assembling":
            state = "incomplete" if _lacks(tx, now) else "done"
        ended = rfc3339(world.clock.now()) if state == "done" else None
        reason = (
            outcome.reason
            if outcome is not None and code
            else "parts were overtaken or damaged"
            if state == "incomplete"
            else ""
        )
        return tx.backfill.save(now, state=state, reason=reason, ended_at=ended, **made)

    found: BackfillRow = world.store.transaction(end)
    audit(
        world,
        found,
        "backfill.assembled",
        run_id=found.run_id,
        version_id=found.version_id,
        generation=found.generation,
        state=found.state,
        reason=found.reason,
    )
    if found.state in ("done", "denied"):
        summarise(world, found)
    return found


def _made(tx: Tx, row: BackfillRow, outcome: Outcome | None) -> Json:
    """The run, version and generation that came of it; after a crash the channel's head knows."""
    head = tx.index.last_generation(row.dataset_id)
    run = tx.runs.get(head.run_id) if head is not None and head.run_id else None
    if (
        head is not None
        and run is not None
        and (run.backfill == row.backfill_id or read_plan(row).every == 1)
    ):
        return {"run_id": run.run_id, "version_id": head.version_id, "generation": head.generation}
    return {"run_id": outcome.run_id} if outcome is not None and outcome.run_id else {}
