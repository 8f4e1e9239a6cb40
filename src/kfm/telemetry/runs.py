"""A line for every run that ended, in `ledger/logs/telemetry-<day>.jsonl`."""

import contextlib
import datetime as dt
import fcntl
import os
import re
import time
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path

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
_TRIES = 40  # for the lock: a fifth of a second
_PIECE = 1 << 16
_ENDED = re.compile(rb'"ended_at":"([^"]+)"')


class Lines(Telemetry):
    """Appends to a file of this machine; `after` is called once something was appended, when the
    process lets go.
    """

    def __init__(self, factors: EnergyFactors, after: Callable[[], None] = lambda: None) -> None:
        self._factors, self._after = factors, after
        self._meter = Meter(factors)
        self._is_new = False  # something was appended
        # the newest endings that are known to be told: run, and when it ended
        self._told: deque[tuple[str, str]] = deque(maxlen=64)

    def ended(self, world: World, log: RunLog, state: str, elapsed_ms: int, ran: Ran) -> None:
        if state not in STATUS or (log.run_id, ran.ended_at) in self._told:
            return  # it waits for a person: it has not ended
        with contextlib.suppress(Exception):  # telemetry may be lost; the run is not
            self._tell(world, log, state, elapsed_ms, ran, late=False)

    def archiving(self, world: World, row: LedgerRow, ran: Callable[[], Ran]) -> None:
        ended_at = str(row.ended_at)
        if row.state not in STATUS or (row.run_id, ended_at) in self._told:
            return
        with contextlib.suppress(Exception):
            log = world.log(row.dataset_id)
            log.bind(row.run_id)
            began, ended = map(dt.datetime.fromisoformat, (row.timestamp, ended_at))
            took = max(0, int((ended - began).total_seconds() * 1000))
            self._tell(world, log, row.state, took, ran(), late=True)

    def _tell(
        self, world: World, log: RunLog, state: str, elapsed_ms: int, ran: Ran, *, late: bool
    ) -> None:
        if not (ran.ended_at or ran.killed):  # nobody else knows of it
            self._append(world, self._line(world, log, state, elapsed_ms, ran, 0, late))
            return
        with _alone(world):
            before = list(_of_run(world, log.run_id, ran.began))
            if not ran.killed and any(line.ended_at >= ran.ended_at for line in before):
                self._told.append((log.run_id, ran.ended_at))
                return
            line = self._line(world, log, state, elapsed_ms, ran, len(before), late)
            self._append(world, line)
        if not ran.killed:
            self._told.append((log.run_id, ran.ended_at))

    def _line(
        self,
        world: World,
        log: RunLog,
        state: str,
        elapsed_ms: int,
        ran: Ran,
        replays: int,
        late: bool,
    ) -> RunTelemetry:
        line = envelope(world, log, state, elapsed_ms, ran, replays)
        if late:  # who asked for it nobody knows here
            return line
        line = msgspec.structs.replace(
            line,
            correlation_id=str(world.marks.get("correlation_id", "")),
            traceparent=str(world.marks.get("traceparent", "")),
        )
        if ran.killed:  # what it took went with it
            return line
        energy = self._meter.read()
        carbon = carbon_of(energy, self._factors)
        return msgspec.structs.replace(
            line,
            energy_kwh=energy.kwh,
            co2e_g=carbon.co2e_g if carbon is not None else None,
            energy=energy,
            carbon=carbon,
        )

    def _append(self, world: World, line: RunTelemetry) -> None:
        text = masked(msgspec.json.encode(line).decode()) + "\n"
        world.root.append(_file(world.clock.now()), text.encode())
        self._is_new = True

    def close(self) -> None:
        if self._is_new:
            with contextlib.suppress(Exception):
                self._after()


def _file(day: dt.datetime) -> str:
    return log_path(f"{NAME}-{rfc3339(day)[:10]}.jsonl")


@contextlib.contextmanager
def _alone(world: World) -> Iterator[None]:
    """One process looks and appends at a time, by a lock on the folder of the lines; nobody waits
    for one that is frozen. Where there is no folder yet nothing was told.
    """
    try:
        logs = world.root.local(_file(world.clock.now())).parent
        folder = os.open(logs, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        yield
        return
    try:
        for _ in range(_TRIES):
            try:
                fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                time.sleep(0.005)
        yield
    finally:
        os.close(folder)


def _of_run(world: World, run_id: str, since: str) -> Iterator[RunTelemetry]:
    """What was told of a run; lines are looked at from the newest back to when it began."""
    first = log_path(f"{NAME}-{since[:10]}.jsonl")
    files = [p for p in world.root.names(log_path("")) if p.startswith(log_path(f"{NAME}-"))]
    for path in sorted(p for p in files if p >= first):
        for raw in _tail(world.root.local(path), since):
            if run_id.encode() in raw:
                with contextlib.suppress(msgspec.MsgspecError):  # cut off
                    line = msgspec.json.decode(raw, type=RunTelemetry)
                    if line.run_id == run_id:
                        yield line


def _tail(path: Path, since: str) -> list[bytes]:
    """The last lines of a file, at least those told since a moment."""
    size, take = path.stat().st_size, _PIECE
    while True:
        with path.open("rb") as file:
            file.seek(max(0, size - take))
            lines = file.read().splitlines()
        if take >= size:
            return lines
        # a line that is told late stands among younger ones
        ended = [found[1] for raw in lines[1:9] if (found := _ENDED.search(raw))]
        if ended and all(moment.decode() < since for moment in ended):
            return lines[1:]
        take *= 4


def envelope(
    world: World,
    log: RunLog,
    state: str,
    elapsed_ms: int,
    ran: Ran,
    replays: int,
) -> RunTelemetry:
    """What is told of a run, without what it took. Of what is not public no count or size is."""
    slo, now = slo_of(world.registry(log.dataset_id)), world.clock.now()
    found = counted(world.store, log.dataset_id, slo, now, seconds(slo.period))
    status: TelemetryStatus = "PARTIAL" if ran.partial else STATUS[state]
    target_ms, withheld = seconds(slo.latency) * 1000, world.is_private(log.dataset_id)
    if (
        ran.outputs or ran.bytes_in or ran.bytes_out
    ):  # of what found nothing new there is nothing to withhold
        withheld = world.is_withheld(log.dataset_id)
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
        wal_replay_count=replays,
        inputs_count=inputs,
        outputs_count=outputs,
        bytes_in=bytes_in,
        bytes_out=bytes_out,
        energy_kwh=None,
        co2e_g=None,
        slo_target_latency_ms=target_ms,
        slo_ok=status != "FAILED" and elapsed_ms <= target_ms,
        error_budget_burn=burn(found, slo),
        error_budget_period=slo.period,
        dataset_id=log.dataset_id,
        state=state,
        trigger=ran.trigger,
        ended_at=ran.ended_at or rfc3339(now),
        correlation_id="",
        withheld=withheld,
        energy=None,
        carbon=None,
    )
