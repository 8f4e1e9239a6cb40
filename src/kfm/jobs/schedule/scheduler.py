"""The scheduler: one leads, the others wait; each tick puts what is due and remembers it in the
same transaction.
"""

import datetime as dt
import select
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import msgspec

from kfm.jobs.schedule.cadence import Timetable, to_ms
from kfm.jobs.schedule.due import BATCH, FAR, Decision, decide, settled, visited
from kfm.model import Fenced, JobRow, Request, StoreUnavailable, Trace, VisitRow
from kfm.store.base import Bell, Token, Tx
from kfm.world.world import World

__all__ = ["LEASE", "Scheduler", "Ticked", "ask_now", "asked_for", "on_event", "pause", "paused"]

LEASE = "scheduler"
LONGEST_S = 60.0  # the longest rest: files may have changed, jobs ended, the clock jumped
SHORTEST_S = 1.0  # between two ticks, however often the bell rings
EVENTS_KEPT_MS = 30 * 86_400_000
_NO_TRACE = Trace()


@dataclass(frozen=True)
class Ticked:
    """What one tick did."""

    leads: bool
    puts: int = 0
    skips: int = 0
    next_at: dt.datetime | None = None
    more: bool = False


class Scheduler:
    """Puts jobs by timetables. Any number may run: the holder of the lease works, and every put is
    fenced by its token.
    """

    def __init__(
        self,
        world: World,
        tables: Callable[[], Sequence[Timetable]],
        *,
        # until when its host wants to be left alone
        held: Callable[[str], dt.datetime | None] = lambda dataset: None,
        say: Callable[..., None] = lambda event, **fields: None,
        # called about once a minute by who leads; does not wait
        watch: Callable[[], None] = lambda: None,
    ) -> None:
        self._world, self._tables, self._held, self._say = world, tables, held, say
        self._watch, self._watched = watch, float("-inf")
        self._token: Token | None = None
        self.emitter = f"scheduler@{world.holder}"

    @property
    def leads(self) -> bool:
        return self._token is not None

    # ---- leading ---------------------------------------------------------------------------------
    def _lead(self) -> bool:
        """Keep the lease, or take it when it is free."""
        world = self._world
        try:
            if self._token is not None:
                world.store.transaction(self._renew)
                return True
        except Fenced:
            self._lost()
        self._token = world.store.transaction(
            lambda tx: tx.leases.take(LEASE, world.holder, world.lease_seconds)
        )
        if self._token is not None:
            world.hold(self._token)
            self._say("scheduler.leads", emitter=self.emitter)
        return self._token is not None

    def _renew(self, tx: Tx) -> None:
        tx.leases.renew([self._check(tx)], self._world.lease_seconds)

    def _check(self, tx: Tx) -> Token:
        """Our lease, which is the newest of its name."""
        if self._token is None:
            raise Fenced(
                "This scheduler does not lead.",
                expected="its lease",
                remedy="Nothing was written; it looks again.",
            )
        tx.leases.check(self._token)
        return self._token

    def _lost(self) -> None:
        if self._token is not None:
            self._world.let_go(self._token)
            self._token = None
            self._say("scheduler.fenced", emitter=self.emitter)

    def release(self) -> None:
        """Let another one lead at once."""
        token, self._token = self._token, None
        if token is not None:
            self._world.let_go(token)
            self._world.store.transaction(lambda tx: tx.leases.release(token))

    # ---- ticking ---------------------------------------------------------------------------------
    def tick(self, now: dt.datetime | None = None) -> Ticked:
        """Put everything that is due; nothing when another one leads."""
        now = now or self._world.clock.now()
        if not self._lead():
            return Ticked(leads=False)
        self._tell_again()
        puts, skips, more, moments = 0, 0, False, list[dt.datetime]()
        tables = self._tables()
        idle = self._world.store.read(
            lambda tx: {t.subject: self._look(tx, t, now) for t in tables}
        )
        for table in tables:
            found = idle[table.subject]
            if found is None:  # there is something to write
                try:
                    found = self._world.store.transaction(lambda tx: self._work(tx, table, now))
                except Fenced:
                    self._lost()
                    return Ticked(False, puts, skips)
                left_out = sum(row.n for row in found.skips)
                puts, skips, more = puts + len(found.puts), skips + left_out, more or found.more
                if found.puts or found.skips:
                    self._say(
                        "schedule.put", schedule=table.name, jobs=len(found.puts), skipped=left_out
                    )
            moments += [found.next_at] if found.next_at is not None else []
        return Ticked(True, puts, skips, min(moments, default=None), more)

    def _tell_again(self) -> None:
        """Put a job for every dataset of which a receiver outside is still to be told."""
        store = self._world.store
        if not self._world.receivers.names():
            return
        for dataset_id in store.read(lambda tx: tx.deliveries.due_datasets()):
            request = Request(
                job_type="notify", dataset_id=dataset_id, reason=f"cron:{self.emitter}"
            )
            store.transaction(lambda tx: tx.jobs.submit(request))

    def _look(self, tx: Tx, table: Timetable, now: dt.datetime) -> Decision | None:
        """The decision when nothing has to be written, None otherwise."""
        decision, floor = self._decide(tx, table, now)
        if (
            decision.puts
            or decision.skips
            or decision.floor != floor
            or tx.schedule.ended(table.subject, 1)
        ):
            return None
        return decision

    def _decide(self, tx: Tx, table: Timetable, now: dt.datetime) -> tuple[Decision, int]:
        floor = _floor(tx, table, now)
        if table.paused or paused(tx, table):
            return Decision(floor=floor), floor
        held = self._held(table.dataset) if table.dataset else None
        if held is not None and held > now:
            return Decision(floor=floor, next_at=held), floor
        rows = tx.schedule.due(table.subject, to_ms(now), BATCH)
        rows += tx.schedule.since(table.subject, floor) if table.window_s else _wholes(tx, table)
        return (
            decide(table, now, floor, rows, tx.schedule.next_due(table.subject, to_ms(now))),
            floor,
        )

    def _work(self, tx: Tx, table: Timetable, now: dt.datetime) -> Decision:
        """One transaction: what has ended, what is due, its jobs and its rows."""
        tx.schedule.alone(table.subject)
        self._check(tx)
        for row, outcome, error in tx.schedule.ended(table.subject, BATCH):
            tx.schedule.put(settled(row, outcome, error, now))
        decision, floor = self._decide(tx, table, now)
        for row in decision.puts:
            asked_for(tx, table, row, f"cron:{self.emitter}")
        for row in decision.skips:
            tx.schedule.put(row)
        if decision.floor != floor:
            tx.schedule.set_checkpoint(
                f"floor/{table.subject}", f"{decision.floor} {_shape(table)}"
            )
        return decision

    # ---- resting ---------------------------------------------------------------------------------
    def run(
        self, until: dt.datetime | None = None, stopping: Callable[[], bool] = lambda: False
    ) -> None:
        """Tick, then rest until the next moment or the bell, for ever or until `until`."""
        world, bell = self._world, self._world.store.bell()
        try:
            while not stopping():
                try:
                    done = self.tick()
                except StoreUnavailable as error:
                    self._say("scheduler.waits", why=error.happened)
                    done = Ticked(leads=False)
                world.latest.follow(world)  # people edit the registry while it runs
                if done.leads and time.monotonic() - self._watched >= LONGEST_S:
                    self._watched = time.monotonic()
                    self._watch()
                now = world.clock.now()
                if until is not None and now >= until:
                    return
                if not done.more:
                    self._rest(bell, done, now, until)
        finally:
            bell.close()
            self.release()

    def _rest(self, bell: Bell, done: Ticked, now: dt.datetime, until: dt.datetime | None) -> None:
        longest = LONGEST_S if done.leads else min(LONGEST_S, self._world.lease_seconds / 3)
        moments = [m for m in (done.next_at, until) if m is not None]
        left = min([longest, *((m - now).total_seconds() for m in moments)])
        select.select([], [], [], min(SHORTEST_S, max(left, 0.01)))
        if left > SHORTEST_S:
            bell.drain()
            select.select([bell], [], [], left - SHORTEST_S)


def _wholes(tx: Tx, table: Timetable) -> list[VisitRow]:
    return [
        row
        for partition in table.partitions
        if (row := tx.schedule.get(table.subject, "", partition)) is not None
    ]


def _shape(table: Timetable) -> str:
    return f"{to_ms(table.start)}/{table.window_s}/{table.zone}/{','.join(table.partitions)}"


def _floor(tx: Tx, table: Timetable, now: dt.datetime) -> int:
    """Up to where every window has its row; windows that are cut anew, or lie ahead by a wrong
    clock, are looked at from their start.
    """
    value, _, shape = (tx.schedule.checkpoint(f"floor/{table.subject}") or "").partition(" ")
    return (
        int(value)
        if value and shape == _shape(table) and int(value) <= to_ms(now + FAR)
        else to_ms(table.start)
    )


def asked_for(
    tx: Tx, table: Timetable, row: VisitRow, trigger: str, trace: Trace = _NO_TRACE
) -> JobRow:
    """Put the job of a visit and write the row, in the caller's transaction."""
    about = (
        f"{table.name}, revisit {row.n} of {len(table.revisit_s)}"
        if row.ends_at and row.n and row.puts > 1
        else table.name
    )
    request = Request(
        job_type=table.job_type,
        dataset_id=table.dataset,
        partition=row.partition,
        win=row.slot if row.ends_at else "",
        parameters=table.parameters,
        pool=table.pool,
        priority=table.priority,
        reason=f"{trigger} {about}",
        trace=trace,
    )
    job = tx.jobs.submit(request)
    tx.schedule.put(msgspec.structs.replace(row, job_id=job.job_id, generation=job.generation))
    return job


def on_event(tx: Tx, table: Timetable, digest: str, now: dt.datetime, emitter: str) -> bool:
    """Upstream said that something changed. False: this event was heard before, and nothing is put.

    While the schedule is paused the event is remembered, and the dataset is asked for when it goes
    on.
    """
    slot = f"event:{digest}"
    tx.schedule.alone(table.subject)
    tx.schedule.forget_events(table.subject, to_ms(now) - EVENTS_KEPT_MS)
    if tx.schedule.get(table.subject, slot) is not None:
        return False
    tx.schedule.put(
        VisitRow(
            subject=table.subject,
            partition="",
            slot=slot,
            puts=1,
            put_ms=to_ms(now),
            outcome="done",
        )
    )
    ask_now(tx, table, now, f"event:{emitter}")
    return True


def ask_now(
    tx: Tx,
    table: Timetable,
    now: dt.datetime,
    trigger: str,
    *,
    times: int = 1,
    trace: Trace = _NO_TRACE,
) -> list[JobRow]:
    """Ask for the whole dataset, for so many causes at once; the jobs that were put. None: its
    schedule is paused, and it is asked for when that goes on.
    """
    waits = bool(table.paused or paused(tx, table))
    found = []
    for partition in table.partitions:
        row = tx.schedule.get(table.subject, "", partition) or VisitRow(
            subject=table.subject, partition=partition, slot="", outcome="done"
        )
        if waits:
            tx.schedule.put(msgspec.structs.replace(row, due_at=to_ms(now)))
        else:
            row = msgspec.structs.replace(row, puts=row.puts + times - 1)
            found.append(asked_for(tx, table, visited(table, row, now), trigger, trace))
    return found


def paused(tx: Tx, table: Timetable) -> str:
    """Why a person stopped this schedule by command; empty when nobody did."""
    return tx.schedule.checkpoint(f"paused/{table.subject}") or ""


def pause(tx: Tx, table: Timetable, reason: str | None) -> None:
    """Stop a schedule; None lets it go on, and what was missed is made up for by its policy."""
    tx.schedule.set_checkpoint(f"paused/{table.subject}", reason)
    tx.jobs.wake()
