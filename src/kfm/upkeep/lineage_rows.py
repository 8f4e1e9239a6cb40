"""Rows of lineage that are missing from the index: read again from the evidence of their runs."""

import msgspec

from kfm.catalog.lineage.record import LineageRecord
from kfm.evidence.lineage import indexed, lineage_of
from kfm.evidence.run_files import read_run_file
from kfm.model import Json, LedgerRow
from kfm.store.base import Tx
from kfm.world.world import World

__all__ = ["missing_lineage", "put_lineage_again", "run_lineage"]


def run_lineage(world: World, row: LedgerRow) -> LineageRecord | None:
    """Where what a run made comes from, as its evidence says; None where that is gone."""
    manifest, record = (
        _json(world, row, name) for name in ("run_manifest.json", "run_record.json")
    )
    if manifest is None:
        return None
    artifacts = {path: artifact["digest"] for path, artifact in manifest["artifacts"].items()}
    return lineage_of(world, row, (record or {}).get("spec"), artifacts)


def _json(world: World, row: LedgerRow, name: str) -> Json | None:
    raw = read_run_file(world.data, row.dataset_id, row.run_id, name, {})
    try:
        found: Json | None = None if raw is None else msgspec.json.decode(raw)
    except msgspec.DecodeError:
        return None
    return found


def missing_lineage(world: World, dataset_id: str) -> list[LineageRecord]:
    """What runs that became official made, and the index does not know."""

    def unknown(tx: Tx) -> list[LedgerRow | None]:
        made = [g.run_id for g in tx.index.generations(dataset_id) if g.kind == "promote"]
        if tx.lineage.count(dataset_id) >= len(made):
            return []
        return [tx.runs.get(run_id) for run_id in made if tx.lineage.get(run_id) is None]

    rows = world.store.read(unknown)
    found = [run_lineage(world, row) for row in rows if row is not None]
    return [record for record in found if record is not None]


def put_lineage_again(world: World, dataset_id: str) -> int:
    """Index what is missing; how many runs were."""
    found = [indexed(record) for record in missing_lineage(world, dataset_id)]
    if found:
        world.store.transaction(lambda tx: tx.lineage.put(*found))
    return len(found)
