"""Work a job in this process: put it, take it, go on until nothing of it is left."""

import time
from collections.abc import Callable, Collection

import msgspec

from kfm.channel.chain import EMPTY, pinned_parts, projected_generation
from kfm.evidence.acts import erasing, meant
from kfm.evidence.append_times import check_clock
from kfm.evidence.run_files import pack_noops
from kfm.model.errors import Fenced, KfmError, StepFailed
from kfm.model.job import INGEST
from kfm.model.ledger import LedgerRow
from kfm.model.paths import gc_folder
from kfm.model.staged import is_assembly
from kfm.run.claim import check_kept, check_switch
from kfm.run.update import update
from kfm.run.work import MustSettle, Reached, Steps
from kfm.store.base import Tx
from kfm.world.outcome import Outcome
from kfm.world.target import Target
from kfm.world.world import World
from kfm.zones.scratch_places import sweep_aside

__all__ = ["Stopped", "drive", "promote_run", "resume_run", "run_target", "stop_run"]

POLL_S = 0.02
DISK_FLOOR = 1 << 20


def _held(target_lease: str) -> Fenced:
    return Fenced(
        f"Another run holds {target_lease}.",
        expected="the lease to be free",
        remedy="Wait for it, or pass a longer --wait; `kfm status` shows it.",
    )


class Stopped(SystemExit):
    """A driver leaves a run where it is: its leases are released, and it can be resumed."""

    def __init__(self, at: Reached | MustSettle | None = None) -> None:
        super().__init__(None if at is None else str(at))
        self.at = at


def drive(
    steps: Steps,
    patience: Callable[[], None],
    until: Collection[Reached] = (),
    *,
    settles: bool = True,
) -> Outcome | None:
    """Run a generator of durable operations to its end; `patience` sleeps, or raises when waiting
    has gone on too long.

    Raises `Stopped` between two operations, when one of `until` has just been done, or where
    another run would be settled and `settles` is not.
    """
    try:
        while True:
            done = next(steps)
            if done in until or (isinstance(done, MustSettle) and not settles):
                steps.throw(Stopped(done))
            if done is not Reached.WAIT:
                continue
            try:
                patience()
            except Fenced as error:
                steps.throw(error)
    except StopIteration as end:
        found: Outcome | None = end.value
    return found


class _Patience:
    def __init__(self, seconds: float, lease: str) -> None:
        self._until, self._lease = time.monotonic() + seconds, lease

    def __call__(self) -> None:
        if time.monotonic() >= self._until:
            raise _held(self._lease)
        time.sleep(POLL_S)


def run_target(
    world: World,
    target: Target,
    *,
    forced: bool = False,
    reason: str = "",
    wait_s: float = 60.0,
    replay: LedgerRow | None = None,
    taken: bool = False,
) -> Outcome:
    """Bring `target` up to date. The outcome is the last thing that happened to it. `taken`: a
    worker has its job already.
    """
    if wait_s <= 0 and not world.store.read(lambda tx: tx.leases.is_free(target.partition_lease)):
        raise _held(target.partition_lease)
    if replay is None:  # what was fetched before it was retired is judged, and denied
        check_kept(target.entry)
    _check_room(world)
    world.store.read(lambda tx: check_switch(tx, target.dataset_id, INGEST))
    if erasing(world, target.dataset_id):
        from kfm.upkeep.erase import finish_erasure  # rare, and a NOOP starts faster without it

        finish_erasure(world, target.dataset_id, wait_s)
    if target.entry.release is not None:
        from kfm.judge.release import check_shown  # a NOOP starts faster without it

        check_shown(world, target.entry)
    for zone in (world.data, world.root):
        zone.sweep()
    sweep_aside()
    if world.store.read(lambda tx: tx.runs.damaged(target.dataset_id, limit=64)):
        _mend(world, target.dataset_id)

    def put(forced: bool) -> None:
        name, pool = target.dataset_id, target.entry.pool
        world.store.transaction(
            lambda tx: tx.jobs.put(
                name, target.partition, target.win, forced=int(forced), reason=reason, pool=pool
            )
        )

    job = world.store.read(lambda tx: tx.jobs.get(target.dataset_id, target.partition, target.win))
    if taken and (job is None or job.state == "ended"):
        return _done_by_another(target)
    # an interrupted run has its job still: no need to ask twice
    if job is None or job.state == "ended" or not (taken or replay):
        put(forced)
    patience = _Patience(wait_s, target.partition_lease)
    last: Outcome | None = None
    while True:
        step = (None if world.propose_only else _promote_pending(world, target, patience)) or drive(
            update(world, target, replay), patience
        )
        if step is not None:
            # a NOOP after our own commit only says that nothing came in between
            if last is None or step.state != "NOOP":
                last = step
            if step.state in ("FAILED", "FENCED"):
                return step
            continue
        job = world.store.read(
            lambda tx: tx.jobs.get(target.dataset_id, target.partition, target.win)
        )
        done = job is None or job.state == "ended"
        if done and (
            world.propose_only
            or not world.store.read(lambda tx: tx.runs.promotable(target.dataset_id))
        ):
            if last is not None:
                last = _became(world, last)
                break
            if taken:
                return _done_by_another(target)
            # another run did our job on the way, forced if it was; ask once more, to decide for
            # ourselves
            put(False)
        patience()
    try:
        _tidy(world, target.dataset_id)
    except (KfmError, OSError):
        pass  # the outcome stands; the next run or `kfm doctor --fix` tidies up
    return last


def _became(world: World, last: Outcome) -> Outcome:
    """What became of our proposal, when another process finished it before we came to that."""
    row = (
        world.store.read(lambda tx: tx.runs.get(last.run_id))
        if last.state == "PROPOSED" and not last.exit_code
        else None
    )
    if row is None or row.state == "PROPOSED":
        return last
    code = 3 if row.state == "REJECTED" else 0
    return msgspec.structs.replace(
        last,
        state=row.state,
        reason=row.reason or "",
        exit_code=code,
        generation=row.intent,
        remedy="",
    )


def _done_by_another(target: Target) -> Outcome:
    return Outcome(
        dataset_id=target.dataset_id,
        run_id="",
        state="NOOP",
        reason="another run has done it",
        partition=target.partition,
        window=target.win,
    )


def stop_run(
    world: World,
    target: Target,
    until: Collection[Reached],
    *,
    wait_s: float,
    replay: LedgerRow | None = None,
) -> Outcome | None:
    """Work `target` until one of `until` is done; None: there it stands, CLAIMED and resumable. An
    outcome: it ended before that.

    Nothing is promoted on the way, not even what an interrupted run has left half promoted.
    """
    if replay is None:
        check_kept(target.entry)
    _check_room(world)
    world.store.read(lambda tx: check_switch(tx, target.dataset_id, INGEST))
    job = world.store.read(lambda tx: tx.jobs.get(target.dataset_id, target.partition, target.win))
    if replay is None or job is None or job.state == "ended":
        world.store.transaction(
            lambda tx: tx.jobs.put(
                target.dataset_id, target.partition, target.win, forced=0, reason=""
            )
        )
    patience = _Patience(wait_s, target.partition_lease)
    while True:
        try:
            found = drive(update(world, target, replay), patience, until, settles=False)
        except Stopped as stopped:
            if stopped.at in until:
                return None
            raise
        if found is not None:
            return found
        patience()  # another run holds the lease


def _check_room(world: World) -> None:
    """Below the floor a run could not even say why it failed."""
    free = world.root.free()
    if free is not None and free < DISK_FLOOR:
        raise StepFailed(
            f"Only {free:,} bytes are free on the disk of this workspace.",
            expected=f"at least {DISK_FLOOR:,} to begin with",
            remedy="Free some space, then run again: the official version is unchanged.",
        )


def _promote_pending(world: World, target: Target, patience: Callable[[], None]) -> Outcome | None:
    if not world.store.read(lambda tx: tx.runs.promotable(target.dataset_id)):
        return None
    from kfm.run.promote import promote  # a NOOP never gets here, and starts faster for it

    try:
        _check_clock(world, target.dataset_id)
        return drive(promote(world, target.dataset_id), patience)
    except KfmError as error:
        if isinstance(error, Fenced):
            raise
        left = world.store.read(lambda tx: tx.runs.promotable(target.dataset_id))
        return Outcome(
            dataset_id=target.dataset_id,
            run_id=left[0].run_id if left else "",
            state="FAILED",
            reason=error.happened,
            exit_code=error.exit_code,
            remedy=error.remedy,
        )


def _check_clock(world: World, dataset_id: str) -> None:
    """What waits to be made official may have waited while the clock was set back."""
    world.store.read(
        lambda tx: check_clock(tx, world, tx.index.last_generation(dataset_id) or EMPTY(dataset_id))
    )


def promote_run(world: World, row: LedgerRow, wait_s: float = 60.0) -> Outcome:
    """Finish one proposal, whatever else waits; the outcome is what became of it."""
    world.store.read(lambda tx: check_switch(tx, row.dataset_id, INGEST))
    _check_clock(world, row.dataset_id)
    from kfm.run.promote import promote

    found = drive(
        promote(world, row.dataset_id, row.run_id, wait=True), _Patience(wait_s, row.dataset_id)
    )
    if found is None:
        raise Fenced(
            f"Proposal of run {row.run_id} was ended by another.",
            expected="it to wait",
            remedy="`kfm review` lists those that do.",
        )
    try:
        _tidy(world, row.dataset_id)
    except (KfmError, OSError):
        pass  # the outcome stands
    return found


def _mend(world: World, dataset_id: str) -> None:
    """Set damaged rows aside before anything relies on them, and say so."""
    from kfm.upkeep.doctor import mend_ledger

    for run_id in mend_ledger(world, dataset_id):
        world.log(dataset_id).say(
            "ledger.damaged",
            stage="idempotency",
            level="warning",
            damaged_run=run_id,
            kept="ledger/quarantine",
        )


def _tidy(world: World, dataset_id: str) -> None:
    """Leave nothing for later that can be done now."""
    if _unfinished_business(world, dataset_id):
        from kfm.evidence.projection import tick

        tick(world, dataset_id)
    pack_noops(world, dataset_id)
    if world.store.read(lambda tx: tx.leases.sweep(False)):  # locks of dead processes
        world.store.transaction(lambda tx: tx.leases.sweep(True), durable=False)


def _unfinished_business(world: World, dataset_id: str) -> bool:
    """Whether a tick would find anything: a stale projection, an unarchived journal, a waiting
    release, an act of a person.
    """
    channel = world.channel(dataset_id)

    def look(tx: Tx) -> bool:
        head = tx.index.last_generation(dataset_id)
        number = head.generation if head is not None else 0
        stale = number > 0 and projected_generation(world.data, dataset_id) != number
        waiting = any(row.dataset_id == dataset_id for row in tx.outbox.waiting())
        more = (
            world.data.exists(channel.path(number + 1))
            or bool(meant(world.data, dataset_id))
            or _swept_half(world, dataset_id)
        )
        return stale or waiting or more or bool(tx.runs.unarchived(dataset_id))

    found: bool = world.store.read(look)
    return found


def _swept_half(world: World, dataset_id: str) -> bool:
    """Whether a sweep was killed: what is shown may still name what it removed."""
    plans = set(world.data.names(gc_folder(dataset_id)))
    return any(
        path.endswith(".json") and f"{path.removesuffix('.json')}.done" not in plans
        for path in plans
    )


def _assemble_again(world: World, target: Target, row: LedgerRow, wait_s: float) -> Outcome:
    from kfm.run.assemble_parts import assemble_staged  # backfills only

    parts = pinned_parts(world.data, row) or ()
    steps = assemble_staged(world, target, row.backfill, [p.run_id for p in parts])
    found = drive(steps, _Patience(wait_s, row.dataset_id))
    assert found is not None
    made = (
        world.store.read(lambda tx: tx.runs.get(found.run_id))
        if found.state == "PROPOSED" and not found.exit_code
        else None
    )
    return promote_run(world, made, wait_s) if made is not None else found


def resume_run(world: World, target: Target, row: LedgerRow, wait_s: float) -> Outcome:
    """Go on with an unfinished run from its own capture, or from the parts it pinned, without
    asking upstream.
    """
    if is_assembly(row):
        return (
            promote_run(world, row, wait_s)
            if row.state == "PROPOSED"
            else _assemble_again(world, target, row, wait_s)
        )
    if row.state == "PROPOSED" and target.entry.retired is not None:
        return promote_run(world, row, wait_s)
    return run_target(
        world,
        target,
        wait_s=wait_s,
        replay=row if row.state == "CLAIMED" else None,
        forced=bool(row.forced),
    )
