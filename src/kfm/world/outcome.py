"""How a piece of work ended."""

from collections.abc import Iterable, Mapping
from typing import TypedDict

import msgspec

__all__ = ["AlreadyStaged", "Numbers", "Outcome", "PartsGone", "Told", "table_rows", "worst"]


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """How a piece of work ended."""

    dataset_id: str
    run_id: str
    state: str  # COMMITTED, NOOP, REJECTED, FAILED, SUPERSEDED, PROPOSED, STAGED, FENCED
    reason: str = ""
    exit_code: int = 0
    # what a NOOP names: a proposal, a denial, a rollback; of a new version: its new columns
    names: str = ""
    version_id: str | None = None
    generation: int | None = None
    rows: int = 0  # in the table of this version, or of its partition
    rows_read: int = 0
    rows_written: int = 0  # of those that were read
    quarantined: int = 0
    proposal: int | None = None
    reasons: tuple[dict[str, str], ...] = ()
    remedy: str = ""
    partition: str = ""
    window: str = ""
    dry_run: bool = False
    change: str = ""  # against the version before: `4,996 → 2,124 rows, −57 %`
    warnings: tuple[str, ...] = ()  # oddities that are no reason to refuse anything


class Numbers(TypedDict, total=False):
    """What an ending counts, and what was noticed: members of an `Outcome`."""

    rows: int
    rows_read: int
    rows_written: int
    quarantined: int
    proposal: int | None
    change: str
    warnings: tuple[str, ...]


class Told(Numbers, total=False):
    """What an ending says besides its state and reason."""

    exit_code: int
    names: str
    version_id: str | None
    generation: int | None
    reasons: tuple[dict[str, str], ...]
    remedy: str


def table_rows(rows: Mapping[str, int], partition: str) -> int:
    """The rows of a version, of its artifact -> rows; of one partition, when a run was about
    that.
    """
    return rows.get(f"{partition}.parquet", 0) if partition else sum(rows.values())


def worst(outcomes: Iterable[Outcome]) -> Outcome:
    """What is told of several: a failure before a wait for a person, that before success."""
    return max(outcomes, key=lambda o: (o.exit_code not in (0, 7), o.exit_code))


class AlreadyStaged(Outcome, frozen=True):
    """A NOOP: an earlier run staged this part."""


class PartsGone(Outcome, frozen=True):
    """A NOOP: parts that were asked for were overtaken, or are damaged; of the others nothing was
    made.
    """
