"""Pools: how much of each runs, how much waits, and for how long."""

import msgspec

from kfm.store.base import Tx

__all__ = ["Pool", "pool_rows"]


class Pool(msgspec.Struct, frozen=True, kw_only=True):
    """How one pool is doing."""

    name: str
    slots: int | None  # None: not limited
    running: int
    queued: int  # and due
    later: int
    wait_ms: int  # of the oldest that is due
    paused: str  # why, or empty


def pool_rows(tx: Tx, now_ms: int) -> list[Pool]:
    """One row per pool."""
    depths = {(d.pool, d.state): d for d in tx.jobs.depths()}
    rows = []
    for pool in tx.pools.listing():
        queued, running = (depths.get((pool.name, state)) for state in ("queued", "running"))
        later = queued.later if queued else 0
        due = queued.jobs - later if queued else 0
        rows.append(
            Pool(
                name=pool.name,
                slots=pool.slots,
                running=running.jobs if running else 0,
                queued=due,
                later=later,
                wait_ms=max(0, now_ms - queued.oldest) if queued and due else 0,
                paused=pool.paused,
            )
        )
    return rows
