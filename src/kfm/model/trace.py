"""W3C Trace Context: what a request says it is part of, and the span that a run is in it."""

import hashlib
import re
from typing import NamedTuple

__all__ = ["Traceparent", "asked_by", "parse", "span_id", "trace_of_run"]

_FORM = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?", re.ASCII)
_RECORDED = "01"


class Traceparent(NamedTuple):
    """A trace, the span that calls, and its flags."""

    trace_id: str
    parent_id: str
    flags: str

    @property
    def text(self) -> str:
        return f"00-{self.trace_id}-{self.parent_id}-{self.flags}"


def parse(value: str) -> Traceparent | None:
    """What a traceparent says; None when it has to be passed over. A version after 00 may say
    more behind its four fields, 00 may not.
    """
    found = _FORM.fullmatch(value)
    if found is None or found[1] == "ff" or (found[1] == "00" and found[5]):
        return None
    if not found[2].strip("0") or not found[3].strip("0"):
        return None
    return Traceparent(found[2], found[3], found[4])


def trace_of_run(traceparent: str, correlation_id: str, run_id: str) -> Traceparent:
    """The trace a run belongs to: that of the request that caused it, else one of all work of its
    cause, whose parent is nobody. It follows from names, so that a repetition is the same.
    """
    found = parse(traceparent)
    if found is not None:
        return found
    trace = hashlib.sha256((correlation_id or run_id).encode()).hexdigest()[:32]
    return Traceparent(trace, "", _RECORDED)


def span_id(run_id: str, attempt: int) -> str:
    """One attempt of a run is one span."""
    return hashlib.sha256(f"{run_id}/{attempt}".encode()).hexdigest()[:16]


def asked_by(traceparent: str, correlation_id: str, run_id: str) -> str:
    """The traceparent of what a run asks for: the same trace, and the run's first attempt is the
    span that calls.
    """
    trace = trace_of_run(traceparent, correlation_id, run_id)
    return trace._replace(parent_id=span_id(run_id, 0)).text
