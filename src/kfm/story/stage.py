"""Everything evidence says of one version and of how it was made, in one place; nothing here reads."""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field

from kfm.catalog.lineage.record import LineageRecord
from kfm.fetch.url import expand_url
from kfm.model import (
    Books,
    DatasetEntry,
    GenerationPredicate,
    Json,
    Plan,
    Receipt,
    Recorded,
    Terms,
    UsageError,
    Verdict,
    VersionFacts,
    WalRecord,
)
from kfm.story.node import Agreed

__all__ = ["Act", "File", "Input", "Stage", "address_of"]


@dataclass(frozen=True)
class File:
    """A file that shows something; equal ones are one."""

    what: str
    path: str  # below the workspace
    digest: str
    shows: str = ""
    named_by: "File | None" = field(default=None, compare=False)


@dataclass(frozen=True)
class Input:
    """Something a version was made from."""

    uri: str
    address: str  # that was asked: with a window and a partition in their places
    digest: str  # or the commitment that stands for it
    origin: str = ""  # how it was obtained; empty: from upstream itself
    size: int | None = None  # None: not told
    said_at: str = ""  # when upstream says it was last changed
    stage: "Stage | None" = None  # of another dataset, where it may be told
    note: str = ""  # why it may not

    @property
    def dataset_id(self) -> str:
        """The dataset it is; empty: it came from outside."""
        known = self.uri.startswith("kfm://dataset/")
        return self.uri.removeprefix("kfm://dataset/").partition("@")[0] if known else ""


def address_of(template: str, record: Json) -> str:
    """The address that a run asked; as it was declared, where the run put parts together that others
    asked for, or where nothing says which window was asked for.
    """
    window, partition = record.get("window"), record.get("partition")
    if "{" not in template or "parts" in record:
        return template
    if isinstance(window, str) and isinstance(partition, str):
        since, _, until = window.partition("/")
        with suppress(UsageError):  # a brace that is no placeholder
            return expand_url(template, since, until, partition)
    return template


@dataclass(frozen=True)
class Act:
    """A generation that no run made: what a person did to what is official."""

    signed: GenerationPredicate
    at: str | None
    file: File
    by: str = ""  # who undid a withdrawal


@dataclass(frozen=True)
class Stage:
    """One version, the run that made it, and what people signed about it."""

    dataset_id: str
    title: str
    entry: DatasetEntry  # as it is registered now
    private: bool
    facts: VersionFacts
    signed: GenerationPredicate  # the generation that was asked for
    made: GenerationPredicate  # the one the version came with
    official_at: str | None
    signer: tuple[str, str]  # name and key
    receipt: Receipt | None  # None: no run made it
    lineage: LineageRecord | None
    terms: Terms
    recorded: Recorded | None
    agreed: tuple[Agreed, ...]
    verdicts: tuple[Verdict, ...]
    books: Books | None  # None: not told
    set_aside: Mapping[str, int]
    attempts: int
    plan: Plan | None
    plan_hash: str | None
    journal: tuple[WalRecord, ...]
    inputs: tuple[Input, ...]
    acts: tuple[Act, ...]
    newest: tuple[int, File]  # the generation that is official now
    last_success: tuple[str, File] | None
    files: Mapping[str, File]

    def of(self, *names: str) -> tuple[File, ...]:
        """Those of these files that are here."""
        return tuple(self.files[name] for name in names if name in self.files)

    @property
    def ref(self) -> str:
        return f"{self.dataset_id}@{self.signed.generation}"
