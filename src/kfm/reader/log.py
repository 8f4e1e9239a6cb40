"""What the reader was asked and what it answered: a line for every request in
`ledger/logs/reader-<day>.jsonl`, with the fields of the lines of workers, a line for every
decision, before anything leaves, in `ledger/logs/decisions-<day>.jsonl`, and a line for every act and
every login, before it is done and when it was, in `ledger/logs/audit-<day>.jsonl`.
"""

import contextlib
import os
import sys
import threading
from typing import Literal, NamedTuple

import msgspec

from kfm.model import KfmError, masked
from kfm.model.paths import log_path
from kfm.zones.base import Zone

__all__ = [
    "AuditLine",
    "Audited",
    "DecisionLine",
    "Logs",
    "NotWritten",
    "RequestLine",
    "log_audit",
    "log_decision",
    "log_request",
]


_DECISIONS, _AUDIT, _REQUESTS = "decisions", "audit", "reader"
# what is not done as long as a log cannot be written
_WITHOUT = {
    _DECISIONS: "Nothing is handed out.",
    _AUDIT: "Nobody is let in, and nothing is done through the console.",
    _REQUESTS: "Requests are answered, and not counted there.",
}


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


class NotWritten(Exception):
    """What is handed out could not be written down the last time."""


class _Open(NamedTuple):
    """A file of lines, held open."""

    path: str
    at: str  # where it lies on this machine
    descriptor: int
    which: tuple[int, int]


class Logs:
    """The logs of a workspace. The file of a day is held open, and a line is put into what lies under
    its name now: whoever moves it away finds the next line in a new one. May be used by several
    threads.
    """

    def __init__(self, root: Zone) -> None:
        self._root, self._lock = root, threading.Lock()
        self._open: dict[str, _Open] = {}
        self._trouble: dict[str, str] = {}  # why the last line of a log could not be written
        self._torn: set[str] = set()  # files whose last line may be half a one

    @property
    def hands_out(self) -> bool:
        """Whether what is handed out could be written down the last time."""
        return _DECISIONS not in self._trouble

    def append(self, name: str, day: str, line: bytes) -> None:
        """A line more, whole. Raises what the zone raises; whoever started it is told once."""
        with self._lock:
            try:
                self._append(name, log_path(f"{name}-{day}.jsonl"), line)
            except (KfmError, OSError) as error:
                why = getattr(error, "strerror", None) or getattr(error, "happened", None)
                if name not in self._trouble:
                    said = f"The log of {name} cannot be written: {why or error}."
                    sys.stderr.write(f"{said} {_WITHOUT[name]}\n")
                self._trouble[name] = str(why or error)
                raise
            self._trouble.pop(name, None)

    def _append(self, name: str, path: str, line: bytes) -> None:
        held = self._open.get(name)
        is_held = held is not None and held.path == path and _which(held.at) == held.which
        # what a full disk, or who was killed here before, left of a line is no part of this one
        if (path in self._torn or not is_held) and not self._ends_whole(path):
            line = b"\n" + line
        self._torn.add(path)
        rest = line[os.write(held.descriptor, line) :] if held is not None and is_held else line
        if rest:
            self._root.append(path, rest)
            self._hold(name, path)
        self._torn.discard(path)

    def _ends_whole(self, path: str) -> bool:
        """Whether a log that others wrote ends with a whole line; one that is not there does."""
        try:
            flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
            descriptor = os.open(self._root.local(path), flags)
        except (KfmError, OSError):
            return True
        try:
            size = os.fstat(descriptor).st_size
            return not size or os.pread(descriptor, 1, size - 1) == b"\n"
        finally:
            os.close(descriptor)

    def close(self) -> None:
        with self._lock:
            for held in self._open.values():
                os.close(held.descriptor)
            self._open.clear()

    def _hold(self, name: str, path: str) -> None:
        held = self._open.pop(name, None)
        if held is not None:
            os.close(held.descriptor)
        with contextlib.suppress(OSError):  # then the next line goes the whole way, too
            at = str(self._root.local(path))
            flags = os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
            descriptor = os.open(at, flags)
            found = os.fstat(descriptor)
            self._open[name] = _Open(path, at, descriptor, (found.st_dev, found.st_ino))


def _which(at: str) -> tuple[int, int] | None:
    """Which file lies under a name, if any does."""
    try:
        found = os.lstat(at)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def log_audit(logs: Logs, line: AuditLine) -> None:
    """Raises when it cannot be written: what nobody could account for is not done."""
    _append(logs, _AUDIT, line.timestamp, line)


def log_request(logs: Logs, line: RequestLine) -> None:
    """Telemetry may be lost."""
    with contextlib.suppress(KfmError, OSError):
        _append(logs, _REQUESTS, line.timestamp, line)


def log_decision(logs: Logs, line: DecisionLine) -> None:
    """Raises when it cannot be written: what nobody could account for does not leave."""
    _append(logs, _DECISIONS, line.timestamp, line)


def _append(logs: Logs, name: str, at: str, line: msgspec.Struct) -> None:
    text = masked(msgspec.json.encode(line).decode()) + "\n"
    logs.append(name, at[:10], text.encode())
