"""A line for every run that ended, in `ledger/logs/telemetry-<day>.jsonl`."""

import contextlib
from collections.abc import Callable

import msgspec

from kfm.model import (
    STATUS,
    EnergyFactors,
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
        self._told = False

    def ended(self, world: World, log: RunLog, state: str, elapsed_ms: int, ran: Ran) -> None:
        if state not in STATUS:
            return  # it waits for a person: it has not ended
        with contextlib.suppress(Exception):  # telemetry may be lost; the run is not
            line = envelope(world, log, state, elapsed_ms, ran, self._meter, self._factors)
            text = masked(msgspec.json.encode(line).decode()) + "\n"
            world.root.append(log_path(f"{NAME}-{line.ended_at[:10]}.jsonl"), text.encode())
            self._told = True

    def close(self) -> None:
        if self._told:
            with contextlib.suppress(Exception):
                self._after()


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
        ended_at=rfc3339(now),
        correlation_id=str(world.marks.get("correlation_id", "")),
        withheld=withheld,
        energy=energy,
        carbon=carbon,
        traceparent=str(world.marks.get("traceparent", "")),
    )
