"""W3C Trace Context: what a request says it is part of, or a beginning of our own."""

import re
from collections.abc import Sequence
from random import Random, SystemRandom

from kfm.model.trace import Traceparent, parse

__all__ = ["Traceparent", "correlation_of", "new_trace", "parse", "trace_of"]

# nobody is kept out by it: it has to differ, not to be secret
_drawn = Random(SystemRandom().getrandbits(256)).getrandbits
_CORRELATION = re.compile(rb"[A-Za-z0-9][A-Za-z0-9._:-]{0,127}")


def new_trace() -> Traceparent:
    """A trace that begins here; nobody has asked for it to be recorded."""
    drawn = f"{_drawn(192):048x}"
    return Traceparent(drawn[:32], drawn[32:], "00")


def trace_of(values: Sequence[bytes]) -> Traceparent:
    """The trace of a request with these traceparent headers; two contradict each other."""
    found = parse(values[0].decode("latin-1")) if len(values) == 1 else None
    return found if found is not None else new_trace()


def correlation_of(value: bytes | None, trace: Traceparent) -> str:
    """The id that all work of this cause carries: the sender's, when it is plain, else the
    trace's.
    """
    if value is not None and _CORRELATION.fullmatch(value) is not None:
        return value.decode()
    return trace.trace_id
