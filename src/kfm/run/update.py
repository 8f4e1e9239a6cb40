"""update: from a look at upstream to a durable part.

Every `yield` stands between two durable operations: a driver may stop there, a test may kill or
freeze the run there. The order of operations is that of the checked model; see docs/protocol.md.
"""

from pathlib import Path

import msgspec

from kfm.evidence.intended_acts import check_erased
from kfm.model import INGEST, LedgerRow, UsageError, is_assembly, without_emitter
from kfm.run.claim import Answer, Claimed, LookAgain, Settle, check_switch, claim
from kfm.run.look import Captured, capture_again, look, replay_capture
from kfm.run.noop import Noop
from kfm.run.stage import stage, tell_noop
from kfm.run.work import MustSettle, Reached, Steps, Taken, Work, check_settled, guarded
from kfm.store.base import Tx
from kfm.world.killed import killed_unclaimed, tell_unclaimed
from kfm.world.target import Target
from kfm.world.world import World

__all__ = ["update"]


# ---- take ----------------------------------------------------------------------------------------
def _take(tx: Tx, world: World, target: Target) -> Taken | None:
    """Take the job and the lease of its partition in one transaction; what is switched off does not
    begin.
    """
    check_switch(tx, target.dataset_id, INGEST)
    check_erased(world, target.dataset_id)
    job = tx.jobs.get(target.dataset_id, target.partition, target.win)
    if job is None or job.state == "ended":
        return None
    left = tx.leases.is_left(target.partition_lease)
    unclaimed = left and killed_unclaimed(tx, target)
    claimed = _claimed(tx, target) if left else ()
    token = tx.leases.take(target.partition_lease, world.holder, world.lease_seconds)
    if token is None:
        return None
    tx.jobs.start(job)
    # what is official and not read yet only makes it look further back
    last = tx.index.last_generation(target.dataset_id) if target.leased_window else None
    return Taken(token, job.forced, unclaimed, claimed, last.generation if last is not None else 0)


def _claimed(tx: Tx, target: Target) -> tuple[LedgerRow, ...]:
    opened = tx.runs.open_runs(target.dataset_id, target.partition)
    mine = ("CLAIMED", target.win)
    return tuple(r for r in opened if (r.state, r.win) == mine and not is_assembly(r))


def update(world: World, target: Target, replay: LedgerRow | None = None) -> Steps:
    """Work the queued job of `target`. None: there is no such job, or another run holds its lease.

    With `target.staged` it ends when its part is durable. `replay` feeds an unfinished run from its
    own capture instead of asking upstream again.
    """
    if target.staged and world.is_private(target.dataset_id):
        raise UsageError(
            f"{target.dataset_id} is not public: what is withheld is checked against each capture,"
            " so its parts are not staged.",
            expected="a public dataset",
            remedy=f"`kfm run {target.dataset_id} --window …` runs one window after the other.",
        )
    work = Work(world, target)
    return (yield from guarded(work, _steps(work, replay)))


def _steps(work: Work, replay: LedgerRow | None) -> Steps:
    """Take the job; look, claim, make the part, assemble."""
    taken = work.take(lambda tx: _take(tx, work.world, work.target))
    if taken is None:
        return None
    work.forced = taken.forced
    if taken.unclaimed:
        tell_unclaimed(work.world, work.target)
    work.tell_left(taken)
    trigger = without_emitter(work.target.trigger)
    work.log.say("run.triggered", stage="watch", trigger=trigger, forced=bool(taken.forced))
    yield Reached.JOB_TAKEN
    conditional = True
    while True:
        with work.world.data.scratch() as scratch:
            found = _look(work, replay, scratch, conditional)
            work.captured = captured = msgspec.structs.replace(found, looked_on=taken.looked_on)
            yield Reached.CAPTURED
            match _decide(work, captured):
                case Settle(row):
                    yield MustSettle(row.run_id)
                    check_settled((yield from _settle(work, row)))
                case LookAgain():
                    # the head moved after the conditional request, or the replayed run is gone
                    conditional = conditional and replay is not None
                    replay = None
                case Noop() as noop:
                    return tell_noop(work, noop)
                case Claimed(wal=wal) as claimed:
                    work.begin(claimed)
                    yield Reached.CLAIMED
                    # a NOOP never gets here, and starts faster for it
                    from kfm.run.part import make_part

                    result = yield from make_part(work, wal, captured, scratch)
                    if work.target.staged:
                        return (yield from stage(work, wal, result))
                    from kfm.run.assemble_part import assemble_part

                    return (yield from assemble_part(work, wal, result))


def _settle(work: Work, row: LedgerRow) -> Steps:
    from kfm.run.promote import promote  # the same

    return (yield from promote(work.world, row.dataset_id, row.run_id, wait=True))


def _look(work: Work, replay: LedgerRow | None, scratch: Path, conditional: bool) -> Captured:
    if work.target.again is not None:
        return capture_again(work.world, work.target.again.row, scratch)
    kept = replay_capture(work.world, replay, scratch) if replay is not None else None
    if kept is None and work.target.asks and work.target.connector is None:
        work.world.prepare(work.world.is_private(work.target.dataset_id))
    return kept or look(
        work.world, work.target, work.log, scratch, conditional=conditional and not work.forced
    )


def _decide(work: Work, captured: Captured) -> Answer:
    toolchain = "" if captured.unchanged else work.world.toolchain_digest()
    work.run_id = work.world.new_run_id()
    answer = work.world.store.transaction(
        lambda tx: claim(tx, work.world, work.target, work.token, captured, toolchain, work.run_id)
    )
    work.forced = answer.forced if isinstance(answer, LookAgain | Claimed) else 0
    return answer
