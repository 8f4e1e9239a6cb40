"""erase: destroy the bytes of what was withdrawn, everywhere; its commitment, the authority and the date stay in the channel."""

import os
from typing import Any

import msgspec

from kfm.clock import rfc3339
from kfm.model.ledger import Generation, LedgerRow
from kfm.projection import project
from kfm.raw import render_raw
from kfm.world import World

__all__ = ["erase"]


def erase(world: World, dataset_id: str) -> int:
    """Remove earlier versions, every capture, part, proposal, journal, record and refused row, then the data key. Repeatable.

    What is left of the version that stays official is released already; the rule that keeps the withdrawn records out stays too.
    """
    head: Generation = world.store.transaction(lambda tx: world.channel(dataset_id).head(tx))
    kept = f"processed/{dataset_id}/{head.version_id}/"
    gone = [p for p in world.data.names(f"processed/{dataset_id}") if not p.startswith(kept)]
    gone += world.data.names(f"raw/{dataset_id}/captures")
    for folder in ("parts", "precise", "proposals", "quarantine", "noops", "runs", "index", "tiles", "qa"):
        gone += world.data.names(f"work/{dataset_id}/{folder}")
    gone += [p for p in world.data.names(f"catalog/stac/{dataset_id}/items") if str(head.version_id) not in p]
    for path in gone:
        world.data.remove(path)
    for folder in sorted({str(world.data.local(p).parent) for p in gone}, key=len, reverse=True):
        _remove_folder(folder)
    if world.vaults is not None:
        world.vaults.erase(dataset_id)
    world.store.transaction(lambda tx: _forget(tx, dataset_id, rfc3339(world.clock.now())))
    render_raw(world.data, dataset_id, world.publisher.update_metadata)
    project(world, dataset_id)
    return len(gone)


def _forget(tx: Any, dataset_id: str, now: str) -> None:
    """The ledger keeps that runs were made, not what they saw; proposals and unfinished runs end here."""
    rows: list[LedgerRow] = tx.runs.recent(dataset_id, 1_000_000)
    for row in rows:
        sources = [{**s, "digest": "", "etag": "", "size": 0} for s in msgspec.json.decode(row.source_metadata)]
        changes: dict[str, Any] = {"source_metadata": msgspec.json.encode(sources).decode(), "reason": "erased", "archived": 1}
        if row.ended_at is None and row.intent is None:
            changes |= {"state": "SUPERSEDED", "promo": 0, "ended_at": now}
        tx.runs.move(row.run_id, row.state, **changes)
        tx.runs.drop_journal(row.wal_id)


def _remove_folder(path: str) -> None:
    try:
        os.rmdir(path)
    except OSError:
        return  # not empty: something that stays
