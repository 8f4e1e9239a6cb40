"""Rows of the store as records: runs, journals, jobs, and what is indexed from evidence."""

import datetime as dt
from collections.abc import Sequence
from typing import Literal, NamedTuple

import msgspec

from kfm.model.canonical import Json
from kfm.model.content import Mark, Place
from kfm.model.job import FOREVER

__all__ = [
    "DeliveryRow",
    "EventRow",
    "SAID_NO",
    "UNCHANGED",
    "Generation",
    "HeadKey",
    "JobRow",
    "LedgerRow",
    "NoopRow",
    "OutboxRow",
    "Phase",
    "RunDay",
    "Status",
    "Token",
    "WalRecord",
    "after_stamp",
    "believable",
    "denial_codes",
    "head_key_of",
    "is_older",
    "partition_lease",
    "stamps_of",
    "tries",
    "with_stamp",
]


class Token(NamedTuple):
    """The right to write under one lease; a newer (epoch, number) of the same lease makes it
    stale.
    """

    lease: str
    epoch: int
    number: int


def partition_lease(dataset_id: str, partition: str, win: str = "") -> str:
    """The lease that a run of a partition is made under, or one of a window alone; that of a
    dataset bears its name.
    """
    return f"{dataset_id}/{partition or '-'}{'/' if win else ''}{win}"


# the code of a person's no; in the ledger their name and words follow it
SAID_NO = "approval.rejected"


class RunDay(msgspec.Struct, frozen=True, kw_only=True):
    """How often runs ended so on one day, UTC, and the newest of them. A look that found what was
    denied, or what is proposed, counts as that.
    """

    day: str
    state: str
    runs: int
    run_id: str


class LedgerRow(msgspec.Struct, frozen=True, kw_only=True):
    """One run. Field names are column names; `sum` in the table covers all of them."""

    run_id: str
    wal_id: str
    dataset_id: str
    partition: str
    win: str
    state: str
    key: str
    timestamp: str
    source_metadata: str
    pipeline_version: str
    updater_id: str
    updater_version: str
    spec_hash: str
    transform_hash: str
    input_hash: str
    toolchain_digest: str
    attempt: int
    forced: int
    trigger_type: str
    base_version: str | None
    base_generation: int
    pinned: int | None = None  # the generation its candidate is assembled on
    part: str | None = None  # digest of the part, once durable
    version_id: str | None = None
    version_digest: str | None = None
    content_id: str | None = None
    intent: int | None = None  # the generation its promote may create
    promo: int = 0  # 1: it needs nobody any more, and is to be promoted
    reason: str = ""
    ended_at: str | None = None
    rows_read: int = 0
    rows_written: int = 0
    error_count: int = 0
    latency_ms: int | None = None
    freshness_minutes: int | None = None
    archived: int = 0  # 1: its journal lies beside its receipts as wal.jsonl
    # the backfill it was staged for, or whose parts it assembles (then `part` is the digest of the
    # list it pinned)
    backfill: str = ""

    @property
    def place(self) -> Place:
        return Place(self.partition, self.win)

    @property
    def mark(self) -> Mark:
        return Mark(self.input_hash, self.transform_hash, self.spec_hash)


def denial_codes(reason: str) -> tuple[str, ...]:
    """The codes of a denied run, read from its reason, which is where the ledger keeps them. What a
    person said with a no is not read.
    """
    if reason.startswith(f"{SAID_NO}:"):
        return (SAID_NO,)
    return tuple(code.strip() for part in reason.split(";") for code in part.split(" or "))


Phase = Literal["PLAN", "EXECUTE", "UPSERT", "LINEAGE"]
Status = Literal["PENDING", "IN_PROGRESS", "DONE", "FAILED"]  # of a step


class WalRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One journal record; `hash` covers everything and `prev` chains it to the one before."""

    wal_id: str
    seq: int
    phase: Phase
    step_id: str
    updater_id: str
    updater_version: str
    input_hash: str
    payload: str  # JSON
    status: Status
    ts: str
    prev: str
    hash: str


class JobRow(msgspec.Struct, frozen=True, kw_only=True):
    """One job. Field names are column names."""

    job_id: str
    job_type: str
    dataset_id: str
    partition: str
    win: str
    state: str
    again: int
    forced: int
    generation: int
    reason: str
    put_at: str
    pool: str = "default"
    priority: int = 0  # higher comes first
    vtime: int = 0  # its place in the fair order of its pool
    not_before: int = 0  # milliseconds since 1970
    put_ms: int = 0
    envelope: str = "{}"  # JSON: requested_by, inputs, parameters, trace
    owner: str | None = None  # the lease of the worker that has it
    token: int = 0
    attempts: int = 0  # failures of this generation; those within a minute are one
    losses: int = 0  # workers that died with it
    max_attempts: int = 5
    # succeeded, skipped, failed, cancelled, dead; while it waits: failed, or deferred to a time
    # that upstream named
    outcome: str = ""
    error: str = ""
    started_at: str | None = None
    ended_at: str | None = None
    wait_ms: int | None = None
    cancel: int = 0

    @property
    def tries(self) -> str:
        """How many failed, and of how many."""
        return tries(self.attempts, self.max_attempts)


def tries(failed: int, most: int) -> str:
    """How many tries failed, and of how many."""
    return f"{failed} (never given up)" if most >= FOREVER else f"{failed} of {most}"


class Generation(msgspec.Struct, frozen=True, kw_only=True):
    """One indexed channel generation: what it points at and what it keeps out."""

    dataset_id: str
    generation: int
    kind: str
    version_id: str | None
    version_digest: str | None
    run_id: str
    file_digest: str
    contents: dict[str, str]  # Place -> Mark, as they are written (`model/content.py`)
    held: dict[str, str]  # MadeKey or VersionKey -> the generation that rolled it back
    # InputKey, VersionKey, NameKey or RuleKey -> the generation that withdrew it
    suppressed: dict[str, str]

    def mark_at(self, place: Place) -> Mark | None:
        """The mark of what is official at a place; None: nothing is known to be there."""
        found = self.contents.get(str(place))
        return None if found is None else Mark.parse(found)

    @property
    def partitions(self) -> set[str]:
        """The partitions of which something is known to be official."""
        return {Place.parse(key).partition for key in self.contents}


class HeadKey(msgspec.Struct, frozen=True, kw_only=True):
    """What the last look at upstream saw, for the version that was official then."""

    dataset_id: str
    partition: str
    win: str
    run_key: str
    spec_hash: str
    input_hash: str
    etag: str
    version_id: str
    checked_at: str
    full_check_at: str


AHEAD = dt.timedelta(hours=1)  # so far may a clock upstream be ahead of ours
UNCHANGED = "unchanged"  # the code of a look that found upstream to say what is official


class NoopRow(msgspec.Struct, frozen=True, kw_only=True):
    run_id: str
    dataset_id: str
    partition: str
    win: str
    key: str
    reason: str
    names: str
    timestamp: str
    # what others decide by: unchanged, kept_out, older, proposed, denied, staged; empty: not known
    # any more
    code: str = ""


class OutboxRow(msgspec.Struct, frozen=True, kw_only=True):
    run_id: str
    dataset_id: str
    generation: int
    payload: str
    state: str


class DeliveryRow(msgspec.Struct, frozen=True, kw_only=True):
    """What one receiver outside is to be told of one generation. Field names are column names."""

    run_id: str
    generation: int
    receiver: str
    dataset_id: str
    state: str  # waiting, delivered, dropped (another took the number), failed (given up)
    tries: int
    not_before_ms: int
    error: str


def head_key_of(row: LedgerRow, checked_at: str, before: HeadKey | None = None) -> HeadKey:
    """What a committed run saw of upstream; one that worked a kept capture saw nothing newer than
    the look before it.
    """
    full_check_at = row.timestamp
    if row.trigger_type == "quarantine":
        checked_at, full_check_at = (
            (before.checked_at, before.full_check_at)
            if before is not None
            else ("1970-01-01T00:00:00Z",) * 2
        )
    etags = [s["etag"] or "" for s in msgspec.json.decode(row.source_metadata)]
    return HeadKey(
        dataset_id=row.dataset_id,
        partition=row.partition,
        win=row.win,
        run_key=row.key,
        spec_hash=row.spec_hash,
        input_hash=row.input_hash,
        etag=msgspec.json.encode(etags).decode() if all(etags) else "",
        version_id=str(row.version_id),
        checked_at=checked_at,
        full_check_at=full_check_at,
    )


def stamps_of(source_metadata: str) -> tuple[str, str]:
    """(when this answer was made, when the official one was as the run began), by upstream's own
    word.
    """
    sources = msgspec.json.decode(source_metadata)
    first = sources[0] if sources else {}
    return str(first.get("stamp", "")), str(first.get("official_stamp", ""))


def believable(stamp: str, at: str) -> bool:
    """Whether an answer can have been made when it says so: one from the future would keep every
    later one out.
    """
    return dt.datetime.fromisoformat(stamp) <= dt.datetime.fromisoformat(at) + AHEAD


class EventRow(msgspec.Struct, frozen=True, kw_only=True):
    """An event as the store keeps it. Field names are column names."""

    event_id: str
    source_id: str
    received_at: str
    received_ms: int
    key_id: str  # the reference of the key that signed it
    body_digest: str
    event: str  # JSON of `Event`
    started: str  # JSON: [dataset, job id, generation] of each job that was put
    note: str = ""  # why nothing was started


def is_older(said: str, official: str) -> bool:
    """Whether an answer is older than another, by upstream's own word; where it says nothing, it is
    what upstream says now.
    """
    return bool(said and official) and said < official


def after_stamp(sources: Sequence[Json], official: str) -> str:
    """The sources of a run that begins, with the stamp of what is official then: a resumed or
    rebuilt run compares with the same one.
    """
    first, *rest = ({k: v for k, v in s.items() if k != "official_stamp"} for s in sources)
    return msgspec.json.encode(
        [first | ({"official_stamp": official} if official else {}), *rest]
    ).decode()


def with_stamp(source_metadata: str, stamp: str) -> str:
    """The sources of a run with what was found out about their answer."""
    first, *rest = msgspec.json.decode(source_metadata)
    return msgspec.json.encode([{**first, "stamp": stamp}, *rest]).decode()
