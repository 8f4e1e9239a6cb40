"""What a person writes: the workspace file, a dataset's registry entry and an updater's configuration."""

from typing import Annotated, Any, Literal

import msgspec

from kfm.model.ids import DATASET_ID_PATTERN, ID_PATTERN

__all__ = [
    "Column",
    "DatasetEntry",
    "Source",
    "UpdaterConfig",
    "UpdaterSource",
    "WorkspaceConfig",
]

DatasetId = Annotated[str, msgspec.Meta(pattern=f"^{DATASET_ID_PATTERN}$")]
Identifier = Annotated[str, msgspec.Meta(pattern=f"^{ID_PATTERN}$")]
Text = Annotated[str, msgspec.Meta(min_length=1)]


class WorkspaceConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`kfm.yml`: marks a folder as a workspace."""

    format: Literal[1] = 1
    store: str = "sqlite:///ledger/idempotency.sqlite"
    zones: str = "file:///data"
    allow_loopback: bool = False
    lease_seconds: Annotated[int, msgspec.Meta(ge=1, le=3600)] = 15


class Column(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One column of a dataset's schema."""

    name: Text
    type: Literal["string", "integer", "number", "boolean", "timestamp", "date", "geometry", "json"]
    nullable: bool = True
    unit: str | None = None


class Source(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where a dataset comes from.

    `{since}`, `{until}` and `{partition}` in `url` are filled at run time; query fields whose value stays empty are left out.
    """

    kind: Literal["http_file"] = "http_file"
    url: Text
    format: Literal["csv", "json", "geojson"]
    encoding: str | None = None  # None: a byte order mark or UTF-8
    hosts: tuple[str, ...] = ()  # beside the host of `url`, which is always allowed
    records: str | None = None  # JSON only: dotted path to the array of records; None: the document itself or its only array
    time_column: str | None = None  # rows outside the window are dropped by rule
    recheck: str = "24h"  # at least this often the whole body is fetched; 0 = always
    headers: dict[str, str] = {}  # values may be references: env:NAME or file:PATH, never secrets themselves
    max_bytes: Annotated[int, msgspec.Meta(ge=1)] = 64 * 2**30
    completeness: Annotated[int, msgspec.Meta(ge=0)] = 0  # fewer rows than this: PARTIAL, not promotable


class DatasetEntry(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`data/registry/<dataset_id>.yml`: one registered stream."""

    dataset_id: DatasetId
    title: Text
    licence: str | None = None  # an SPDX id; missing or NOASSERTION denies promotion
    sensitivity: Literal["public", "restricted", "sensitive-location", "aggregate-only"] | None = None
    policy_label: str | None = None
    source: Source
    business_key: tuple[str, ...] = ()
    schema: tuple[Column, ...] = ()  # empty: taken from the first capture
    merge: Literal["replace", "upsert", "partition"] = "replace"
    partitions: tuple[Identifier, ...] = ()
    max_quarantined: Annotated[float, msgspec.Meta(ge=0, le=1)] = 0.01
    pipeline_version: Text = "1.0.0"
    description: str = ""


class UpdaterSource(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One source of an updater's configuration."""

    source_id: Identifier
    source_url: Text
    format: Literal["csv", "json", "geojson"]


class UpdaterConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The `--config` file of `python -m updater run`."""

    dataset_id: DatasetId
    pipeline_version: Text
    sources: Annotated[tuple[UpdaterSource, ...], msgspec.Meta(min_length=1)]
    workspace: str | None = None
    window: str | None = None
    publisher: Literal["local", "noop", "trace"] = "local"


def as_plain(record: Any) -> Any:
    """A record as plain JSON values."""
    return msgspec.to_builtins(record)
