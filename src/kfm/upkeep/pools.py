"""Pools: how much of each runs, how much waits, and for how long."""

from typing import Any

from kfm.store.base import Tx

__all__ = ["pool_rows"]


def pool_rows(tx: Tx, now_ms: int) -> list[dict[str, Any]]:
    """One row per pool: slots, running, queued and due, later, how long the oldest due job
    waits.
    """
    depths = {(d["pool"], d["state"]): d for d in tx.jobs.depths()}
    rows = []
    for pool in tx.pools.listing():
        queued, running = (depths.get((pool["name"], state)) for state in ("queued", "running"))
        later = queued["later"] if queued else 0
        due = queued["jobs"] - later if queued else 0
        rows.append(
            {
                "name": pool["name"],
                "slots": pool["slots"],
                "running": running["jobs"] if running else 0,
                "queued": due,
                "later": later,
                "wait_ms": max(0, now_ms - queued["oldest"]) if queued and due else 0,
                "paused": pool["paused"],
            }
        )
    return rows
