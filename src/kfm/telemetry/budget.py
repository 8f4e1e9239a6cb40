"""How much of what a dataset may fail was used: error budgets and how fast they burn."""

import datetime as dt

import msgspec

from kfm.model import DatasetEntry, Slo, ids
from kfm.model.window import seconds
from kfm.store.base import Store

__all__ = ["Counted", "burn", "counted", "slo_of"]


class Counted(msgspec.Struct, frozen=True, kw_only=True):
    """The runs of a dataset that ended in some time; a look that found nothing new is one."""

    runs: int = 0
    failed: int = 0
    slow: int = 0  # took longer than promised


def slo_of(entry: DatasetEntry | None) -> Slo:
    """What is promised; where nobody says, what `Slo` says."""
    return entry.slo if entry is not None and isinstance(entry.slo, Slo) else Slo()


def counted(store: Store, dataset_id: str, slo: Slo, now: dt.datetime, span_s: float) -> Counted:
    """What ended in the `span_s` seconds before `now`."""
    since = ids.first_run_id(max(0, int((now.timestamp() - span_s) * 1000)))
    limit_ms = seconds(slo.latency) * 1000
    looks, runs, failed, slow = store.read(
        lambda tx: tx.runs.tally(dataset_id, since, limit_ms=limit_ms)
    )
    return Counted(runs=looks + runs, failed=failed, slow=slow)


def burn(found: Counted, slo: Slo) -> float:
    """The share of the budget that was used, 0 to 1; without runs none was."""
    if not found.runs:
        return 0.0
    allowed = found.runs * (1.0 - slo.success)
    return min(1.0, found.failed / allowed)
