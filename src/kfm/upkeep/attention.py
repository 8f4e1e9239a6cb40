"""What needs a person: stale, stuck, waiting, denied, put aside, switched off; each with why and
the next command.
"""

import datetime as dt
from collections.abc import Collection, Iterable
from typing import Literal

import msgspec

from kfm.access.status import DatasetStatus
from kfm.evidence.run_end import workers_alive
from kfm.evidence.version_records import read_facts
from kfm.model import INGEST, Generation, JobRow, KfmError
from kfm.store.base import Tx
from kfm.upkeep.freshness import delta_minutes
from kfm.upkeep.pools import Pool, pool_rows
from kfm.world.world import World

__all__ = ["Attention", "attention", "freshness", "tried_again"]

STUCK_S = 60.0


class Attention(msgspec.Struct, frozen=True, kw_only=True):
    """One thing, why, and what to do about it."""

    kind: Literal[
        "stale", "stuck", "waiting", "denied", "failed", "dead", "off", "failing", "aside"
    ]
    what: str
    why: str
    next: str


def freshness(world: World, dataset_id: str) -> int | None:
    """`freshness.delta_minutes`: how much staler the official data is than was promised; below zero
    it is fresh.
    """
    entry = world.registry(dataset_id)
    head: Generation | None = world.store.read(lambda tx: tx.index.last_generation(dataset_id))
    if entry is None or entry.retired is not None or head is None or head.version_id is None:
        return None
    check = world.store.read(lambda tx: tx.index.latest_check(dataset_id))
    newest = None
    try:
        interval = read_facts(world.data, dataset_id, head.version_id).interval
        newest = interval[1] if interval is not None else None
    except (KfmError, OSError, KeyError):
        pass  # nothing tells when its events were
    return delta_minutes(
        entry, world.clock.now(), newest, check.checked_at if check is not None else None
    )


def attention(
    world: World, rows: Iterable[DatasetStatus], only: Collection[str] = ()
) -> list[Attention]:
    """Everything that needs a person, the worst first; with `only`, of these datasets and nothing
    else.
    """
    found = [a for row in rows if (a := _dataset(row)) is not None]
    alive = world.store.read(workers_alive)
    for name in only or (None,):
        found += _jobs(world, name, alive)
    if only:
        found += [a for a in world.store.read(_switched) if a.what in only]
    else:
        pools, off = world.store.read(
            lambda tx: (pool_rows(tx, world.store.now_ms()), _switched(tx))
        )
        found += off
        found += [
            _pool(pool, alive) for pool in pools if pool.queued and pool.wait_ms > STUCK_S * 1000
        ]
    order = ("stuck", "dead", "failed", "denied", "failing", "waiting", "stale", "off")
    return sorted(found, key=lambda a: (order.index(a.kind), a.what))


def tried_again(needs: Iterable[Attention]) -> dict[str, Attention]:
    """The job that tries again what failed, by its dataset: told beside the failure, not twice."""
    listed = list(needs)
    failed = {a.what for a in listed if a.kind == "failed"}
    again = {a.what.removeprefix(f"{INGEST} "): a for a in listed if a.kind == "failing"}
    return {name: a for name, a in again.items() if name in failed}


def _switched(tx: Tx) -> list[Attention]:
    return [
        Attention(
            kind="off",
            what=s.name,
            why=f"{s.reason} ({s.by_whom}, since {s.at[:19]}Z)",
            next=f"kfm switch on {s.name}",
        )
        for s in tx.switches.listing()
    ]


def _jobs(world: World, dataset_id: str | None, alive: bool) -> list[Attention]:
    """Jobs that were put aside, were denied, or failed and wait to be tried again."""
    again, later, dead, denied, lost, now = world.store.read(
        lambda tx: (
            tx.jobs.listing(state="queued", outcome="failed", dataset_id=dataset_id, limit=20),
            tx.jobs.listing(state="queued", outcome="deferred", dataset_id=dataset_id, limit=20),
            tx.jobs.listing(state="ended", outcome="dead", dataset_id=dataset_id, limit=20),
            tx.jobs.listing(state="ended", outcome="failed", dataset_id=dataset_id, limit=20),
            tx.jobs.orphans(dataset_id),
            world.store.now_ms(),
        )
    )
    found = [
        Attention(
            kind="dead",
            what=_name(job),
            why=job.error or "failed too often",
            next=f"kfm jobs show {job.job_id[:8]}",
        )
        for job in dead
    ]
    if lost:
        kind: Literal["stuck", "waiting"] = "waiting" if alive else "stuck"
        why = (
            f"{len(lost)} of them;"
            f" {'a worker takes them over in a moment' if alive else 'no worker is there to take them over'}"
        )
        found.append(
            Attention(
                kind=kind,
                what="jobs of a worker that is gone",
                why=why,
                next="kfm worker list" if alive else "kfm up",
            )
        )
    found += [_failing(job, now, alive) for job in again if job.attempts] + [
        _deferred(job) for job in later if job.not_before > now
    ]
    return found + [
        Attention(kind="denied", what=_name(j), why=j.error, next=f"kfm jobs show {j.job_id[:8]}")
        for j in denied
        if j.job_type != INGEST
    ]


def _dataset(row: DatasetStatus) -> Attention | None:
    kind = {
        "denied": "denied",
        "failed": "failed",
        "proposed": "waiting",
        "waiting": "waiting",
    }.get(row.state)
    if kind is None and row.state == "official" and not row.fresh:
        kind = "stale"
    if kind is None:
        return None
    why = row.reason or {
        "stale": "nobody looked at its source for longer than it promises",
        "waiting": "it waits for a person",
    }.get(kind, "")
    return Attention(
        kind=kind,  # type: ignore[arg-type]
        what=row.dataset_id,
        why=why,
        next=row.next or f"kfm explain run {row.dataset_id}",
    )


def _failing(job: JobRow, now_ms: int, alive: bool) -> Attention:
    tries = f"{job.tries} tries failed"
    if job.not_before > now_ms:
        moment, today = (
            dt.datetime.fromtimestamp(ms / 1000, dt.UTC) for ms in (job.not_before, now_ms)
        )
        at = (
            "the next at"
            f" {moment.strftime('%H:%M:%S' if moment.date() == today.date() else '%Y-%m-%d %H:%M:%S')}Z"
        )
        when = at if alive else f"{at} if a worker runs then"
    else:
        when = "the next as soon as a worker is free" if alive else "the next when a worker runs"
    following = (
        f"kfm run {job.dataset_id}"
        if job.job_type == INGEST and not alive and not job.win
        else f"kfm jobs show {job.job_id[:8]}"
    )
    return Attention(
        kind="failing", what=_name(job), why=f"{tries}, {when}: {job.error}", next=following
    )


def _deferred(job: JobRow) -> Attention:
    at = (
        dt.datetime.fromtimestamp(job.not_before / 1000, dt.UTC)
        .isoformat(timespec="seconds")
        .replace("+00:00", "Z")
    )
    return Attention(
        kind="failing",
        what=_name(job),
        why=f"put off until {at}: {job.error}",
        next=f"kfm jobs show {job.job_id[:8]}",
    )


def _pool(pool: Pool, alive: bool) -> Attention:
    many = "1 job waits" if pool.queued == 1 else f"{pool.queued} jobs wait, the oldest"
    waits = f"{many} for {_lasting(pool.wait_ms / 1000)}"
    if pool.paused:
        return Attention(
            kind="waiting",
            what=f"pool {pool.name}",
            why=f"{waits}; it is paused: {pool.paused}",
            next="kfm jobs pools",
        )
    if not alive:  # nothing is wrong: whoever wants them done starts a worker
        return Attention(
            kind="waiting",
            what=f"pool {pool.name}",
            why=f"{waits}; no worker runs, and `kfm up` starts one",
            next="kfm up",
        )
    full = pool.slots is not None and pool.running >= pool.slots
    why = f"{waits}; all {pool.slots} slots are taken" if full else f"{waits}; the workers are busy"
    return Attention(kind="waiting", what=f"pool {pool.name}", why=why, next="kfm jobs pools")


def _lasting(seconds: float) -> str:
    """50 s, 2 min, 7 h, 3 days: as people say it."""
    for length, unit in ((86_400, "days"), (3600, "h"), (60, "min")):
        if seconds >= (2 if unit == "days" else 1) * length:
            return f"{round(seconds / length)} {unit}"
    return f"{seconds:.0f} s"


def _name(job: JobRow) -> str:
    return " ".join(part for part in (job.job_type, job.dataset_id, job.partition, job.win) if part)
