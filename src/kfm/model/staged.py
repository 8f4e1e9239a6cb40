"""The parts an assembling run pinned, as a list kept under its own digest."""

import msgspec

from kfm.model.content import Place
from kfm.model.ledger import LedgerRow

__all__ = ["ASSEMBLE", "Part", "Pins", "is_assembly"]

ASSEMBLE = "assemble"  # the trigger of an assembling run


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """One staged part: whose, of what, and where its bytes and its capture lie."""

    run_id: str
    partition: str
    window: str
    mark: str  # a `Mark`, as it is written
    part: str  # digest of its table
    artifact: str
    capture_id: str
    rows: int

    @property
    def place(self) -> Place:
        return Place(self.partition, self.window)


class Pins(msgspec.Struct, frozen=True, kw_only=True):
    """`work/<id>/assemblies/<digest>.json`: what one assembling run is made from, in the order in
    which it counts.
    """

    dataset_id: str
    backfill: str
    parts: tuple[Part, ...]


def is_assembly(row: LedgerRow) -> bool:
    return bool(row.backfill) and row.trigger_type == ASSEMBLE
