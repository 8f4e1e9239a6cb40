"""Which datasets have work now: what a clock, an event or a person asks for is put into the job
table, and whoever runs a dataset works what waits there.

So a clock, an event and a person start the same run, and a runner that dies or is told to stop
loses nothing.
"""

import datetime as dt
from collections.abc import Sequence

import msgspec

from kfm.cli.call import login
from kfm.cli.scheduler import make_scheduler, ticked
from kfm.jobs.schedule.scheduler import on_event
from kfm.model import INGEST, Json, KfmError, Request, UsageError, canonical, ids
from kfm.model.window import window as parse_window
from kfm.store.base import Tx
from kfm.workspace.folder import Workspace
from kfm.workspace.targets import targets_of
from kfm.world.world import World

__all__ = ["at_tick", "by_event", "by_hand"]

_MOST = 1_000_000


def at_tick(workspace: Workspace, world: World) -> tuple[list[str], Sequence[str]]:
    """Put what the timetables say; every dataset that has work now, and what is wrong with files of
    others.
    """
    scheduler, tables = make_scheduler(workspace, world)
    ticked(scheduler)
    known = set(workspace.registered())
    jobs = world.store.read(
        lambda tx: tx.jobs.listing(state="queued", job_type=INGEST, limit=_MOST)
    )
    now_ms = int(world.clock.now().timestamp() * 1000)
    waiting = {job.dataset_id for job in jobs if job.not_before <= now_ms}
    return sorted(waiting & known), [f"{p.file}: {p.what}" for p in tables.problems]


def by_hand(workspace: Workspace, world: World, dataset_id: str, window: str) -> list[str]:
    """Put one dataset, because a person wants it now."""
    entry = workspace.require(dataset_id)
    win = parse_window(window, world.clock.now()) if window else ""
    targets_of(workspace, dataset_id, win=win)  # refuses a window where there is none
    request = Request(
        job_type=INGEST, dataset_id=dataset_id, win=win, pool=entry.pool, requested_by=login()
    )
    world.store.transaction(lambda tx: tx.jobs.submit(request))
    return [dataset_id]


def by_event(workspace: Workspace, world: World, event: str) -> list[str]:
    """Put the dataset that an event is about; none when it was heard before. What a receiver of
    this workspace kept has asked already: those of its datasets that have work.
    """
    told, known = _told(event), world.clock.now()
    name = str(told.get("event_id") or "")
    kept = world.store.read(lambda tx: tx.events.like(name)) if name else []
    if [row.event_id for row in kept] == [name]:
        datasets = msgspec.convert(told, _Event).datasets
        return [d for each in datasets for d in _waiting(world, each, known)]
    dataset_id = _named(workspace, told)
    digest, now = ids.digest(canonical.dumps(told)), world.clock.now()
    _, tables = make_scheduler(workspace, world)
    table = next((t for t in tables() if t.dataset == dataset_id), None)
    if table is None:  # it has no cadence: nobody but events and people ask for it
        request = Request(
            job_type=INGEST,
            dataset_id=dataset_id,
            pool=workspace.require(dataset_id).pool,
            reason=f"event:{login()} {digest}",
            event=digest,
            once=True,
        )
        world.store.transaction(lambda tx: tx.jobs.submit(request))
    else:
        timetable = table

        def heard(tx: Tx) -> bool:
            return on_event(tx, timetable, digest, now, login())

        world.store.transaction(heard)
    return _waiting(world, dataset_id, now)


def _waiting(world: World, dataset_id: str, now: dt.datetime) -> list[str]:
    jobs = world.store.read(
        lambda tx: tx.jobs.listing(state="queued", job_type=INGEST, dataset_id=dataset_id)
    )
    return [dataset_id] if any(j.not_before <= now.timestamp() * 1000 for j in jobs) else []


class _Event(msgspec.Struct, frozen=True):
    """As much of an event as is used here: its source is a dataset, by its id or an older one."""

    source_id: str
    event_id: str = ""
    datasets: tuple[str, ...] = ()


def _told(event: str) -> Json:
    try:
        found: Json = canonical.loads(event.encode())
        msgspec.convert(found, _Event)
    except (KfmError, msgspec.ValidationError) as error:
        raise UsageError(
            f"This is no event: {error}.",
            expected="one JSON object with source_id, as the webhook receiver makes it",
            remedy="`kfm runner due --dataset ID` asks for a dataset without one.",
        ) from error
    return found


def _named(workspace: Workspace, told: Json) -> str:
    name = str(told["source_id"]).replace("-", "_")
    older = (
        each
        for each in workspace.registered()
        if name in getattr(workspace.readable(each), "aliases", ())
    )
    found = next(older, name)
    workspace.require(found)
    return found
