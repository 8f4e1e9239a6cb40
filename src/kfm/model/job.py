"""Jobs as records: what is asked for, the envelope that carries it, and how long to wait before it
is tried again.
"""

import zlib
from typing import Annotated, Literal

import msgspec

from kfm.model.canonical import Json
from kfm.model.errors import UsageError
from kfm.model.ids import DATASET_ID_PATTERN

__all__ = [
    "FOREVER",
    "INGEST",
    "PROMOTE",
    "Envelope",
    "Input",
    "JobLine",
    "Request",
    "Signal",
    "Trace",
    "backoff_ms",
    "check_inputs",
]

INGEST = "ingest.pull_source"  # the type of the jobs that bring a dataset up to date
PROMOTE = "promote"  # of those that make official what was proposed
FOREVER = 1_000_000  # tries of a job that nobody gives up
URI = r"^(kfm://(dataset|version|capture|doc)/[A-Za-z0-9][A-Za-z0-9._@/-]*|https?://\S+|sha256:[0-9a-f]{64})$"
DATASET_URI = f"kfm://dataset/(?P<id>{DATASET_ID_PATTERN})"


class Input(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """What a job works on, by a name that means the same everywhere."""

    kind: Literal["dataset", "file", "uri"]
    id: Annotated[str, msgspec.Meta(pattern=URI)]
    # empty: what is official when it runs
    checksum: Annotated[str, msgspec.Meta(pattern=r"^(sha256:[0-9a-f]{64})?$")] = ""


class Trace(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which run asked for it, and the id that all work of one cause carries."""

    parent_run_id: str | None = None
    correlation_id: str = ""
    traceparent: str | msgspec.UnsetType = msgspec.UNSET  # W3C: what a request was part of


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """A wish for work, before it has a row."""

    job_type: str
    dataset_id: str = ""
    partition: str = ""
    win: str = ""
    inputs: tuple[Input, ...] = ()  # empty with a dataset: that dataset
    parameters: Json = {}
    requested_by: str = "system"
    pool: str = ""  # empty: the pool of its row, else default
    priority: int = 0  # higher comes first
    not_before: int = 0  # milliseconds since 1970, UTC
    max_attempts: int = 5
    forced: int = 0
    reason: str = ""
    trace: Trace = Trace()
    event: str = ""  # the digest of an event, where no window tells two jobs apart
    once: bool = False  # an ended job stays ended


class Envelope(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`kfm jobs show --json`: the envelope of a job, as documented."""

    job_id: str
    job_type: str
    requested_by: Annotated[str, msgspec.Meta(pattern=r"^(system|user:.+)$")]
    requested_at: str
    inputs: tuple[Input, ...]
    parameters: Json
    trace: Trace


class JobLine(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One line of a worker's log."""

    timestamp: str
    service: Literal["workers"]
    job_type: str
    job_id: str
    run_id: str
    correlation_id: str
    dataset_ids: tuple[str, ...]
    zone_in: str
    zone_out: str
    policy_label: str
    status: Literal["started", "succeeded", "failed", "skipped"]
    duration_ms: int = 0
    error: dict[str, str] | None = None


class Signal(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One line of `ledger/logs/signals-<day>.jsonl`."""

    timestamp: str
    signal: Literal[
        "run.lifecycle", "pool.wait_ms", "freshness.delta_minutes", "artifact.size_bytes"
    ]
    value: str | int | float  # of a lifecycle: queued, started, succeeded, failed, cancelled
    job_id: str = ""
    run_id: str = ""
    job_type: str = ""
    dataset_id: str = ""
    pool: str = ""
    uri: str = ""  # of an artifact
    target_minutes: float | None = None


def check_inputs(inputs: tuple[Input, ...]) -> tuple[Input, ...]:
    """`inputs`, refused when one of them is a path instead of a name."""
    try:
        return msgspec.convert(msgspec.to_builtins(inputs), tuple[Input, ...])
    except msgspec.ValidationError as error:
        raise UsageError(
            f"An input of the job is not named in a stable way: {error}.",
            expected="kfm://dataset/<id>, a URL, or sha256:<digest>; never a path",
            remedy="Register the data as a dataset, then name that.",
        ) from error


def backoff_ms(job_id: str, attempts: int, since_ms: int = 0) -> int:
    """How long to wait after the `attempts`-th failure: a second after the first, then minutes,
    five at most, spread by a quarter.

    `since_ms`: how long ago the failure was that this one counts with; the pause is no shorter, so
    tries within a minute are few.
    """
    spread = zlib.crc32(f"{job_id} {attempts}".encode()) / 0xFFFFFFFF / 2 + 0.75
    pause = 1000 if attempts <= 1 else 60_000 * 2 ** min(attempts - 2, 10)
    return int(min(max(pause, since_ms), 300_000) * spread)
