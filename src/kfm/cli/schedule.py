"""When data is asked for: list schedules, see what comes next, ask now, pause.

kfm schedule list [NAME]                     what is scheduled, how it stands, which windows failed
kfm schedule next [NAME] [-n 5]              the next moments
kfm schedule run NAME [--window W]           put it now, whatever the cadence says
kfm schedule pause NAME [--reason WHY] | resume NAME
kfm schedule event DATASET --digest DIGEST   upstream said that it changed; the same digest twice is one event

list --json = {"schedules": [{name, dataset, job_type, cadence, time_zone, windows, pool, paused,
next_at, windows_by_outcome, failing}], "problems"};
next --json = {"next": [{name, at, window}]}; the others {"status", "name", …}.
"""

import datetime as dt
from argparse import Namespace
from itertools import takewhile

import msgspec

from kfm.cli.call import Parser, again, emit, login
from kfm.cli.scheduler import Tables
from kfm.cli.terminal import show, sign
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

__all__ = ["configure", "main"]


def configure(parser: Parser) -> None:
    parser.add_argument("action", choices=("list", "next", "run", "pause", "resume", "event"))
    parser.add_argument("name", nargs="?", metavar="NAME", help="a schedule, or its dataset")
    parser.add_argument(
        "-n", "--count", type=int, default=5, help="next: how many moments of each; default: 5"
    )
    parser.add_argument(
        "--window",
        help="run: 2026-11-01, or SINCE/UNTIL; default: the newest window that has ended",
    )
    parser.add_argument("--reason", default="", help="pause: why; run: what for")
    parser.add_argument("--digest", help="event: what tells this event from others")


def main(args: Namespace) -> int:
    workspace = open_workspace(args.workspace)
    if args.action not in ("list", "next") and not args.name:
        raise UsageError(
            "No schedule is named.",
            expected=f"kfm schedule {args.action} NAME",
            remedy="`kfm schedule list` shows them.",
        )
    with open_world(workspace) as world:
        tables = Tables(workspace, world.toolchain_digest)
        chosen = [tables.named(args.name)] if args.name else tables()
        if args.action == "list":
            return _list(world, tables, chosen, args)
        if args.action == "next":
            return _next(world, chosen, args)
        return _ACTIONS[args.action](world, chosen[0], args)


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


def _done(args: Namespace, status: str, line: str, **more: object) -> int:
    if args.json:
        emit({"status": status, "name": args.name, **more})
    else:
        print(line)
    return 0


# ---- looking -------------------------------------------------------------------------------------
def _list(world: World, tables: Tables, chosen: list[Timetable], args: Namespace) -> int:
    now = world.clock.now()
    rows = world.store.read(lambda tx: [_row(tx, t, now) for t in chosen])
    if args.json:
        emit({"schedules": rows, "problems": tables.problems})
        return 1 if tables.problems else 0
    print(f"{len(rows)} schedules\n")
    for row in rows:
        when = "paused" if row.paused else f"next {row.next_at}" if row.next_at else "nothing due"
        state = "PROPOSED" if row.paused else "FAILED" if row.failing else "PASS"
        cut = f" by {row.windows}" if row.windows else ""
        show(f"  {sign(state)} {row.name:<26} {row.cadence + cut:<18} {row.time_zone:<16} {when}")
        if row.paused:
            show(f"      {row.paused}")
            print(f"      {again(args, 'schedule resume ' + row.name)}")
        for failed in row.failing[:5]:
            show(
                f"      {failed.outcome} {failed.window or 'whole'} {failed.partition}"
                f" {failed.fails} times: {failed.error}"
            )
        if row.failing:
            print(f"      {again(args, 'jobs show ' + row.failing[0].job_id)}")
    for problem in tables.problems:
        show(f"  {sign('FAILED')} {problem.file}: {problem.what}")
        print(f"      {problem.remedy}")
    return 1 if tables.problems else 0


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


def _next(world: World, chosen: list[Timetable], args: Namespace) -> int:
    now = world.clock.now()
    rows = world.store.read(
        lambda tx: sorted(
            (at, t.name, win)
            for t in chosen
            if not (t.paused or paused(tx, t))
            for at, win in _moments(tx, t, now, max(1, args.count))
        )
    )
    if args.json:
        emit(
            {
                "next": [
                    {"name": name, "at": rfc3339(at.replace(microsecond=0)), "window": win}
                    for at, name, win in rows
                ]
            }
        )
        return 0
    zones = {t.name: t.zone for t in chosen}
    for at, name, win in rows:
        show(
            f"  {rfc3339(at.replace(microsecond=0))} "
            f" {at.astimezone(zones[name]).strftime('%a %d %b %H:%M %Z'):<22} {name:<26} {win}"
        )
    return 0


# ---- doing ---------------------------------------------------------------------------------------
def _run(world: World, table: Timetable, args: Namespace) -> int:
    """Put it now, unless it is switched off. A window that nobody visited yet counts as visited by
    this.
    """
    now = world.clock.now()
    slot, ends_at = "", 0
    if args.window:
        slot = parse_window(args.window, now)
        ends_at = to_ms(dt.datetime.fromisoformat(slot.partition("/")[2]))
    elif table.window_s is not None:
        ended = list(
            takewhile(
                lambda w: w.until <= now,
                table.windows(now - dt.timedelta(seconds=2 * table.window_s + 7200)),
            )
        )
        slot, ends_at = (ended[-1].text, to_ms(ended[-1].until)) if ended else ("", 0)

    def put(tx: Tx) -> list[str]:
        check_switch(tx, table.dataset, table.job_type)
        tx.schedule.alone(table.subject)
        found = []
        for partition in table.partitions:
            new = VisitRow(subject=table.subject, partition=partition, slot=slot, ends_at=ends_at)
            row = tx.schedule.get(table.subject, slot, partition) or new
            found.append(asked_for(tx, table, visited(table, row, now), f"manual:{login()}").job_id)
        return found

    jobs = world.store.transaction(put)
    return _done(
        args,
        "put",
        f"Put {table.name}{' ' + slot if slot else ''}: {', '.join(jobs)}",
        window=slot,
        jobs=jobs,
    )


def _pause(world: World, table: Timetable, args: Namespace) -> int:
    reason = args.reason or "paused by hand"
    world.store.transaction(
        lambda tx: pause(
            tx, table, f"{reason} ({login()}, {rfc3339(world.clock.now().replace(microsecond=0))})"
        )
    )
    return _done(
        args,
        "paused",
        f"{table.name} puts nothing until `{again(args, 'schedule resume ' + table.name)}`",
        reason=reason,
    )


def _resume(world: World, table: Timetable, args: Namespace) -> int:
    if table.paused:
        raise UsageError(
            f"{table.name} is paused by its file: {table.paused}",
            expected="no `paused` there",
            remedy="Take the line out of the file.",
        )
    world.store.transaction(lambda tx: pause(tx, table, None))
    return _done(
        args,
        "resumed",
        f"{table.name} goes on; what was missed is made up for by its policy ({table.catch_up})",
    )


def _event(world: World, table: Timetable, args: Namespace) -> int:
    if not args.digest or not table.dataset:
        raise UsageError(
            "An event has a digest and a dataset.",
            expected="kfm schedule event DATASET --digest DIGEST",
            remedy="Name both.",
        )
    new = world.store.transaction(
        lambda tx: on_event(tx, table, args.digest, world.clock.now(), login())
    )
    return _done(
        args,
        "heard" if new else "heard_before",
        f"{table.dataset}: {'put' if new else 'heard before, nothing is put'}",
    )


_ACTIONS = {"run": _run, "pause": _pause, "resume": _resume, "event": _event}
