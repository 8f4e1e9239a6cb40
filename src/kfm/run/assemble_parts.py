"""assemble_parts: the parts of a backfill, durable and waiting, assembled into one version by one
run.
"""

from collections.abc import Sequence

import msgspec

from kfm.evidence.run_end import close_runs
from kfm.model import ASSEMBLE, INGEST, LedgerRow, StepFailed, UsageError, ids, is_assembly
from kfm.model.paths import pins_path
from kfm.run.assemble import assemble
from kfm.run.claim import Answer, Claimed, LookAgain, Settle, check_switch
from kfm.run.claim_parts import Assembling, claim_parts
from kfm.run.collect import collect
from kfm.run.noop import Noop
from kfm.run.promote import promote
from kfm.run.staged_parts import Damaged, pins_of, read_parts
from kfm.run.work import MustSettle, Reached, Steps, Taken, Work, check_settled, guarded
from kfm.store.base import Tx
from kfm.world.outcome import PartsGone
from kfm.world.target import Target, specify
from kfm.world.world import World

__all__ = ["assemble_staged"]


def assemble_staged(
    world: World, target: Target, backfill: str, run_ids: Sequence[str] = ()
) -> Steps:
    """One version from the parts of `backfill` that are STAGED: those of `run_ids`, or all of them;
    promote it like any proposal.

    `target` is any target of the dataset. The parts stay STAGED whatever happens, until the run is
    COMMITTED and they with it. What is overtaken or damaged is closed; of `run_ids` it then makes
    nothing (`PartsGone`): whoever asked decides whether the others suffice.
    """
    whole = msgspec.structs.replace(
        target, partition="", win="", staged="", again=None, trigger=ASSEMBLE
    )
    work = Work(world, specify(whole, world.policy_digest), has_job=False)
    return (yield from guarded(work, _steps(work, backfill, frozenset(run_ids))))


def _steps(work: Work, backfill: str, run_ids: frozenset[str]) -> Steps:
    """Take the dataset; read the parts, claim, collect, assemble."""
    world, target = work.world, work.target
    while work.take(lambda tx: _take(tx, work)) is None:
        yield Reached.WAIT
    yield Reached.ASSEMBLE_TAKEN
    while True:
        rows = world.store.read(lambda tx: tx.runs.staged_for(target.dataset_id, backfill))
        rows = [r for r in rows if not run_ids or r.run_id in run_ids]
        if len(rows) < len(run_ids):
            work.release()
            found = work.outcome("NOOP", "some of its parts were overtaken, or are damaged")
            return PartsGone(**msgspec.structs.asdict(found))
        _check(target, rows)
        staged, bad = read_parts(world, rows)
        if bad:
            _set_aside(work, backfill, bad)
            yield Reached.PARTS_CLOSED
            continue
        pins, raw = pins_of(target.dataset_id, backfill, rows, staged)
        if rows:
            world.data.create(pins_path(target.dataset_id, ids.digest(raw)), raw)
            yield Reached.PINS_WRITTEN
        match _decide(work, Assembling(target, backfill, rows, ids.digest(raw))):
            case Settle(row):
                work.release()
                world.let_go(*work.tokens)
                yield MustSettle(row.run_id)
                check_settled((yield from promote(world, target.dataset_id, row.run_id, wait=True)))
                while work.take(lambda tx: _take(tx, work)) is None:
                    yield Reached.WAIT
            case LookAgain():
                continue
            case Noop(reason=reason, names=names, exit_code=code):
                return work.outcome("NOOP", reason, names=names, exit_code=code)
            case Claimed(wal=wal, head=head) as claimed:
                work.begin(claimed)
                yield Reached.PINNED
                done = [s.done for s in staged]
                parts = yield from collect(work, wal, head, pins, done)
                return (yield from assemble(work, parts))


def _take(tx: Tx, work: Work) -> Taken | None:
    name, world = work.target.dataset_id, work.world
    check_switch(tx, name, INGEST)
    token = tx.leases.take(name, world.holder, world.lease_seconds)
    return Taken(token) if token is not None else None


def _check(target: Target, rows: Sequence[LedgerRow]) -> None:
    """Raise when the parts cannot be one version."""
    entry = target.entry
    if entry.merge == "replace" and len(rows) > 1:
        raise UsageError(
            f"{entry.dataset_id} is replaced by every run, so one of its {len(rows)} parts would"
            " push out the others.",
            expected="merge: upsert or partition in the registry",
            remedy="Change it, or stage the whole window as one part.",
        )
    other = next((r for r in rows if r.transform_hash != target.transform_hash), None)
    if other is not None:
        raise StepFailed(
            f"The part of run {other.run_id} was made under another spec than that of now.",
            expected=f"transform {target.transform_hash[:12]}",
            remedy="`kfm backfill resume` makes such parts again.",
        )


def _set_aside(work: Work, backfill: str, bad: Sequence[Damaged]) -> None:
    """Close damaged parts, and what may be assembling them; their bytes make room for those of
    another try.
    """
    world, name = work.world, work.target.dataset_id

    def close(tx: Tx) -> None:
        tx.leases.check(work.token)
        staged = tx.runs.staged_ids(name, backfill)
        rows = {part.row.run_id: part.row for part in bad if part.row.run_id in staged}
        mine = [
            r
            for r in tx.runs.open_runs(name)
            if is_assembly(r) and r.backfill == backfill and r.intent is None
        ]
        close_runs(tx, world.clock, [*rows.values(), *mine], "a part is missing or damaged")

    world.store.transaction(close)  # the lease is ours, so the bytes are
    for part in bad:
        work.set_aside(part.path, part.row.run_id)


def _decide(work: Work, asked: Assembling) -> Answer:
    world = work.world
    toolchain, run_id = world.toolchain_digest(), world.new_run_id()
    answer = world.store.transaction(
        lambda tx: claim_parts(tx, world, work.token, asked, toolchain, run_id)
    )
    work.forced = answer.forced if isinstance(answer, Claimed) else 0
    return answer
