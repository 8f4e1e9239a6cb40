"""Backfills: a past range cut into partitions, staged in parallel by jobs, assembled into one
version.

The ledger is the truth about each partition. The rows here say what was handed out and what came
back, so that plan, status and resume look at a few of them, however many partitions there are.
"""

import hashlib
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import msgspec

from kfm.evidence.receipts import pretty
from kfm.evidence.run_files import read_run_file
from kfm.fetch.base import Fetched, Fetcher, FetchRequest
from kfm.jobs.drive import _check_room, _Patience, _promote_pending, _tidy, drive, run_target
from kfm.model import canonical, ids
from kfm.model.backfill import (
    BackfillPlan,
    BackfillRow,
    Bucket,
    Estimate,
    Grid,
    PartRow,
    Status,
    Summary,
    backfill_id,
    grid_of,
    resolved,
)
from kfm.model.canonical import Json
from kfm.model.clock import rfc3339
from kfm.model.errors import Denied, Fenced, StepFailed, UsageError
from kfm.model.job import INGEST, Request
from kfm.model.ledger import JobRow
from kfm.model.paths import backfill_path
from kfm.model.staged import is_assembly
from kfm.model.verdict import Evidence
from kfm.model.window import seconds
from kfm.run.claim import check_kept, check_switch
from kfm.run.update import update
from kfm.store.base import Tx
from kfm.world.outcome import Outcome
from kfm.world.target import Target, specify
from kfm.world.world import AlreadyStaged, PartsGone, World

__all__ = [
    "JOB_TYPE",
    "Batch",
    "assemble",
    "audit_path",
    "cancel",
    "estimate",
    "find",
    "resume",
    "settle",
    "start",
    "status",
    "work_batch",
    "work_here",
]

JOB_TYPE = "backfill.run_parts"
AHEAD = 8  # batches that wait or run at once where neither plan nor pool says how many
FLUSH_S = 2.0  # how often a batch says how far it is
WAIT_S = 60.0
BUCKETS = 60  # of the grid that status shows
SHOWN = 20  # failing partitions that status names
# no worker takes the ingest of a partition by itself: its batch drives it
NEVER_MS = 253_402_300_799_000
PARTS_POOL = "parts"
OVER = ("done", "cancelled")
Targets = Callable[..., list[Target]]  # (dataset_id, win=, trigger=) -> one target per partition
Told = Callable[[int, Outcome], None]


# ---- before --------------------------------------------------------------------------------------
def settle(world: World, plan: BackfillPlan, target: Target) -> tuple[BackfillPlan, Grid]:
    """The plan with everything written out that its grid follows from, and the grid; refused when
    it names a gate that does not exist.
    """
    plan = resolved(plan, target.entry)
    grid = grid_of(plan)
    if grid.until > world.clock.now():
        raise UsageError(
            f"{plan.until} has not come yet.",
            expected="an end that lies in the past",
            remedy="Schedules fetch what is still to come.",
        )
    nothing = Evidence(entry=None, expected={}, found={}, schema=(), books={})
    known = (
        [gate.look(nothing).gate for gate in world.gates] if plan.acceptance.gates != "all" else []
    )
    strange = (
        [name for name in plan.acceptance.gates if name not in known]
        if plan.acceptance.gates != "all"
        else []
    )
    if plan.every != 1 and world.is_private(plan.dataset):
        raise UsageError(
            f"{plan.dataset} is not public: what is withheld is checked against each capture, so"
            " its parts are not staged.",
            expected="a public dataset, or a version per partition",
            remedy="Write `assemble: every 1`.",
        )
    if strange:
        raise UsageError(
            f"There is no gate {strange[0]}.",
            expected=f"all, or some of {', '.join(known)}",
            remedy="Correct acceptance.gates.",
        )
    return plan, grid


def estimate(world: World, plan: BackfillPlan, target: Target) -> Estimate:
    """Count, requests, bytes and time, from the runs that were measured; nothing is written."""
    plan, grid = settle(world, plan, target)
    rows = [
        r
        for r in world.store.read(lambda tx: tx.runs.recent(plan.dataset, 100))
        if r.latency_ms and r.part and not is_assembly(r)
    ]
    lanes = plan.concurrency or world.store.read(lambda tx: _slots(tx, plan.pool)) or 1
    asked = grid.total * max(len(target.sources), 1)
    sizes = [sum(s.get("size") or 0 for s in msgspec.json.decode(r.source_metadata)) for r in rows]
    each = sum(r.latency_ms or 0 for r in rows) / len(rows) / 1000 if rows else 0.0
    took = grid.total * each / lanes if rows else seconds(plan.expected_runtime)
    return Estimate(
        partitions=grid.total,
        jobs=-(-grid.total // plan.batch),
        requests=asked,
        bytes=grid.total * sum(sizes) // len(rows) if rows else None,
        seconds=(
            int(max(took, asked / plan.rate.per_second if plan.rate else 0)) + 1 if took else None
        ),
        measured=len(rows),
    )


def _slots(tx: Tx, pool: str) -> int | None:
    found: int | None = next((p["slots"] for p in tx.pools.listing() if p["name"] == pool), None)
    return found


# ---- commands ------------------------------------------------------------------------------------
def start(
    world: World,
    name: str,
    plan: BackfillPlan,
    target: Target,
    by: str,
    *,
    put: bool = True,
    again: bool = False,
) -> tuple[BackfillRow, bool]:
    """Begin a backfill, or find the one that this plan began already (then False)."""
    check_kept(target.entry)
    plan, grid = settle(world, plan, target)
    now = world.clock.now()

    def begin(tx: Tx) -> tuple[BackfillRow, bool]:
        number = 0
        while (
            old := tx.backfill.get(backfill_id(plan, target.transform_hash, number))
        ) is not None:
            if old.state not in (OVER if again else ("cancelled",)):
                return old, False
            number += 1
        row = BackfillRow(
            backfill_id=backfill_id(plan, target.transform_hash, number),
            name=name,
            dataset_id=plan.dataset,
            state="running",
            plan=canonical.dumps(msgspec.to_builtins(plan)).decode(),
            transform_hash=target.transform_hash,
            total=grid.total,
            put_by=by,
            put_at=rfc3339(now),
            began_ms=tx.backfill.now_ms(),
            touched_ms=tx.backfill.now_ms(),
        )
        tx.backfill.put(row)
        return (_hand_out(tx, row) if put else row), True

    row, new = world.store.transaction(begin)
    world.data.create(
        backfill_path(row.dataset_id, row.backfill_id, "plan.json"), row.plan.encode()
    )
    if new:
        _audit(
            world,
            row,
            "backfill.started",
            by=by,
            plan_digest=ids.digest(row.plan.encode()),
            partitions=row.total,
        )
    return row, new


def find(world: World, word: str) -> BackfillRow:
    """The newest backfill of this id, name or dataset."""
    row: BackfillRow | None = world.store.read(lambda tx: tx.backfill.find(word))
    if row is None:
        raise UsageError(
            f"No backfill {word} was started.",
            expected="an id, a name or a dataset",
            remedy="`kfm backfill list` shows them.",
        )
    return row


def resume(
    world: World, row: BackfillRow, by: str, *, put: bool = True, targets: Targets | None = None
) -> BackfillRow:
    """Hand out what failed or never came back, then the rest; what is done stays done. With
    `targets` other code is refused at once.
    """
    if row.state == "cancelled":
        raise UsageError(
            f"Backfill {row.backfill_id} was cancelled.",
            expected="one that is not over",
            remedy=f"`kfm backfill start {row.name}` begins anew.",
        )
    if world.registry(row.dataset_id) is None:
        raise UsageError(
            f"{row.dataset_id} is not in the registry any more.",
            expected="the entry it began with",
            remedy=(
                f"Put data/registry/{row.dataset_id}.yml back, or `kfm backfill cancel"
                f" {row.backfill_id}`."
            ),
        )
    if targets is not None and row.state != "done":
        _bases(row, row.read_plan(), targets)

    def again(tx: Tx) -> BackfillRow:
        now = tx.backfill.lock(row.backfill_id)
        if now.state == "done" and tx.backfill.failed_from(now.backfill_id, 0) is None:
            return now
        tx.backfill.follow_ledger(now)
        now = msgspec.structs.replace(
            now, state="running", reason="", retry_n=0, ended_at=None, began_ms=tx.backfill.now_ms()
        )
        for first, amount, job_id in tx.backfill.outs(now.backfill_id) if put else ():
            job = tx.jobs.of(job_id) if job_id else None
            if job is None or job.state == "ended":
                _put(tx, now, now.read_plan(), first, amount)
        return _go_on(tx, now, put)

    found: BackfillRow = world.store.transaction(again)
    if found.state != "done":
        _audit(world, found, "backfill.resumed", by=by)
    return found


def cancel(world: World, row: BackfillRow, by: str, reason: str) -> BackfillRow:
    """Hand out nothing more. What runs ends its partition; staged parts stay where they are, and
    nothing official changes.
    """

    def end(tx: Tx) -> BackfillRow:
        now = tx.backfill.lock(row.backfill_id)
        if now.state in OVER:
            return now
        jobs = [job for job in tx.jobs.waiting(now.dataset_id) if _is_of(job, now)]
        if any(
            job.state == "running" and "assemble" in msgspec.json.decode(job.envelope)["parameters"]
            for job in jobs
        ):
            raise UsageError(
                f"Backfill {now.backfill_id} is being assembled.",
                expected="parts that wait",
                remedy="`kfm rollback` undoes what comes of it.",
            )
        for job in jobs:
            if job.state == "queued":
                tx.jobs.cancel(job.job_id)
        return tx.backfill.save(
            now, state="cancelled", reason=reason, ended_at=rfc3339(world.clock.now())
        )

    found: BackfillRow = world.store.transaction(end)
    if found.state == "cancelled" and row.state != "cancelled":
        _audit(world, found, "backfill.cancelled", by=by, reason=reason)
        _summarise(world, found)
    return found


# ---- handing out ---------------------------------------------------------------------------------
def _hand_out(tx: Tx, row: BackfillRow) -> BackfillRow:
    """Put jobs, a bounded number ahead of those who work them."""
    plan = row.read_plan()
    out, most = len(tx.backfill.outs(row.backfill_id)), _at_once(tx, plan)
    while out < most:
        span, row = _next_span(tx, row, plan)
        if span is None:
            break
        _put(tx, row, plan, *span)
        out += 1
    found: BackfillRow = tx.backfill.put(row)
    return found


def _at_once(tx: Tx, plan: BackfillPlan) -> int:
    """How many batches may be handed out at the same time."""
    return plan.concurrency or 2 * (_slots(tx, plan.pool) or AHEAD // 2)


def _next_span(
    tx: Tx, row: BackfillRow, plan: BackfillPlan
) -> tuple[tuple[int, int] | None, BackfillRow]:
    """What comes next: failed partitions while a resume goes over them, then those that nobody had
    yet.
    """
    if row.retry_n < row.next_n:
        first = tx.backfill.failed_from(row.backfill_id, row.retry_n)
        if first is not None:
            amount = min(plan.batch, row.next_n - first)
            return (first, amount), msgspec.structs.replace(row, retry_n=first + amount)
    amount = min(plan.batch, row.total - row.next_n)
    span = (row.next_n, amount) if amount else None
    return span, msgspec.structs.replace(
        row, next_n=row.next_n + amount, retry_n=row.next_n + amount
    )


def _put(tx: Tx, row: BackfillRow, plan: BackfillPlan, first: int, amount: int) -> None:
    job = tx.jobs.submit(
        _request(row, plan, {"backfill_id": row.backfill_id, "first": first, "count": amount})
    )
    tx.backfill.put_out(row.backfill_id, first, amount, job.job_id)


def _request(row: BackfillRow, plan: BackfillPlan, parameters: Json) -> Request:
    by = (
        row.put_by
        if row.put_by == "system" or row.put_by.startswith("user:")
        else f"user:{row.put_by}"
    )
    return Request(
        job_type=JOB_TYPE,
        dataset_id=row.dataset_id,
        parameters=parameters,
        pool=plan.pool,
        requested_by=by,
        reason=_mark(row),
    )


def _known(world: World, backfill_id: str) -> BackfillRow:
    found = world.store.read(lambda tx: tx.backfill.get(backfill_id))
    if found is None:
        raise UsageError(
            f"There is no backfill {backfill_id}.",
            expected="one that was begun",
            remedy="`kfm backfill list` shows them.",
        )
    return found


def _mark(row: BackfillRow) -> str:
    return f"backfill {row.backfill_id}"


def _is_of(job: JobRow, row: BackfillRow) -> bool:
    """Whether a job was put for a backfill: of one partition's ingest the reason is all that
    tells.
    """
    return job.reason == _mark(row)


def _go_on(tx: Tx, row: BackfillRow, put: bool) -> BackfillRow:
    """After a batch: stop when too many fail, hand out more, assemble when it is time to."""
    plan = row.read_plan()
    if row.state != "running":
        return tx.backfill.put(row)
    failed = tx.backfill.failed_since(row.backfill_id, row.began_ms)
    if failed >= plan.stop_after and failed > plan.acceptance.max_failed * row.total:
        row = msgspec.structs.replace(row, state="stopped", reason=f"{failed} partitions failed")
    elif put:
        row = _hand_out(tx, row)
    if (
        row.state == "running"
        and not tx.backfill.outs(row.backfill_id)
        and _next_span(tx, row, plan)[0] is None
    ):
        failed = tx.backfill.failed_since(row.backfill_id, 0)
        if failed > plan.acceptance.max_failed * row.total:
            row = msgspec.structs.replace(
                row, state="incomplete", reason=f"{failed} partitions failed"
            )
        else:
            row = msgspec.structs.replace(row, state="assembling")
    if put and (row.state == "assembling" or _due(tx, row, plan)):
        tx.jobs.submit(_request(row, plan, {"backfill_id": row.backfill_id, "assemble": True}))
    return tx.backfill.put(row)


def _due(tx: Tx, row: BackfillRow, plan: BackfillPlan) -> bool:
    """Whether so many parts wait that the plan wants a version of them now."""
    return (
        row.state == "running"
        and plan.every > 1
        and len(tx.backfill.staged(row.backfill_id, plan.every)) >= plan.every
    )


# ---- one batch -----------------------------------------------------------------------------------
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
    row = _known(world, backfill_id)
    plan, batch, flushed, last = row.read_plan(), Batch(row), 0, time.monotonic()
    if row.state not in ("running", "assembling"):
        return batch
    if plan.rate is not None:  # each of those who may work at once gets its share
        most = world.store.read(lambda tx: _at_once(tx, plan))
        world = replace(world, fetcher=_Slow(world.fetcher, most / plan.rate.per_second))
    bases, grid = _bases(row, plan, targets)
    done = world.store.read(lambda tx: tx.backfill.done_in(backfill_id, first, first + amount))
    _check_room(world)
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
        return _go_on(tx, msgspec.structs.replace(now, touched_ms=tx.backfill.now_ms()), put)

    batch.row = world.store.transaction(close)
    facts = {s.lower(): batch.count(s) for s in ("STAGED", "COMMITTED", "NOOP", "FAILED")}
    _audit(world, row, "batch.ended", first=first, count=amount, **facts, state=batch.row.state)
    return batch


def _bases(
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
    target = specify(replace(bases[partition], win=win), world.policy_digest)
    check_kept(target.entry)
    if plan.every == 1:  # a version per partition is an ordinary run per partition
        outcome = run_target(world, target, wait_s=wait_s)
    else:
        outcome = _staged(world, row, replace(target, staged=row.backfill_id), wait_s)
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
        reason=_mark(row),
    )
    patience = _Patience(wait_s, target.partition_lease)
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


_STATES = {"STAGED": "STAGED", "COMMITTED": "COMMITTED", "NOOP": "NOOP"}


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
        plan, count = now.read_plan(), tx.backfill.failed_since(row.backfill_id, now.began_ms)
        if (
            failed
            and now.state == "running"
            and count >= plan.stop_after
            and count > plan.acceptance.max_failed * now.total
        ):
            now = msgspec.structs.replace(now, state="stopped", reason=f"{count} partitions failed")
        return tx.backfill.put(now)

    found: BackfillRow = world.store.transaction(keep)
    for part, win, partition in failed:
        _audit(
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


# ---- assembling ----------------------------------------------------------------------------------
def assemble(
    world: World, backfill_id: str, targets: Targets
) -> tuple[BackfillRow, Outcome | None]:
    """Make one version of the parts that are staged, and promote it. Repeated after a crash it goes
    on where it stopped.
    """
    row = _known(world, backfill_id)
    if row.state in OVER:
        return row, None
    bases, _ = _bases(row, row.read_plan(), targets)
    target = next(iter(bases.values()))
    patience = _Patience(WAIT_S, row.dataset_id)
    # an earlier attempt got that far
    while (before := _promote_pending(world, target, patience)) is not None:
        _check(before)
    outcome: Outcome | None = None
    while run_ids := world.store.transaction(lambda tx: _ready(tx, row)):
        from kfm.run.assemble_parts import assemble_staged

        outcome = drive(assemble_staged(world, target, backfill_id, run_ids), patience)
        if isinstance(outcome, PartsGone):
            continue
        if outcome is not None and not outcome.exit_code:
            outcome = _promote_pending(world, target, patience) or outcome
        _check(outcome)
        break
    found = _conclude(world, row, outcome)
    _tidy(world, row.dataset_id)
    return found, outcome


def _ready(tx: Tx, row: BackfillRow) -> list[str]:
    """The runs whose parts are to become a version now; none while more are missing than the plan
    accepts at the end.
    """
    tx.backfill.follow_ledger(row)
    too_many = row.state != "running" and _lacks(tx, row)
    return [] if too_many else tx.backfill.staged(row.backfill_id)


def _lacks(tx: Tx, row: BackfillRow) -> bool:
    """Whether more partitions failed than the plan accepts."""
    failed: int = tx.backfill.failed_since(row.backfill_id, 0)
    return failed > row.read_plan().acceptance.max_failed * row.total


def _check(outcome: Outcome | None) -> None:
    """Go on only with what ended for good; the rest is tried again by whoever works the job."""
    if outcome is not None and outcome.state in ("FENCED", "SUPERSEDED"):
        raise Fenced(
            outcome.reason or "What is official has moved.",
            expected="to stand on it",
            remedy="It is assembled again.",
        )
    if outcome is not None and outcome.state == "FAILED":
        raise StepFailed(outcome.reason, expected="a version", remedy=outcome.remedy)


def _conclude(world: World, row: BackfillRow, outcome: Outcome | None) -> BackfillRow:
    """Write down what became of it: in the middle it goes on, at the end it is over."""
    code = outcome.exit_code if outcome is not None else 0

    def end(tx: Tx) -> BackfillRow:
        now = tx.backfill.lock(row.backfill_id)
        tx.backfill.follow_ledger(now)
        made = _made(tx, now, outcome)
        state = "denied" if code == 3 else "waiting" if code == 7 else now.state
        if state == "assembling":
            state = "incomplete" if _lacks(tx, now) else "done"
        ended = rfc3339(world.clock.now()) if state == "done" else None
        reason = (
            outcome.reason
            if outcome is not None and code
            else "parts were overtaken or damaged"
            if state == "incomplete"
            else ""
        )
        return tx.backfill.save(now, state=state, reason=reason, ended_at=ended, **made)

    found: BackfillRow = world.store.transaction(end)
    _audit(
        world,
        found,
        "backfill.assembled",
        run_id=found.run_id,
        version_id=found.version_id,
        generation=found.generation,
        state=found.state,
        reason=found.reason,
    )
    if found.state in ("done", "denied"):
        _summarise(world, found)
    return found


def _made(tx: Tx, row: BackfillRow, outcome: Outcome | None) -> Json:
    """The run, version and generation that came of it; after a crash the channel's head knows."""
    head = tx.index.last_generation(row.dataset_id)
    run = tx.runs.get(head.run_id) if head is not None and head.run_id else None
    if (
        head is not None
        and run is not None
        and (run.backfill == row.backfill_id or row.read_plan().every == 1)
    ):
        return {"run_id": run.run_id, "version_id": head.version_id, "generation": head.generation}
    return {"run_id": outcome.run_id} if outcome is not None and outcome.run_id else {}


def work_here(
    world: World,
    backfill_id: str,
    targets: Targets,
    told: Told | None = None,
    wait_s: float = WAIT_S,
) -> tuple[BackfillRow, Outcome | None]:
    """Work a backfill in this process until it ends or stops; batches that a living worker has are
    left to it.
    """

    def mine(tx: Tx) -> tuple[int, int] | None:
        row = tx.backfill.lock(backfill_id)
        tx.queue.reap()
        for first, amount, job_id in tx.backfill.outs(backfill_id):
            job = tx.jobs.of(job_id) if job_id else None
            if job is not None and job.state == "queued":  # no worker has it
                tx.jobs.cancel(job_id)
            if job is None or job.state != "running":
                return first, amount
        span, row = _next_span(tx, row, row.read_plan())
        if span is not None:
            tx.backfill.put_out(backfill_id, *span, "")
            tx.backfill.put(row)
        return span

    idle = False  # whether the last assemble changed nothing
    with world.warm():
        while True:
            row = _known(world, backfill_id)
            if row.state == "assembling" or (
                not idle and world.store.read(lambda tx: _due(tx, row, row.read_plan()))
            ):
                row, outcome = assemble(world, backfill_id, targets)
                if row.state != "running":
                    return row, outcome
                idle = outcome is None or outcome.state == "NOOP"
                continue
            idle = False
            span = world.store.transaction(mine) if row.state == "running" else None
            if span is None:
                return row, None
            work_batch(world, backfill_id, targets, *span, put=False, told=told, wait_s=wait_s)


# ---- telling -------------------------------------------------------------------------------------
def status(world: World, row: BackfillRow) -> Status:
    """Counts, grid, rate and what fails, from one walk over an index."""
    plan = row.read_plan()
    grid = grid_of(plan)
    if row.state not in ("running", "assembling"):  # those who work it follow the ledger themselves
        world.store.transaction(lambda tx: tx.backfill.follow_ledger(row))
    size = max(1, -(-row.total // BUCKETS))
    buckets = -(-row.total // size)

    def look(tx: Tx) -> tuple[Any, ...]:
        outs = tx.backfill.outs(row.backfill_id)
        jobs = [tx.jobs.of(job_id) for _, _, job_id in outs if job_id]
        run = tx.runs.get(row.run_id) if row.run_id else None
        return (
            tx.backfill.grid(row.backfill_id, size, buckets, row.began_ms),
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
        for b in range(buckets)
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


def _audit(world: World, row: BackfillRow, event: str, **facts: object) -> None:
    """One line of the backfill's own trail; lines are only ever added."""
    line = {
        "ts": rfc3339(world.clock.now()),
        "event": event,
        "backfill_id": row.backfill_id,
        **facts,
    }
    world.data.append(audit_path(row), msgspec.json.encode(line) + b"\n")


def _summarise(world: World, row: BackfillRow) -> None:
    """The receipt of the whole: counts and digests. The digest of the parts names no run, so it is
    the same wherever it is done.
    """
    plan = row.read_plan()
    grid, counts, hashed = grid_of(plan), dict[str, int](), hashlib.sha256()
    for part in world.store.read(lambda tx: tx.backfill.parts(row.backfill_id)):
        counts[part["state"]] = counts.get(part["state"], 0) + 1
        content = part["part"] or part["input_hash"] or ""
        hashed.update(canonical.dumps([part["n"], *grid.at(part["n"]), content]) + b"\n")
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
