"""One batch of a backfill: each of its partitions is made durable, or written down as failed."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from kfm.fetch.base import Fetched, Fetcher, FetchRequest
from kfm.jobs.backfill_plan import BackfillPlan, Grid, grid_of, read_plan
from kfm.jobs.backfill_progress import audit
from kfm.jobs.backfill_spans import JOB_TYPE, at_once, begun, go_on, mark_of, said_failed
from kfm.jobs.drive import check_room, run_target
from kfm.jobs.stepping import Patience, drive
from kfm.model import INGEST, BackfillRow, Denied, Fenced, PartRow, Request, UsageError
from kfm.model.ticks import tick
from kfm.run.claim import check_kept, check_switch
from kfm.run.update import update
from kfm.store.base import Tx
from kfm.world.outcome import AlreadyStaged, Outcome
from kfm.world.target import Target, specify
from kfm.world.world import World

__all__ = ["WAIT_S", "Batch", "Targets", "Told", "bases_of", "work_batch"]

FLUSH_S = 2.0  # how often a batch says how far it is
WAIT_S = 60.0
# no worker takes the ingest of a partition by itself: its batch drives it
NEVER_MS = 253_402_300_799_000
PARTS_POOL = "parts"
Targets = Callable[..., list[Target]]  # (dataset_id, win=, trigger=) -> one target per partition
Told = Callable[[int, Outcome], None]
_STATES = {"STAGED": "STAGED", "COMMITTED": "COMMITTED", "NOOP": "NOOP"}


@dataclass
class Batch:
    """What became of the partitions of one batch."""

    row: BackfillRow
    parts: list[PartRow] = field(default_factory=list)

    def count(self, *states: str) -> int:
        return sum(part.state in states for part in self.parts)


class _Slow:
    """Asks no faster than the plan allows; politeness towards the host comes on top."""

    def __init__(self, inner: Fetcher, pause_s: float) -> None:
        self._inner, self._pause_s, self._next = inner, pause_s, 0.0

    def fetch(self, request: FetchRequest, into: Path) -> Fetched:
        time.sleep(max(0.0, self._next - time.monotonic()))
        self._next = time.monotonic() + self._pause_s
        return self._inner.fetch(request, into)


def work_batch(
    world: World,
    backfill_id: str,
    targets: Targets,
    first: int,
    amount: int,
    *,
    put: bool = True,
    told: Told | None = None,
    wait_s: float = WAIT_S,
) -> Batch:
    """Every partition of a batch that is not done, one after the other. A failing one is written
    down and the next is tried.
    """
    row = begun(world, backfill_id)
    plan, batch, flushed, last = read_plan(row), Batch(row), 0, time.monotonic()
    if row.state not in ("running", "assembling"):
        return batch
    if plan.rate is not None:  # each of those who may work at once gets its share
        most = world.store.read(lambda tx: at_once(tx, plan))
        world = msgspec.structs.replace(
            world, fetcher=_Slow(world.fetcher, most / plan.rate.per_second)
        )
    bases, grid = bases_of(row, plan, targets)
    done = world.store.read(lambda tx: tx.backfill.done_in(backfill_id, first, first + amount))
    check_room(world)
    world.store.read(lambda tx: check_switch(tx, row.dataset_id, INGEST, JOB_TYPE))
    for n in range(first, min(first + amount, row.total)):
        if n in done:
            continue
        try:
            outcome = _part(world, row, plan, bases, grid.at(n), wait_s)
        except Denied:
            # switched off meanwhile: what ended is written down, the rest stays handed out until
            # somebody resumes
            _flush(world, row, batch.parts[flushed:], bases, grid)
            raise
        batch.parts.append(_told_part(row, n, outcome))
        tick("backfill", n + 1, row.total, "partitions")
        if told is not None:
            told(n, outcome)
        if batch.parts[-1].state == "FAILED" or time.monotonic() - last > FLUSH_S:
            batch.row, flushed, last = (
                _flush(world, row, batch.parts[flushed:], bases, grid),
                len(batch.parts),
                time.monotonic(),
            )
            if batch.row.state not in ("running", "assembling") and n + 1 < first + amount:
                # cancelled or stopped: what is left of the batch stays handed out until somebody
                # resumes
                return batch

    def close(tx: Tx) -> BackfillRow:
        now = tx.backfill.lock(backfill_id)
        tx.backfill.put_parts(batch.parts[flushed:])
        tx.backfill.drop_out(backfill_id, first)
        return go_on(tx, msgspec.structs.replace(now, touched_ms=tx.backfill.now_ms()), put)

    batch.row = world.store.transaction(close)
    facts = {s.lower(): batch.count(s) for s in ("STAGED", "COMMITTED", "NOOP", "FAILED")}
    audit(world, row, "batch.ended", first=first, count=amount, **facts, state=batch.row.state)
    return batch


def bases_of(
    row: BackfillRow, plan: BackfillPlan, targets: Targets
) -> tuple[dict[str, Target], Grid]:
    """Partition -> its target, still without a window; refused when other code would make the
    rest.
    """
    found = targets(row.dataset_id, win=f"{plan.since}/{plan.until}", trigger="backfill")
    if found[0].transform_hash != row.transform_hash:
        raise UsageError(
            f"{row.dataset_id} is read differently since {row.backfill_id} was started.",
            expected="the registry entry and connector it began with",
            remedy=(
                f"`kfm backfill cancel {row.backfill_id}`, then `kfm backfill start {row.name}`"
                " begins anew."
            ),
        )
    bases, grid = {target.partition: target for target in found}, grid_of(plan)
    gone = [name for name in grid.partitions if name not in bases]
    if gone or grid.total != row.total or not plan.partitioning.time_zone:
        raise UsageError(
            (
                f"{row.dataset_id} has no partition {gone[0]} any more."
                if gone
                else f"The plan of {row.backfill_id} is not the one it began with."
            ),
            expected=f"the {row.total:,} partitions it began with",
            remedy=(
                f"Put it back, or `kfm backfill cancel {row.backfill_id}`, then `kfm backfill start"
                f" {row.name}` begins anew."
            ),
        )
    return bases, grid


def _part(
    world: World,
    row: BackfillRow,
    plan: BackfillPlan,
    bases: dict[str, Target],
    at: tuple[str, str],
    wait_s: float,
) -> Outcome:
    win, partition = at
    if not win:
        return Outcome(
            dataset_id=row.dataset_id,
            run_id="",
            state="NOOP",
            reason="the time zone has no such day",
            partition=partition,
        )
    target = specify(msgspec.structs.replace(bases[partition], win=win), world.policy_digest)
    check_kept(target.entry)
    if plan.every == 1:  # a version per partition is an ordinary run per partition
        outcome = run_target(world, target, wait_s=wait_s)
    else:
        outcome = _staged(
            world, row, msgspec.structs.replace(target, staged=row.backfill_id), wait_s
        )
    if outcome.state == "FENCED":
        raise Fenced(outcome.reason, expected="the lease to be free", remedy="It is tried again.")
    return outcome


def _staged(world: World, row: BackfillRow, target: Target, wait_s: float) -> Outcome:
    """Make the part of one partition durable, once: what the ledger has staged for this backfill is
    not made again.
    """
    name, partition, win = target.dataset_id, target.partition, target.win
    request = Request(
        job_type=INGEST,
        dataset_id=name,
        partition=partition,
        win=win,
        not_before=NEVER_MS,
        pool=PARTS_POOL,
        reason=mark_of(row),
    )
    patience = Patience(wait_s, target.partition_lease)
    while True:
        rows = world.store.read(lambda tx: tx.runs.staged(name, partition, win))
        kept = next((r for r in rows if r.backfill == row.backfill_id), None)
        if kept is not None:
            return Outcome(
                dataset_id=name, run_id=kept.run_id, state="STAGED", partition=partition, window=win
            )
        world.store.transaction(lambda tx: tx.jobs.submit(request))
        found = drive(update(world, target), patience)
        if found is not None and not isinstance(found, AlreadyStaged):
            return found
        patience()  # another run is at it, or was


def _told_part(row: BackfillRow, n: int, outcome: Outcome) -> PartRow:
    state = "FAILED" if outcome.exit_code else _STATES.get(outcome.state, "FAILED")
    return PartRow(
        backfill_id=row.backfill_id,
        n=n,
        state=state,
        run_id=outcome.run_id,
        reason=outcome.reason if state != "STAGED" else "",
    )


def _flush(
    world: World, row: BackfillRow, parts: list[PartRow], bases: dict[str, Target], grid: Grid
) -> BackfillRow:
    """Write down what ended, and hear whether to go on. The job of a failed ingest is ended: only a
    resume tries it again.
    """
    failed = [(part, *grid.at(part.n)) for part in parts if part.state == "FAILED"]

    def keep(tx: Tx) -> BackfillRow:
        now = tx.backfill.lock(row.backfill_id)
        tx.backfill.put_parts(parts)
        for part, win, partition in failed:
            job = tx.jobs.get(row.dataset_id, partition, win)
            if job is not None and job.state == "queued":
                tx.queue.note(tx.jobs.cancel(job.job_id), "failed", part.reason)
        now = msgspec.structs.replace(now, touched_ms=tx.backfill.now_ms())
        plan, count = read_plan(now), tx.backfill.failed_since(row.backfill_id, now.began_ms)
        if (
            failed
            and now.state == "running"
            and count >= plan.stop_after
            and count > plan.acceptance.max_failed * now.total
        ):
            now = msgspec.structs.replace(now, state="stopped", reason=said_failed(count))
        return tx.backfill.put(now)

    found: BackfillRow = world.store.transaction(keep)
    for part, win, partition in failed:
        audit(
            world,
            row,
            "part.failed",
            n=part.n,
            window=win,
            partition=partition,
            run_id=part.run_id,
            reason=part.reason,
        )
    return found
