"""What the reader was asked and what it answered: a line for every request in
`ledger/logs/reader-<day>.jsonl`, with the fields of the lines of workers, a line for every
decision, before anything leaves, in `ledger/logs/decisions-<day>.jsonl`, and a line for every act and
every login, before it is done and when it was, in `ledger/logs/audit-<day>.jsonl`.
"""

import contextlib
from typing import Literal

import msgspec

from kfm.model import KfmError, masked
from kfm.model.paths import log_path
from kfm.zones.base import Zone

__all__ = [
    "AuditLine",
    "Audited",
    "DecisionLine",
    "RequestLine",
    "log_audit",
    "log_decision",
    "log_request",
]


class RequestLine(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One request. What lines of workers have too means the same: a job is a request."""

    timestamp: str
    service: Literal["reader"]
    job_type: str  # the route: `GET /datasets/{dataset_id}`
    job_id: str  # of the request; the answer has it as `KFM-Request`
    run_id: str
    correlation_id: str
    dataset_ids: tuple[str, ...]
    zone_in: str
    zone_out: str
    policy_label: str
    status: Literal["started", "succeeded", "failed", "skipped"]
    duration_ms: int = 0
    error: dict[str, str] | None = None
    # beside them
    answer: int  # the status of HTTP
    bytes_out: int = 0
    reader: str | None = None  # who asked, by name
    decision_ids: tuple[str, ...] = ()


class DecisionLine(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What was handed out, or refused, to whom, by which decision of the rules."""

    timestamp: str
    job_id: str
    address: str
    reader: str | None
    answer: int
    dataset_ids: tuple[str, ...]
    decision_ids: tuple[str, ...]
    policy_digest: str
    refused: tuple[str, ...] = ()  # codes


Audited = Literal["allowed", "done", "refused", "failed"]


class AuditLine(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Who did what through the console, or was not let."""

    timestamp: str
    job_id: str  # of the request
    act: str  # `login`, `ask for a run`, …
    address: str
    decision: Audited
    who: str | None  # by name; None: nobody who is known, or who works at this machine
    role: str = ""
    how: str = ""  # by a token, an issuer's word, a session, or here: at this machine
    client: str = ""  # the address it came from
    dataset_id: str = ""
    said: str = ""  # what became of it, or why not


def log_audit(root: Zone, line: AuditLine) -> None:
    """Raises when it cannot be written: what nobody could account for is not done."""
    _append(root, "audit", line.timestamp, line)


def log_request(root: Zone, line: RequestLine) -> None:
    """Telemetry may be lost."""
    with contextlib.suppress(KfmError, OSError):
        _append(root, "reader", line.timestamp, line)


def log_decision(root: Zone, line: DecisionLine) -> None:
    """Raises when it cannot be written: what nobody could account for does not leave."""
    _append(root, "decisions", line.timestamp, line)


def _append(root: Zone, name: str, at: str, line: msgspec.Struct) -> None:
    text = masked(msgspec.json.encode(line).decode()) + "\n"
    root.append(log_path(f"{name}-{at[:10]}.jsonl"), text.encode())
