"""reconsider: what waits for a person is judged again with what a person permitted."""

from kfm.evidence.run_end import close_runs
from kfm.model import LedgerRow, is_assembly
from kfm.store.base import Tx
from kfm.world.world import World

__all__ = ["reconsider"]


def reconsider(world: World, dataset_id: str) -> int:
    """Close the proposals that wait for a person, so that the next run is judged with what was
    permitted; how many there were.
    """

    def close(tx: Tx) -> int:
        rows: list[LedgerRow] = [
            r
            for r in tx.runs.open_runs(dataset_id)
            if r.state == "PROPOSED" and r.intent is None and not r.promo
        ]
        close_runs(tx, world.clock, rows, "a person decided what it waited for; it is judged again")
        for row in rows:
            if not is_assembly(row):
                tx.jobs.put(dataset_id, row.partition, row.win)
        return len(rows)

    found: int = world.store.transaction(close)
    return found
