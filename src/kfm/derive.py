"""derive: datasets as the inputs of another; their newest records, from the restricted side where they are private."""

from pathlib import Path
from typing import Any

from kfm.errors import StepFailed
from kfm.fetch.base import Fetched
from kfm.model.ledger import LedgerRow
from kfm.release import candidate_of, open_table
from kfm.world import World
from kfm.zones.base import hash_file, note

__all__ = ["fetch_table"]


def fetch_table(world: World, url: str, etag: str | None, into: Path) -> Fetched:
    """The newest records of a dataset as one table; its strong validator is the digest of what is stored."""
    dataset_id = url.removeprefix("kfm://dataset/")
    candidate = _newest(world, dataset_id)
    tables = candidate["precise"] or candidate["artifacts"]
    if len(tables) != 1:
        raise StepFailed(f"{dataset_id} has {len(tables)} tables.", expected="one", remedy="Join datasets without partitions.")
    (stored,) = tables.values()
    validator = f'"{stored["digest"]}"'
    if etag == validator:
        return Fetched(status=304, final_url=url, etag=validator)
    with world.data.scratch() as scratch:
        note(into, open_table(world, dataset_id, stored, scratch).read_bytes())
    found = hash_file(into)
    return Fetched(status=200, final_url=url, etag=validator, size=found.size, digest=found.digest)


def _newest(world: World, dataset_id: str) -> dict[str, Any]:
    """What the newest run of an input brought; a denied one counts only when nothing but an obligation kept it from being shown."""
    rows: list[LedgerRow] = world.store.read(lambda tx: tx.runs.recent(dataset_id, 200))
    for row in rows:
        owed = row.state == "REJECTED" and set(row.reason.split("; ")) == {"labels.obligation"}
        if row.state in ("COMMITTED", "PROPOSED") or owed:
            found = candidate_of(world, dataset_id, row.run_id)
            if found is not None:
                return found
    raise StepFailed(f"{dataset_id} has no records yet.", expected="an input that was run", remedy=f"Run `kfm run {dataset_id}` first.")
