"""The plan of a backfill that a person writes, and the grid of partitions that follows from it by a
formula.
"""

import datetime as dt
import re
from typing import Annotated, Literal

import msgspec
from msgspec.structs import replace

from kfm.model import BackfillRow, DatasetEntry, UsageError, canonical, ids, rfc3339
from kfm.model.dataset import DatasetId, Identifier, Share
from kfm.model.did_you_mean import meant
from kfm.model.window import _moment as moment
from kfm.model.window import seconds

__all__ = [
    "Acceptance",
    "BackfillPlan",
    "Grid",
    "Partitioning",
    "RateLimit",
    "backfill_id",
    "bound",
    "cut",
    "grid_of",
    "plan_from",
    "read_plan",
    "resolved",
    "zone_of",
]

Count = Annotated[int, msgspec.Meta(ge=1, le=100_000)]


class Partitioning(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How the range is cut: windows of this length, times the partitions of the dataset."""

    # whole days are calendar days of the registry's time zone
    window: Annotated[str, msgspec.Meta(pattern=r"^[1-9][0-9]{0,6}[smhdw]$")]
    partitions: Literal["all"] | tuple[Identifier, ...] = "all"
    time_zone: str = ""  # of calendar days; empty: that of the registry


class Acceptance(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """When the outcome may become official. Every gate judges in any case; those named here must
    also have been asked.
    """

    gates: Literal["all"] | tuple[str, ...]
    max_failed: Share = 0.0  # share of partitions that may be missing from the version


class RateLimit(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Slower than politeness asks for, never faster."""

    per_second: Annotated[float, msgspec.Meta(gt=0, le=1000)]


class BackfillPlan(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True
):
    """`pipelines/orchestration/backfills/<name>.yml`."""

    dataset: DatasetId
    since: str  # RFC 3339, or a day of the registry's time zone
    until: str  # exclusive
    partitioning: Partitioning
    expected_runtime: str  # a length of time, as a person expects it
    pool: Identifier
    acceptance: Acceptance
    batch: Count = 50  # partitions per job
    # jobs at once; None: twice the slots of the pool
    concurrency: Annotated[int, msgspec.Meta(ge=1, le=1024)] | None = None
    rate: RateLimit | None = None
    assemble: Annotated[str, msgspec.Meta(pattern=r"^(once|every [1-9][0-9]{0,6})$")] = "once"
    # failed partitions after which no more are begun: then it is not the partition
    stop_after: Count = 20

    @property
    def every(self) -> int:
        """After how many parts a version is assembled; 0: at the end."""
        return 0 if self.assemble == "once" else int(self.assemble.split()[1])


_MEANT = {  # key -> what it is called, what it may be: where the pattern alone would say little
    "partitioning.window": (
        "window",
        "a length of 1 or more s, m, h, d or w, such as 1d; a month is no length, use 30d",
    ),
    "assemble": ("assemble", "once, or `every N` parts with N of 1 or more"),
    "pool": ("pool", "a plain name of letters, digits and . _ -"),
    "dataset": ("dataset", "the id of a registered dataset"),
}


def read_plan(row: BackfillRow) -> BackfillPlan:
    """The plan that a backfill was started with."""
    return msgspec.json.decode(row.plan, type=BackfillPlan)


def plan_from(given: object, name: str) -> BackfillPlan:
    """The plan in a file; what is missing or unknown is refused by its name."""
    plain = (
        {k: v.isoformat() if isinstance(v, dt.date) else v for k, v in given.items()}
        if isinstance(given, dict)
        else given
    )
    try:
        plan = msgspec.convert(plain, BackfillPlan)
    except msgspec.ValidationError as error:
        known = next((text for key, text in _MEANT.items() if f"`$.{key}`" in str(error)), None)
        said = f"{known[0]} is not as it should be" if known else str(error)
        expected, remedy = (
            (known[1] if known else "a backfill plan"),
            "Correct that key; unknown keys are not ignored.",
        )
        remedy += "" if known else meant(error, BackfillPlan)
        raise UsageError(f"{name}: {said}.", expected=expected, remedy=remedy) from error
    seconds(plan.expected_runtime)
    return plan


# ---- the grid ------------------------------------------------------------------------------------
class Grid(msgspec.Struct, frozen=True):
    """Partition number -> (window, partition), by arithmetic: nothing is listed, so half a million
    cost what one costs.
    """

    since: dt.datetime  # UTC
    until: dt.datetime
    step: dt.timedelta
    zone: dt.tzinfo  # that of calendar days; UTC where the step is no whole day
    partitions: tuple[str, ...]
    windows: int

    @property
    def total(self) -> int:
        return self.windows * len(self.partitions)

    def border(self, number: int) -> dt.datetime:
        """Where window `number` begins; a local time that a change of clocks skips counts by the
        offset before it.
        """
        if number <= 0 or number >= self.windows:
            return self.since if number <= 0 else self.until
        try:
            return min(
                (self.since.astimezone(self.zone) + number * self.step).astimezone(dt.UTC),
                self.until,
            )
        except OverflowError:  # past the last day there is
            return self.until

    def at(self, n: int) -> tuple[str, str]:
        """The window and partition of number `n`; an empty window is a day that the zone has left
        out.
        """
        number, partition = divmod(n, len(self.partitions))
        begin, end = self.border(number), self.border(number + 1)
        return (f"{rfc3339(begin)}/{rfc3339(end)}" if begin < end else ""), self.partitions[
            partition
        ]


def zone_of(name: str) -> dt.tzinfo:
    """A time zone by its name; empty: UTC."""
    import zoneinfo  # only a backfill needs it

    try:
        return zoneinfo.ZoneInfo(name or "UTC")
    except (KeyError, ValueError) as error:
        raise UsageError(
            f"time_zone {name!r} is not known.",
            expected="a name such as America/Chicago",
            remedy="Mend the plan, then `kfm backfill plan` shows what it takes.",
        ) from error


def bound(text: str, zone: dt.tzinfo) -> dt.datetime:
    """The moment a plan names: absolute, or a day of `zone`."""
    if re.fullmatch(r"-?[0-9]+[smhdw]?", text):
        raise UsageError(
            f"{text!r} is relative to now.",
            expected="absolute bounds such as 2026-01-01",
            remedy="A backfill says which past it is about.",
        )
    try:
        found = moment(text)
        is_day = re.fullmatch(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", text) is not None
        return found.replace(tzinfo=zone).astimezone(dt.UTC) if is_day else found
    except OverflowError as error:
        raise UsageError(
            f"{text!r} is beyond the years there are.",
            expected="a year from 2 to 9998",
            remedy="Mend the plan, then `kfm backfill plan` shows what it takes.",
        ) from error


def cut(
    since: dt.datetime,
    until: dt.datetime,
    length: str,
    zone: dt.tzinfo,
    partitions: tuple[str, ...] = ("",),
) -> Grid:
    """The range in half-open windows; whole days are days of `zone`, so that a change of clocks
    moves no border.
    """
    step = dt.timedelta(seconds=seconds(length))
    if not step:
        raise UsageError(
            "A window of no length holds nothing.",
            expected="a length such as 30d",
            remedy="Mend the plan, then `kfm backfill plan` shows what it takes.",
        )
    where = zone if step.seconds == 0 else dt.UTC
    wall = [t.astimezone(where).replace(tzinfo=None) for t in (since, until)]
    # a change of clocks moves the end by less than a step
    most = -((wall[0] - wall[1]) // step) + 2
    grid = Grid(since, until, step, where, partitions, most)
    count = max(most - 4, 1)
    while grid.border(count) < until:
        count += 1
    return replace(grid, windows=count)


def grid_of(plan: BackfillPlan, entry: DatasetEntry | None = None) -> Grid:
    """The grid of a plan: of one that was started (no `entry`) by what it says itself, whatever the
    registry says by now.
    """
    if entry is not None:
        plan = resolved(plan, entry)
    cutting = plan.partitioning
    names = () if cutting.partitions == "all" else cutting.partitions
    zone = zone_of(cutting.time_zone)
    since, until = bound(plan.since, zone), bound(plan.until, zone)
    if since >= until:
        raise UsageError(
            f"{plan.since} is not before {plan.until}.",
            expected="since before until",
            remedy="Swap or correct them.",
        )
    return cut(since, until, cutting.window, zone, names or ("",))


def resolved(plan: BackfillPlan, entry: DatasetEntry) -> BackfillPlan:
    """The plan with bounds, partitions and time zone written out; refused when the dataset cannot
    be cut that way.
    """
    names = (
        plan.partitioning.partitions
        if plan.partitioning.partitions not in ("all", ())
        else entry.partitions
    )
    for name in names:
        if name not in entry.partitions:
            known = ", ".join(entry.partitions) or "all"
            raise UsageError(
                f"{plan.dataset} has no partition {name}.",
                expected=known,
                remedy="Correct partitioning.partitions.",
            )
    zone = plan.partitioning.time_zone or entry.time_zone
    plan = msgspec.structs.replace(
        plan,
        partitioning=msgspec.structs.replace(
            plan.partitioning, partitions=tuple(names), time_zone=zone
        ),
    )
    found = grid_of(plan)
    if entry.merge != "upsert" and found.windows > 1:
        raise UsageError(
            f"{plan.dataset} is replaced by every run, so a window would push out the one"
            " before it.",
            expected="merge: upsert in the registry",
            remedy="Change it, or cut the range into one window.",
        )
    return msgspec.structs.replace(plan, since=rfc3339(found.since), until=rfc3339(found.until))


def backfill_id(plan: BackfillPlan, transform_hash: str, number: int) -> str:
    """The same plan over the same code is the same backfill; `number` counts those of it that have
    ended.
    """
    return (
        "b" + ids.digest(canonical.dumps([msgspec.to_builtins(plan), transform_hash, number]))[7:23]
    )
