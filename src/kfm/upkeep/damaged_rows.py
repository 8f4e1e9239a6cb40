"""Rows of the ledger and journals that are damaged: kept aside, and replaced by what the evidence
says.
"""

from collections.abc import Sequence

import msgspec

from kfm.acts.append_act import void
from kfm.evidence.receipts import pretty
from kfm.model import Json, LedgerRow, rfc3339
from kfm.model.paths import aside_path
from kfm.store.base import Tx
from kfm.upkeep.reindex import assembled, ledger_row, void_all
from kfm.world.world import World

__all__ = ["keep_journal", "mend_ledger", "set_aside_journal", "set_aside_row"]

NEWEST = 64  # rows looked at before every run; the doctor looks at all


def mend_ledger(world: World, dataset_id: str) -> list[str]:
    """Before a run: set aside damaged rows among the newest of this dataset; returns their run
    ids.
    """
    bad = world.store.read(lambda tx: tx.runs.damaged(dataset_id, limit=NEWEST))
    for raw in bad:
        set_aside_row(world, raw, str(raw["run_id"]), dataset_id)
    return [str(raw["run_id"]) for raw in bad]


def set_aside_row(world: World, raw: Json, run_id: str, dataset_id: str) -> None:
    """Keep the damaged row in ledger/quarantine, then put in its place what the evidence says.

    A run that is in no channel may have named the next generation, and its row can no longer say
    so: a void one takes the number.
    """
    world.root.create(
        aside_path(f"row-{run_id}-{rfc3339(world.clock.now()).replace(':', '')}.json"),
        pretty({k: str(v) for k, v in raw.items()}),
    )
    made = world.store.read(
        lambda tx: {
            g.run_id: g.generation for g in tx.index.generations(dataset_id) if g.kind == "promote"
        }
    )
    row = ledger_row(world, dataset_id, run_id, made, parts=assembled(world, dataset_id, made))
    if run_id not in made:
        void_all(world, [dataset_id], world.store.epoch)

    wal_id = str(raw["wal_id"])
    keep_journal(world, run_id, world.store.read(lambda tx: tx.journals.raw(wal_id)))

    def swap(tx: Tx) -> None:
        tx.runs.delete(run_id)
        tx.journals.drop(wal_id)
        if row is not None:
            tx.runs.insert(row)

    world.store.transaction(swap)


def keep_journal(world: World, name: str, records: Sequence[Json]) -> None:
    if records:
        lines = b"".join(
            msgspec.json.encode({k: str(v) for k, v in r.items()}) + b"\n" for r in records
        )
        world.root.create(aside_path(f"journal-{name}.jsonl"), lines)


def set_aside_journal(world: World, row: LedgerRow) -> None:
    """Keep the journal, close its run: COMMITTED when the channel has it, else its number is taken
    and it starts over.

    One that has ended stays as it ended: its receipt is written without the records.
    """
    keep_journal(world, row.run_id, world.store.read(lambda tx: tx.journals.raw(row.wal_id)))
    if row.ended_at is not None:
        world.store.transaction(lambda tx: tx.journals.drop(row.wal_id))
        return
    state = "SUPERSEDED"
    if row.intent is not None:
        void(world, row.dataset_id, row.intent, "0.0", "the journal of its run was damaged")
        taken = world.channel(row.dataset_id).predicate(row.intent)
        state = "COMMITTED" if taken is not None and taken.run_id == row.run_id else "SUPERSEDED"

    def close(tx: Tx) -> None:
        tx.journals.drop(row.wal_id)
        tx.runs.move(
            row.run_id,
            row.state,
            state=state,
            promo=0,
            reason="its journal was damaged",
            ended_at=rfc3339(world.clock.now()),
        )

    world.store.transaction(close)
