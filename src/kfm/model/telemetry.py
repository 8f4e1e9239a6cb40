"""What is told of every run that ended: the documented envelope, with where its figures come from."""

from collections.abc import Sequence
from typing import Annotated, Literal

import msgspec

from kfm.model.ledger import Phase, WalRecord

__all__ = [
    "STATUS",
    "Carbon",
    "Energy",
    "Ran",
    "RunTelemetry",
    "TelemetryStatus",
    "phase_of",
]

TelemetryStatus = Literal["SUCCESS", "FAILED", "PARTIAL", "SKIPPED"]
# One internal state, one rendering. What waits for a person has not ended, and is not told.
STATUS: dict[str, TelemetryStatus] = {
    "COMMITTED": "SUCCESS",
    "STAGED": "SUCCESS",
    "NOOP": "SKIPPED",
    "SUPERSEDED": "SKIPPED",
    "FAILED": "FAILED",
    "REJECTED": "FAILED",
}
_Count = Annotated[int, msgspec.Meta(ge=0)]
_Amount = Annotated[float, msgspec.Meta(ge=0)]


class Energy(msgspec.Struct, frozen=True, kw_only=True):
    """How much a run took, and how that is known."""

    kwh: _Amount
    method: Literal["rapl", "cpu-time"]  # counted by the processor, or estimated from its time
    cpu_seconds: _Amount  # of the process that ended the run and its children
    watts_per_core: float | None  # cpu-time: the factor
    source: str  # where the factor comes from
    uncertainty: str  # how far it may be off, in words


class Carbon(msgspec.Struct, frozen=True, kw_only=True):
    """What that energy stands for where it was used."""

    co2e_g: _Amount
    g_per_kwh: _Amount
    region: str
    source: str  # who states the factor


class Ran(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a run when it ends, before it is put into words."""

    updater_id: str
    version: str
    trigger: str = ""
    stage: Phase | None = None  # how far it came
    partial: bool = False  # what came was less than the registry calls complete
    retries: int = 0  # requests that had to be made again
    inputs: int = 0
    outputs: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    ended_at: str = ""  # what the ledger says of it; empty: now, and nobody else tells it
    began: str = ""
    killed: bool = False  # this attempt did not live to tell; the run may go on


class RunTelemetry(msgspec.Struct, frozen=True, kw_only=True):
    """UpdatersRunTelemetry: one line for every run that ended, whatever became of it. Of what is
    not public no count or size is told: they are 0, and `withheld` says so.
    """

    run_id: str
    updater_id: str
    version: str
    status: TelemetryStatus
    failure_stage: Phase | None
    latency_ms: _Count
    retries: _Count
    wal_replay_count: _Count
    inputs_count: _Count
    outputs_count: _Count
    bytes_in: _Count
    bytes_out: _Count
    energy_kwh: _Amount | None
    co2e_g: _Amount | None
    slo_target_latency_ms: _Count
    slo_ok: bool
    error_budget_burn: Annotated[float, msgspec.Meta(ge=0.0, le=1.0)]
    # beside what is documented
    error_budget_period: str
    dataset_id: str
    state: str  # the one internal state that `status` renders
    trigger: str
    ended_at: str
    correlation_id: str
    withheld: bool
    energy: Energy | None
    carbon: Carbon | None
    traceparent: str = ""  # W3C: of the request that was the cause, where there was one


def phase_of(records: Sequence[WalRecord]) -> Phase:
    """How far a journal came: the phase of the first step it began and did not end, else of the last
    it ended. Without a journal nothing was planned.
    """
    last = {(record.phase, record.step_id): record.status for record in records}
    for (phase, _), status in last.items():
        if status != "DONE":
            return phase
    return records[-1].phase if records else "PLAN"
