"""Whose words a body is in: each provider's shape becomes the same kind of event."""

import json
from pathlib import Path
from typing import Any

import pytest
from tests.given.verbs import SHARED

from kfm.model.webhook import EventMap
from kfm.webhook.document import Refused
from kfm.webhook.shapes import Told, told_by, without_addresses

RECORDED = SHARED / "data" / "webhooks"


def told(kind: Any, body: object, headers: dict[str, str] | None = None, **mapped: Any) -> Any:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    names = {n.lower().encode(): v.encode() for n, v in (headers or {}).items()}
    return told_by(kind, raw, names, EventMap(**mapped))


@pytest.mark.needs_shared
@pytest.mark.parametrize(
    ("kind", "file", "event", "trigger", "kept"),
    [
        ("github", "github/push.payload.json", "push", "github:push", "ref"),
        ("github", "github/release.published.payload.json", "release", "github:release", "tag"),
        ("github", "github/ping.payload.json", "ping", "github:ping", "repository"),
        ("github", "github/workflow_run.completed.payload.json", "workflow_run", "github:workflow_run", "conclusion"),
        ("github", "github/repository_dispatch.payload.json", "repository_dispatch", "github:repository_dispatch", "data"),
        ("s3", "s3/s3-event.json", "", "s3:ObjectCreated:Put", "key"),
        ("s3", "minio/object-created.json", "", "s3:ObjectCreated:Put", "bucket"),
        ("lakefs", "lakefs/pre-merge.json", "", "lakefs:pre-merge", "branch_id"),
    ],
)  # fmt: skip
def test_what_providers_really_send_is_understood(
    kind: str, file: str, event: str, trigger: str, kept: str
) -> None:
    path = RECORDED / file
    if not path.exists():
        pytest.skip("not run: the recordings are not beside this repository")
    found = told(kind, path.read_bytes(), {"X-GitHub-Event": event})
    assert isinstance(found, Told) and found.trigger == trigger and kept in found.metadata
    assert "://" not in json.dumps(found.metadata)


@pytest.mark.needs_shared
def test_a_key_is_said_plainly_however_the_store_writes_it() -> None:
    if not RECORDED.exists():
        pytest.skip("not run: the recordings are not beside this repository")
    for name in ("s3-event.json", "s3-event-with-decoded.json"):
        assert told("s3", (RECORDED / "s3" / name).read_bytes()).metadata["key"] == "Happy Face.jpg"


def test_a_ping_a_test_and_a_hook_before_the_fact_say_that_nothing_changed() -> None:
    assert told("github", {"zen": "…"}, {"X-GitHub-Event": "ping"}).event_type == "check"
    assert told("s3", {"Event": "s3:TestEvent"}).event_type == "check"
    assert told("lakefs", {"event_type": "pre-commit"}).event_type == "check"
    assert told("lakefs", {"event_type": "post-delete-branch"}).event_type == "remove"
    removed = {"Records": [{"eventName": "s3:ObjectRemoved:Delete", "s3": {}}]}
    assert told("s3", removed).event_type == "remove"


def test_a_topic_wraps_a_notification_and_no_subscription_is_followed() -> None:
    record = {"eventName": "ObjectCreated:Copy", "s3": {"bucket": {"name": "b"}}}
    wrapped = {
        "Type": "Notification",
        "TopicArn": "arn:t",
        "Message": json.dumps({"Records": [record]}),
    }
    found = told("sns", wrapped)
    assert (found.trigger, found.metadata["topic"]) == ("s3:ObjectCreated:Copy", "arn:t")
    asks = {"Type": "SubscriptionConfirmation", "SubscribeURL": "https://x.example/?a"}
    confirm = told("sns", asks)
    assert confirm.event_type == "check" and "://" not in json.dumps(confirm.metadata)
    assert told("sns", {"Type": "Notification", "Message": "no json"}).field == "Message"
    item = {"type": "Feature", "stac_version": "1.1.0", "id": "i"}
    told_item = told("sns", {"Type": "Notification", "Message": json.dumps(item)})
    assert told_item.trigger == "stac:item"


def test_seaweed_tells_of_paths() -> None:
    found = told("s3", {"key": "/buckets/b/d/x.csv", "event_type": "create", "message": {}})
    assert (found.metadata["bucket"], found.metadata["key"]) == ("b", "d/x.csv")
    assert told("s3", {"key": "/other/x", "event_type": "delete"}).event_type == "remove"


def test_an_item_of_a_catalog_is_known_by_its_id() -> None:
    item = {
        "type": "Feature",
        "stac_version": "1.1.0",
        "id": "scene-7",
        "collection": "scenes",
        "properties": {"datetime": "2026-01-01T00:00:00Z", "updated": "2026-01-02T00:00:00Z"},
        "assets": {"data": {"href": "https://x.example/a.tif"}},
    }
    found = told("stac", item)
    assert found.sent_at == "2026-01-02T00:00:00Z"
    assert found.metadata["assets"] == ["data"] and found.metadata["collection"] == "scenes"
    assert told("stac", {"type": "Feature", "id": "x"}).field == "stac_version"


def test_a_cloud_event_is_the_same_in_its_body_and_in_headers() -> None:
    attributes = {"specversion": "1.0", "id": "1", "source": "/sensors", "type": "made"}
    inside = told(
        "cloudevents",
        {**attributes, "data": {"a": 1}},
        {"Content-Type": "application/cloudevents+json"},
    )
    outside = told("cloudevents", {"a": 1}, {f"ce-{n}": v for n, v in attributes.items()})
    assert inside.trigger == outside.trigger == "cloudevents:made"
    assert inside.metadata == {k: v for k, v in outside.metadata.items() if k != "unsigned"}
    assert "type" in outside.metadata["unsigned"], "nobody has signed a header"
    assert told("cloudevents", b"", {"ce-id": "1"}).field == "ce-specversion"
    old = {**attributes, "specversion": "0.3"}
    assert told("cloudevents", b"\x00", {f"ce-{n}": v for n, v in old.items()}).status == 400


def test_words_of_ones_own_are_mapped() -> None:
    body = {"kind": "new-file", "meta": {"at": 1_772_366_400, "file": "x.csv"}}
    mapped = {"trigger": "$.kind", "sent_at": "$.meta.at", "metadata": {"file": "$.meta.file"}}
    found = told("generic", body, **mapped)
    assert (found.trigger, found.event_type, found.metadata) == (
        "new-file",
        "update",
        {"file": "x.csv"},
    )
    assert found.signed_ns == 1_772_366_400 * 10**9
    assert told("generic", {"kind": "x"}, **mapped).field == "meta.at"
    assert told("generic", {"kind": 1}, trigger="$.kind").field == "trigger"
    assert told("generic", {"t": "never"}, sent_at="$.t").code == "field.malformed"


def test_the_header_of_github_which_nobody_signs_may_not_contradict_the_body() -> None:
    body = {"ref": "refs/heads/main", "commits": []}
    assert isinstance(told("github", body, {"X-GitHub-Event": "push"}), Told)
    for event in ("release", "", "Push!"):
        assert isinstance(told("github", body, {"X-GitHub-Event": event}), Refused)
    form = b"payload=" + b"%7B%22zen%22%3A%22x%22%7D"
    headers = {"X-GitHub-Event": "ping", "Content-Type": "application/x-www-form-urlencoded"}
    assert told("github", form, headers).trigger == "github:ping"


def test_no_address_stays_wherever_it_stands() -> None:
    found = without_addresses(
        {"a": "x://y", "b": [{"c": "x://y", "d": 1}, "x://y"], "u://v": 1, "e": "a/b"}
    )
    assert found == {"b": [{"d": 1}], "e": "a/b", "left_out": ["a", "b.c", "(a name)"]}


def test_the_file_of_a_source_is_refused_where_it_is_wrong(tmp_path: Path) -> None:
    from kfm.model import UsageError
    from kfm.workspace.config import load_webhook

    good = {"datasets": ["d"], "keys": ["env:K"]}
    for number, (wrong, word) in enumerate(
        [
            ({"datasets": []}, "datasets"),
            ({"keys": []}, "keys"),
            ({"keys": ["plain-text-secret"]}, "keys"),
            ({"keys": ["file:/etc/passwd"]}, "keys"),
            ({"kind": "gitlab"}, "kind"),
            ({"map": {"trigger": "x"}}, "map"),
            ({"per_minute": 0}, "per_minute"),
            ({"data_sets": ["d"]}, "data_sets"),
        ]
    ):
        path = tmp_path / f"s{number}.json"
        path.write_text(json.dumps({**good, **wrong}))
        with pytest.raises(UsageError, match=word):
            load_webhook(path)
