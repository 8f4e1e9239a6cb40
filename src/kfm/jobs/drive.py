"""Work a job in this process: put it, take it, go on until nothing of it is left."""

from collections.abc import Collection
from contextlib import suppress

import msgspec

from kfm.evidence.intended_acts import erasing
from kfm.jobs.promote_here import promote_pending
from kfm.jobs.stepping import Patience, Stopped, drive, held
from kfm.jobs.tidy import tell_outside, tidy
from kfm.model import INGEST, KfmError, LedgerRow, StepFailed
from kfm.model.paths import version_path
from kfm.run.claim import check_kept, check_switch
from kfm.run.update import update
from kfm.run.work import Reached
from kfm.world.outcome import Outcome
from kfm.world.target import Target
from kfm.world.world import World
from kfm.zones.scratch_places import sweep_aside

__all__ = ["check_room", "run_target", "stop_run"]

DISK_FLOOR = 1 << 20


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
        raise held(target.partition_lease)
    if replay is None:  # what was fetched before it was retired is judged, and denied
        check_kept(target.entry)
    check_room(world)
    world.store.read(lambda tx: check_switch(tx, target.dataset_id, INGEST))
    if erasing(world, target.dataset_id):
        from kfm.upkeep.erase import finish_erasure  # rare, and a NOOP starts faster without it

        finish_erasure(world, target.dataset_id, wait_s)
    if target.entry.release is not None:
        from kfm.release.by_rule import check_shown  # a NOOP starts faster without it

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
    patience = Patience(wait_s, target.partition_lease)
    last: Outcome | None = None
    while True:
        step = (None if world.propose_only else promote_pending(world, target, patience)) or drive(
            update(world, target, replay), patience
        )
        if step is not None:
            # a NOOP after our own commit only says that nothing came in between
            if last is None or step.state != "NOOP":
                last = step
            if step.state in ("FAILED", "FENCED"):
                with world.ended():
                    tell_outside(world, target.dataset_id)
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
                last = _is_there(world, _became(world, last))
                break
            if taken:
                return _done_by_another(target)
            # another run did our job on the way, forced if it was; ask once more, to decide for
            # ourselves
            put(False)
        patience()
    try:
        tidy(world, target.dataset_id)
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


def _is_there(world: World, last: Outcome) -> Outcome:
    """Nothing is new, and what is official cannot be had: that is said with it. Every file is looked
    for by `kfm status`, here the one without which nothing is known of a version.
    """
    head = None
    if last.state == "NOOP":
        head = world.store.read(lambda tx: tx.index.last_generation(last.dataset_id))
    if head is None or head.version_id is None:
        return last
    path = version_path(last.dataset_id, head.version_id, "version.json")
    with suppress(OSError, msgspec.DecodeError, UnicodeDecodeError):
        msgspec.json.decode(world.data.read(path))
        return last
    what = "damaged" if world.data.exists(path) else "missing"
    said = f"version.json of the official version is {what}: `kfm verify {last.dataset_id}`"
    return msgspec.structs.replace(last, warnings=(*last.warnings, said))


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
    check_room(world)
    world.store.read(lambda tx: check_switch(tx, target.dataset_id, INGEST))
    job = world.store.read(lambda tx: tx.jobs.get(target.dataset_id, target.partition, target.win))
    if replay is None or job is None or job.state == "ended":
        world.store.transaction(
            lambda tx: tx.jobs.put(
                target.dataset_id, target.partition, target.win, forced=0, reason=""
            )
        )
    patience = Patience(wait_s, target.partition_lease)
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


def check_room(world: World) -> None:
    """Below the floor a run could not even say why it failed."""
    free = world.root.free()
    if free is not None and free < DISK_FLOOR:
        raise StepFailed(
            f"Only {free:,} bytes are free on the disk of this workspace.",
            expected=f"at least {DISK_FLOOR:,} to begin with",
            remedy="Free some space, then run again: the official version is unchanged.",
        )


def _mend(world: World, dataset_id: str) -> None:
    """Set damaged rows aside before anything relies on them, and say so."""
    from kfm.upkeep.damaged_rows import mend_ledger

    for run_id in mend_ledger(world, dataset_id):
        world.log(dataset_id).say(
            "ledger.damaged",
            stage="idempotency",
            level="warning",
            damaged_run=run_id,
            kept="ledger/quarantine",
        )
