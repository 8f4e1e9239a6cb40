"""Events become durable together with the jobs they ask for, all that wait in one commit."""

import datetime as dt
from collections.abc import Callable, Sequence

import msgspec

from kfm.jobs.schedule.cadence import Timetable
from kfm.jobs.schedule.scheduler import ask_now
from kfm.model import EventRow, JobRow, Trace
from kfm.store.base import Store, Tx
from kfm.store.events import Claim
from kfm.webhook.receive import Heard, rfc3339_ns

__all__ = ["Also", "Keeper", "Kept", "Started", "restart"]

EVENTS_KEPT_MS = 90 * 86_400_000
_TIDY_MS = 60_000
Also = Callable[[Tx, Sequence[Heard]], None]


class Kept(msgspec.Struct, frozen=True):
    """What became of a delivery: the event it told first, or nothing because there are too many."""

    event_id: str  # empty: its source has told enough for now
    new: bool


Started = list[tuple[str, str, int]]  # dataset, job id, generation


class Keeper:
    """Keeps what is heard. `also` is called in the same transaction with what is new: whoever else
    has to be told of events puts it there.
    """

    def __init__(self, store: Store, also: Also = lambda tx, heard: None) -> None:
        self._store, self._also = store, also
        self._minute: dict[str, tuple[int, int]] = {}  # source -> minute, new events in it
        self._tidied = 0

    def keep(self, batch: Sequence[Heard]) -> list[Kept]:
        """One transaction for all; nothing of it is answered before it is durable."""
        now_ms = self._store.now_ms()
        tidy = now_ms - self._tidied > _TIDY_MS
        found = self._store.transaction(lambda tx: self._keep(tx, batch, now_ms, tidy))
        self._tidied = now_ms if tidy else self._tidied
        minute = now_ms // 60_000
        for event in {kept.event_id: h for h, kept in zip(batch, found) if kept.new}.values():
            at, many = self._minute.get(event.source.source_id, (minute, 0))
            self._minute[event.source.source_id] = (minute, many + 1 if at == minute else 1)
        return found

    def _keep(self, tx: Tx, batch: Sequence[Heard], now_ms: int, tidy: bool) -> list[Kept]:
        first: dict[tuple[str, str], Heard] = {}
        for heard in batch:
            first.setdefault((heard.source.source_id, heard.replay_id), heard)
        events = tx.events.known([*first])
        new = self._within_limits({n: h for n, h in first.items() if n not in events}, now_ms)
        won = (
            tx.events.claim([Claim(*n, h.event_id, h.kept_s * 1000) for n, h in new.items()])
            if new
            else set[str]()
        )
        lost = [name for name, heard in new.items() if heard.event_id not in won]
        if lost:  # another receiver heard it in the same moment
            events |= tx.events.known(lost)
        mine = [heard for heard in new.values() if heard.event_id in won]
        if mine:
            put_events(tx, mine, now_ms)
            self._also(tx, mine)
        if tidy:
            tx.events.forget(now_ms - EVENTS_KEPT_MS)
        events |= {name: heard.event_id for name, heard in new.items() if heard.event_id in won}
        names = [(heard.source.source_id, heard.replay_id) for heard in batch]
        return [Kept(events.get(n, ""), events.get(n, "") in won) for n in names]

    def _within_limits(
        self, new: dict[tuple[str, str], Heard], now_ms: int
    ) -> dict[tuple[str, str], Heard]:
        """Those that their sources may still tell in this minute."""
        left: dict[str, int] = {}
        found = {}
        for name, heard in new.items():
            source_id = heard.source.source_id
            if source_id not in left:
                minute, many = self._minute.get(source_id, (0, 0))
                spent = many if minute == now_ms // 60_000 else 0
                left[source_id] = heard.source.told.per_minute - spent
            if left[source_id] > 0:
                left[source_id] -= 1
                found[name] = heard
        return found


def put_events(tx: Tx, heard: Sequence[Heard], now_ms: int) -> None:
    """Rows of new events, and the jobs they ask for: a dataset is asked for once, however many of
    them it is for.
    """
    causes: dict[str, list[Heard]] = {}
    tables: dict[str, Timetable] = {}
    for one in heard:
        for table in one.source.tables if not one.note else ():
            causes.setdefault(table.dataset, []).append(one)
            tables[table.dataset] = table
    put: dict[str, list[JobRow]] = {}
    for dataset_id in sorted(causes):
        said = causes[dataset_id]
        put[dataset_id] = _ask(tx, tables[dataset_id], said[0], now_ms, len(said))
    tx.events.put([_row(one, put) for one in heard])


def _ask(tx: Tx, table: Timetable, cause: Heard, now_ms: int, times: int) -> list[JobRow]:
    trigger = f"event:{cause.source.source_id}"
    now = dt.datetime.fromtimestamp(now_ms / 1000, dt.UTC)
    tx.schedule.alone(table.subject)
    told = cause.trace
    trace = Trace(correlation_id=told.correlation_id, traceparent=told.traceparent)
    return ask_now(tx, table, now, trigger, times=times, trace=trace)


def _row(heard: Heard, put: dict[str, list[JobRow]]) -> EventRow:
    started: Started = [
        (job.dataset_id, job.job_id, job.generation)
        for table in (heard.source.tables if not heard.note else ())
        for job in put[table.dataset]
    ]
    waits = "" if started or heard.note else "its schedule is paused; it is asked for afterwards"
    return EventRow(
        event_id=heard.event_id,
        source_id=heard.source.source_id,
        received_at=rfc3339_ns(heard.received_ns),
        received_ms=heard.received_ns // 1_000_000,
        key_id=heard.key,
        body_digest=heard.body_digest,
        event=heard.event.decode(),
        started=msgspec.json.encode(started).decode(),
        note=heard.note or waits,
    )


def restart(
    tx: Tx, row: EventRow, tables: Sequence[Timetable], by: str, trace: Trace
) -> list[JobRow]:
    """Ask once more for what an event asked for, because a person wants it."""
    found: list[JobRow] = []
    now = dt.datetime.now(dt.UTC)
    for table in sorted(tables, key=lambda t: t.dataset):
        tx.schedule.alone(table.subject)
        found += ask_now(tx, table, now, f"manual:{by}", trace=trace)
    started: Started = [(j.dataset_id, j.job_id, j.generation) for j in found]
    tx.events.restarted(row.event_id, msgspec.json.encode(started).decode())
    return found
