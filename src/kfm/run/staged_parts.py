"""staged_parts: the parts of a backfill that wait, as their journals tell of them, and the list an
assembly pins.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from kfm.evidence.journal import done_of
from kfm.evidence.run_files import read_run_file
from kfm.model import (
    Captured,
    IntegrityError,
    LedgerRow,
    Part,
    PartDone,
    Pins,
    WalRecord,
    canonical,
)
from kfm.model.paths import part_folder, run_path
from kfm.world.world import World

__all__ = ["AGAIN", "Damaged", "Staged", "pins_of", "read_parts", "table_path"]

AGAIN = "`kfm backfill resume` makes the part again from its capture."


@dataclass(frozen=True)
class Staged:
    """What the journal of a staged part says of it."""

    done: PartDone
    capture_id: str


@dataclass(frozen=True)
class Damaged:
    """A staged part whose journal or bytes are not what the ledger says."""

    row: LedgerRow
    path: str  # of the bytes; empty: nothing but the journal is damaged


def read_parts(world: World, rows: Sequence[LedgerRow]) -> tuple[list[Staged], list[Damaged]]:
    """The parts that are as they were made, and those that are not."""
    staged, bad = [], []
    for row in rows:
        try:
            staged.append(found := _staged_part(world, row))
        except IntegrityError:
            bad.append(Damaged(row, ""))
            continue
        done = found.done
        files = {f"{part_folder(row.dataset_id, done.part)}/{done.artifact}": done.part}
        files |= {made["from"]: made["digest"] for made in (done.companions or {}).values()}
        bad += [Damaged(row, p) for p, digest in files.items() if not world.data.holds(p, digest)]
    return staged, bad


def _staged_part(world: World, row: LedgerRow) -> Staged:
    """From the store or from the archive."""
    records: list[WalRecord] = (
        world.store.read(lambda tx: tx.journals.get(row.wal_id)) if not row.archived else []
    )
    if not records:
        raw = read_run_file(world.data, row.dataset_id, row.run_id, "wal.jsonl", {}) or b""
        records = [msgspec.json.decode(line, type=WalRecord) for line in raw.splitlines()]
    veil = world.veil(row.dataset_id)
    done = done_of(records, "transform", veil, PartDone)
    capture = done_of(records, "capture", veil, Captured)
    if done is None or capture is None or done.part != row.part:
        raise IntegrityError(
            f"{run_path(row.dataset_id, row.run_id, 'wal.jsonl')} is missing or damaged.",
            expected=f"the journal of the part {row.part}",
            remedy=AGAIN,
        )
    return Staged(done, capture.capture_id)


def pins_of(
    dataset_id: str, backfill: str, rows: Sequence[LedgerRow], staged: Sequence[Staged]
) -> tuple[Pins, bytes]:
    """The list of parts that a run is made from, and its bytes, whose digest names it."""
    parts = tuple(
        Part(
            run_id=r.run_id,
            partition=r.partition,
            window=r.win,
            mark=str(r.mark),
            part=str(r.part),
            artifact=s.done.artifact,
            capture_id=s.capture_id,
            rows=s.done.result.rows,
        )
        for r, s in zip(rows, staged)
    )
    pins = Pins(dataset_id=dataset_id, backfill=backfill, parts=parts)
    return pins, canonical.dumps(msgspec.to_builtins(pins)) + b"\n"


def table_path(dataset_id: str, part: Part) -> str:
    return f"{part_folder(dataset_id, part.part)}/{part.artifact}"
