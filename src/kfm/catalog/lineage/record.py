"""The lineage of one run: what it used, what it made of that, and what both owe."""

from collections.abc import Callable, Mapping
from typing import Literal

import msgspec
from msgspec import UNSET, UnsetType

from kfm.model import DatasetEntry, Json, LedgerRow, without_emitter
from kfm.model.labels import discharged, obligations

__all__ = [
    "Facts",
    "LineageRecord",
    "Made",
    "Used",
    "entry_of",
    "made_of",
    "read",
    "record_of",
    "used_of",
]

Kind = Literal["table", "partition", "companion", "stac_item", "tile_set"]
_LABELS = ("sensitivity", "policy_label", "care_label", "licence")
_OWN = "kfm://dataset/"
_written = msgspec.json.Encoder(order="sorted").encode


class Used(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An input as it may be told: its address, and its digest or a commitment to it."""

    uri: str
    hash: str
    # DATASET@VERSION: of a dataset of this workspace, what was official of it
    version: str | UnsetType = UNSET
    table: str | UnsetType = UNSET  # and which of its files
    origin: str | UnsetType = UNSET  # how it was obtained; unset: from upstream itself


class Made(msgspec.Struct, frozen=True, kw_only=True):
    """One thing a run made: a file of a version, or what was made of one."""

    kind: Kind
    path: str  # below the version
    hash: str


class LineageRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """`work/<id>/runs/<run_id>/lineage.json`: what one run used and made. All of it may be told to
    everybody: where an input may not, a commitment stands for it.
    """

    run_id: str
    updater_id: str
    updater_version: str
    wal_id: str
    trigger_type: str
    started_at: str
    dataset_id: str
    generation: int  # that made it official
    version_id: str
    version_digest: str
    base_version: str | None = None
    merged: bool = False  # what the base held is in it, too
    inputs: tuple[Used, ...]
    outputs: tuple[Made, ...]
    stac_id: str | None = None
    labels: dict[str, str] = {}  # sensitivity, policy_label, care_label, licence: those there are
    obligations: tuple[str, ...] = ()  # of what it was made from and of itself
    discharged: tuple[str, ...] = ()  # those that its release did away with
    h3_resolution: int | None = None  # of its places
    of_version: bool = False  # it made something of a version that was there

    @property
    def version(self) -> str:
        """The version it made, or made something of."""
        return f"{self.dataset_id}@{self.version_id}"

    @property
    def owed(self) -> tuple[str, ...]:
        """What a reader still has to have: a grant."""
        return tuple(o for o in self.obligations if o not in self.discharged)

    def written(self) -> bytes:
        """The bytes of the file, which are those of the index too."""
        # text and small numbers under our own names: sorted, msgspec writes those canonically
        return _written(self)


def read(raw: bytes | str) -> LineageRecord:
    """A record as it was written down. Raises `msgspec.DecodeError` when it is none."""
    return msgspec.json.decode(raw, type=LineageRecord)


class Facts(msgspec.Struct, frozen=True):
    """What a run's own evidence says of the version it made."""

    spec: Json | None  # as it was expanded for the run
    artifacts: Mapping[str, str]  # path -> digest
    records: Mapping[str, str]  # the same of the records beside them


def record_of(public: Callable[[str, str], str], row: LedgerRow, facts: Facts) -> LineageRecord:
    """The lineage of a promoted run; promote and reindex both make it here, so that they say the
    same.

    `public(dataset_id, value)` gives what may be told of an input: its digest, or a commitment to
    it.
    """
    d, entry = row.dataset_id, entry_of(facts.spec)
    sources: list[Json] = msgspec.json.decode(row.source_metadata)
    stac = facts.records.get("stac.json")
    owed = [o for s in sources for o in s.get("obligations", ())]
    return LineageRecord(
        run_id=row.run_id,
        updater_id=row.updater_id,
        updater_version=row.updater_version,
        wal_id=public(d, row.wal_id),
        trigger_type=without_emitter(row.trigger_type),
        started_at=row.timestamp,
        dataset_id=d,
        generation=int(row.intent or 0),
        version_id=str(row.version_id),
        version_digest=str(row.version_digest),
        base_version=row.base_version,
        merged=row.base_version is not None and _merges(row, entry),
        inputs=used_of(public, row),
        outputs=made_of(d, facts.artifacts, stac),
        stac_id=str(row.version_id) if stac is not None else None,
        labels=_labels(facts.spec),
        obligations=tuple(sorted({*owed, *(obligations([entry]) if entry is not None else ())})),
        discharged=discharged(entry) if entry is not None else (),
        h3_resolution=entry.release.h3_resolution if entry and entry.release else None,
    )


def used_of(public: Callable[[str, str], str], row: LedgerRow) -> tuple[Used, ...]:
    """The inputs of a run as they may be told."""
    sources: list[Json] = msgspec.json.decode(row.source_metadata)
    return tuple(_used(public, row.dataset_id, s) for s in sources)


def _used(public: Callable[[str, str], str], dataset_id: str, source: Json) -> Used:
    url = str(source["source_url"])
    version, table = source.get("version"), source.get("table")
    return Used(
        uri=url,
        hash=public(dataset_id, source["digest"]) if source["digest"] else "",
        version=f"{url.removeprefix(_OWN)}@{version}" if version else UNSET,
        table=table or UNSET,
        origin=source.get("origin") or UNSET,
    )


def _merges(row: LedgerRow, entry: DatasetEntry | None) -> bool:
    """Whether what was official before went into it: a window is a piece of the whole, and so are
    records that had been set aside.
    """
    pieces = bool(row.win or row.backfill) or row.trigger_type == "quarantine"
    return pieces or (entry is not None and entry.merge != "replace")


def made_of(dataset_id: str, artifacts: Mapping[str, str], stac: str | None) -> tuple[Made, ...]:
    """The files of a version, each with what it is, and the STAC item that describes it."""
    found = [Made(kind=_kind(dataset_id, p), path=p, hash=d) for p, d in sorted(artifacts.items())]
    if stac is not None:
        found.append(Made(kind="stac_item", path="stac.json", hash=stac))
    return tuple(found)


def _kind(dataset_id: str, path: str) -> Kind:
    if not path.endswith(".parquet"):
        return "companion"
    return "table" if path == f"{dataset_id}.parquet" else "partition"


def _labels(spec: Json | None) -> dict[str, str]:
    """The labels a run was made under, from the spec in its journaled PLAN or its record: whoever
    tells them later says the same.
    """
    registry = (spec or {}).get("registry") or {}
    return {name: registry[name] for name in _LABELS if registry.get(name)}


def entry_of(spec: Json | None) -> DatasetEntry | None:
    """The registry entry a run was made under; None where its spec does not say, or says it in
    words of another kfm.
    """
    try:
        return msgspec.convert((spec or {})["registry"], DatasetEntry)
    except (KeyError, msgspec.ValidationError):
        return None
