"""What the store keeps of a backfill and of each partition it has begun."""

import msgspec

__all__ = ["BackfillRow", "PartRow"]


class BackfillRow(msgspec.Struct, frozen=True, kw_only=True):
    """One backfill. Field names are column names."""

    backfill_id: str
    name: str
    dataset_id: str
    state: str  # running, stopped, incomplete, assembling, waiting, denied, done, cancelled
    plan: str  # JSON
    transform_hash: str
    total: int
    put_by: str
    put_at: str
    began_ms: int  # when it was started or resumed
    touched_ms: int  # when a partition last ended
    next_n: int = 0  # the first partition that was never handed out
    retry_n: int = 0  # below `next_n`: failed ones from here on are handed out again first
    ended_at: str | None = None
    run_id: str = ""  # the newest assembling run
    version_id: str | None = None
    generation: int | None = None
    reason: str = ""


class PartRow(msgspec.Struct, frozen=True, kw_only=True):
    """One partition that was begun. Field names are column names."""

    backfill_id: str
    n: int
    state: str  # STAGED, COMMITTED, NOOP, FAILED
    run_id: str
    reason: str = ""
    attempts: int = 1
    at_ms: int = 0  # when it was written down
