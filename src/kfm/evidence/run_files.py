"""Files of runs, wherever they lie: NOOP runs are packed daily into one file, under the same
addresses.
"""

import datetime as dt
import re
from collections.abc import Iterator

import msgspec

from kfm.evidence.journal import check_chain
from kfm.model import IntegrityError, Json, LedgerRow, WalRecord
from kfm.model.paths import noops_folder, run_path, runs_folder
from kfm.world.world import World
from kfm.zones.base import Zone

__all__ = [
    "Packed",
    "load_packs",
    "read_run_file",
    "run_ids",
    "run_journal",
    "started_at",
    "unpacked",
]


Packed = dict[str, dict[str, str]]


def started_at(run_id: str) -> dt.datetime:
    """The moment a UUIDv7 holds; of an id that somebody chose, the beginning of time."""
    stamped = re.fullmatch(
        r"([0-9a-f]{8})-([0-9a-f]{4})-7[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}", run_id
    )
    return dt.datetime.fromtimestamp(
        int(stamped[1] + stamped[2], 16) / 1000 if stamped else 0, dt.UTC
    )


def load_packs(zone: Zone, dataset_id: str) -> Packed:
    """Every packed run of a dataset: run id -> file name -> text."""
    found: Packed = {}
    for name in zone.names(noops_folder(dataset_id)):
        found |= unpacked(zone.read(name), "files")
    return found


def read_run_file(
    zone: Zone, dataset_id: str, run_id: str, name: str, packed: Packed | None = None
) -> bytes | None:
    """A file of a run, from its folder or from the pack it went into."""
    path = run_path(dataset_id, run_id, name)
    if zone.exists(path):
        return zone.read(path)
    text = (load_packs(zone, dataset_id) if packed is None else packed).get(run_id, {}).get(name)
    return None if text is None else text.encode()


def run_journal(world: World, row: LedgerRow) -> list[WalRecord]:
    """From the store, or from the archive beside the receipts; the same records either way."""
    records: list[WalRecord] = world.store.read(lambda tx: tx.journals.get(row.wal_id))
    if not records:
        raw = read_run_file(world.data, row.dataset_id, row.run_id, "wal.jsonl") or b""
        try:
            records = [msgspec.json.decode(line, type=WalRecord) for line in raw.splitlines()]
        except msgspec.DecodeError as error:
            raise IntegrityError(
                f"The archived journal of run {row.run_id} is damaged.",
                expected="intact records",
                remedy="Restore wal.jsonl from a backup.",
            ) from error
    check_chain(records)
    return records


def run_ids(zone: Zone, dataset_id: str, packed: Packed | None = None) -> list[str]:
    """Every run that left files, packed or not, oldest first."""
    base = runs_folder(dataset_id) + "/"
    found = {path.removeprefix(base).split("/", 1)[0] for path in zone.names(base.rstrip("/"))}
    return sorted(found | set(load_packs(zone, dataset_id) if packed is None else packed))


def unpacked(content: bytes, member: str) -> Iterator[tuple[str, Json]]:
    """(run id, what is packed of it under `member`); a damaged line hides its own run and no
    other.
    """
    for line in content.splitlines():
        try:
            found = msgspec.json.decode(line)
            run_id, told = found["run_id"], found[member]
        except (msgspec.DecodeError, UnicodeDecodeError, KeyError, TypeError):
            continue
        if isinstance(run_id, str):
            yield run_id, told
