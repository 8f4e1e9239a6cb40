"""What home tells: freshness by day, what needs somebody, how the machine is doing."""

import datetime as dt
import shutil
from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from kfm.access.denied import reason_in_words
from kfm.access.memory import note, recall, recall_store
from kfm.access.status import DatasetStatus, Statuses
from kfm.model import INGEST, DatasetEntry, KfmError, RunDay, ids, rfc3339
from kfm.pages.gather.asks import Asks
from kfm.pages.gather.quarantine import to_decide
from kfm.pages.gather.standing import Told, told_at
from kfm.pages.home import Day, HeatRow, HomePage, Need, Works
from kfm.pages.parts import State
from kfm.pages.words import days_of
from kfm.quarantine.desk import Item
from kfm.store.base import Tx
from kfm.upkeep.attention import Attention, attention, tried_again
from kfm.upkeep.pools import pool_rows
from kfm.world.world import World

if TYPE_CHECKING:
    from kfm.jobs.schedule.cadence import Timetable

__all__ = ["home_page", "waiting_of"]

DAYS = 21
MOST = 60  # datasets on the page, and of what needs somebody; the list has all
# what happened on a day, the worst first
_ORDER: tuple[tuple[str, State], ...] = (
    ("FAILED", "failed"),
    ("REJECTED", "denied"),
    ("PROPOSED", "wait"),
    ("CLAIMED", "run"),
    ("COMMITTED", "new"),
    ("STAGED", "new"),
    ("NOOP", "noop"),
    ("SUPERSEDED", "noop"),
)
_WORST: tuple[State, ...] = ("failed", "denied", "wait", "late", "run", "none", "new", "noop")
_NEEDS: dict[str, tuple[State, str]] = {
    "stuck": ("failed", "Stuck"),
    "dead": ("failed", "Put aside"),
    "failed": ("failed", "Failed"),
    "failing": ("late", "Failing, tried again"),
    "denied": ("denied", "Denied"),
    "waiting": ("wait", "Waiting"),
    "stale": ("late", "Late"),
    "off": ("denied", "Switched off"),
}


def home_page(asks: Asks) -> HomePage:
    world = asks.world
    now = world.clock.now()
    days = [day.isoformat() for day in days_of(now, DAYS)]
    names = asks.workspace.registered()
    statuses = Statuses(world, names)
    found = [_standing(asks, statuses, name, now) for name in names]
    found.sort(key=lambda each: (_WORST.index(each.told.state), each.status.dataset_id))
    heat = _heat(world, days, tuple(each.status.dataset_id for each in found[:MOST]))
    asides = to_decide(asks)
    captures = {item.dataset_id: item for item in asides if item.kind == "capture"}
    standing = {each.status.dataset_id: each.status for each in found}
    attended = _needs(world, list(standing.values()))
    rows = [item for item in asides if item.kind == "rows"]
    needs = [
        *(_need(asks, need, standing, captures) for need in attended[:MOST]),
        *(_aside(asks, item) for item in rows[:MOST]),
    ]
    return HomePage(
        address="/",
        title="Home",
        command="kfm status",
        now=rfc3339(now),
        days=tuple(days),
        rows=tuple(_row(asks, each, days, heat) for each in found[:MOST]),
        hidden=max(0, len(found) - MOST),
        states=dict(Counter(each.told.state for each in found)),
        needs=tuple(needs[:MOST]),
        more_needs=max(0, len(attended) + len(rows) - MOST),
        works=_works(asks),
        checks=heat.checks,
        unchanged=heat.unchanged,
    )


def _needs(world: World, standing: list[DatasetStatus]) -> list[Attention]:
    """What needs a person; that a job tries again what failed is told with it."""
    needs = attention(world, standing)
    tried = tried_again(needs)
    told = []
    for need in needs:
        if need in tried.values():
            continue
        if need.kind == "failed" and need.what in tried:
            when = tried[need.what].why.partition(": ")[0]
            need = msgspec.structs.replace(need, why=f"{need.why.rstrip('.')}. {when}.")
        told.append(need)
    return told


class _Heat(NamedTuple):
    """What happened on the days that are shown: to each of some datasets, and to all of them."""

    by_day: dict[tuple[str, str], list[RunDay]]
    checks: int
    unchanged: int


def _heat(world: World, days: list[str], names: tuple[str, ...]) -> _Heat:
    """Whatever the hour: from the beginning of the first day on. It is read anew after every commit,
    so day by day only of what is on the page.
    """
    first = dt.datetime.fromisoformat(days[0]).replace(tzinfo=dt.UTC)
    since = ids.first_run_id(int(1000 * (first.timestamp() - 86_400)))

    def read(tx: Tx) -> _Heat:
        together = [one for one in tx.runs.days(since) if one.day in days]
        by_day = dict[tuple[str, str], list[RunDay]]()
        for name in names:
            for one in tx.runs.days(since, name):
                by_day.setdefault((name, one.day), []).append(one)
        unchanged = sum(one.runs for one in together if one.state == "NOOP")
        return _Heat(by_day, sum(one.runs for one in together), unchanged)

    return recall_store(world, ("heat", *days, names), lambda: world.store.read(read))


class _Standing(NamedTuple):
    status: DatasetStatus
    entry: DatasetEntry | None
    told: Told


def _standing(asks: Asks, statuses: Statuses, name: str, now: dt.datetime) -> _Standing:
    entry, checked = asks.workspace.readable(name), None
    try:
        status, checked = statuses.checked(name)
    except KfmError as error:
        status = DatasetStatus(
            dataset_id=name, state="failed", reason=error.happened, next="kfm doctor"
        )
    return _Standing(status, entry, told_at(now, status, entry, checked, operator=True))


def _row(asks: Asks, each: _Standing, days: list[str], heat: _Heat) -> HeatRow:
    name, entry, told = each.status.dataset_id, each.entry, each.told
    cells = [_day(day, heat.by_day.get((name, day), [])) for day in days]
    if told.state in ("late", "run") and cells[-1].state in ("none", "noop", "new"):
        cells[-1] = Day(day=days[-1], state=told.state, run_id=cells[-1].run_id)
    return HeatRow(
        dataset_id=name,
        title=entry.title if entry is not None else name,
        href=asks.page_of(name),
        days=tuple(cells),
        state=told.state,
        word=told.word,
        note=reason_in_words(asks.world, each.status) if told.state == "denied" else told.note,
    )


def _day(day: str, ran: list[RunDay]) -> Day:
    """The worst that happened, and the newest run that shows it."""
    for name, kind in _ORDER:
        same = [one for one in ran if one.state == name]
        if same:
            return Day(
                day=day,
                state=kind,
                runs=sum(one.runs for one in same),
                run_id=max(one.run_id for one in same),
            )
    return Day(day=day, state="none")


def _need(
    asks: Asks,
    found: Attention,
    standing: Mapping[str, DatasetStatus],
    captures: Mapping[str, Item],
) -> Need:
    kind, word = _NEEDS[found.kind]
    status = standing.get(found.what)
    entry = asks.workspace.readable(found.what) if status is not None else None
    proposal = found.next.removeprefix("kfm review ")
    href = (
        f"/proposals/{proposal}"
        if proposal.isdigit()
        else f"/quarantine/{captures[found.what].run_id}"
        if found.kind == "failed" and found.what in captures
        else asks.page_of(found.what)
        if entry is not None
        else "/queue"
    )
    return Need(
        state=kind,
        word=word,
        title=entry.title if entry is not None else found.what.replace(INGEST, "Update of"),
        why=found.why
        if found.kind != "denied" or status is None
        else reason_in_words(asks.world, status),
        next=found.next,
        href=href,
    )


def _aside(asks: Asks, item: Item) -> Need:
    """Rows that are in no version until somebody decides. A whole capture is told as what failed."""
    entry = asks.workspace.readable(item.dataset_id)
    return Need(
        state="wait",
        word="Set aside",
        title=entry.title if entry is not None else item.dataset_id,
        why=item.waits[:1].upper() + item.waits[1:],
        next=item.next,
        href=f"/quarantine/{item.run_id}",
    )


def _works(asks: Asks) -> Works:
    store = asks.world.store
    pools, held = store.read(lambda tx: (pool_rows(tx, store.now_ms()), tx.leases.held()))
    workers = [lease for lease in held if lease.name.startswith("worker/")]
    waits = max((pool.wait_ms for pool in pools), default=0)
    name, at = _next_due(asks)
    return Works(
        running=sum(pool.running for pool in pools),
        queued=sum(pool.queued for pool in pools),
        oldest_s=waits / 1000 if waits else None,
        workers=sum(not lease.lapsed for lease in workers),
        lost=sum(bool(lease.lapsed) for lease in workers),
        disk_free=shutil.disk_usage(asks.workspace.data).free,
        next_at=at,
        next_name=name,
    )


def _next_due(asks: Asks) -> tuple[str, str | None]:
    from kfm.cli.schedule import first_due

    world, now = asks.world, asks.world.clock.now()
    try:
        tables = recall(world, "timetables", lambda: _timetables(asks))
        kept = recall_store(world, "first due", lambda: _Due(tables))
        if kept.tables is not tables:  # they are others, and the store is the same
            kept = _Due(tables)
        due = world.store.read(lambda tx: first_due(tx, kept.tables, now, kept.known))
    except KfmError:
        return "", None
    return ("", None) if due is None else (due[1], rfc3339(due[0].replace(microsecond=0)))


class _Due:
    """When which timetable is due next."""

    def __init__(self, tables: "list[Timetable]") -> None:
        self.tables, self.known = tables, dict[str, dt.datetime | None]()


def _timetables(asks: Asks) -> "list[Timetable]":
    from kfm.cli.scheduler import Tables, timetable_files

    for path in timetable_files(asks.workspace):
        note(path)
    return Tables(asks.workspace, asks.world.toolchain_digest)()


def waiting_of(asks: Asks) -> int:
    """How many proposals wait for a person."""
    return len(asks.world.store.read(lambda tx: tx.proposals.waiting()))
