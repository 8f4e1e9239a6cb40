"""The body of kfm's own form: one I-JSON object with five fields, sent to this source, now."""

import datetime as dt
import re
from typing import Any

import msgspec

from kfm.model import Json
from kfm.model.canonical import MAX_INTEGER, NotIJson, loads

__all__ = ["FIELDS", "VERSION", "Document", "Refused", "moment_ns", "read_document", "read_json"]

FIELDS = ("source_id", "trigger", "sent_at", "event_type", "integrity.version")
VERSION = "v1"
_TOLERANCE_NS = 300 * 1_000_000_000
_MOMENT = re.compile(
    r"([0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2})"
    r"(?:\.([0-9]{1,9}))?(Z|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])"
)
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_MOST_OPENED = 200
# as many digits as a wide integer has at least
_WIDE, _DIGITS = b"0" * 16, bytes(48 if 48 <= c < 58 else 32 for c in range(256))


class Refused(msgspec.Struct, frozen=True):
    """Why a request is not taken: an HTTP status, a code for the log, and the field to blame."""

    status: int
    code: str
    field: str = ""
    said: str = ""  # for who has signed it, in words


class Document(msgspec.Struct, frozen=True):
    """What a request of kfm's own form says."""

    source_id: str
    trigger: str
    event_type: str
    sent_at: str
    sent_ns: int  # the same, since 1970
    metadata: Json


def read_json(body: bytes) -> Any:
    """The one I-JSON value of `body`; raises `NotIJson`.

    What is written the way msgspec writes holds no member twice; everything else is read slowly.
    """
    if body.count(b"{") + body.count(b"[") <= _MOST_OPENED:
        try:
            value = msgspec.json.decode(body)
            wide = _WIDE in body.translate(_DIGITS)
            if msgspec.json.encode(value) == body and not (wide and _is_wide(value)):
                return value
        except (msgspec.DecodeError, UnicodeError):
            pass  # the slow reader says what is wrong
    return loads(body)


def _is_wide(value: Any) -> bool:
    """Whether an integer in it is another one to other readers."""
    kind = type(value)
    if kind is dict:
        return any(map(_is_wide, value.values()))
    if kind is list:
        return any(map(_is_wide, value))
    return kind is int and not -MAX_INTEGER <= value <= MAX_INTEGER


def read_document(body: bytes, source_id: str, now_ns: int) -> Document | Refused:
    """What a body says, when it is whole, meant for `source_id` and sent just now."""
    try:
        value = read_json(body)
    except NotIJson as error:
        return Refused(400, "body.malformed", said=error.happened)
    if type(value) is not dict:
        return Refused(400, "body.malformed", said="The body is no JSON object.")
    wrong = _wrong_field(value)
    if wrong is not None:
        return wrong
    sent = moment_ns(value["sent_at"])
    if sent is None:
        return _malformed("sent_at", "RFC 3339 with a zone")
    metadata = value.get("metadata", {})
    if value["integrity"]["version"] != VERSION:
        return _malformed("integrity.version", VERSION)
    if type(metadata) is not dict:
        return _malformed("metadata", "an object")
    if value["source_id"] != source_id:
        return Refused(403, "source.mismatch", said="It was signed for another source.")
    if abs(now_ns - sent) > _TOLERANCE_NS:
        return Refused(403, "time.outside", said="It was not sent within five minutes.")
    return Document(
        source_id, value["trigger"], value["event_type"], value["sent_at"], sent, metadata
    )


def moment_ns(text: str) -> int | None:
    """An RFC 3339 moment as nanoseconds since 1970; None: it is none."""
    found = _MOMENT.fullmatch(text)
    if found is None:
        return None
    try:
        moment = dt.datetime.fromisoformat(found[1] + found[3])
    except ValueError:  # no such day, or a leap second
        return None
    since = moment - _EPOCH
    fraction = int((found[2] or "0").ljust(9, "0"))
    return (since.days * 86_400 + since.seconds) * 1_000_000_000 + fraction


def _wrong_field(value: Json) -> Refused | None:
    """The first of the five fields that is missing or no text."""
    for field in FIELDS:
        held, name = value, field
        if field == "integrity.version":
            held, name = value.get("integrity", {}), "version"
            if type(held) is not dict:
                return _malformed("integrity", "an object")
        if name not in held:
            return Refused(400, "field.missing", field, f"The field {field} is missing.")
        if type(held[name]) is not str or not held[name]:
            return _malformed(field, "text that is not empty")
    return None


def _malformed(field: str, expected: str) -> Refused:
    return Refused(400, "field.malformed", field, f"The field {field} is not {expected}.")
