"""What the registry states about the past of a dataset: a plan without a file, and what every plan
has to agree with.
"""

import datetime as dt

from msgspec import UNSET

from kfm.jobs.backfill_plan import BackfillPlan, bound, grid_of, plan_from, zone_of
from kfm.model import DatasetEntry, Json, UsageError
from kfm.model.dataset import Past

__all__ = ["agree", "differences", "range_of", "stated_plans"]


def range_of(
    entry: DatasetEntry,
    now: dt.datetime,
    *,
    since: str | None,
    until: str | None,
    window: str | None,
) -> Json:
    """Bounds, window and runtime of a plan without a file: those that are given, else those that
    are stated. Raises `UsageError`.
    """
    past = _past(entry)
    if not (since or until) and past is not None and len(past.ranges) == 1:
        since, until = past.ranges[0].split("/")
        until = _end(entry, until, now)
    if not since or not until:
        raise UsageError(
            "A backfill says which past it is about.",
            expected="--since TIME --until TIME" + (f" within {_ranges(past)}" if past else ""),
            remedy="Or write pipelines/orchestration/backfills/NAME.yml.",
        )
    return {
        "since": since,
        "until": until,
        "partitioning": {"window": window or (past.window if past else "1d")},
        "expected_runtime": past.expected_runtime if past else "0",
    }


def stated_plans(entry: DatasetEntry, now: dt.datetime) -> list[BackfillPlan]:
    """A plan for every range that is stated."""
    past = _past(entry)
    found = []
    for since, until in (stated.split("/") for stated in past.ranges) if past else ():
        bounds = range_of(entry, now, since=since, until=_end(entry, until, now), window=None)
        plain = {"dataset": entry.dataset_id, "pool": entry.pool, "acceptance": {"gates": "all"}}
        found.append(plan_from({**plain, **bounds}, entry.dataset_id))
    return found


def agree(plan: BackfillPlan, entry: DatasetEntry) -> None:
    """Refuse a plan over a past that the registry does not state. Raises `UsageError`."""
    past = _past(entry)
    if past is None:
        return
    grid, zone = grid_of(plan, entry), zone_of(entry.time_zone)
    for since, until in (stated.split("/") for stated in past.ranges):
        if bound(since, zone) <= grid.since and (until == ".." or grid.until <= bound(until, zone)):
            return
    raise UsageError(
        f"{plan.since} to {plan.until} is not within the past that {entry.dataset_id} states.",
        expected=_ranges(past),
        remedy=f"Mend the plan, or `backfill` in data/registry/{entry.dataset_id}.yml.",
    )


def differences(plan: BackfillPlan, entry: DatasetEntry) -> list[str]:
    """What the registry states otherwise than a plan."""
    past = _past(entry)
    if past is None:
        return []
    pairs = (
        ("windows of", plan.partitioning.window, past.window),
        ("expected", plan.expected_runtime, past.expected_runtime),
    )
    return [f"{what} {stated}" for what, planned, stated in pairs if planned not in (stated, "0")]


def _past(entry: DatasetEntry) -> Past | None:
    """What is stated; None: nothing. A dataset that has no past is refused."""
    if isinstance(entry.backfill, str):
        raise UsageError(
            f"{entry.dataset_id} has no past to make up for: {entry.backfill}",
            expected="a dataset whose registry entry states ranges under `backfill`",
            remedy=f"`kfm run {entry.dataset_id}` brings it up to date.",
        )
    return None if entry.backfill is UNSET else entry.backfill


def _end(entry: DatasetEntry, until: str, now: dt.datetime) -> str:
    """Up to now is up to the day that has begun: the same plan all day."""
    zone = zone_of(entry.time_zone)
    return now.astimezone(zone).date().isoformat() if until == ".." else until


def _ranges(past: Past) -> str:
    return ", ".join(
        stated.replace("/..", " up to now").replace("/", " to ") for stated in past.ranges
    )
