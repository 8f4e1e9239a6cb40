"""What is due now: a pure decision over a timetable, the clock and the set of windows that were visited."""

import datetime as dt
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import msgspec

from kfm.model.schedule import VisitRow
from kfm.schedule.cadence import Timetable, Window, to_ms

__all__ = ["BATCH", "FAR", "Decision", "decide", "settled", "visited"]

BATCH = 500  # windows put in one transaction
GRACE = dt.timedelta(minutes=10)  # `catch_up: none`: what is later than this was missed
RETRY_S, LONGEST_RETRY_S = 3600, 86400
FAR = dt.timedelta(days=1)  # a visit so far ahead of now was made by a clock that was wrong
NEAR = dt.timedelta(hours=1)

Rows = dict[tuple[str, str], VisitRow]  # (slot, partition)


@dataclass(frozen=True)
class Decision:
    """Rows to write, each with its job (`puts`) or without (`skips`), and when to look again."""

    puts: Sequence[VisitRow] = ()
    skips: Sequence[VisitRow] = ()
    floor: int = 0  # every window that ends by then has its row
    next_at: dt.datetime | None = None
    more: bool = False  # there was more than one transaction should hold


def settled(row: VisitRow, outcome: str, error: str, now: dt.datetime) -> VisitRow:
    """`row` once its job has ended: a failed window stays open and is tried again after a pause that grows."""
    if outcome in ("succeeded", "skipped"):
        return msgspec.structs.replace(row, outcome="done", fails=0, error="")
    if outcome == "cancelled":
        return msgspec.structs.replace(row, outcome="cancelled", error=error[:500])
    pause = min(RETRY_S * 2 ** min(row.fails, 10), LONGEST_RETRY_S)
    return msgspec.structs.replace(row, outcome="failed", fails=row.fails + 1, error=error[:500], due_at=to_ms(now) + pause * 1000)


def decide(table: Timetable, now: dt.datetime, floor: int, rows: Iterable[VisitRow], next_due: int | None = None) -> Decision:
    """What to put at `now`. `rows`: the windows that end after `floor`, and all that are to be put again by now."""
    known = {(row.slot, row.partition): row for row in rows if row.put_ms <= to_ms(now + FAR)}
    if table.window_s is None:
        return _whole(table, now, floor, known)
    again = [visited(table, row, now) for row in known.values() if row.ends_at and row.due_at is not None and row.due_at <= to_ms(now)][
        :BATCH
    ]
    first = _first_visits(table, now, floor, known)
    moments = [m for m in (first.next_at, _moment(next_due)) if m is not None]
    return Decision([*again, *first.puts], first.skips, first.floor, min(moments, default=None), first.more or len(again) == BATCH)


def _moment(ms: int | None) -> dt.datetime | None:
    return None if ms is None else dt.datetime.fromtimestamp(ms / 1000, dt.UTC)


def visited(table: Timetable, row: VisitRow, now: dt.datetime) -> VisitRow:
    """`row` as it is when its job has been put: the revisits that lie behind are done with, the next one is named."""
    left = [s for s in table.revisit_s if row.ends_at + s * 1000 > to_ms(now)] if row.ends_at else []
    due = row.ends_at + left[0] * 1000 + int(table.spread(f"{row.slot} {left[0]}").total_seconds() * 1000) if left else None
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


# ---- whole datasets ------------------------------------------------------------------------------------------------------
def _whole(table: Timetable, now: dt.datetime, floor: int, known: Rows) -> Decision:
    """Moments that were missed become one: asking twice for the same whole says nothing more."""
    puts, moments = [], []
    for partition in table.partitions:
        row = known.get(("", partition)) or VisitRow(subject=table.subject, partition=partition, slot="")
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


# ---- windows -------------------------------------------------------------------------------------------------------------
def _first_visits(table: Timetable, now: dt.datetime, floor: int, known: Rows) -> Decision:
    ticked = table.last_tick(now)
    endless = table.catch_up == "all" and table.max_windows is None
    missing, later, whole, more = list[Window](), list[dt.datetime](), True, False
    reached = floor
    for window in table.windows(max(table.start, _moment(floor) or table.start)):
        if window.until > ticked:
            later.append(table.next_tick(window.until - dt.timedelta(seconds=1)) + table.spread(window.text))
            break
        if endless and len(missing) == BATCH:
            more = True
            break
        due = table.next_tick(window.until - dt.timedelta(seconds=1)) + table.spread(window.text) if table.jitter_s else ticked
        if due > now:
            later.append(due)
            whole = False  # what lies behind this one may be due before it
            continue
        if any((window.text, partition) not in known for partition in table.partitions):
            missing.append(window)
        reached = to_ms(window.until) if whole else reached
    kept = set(missing) if endless else _kept(table, now, ticked, missing)
    puts, skips = list[VisitRow](), list[VisitRow]()
    for window in missing[:BATCH]:
        for partition in table.partitions:
            if (window.text, partition) in known:
                continue
            row = VisitRow(subject=table.subject, partition=partition, slot=window.text, ends_at=to_ms(window.until))
            if window in kept:
                puts.append(visited(table, row, now))
            else:
                skips.append(msgspec.structs.replace(row, outcome="skipped"))
    if len(missing) > BATCH:
        reached, more = min(reached, to_ms(missing[BATCH].since)), True
    return Decision(puts, skips, max(reached, floor), min(later, default=None), more)


def _kept(table: Timetable, now: dt.datetime, ticked: dt.datetime, missing: Sequence[Window]) -> set[Window]:
    """Those of `missing` that are put under the catch-up policy: the windows of the newest moment, and of earlier ones what it allows."""
    before = table.last_tick(ticked - dt.timedelta(seconds=1))
    fresh = [w for w in missing if w.until > before]
    missed = [w for w in missing if w.until <= before]
    if table.catch_up == "all":
        return {*fresh, *missed[-(table.max_windows or len(missed)) :]} if missed else set(fresh)
    if table.catch_up == "none" and now - ticked > GRACE + dt.timedelta(seconds=table.jitter_s):
        return set()
    return set(fresh)
