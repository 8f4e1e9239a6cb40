"""What needs a person: stale, stuck, waiting, denied, put aside, switched off; each with why and the next command."""

import datetime as dt
from collections.abc import Iterable, Mapping
from typing import Any, Literal

import msgspec

from kfm.errors import KfmError
from kfm.model.freshness import delta_minutes
from kfm.model.ledger import Generation, JobRow
from kfm.pools import pool_rows
from kfm.records import read_facts
from kfm.world import World

__all__ = ["Attention", "attention", "freshness"]

STUCK_S = 60.0
INGEST = "ingest.pull_source"  # what became of it stands with its dataset


class Attention(msgspec.Struct, frozen=True, kw_only=True):
    """One thing, why, and what to do about it."""

    kind: Literal["stale", "stuck", "waiting", "denied", "failed", "dead", "off", "failing"]
    what: str
    why: str
    next: str


def freshness(world: World, dataset_id: str) -> int | None:
    """`freshness.delta_minutes`: how much staler the official data is than was promised; below zero it is fresh."""
    entry = world.registry(dataset_id)
    head: Generation | None = world.store.read(lambda tx: tx.index.last_generation(dataset_id))
    if entry is None or head is None or head.version_id is None:
        return None
    check = world.store.read(lambda tx: tx.index.latest_check(dataset_id))
    newest = None
    try:
        newest = (read_facts(world.data, dataset_id, head.version_id)["interval"] or (None, None))[1]
    except (KfmError, OSError, KeyError):
        pass  # nothing tells when its events were
    return delta_minutes(entry, world.clock.now(), newest, check.checked_at if check is not None else None)


def attention(world: World, rows: Iterable[Mapping[str, Any]]) -> list[Attention]:
    """Everything that needs a person, the worst first."""
    found = [a for row in rows if (a := _dataset(row)) is not None]
    jobs, dead, lost, off, pools, workers = world.store.read(
        lambda tx: (
            tx.jobs.listing(state="queued", outcome="failed", limit=20), tx.jobs.listing(state="ended", outcome="dead", limit=20), tx.jobs.lost(),
            tx.jobs.switches(), pool_rows(tx, world.store.now_ms()), [h for h in tx.leases.held() if h["name"].startswith("worker/")],
        )
    )  # fmt: skip
    found += [
        Attention(kind="dead", what=_name(job), why=job.error or "failed too often", next=f"kfm jobs show {job.job_id[:8]}") for job in dead
    ]
    found += [
        Attention(
            kind="off", what=s["name"], why=f"{s['reason']} ({s['by_whom']}, since {s['at'][:19]}Z)", next=f"kfm switch on {s['name']}"
        )
        for s in off
    ]
    found += [_failing(job) for job in jobs if job.attempts]
    denied = world.store.read(lambda tx: tx.jobs.listing(state="ended", outcome="failed", limit=20))
    found += [
        Attention(kind="denied", what=_name(j), why=j.error, next=f"kfm jobs show {j.job_id[:8]}") for j in denied if j.job_type != INGEST
    ]
    alive = any(not h["lapsed"] for h in workers)
    if lost:
        found.append(Attention(kind="stuck", what="jobs of a worker that is gone", why="no worker has taken them over yet", next="kfm up"))
    for pool in pools:
        if pool["queued"] and pool["wait_ms"] > STUCK_S * 1000:
            found.append(_pool(pool, alive))
    order = ("stuck", "dead", "failed", "denied", "failing", "waiting", "stale", "off")
    return sorted(found, key=lambda a: (order.index(a.kind), a.what))


def _dataset(row: Mapping[str, Any]) -> Attention | None:
    kind = {"denied": "denied", "failed": "failed", "proposed": "waiting", "waiting": "waiting"}.get(row["state"])
    if kind is None and row["state"] == "official" and not row["fresh"]:
        kind = "stale"
    if kind is None:
        return None
    why = row["reason"] or {"stale": "nobody looked at its source for longer than it promises", "waiting": "it waits for a person"}.get(
        kind, ""
    )
    return Attention(kind=kind, what=row["dataset_id"], why=why, next=row["next"] or f"kfm explain run {row['dataset_id']}")  # type: ignore[arg-type]


def _failing(job: JobRow) -> Attention:
    at = dt.datetime.fromtimestamp(job.not_before / 1000, dt.UTC).strftime("%H:%M:%S")
    why = f"{job.attempts} of {job.max_attempts} tries failed, the next at {at}Z: {job.error}"
    return Attention(kind="failing", what=_name(job), why=why, next=f"kfm jobs show {job.job_id[:8]}")


def _pool(pool: Mapping[str, Any], alive: bool) -> Attention:
    waits = f"{pool['queued']} jobs wait, the oldest for {pool['wait_ms'] / 1000:.0f} s"
    if pool["paused"]:
        return Attention(kind="waiting", what=f"pool {pool['name']}", why=f"{waits}; it is paused: {pool['paused']}", next="kfm jobs pools")
    if not alive:
        return Attention(kind="stuck", what=f"pool {pool['name']}", why=f"{waits}; no worker runs", next="kfm up")
    full = pool["slots"] is not None and pool["running"] >= pool["slots"]
    why = f"{waits}; all {pool['slots']} slots are taken" if full else f"{waits}; the workers are busy"
    return Attention(kind="waiting", what=f"pool {pool['name']}", why=why, next="kfm jobs pools")


def _name(job: JobRow) -> str:
    return " ".join(part for part in (job.job_type, job.dataset_id, job.partition, job.win) if part)
