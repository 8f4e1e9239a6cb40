"""stage: the two ways an update ends without a candidate: its part waits for others, or there is
nothing to do.
"""

from kfm.connectors.base import TransformResult
from kfm.evidence.journal import Journal, Page
from kfm.model import PartDone, rfc3339
from kfm.run.noop import Noop
from kfm.run.work import Reached, Steps, Work
from kfm.store.base import Tx
from kfm.world.outcome import AlreadyStaged, Outcome

__all__ = ["stage", "tell_noop"]


def stage(work: Work, wal: Journal, result: TransformResult) -> Steps:
    """The part is durable, the run STAGED: it is assembled with others."""
    _stage(work, wal)
    yield Reached.STAGED
    return _staged(work, result)


def _stage(work: Work, wal: Journal) -> None:
    """The part is durable, the run STAGED, its job done, the lease free: one transaction."""
    from kfm.run.part import part_fields  # a NOOP starts faster without it

    changes = {
        "state": "STAGED",
        "ended_at": rfc3339(work.world.clock.now()),
        "latency_ms": work.elapsed_ms(),
    }
    changes |= part_fields(wal.require("transform", PartDone), wal.run)

    def stage(tx: Tx, page: Page) -> None:
        page.move(tx, "CLAIMED", **changes)
        work.ack(tx)
        tx.leases.release(*work.tokens)

    wal.commit(stage)


def _staged(work: Work, result: TransformResult) -> Outcome:
    from kfm.evidence.receipts import finish  # a NOOP starts faster without it

    row = work.row
    assert row is not None
    with work.world.ended():
        work.close_log("STAGED", "")
    with work.world.ended():
        finish(work.world, row.run_id)
    return work.outcome(
        "STAGED",
        names=f"backfill {row.backfill}",
        rows_read=row.rows_read,
        rows_written=row.rows_written,
        quarantined=result.books.quarantined,
    )


def tell_noop(work: Work, noop: Noop) -> Outcome:
    """Say that there is nothing to do, and why."""
    with work.world.ended():
        work.log.bind(work.run_id)
        work.log.say("run.noop", stage="idempotency", reason=noop.reason, names=noop.names)
        told = {"code": noop.code, "names": noop.names, "partition": work.target.partition}
        work.close_log("NOOP", noop.reason, **told)  # what a rebuilt store knows of it
    head, kind = noop.head, AlreadyStaged if noop.code == "staged" else Outcome
    return kind(
        dataset_id=work.target.dataset_id,
        run_id=work.run_id,
        state="NOOP",
        reason=noop.reason,
        names=noop.names,
        exit_code=noop.exit_code,
        remedy={
            3: f"kfm explain deny {work.target.dataset_id}",
            7: f"kfm review {noop.names.rpartition(' ')[2]}",
        }.get(noop.exit_code, ""),
        version_id=head.version_id if head else None,
        generation=head.generation if head else None,
        partition=work.target.partition,
        window=work.target.win,
    )
