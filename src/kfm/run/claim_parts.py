"""claim_parts: the one transaction that decides over parts. Settle? leave out what is kept out;
NOOP? resume? else close what is open and pin base and parts.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from kfm.channel.generations import kept_out
from kfm.evidence.append_times import check_clock
from kfm.evidence.journal import Journal
from kfm.evidence.run_end import close_runs
from kfm.model import (
    AssemblyPlanned,
    Clock,
    Generation,
    LedgerRow,
    Pinned,
    Plan,
    Token,
    canonical,
    ids,
    is_assembly,
)
from kfm.model.paths import pins_path, receipt_path
from kfm.model.window import overlap
from kfm.run.claim import Answer, Claimed, LookAgain, Settle, journal_of, keep_plan, new_row
from kfm.run.look import Captured
from kfm.run.noop import Noop, approved, denied_before
from kfm.run.plan import parts_plan
from kfm.store.base import Tx
from kfm.world.target import Target
from kfm.world.world import World

__all__ = ["Assembling", "claim_parts"]


@dataclass(frozen=True)
class Assembling:
    """Staged parts of a backfill that are to become one version of what `target` names."""

    target: Target
    backfill: str
    rows: Sequence[LedgerRow]  # in the order in which they count
    pins: str  # digest of the list of them

    def captured(self) -> Captured:
        """The parts as an input: everything they were captured from, known by what they hold and
        not by who made them.
        """
        found = [[str(r.place), r.input_hash, str(r.part)] for r in self.rows]
        sources = {
            (s["source_url"], s["digest"]): s
            for r in self.rows
            for s in msgspec.json.decode(r.source_metadata)
        }
        return Captured(
            sources=tuple(sources.values()),
            files={},
            input_hash=ids.digest(canonical.dumps(found)),
            key=ids.spec_hash([r.key for r in self.rows]),
            etag="",
            unchanged=False,
            full=False,
        )


def claim_parts(
    tx: Tx, world: World, token: Token, asked: Assembling, toolchain: str, run_id: str
) -> Answer:
    """Settle? leave out what is kept out; NOOP? resume? else close what is open and pin base and
    parts. One transaction.
    """
    target, rows, captured = asked.target, asked.rows, asked.captured()
    tx.leases.check(token)
    mine = [
        r
        for r in tx.runs.open_runs(target.dataset_id)
        if is_assembly(r) and r.backfill == asked.backfill
    ]
    for row in mine:
        if row.intent is not None:
            return Settle(row)
    # inside the transaction, after the look for open intents
    head = world.channel(target.dataset_id).head(tx)
    staged = tx.runs.staged_ids(target.dataset_id, asked.backfill)
    if not {r.run_id for r in rows} <= staged or _leave_out(tx, world.clock, asked, head, mine):
        return LookAgain()
    same = [
        r
        for r in mine
        if (r.input_hash, r.spec_hash, r.pinned)
        == (captured.input_hash, target.spec_hash, head.generation)
    ]
    forced = max((r.forced for r in rows), default=0)
    waiting = next((r for r in same if r.state == "PROPOSED" and r.part == asked.pins), None)
    if not rows or waiting is not None:
        tx.leases.release(token)
        return _nothing(tx, world, waiting)
    before = denied_before(tx, target, captured.input_hash, head) if not forced else None
    if before is not None:
        close_runs(tx, world.clock, mine, "its parts were denied before")
        tx.leases.release(token)
        return Noop("denied", f"already denied: {before.reason}", f"run {before.run_id}", 3)
    for row in same:
        if row.state == "CLAIMED" and (row.part, row.base_version, row.toolchain_digest) == (
            asked.pins,
            head.version_id,
            toolchain,
        ):
            wal = journal_of(world, row, token, tx.journals.get(row.wal_id))
            return Claimed(row, wal, head, forced, resumed=True)
    check_clock(tx, world, head)
    close_runs(tx, world.clock, mine, "other parts or another base came first")
    row = msgspec.structs.replace(
        new_row(tx, world.clock, target, captured, toolchain, run_id, head, forced),
        backfill=asked.backfill,
        part=asked.pins,
        pinned=head.generation,
        rows_read=sum(r.rows_read for r in rows),
        rows_written=sum(r.rows_written for r in rows),
    )
    tx.runs.insert(row)
    tx.deliveries.put_run(run_id, target.dataset_id, world.receivers.of_runs())
    tx.looks.put(target.dataset_id, target.partition, run_id, "changed")
    wal = journal_of(world, row, token)
    _pin(tx, wal, asked, parts_plan(target, captured.input_hash), head)
    return Claimed(row, wal, head, forced)


def _leave_out(
    tx: Tx, clock: Clock, asked: Assembling, head: Generation, mine: Sequence[LedgerRow]
) -> bool:
    """Close the parts whose content was rolled back or withdrawn meanwhile, or is older than what
    is official; and their assembly.

    A forced part undoes a rollback, never a withdrawal.
    """
    gone = []
    for row in asked.rows:
        out = kept_out(head, row.place, row.mark)
        if out is not None and not (row.forced and out.how == "held"):
            gone.append(row)
    close_runs(tx, clock, gone, "what it holds was rolled back or withdrawn")
    first = min((r.base_generation for r in asked.rows), default=0)
    later = tx.backfill.later(asked.target.dataset_id, asked.backfill, first)
    old = [r for r in asked.rows if r not in gone and any(_overtakes(run, r) for run in later)]
    close_runs(tx, clock, old, "a later run of a window that overlaps its own is official")
    close_runs(tx, clock, list(mine) if gone or old else [], "one of its parts was closed")
    return bool(gone or old)


def _overtakes(run: tuple[str, str, int], part: LedgerRow) -> bool:
    """Whether a run (partition, window, its generation) that became official after `part` was
    captured speaks of the same time.
    """
    partition, win, generation = run
    later = partition == part.partition and generation > part.base_generation
    return later and overlap(win, part.win)


def _nothing(tx: Tx, world: World, waiting: LedgerRow | None) -> Noop:
    if waiting is None:
        return Noop("nothing", "nothing is staged")
    names = f"proposal {tx.proposals.number(waiting.run_id)}"
    if world.propose_only or not approved(world, waiting):
        return Noop("proposed", "already proposed, waits for a person", names, 7)
    tx.runs.move(waiting.run_id, "PROPOSED", promo=1)
    return Noop("proposed", "already proposed", names)


def _pin(tx: Tx, wal: Journal, asked: Assembling, plan: Plan, head: Generation) -> None:
    """The PLAN: base generation and parts, once and for all attempts of this run."""
    row, page = wal.run, wal.page()
    planned = AssemblyPlanned(
        plan=plan,
        plan_hash=keep_plan(tx, plan, row.input_hash, head.version_id),
        base_generation=head.generation,
        spec=asked.target.spec,
        spec_file_hash=None,
        receipt_path=receipt_path(row.run_id, row.timestamp),
    )
    pinned = Pinned(
        base_generation=head.generation,
        base_version=head.version_id,
        part=str(row.part),
        parts=pins_path(row.dataset_id, str(row.part)),
        count=len(asked.rows),
        proposal=tx.proposals.new(row.run_id),
    )
    page.make("PLAN", "plan", "DONE", planned)
    page.make("PLAN", "pin", "DONE", pinned)
    page.make("EXECUTE", "transform", "IN_PROGRESS")
    wal.begin(tx, page)
