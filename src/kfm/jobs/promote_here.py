"""What was proposed and needs nobody any more is made official in this process."""

from collections.abc import Callable

from kfm.channel.generations import EMPTY
from kfm.evidence.append_times import check_clock
from kfm.jobs.stepping import Patience, drive
from kfm.jobs.tidy import tidy
from kfm.model import Fenced, KfmError, LedgerRow
from kfm.world.outcome import Outcome
from kfm.world.target import Target
from kfm.world.world import World

__all__ = ["promote_pending", "promote_run"]


def promote_pending(world: World, target: Target, patience: Callable[[], None]) -> Outcome | None:
    """Promote the next proposal of the dataset that needs nobody; None: there is none."""
    if not world.store.read(lambda tx: tx.runs.promotable(target.dataset_id)):
        return None
    from kfm.run.promote import promote  # a NOOP never gets here, and starts faster for it

    try:
        _check_clock(world, target.dataset_id)
        return drive(promote(world, target.dataset_id), patience)
    except KfmError as error:
        if isinstance(error, Fenced):
            raise
        left = world.store.read(lambda tx: tx.runs.promotable(target.dataset_id))
        return Outcome(
            dataset_id=target.dataset_id,
            run_id=left[0].run_id if left else "",
            state="FAILED",
            reason=error.happened,
            exit_code=error.exit_code,
            remedy=error.remedy,
        )


def _check_clock(world: World, dataset_id: str) -> None:
    """What waits to be made official may have waited while the clock was set back."""
    world.store.read(
        lambda tx: check_clock(tx, world, tx.index.last_generation(dataset_id) or EMPTY(dataset_id))
    )


def promote_run(world: World, row: LedgerRow, wait_s: float = 60.0) -> Outcome:
    """Finish one proposal, whatever else waits; the outcome is what became of it."""
    _check_clock(world, row.dataset_id)
    from kfm.run.promote import promote

    found = drive(
        promote(world, row.dataset_id, row.run_id, wait=True), Patience(wait_s, row.dataset_id)
    )
    if found is None:
        raise Fenced(
            f"Proposal of run {row.run_id} was ended by another.",
            expected="it to wait",
            remedy="`kfm review` lists those that do.",
        )
    try:
        tidy(world, row.dataset_id)
    except (KfmError, OSError):
        pass  # the outcome stands
    return found
