"""What a promotion is judged on, and the verdict that carries every reason."""

from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple

import msgspec
from msgspec import UNSET, UnsetType

from kfm.model.change import Measured
from kfm.model.dataset import Column, DatasetEntry
from kfm.model.transform import Books, ColumnProfile

__all__ = [
    "PARTIAL",
    "REQUIRED",
    "Before",
    "Evidence",
    "Gate",
    "Reason",
    "Verdict",
    "denied",
    "judge_all",
]

PARTIAL = "schema.partial"  # the code of an answer that was less than the registry calls complete
# What every promotion is judged by; whoever verifies one from outside asks for each of them.
REQUIRED = (
    "registry", "integrity", "schema", "quality", "licence", "labels", "books", "leak", "graph", "attestation", "withdrawal", "policy",
)  # fmt: skip


class Reason(msgspec.Struct, frozen=True, kw_only=True):
    code: str
    message: str
    remedy: str


class Verdict(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    gate: str
    reasons: tuple[Reason, ...] = ()  # none: it passes
    review: tuple[Reason, ...] = ()  # not wrong, but a person must look
    note: str = ""  # what was looked at, in a few words

    @property
    def ok(self) -> bool:
        return not self.reasons

    @property
    def word(self) -> Literal["pass", "review", "deny"]:
        return "deny" if self.reasons else "review" if self.review else "pass"


class Before(msgspec.Struct, frozen=True, kw_only=True):
    """What the version that is official now holds, which a candidate is compared with."""

    rows: int
    schema: tuple[Column, ...] = ()
    profile: dict[str, ColumnProfile] = {}


class Evidence(msgspec.Struct, frozen=True, kw_only=True):
    """Everything a gate may look at; bytes come as the digests read back from the zone, findings of
    other parts as reasons.

    What nobody looked at is None, or UNSET where None says something: the gate that needs it
    denies.
    """

    entry: DatasetEntry | None
    expected: dict[str, str]  # artifact path -> digest, as the candidate lists them
    found: dict[str, str | None]  # the same paths, read back from the zone
    schema: tuple[Column, ...]  # of the candidate
    books: Books
    proposal: int | None = None  # its number, which advised commands name
    released: Books | None = None  # the books of the release, when there was one
    partial: bool = False
    # the generation whose withdrawal keeps this content out
    suppressed: str | UnsetType | None = UNSET
    rows: int = 0
    profile: dict[str, ColumnProfile] = {}
    invalid_geometries: int = 0
    bbox: tuple[float, ...] | None = None
    interval: tuple[str, ...] | None = None
    before: Before | None = None  # None: nothing is official
    # (when this answer was made, when the official one was), by upstream's own word
    older: tuple[str, ...] = ()
    change: Measured | None = None  # against the version it was assembled on; None: there is none
    obligations: tuple[str, ...] | None = None  # of the dataset and everything it is made from
    discharged: tuple[str, ...] = ()
    other_release: tuple[str, ...] = ()  # tables released by other rules than the registry has now
    sealed: tuple[str, ...] = ()  # tables that were not released at all
    min_records: int = 1  # the largest k, and the largest area, registered for it and its inputs
    min_area_km2: float = 0.0
    unknown_labels: tuple[tuple[str, str], ...] = ()
    withheld: tuple[str, ...] = ()  # columns that may not appear, of the dataset and its inputs
    resolution: int | None = None  # the coarsest H3 resolution registered for it and its inputs
    private: bool = False
    leak: tuple[Reason, ...] | None = None  # None: not looked for
    leak_note: str = ""
    catalog: tuple[Reason, ...] | None = None
    catalog_note: str = ""
    lineage: tuple[Reason, ...] | None = None
    attestation: tuple[Reason, ...] | None = None
    attestation_note: str = ""
    licence_note: str = ""
    licences: dict[str, str] | None = None  # of the dataset and of everything it is made from
    # column -> value -> records that say of themselves that they are not for everybody
    restricted: dict[str, dict[str, int]] = {}
    permits: tuple[str, ...] = ()  # what a person signed may be public all the same
    loosened: tuple[str, ...] = ()  # what a stricter registry entry of before asks for
    policy: tuple[Reason, ...] | None = None  # None: no policy was asked
    policy_note: str = ""


class Gate(NamedTuple):
    """One thing that is looked at."""

    look: Callable[[Evidence], Verdict]
    hears: bool = False  # what the policy decided, for which the verdicts of the others were read


def judge_all(gates: Sequence[Gate], evidence: Evidence) -> tuple[Verdict, ...]:
    # No gates is a wiring mistake, not a free pass: an empty list would
    # otherwise promote anything.
    if not gates:
        why = "No gate is configured."
        none = Reason(code="gates.none", message=why, remedy="Configure gates.")
        return (Verdict(gate="gates", reasons=(none,)),)
    return tuple(gate.look(evidence) for gate in gates)


def denied(verdicts: Sequence[Verdict]) -> list[Reason]:
    return [reason for verdict in verdicts for reason in verdict.reasons]
