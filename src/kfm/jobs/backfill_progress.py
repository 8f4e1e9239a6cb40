"""How far a backfill is: its status, its trail, and the receipt of the whole."""

import hashlib
from typing import Any

import msgspec

from kfm.evidence.receipts import pretty
from kfm.evidence.run_files import read_run_file
from kfm.jobs.backfill_plan import grid_of, read_plan
from kfm.jobs.backfill_records import Bucket, Status, Summary
from kfm.model import BackfillRow, canonical, ids, rfc3339
from kfm.model.paths import backfill_path
from kfm.store.base import Tx
from kfm.world.world import World

__all__ = ["audit", "audit_path", "next_command", "status", "summarise"]

BUCKETS = 60  # of the grid that status shows
SHOWN = 20  # failing partitions that status names


def status(world: World, row: BackfillRow) -> Status:
    """Counts, grid, rate and what fails, from one walk over an index."""
    plan = read_plan(row)
    grid = grid_of(plan)
    if row.state not in ("running", "assembling"):  # those who work it follow the ledger themselves
        world.store.transaction(lambda tx: tx.backfill.follow_ledger(row))
    size = max(1, -(-row.total // BUCKETS))
    borders = [*range(0, row.total, size), row.total]

    def look(tx: Tx) -> tuple[Any, ...]:
        outs = tx.backfill.outs(row.backfill_id)
        jobs = [tx.jobs.of(job_id) for _, _, job_id in outs if job_id]
        run = tx.runs.get(row.run_id) if row.run_id else None
        return (
            tx.backfill.grid(row.backfill_id, borders, row.began_ms),
            tx.backfill.failing(row.backfill_id, SHOWN),
            outs,
            jobs,
            run,
            tx.backfill.now_ms(),
        )

    cells, failing, outs, jobs, run, now = world.store.read(look)
    if run is not None and run.state == "COMMITTED" and row.state == "waiting":
        row = msgspec.structs.replace(row, state="done", reason="approved")
    counts: dict[str, int] = {}
    filled: dict[int, dict[str, int]] = {}
    fresh = 0  # done since it was started or resumed
    for bucket, state, parts, since in cells:
        counts[state] = counts.get(state, 0) + parts
        fresh += since if state != "FAILED" else 0
        filled.setdefault(bucket, {})[state] = parts
    done = sum(parts for state, parts in counts.items() if state != "FAILED")
    took = (row.touched_ms - row.began_ms) / 1000
    rate = fresh / took if took > 0 else 0.0
    left, lost = row.total - done, sum(job is None or job.state == "ended" for job in jobs)
    shown = [
        Bucket(
            since=grid.at(b * size)[0].partition("/")[0],
            partitions=min(size, row.total - b * size),
            counts=filled.get(b, {}),
        )
        for b in range(len(borders) - 1)
    ]
    return Status(
        backfill_id=row.backfill_id,
        name=row.name,
        dataset_id=row.dataset_id,
        state=row.state,
        reason=row.reason,
        since=plan.since,
        until=plan.until,
        total=row.total,
        counts=counts,
        missing=row.total - sum(counts.values()),
        handed_out=sum(amount for _, amount, _ in outs),
        lost=lost,
        per_second=round(rate, 3),
        eta_seconds=int(left / rate) if rate and row.state == "running" else None,
        version_id=row.version_id,
        generation=row.generation,
        run_id=row.run_id,
        grid=shown,
        failing=[
            {
                "n": p.n,
                "window": grid.at(p.n)[0],
                "partition": grid.at(p.n)[1],
                "run_id": p.run_id,
                "attempts": p.attempts,
                "reason": p.reason,
            }
            for p in failing
        ],
        idle_seconds=max(0, now - row.touched_ms) // 1000,
        next=(
            f"kfm backfill resume {row.name}"
            if (row.state == "done" and counts.get("FAILED")) or (row.state == "running" and lost)
            else next_command(row)
        ),
    )


def next_command(row: BackfillRow) -> str:
    """The command that comes next; empty when there is nothing to do."""
    return {
        "running": "kfm worker run",
        "assembling": "kfm worker run",
        "stopped": f"kfm backfill resume {row.name}",
        "incomplete": f"kfm backfill resume {row.name}",
        "waiting": "kfm review",
        "denied": f"kfm explain deny {row.dataset_id}",
        "done": f"kfm verify {row.dataset_id}",
        "cancelled": f"kfm backfill start {row.name}",
    }.get(row.state, "")


def audit_path(row: BackfillRow) -> str:
    return backfill_path(row.dataset_id, row.backfill_id, "audit.jsonl")


def audit(world: World, row: BackfillRow, event: str, **facts: object) -> None:
    """One line of the backfill's own trail; lines are only ever added."""
    line = {
        "ts": rfc3339(world.clock.now()),
        "event": event,
        "backfill_id": row.backfill_id,
        **facts,
    }
    world.data.append(audit_path(row), msgspec.json.encode(line) + b"\n")


def summarise(world: World, row: BackfillRow) -> None:
    """The receipt of the whole: counts and digests. The digest of the parts names no run, so it is
    the same wherever it is done.
    """
    plan = read_plan(row)
    grid, counts, hashed = grid_of(plan), dict[str, int](), hashlib.sha256()
    for part in world.store.read(lambda tx: tx.backfill.parts(row.backfill_id)):
        counts[part.state] = counts.get(part.state, 0) + 1
        content = part.part or part.input_hash or ""
        hashed.update(canonical.dumps([part.n, *grid.at(part.n), content]) + b"\n")
    run = world.store.read(lambda tx: tx.runs.get(row.run_id)) if row.run_id else None
    raw = (
        read_run_file(world.data, row.dataset_id, row.run_id, "run_manifest.json")
        if run is not None
        else None
    )
    verdicts = msgspec.json.decode(raw).get("verdicts", []) if raw else []
    stored = world.data.stat(audit_path(row))
    summary = Summary(
        backfill_id=row.backfill_id,
        name=row.name,
        dataset_id=row.dataset_id,
        state=row.state,
        reason=row.reason,
        since=plan.since,
        until=plan.until,
        counts=counts,
        plan_digest=ids.digest(row.plan.encode()),
        parts_digest="sha256:" + hashed.hexdigest(),
        audit_digest=stored.digest if stored is not None else "",
        run_id=row.run_id,
        version_id=row.version_id,
        version_digest=run.version_digest if run is not None else None,
        generation=row.generation,
        gates={
            v["gate"]: "deny" if v.get("reasons") else "review" if v.get("review") else "pass"
            for v in verdicts
        },
        started_at=row.put_at,
        finished_at=rfc3339(world.clock.now()),
    )
    world.data.replace(
        backfill_path(row.dataset_id, row.backfill_id, "summary.json"), pretty(summary)
    )
