"""What is due now: a pure decision over a timetable, the clock and the set of windows that were
visited.
"""

import datetime as dt
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice

import msgspec

from kfm.jobs.schedule.cadence import Timetable, Window, to_ms
from kfm.model import VisitRow

__all__ = ["BATCH", "FAR", "Decision", "decide", "settled", "visited"]

BATCH = 500  # windows put in one transaction
LOOKS = 20 * BATCH  # windows looked at in one
GRACE = dt.timedelta(minutes=10)  # `catch_up: none`: what is later than this was missed
RETRY_S, LONGEST_RETRY_S = 3600, 86400
FAR = dt.timedelta(days=1)  # a visit so far ahead of now was made by a clock that was wrong
NEAR = dt.timedelta(hours=1)

Rows = dict[tuple[str, str], VisitRow]  # (slot, partition)


@dataclass(frozen=True)
class Decision:
    """Rows to write, each with its job (`puts`) or without (`skips`: a stretch of `n` windows
    each), and when to look again.
    """

    puts: Sequence[VisitRow] = ()
    skips: Sequence[VisitRow] = ()
    floor: int = 0  # every window that ends by then was put or left out
    next_at: dt.datetime | None = None
    more: bool = False  # there was more than one transaction should hold


def settled(row: VisitRow, outcome: str, error: str, now: dt.datetime) -> VisitRow:
    """`row` once its job has ended: a failed window stays open and is tried again after a pause
    that grows.
    """
    if outcome in ("succeeded", "skipped"):
        return msgspec.structs.replace(row, outcome="done", fails=0, error="")
    if outcome == "cancelled":
        return msgspec.structs.replace(row, outcome="cancelled", error=error[:500])
    pause = min(RETRY_S * 2 ** min(row.fails, 10), LONGEST_RETRY_S)
    return msgspec.structs.replace(
        row,
        outcome="failed",
        fails=row.fails + 1,
        error=error[:500],
        due_at=to_ms(now) + pause * 1000,
    )


def decide(
    table: Timetable,
    now: dt.datetime,
    floor: int,
    rows: Iterable[VisitRow],
    next_due: int | None = None,
) -> Decision:
    """What to put at `now`. `rows`: the windows that end after `floor`, and all that are to be put
    again by now.
    """
    known = {(row.slot, row.partition): row for row in rows if row.put_ms <= to_ms(now + FAR)}
    if table.window_s is None:
        return _whole(table, now, floor, known)
    due = (
        row
        for row in known.values()
        if row.ends_at and row.due_at is not None and row.due_at <= to_ms(now)
    )
    again = [visited(table, row, now) for row in islice(due, BATCH)]
    known |= {(row.slot, row.partition): row for row in again}
    first = _first_visits(table, now, floor, _Seen.of(known.values()))
    moments = [m for m in (first.next_at, _moment(next_due)) if m is not None]
    return Decision(
        [*again, *first.puts],
        first.skips,
        first.floor,
        min(moments, default=None),
        first.more or len(again) == BATCH,
    )


def _moment(ms: int | None) -> dt.datetime | None:
    return None if ms is None else dt.datetime.fromtimestamp(ms / 1000, dt.UTC)


def visited(table: Timetable, row: VisitRow, now: dt.datetime) -> VisitRow:
    """`row` as it is when its job has been put: the revisits that lie behind are done with, the
    next one is named.
    """
    left = (
        [s for s in table.revisit_s if row.ends_at + s * 1000 > to_ms(now)] if row.ends_at else []
    )
    due = (
        row.ends_at
        + left[0] * 1000
        + int(table.spread(f"{row.slot} {left[0]}").total_seconds() * 1000)
        if left
        else None
    )
    passed = len(table.revisit_s) - len(left) if row.ends_at else 0
    return msgspec.structs.replace(
        row,
        n=passed,
        puts=row.puts + 1,
        due_at=due,
        put_ms=to_ms(now),
        outcome="",
        error="" if not row.fails else row.error,
        mark=table.mark,
    )


# ---- whole datasets ------------------------------------------------------------------------------
def _whole(table: Timetable, now: dt.datetime, floor: int, known: Rows) -> Decision:
    """Moments that were missed become one: asking twice for the same whole says nothing more."""
    puts, moments = [], []
    for partition in table.partitions:
        row = known.get(("", partition)) or VisitRow(
            subject=table.subject, partition=partition, slot=""
        )
        due = _due(table, row, now)
        if due is not None and due <= now:
            row = visited(table, row, now)
            puts.append(row)
            due = _due(table, row, now)
        if due is not None:
            moments.append(due)
    return Decision(puts, (), floor, min(moments, default=None))


def _due(table: Timetable, row: VisitRow, now: dt.datetime) -> dt.datetime | None:
    """When a whole dataset is asked for next."""
    retry = _moment(row.due_at)
    if not row.puts:
        return retry or now
    if table.static:
        return now if row.mark != table.mark else retry
    put = dt.datetime.fromtimestamp(row.put_ms / 1000, dt.UTC)
    if table.fallback_s is not None:
        tick = min(put, now) + dt.timedelta(seconds=table.fallback_s)
    else:
        if put > now and put > now + max(NEAR, table.next_tick(table.next_tick(now)) - now):
            return now  # the clock went back by more than a wait
        tick = table.next_tick(put)
    due = tick + table.spread(str(to_ms(tick)))
    return min(due, retry) if retry is not None else due


# ---- windows -------------------------------------------------------------------------------------
@dataclass(frozen=True)
class _Seen:
    """What became of windows: visited one by one once they had ended, or left out by the
    stretch.
    """

    visits: Rows
    left_out: Sequence[tuple[VisitRow, Window]]

    @classmethod
    def of(cls, rows: Iterable[VisitRow]) -> "_Seen":
        # what was put before the end of its window saw a part of it
        ended = [row for row in rows if row.put_ms >= row.ends_at]
        skipped = [
            (row, Window(*map(dt.datetime.fromisoformat, row.slot.split("/"))))
            for row in ended
            if row.outcome == "skipped"
        ]
        return cls(
            {(row.slot, row.partition): row for row in ended if row.outcome != "skipped"}, skipped
        )

    def has(self, window: Window, partition: str) -> bool:
        return (window.text, partition) in self.visits or self.stretch(
            window, partition
        ) is not None

    def stretch(self, window: Window, partition: str) -> Window | None:
        """The stretch that a window was left out with."""
        found = (
            w
            for row, w in self.left_out
            if row.partition == partition and w.since <= window.since and window.until <= w.until
        )
        return next(found, None)

    def number(self, partition: str, since: int, until: int) -> int:
        """How many windows are behind us that end after `since` and by `until`."""
        rows = (*self.visits.values(), *(row for row, _ in self.left_out))
        those = (row for row in rows if row.partition == partition and since < row.ends_at <= until)
        return sum(row.n if row.outcome == "skipped" else 1 for row in those)


def _first_visits(table: Timetable, now: dt.datetime, floor: int, seen: _Seen) -> Decision:
    ticked = table.last_tick(now)
    begin = max(table.start, _moment(floor) or table.start)
    skips: list[VisitRow] = []
    if table.count(begin, kept := _kept_from(table, now, ticked, begin, seen)):
        skips, begin, floor = _left_out(table, now, begin, kept, seen), kept, to_ms(kept)
    puts, later = list[VisitRow](), list[dt.datetime]()
    missing, whole, more = 0, True, False
    for looked, window in enumerate(table.windows(begin)):
        if window.until > ticked:
            later.append(
                table.next_tick(window.until - dt.timedelta(seconds=1)) + table.spread(window.text)
            )
            break
        if missing == BATCH or (whole and looked == LOOKS):
            more = True
            break
        due = (
            table.next_tick(window.until - dt.timedelta(seconds=1)) + table.spread(window.text)
            if table.jitter_s
            else ticked
        )
        if due > now:
            later.append(due)
            whole = False  # what lies behind this one may be due before it
            continue
        new = [p for p in table.partitions if not seen.has(window, p)]
        puts += [visited(table, _row(table, p, window), now) for p in new]
        missing += bool(new)
        floor = to_ms(window.until) if whole else floor
    return Decision(puts, skips, floor, min(later, default=None), more)


def _row(table: Timetable, partition: str, window: Window) -> VisitRow:
    return VisitRow(
        subject=table.subject, partition=partition, slot=window.text, ends_at=to_ms(window.until)
    )


def _kept_from(
    table: Timetable, now: dt.datetime, ticked: dt.datetime, begin: dt.datetime, seen: _Seen
) -> dt.datetime:
    """What ends by this moment is left out under the catch-up policy; told from the newest window,
    however many were missed.
    """
    before = table.last_tick(ticked - dt.timedelta(seconds=table.jitter_s + 1))
    if table.catch_up == "none" and now - ticked > GRACE + dt.timedelta(seconds=table.jitter_s):
        return ticked
    if table.catch_up != "all":
        return before
    if table.max_windows is None or table.count(begin, before) <= table.max_windows:
        return begin
    left, kept = table.max_windows, before
    while left and (window := table.window_by(kept)).until > begin:
        covers = [seen.stretch(window, p) for p in table.partitions]
        left -= not all(seen.has(window, p) for p in table.partitions)
        kept = max(w.since for w in covers if w) if all(covers) else window.since
    return max(kept, begin)


def _left_out(
    table: Timetable, now: dt.datetime, begin: dt.datetime, end: dt.datetime, seen: _Seen
) -> list[VisitRow]:
    """One row for each partition stands for all of its windows that end after `begin` and by
    `end`.
    """
    stretch = Window(table.window_by(begin).until, table.window_by(end).until)
    found = []
    for partition in table.partitions:
        number = table.count(begin, end) - seen.number(partition, to_ms(begin), to_ms(end))
        if number > 0:
            found.append(
                msgspec.structs.replace(
                    _row(table, partition, stretch), n=number, put_ms=to_ms(now), outcome="skipped"
                )
            )
    return found
