"""assemble_part: the one part of a run, put on the base that it pins under the lease of the dataset."""

from collections.abc import Generator

from msgspec import UNSET

from kfm.connectors.base import TransformResult
from kfm.evidence.journal import Journal, Page
from kfm.model import Fenced, Generation, PartDone, Pinned, Token
from kfm.quarantine.replay_check import check_base
from kfm.release.by_rule import sealed_records
from kfm.run.assemble import assemble
from kfm.run.tables import Parts, own_part
from kfm.run.work import Reached, Steps, Taken, Work
from kfm.store.base import Tx

__all__ = ["assemble_part"]


def assemble_part(work: Work, wal: Journal, result: TransformResult) -> Steps:
    """From a durable part to PROPOSED or REJECTED."""
    part = wal.require("transform", PartDone)
    work.partial = part.replays or None
    token = yield from _dataset_lease(work)
    work.wal = wal = wal.under(work.token, token)
    head = _pin(work, wal)
    check_base(work.target, work.partial, head)
    yield Reached.PINNED
    own = {work.target.artifact: own_part(work, part, result)}
    return (yield from assemble(work, Parts(wal, head, own, result)))


def _dataset_lease(work: Work) -> Generator[Reached, None, Token]:
    world, target = work.world, work.target

    def lease(tx: Tx) -> Taken | None:
        tx.leases.check(work.token)
        token = tx.leases.take(target.dataset_id, world.holder, world.lease_seconds)
        return Taken(token) if token is not None else None

    while (taken := work.take(lease)) is None:
        yield Reached.WAIT
    yield Reached.DATASET_TAKEN
    return taken.token


def _pin(work: Work, wal: Journal) -> Generation:
    """The PLAN of assemble: which generation and which parts, once and for all attempts of this
    run.
    """
    world, target = work.world, work.target
    channel = world.channel(target.dataset_id)

    def base(tx: Tx, page: Page) -> Generation:
        row = tx.runs.get(wal.run.run_id)
        if row is None or row.state != "CLAIMED":
            raise Fenced(
                f"Run {wal.run.run_id} was closed by another.",
                expected="it to be CLAIMED",
                remedy="Run the command again.",
            )
        page.run, head = row, channel.head(tx)
        if wal.state("pin") is None:
            found = Pinned(
                base_generation=head.generation,
                base_version=head.version_id,
                part=wal.require("transform", PartDone).part,
                proposal=tx.proposals.new(wal.run.run_id),
                records=sealed_records(world, target.dataset_id, head.version_id) or UNSET,
            )
            page.make("PLAN", "pin", "DONE", found)
            page.make("EXECUTE", "assemble", "IN_PROGRESS")
            page.move(tx, "CLAIMED", pinned=head.generation)
        return head

    return wal.commit(base)
