"""A line for every run that ended, in `ledger/logs/telemetry-<day>.jsonl`."""

import contextlib
import datetime as dt
from collections import deque
from collections.abc import Callable, Iterator

import msgspec

from kfm.model import (
    STATUS,
    EnergyFactors,
    LedgerRow,
    Ran,
    RunTelemetry,
    TelemetryStatus,
    masked,
    rfc3339,
)
from kfm.model.paths import log_path
from kfm.model.window import seconds
from kfm.telemetry.budget import burn, counted, slo_of
from kfm.telemetry.energy import Meter, carbon_of
from kfm.world.run_log import RunLog
from kfm.world.world import Telemetry, World

__all__ = ["NAME", "Lines", "envelope"]

NAME = "telemetry"  # of its files: telemetry-<day>.jsonl


class Lines(Telemetry):
    """Appends to a file of this machine; `after` is called once something was appended, when the
    process lets go.
    """

    def __init__(self, factors: EnergyFactors, after: Callable[[], None] = lambda: None) -> None:
        self._factors, self._after = factors, after
        self._meter = Meter(factors)
        # run, state, attempt: the newest, of which more may be said
        self._told: deque[tuple[str, str, int]] = deque(maxlen=64)

    def ended(self, world: World, log: RunLog, state: str, elapsed_ms: int, ran: Ran) -> None:
        ending = (log.run_id, state, ran.replays)
        if state not in STATUS or ending in self._told:
            return  # it waits for a person: it has not ended
        with contextlib.suppress(Exception):  # telemetry may be lost; the run is not
            line = envelope(world, log, state, elapsed_ms, ran, self._meter, self._factors)
            text = masked(msgspec.json.encode(line).decode()) + "\n"
            world.root.append(
                log_path(f"{NAME}-{rfc3339(world.clock.now())[:10]}.jsonl"), text.encode()
            )
            self._told.append(ending)

    def archiving(self, world: World, row: LedgerRow, ran: Callable[[], Ran]) -> None:
        if row.state not in STATUS or (row.run_id, row.state, row.attempt) in self._told:
            return
        with contextlib.suppress(Exception):  # telemetry may be lost; the run is not
            if _is_told(world, row):
                return
            log = world.log(row.dataset_id)
            log.bind(row.run_id)
            began, ended = map(dt.datetime.fromisoformat, (row.timestamp, str(row.ended_at)))
            found = msgspec.structs.replace(ran(), ended_at=str(row.ended_at))
            took = max(0, int((ended - began).total_seconds() * 1000))
            self.ended(world, log, row.state, took, found)

    def close(self) -> None:
        if self._told:
            with contextlib.suppress(Exception):
                self._after()


def _is_told(world: World, row: LedgerRow) -> bool:
    since = row.ended_at or ""
    first = log_path(f"{NAME}-{since[:10]}.jsonl")
    return any(
        line.state == row.state and line.ended_at >= since
        for path in world.root.names(log_path(""))
        if path >= first and path.startswith(log_path(f"{NAME}-"))
        for line in _of_run(world.root.read(path), row.run_id)
    )


def _of_run(raw: bytes, run_id: str) -> Iterator[RunTelemetry]:
    for line in raw.splitlines():
        if run_id.encode() in line:
            with contextlib.suppress(msgspec.MsgspecError):  # cut off
                yield msgspec.json.decode(line, type=RunTelemetry)


def envelope(
    world: World,
    log: RunLog,
    state: str,
    elapsed_ms: int,
    ran: Ran,
    meter: Meter,
    factors: EnergyFactors,
) -> RunTelemetry:
    """What is told of a run. Of what is not public no count or size is."""
    slo, now = slo_of(world.registry(log.dataset_id)), world.clock.now()
    found = counted(world.store, log.dataset_id, slo, now, seconds(slo.period))
    status: TelemetryStatus = "PARTIAL" if ran.partial else STATUS[state]
    energy, target_ms = meter.read(), seconds(slo.latency) * 1000
    carbon, withheld = carbon_of(energy, factors), world.is_private(log.dataset_id)
    inputs, outputs, bytes_in, bytes_out = (
        (0, 0, 0, 0) if withheld else (ran.inputs, ran.outputs, ran.bytes_in, ran.bytes_out)
    )
    return RunTelemetry(
        run_id=log.run_id,
        updater_id=ran.updater_id,
        version=ran.version,
        status=status,
        failure_stage=ran.stage if status in ("FAILED", "PARTIAL") else None,
        latency_ms=elapsed_ms,
        retries=ran.retries,
        wal_replay_count=ran.replays,
        inputs_count=inputs,
        outputs_count=outputs,
        bytes_in=bytes_in,
        bytes_out=bytes_out,
        energy_kwh=energy.kwh,
        co2e_g=carbon.co2e_g if carbon is not None else None,
        slo_target_latency_ms=target_ms,
        slo_ok=status != "FAILED" and elapsed_ms <= target_ms,
        error_budget_burn=burn(found, slo),
        error_budget_period=slo.period,
        dataset_id=log.dataset_id,
        state=state,
        trigger=ran.trigger,
        ended_at=ran.ended_at or rfc3339(now),
        correlation_id=str(world.marks.get("correlation_id", "")),
        withheld=withheld,
        energy=energy,
        carbon=carbon,
        traceparent=str(world.marks.get("traceparent", "")),
    )
