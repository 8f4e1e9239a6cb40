"""killed: what a lease that was never given back tells of who held it. Every ending of a run gives
its leases back in the transaction that ends it.
"""

from kfm.model import LedgerRow, Ran, partition_lease, without_emitter
from kfm.store.base import Tx
from kfm.world.target import Target
from kfm.world.world import World

__all__ = ["killed_in_promotion", "killed_unclaimed", "tell_unclaimed"]


def killed_unclaimed(tx: Tx, target: Target) -> bool:
    """Whether who holds the lease of a partition has claimed no run: asked by who takes it over,
    it was killed before its run had a name.
    """
    left = tx.leases.is_left(target.partition_lease)
    return left and not _claimed(tx, target.dataset_id, target.partition, target.leased_window)


def killed_in_promotion(tx: Tx, row: LedgerRow) -> bool:
    """Whether who promoted a run did not come to the end: it named a generation, or it has the lease
    of the dataset, whose runs are proposed by then, and was judging it again.
    """
    own = {partition_lease(row.dataset_id, row.partition, win) for win in ("", row.win)}
    held = tx.leases.is_left
    busy = any(held(lease) for lease in own) or _claimed(tx, row.dataset_id, None)
    return row.intent is not None or (held(row.dataset_id) and not busy)


def _claimed(tx: Tx, dataset_id: str, partition: str | None, win: str = "") -> bool:
    """Whether a run is claimed: of this window, or of any."""
    opened = tx.runs.open_runs(dataset_id, partition)
    return any(r.state == "CLAIMED" and win in ("", r.win) for r in opened)


def tell_unclaimed(world: World, target: Target) -> None:
    """A run that was killed before it had a name gets one, and is told as failed. How long it took
    nobody knows.
    """
    log = world.log(target.dataset_id)
    log.bind(world.new_run_id())
    ran = Ran(
        updater_id=target.updater_id,
        version=target.pipeline_version,
        trigger=without_emitter(target.trigger),
        stage="PLAN",
    )
    world.telemetry.ended(world, log, "FAILED", 0, ran)
