"""What would become official: the tables of a run, and everything said of them."""

import msgspec
from msgspec import UNSET, UnsetType

from kfm.model import canonical
from kfm.model.canonical import Json
from kfm.model.change import Measured
from kfm.model.dataset import Column
from kfm.model.journal import Stored
from kfm.model.transform import GONE, Books, ColumnProfile

__all__ = ["Candidate", "VersionFacts", "rows_in"]


class VersionFacts(msgspec.Struct, frozen=True, kw_only=True):
    """`processed/<id>/<version>/version.json`: what a version is, without run, time or anything of
    an input.
    """

    dataset_id: str
    version_id: str
    version_digest: str
    transform_hash: str
    updater_version: str
    artifacts: Stored
    schema: tuple[Column, ...]
    profile: dict[str, ColumnProfile]
    bbox: tuple[float, float, float, float] | None
    interval: tuple[str, str] | None
    steps: tuple[Json, ...]
    h3_resolution: int | None
    content_id: str
    # how the data were obtained; unset: from upstream itself
    origin: tuple[str, ...] | UnsetType = UNSET

    @property
    def rows(self) -> int:
        """Of all artifacts together."""
        return rows_in(self.artifacts)


def rows_in(artifacts: Stored) -> int:
    """Of tables together; what is no table has none."""
    return sum(a.get("rows") or 0 for a in artifacts.values())


class Candidate(msgspec.Struct, frozen=True, kw_only=True):
    """`work/<id>/proposals/<run_id>/candidate.json`; a version that is official, or what a
    withdrawal left of one, has the same shape.

    What has a default is unknown of a version that is read from its own records alone.
    """

    run_id: str = ""
    dataset_id: str
    proposal: int | None = None
    base_generation: int = 0
    base_version: str | None = None
    transform_hash: str
    updater_version: str
    spec_hash: str = ""
    policy_digest: str = ""
    precise: Stored = {}  # private datasets only: the records themselves, sealed
    # what it was merged with and judged against stays as long as it does
    records: Stored | UnsetType = UNSET
    books: Books = GONE  # of the part that was read; an unknown balance is none
    released: Books | None = None  # of the release, when there was one
    h3_resolution: int | None
    version_id: str
    version_digest: str
    artifacts: Stored
    content_id: str
    schema: tuple[Column, ...]
    profile: dict[str, ColumnProfile]
    bbox: tuple[float, float, float, float] | None
    interval: tuple[str, str] | None
    steps: tuple[Json, ...]
    invalid_geometries: int = 0
    # how the data were obtained; unset: from upstream itself
    origin: tuple[str, ...] | UnsetType = UNSET
    # (when this answer was made, when the official one was), by upstream's own word
    older: tuple[str, str] | UnsetType = UNSET
    change: Measured | UnsetType = UNSET  # against the version it was assembled on
    # column -> value -> records that say they are not for everybody
    restricted: dict[str, dict[str, int]] | UnsetType = UNSET

    @property
    def digests(self) -> dict[str, str]:
        """Artifact path -> digest."""
        return {path: artifact["digest"] for path, artifact in self.artifacts.items()}

    @property
    def rows(self) -> int:
        """Of all artifacts together."""
        return rows_in(self.artifacts)

    def written(self) -> bytes:
        """The bytes of the file."""
        return canonical.dumps(msgspec.to_builtins(self)) + b"\n"
