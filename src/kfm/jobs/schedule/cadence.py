"""A schedule with every default filled in: its moments, its windows, and how far each moment is
spread.
"""

import datetime as dt
import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from kfm.jobs.schedule.cron import check_cron, is_cron, next_after
from kfm.model import CADENCES, INGEST, DatasetEntry, Json, Schedule, UsageError, bounds, rfc3339
from kfm.model.window import seconds

__all__ = ["Timetable", "Window", "check_cadence", "resolve", "to_ms"]

_DAY = 86400
# in the dataset's time zone
_WORDS = {"daily": "0 0 * * *", "weekly": "0 0 * * 1", "annual": "0 0 1 1 *"}
_LIVE_S = (60, 300)
_LONGEST_S = 36_525 * _DAY  # a hundred years
_YEARS = (1800, 2200)  # in which a schedule may start: far from where the calendar ends


def to_ms(moment: dt.datetime) -> int:
    return int(moment.timestamp() * 1000)


@dataclass(frozen=True)
class Window:
    """A half-open interval in UTC."""

    since: dt.datetime
    until: dt.datetime

    @property
    def text(self) -> str:
        return f"{rfc3339(self.since)}/{rfc3339(self.until)}"


@dataclass(frozen=True)
class Timetable:
    """When one dataset, or one maintenance job, is put."""

    name: str
    subject: str  # the dataset, or job:<name>
    cadence: str
    cron: str | None  # neither `cron` nor `every_s`: static
    every_s: int | None
    zone: dt.tzinfo = dt.UTC
    dataset: str = ""
    partitions: tuple[str, ...] = ("",)
    job_type: str = INGEST
    parameters: Json = field(default_factory=dict)
    window_s: int | None = None
    start: dt.datetime = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
    revisit_s: tuple[int, ...] = ()
    catch_up: str = "all"
    max_windows: int | None = None
    jitter_s: int = 0
    pool: str = "default"
    priority: int = 0
    fallback_s: int | None = None  # event-first
    paused: str = ""
    mark: str = ""  # static: changes with the spec
    implicit: bool = False  # made from the registry alone

    @property
    def static(self) -> bool:
        return self.cron is None and self.every_s is None

    def next_tick(self, after: dt.datetime) -> dt.datetime:
        """The first moment of the cadence after `after`."""
        if self.cron is not None:
            return next_after(self.cron, after, self.zone)
        assert self.every_s is not None
        return self._cut(self.every_s, self._number(self.every_s, after) + 1)

    def last_tick(self, now: dt.datetime) -> dt.datetime:
        """The newest moment of the cadence at or before `now`."""
        span = dt.timedelta(minutes=1)
        while (found := self.next_tick(now - span)) > now:
            span *= 2
        while (later := self.next_tick(found)) <= now:
            found = later
        return found

    def spread(self, what: str) -> dt.timedelta:
        """How much later than its tick a moment is: below `jitter`, and the same for the same
        schedule and moment.
        """
        share = (
            int.from_bytes(hashlib.sha256(f"{self.subject} {what}".encode()).digest()[:4]) / 2**32
        )
        return dt.timedelta(seconds=int(self.jitter_s * share))

    def windows(self, after: dt.datetime) -> Iterator[Window]:
        """Every window that ends after `after`, oldest first, for ever; a day that the zone has
        left out is none.
        """
        assert self.window_s is not None
        number = max(0, self._number(self.window_s, after))
        since = self._cut(self.window_s, number)
        while True:
            number += 1
            until = self._cut(self.window_s, number)
            if since < until:
                yield Window(since, until)
            since = until

    def window_by(self, moment: dt.datetime) -> Window:
        """The newest window that ends at or before `moment`; one before the first where there is
        none.
        """
        assert self.window_s is not None
        number = self._number(self.window_s, moment)
        until = self._cut(self.window_s, number)
        while (since := self._cut(self.window_s, number - 1)) == until:
            number -= 1
        return Window(since, until)

    def count(self, since: dt.datetime, until: dt.datetime) -> int:
        """How many windows end after `since` and at or before `until`."""
        assert self.window_s is not None
        return max(
            0, self._number(self.window_s, until) - max(0, self._number(self.window_s, since))
        )

    def _cut(self, length: int, number: int) -> dt.datetime:
        """The `number`-th border from `start`: whole days by the calendar of the zone (23 or 25 h
        at a clock change), others by elapsed time.
        """
        if length % _DAY:
            return self.start + dt.timedelta(seconds=length * number)
        local = self.start.astimezone(self.zone).replace(tzinfo=None) + dt.timedelta(
            seconds=length * number
        )
        return _first_real(local, self.zone)

    def _number(self, length: int, moment: dt.datetime) -> int:
        """How many whole lengths lie between `start` and `moment`."""
        if length % _DAY:
            return int((moment - self.start).total_seconds() // length)
        begun = self.start.astimezone(self.zone).replace(tzinfo=None)
        near = (
            int(
                (moment.astimezone(self.zone).replace(tzinfo=None) - begun).total_seconds()
                // length
            )
            + 1
        )
        while self._cut(length, near) > moment:
            near -= 1
        return near


def _first_real(local: dt.datetime, zone: dt.tzinfo) -> dt.datetime:
    """A local time in UTC: the first of two, and for one that a clock change leaves out the end of
    the gap.
    """
    found = local.replace(tzinfo=zone).astimezone(dt.UTC)
    if found.astimezone(zone).replace(tzinfo=None) == local:
        return found
    new = found.astimezone(zone).utcoffset()
    while (found - dt.timedelta(minutes=1)).astimezone(zone).utcoffset() == new:
        found -= dt.timedelta(minutes=1)
    return found


# ---- from what people wrote ----------------------------------------------------------------------
def check_cadence(cadence: str | None, interval: str | None) -> None:
    """Refuse a cadence that says nothing, or that an upstream would mind."""
    live = cadence == "real-time"
    if interval is not None and not live:
        raise UsageError(
            "`interval` belongs to `cadence: real-time`.",
            expected="real-time, or no interval",
            remedy="Drop one.",
        )
    if cadence is None or cadence in CADENCES[1:]:
        return
    if is_cron(cadence):
        check_cron(cadence)
        return
    text = (interval or "2m") if live else cadence
    try:
        length = seconds(text)
    except UsageError as error:
        expected = f"{', '.join(CADENCES)}, a length such as 24h, or a cron line of five fields"
        raise UsageError(
            f"cadence is {cadence!r}.",
            expected=expected,
            remedy="Mend it where it is stated; `kfm schedule next` shows how it is read.",
        ) from error
    if length < _LIVE_S[0] or (live and length > _LIVE_S[1]):
        raise UsageError(
            f"upstream would be asked every {text}.",
            expected="real-time asks every 1m to 5m; no other cadence asks more often than that",
            remedy="Choose a longer interval: what changes faster should send an event.",
        )
    _length("cadence", text)


def resolve(name: str, schedule: Schedule, entry: DatasetEntry | None, mark: str = "") -> Timetable:
    """`schedule` with what the registry says where it is silent; refused when it cannot work."""
    _check_subject(schedule, entry)
    cadence = schedule.cadence or (entry.cadence if entry else None)
    interval = schedule.interval or (
        entry.interval if entry and schedule.cadence in (None, "real-time") else None
    )
    if cadence is None:
        raise UsageError(
            "no cadence is said, here or in the registry.",
            expected=", ".join(CADENCES),
            remedy="Add `cadence`.",
        )
    check_cadence(cadence, interval)
    length = schedule.windows and _length("windows", schedule.windows, least=60)
    zone = _zone(schedule.time_zone or (entry.time_zone if entry else "UTC"))
    return Timetable(
        name=name,
        subject=schedule.dataset or f"job:{name}",
        dataset=schedule.dataset or "",
        partitions=(entry.partitions if entry else ()) or ("",),
        job_type=schedule.job_type or INGEST,
        parameters=schedule.parameters,
        cadence=cadence,
        cron=_WORDS.get(cadence) or (check_cron(cadence) if is_cron(cadence) else None),
        every_s=(
            None
            if cadence in _WORDS or cadence == "static" or is_cron(cadence)
            else seconds(interval or "2m" if cadence == "real-time" else cadence)
        ),
        zone=zone,
        window_s=length or None,
        start=_start(schedule, zone),
        revisit_s=tuple(
            sorted(
                _length("revisit", r)
                for r in (
                    schedule.revisit
                    if schedule.revisit is not None
                    else entry.revisit
                    if entry
                    else ()
                )
            )
        ),
        catch_up=schedule.catch_up,
        max_windows=schedule.max_windows,
        jitter_s=_length("jitter", schedule.jitter),
        pool=schedule.pool or (entry.pool if entry else "default"),
        priority=schedule.priority,
        fallback_s=_length("event", schedule.event, least=60) if schedule.event else None,
        paused=schedule.paused,
        mark=mark,
    )


def _check_subject(schedule: Schedule, entry: DatasetEntry | None) -> None:
    if (schedule.dataset is None) == (schedule.job_type is None):
        raise UsageError(
            "it names no work, or two.",
            expected="`dataset`, or `job_type`",
            remedy="Keep one of them.",
        )
    if schedule.dataset is None and (schedule.windows or schedule.event):
        raise UsageError(
            "windows and events belong to a dataset.", expected="`dataset`", remedy="Take them out."
        )
    if schedule.dataset is not None and schedule.parameters:
        raise UsageError(
            "`parameters` belong to `job_type`.",
            expected="`dataset` alone",
            remedy="Take them out.",
        )
    if schedule.windows and (
        schedule.event
        or schedule.cadence == "static"
        or (entry and not schedule.cadence and entry.cadence == "static")
    ):
        raise UsageError(
            "what is static, or told about, has no windows.",
            expected="a cadence",
            remedy="Take `windows` out.",
        )


def _start(schedule: Schedule, zone: dt.tzinfo) -> dt.datetime:
    """Where windows and lengths are counted from; without a word, midnight of the first Monday of
    1970 in the zone.
    """
    if schedule.windows and not schedule.start:
        raise UsageError(
            "windows begin nowhere.",
            expected="start: an absolute time, such as 2026-01-01",
            remedy="Add `start`.",
        )
    if not schedule.start:
        return _first_real(dt.datetime(1970, 1, 5), zone)
    try:
        found = dt.datetime.fromisoformat(bounds(schedule.start, "9999-01-01").partition("/")[0])
    except OverflowError:
        found = dt.datetime.min
    if not _YEARS[0] <= found.year < _YEARS[1]:
        raise UsageError(
            f"start is {schedule.start!r}.",
            expected=f"a year from {_YEARS[0]} to {_YEARS[1] - 1}",
            remedy="Mend it where it is stated; `kfm schedule next` shows how it is read.",
        )
    # a day begins where the dataset is
    return _first_real(found.replace(tzinfo=None), zone) if len(schedule.start) == 10 else found


def _length(label: str, text: str, least: int = 0) -> int:
    try:
        found = seconds(text)
    except UsageError as error:
        raise UsageError(
            f"{label} is {text!r}.",
            expected="a length of time such as 6h or 1d",
            remedy="Mend it where it is stated; `kfm schedule next` shows how it is read.",
        ) from error
    if not least <= found <= _LONGEST_S:
        raise UsageError(
            f"{label} is {text!r}.",
            expected=f"at least {least} s, at most a hundred years",
            remedy="Mend it where it is stated; `kfm schedule next` shows how it is read.",
        )
    return found


def _zone(name: str) -> dt.tzinfo:
    if name == "UTC":
        return dt.UTC
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise UsageError(
            f"time_zone {name!r} is not known.",
            expected="a name such as America/Chicago",
            remedy="Mend it where it is stated; `kfm schedule next` shows how it is read.",
        ) from error
