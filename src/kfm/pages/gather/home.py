"""What home tells: freshness by day, what needs somebody, how the machine is doing."""

import shutil

from kfm.model import INGEST, KfmError, RunDay, ids, rfc3339
from kfm.pages import addresses
from kfm.pages.gather.asks import Asks
from kfm.pages.gather.standing import Told, standing_of
from kfm.pages.home import Day, HeatRow, HomePage, Need, Works
from kfm.pages.parts import State
from kfm.pages.words import days_of
from kfm.reading.status import DatasetStatus, dataset_status
from kfm.upkeep.attention import Attention, attention
from kfm.upkeep.pools import pool_rows

__all__ = ["home_page", "waiting_of"]

DAYS = 21
MOST = 60  # datasets on the page; the list has all
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
    since = ids.first_run_id(int(1000 * (now.timestamp() - (DAYS + 1) * 86_400)))
    ran: list[RunDay] = world.store.read(lambda tx: tx.runs.days(since))
    by_day: dict[tuple[str, str], list[RunDay]] = {}
    for one in ran:
        by_day.setdefault((one.dataset_id, one.day), []).append(one)
    found = [_standing(asks, name) for name in asks.workspace.registered()]
    rows = [_row(asks, status, told, days, by_day) for status, told in found]
    rows.sort(key=lambda row: (_WORST.index(row.state), row.dataset_id))
    shown = [one for one in ran if one.day in days]
    return HomePage(
        address="/",
        title="Home",
        command="kfm status",
        now=rfc3339(now),
        days=tuple(days),
        rows=tuple(rows[:MOST]),
        hidden=max(0, len(rows) - MOST),
        needs=tuple(_need(asks, a) for a in attention(world, [status for status, _ in found])),
        works=_works(asks),
        checks=sum(one.runs for one in shown),
        unchanged=sum(one.runs for one in shown if one.state == "NOOP"),
    )


def _standing(asks: Asks, name: str) -> tuple[DatasetStatus, Told]:
    try:
        status = dataset_status(asks.world, name)
    except KfmError as error:
        status = DatasetStatus(
            dataset_id=name, state="failed", reason=error.happened, next="kfm doctor"
        )
    entry = asks.workspace.readable(name)
    return status, standing_of(asks.world, status, entry, operator=True)


def _row(
    asks: Asks,
    status: DatasetStatus,
    told: Told,
    days: list[str],
    by_day: dict[tuple[str, str], list[RunDay]],
) -> HeatRow:
    name = status.dataset_id
    entry = asks.workspace.readable(name)
    cells = [_day(day, by_day.get((name, day), [])) for day in days]
    if told.state in ("late", "run") and cells[-1].state in ("none", "noop", "new"):
        cells[-1] = Day(day=days[-1], state=told.state, run_id=cells[-1].run_id)
    return HeatRow(
        dataset_id=name,
        title=entry.title if entry is not None else name,
        href=_href(asks, name),
        days=tuple(cells),
        state=told.state,
        word=told.word,
        note=told.note,
    )


def _href(asks: Asks, dataset_id: str) -> str:
    """The page of a dataset; where nothing of it is published, why not."""
    published = asks.seen(dataset_id) is not None
    return addresses.dataset(dataset_id) if published else addresses.decision(dataset_id)


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


def _need(asks: Asks, found: Attention) -> Need:
    kind, word = _NEEDS[found.kind]
    entry = (
        asks.workspace.readable(found.what) if found.what in asks.workspace.registered() else None
    )
    proposal = found.next.removeprefix("kfm review ")
    href = (
        f"/proposals/{proposal}"
        if proposal.isdigit()
        else _href(asks, found.what)
        if entry is not None
        else "/queue"
    )
    return Need(
        state=kind,
        word=word,
        title=entry.title if entry is not None else found.what.replace(INGEST, "Update of"),
        why=found.why,
        next=found.next,
        href=href,
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
    from kfm.cli.answer import Call
    from kfm.cli.schedule import schedules

    try:
        rows = schedules(Call(asks.workspace.path, True, False), None).schedules
    except KfmError:
        return "", None
    due = min(((r.next_at, r.name) for r in rows if r.next_at and not r.paused), default=None)
    return ("", None) if due is None else (due[1], due[0])


def waiting_of(asks: Asks) -> int:
    """How many proposals wait for a person."""
    return len(asks.world.store.read(lambda tx: tx.proposals.waiting()))
