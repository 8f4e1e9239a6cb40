"""What a run leaves: receipt, records and artifact lines, as documented."""

from typing import Annotated, Any, Literal

import msgspec

from kfm.model.canonical import Json

__all__ = [
    "IdempotencyState",
    "LogLine",
    "Promotion",
    "Receipt",
    "RunManifest",
    "RunRecord",
    "TelemetryEvent",
    "TraceLine",
    "ValidationReport",
]

# hmac: a commitment to something private
Checksum = Annotated[str, msgspec.Meta(pattern=r"^((sha256|hmac-sha256):[0-9a-f]{64})?$")]
Hex = Annotated[str, msgspec.Meta(pattern=r"^[0-9a-f]{64}$")]
Moment = Annotated[str, msgspec.Meta(pattern=r"^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}(\.\d+)?Z$")]


class ReceiptInput(msgspec.Struct, frozen=True, kw_only=True):
    kind: Literal["dataset", "file", "uri"]
    id: str
    checksum: Checksum


class ReceiptOutput(msgspec.Struct, frozen=True, kw_only=True):
    kind: Literal["dataset", "file", "uri"]
    id: str
    checksum: Checksum
    zone: Literal["Raw", "Work", "Processed", "Published"]


class PolicyDecision(msgspec.Struct, frozen=True, kw_only=True):
    decision: Literal["allow", "deny", "sanitize"]
    gate: str
    reason: str


class Provenance(msgspec.Struct, frozen=True, kw_only=True):
    tool_versions: dict[str, str | None]
    transforms: tuple[dict[str, str], ...]
    policy_decisions: tuple[PolicyDecision, ...]
    files: dict[str, Checksum]
    # null: the workspace lies in no repository; "+dirty": with changes on top
    git_sha: str | msgspec.UnsetType | None = msgspec.UNSET


class PolicyAsked(msgspec.Struct, frozen=True, kw_only=True):
    decision_id: str
    policy_digest: str
    engine: str


class Promotion(msgspec.Struct, frozen=True, kw_only=True):
    """What was looked at last before a generation was named, each told by whatever looked at it:
    what nobody looked at is not here.
    """

    generation: int
    # the token, "<epoch>.<number>", that the store found to be the newest of the dataset's lease
    lease: str
    # as judged again, on the policy and labels of then
    gates: dict[str, Literal["pass", "review", "deny"]]
    policy: PolicyAsked | None


class ReceiptError(msgspec.Struct, frozen=True, kw_only=True):
    message: str
    stack: str | None


class Receipt(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """`receipts/{job_type}/{yyyy}/{mm}/{dd}/{run_id}.json`."""

    run_id: str
    job_id: str
    job_type: str
    dataset_id: str
    started_at: Moment
    finished_at: Moment
    status: Literal["succeeded", "failed", "skipped"]
    reason: str
    run_key: str
    spec_hash: str
    output_keys: tuple[str, ...]
    inputs: tuple[ReceiptInput, ...]
    outputs: tuple[ReceiptOutput, ...]
    provenance: Provenance
    errors: tuple[ReceiptError, ...]
    dry_run: bool = False
    parameters: Json = {}  # of jobs that are not ingests
    request_reason: str = ""  # why a person asked for it
    correlation_id: str = ""
    # what whoever relies on the outputs should know of how they were made
    warnings: tuple[str, ...] = ()
    promotion: Promotion | msgspec.UnsetType = msgspec.UNSET  # of a run that made a generation
    # of a run: the key that vouches for its outputs, and the label they were made under
    built_by: str | msgspec.UnsetType = msgspec.UNSET
    sensitivity: str | msgspec.UnsetType = msgspec.UNSET


class RunRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """`work/<id>/runs/<run_id>/run_record.json`: what was asked, expanded, and everything needed to
    ask it again.
    """

    run_id: str
    dataset_id: str
    partition: str
    window: str
    wal_id: str
    run_key: str
    spec_hash: str
    spec_file_hash: str | None
    transform_hash: str
    input_hash: str
    plan_hash: str | None
    toolchain_digest: str
    pipeline_version: str
    updater_id: str
    updater_version: str
    trigger_type: str
    forced: bool
    attempt: int
    base_generation: int
    base_version: str | None
    version_id: str | None
    version_digest: str | None
    content_id: str | None
    rows_read: int
    rows_written: int
    sources: tuple[Json, ...]
    spec: Json | None
    started_at: Moment
    tool_versions: dict[str, str]
    git_sha: str | msgspec.UnsetType | None = msgspec.UNSET  # as in a receipt
    request_reason: str = ""
    image_digest: str | None = None
    dry_run: bool = False
    backfill: str = ""
    parts: str = ""  # of an assembling run: the digest of the list of parts it pinned
    # of a private dataset: the sealed records that the official version stood for when it was
    # pinned
    records: Json = {}


class Check(msgspec.Struct, frozen=True, kw_only=True):
    check: str
    value: Any
    threshold: Any
    verdict: Literal["pass", "deny", "not judged", "not spatial", "not looked at"]


class Sections(msgspec.Struct, frozen=True, kw_only=True):
    schema: tuple[Check, ...]
    geo: tuple[Check, ...]
    time: tuple[Check, ...]
    licence: tuple[Check, ...]
    policy: tuple[Check, ...]
    quality: tuple[Check, ...] = ()


class ValidationReport(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """`work/<id>/runs/<run_id>/validation_report.json`."""

    run_id: str
    dataset_id: str
    ok: bool
    sections: Sections
    reasons: tuple[dict[str, str], ...]
    warnings: tuple[str, ...]
    review: tuple[dict[str, str], ...] = ()
    dry_run: bool = False


class RunManifest(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """`work/<id>/runs/<run_id>/run_manifest.json`: the promotion contract, with the verdicts it was
    judged by.
    """

    run_id: str
    dataset_id: str
    version_id: str | None
    version_digest: str | None
    base_generation: int | None
    generation: int | None
    artifacts: dict[str, Json]
    output_keys: tuple[str, ...]
    verdicts: tuple[Json, ...]
    dry_run: bool = False


class IdempotencyState(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """`artifacts/idempotency.json`."""

    run_id: str
    dataset_id: str
    source_url: str
    etag: str
    window: str
    pipeline_version: str
    key: Hex
    output_keys: tuple[str, ...]
    spec_hash: str
    state: str
    sources: tuple[dict[str, str], ...] = ()
    dry_run: bool = False


class LogLine(msgspec.Struct, frozen=True, kw_only=True):
    """One line of `artifacts/run.jsonl`; events add facts of their own."""

    run_id: str
    ts: Moment
    level: Literal["info", "warning", "error"]
    event: Annotated[str, msgspec.Meta(pattern=r"^[a-z]+(\.[a-z]+)+$")]
    stage: Literal[
        "watch", "idempotency", "validate", "transform", "publish", "telemetry", "ledger"
    ]
    dataset_id: str


class TelemetryEvent(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One line of `artifacts/event_log.jsonl`."""

    event_id: str
    name: str
    ts: Moment
    run_id: str
    duration_ms: Annotated[int, msgspec.Meta(ge=0)]
    dataset: str
    source_id: str
    trigger: str
    idempotency_state: str
    artifact_count: Annotated[int, msgspec.Meta(ge=0)]
    dry_run: bool = False


class TraceLine(msgspec.Struct, frozen=True, kw_only=True):
    """One line of `artifacts/publisher_trace.jsonl`; each call adds its arguments."""

    run_id: str
    seq: Annotated[int, msgspec.Meta(ge=1)]
    ts: Moment
    call: Literal["write_file", "emit_event", "update_metadata", "publish_release", "noop_guard"]
