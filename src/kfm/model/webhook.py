"""Who may tell us that something changed, and what was told: the file of a source, the one event
that every provider's words become, and its row.
"""

from typing import Annotated, Literal

import msgspec

from kfm.model.canonical import Json
from kfm.model.dataset import DatasetId, Text

__all__ = [
    "Event",
    "EventMap",
    "EventTrace",
    "Integrity",
    "WebhookKind",
    "WebhookSource",
]

WebhookKind = Literal["kfm", "github", "s3", "sns", "lakefs", "stac", "cloudevents", "generic"]
Reference = Annotated[
    str, msgspec.Meta(pattern=r"^(env:[A-Za-z_][A-Za-z0-9_]*|credential:[A-Za-z0-9][\w.-]{0,63})$")
]
Count = Annotated[int, msgspec.Meta(ge=1)]


class EventMap(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where a body of somebody's own form says what happened: `$.a.b` is a member of it, anything
    else is text that stands for itself.
    """

    trigger: Text = "generic"
    event_type: Text = "update"
    # RFC 3339, or seconds or milliseconds since 1970; stated: what is older than five minutes is
    # refused
    sent_at: str = ""
    metadata: dict[str, Text] = {}  # what else is kept, by the name it gets


class WebhookSource(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`pipelines/orchestration/webhooks/<source_id>.yml`: who may tell us that something changed,
    and which datasets are asked for then. It is told at `POST /hooks/<source_id>`.
    """

    # whose words its bodies are in; s3 is MinIO and SeaweedFS too, sns is S3 behind a topic
    kind: WebhookKind = "kfm"
    # those that are asked for when something happened
    datasets: Annotated[tuple[DatasetId, ...], msgspec.Meta(min_length=1)]
    # env:NAME, or credential:NAME of kfm.yml; each of them may sign, so that one can follow another
    # without a gap
    keys: Annotated[tuple[Reference, ...], msgspec.Meta(min_length=1)]
    # how it signs; not stated: github for that kind, else kfm
    signature: Literal["kfm", "standard", "github"] | None = None
    # what an event has to be for the datasets to be asked for, by member of the event or of its
    # metadata, as patterns such as data/*.csv; other events are kept, and start nothing
    only: dict[str, Text | tuple[Text, ...]] = {}
    map: EventMap = EventMap()  # kind generic
    max_bytes: Annotated[int, msgspec.Meta(ge=1, le=25 * 2**20)] = 2**20  # of one body
    # new events that one receiver takes in a minute; more are told to come later
    per_minute: Count = 600


class Integrity(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What an event was believed by."""

    version: Literal["v1"]
    signature: str  # of the request, as it was sent


class EventTrace(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the request was part of; it is told and not signed."""

    traceparent: str
    correlation_id: str


class Event(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What was told, in the same words whoever told it."""

    source_id: str
    trigger: str  # what set it off, in the words of who told it
    event_type: str  # update, remove, or check: nothing happened, somebody tries the way here
    sent_at: str  # RFC 3339
    metadata: Json
    integrity: Integrity
    trace: EventTrace
