"""What is told of a backfill: what it will cost, how it stands, and its receipt."""

import msgspec

from kfm.model import Json

__all__ = ["Bucket", "Estimate", "Status", "Summary"]


class Estimate(msgspec.Struct, frozen=True, kw_only=True):
    """What a backfill will cost, before it is started."""

    partitions: int
    jobs: int
    requests: int
    bytes: int | None  # None: no run was measured yet
    seconds: int | None
    # runs that the figures come from; 0: the plan's expected_runtime, where it says one
    measured: int


class Bucket(msgspec.Struct, frozen=True, kw_only=True):
    """One cell of the grid: neighbouring partitions, and how many of them are in which state."""

    since: str
    partitions: int
    counts: dict[str, int]


class Status(msgspec.Struct, frozen=True, kw_only=True):
    """`kfm backfill status --json`."""

    backfill_id: str
    name: str
    dataset_id: str
    state: str
    reason: str
    since: str
    until: str
    total: int
    counts: dict[str, int]  # STAGED, COMMITTED, NOOP, FAILED -> partitions
    missing: int  # never ended
    handed_out: int  # partitions of batches that wait or run
    lost: int  # batches whose job ended without them: a resume hands them out again
    per_second: float  # since it was started or resumed
    eta_seconds: int | None
    idle_seconds: int
    version_id: str | None
    generation: int | None
    run_id: str
    grid: list[Bucket]
    failing: list[Json]  # {n, window, partition, run_id, attempts, reason}
    next: str


class Summary(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`work/<id>/backfills/<backfill_id>/summary.json`: the receipt of a whole backfill."""

    backfill_id: str
    name: str
    dataset_id: str
    state: str
    reason: str
    since: str
    until: str
    counts: dict[str, int]
    plan_digest: str
    # over number, window, partition and content of each: the same on every machine
    parts_digest: str
    audit_digest: str
    run_id: str
    version_id: str | None
    version_digest: str | None
    generation: int | None
    gates: dict[str, str]  # gate -> verdict on the assembled version
    started_at: str
    finished_at: str
