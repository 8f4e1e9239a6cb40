"""What providers say, in one form of words: each of their shapes becomes `Told`, and no address of
theirs is kept.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any
from urllib.parse import parse_qs, unquote, unquote_plus

import msgspec

from kfm.model import Json
from kfm.model.webhook import EventMap, WebhookKind
from kfm.webhook.document import Refused, moment_ns

__all__ = ["Told", "is_github_event", "told_by", "without_addresses"]

_MOST = 100  # objects of one notification that are named
_ADDRESS = "://"
# what a body of GitHub's has to hold to be what its header, which nobody signs, says it is
_GITHUB = {
    "ping": "zen",
    "push": "commits",
    "release": "release",
    "workflow_run": "workflow_run",
    "repository_dispatch": "client_payload",
    "deployment": "deployment",
    "create": "ref_type",
    "delete": "ref_type",
}
_CE = ("specversion", "id", "source", "type")
_PATH = re.compile(r"\$(\.[A-Za-z0-9_-]+)+")


class Told(msgspec.Struct, frozen=True, kw_only=True):
    """What happened, as a provider tells it."""

    trigger: str
    event_type: str = "update"
    sent_at: str = ""  # empty: it does not say
    signed_ns: int | None = (
        None  # when it was sent, where the body says that and not when it happened
    )
    metadata: Json = {}


Names = Mapping[bytes, bytes]
Shape = Callable[[Json, Names], "Told | Refused"]


def told_by(kind: WebhookKind, body: bytes, headers: Names, mapped: EventMap) -> "Told | Refused":
    """What a provider of this kind says with a body; its headers are told and not signed."""
    if kind == "cloudevents" and not _structured(headers):
        return _binary_event(body, headers)
    try:
        value = msgspec.json.decode(_form(body, headers) if kind == "github" else body)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return Refused(400, "body.malformed", said="The body is no JSON.")
    if type(value) is not dict:
        return Refused(400, "body.malformed", said="The body is no JSON object.")
    if kind == "generic":
        return _mapped(value, mapped)
    return _SHAPES[kind](value, headers)


def without_addresses(metadata: Json) -> Json:
    """The same without any text that is an address: no payload says where something is fetched."""
    left_out: list[str] = []
    kept: Json = _plain(metadata, "", left_out)
    return {**kept, "left_out": left_out} if left_out else kept


def _plain(value: Any, path: str, left_out: list[str]) -> Any:
    if type(value) is dict:
        found = {}
        for name, inner in value.items():
            if (type(inner) is str and _ADDRESS in inner) or _ADDRESS in name:
                left_out.append(f"{path}{name}" if _ADDRESS not in name else f"{path}(a name)")
            else:
                found[name] = _plain(inner, f"{path}{name}.", left_out)
        return found
    if type(value) is list:
        return [_plain(inner, path, left_out) for inner in value if not _is_address(inner)]
    return value


def _is_address(value: Any) -> bool:
    return type(value) is str and _ADDRESS in value


def _text(value: Any, *path: str) -> str:
    """The text at the end of a path; empty: there is none."""
    for name in path:
        value = value.get(name) if type(value) is dict else None
    return value if type(value) is str else ""


def _some(**members: Any) -> Json:
    return {name: value for name, value in members.items() if value not in ("", None, [])}


def _lacks(field: str) -> Refused:
    return Refused(400, "field.missing", field, f"The field {field} is missing.")


# ---- GitHub --------------------------------------------------------------------------------------
def _form(body: bytes, headers: Names) -> bytes:
    """GitHub sends JSON, or a form with JSON in it."""
    if not headers.get(b"content-type", b"").startswith(b"application/x-www-form-urlencoded"):
        return body
    try:
        return parse_qs(body.decode("ascii"), max_num_fields=10).get("payload", [""])[0].encode()
    except ValueError:
        return b""


def is_github_event(name: str) -> bool:
    """Whether GitHub could call an event so."""
    return re.fullmatch("[a-z_]{1,64}", name) is not None


def _github(value: Json, headers: Names) -> "Told | Refused":
    event = headers.get(b"x-github-event", b"").decode("latin-1")
    if not is_github_event(event):
        return _lacks("X-GitHub-Event")
    if event in _GITHUB and _GITHUB[event] not in value:
        said = f"The body is no {event}, as its header says."
        return Refused(400, "field.malformed", "X-GitHub-Event", said)
    action = _text(value, "action")
    removed = event == "delete" or action in ("deleted", "unpublished")
    sent = _text(value, "release", "published_at") or _text(value, "workflow_run", "updated_at")
    return Told(
        trigger=f"github:{event}",
        event_type="check" if event == "ping" else "remove" if removed else "update",
        sent_at=sent,
        metadata=_some(
            action=action,
            repository=_text(value, "repository", "full_name"),
            ref=_text(value, "ref"),
            before=_text(value, "before"),
            after=_text(value, "after"),
            tag=_text(value, "release", "tag_name"),
            branch=_text(value, "branch") or _text(value, "workflow_run", "head_branch"),
            workflow=_text(value, "workflow_run", "name"),
            conclusion=_text(value, "workflow_run", "conclusion"),
            data=value.get("client_payload"),
            delivery=headers.get(b"x-github-delivery", b"")[:64].decode("latin-1"),
            unsigned=["event", "delivery"],
        ),
    )


# ---- object stores -------------------------------------------------------------------------------
def _s3(value: Json, headers: Names) -> "Told | Refused":
    if value.get("Event") == "s3:TestEvent":
        return Told(trigger="s3:TestEvent", event_type="check", sent_at=_text(value, "Time"))
    if "Records" not in value and _text(value, "key") and _text(value, "event_type"):
        return _filer(value)
    records = value.get("Records")
    if type(records) is not list or not records:
        return _lacks("Records")
    objects, names = [], list[str]()
    for record in records:
        name = _text(record, "eventName").removeprefix("s3:")
        if not name:
            return _lacks("Records[].eventName")
        names.append(name)
        objects.append(_object(record))
    removed = all(name.startswith(("ObjectRemoved", "LifecycleExpiration")) for name in names)
    return Told(
        trigger=f"s3:{names[0]}",
        event_type="remove" if removed else "update",
        sent_at=max(_text(record, "eventTime") for record in records),
        metadata=_objects(objects),
    )


def _object(record: Any) -> Json:
    held = record.get("s3") if type(record) is dict else None
    told = held.get("object") if type(held) is dict else None
    told = told if type(told) is dict else {}
    # keys are written as in a form, unless the store says them plainly too
    key = _text(told, "urlDecodedKey") or unquote_plus(_text(told, "key"))
    size = told.get("size")
    return _some(
        bucket=_text(held, "bucket", "name"),
        key=key,
        etag=_text(told, "eTag"),
        size=size if type(size) is int else None,
        version_id=_text(told, "versionId"),
        sequencer=_text(told, "sequencer"),
    )


def _filer(value: Json) -> Told:
    """SeaweedFS tells of paths: /buckets/BUCKET/KEY is an object of its S3."""
    happened, path = _text(value, "event_type"), _text(value, "key")
    _, top, bucket, key = (*path.split("/", 3), "", "", "")[:4]
    if top != "buckets" or not key:
        bucket, key = "", path
    return Told(
        trigger=f"s3:filer:{happened}",
        event_type="remove" if happened == "delete" else "update",
        metadata=_objects([_some(bucket=bucket, key=key)]),
    )


def _objects(objects: list[Json]) -> Json:
    first: Json = {name: objects[0][name] for name in ("bucket", "key") if name in objects[0]}
    return {**first, "count": len(objects), "objects": objects[:_MOST]}


def _sns(value: Json, headers: Names) -> "Told | Refused":
    """The signature of SNS needs a certificate from the network: ours around it is what counts. A
    subscription is confirmed by a person, never by following its address.
    """
    kind = _text(value, "Type")
    if not kind:
        return _lacks("Type")
    about = _some(topic=_text(value, "TopicArn"), message_id=_text(value, "MessageId"))
    if kind != "Notification":
        sent = _text(value, "Timestamp")
        return Told(trigger=f"sns:{kind}", event_type="check", sent_at=sent, metadata=about)
    try:
        inner = msgspec.json.decode(_text(value, "Message"))
    except (msgspec.DecodeError, RecursionError, UnicodeError):
        inner = None
    if type(inner) is not dict:
        return Refused(400, "field.malformed", "Message", "The field Message is no JSON object.")
    told = _stac(inner, headers) if "stac_version" in inner else _s3(inner, headers)
    if isinstance(told, Refused):
        return told
    return msgspec.structs.replace(told, metadata={**told.metadata, **about})


# ---- catalogs and lakes --------------------------------------------------------------------------
def _lakefs(value: Json, headers: Names) -> "Told | Refused":
    happened = _text(value, "event_type")
    if not happened:
        return _lacks("event_type")
    before = happened.startswith(("pre-", "prepare-"))  # nothing has changed yet
    names = ("repository_id", "branch_id", "source_ref", "commit_id", "tag_id", "action_name")
    return Told(
        trigger=f"lakefs:{happened}",
        event_type="check" if before else "remove" if "delete" in happened else "update",
        sent_at=_text(value, "event_time"),
        metadata=_some(**{name: _text(value, name) for name in (*names, "hook_id")}),
    )


def _stac(value: Json, headers: Names) -> "Told | Refused":
    what = {"Feature": "item", "Collection": "collection", "Catalog": "catalog"}.get(
        _text(value, "type"), ""
    )
    for field, there in (("stac_version", "stac_version" in value), ("type", what)):
        if not there:
            return _lacks(field)
    if not _text(value, "id"):
        return _lacks("id")
    told = value.get("properties") if what == "item" else value
    assets = value.get("assets")
    return Told(
        trigger=f"stac:{what}",
        event_type="remove" if _text(told, "deprecated") else "update",
        sent_at=_text(told, "updated") or _text(told, "created") or _text(told, "datetime"),
        metadata=_some(
            id=_text(value, "id"),
            collection=_text(value, "collection"),
            datetime=_text(told, "datetime"),
            stac_version=_text(value, "stac_version"),
            assets=sorted(assets)[:_MOST] if type(assets) is dict else None,
        ),
    )


# ---- CloudEvents ---------------------------------------------------------------------------------
def _structured(headers: Names) -> bool:
    return headers.get(b"content-type", b"").lower().startswith(b"application/cloudevents")


def _cloudevent(value: Json, headers: Names) -> "Told | Refused":
    data = value.get("data")
    return _attributes({n: v for n, v in value.items() if type(v) is str}, data, [])


def _binary_event(body: bytes, headers: Names) -> "Told | Refused":
    """Its attributes are headers, which nobody signs: they are kept as such."""
    told = {
        name[3:].decode("latin-1"): unquote(value.decode("latin-1"))
        for name, value in headers.items()
        if name.startswith(b"ce-")
    }
    try:
        data = msgspec.json.decode(body) if body else None
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        data = None  # it may be anything; only its digest is kept
    return _attributes(told, data, ["id", "source", "type", "subject", "time"])


def _attributes(told: Mapping[str, str], data: Any, unsigned: list[str]) -> "Told | Refused":
    for name in _CE:
        if not told.get(name):
            return _lacks(f"ce-{name}" if unsigned else name)
    if told["specversion"] != "1.0":
        return Refused(400, "field.malformed", "specversion", "The field specversion is not 1.0.")
    return Told(
        trigger=f"cloudevents:{told['type']}",
        sent_at=told.get("time", ""),
        metadata=_some(
            id=told["id"],
            source=told["source"],
            type=told["type"],
            subject=told.get("subject", ""),
            data=data if type(data) is dict else None,
            unsigned=unsigned,
        ),
    )


# ---- somebody's own ------------------------------------------------------------------------------
def _mapped(value: Json, mapped: EventMap) -> "Told | Refused":
    found = {name: _member(value, path) for name, path in _paths(mapped)}
    for name, path in _paths(mapped):
        if found[name] is None:
            return _lacks(path.removeprefix("$."))
    trigger, happened = found.pop("trigger"), found.pop("event_type")
    sent_ns = _moment(found.pop("sent_at")) if mapped.sent_at else None
    if mapped.sent_at and sent_ns is None:
        return Refused(400, "field.malformed", mapped.sent_at.removeprefix("$."), "It is no time.")
    for name, said in (("trigger", trigger), ("event_type", happened)):
        if type(said) is not str or not said:
            return Refused(400, "field.malformed", name, f"What stands for {name} is no text.")
    return Told(trigger=trigger, event_type=happened, signed_ns=sent_ns, metadata=found)


def _paths(mapped: EventMap) -> Iterator[tuple[str, str]]:
    yield from (("trigger", mapped.trigger), ("event_type", mapped.event_type))
    if mapped.sent_at:
        yield "sent_at", mapped.sent_at
    yield from mapped.metadata.items()


def _member(value: Any, path: str) -> Any:
    """What a path leads to, or the text itself; None: the body has no such member."""
    if _PATH.fullmatch(path) is None:
        return path
    for name in path.split(".")[1:]:
        value = value.get(name) if type(value) is dict else None
    return value


def _moment(value: Any) -> int | None:
    """RFC 3339, or seconds or milliseconds since 1970, as nanoseconds."""
    if type(value) is str:
        return moment_ns(value)
    if type(value) not in (int, float) or not 0 <= value < 1e14:
        return None
    return int(value * 1_000_000) if value > 1e11 else int(value * 1_000_000_000)


_SHAPES: dict[str, Shape] = {
    "github": _github,
    "s3": _s3,
    "sns": _sns,
    "lakefs": _lakefs,
    "stac": _stac,
    "cloudevents": _cloudevent,
}
