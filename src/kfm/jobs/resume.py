"""Go on with a run that was left unfinished."""

from kfm.channel.generations import pinned_parts
from kfm.jobs.drive import run_target
from kfm.jobs.promote_here import promote_run
from kfm.jobs.stepping import Patience, drive
from kfm.model import LedgerRow, is_assembly
from kfm.world.outcome import Outcome
from kfm.world.target import Target
from kfm.world.world import World

__all__ = ["resume_run"]


def _assemble_again(world: World, target: Target, row: LedgerRow, wait_s: float) -> Outcome:
    from kfm.run.assemble_parts import assemble_staged  # backfills only

    parts = pinned_parts(world.data, row) or ()
    steps = assemble_staged(world, target, row.backfill, [p.run_id for p in parts])
    found = drive(steps, Patience(wait_s, row.dataset_id))
    assert found is not None
    made = (
        world.store.read(lambda tx: tx.runs.get(found.run_id))
        if found.state == "PROPOSED" and not found.exit_code
        else None
    )
    return promote_run(world, made, wait_s) if made is not None else found


def resume_run(world: World, target: Target, row: LedgerRow, wait_s: float) -> Outcome:
    """Go on with an unfinished run from its own capture, or from the parts it pinned, without
    asking upstream.
    """
    if is_assembly(row):
        return (
            promote_run(world, row, wait_s)
            if row.state == "PROPOSED"
            else _assemble_again(world, target, row, wait_s)
        )
    if row.state == "PROPOSED" and target.entry.retired is not None:
        return promote_run(world, row, wait_s)
    return run_target(
        world,
        target,
        wait_s=wait_s,
        replay=row if row.state == "CLAIMED" else None,
        forced=bool(row.forced),
    )
