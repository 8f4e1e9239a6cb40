"""How datasets stand against what they promise, and what their runs took: for people and pages."""

import datetime as dt
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from kfm.model import DatasetEntry, RunTelemetry, rfc3339
from kfm.model.window import seconds
from kfm.store.base import Store
from kfm.telemetry.budget import Counted, burn, counted, slo_of
from kfm.telemetry.runs import NAME

__all__ = ["WINDOWS", "Standing", "Taken", "last_runs", "lines_of", "standing_of", "taken_by"]

# Two windows a rate: it burns fast when both do. The pairs and rates are those of the SRE workbook
# for a budget of 30 days: 2 % of it in an hour, 5 % in six, 10 % in three days.
WINDOWS = (("1h", "5m", 14.4), ("6h", "30m", 6.0), ("3d", "6h", 1.0))


class Rate(msgspec.Struct, frozen=True, kw_only=True):
    """How fast the budget burns: 1 uses it up just at the end of its period."""

    window: str
    rate: float
    short: str  # the shorter window beside it, which says whether it still does
    short_rate: float
    limit: float
    burning: bool  # both are over the limit


class Standing(msgspec.Struct, frozen=True, kw_only=True):
    """What a dataset promises and how it keeps that."""

    dataset_id: str
    ok: bool
    period: str
    runs: int
    failed: int
    slow: int
    success: float | None  # the share of runs that did not fail; None: there were none
    success_target: float
    latency_target: str
    fresh: bool
    freshness_target: str
    error_budget_burn: float
    rates: tuple[Rate, ...]
    since: str


def standing_of(store: Store, entry: DatasetEntry, now: dt.datetime, *, fresh: bool) -> Standing:
    """Over its period, and over the windows that tell how fast its budget burns."""
    slo, dataset_id = slo_of(entry), entry.dataset_id
    span = seconds(slo.period)

    def over(window: str) -> Counted:
        return counted(store, dataset_id, slo, now, seconds(window))

    def rate(found: Counted) -> float:
        return found.failed / found.runs / (1.0 - slo.success) if found.runs else 0.0

    whole = counted(store, dataset_id, slo, now, span)
    rates = []
    for long, short, limit in WINDOWS:
        slow, fast = rate(over(long)), rate(over(short))
        rates.append(
            Rate(
                window=long,
                rate=round(slow, 3),
                short=short,
                short_rate=round(fast, 3),
                limit=limit,
                burning=slow >= limit and fast >= limit,
            )
        )
    used = burn(whole, slo)
    return Standing(
        dataset_id=dataset_id,
        ok=used < 1.0 and fresh and not whole.slow and not any(r.burning for r in rates),
        period=slo.period,
        runs=whole.runs,
        failed=whole.failed,
        slow=whole.slow,
        success=1.0 - whole.failed / whole.runs if whole.runs else None,
        success_target=slo.success,
        latency_target=slo.latency,
        fresh=fresh,
        freshness_target=entry.freshness,
        error_budget_burn=used,
        rates=tuple(rates),
        since=rfc3339(now - dt.timedelta(seconds=span)),
    )


class Taken(msgspec.Struct, frozen=True, kw_only=True):
    """What the runs of a dataset took in a month."""

    dataset_id: str
    month: str
    runs: int = 0
    noops: int = 0
    cpu_seconds: float = 0.0
    kwh: float = 0.0
    co2e_g: float | None = None  # None: nobody stated what a kilowatt hour stands for
    # what its NOOPs would have taken had each been as the run before that was none
    saved_kwh: float = 0.0
    methods: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()


def last_runs(folder: Path) -> dict[str, RunTelemetry]:
    """The run of each dataset that ended last, of the two last days that have any."""
    ended = sorted(lines_of(folder, days=2), key=lambda line: line.ended_at)
    return {line.dataset_id: line for line in ended}


def lines_of(folder: Path, days: int = 0) -> Iterator[RunTelemetry]:
    """Every line that is whole, oldest first; of the last `days` that have any, where it is said."""
    for file in sorted(folder.glob(f"{NAME}-????-??-??.jsonl"))[-days:]:
        with file.open("rb") as opened:
            for raw in opened:
                try:
                    yield msgspec.json.decode(raw, type=RunTelemetry)
                except msgspec.MsgspecError:
                    continue  # cut off, or of another kfm


def taken_by(lines: Iterable[RunTelemetry]) -> list[Taken]:
    """Sums by dataset and month."""
    found: dict[tuple[str, str], Taken] = {}
    full: dict[str, float] = {}  # of the last run of a dataset that was no NOOP
    for line in lines:
        key = (line.dataset_id, line.ended_at[:7])
        before = found.get(key) or Taken(dataset_id=key[0], month=key[1])
        found[key] = _with(before, line, full.get(line.dataset_id))
        if line.state == "COMMITTED" and line.energy is not None:
            full[line.dataset_id] = line.energy.kwh
    return [found[key] for key in sorted(found)]


def _with(before: Taken, line: RunTelemetry, full: float | None) -> Taken:
    energy, noop = line.energy, line.state == "NOOP"
    used = energy.kwh if energy is not None else 0.0
    carbon = (before.co2e_g or 0.0) + line.co2e_g if line.co2e_g is not None else before.co2e_g
    saved = max(0.0, full - used) if noop and full is not None else 0.0
    return Taken(
        dataset_id=before.dataset_id,
        month=before.month,
        runs=before.runs + 1,
        noops=before.noops + noop,
        cpu_seconds=round(before.cpu_seconds + (energy.cpu_seconds if energy else 0.0), 3),
        kwh=before.kwh + used,
        co2e_g=carbon,
        saved_kwh=before.saved_kwh + saved,
        methods=tuple(sorted({*before.methods, *((energy.method,) if energy else ())})),
        sources=tuple(sorted({*before.sources, *((energy.source,) if energy else ())})),
    )
