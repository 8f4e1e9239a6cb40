"""What is to be brought up to date: a dataset, a partition, a window, and the spec that follows
from its entry.
"""

from collections.abc import Callable

import msgspec

from kfm.model import (
    Column,
    DatasetEntry,
    Json,
    LedgerRow,
    Mark,
    Place,
    canonical,
    ids,
    kind_of,
    partition_lease,
)
from kfm.model.dataset import spelled
from kfm.model.labels import is_private

__all__ = ["Again", "Target", "family_of", "specify"]


class Again(msgspec.Struct, frozen=True):
    """A capture worked once more because a person decided on it: upstream is not asked."""

    row: LedgerRow  # the run that captured it
    # (source id, line): just these records, merged into what is official; empty: all of it
    only: tuple[tuple[str, int], ...] = ()
    onto: str = ""  # with `only`: the mark of the content they are merged into
    schema: tuple[Column, ...] = ()  # with `only`: the columns of that content


class Target(msgspec.Struct, frozen=True):
    """One dataset, one partition, one window, and the spec that follows from them."""

    entry: DatasetEntry
    sources: tuple[dict[str, str], ...]  # {source_id, url}; the url is the registered address
    partition: str = ""
    win: str = ""
    pipeline_version: str = "1.0.0"
    connector: str | None = None  # path of the workspace's connector.py
    connector_digest: str | None = None
    # which files there are follows from answers: `acquire` of the connector or of the source kind
    # asks for them
    asks: bool = False
    mapping: Json = msgspec.field(default_factory=dict)  # mapping.yml
    # people's corrections: digest of a record -> column -> text
    fixes: dict[str, dict[str, str | None]] = msgspec.field(default_factory=dict)
    # instead of the registry's, for a capture that a person accepted
    max_quarantined: float | None = None
    again: Again | None = None
    # when the capture that is worked on was made, as its run recorded it; part of no hash
    captured_at: str = ""
    spec: Json = msgspec.field(default_factory=dict)
    spec_hash: str = ""
    transform_hash: str = ""
    trigger: str = "manual"
    spec_file_hash: str | None = None
    # a version that is being tried: it waits for a person, whatever the registry says
    canary: bool = False
    # the id of a backfill: the run ends with its part, which waits to be assembled with others
    staged: str = ""

    @property
    def dataset_id(self) -> str:
        return self.entry.dataset_id

    @property
    def place(self) -> Place:
        return Place(self.partition, self.win)

    def mark(self, input_hash: str) -> Mark:
        """The mark of what this target makes from an input."""
        return Mark(input_hash, self.transform_hash, self.spec_hash)

    @property
    def updater_id(self) -> str:
        return f"{self.entry.source.kind}.{self.dataset_id}"

    @property
    def leased_window(self) -> str:
        """The window that it leases of its partition: where rows find their places by key, windows
        that share no moment are worked side by side. Empty: it leases the whole.

        A part that waits for others changes nothing official. A run that goes on to do so has to
        know which rows are of its window; and a kind that compares whole answers, by when they were
        made or what they say has merged, wants them one after the other.
        """
        if not self.win:
            return ""
        source = self.entry.source
        apart = self.staged or (source.time_column is not None and kind_of(source.kind) is None)
        whole = self.entry.merge == "partition" or is_private([self.entry])
        return self.win if apart and not whole else ""

    @property
    def partition_lease(self) -> str:
        return partition_lease(self.dataset_id, self.partition, self.leased_window)

    @property
    def artifact(self) -> str:
        return f"{self.partition or self.dataset_id}.parquet"


def specify(target: Target, policy_digest: str) -> Target:
    """`target` with its expanded spec and the two hashes over it."""
    entry = spelled(target.entry)
    # what is tried beside it changes nothing for the rest; the one that is tried says so below
    entry.pop("canary")
    entry.pop("slo", None)  # what it is measured by makes no other version
    # Registry prose and governance fields decide what may be published, not which bytes come out.
    shaping = (
        "dataset_id",
        "business_key",
        "schema",
        "merge",
        "release",
        "location",
        "crs",
        "conflicts",
    )
    reading = {
        k: v
        for k, v in entry["source"].items()
        if k in ("kind", "format", "encoding", "records", "time_column", "datasets", "join_on")
        or (k in ("options", "area") and v)
    }
    if target.mapping:
        reading["mapping"] = target.mapping
    # what kfm ships changes with its own version; what others offer, with theirs
    kind = kind_of(target.entry.source.kind)
    package = kind.package if kind is not None else ""
    if package:
        reading["package"] = package
    transform = {
        "registry": {k: v for k, v in entry.items() if k in shaping},
        "source": reading,
        "connector": target.connector_digest,
        "pipeline_version": target.pipeline_version,
        "updater_id": target.updater_id,
    }
    spec = {
        "registry": entry,
        "registry_digest": ids.digest(canonical.dumps(entry)),
        "policy_digest": policy_digest,
        "sources": [dict(s) for s in target.sources],
        "partition": target.partition,
        "window": target.win,
        "connector": target.connector_digest,
        "pipeline_version": target.pipeline_version,
        "updater_id": target.updater_id,
    } | {
        k: v
        for k, v in (
            ("mapping", target.mapping),
            ("package", package),
            ("corrections", target.fixes),
            ("canary", target.canary),
        )
        if v
    }
    return msgspec.structs.replace(
        target, spec=spec, spec_hash=ids.spec_hash(spec), transform_hash=ids.spec_hash(transform)
    )


def family_of(
    registry: Callable[[str], DatasetEntry | None], dataset_id: str
) -> list[DatasetEntry]:
    """The registry entries of a dataset and of everything it is made from."""
    found: dict[str, DatasetEntry] = {}
    left = [dataset_id]
    while left:
        name = left.pop()
        entry = None if name in found else registry(name)
        if entry is not None:
            found[entry.dataset_id] = entry
            left += entry.source.datasets
    return list(found.values())
