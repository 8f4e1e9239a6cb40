"""What becomes of a request: refused, or an event that is to be kept. Pure, and the same work for a
source that is known and for one that is not.
"""

import datetime as dt
import fnmatch
from collections.abc import Mapping
from functools import lru_cache
from hashlib import sha256

import msgspec

from kfm.model import Event, EventTrace, Integrity, Json, WebhookSource
from kfm.webhook.document import Refused, moment_ns, read_document
from kfm.webhook.shapes import Told, told_by, without_addresses
from kfm.webhook.sources import Source, Table
from kfm.webhook.trace import Traceparent, correlation_of, trace_of
from kfm.webhook.verify import (
    DAYS_30,
    MINUTES_10,
    TOLERANCE_S,
    Headers,
    Scheme,
    Signed,
    nobodys_keys,
    verify_signature,
)

__all__ = ["Heard", "Request", "judge", "rfc3339_ns", "trace_in"]

_NS = 1_000_000_000
_UNKNOWN = Refused(403, "source.unknown")


class Request(msgspec.Struct, frozen=True):
    """A request as it arrived, read no further than its size allows."""

    source_id: str
    headers: Headers
    body: bytes
    now_ns: int


class Heard(msgspec.Struct, frozen=True):
    """An event that its source has signed."""

    source: Source
    event_id: str
    replay_id: str
    kept_s: int
    key: str
    body_digest: str
    received_ns: int
    event: bytes  # JSON
    trace: EventTrace
    note: str  # why nothing is started by it; empty: its datasets are asked for


def judge(request: Request, table: Table, epoch_ns: int) -> Heard | Refused:
    """Whether a request is believed, and what it says. `epoch_ns`: what was sent before was told to
    a store that is no more.
    """
    source, guessed = table.sources.get(request.source_id), _guessed(request.headers)
    others = nobodys_keys(table.most_keys)
    signed = verify_signature(
        source.scheme if source is not None else guessed,
        source.keys if source is not None else others,
        request.headers,
        request.body,
        request.now_ns // _NS,
        table.most_keys,
    )
    if isinstance(signed, Refused):
        return signed if source is not None else _UNKNOWN
    if source is None:  # nobody has that key
        return _UNKNOWN
    if len(request.body) > source.told.max_bytes:
        return Refused(413, "body.too_large", said=f"At most {source.told.max_bytes:,} bytes.")
    told = _told(request, source)
    if isinstance(told, Refused):
        return told
    sent = told.signed_ns if told.signed_ns is not None else (signed.time or 0) * _NS or None
    if sent is not None and sent < epoch_ns:
        return Refused(403, "time.before_epoch", said="The store was rebuilt since it was sent.")
    return _heard(request, source, signed, told)


def _guessed(headers: Headers) -> Scheme:
    """How a source that is not there would have signed, so that it costs the same."""
    names = {name for name, _ in headers}
    if b"webhook-signature" in names:
        return "standard"
    return "github" if b"x-hub-signature-256" in names else "kfm"


def _told(request: Request, source: Source) -> Told | Refused:
    """What the body says; a time it names as that of sending has to be now."""
    if source.told.kind == "kfm":
        document = read_document(request.body, source.source_id, request.now_ns)
        if isinstance(document, Refused):
            return document
        return Told(
            trigger=document.trigger,
            event_type=document.event_type,
            sent_at=document.sent_at,
            signed_ns=document.sent_ns,
            metadata=document.metadata,
        )
    names = dict(request.headers)
    told = told_by(source.told.kind, request.body, names, source.told.map)
    if isinstance(told, Refused) or told.signed_ns is None:
        return told
    if abs(request.now_ns - told.signed_ns) > TOLERANCE_S * _NS:
        return Refused(403, "time.outside", said="It was not sent within five minutes.")
    return msgspec.structs.replace(told, sent_at=rfc3339_ns(told.signed_ns))


def _heard(request: Request, source: Source, signed: Signed, told: Told) -> Heard:
    received = rfc3339_ns(request.now_ns)
    says = told.signed_ns is not None or (told.sent_at and moment_ns(told.sent_at) is not None)
    sent_at = told.sent_at if says else received
    trace = trace_in(request.headers)
    metadata = told.metadata
    if b"://" in request.body or b"\\/" in request.body or source.told.kind == "cloudevents":
        metadata = without_addresses(metadata)
    event = Event(
        source_id=source.source_id,
        trigger=told.trigger,
        event_type=told.event_type,
        sent_at=sent_at,
        metadata=metadata,
        integrity=Integrity(version="v1", signature=signed.signature),
        trace=trace,
    )
    timed = signed.time is not None or told.signed_ns is not None
    kept_s = MINUTES_10 if timed else DAYS_30
    replay_id = signed.replay_id
    if told.signed_ns is not None and replay_id.startswith("body:"):
        # a body says one time: ahead of its digest, it lets what came together lie together
        replay_id = f"{told.signed_ns // 1_000_000:011x} {replay_id}"
    name = f"{source.source_id}\n{signed.replay_id}\n{sent_at}"
    return Heard(
        source,
        # in the order of arrival, so that an index grows at its end; told apart by what was signed
        f"e{request.now_ns // 1_000_000:011x}{sha256(name.encode()).hexdigest()[:21]}",
        replay_id,
        kept_s,
        signed.key,
        _digest(request.body, signed),
        request.now_ns,
        msgspec.json.encode(event),
        trace,
        _note(source.told, event),
    )


def _digest(body: bytes, signed: Signed) -> str:
    if signed.replay_id.startswith("body:"):
        return f"sha256:{signed.replay_id[5:]}"
    return f"sha256:{sha256(body).hexdigest()}"


def trace_in(headers: Headers) -> EventTrace:
    """The trace of a request, or the beginning of one."""
    found: Traceparent = trace_of([value for name, value in headers if name == b"traceparent"])
    given = next((value for name, value in headers if name == b"x-correlation-id"), None)
    return EventTrace(traceparent=found.text, correlation_id=correlation_of(given, found))


def rfc3339_ns(moment: int) -> str:
    """Nanoseconds since 1970 as RFC 3339, to the millisecond."""
    return f"{_second(moment // _NS)}.{moment % _NS // 1_000_000:03}Z"


@lru_cache(maxsize=16)
def _second(moment: int) -> str:
    return f"{dt.datetime.fromtimestamp(moment, dt.UTC):%Y-%m-%dT%H:%M:%S}"


# ---- what it starts ------------------------------------------------------------------------------
def _note(told: WebhookSource, event: Event) -> str:
    """Why an event starts nothing; empty: it does."""
    if event.event_type == "check":
        return "it says that nothing changed"
    for name, patterns in told.only.items():
        wanted = (patterns,) if isinstance(patterns, str) else patterns
        found = _values(event, name)
        if not any(fnmatch.fnmatchcase(value, want) for value in found for want in wanted):
            return f"`only` wants another {name}"
    return ""


def _values(event: Event, name: str) -> list[str]:
    """What an event says under a name: itself, its metadata, or one of the objects it tells of."""
    own: Mapping[str, object] = {"trigger": event.trigger, "event_type": event.event_type}
    if name in own:
        return [str(own[name])]
    objects: list[Json] = event.metadata.get("objects") or [event.metadata]
    held = [o for o in objects if type(o) is dict] if type(objects) is list else []
    return [str(o[name]) for o in (*held, event.metadata) if name in o]
