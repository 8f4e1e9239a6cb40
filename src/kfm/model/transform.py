"""What a transform answers: the books of what it read, and the table it left."""

from typing import Annotated, Literal

import msgspec
from msgspec import UNSET, UnsetType

from kfm.model.canonical import Json
from kfm.model.change import Measured
from kfm.model.dataset import Column

__all__ = ["GONE", "Books", "ColumnProfile", "Step", "TransformResult"]

Count = Annotated[int, msgspec.Meta(ge=0)]
# between the public rows of neighbours; see `thresholds.step`
Step = Literal["none", "edge", "leap"]


class Books(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where every record that was read went."""

    read: Count = 0
    written: Count = 0
    unchanged: Count = 0
    quarantined: Count = 0
    dropped: dict[str, int] = {}  # by rule

    @property
    def gone(self) -> bool:
        """Whether nobody knows any more, as the evidence of the run is lost."""
        return self.read < 0

    @property
    def total(self) -> int:
        """The records accounted for."""
        return self.written + self.unchanged + self.quarantined + sum(self.dropped.values())

    @property
    def balanced(self) -> bool:
        """Whether every record read is accounted for exactly once."""
        return self.read == self.total


GONE = Books(read=-1)


class ColumnProfile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The shape of one column; `min` and `max` as text, None where an order means nothing."""

    nulls: Count
    min: str | None = None
    max: str | None = None


class TransformResult(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a finished transform left in its scratch folder."""

    artifact: str
    books: Books
    schema: tuple[Column, ...]  # resolved, in output order
    content_id: str  # "sha256:" + 64 hex digits over schema and rows, whatever the Parquet encoding
    profile: dict[str, ColumnProfile]
    rows: Count = 0  # of the table that was written
    bbox: tuple[float, float, float, float] | None = None
    geometry_types: tuple[str, ...] = ()
    invalid_geometries: Count = 0  # that cross themselves or whose rings do not nest
    # JSON lines {n, source_id, line, rule, reason, record, digest, before, after}
    quarantine: str | None = None
    warnings: tuple[str, ...] = ()
    # a warning -> a line it is about: told beside it, and apart from it because a twin has its
    # records in another order
    lines: dict[str, str] | UnsetType = UNSET
    # companions of the table, by name; of a twin: what it wrote, named as its inputs
    files: tuple[str, ...] = ()
    key: tuple[str, ...] = ()  # the business key that was kept to
    # the first and last time that the source says it answered for
    answered: tuple[str, str] | UnsetType = UNSET
    # when the source says its answer, or its release, was made; RFC 3339 UTC
    stamp: str | UnsetType = UNSET
    token: str | None = None  # acquire: the change token found
    unchanged: bool = False  # acquire: it is the one that was known, so nothing was asked for
    # govern: what was done, in public words: {step, discharges, ...settings}
    steps: tuple[Json, ...] = ()
    change: Measured | UnsetType = UNSET  # measure: all of it; merge: what the absence of rows did
    # merge, overtaken by other windows: rows that took the place of one that lies in another
    crossed: Count | UnsetType = UNSET
    # govern: the records that its last suppression rule names, and those only it names
    fits: tuple[Count, Count] | UnsetType = UNSET
    # what the system lacked to hold the child; said by the parent alone
    unconfined: str | UnsetType = UNSET
    # search: {file, column, what, how} of whatever gives something away
    found: tuple[dict[str, str], ...] | UnsetType = UNSET
    step: Step | UnsetType = UNSET  # govern of a neighbour
    steps_made: tuple["TransformResult", ...] = ()  # chain: of every step but the last
