"""A run that is under way, told as it happens: server-sent events, `/runs/RUN/events`.

All who follow a run share one look at the store, twice a second, which ends when nobody follows it
any more. A stream is short: after a while it ends, the browser asks again where it was
(`Last-Event-ID`), and the request is decided anew. What a record holds is not told, only that it is
there.
"""

import asyncio
import threading
from collections.abc import AsyncIterator
from typing import Any, NamedTuple
from weakref import WeakSet

import msgspec
from litestar import Response
from litestar.concurrency import sync_to_thread
from litestar.handlers import HTTPRouteHandler
from litestar.params import FromPath
from litestar.response import Stream

from kfm.console.act import OPERATES
from kfm.evidence.run_files import run_journal
from kfm.model import KfmError, LedgerRow, WalRecord
from kfm.pages.query import query_of
from kfm.reader.door import Asking, BadQuestion, Hidden, whole_number
from kfm.reader.open_workspace import Kept
from kfm.reader.route import Problem, problem, reads
from kfm.reader.visit import Visit
from kfm.store.base import Tx
from kfm.world.world import World

__all__ = ["Live", "under_way"]

EVERY_S = 0.5  # a look at the store
HEARTBEAT_S = 15.0
LONGEST_S = 60.0  # then the door is passed anew
MOST = 64  # who listen at once
_AT_ONCE = 500  # records that are told in one piece
_KIND = "text/event-stream"


class Told(msgspec.Struct, frozen=True, kw_only=True):
    """A record of the journal: that it is there."""

    seq: int
    at: str
    phase: str
    step_id: str
    status: str


class State(msgspec.Struct, frozen=True, kw_only=True):
    """How the run stands."""

    state: str


class Look(NamedTuple):
    """What the store says of a run."""

    state: str
    is_open: bool
    records: list[WalRecord]


def under_way(row: LedgerRow) -> bool:
    """Whether something more may become of a run; a part waits for what puts it together."""
    return row.ended_at is None and row.state != "STAGED"


def _looked(world: World, run_id: str, after: int) -> Look | None:
    """How a run stands, and its records after one; of what has ended they may be archived."""
    found: tuple[LedgerRow, list[WalRecord]] | None = world.store.read(
        lambda tx: _of(tx, run_id, after)
    )
    if found is None:
        return None
    row, records = found
    if not records and not under_way(row):
        records = [r for r in run_journal(world, row) if r.seq > after][:_AT_ONCE]
    return Look(row.state, under_way(row), records)


def _of(tx: Tx, run_id: str, after: int) -> tuple[LedgerRow, list[WalRecord]] | None:
    row = tx.runs.get(run_id)
    if row is None:
        return None
    return row, tx.journals.since(row.wal_id, after + 1, _AT_ONCE)


class _Followed:
    """One run, and those who follow it."""

    def __init__(self, run_id: str, after: int, state: str) -> None:
        self.run_id, self.after, self.state = run_id, after, state
        self.listeners: set[asyncio.Queue[Look]] = set()
        self.task: asyncio.Task[None] | None = None


class _Seat:
    """A place among those who listen; whose stream never began gives it back all the same."""


class Live:
    """Those who listen. Everything but `close` and `_seated` is called in the loop of the server."""

    def __init__(self) -> None:
        self._runs: dict[tuple[int, str], _Followed] = {}
        self._seats: WeakSet[_Seat] = WeakSet()
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self.looks = 0  # how often the store was asked

    def close(self) -> None:
        """The reader stops: every stream ends within a moment."""
        self._closed.set()

    @property
    def listening(self) -> int:
        return sum(len(run.listeners) for run in self._runs.values())

    # ---- one who listens -------------------------------------------------------------------------
    def _seated(self) -> _Seat | None:
        """A place, taken before anything is answered: several may ask at the same moment."""
        with self._lock:
            if len(self._seats) >= MOST:
                return None
            seat = _Seat()
            self._seats.add(seat)
            return seat

    async def told(
        self, kept: Kept, run_id: str, after: int, first: Look, seat: _Seat
    ) -> AsyncIterator[bytes]:
        """What happens from here on; it ends with the run, or after a while."""
        queue: asyncio.Queue[Look] = asyncio.Queue(_AT_ONCE)
        followed = None
        try:
            yield b"retry: 1000\n\n"
            followed = self._joined(kept, run_id, queue, first, after)
            async for piece in self._pieces(kept, run_id, after, first, queue):
                yield piece
        finally:
            if followed is not None:
                followed.listeners.discard(queue)
            with self._lock:
                self._seats.discard(seat)

    async def _pieces(
        self, kept: Kept, run_id: str, after: int, first: Look, queue: "asyncio.Queue[Look]"
    ) -> AsyncIterator[bytes]:
        ends = asyncio.get_running_loop().time() + LONGEST_S
        state, look = "", first
        while True:
            for record in look.records:
                if record.seq > after:
                    after = record.seq
                    yield _record(record)
            if look.state != state:
                state = look.state
                yield _event("state", State(state=state))
            if len(look.records) == _AT_ONCE:  # there is more already
                more: Look | None = await sync_to_thread(self._seen, kept, run_id, after)
                look = more or look._replace(records=[])
                continue
            if not look.is_open:
                yield _event("end", State(state=state))
                return
            left = ends - asyncio.get_running_loop().time()
            if left <= 0 or self._closed.is_set():
                return
            try:
                look = await asyncio.wait_for(queue.get(), min(HEARTBEAT_S, left))
            except TimeoutError:
                look = look._replace(records=[])
                yield b": still at it\n\n"

    # ---- the one look they share -----------------------------------------------------------------
    def _joined(
        self, kept: Kept, run_id: str, queue: "asyncio.Queue[Look]", first: Look, after: int
    ) -> _Followed:
        followed = self._runs.get((id(kept), run_id))
        last = max([after, *(r.seq for r in first.records)])
        if followed is None:
            followed = self._runs[id(kept), run_id] = _Followed(run_id, last, first.state)
            followed.task = asyncio.ensure_future(self._follow(kept, followed))
        followed.after = min(followed.after, last)  # others know what they have
        followed.listeners.add(queue)
        return followed

    async def _follow(self, kept: Kept, run: _Followed) -> None:
        """Twice a second, as long as somebody listens."""
        try:
            while not self._closed.is_set():
                await asyncio.sleep(EVERY_S)
                if not run.listeners:
                    return
                look = await sync_to_thread(self._seen, kept, run.run_id, run.after)
                if look is None:
                    continue
                if look.records or look.state != run.state or not look.is_open:
                    run.after = max([run.after, *(r.seq for r in look.records)])
                    run.state = look.state
                    self._hand(run, look)
                if not look.is_open:
                    return
        finally:
            self._runs.pop((id(kept), run.run_id), None)
            self._hand(run, Look(run.state, True, []))  # who is left looks whether we stop

    def _hand(self, run: _Followed, look: Look) -> None:
        for queue in run.listeners:
            if not queue.full():  # who does not listen any more misses it, and asks again
                queue.put_nowait(look)

    def _seen(self, kept: Kept, run_id: str, after: int) -> Look | None:
        self.looks += 1
        try:
            with kept.opened() as (_, world):
                return _looked(world, run_id, after)
        except (KfmError, OSError):
            return None  # another look will tell

    # ---- the address -----------------------------------------------------------------------------
    def route(self) -> HTTPRouteHandler:
        @reads("/runs/{run_id:str}/events", media=_KIND)
        def events(asking: Asking, run_id: FromPath[str]) -> Response[Any]:
            """What happens in a run that is under way."""
            if not asking.viewer.may(OPERATES):
                raise Hidden
            visit = Visit.now()
            after = _after(visit)
            first = _looked(asking.world, run_id, after)
            if first is None:
                raise Hidden
            seat = self._seated()
            if seat is None:
                said = "As many listen as can. Ask again."
                return problem(visit, Problem(status=503, error="later", said=said))
            headers = {"cache-control": "private, no-store", "x-accel-buffering": "no"}
            if visit.is_head:
                return Response(b"", media_type=_KIND, headers=headers)
            pieces = self.told(visit.at.kept, run_id, after, first, seat)
            return Stream(pieces, media_type=_KIND, headers=headers)

        return events


def _after(visit: Visit) -> int:
    """The last record that whoever asks has."""
    text = visit.headers.get(b"last-event-id") or query_of().get("after", "")
    if not text:
        return -1
    found = whole_number(text)
    if found is None:
        raise BadQuestion("after is no number of a record.", field="after")
    return found


def _record(record: WalRecord) -> bytes:
    told = Told(
        seq=record.seq,
        at=record.ts,
        phase=record.phase,
        step_id=record.step_id,
        status=record.status,
    )
    return f"id: {record.seq}\n".encode() + _event("record", told)


def _event(name: str, data: object) -> bytes:
    return f"event: {name}\ndata: ".encode() + msgspec.json.encode(data) + b"\n\n"
