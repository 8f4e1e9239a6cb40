"""refused: what was refused, written down with the reasons and read again; of a private dataset
sealed.
"""

import datetime as dt
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from kfm.evidence.receipts import pretty
from kfm.keys.commitments import SEALED, Vaults
from kfm.model import IntegrityError, LedgerRow, NoopRow, ids
from kfm.model.paths import capture_folder, quarantine_folder, quarantine_path
from kfm.world.target import Target
from kfm.world.world import World
from kfm.zones.base import Zone

__all__ = ["Row", "keep_capture", "keep_rows", "opened", "read_row", "runs_with_quarantine", "when"]

_WHOLE_RECORD = 4096  # bytes; a longer one is not kept whole beside its rule


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One record that was set aside."""

    source_id: str
    line: int
    rule: str
    reason: str
    record: str
    n: int = 0
    digest: str = ""  # of the record as it came
    before: str | None = None
    after: str | None = None
    blank: tuple[str, ...] = ()  # nothing of it could be read: the columns it would have
    # connector code has not seen it: the columns of its source, with their types
    columns: dict[str, str] = {}


def keep_capture(
    world: World, target: Target, run_id: str, capture_id: str, error: Exception
) -> str:
    """Write the report on a capture that was refused whole; its bytes lie in raw, untouched."""
    report = {
        "run_id": run_id,
        "dataset_id": target.dataset_id,
        "capture": capture_folder(target.dataset_id, capture_id),
        "code": getattr(error, "code", "refused"),
        "happened": getattr(error, "happened", str(error)),
        "expected": getattr(error, "expected", ""),
        "remedy": getattr(error, "remedy", ""),
        "detail": getattr(error, "detail", {}),
        **world.marks,
    }
    stack = getattr(error, "stack", "")
    path = quarantine_path(target.dataset_id, run_id, "report.json")
    return _keep(world, target, path, pretty(report | ({"stack": stack} if stack else {})))


def keep_rows(world: World, target: Target, run_id: str, rows: Path) -> str:
    """Keep the refused rows of a capture, whether or not it was good enough as a whole."""
    return _keep(world, target, quarantine_path(target.dataset_id, run_id, "rows.jsonl"), rows)


def _keep(world: World, target: Target, path: str, content: bytes | Path) -> str:
    """Write a file of the quarantine; of a private dataset sealed."""
    if isinstance(content, bytes):
        world.keep(path, content)
        return world.lies(path)
    if world.vaults is None or not world.is_private(target.dataset_id):
        world.data.create(path, content)
        return path
    world.require_key(target.dataset_id)
    with world.data.scratch() as scratch:
        world.vaults.seal(target.dataset_id, content, scratch / "sealed")
        world.data.create(path + SEALED, scratch / "sealed")
    return path + SEALED


def runs_with_quarantine(world: World, dataset_id: str) -> list[str]:
    """The runs of a dataset that set something aside, newest first; last those the ledger does not
    know.
    """
    names = {p.split("/")[3] for p in world.data.names(quarantine_folder(dataset_id))}
    rows = {name: world.store.read(lambda tx: tx.runs.get(name)) for name in names}
    known = sorted((row for row in rows.values() if row is not None), key=when, reverse=True)
    return [row.run_id for row in known] + sorted(name for name, row in rows.items() if row is None)


def when(row: LedgerRow | NoopRow) -> tuple[dt.datetime, str]:
    """When a run began: its id may have been chosen, and says nothing about it."""
    return dt.datetime.fromisoformat(row.timestamp), row.run_id


@contextmanager
def opened(data: Zone, vaults: Vaults | None, dataset_id: str, path: str) -> Iterator[Path | None]:
    """A file of the quarantine, unsealed into scratch where it is sealed; None when it is not there
    or its key is not.
    """
    if data.exists(path):
        yield data.local(path)
    elif vaults is None or not data.exists(path + SEALED) or not vaults.has_key(dataset_id):
        yield None
    else:
        with data.scratch() as scratch:
            vaults.unseal(dataset_id, data.local(path + SEALED), scratch / "plain")
            yield scratch / "plain"


def read_row(line: bytes, number: int, run_id: str) -> Row:
    try:
        row = msgspec.json.decode(line, type=Row)
    except msgspec.MsgspecError as error:
        raise IntegrityError(
            f"Row {number} of what run {run_id} set aside is damaged.",
            expected="the row as it was kept",
            remedy="Restore it from a backup.",
        ) from error
    raw = row.record.encode()
    # kept before rows had digests of their own
    digest = row.digest or (ids.digest(raw) if len(raw) < _WHOLE_RECORD - 4 else "")
    return msgspec.structs.replace(row, n=number, digest=digest)
