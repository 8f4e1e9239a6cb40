"""What the journal says of each step: one struct for each payload, written in this order; what an
older kfm did not say is unset.
"""

import msgspec
from msgspec import UNSET, UnsetType

from kfm.model.canonical import Json
from kfm.model.change import Measured
from kfm.model.dataset import Column
from kfm.model.plan import Plan
from kfm.model.receipt import Promotion
from kfm.model.transform import Books, ColumnProfile, TransformResult
from kfm.model.verdict import Reason, Verdict

__all__ = [
    "Appending",
    "Asked",
    "Assembled",
    "AssemblyPlanned",
    "Captured",
    "Capturing",
    "LineageKept",
    "LineageMeant",
    "PartDone",
    "Pinned",
    "Planned",
    "Replays",
    "Stopped",
    "Stored",
    "Transforming",
    "VersionKept",
    "VersionNamed",
]

# artifact path -> {digest, size, rows, from}; `at_rest`: the digest of its sealed bytes, of a
# released table that is not official yet;
# of sealed records also `explained`, the same of what explained the public rows made from them
Stored = dict[str, Json]


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """The first record of a run: what was asked for, expanded. Of an assembly, and of any run of an
    older kfm, it is the plan.
    """

    spec: Json | UnsetType | None = UNSET
    spec_file_hash: str | UnsetType | None = UNSET
    receipt_path: str | UnsetType = UNSET
    base_generation: int | UnsetType = UNSET
    request_reason: str | UnsetType = UNSET  # why a person asked for it
    # of a window: the generation that was official when upstream was asked
    looked_on: int | UnsetType = UNSET

    @property
    def registry(self) -> Json:
        """The registry entry it was asked for under."""
        return (self.spec or {}).get("registry") or {}


class Planned(msgspec.Struct, frozen=True, kw_only=True):
    """plan: what is done with an input that passed its checks."""

    plan: Plan
    plan_hash: str


class AssemblyPlanned(msgspec.Struct, frozen=True, kw_only=True):
    """plan, of an assembly of staged parts: the first record of its run."""

    plan: Plan
    plan_hash: str
    base_generation: int
    spec: Json
    spec_file_hash: str | None
    receipt_path: str


class Capturing(Asked, frozen=True, kw_only=True):
    """capture, before it: which files of which content, and what they are for."""

    capture_id: str
    files: dict[str, str]


class Captured(msgspec.Struct, frozen=True, kw_only=True):
    """capture, also when it has only begun."""

    capture_id: str


class Transforming(msgspec.Struct, frozen=True, kw_only=True):
    """transform, before it."""

    artifact: str


class Replays(msgspec.Struct, frozen=True, kw_only=True):
    """The run whose records were set aside and are all that a part holds, and the content they are
    merged into.
    """

    run_id: str
    onto: str


class PartDone(msgspec.Struct, frozen=True, kw_only=True):
    """transform: the part that is durable, and what its transform answered."""

    # the digest of its table as it lies there; of parts that take the places of their partitions,
    # of their list
    part: str
    # of an assembly: the table its parts were merged into, where they were
    stored: Json | UnsetType | None = UNSET
    artifact: str
    books: Books
    schema: tuple[Column, ...]
    content_id: str
    bbox: tuple[float, float, float, float] | None
    warnings: tuple[str, ...] | UnsetType = UNSET
    max_quarantined: float | UnsetType | None = UNSET
    result: TransformResult
    companions: Stored | UnsetType = UNSET  # the files beside its table
    unconfined: str | UnsetType = UNSET  # what the system lacked to hold the child
    replays: Replays | UnsetType = UNSET


class Pinned(msgspec.Struct, frozen=True, kw_only=True):
    """pin: the base and the part that every attempt of a run assembles."""

    base_generation: int
    base_version: str | None
    part: str
    parts: str | UnsetType = UNSET  # of an assembly of staged parts: where their list lies
    count: int | UnsetType = UNSET  # of those parts
    proposal: int
    # private datasets only: the sealed records that the base stood for
    records: Stored | UnsetType = UNSET


class Assembled(msgspec.Struct, frozen=True, kw_only=True):
    """assemble: what was made and how it was judged."""

    artifacts: Stored
    verdicts: tuple[Verdict, ...]
    output_keys: tuple[str, ...]
    licence: str | None
    labels: dict[str, str | None]
    steps: tuple[Json, ...]
    profile: dict[str, ColumnProfile]
    rows: dict[str, int]
    warnings: tuple[str, ...] | UnsetType = UNSET
    # columns that came since the base and nobody is shown
    added: tuple[str, ...] | UnsetType = UNSET
    change: Measured | UnsetType = UNSET
    proposal: str | UnsetType = UNSET  # the digest of proposal.json

    @property
    def reasons(self) -> list[Reason]:
        """Why it is denied."""
        return [r for v in self.verdicts for r in v.reasons]

    @property
    def review(self) -> list[Reason]:
        """What a person must look at."""
        return [r for v in self.verdicts for r in v.review]


class VersionNamed(msgspec.Struct, frozen=True, kw_only=True):
    """version, before it: the one generation the run may create, and what was looked at first."""

    generation: int | None
    version_id: str | None
    promotion: Promotion | UnsetType = UNSET


class VersionKept(msgspec.Struct, frozen=True, kw_only=True):
    """version: it lies in its folder."""

    version_id: str | None


class LineageMeant(msgspec.Struct, frozen=True, kw_only=True):
    """lineage, before it."""

    cypher: str


class LineageKept(msgspec.Struct, frozen=True, kw_only=True):
    """lineage: how many edges were told."""

    edges: int


class Appending(msgspec.Struct, frozen=True, kw_only=True):
    """channel: the generation, and before ★ where it goes."""

    generation: int | None
    path: str | UnsetType = UNSET


class Stopped(msgspec.Struct, frozen=True, kw_only=True):
    """Any step that failed."""

    error: str
    code: str
    stack: str | msgspec.UnsetType = msgspec.UNSET  # of code that raised, without places
