"""When data is asked for: list schedules, see what comes next, ask now, pause."""

import datetime as dt
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import takewhile

import msgspec
from msgspec import UNSET, UnsetType

from kfm.cli.answer import Answer, Call
from kfm.cli.call import login
from kfm.cli.scheduler import Problem, Tables
from kfm.cli.terminal import show, sign, table, write
from kfm.jobs.schedule.cadence import Timetable, to_ms
from kfm.jobs.schedule.due import decide, visited
from kfm.jobs.schedule.scheduler import asked_for, on_event, pause, paused
from kfm.model import UsageError, VisitRow, rfc3339
from kfm.model.window import window as parse_window
from kfm.run.claim import check_switch
from kfm.store.base import Tx
from kfm.workspace.folder import open_workspace
from kfm.workspace.wiring import open_world
from kfm.world.world import World

__all__ = [
    "Moments",
    "Schedules",
    "Turned",
    "event",
    "first_due",
    "moments",
    "paused_now",
    "put_now",
    "schedules",
    "unpaused",
]


# ---- looking -------------------------------------------------------------------------------------
class Failing(msgspec.Struct, frozen=True, kw_only=True):
    """A window that failed."""

    window: str
    partition: str
    outcome: str
    fails: int
    error: str
    job_id: str
    due_at: int | None


class Listed(msgspec.Struct, frozen=True, kw_only=True):
    """A schedule and how it stands."""

    name: str
    dataset: str | None
    job_type: str
    cadence: str
    time_zone: str
    windows: str | None  # how long one is
    pool: str
    paused: str | None  # why
    next_at: str | None
    windows_by_outcome: dict[str, int]
    failing: list[Failing]


class Schedules(Answer, frozen=True, kw_only=True):
    """What is scheduled, how it stands, and files that say something wrong."""

    schedules: list[Listed]
    problems: list[Problem]

    @property
    def code(self) -> int:
        return 1 if self.problems else 0

    def tell(self, call: Call) -> None:
        heads = ("", "schedule", "cadence", "time zone", "next")
        lines = table(heads, [_cells(row) for row in self.schedules])
        for line, row in zip(lines[1:], self.schedules):
            if row is self.schedules[0]:
                show(lines[0])
            show(line)
            _tell_trouble(row)
        for problem in self.problems:
            write(f"  {sign('FAILED')} {problem.file}: {problem.what}\n      {problem.remedy}")
        if not self.schedules and not self.problems:
            write("Nothing is scheduled: give a dataset a `cadence` in its registry entry.")


def _cells(row: Listed) -> tuple[str, ...]:
    state = "PROPOSED" if row.paused else "FAILED" if row.failing else "PASS"
    cut = f" by {row.windows}" if row.windows else ""
    due = "paused" if row.paused else row.next_at or "nothing due"
    return (sign(state), row.name, row.cadence + cut, row.time_zone, due)


def _tell_trouble(row: Listed) -> None:
    if row.paused:
        write(f"      {row.paused}\n      kfm schedule unpause {row.name}")
    for failed in row.failing[:5]:
        write(
            f"      {failed.outcome} {failed.window or 'whole'} {failed.partition}"
            f" {failed.fails} times: {failed.error}"
        )
    if row.failing:
        write(f"      kfm jobs show {row.failing[0].job_id}")


@contextmanager
def _opened(call: Call) -> Iterator[tuple[World, Tables]]:
    workspace = open_workspace(call.workspace)
    with open_world(workspace) as world:
        yield world, Tables(workspace, world.toolchain_digest)


def schedules(call: Call, name: str | None) -> Schedules:
    with _opened(call) as (world, tables):
        chosen, now = [tables.named(name)] if name else tables(), world.clock.now()
        rows = world.store.read(lambda tx: [_row(tx, t, now) for t in chosen])
        return Schedules(schedules=rows, problems=list(tables.problems))


def first_due(
    tx: Tx, tables: Iterable[Timetable], now: dt.datetime, known: dict[str, dt.datetime | None]
) -> tuple[dt.datetime, str] | None:
    """What is due first, and when; of several by name. `known`: what was found before, in tables and
    a store that are still the same; a moment that lies ahead is the next one until it has come.
    """
    found = list[tuple[dt.datetime, str]]()
    for each in sorted(tables, key=lambda table: table.name):
        at = known.get(each.name)
        if each.name not in known or (at is not None and at <= now):
            why = each.paused or paused(tx, each)
            at = (
                next((moment for moment, _ in _moments(tx, each, now, 1)), None)
                if not why
                else None
            )
            known[each.name] = at
        if at is not None:
            found.append((at, each.name))
            if at <= now:
                break
    return min(found, default=None)


def _row(tx: Tx, table: Timetable, now: dt.datetime) -> Listed:
    counts, failing = tx.schedule.counts(table.subject), tx.schedule.failing(table.subject)
    why = table.paused or paused(tx, table)
    moments = [] if why else _moments(tx, table, now, 1)
    return Listed(
        name=table.name,
        dataset=table.dataset or None,
        job_type=table.job_type,
        cadence=table.cadence,
        time_zone=str(table.zone),
        windows=(
            f"{table.window_s // 86400}d"
            if table.window_s and not table.window_s % 86400
            else f"{table.window_s}s"
            if table.window_s
            else None
        ),
        pool=table.pool,
        paused=why,
        next_at=rfc3339(moments[0][0].replace(microsecond=0)) if moments else None,
        windows_by_outcome=counts,
        failing=[
            Failing(
                window=v.slot,
                partition=v.partition,
                outcome=v.outcome,
                fails=v.fails,
                error=v.error,
                job_id=v.job_id,
                due_at=v.due_at,
            )
            for v in failing
        ],
    )


def _moments(
    tx: Tx, table: Timetable, now: dt.datetime, count: int
) -> list[tuple[dt.datetime, str]]:
    """The next moments with their windows; what is due already stands at now."""
    if table.window_s is None:
        rows = [
            r for p in table.partitions if (r := tx.schedule.get(table.subject, "", p)) is not None
        ]
        decision = decide(table, now, 0, rows)
        first = now if decision.puts else decision.next_at
        if first is None or table.static:
            return [(first, "")] if first is not None else []
        found = [(first, "")]
        while len(found) < count:
            tick = (
                table.next_tick(found[-1][0])
                if table.fallback_s is None
                else found[-1][0] + dt.timedelta(seconds=table.fallback_s)
            )
            found.append((tick, ""))
        return found
    found = []
    ticked = table.last_tick(now)
    for window in table.windows(ticked):
        if len(found) == count:
            break
        due = table.next_tick(window.until - dt.timedelta(seconds=1)) + table.spread(window.text)
        found.append((due, window.text))
    return found


class Moment(msgspec.Struct, frozen=True, kw_only=True):
    """When something is due."""

    name: str
    at: str
    window: str
    local: str  # in the time zone of the schedule, as people say it


class Moments(Answer, frozen=True, kw_only=True):
    """The next moments of all of them."""

    next: list[Moment]

    def tell(self, call: Call) -> None:
        cells = [(m.at, m.local, m.name, m.window) for m in self.next]
        for line in table(("at", "there", "schedule", "window"), cells) if cells else ():
            show(line)
        if not cells:
            write("Nothing is due. `kfm schedule list` says why.")


def moments(call: Call, name: str | None, count: int) -> Moments:
    with _opened(call) as (world, tables):
        chosen, now = [tables.named(name)] if name else tables(), world.clock.now()
        zones = {t.name: t.zone for t in chosen}
        rows = world.store.read(
            lambda tx: sorted(
                (at, t.name, win)
                for t in chosen
                if not (t.paused or paused(tx, t))
                for at, win in _moments(tx, t, now, count)
            )
        )
    return Moments(
        next=[
            Moment(
                name=name,
                at=rfc3339(at.replace(microsecond=0)),
                window=win,
                local=at.astimezone(zones[name]).strftime("%a %d %b %H:%M %Z"),
            )
            for at, name, win in rows
        ]
    )


# ---- doing ---------------------------------------------------------------------------------------
class Turned(Answer, frozen=True, kw_only=True):
    """What became of a schedule."""

    status: str  # put, paused, resumed, heard, heard_before
    name: str
    said: str
    window: str | UnsetType = UNSET
    jobs: list[str] | UnsetType = UNSET
    reason: str | UnsetType = UNSET

    def tell(self, call: Call) -> None:
        write(self.said)


def put_now(call: Call, name: str, window: str | None, reason: str) -> Turned:
    """Put it now, unless it is switched off. A window that nobody visited yet counts as visited by
    this.
    """
    with _opened(call) as (world, tables):
        table, now = tables.named(name), world.clock.now()
        slot, ends_at = _slot(table, window, now)

        def put(tx: Tx) -> list[str]:
            check_switch(tx, table.dataset, table.job_type)
            tx.schedule.alone(table.subject)
            found = []
            for partition in table.partitions:
                new = VisitRow(
                    subject=table.subject, partition=partition, slot=slot, ends_at=ends_at
                )
                row = tx.schedule.get(table.subject, slot, partition) or new
                seen = visited(table, row, now)
                found.append(asked_for(tx, table, seen, f"manual:{login()}").job_id)
            return found

        jobs = world.store.transaction(put)
    said = f"Put {table.name}{' ' + slot if slot else ''}: {', '.join(jobs)}"
    return Turned(status="put", name=name, said=said, window=slot, jobs=jobs)


def _slot(table: Timetable, window: str | None, now: dt.datetime) -> tuple[str, int]:
    """The window that is asked for, or the newest one that has ended; when it ends."""
    if window:
        slot = parse_window(window, now)
        return slot, to_ms(dt.datetime.fromisoformat(slot.partition("/")[2]))
    if table.window_s is None:
        return "", 0
    since = now - dt.timedelta(seconds=2 * table.window_s + 7200)
    ended = list(takewhile(lambda w: w.until <= now, table.windows(since)))
    return (ended[-1].text, to_ms(ended[-1].until)) if ended else ("", 0)


def paused_now(call: Call, name: str, reason: str) -> Turned:
    reason = reason or "paused by hand"
    with _opened(call) as (world, tables):
        table = tables.named(name)
        at = rfc3339(world.clock.now().replace(microsecond=0))
        world.store.transaction(lambda tx: pause(tx, table, f"{reason} ({login()}, {at})"))
    said = f"{table.name} puts nothing until `kfm schedule unpause {table.name}`"
    return Turned(status="paused", name=name, said=said, reason=reason)


def unpaused(call: Call, name: str) -> Turned:
    with _opened(call) as (world, tables):
        table = tables.named(name)
        if table.paused:
            raise UsageError(
                f"{table.name} is paused by its file: {table.paused}",
                expected="no `paused` there",
                remedy="Take the line out of the file.",
            )
        world.store.transaction(lambda tx: pause(tx, table, None))
    said = f"{table.name} goes on; what was missed is made up for by its policy ({table.catch_up})"
    return Turned(status="resumed", name=name, said=said)


def event(call: Call, name: str, digest: str) -> Turned:
    with _opened(call) as (world, tables):
        table = tables.named(name)
        if not table.dataset:
            raise UsageError(
                f"{table.name} is about no dataset.",
                expected="kfm schedule event DATASET --digest DIGEST",
                remedy="`kfm dataset list` shows what there is.",
            )
        now = world.clock.now()
        new = world.store.transaction(lambda tx: on_event(tx, table, digest, now, login()))
    said = f"{table.dataset}: {'put' if new else 'heard before, nothing is put'}"
    return Turned(status="heard" if new else "heard_before", name=name, said=said)
