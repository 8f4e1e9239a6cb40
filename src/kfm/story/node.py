"""The Story Node: what is told of one generation of a dataset, each sentence with the files that
show it.
"""

from typing import Literal

import msgspec

__all__ = [
    "Agreed",
    "Changed",
    "Governance",
    "Link",
    "Produced",
    "Proof",
    "Section",
    "Sentence",
    "Story",
    "node_id",
]


class Proof(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One file that shows something. Who doubts opens it and computes its digest."""

    n: int
    what: str
    path: str  # below the workspace
    digest: str  # "sha256:" and 64 hex digits, of its bytes
    # the file that names this digest, by its number; not stated: it is signed itself, or nobody
    # names it
    named_by: int | None = None
    shows: str = ""


class Sentence(msgspec.Struct, frozen=True, kw_only=True):
    """One claim, and the numbers of the files that show it."""

    text: str
    evidence: tuple[int, ...]


class Section(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Sentences about one thing, and commands that can be pasted."""

    id: str
    title: str
    sentences: tuple[Sentence, ...]
    when: str = ""
    listed: bool = False  # each sentence is an item of a list
    commands: tuple[str, ...] = ()


class Produced(msgspec.Struct, frozen=True, kw_only=True):
    """By what, for whom and when it was made. What is None is not told."""

    run_id: str
    updater_id: str
    updater_version: str
    trigger: str  # schedule, on-demand, event, backfill, correction, withdrawal
    asked_because: str
    started_at: str | None
    official_at: str | None
    last_success_at: str | None  # of this dataset, whether or not it brought anything new
    plan_hash: str | None
    receipt: str  # below the workspace; empty: no run made it
    receipt_digest: str


class Link(msgspec.Struct, frozen=True, kw_only=True):
    """One link of the chain from the sources to the layer, nearest to the sources first."""

    kind: Literal["raw", "harmonised", "derived"]
    name: str  # an address, or a dataset
    title: str
    generation: int | None
    version_id: str | None
    run_id: str | None
    updater_id: str | None
    updater_version: str | None
    inputs: tuple[str, ...]  # what it was made from, by name
    sensitivity: str | None
    # the digest of what was captured, or the commitment that stands for it; of what is official
    # that of its receipt
    digest: str | None
    note: str  # why nothing more is told; empty: all is


class Governance(msgspec.Struct, frozen=True, kw_only=True):
    """Under which terms it was made official, and what is held back."""

    custodian: str | None
    owners: tuple[str, ...]
    licence: str | None
    rights: str | None
    sensitivity: str | None
    policy_label: str | None
    care_label: str | None
    obligations: tuple[str, ...]  # of the dataset and everything it is made from
    discharged: tuple[str, ...]
    h3_resolution: int | None
    min_records: int | None
    shown: tuple[str, ...]  # the columns that leave; empty: all do
    withheld: str  # what is held back, in words; empty: nothing is
    authority: str  # on whose word
    approvals_needed: int


class Agreed(msgspec.Struct, frozen=True, kw_only=True):
    """A person's signed word on exactly these bytes."""

    name: str
    role: str  # approver, steward, operator, grantor
    key: str
    at: str | None  # None: signed before that was recorded
    reason: str


class Changed(msgspec.Struct, frozen=True, kw_only=True):
    """What is other than in the version before."""

    since: str  # a reference
    rows_before: int
    rows_after: int
    added: int
    removed: int
    changed: int
    moved: int
    columns_added: tuple[str, ...]
    columns_removed: tuple[str, ...]
    touched: dict[str, int]


class Story(msgspec.Struct, frozen=True, kw_only=True):
    """`kfm story REF --format json`: the same evidence always gives the same bytes."""

    node_id: str  # for ever
    kind: Literal["story"] = "story"
    dataset_id: str
    title: str
    generation: int
    version_id: str
    version_digest: str
    address: str
    root: str | None  # the fingerprint that everything here is signed under
    private: bool  # records behind it are not public, and less is told of them
    produced: Produced
    chain: tuple[Link, ...]
    # records that were read, written, set aside and dropped, by rule; None: not told
    books: dict[str, int] | None
    set_aside: dict[str, int] | None
    dropped: dict[str, int] | None
    gates: dict[str, str]
    agreed: tuple[Agreed, ...]
    governance: Governance
    changed: Changed | None  # None: nothing to compare it with
    sections: tuple[Section, ...]
    evidence: tuple[Proof, ...]
    cite: str


def node_id(dataset_id: str, generation: int) -> str:
    """What a story is called for ever: a generation never changes."""
    return f"kfm://story/{dataset_id}/{generation}"
