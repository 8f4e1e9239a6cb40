"""Webhooks that are malformed, forged, late, repeated or too many: refused, named in the log, and
nothing is queued. Those that are right are stored with the job they ask for.
"""

import json
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.given.hooks import SECRET, Told, body_of, source_file, telling, workspace_with

from kfm.webhook.document import FIELDS, moment_ns

SCHEMA = Path(__file__).parents[4] / "schemas" / "model" / "webhook-event.json"


@pytest.fixture
def ws(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("KFM_TEST_HOOK", SECRET)
    folder = workspace_with(tmp_path / "ws", "d", "f")
    source_file(folder, "s")
    return folder


def test_a_signed_event_is_stored_with_the_job_it_asks_for(ws: Path) -> None:
    with telling(ws) as told:
        answer = told.post("s", body_of(), {"traceparent": f"00-{'a1' * 16}-{'b2' * 8}-01"})
        assert answer.status == 202
        (event,), (job,) = told.events(), told.jobs()
        assert answer.json["event_id"] == event.event_id and event.key_id == "env:KFM_TEST_HOOK"
        assert (job.job_type, job.dataset_id, job.state) == ("ingest.pull_source", "d", "queued")
        assert job.reason == "event:s d"
        assert json.loads(event.started) == [["d", job.job_id, 1]]
        trace = json.loads(job.envelope)["trace"]
        assert trace["traceparent"] == f"00-{'a1' * 16}-{'b2' * 8}-01"
        assert (
            trace["correlation_id"]
            == "a1" * 16
            == json.loads(event.event)["trace"]["correlation_id"]
        )
        assert told.failures() == []


def test_a_request_without_the_header_is_refused(ws: Path) -> None:
    with telling(ws) as told:
        assert told.post("s", body_of(), scheme=None).status == 403
        assert told.post("s", body_of(), scheme="github").status == 403
        assert [f.code for f in told.failures()] == ["signature.missing"] * 2
        assert told.events() == told.jobs() == []


def test_the_signature_is_of_the_raw_bytes(ws: Path) -> None:
    body = body_of()
    with telling(ws) as told:
        from kfm.webhook.verify import sign

        header = sign("kfm", SECRET.encode(), body)
        other = json.dumps(json.loads(body), indent=1).encode()
        assert told.post("s", other, header, scheme=None).status == 403
        assert told.post("s", body, header, scheme=None).status == 202


def test_a_wrong_signature_queues_nothing_and_leaves_one_line_without_secret_or_body(
    ws: Path,
) -> None:
    with telling(ws) as told:
        answer = told.post(
            "s", body_of(trigger="look-for-me"), secret="another-key-of-somebody-else"
        )
        assert answer.status == 403 and told.events() == told.jobs() == []
        (line,) = (ws / "ledger" / "webhook_failures.jsonl").read_text().splitlines()
        found = json.loads(line)
        assert found["code"] == "signature.mismatch" and found["body_digest"].startswith("sha256:")
        assert SECRET not in line and "look-for-me" not in line


@pytest.mark.parametrize("field", FIELDS)
def test_a_field_that_is_missing_is_named_in_the_answer_and_in_the_log(
    ws: Path, field: str
) -> None:
    body = body_of(**({"integrity": {}} if "." in field else {field: None}))
    with telling(ws) as told:
        answer = told.post("s", body)
        assert answer.status == 400 and answer.json["field"] == field
        assert field in answer.json["said"] and told.failures()[0].field == field
        assert told.events() == told.jobs() == []


@pytest.mark.parametrize(
    "body", [b"", b"null", b"[]", b'{"a":', b"\xff", b'{"source_id":"s","source_id":"s"}']
)
def test_a_malformed_body_is_refused_in_words(ws: Path, body: bytes) -> None:
    with telling(ws) as told:
        answer = told.post("s", body)
        assert answer.status == 400 and answer.json["error"] in ("body.malformed", "field.missing")
        assert told.events() == []


def test_a_source_nobody_knows_looks_like_one_that_did_not_sign(ws: Path) -> None:
    with telling(ws) as told:
        known = told.post("s", body_of(), secret="another-key-of-somebody-else")
        unknown = told.post("x", body_of("x"))
        assert (known.status, known.headers, known.body) == (
            unknown.status,
            unknown.headers,
            unknown.body,
        )
        assert [f.code for f in told.failures()] == ["signature.mismatch", "source.unknown"]


def test_a_key_that_is_not_there_refuses(ws: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KFM_TEST_HOOK")
    with telling(ws) as told:
        assert told.post("s", body_of()).status == 403
        assert [f.code for f in told.failures()] == ["key.missing"]
        (problem,) = told.sources.table.problems
        assert "env:KFM_TEST_HOOK" in problem.what and SECRET not in problem.what


def test_an_event_signed_for_another_source_is_refused(ws: Path) -> None:
    source_file(ws, "t")
    with telling(ws) as told:
        assert told.post("t", body_of("s")).status == 403
        assert told.failures()[0].code == "source.mismatch" and told.events() == []


@pytest.mark.parametrize("moment", ["2020-01-01T00:00:00Z", "2120-01-01T00:00:00Z"])
def test_what_was_not_sent_just_now_is_refused(ws: Path, moment: str) -> None:
    with telling(ws) as told:
        assert told.post("s", body_of(sent_at=moment)).status == 403
        assert told.failures()[0].code == "time.outside" and told.events() == []


def test_what_was_sent_before_the_store_began_is_refused(ws: Path) -> None:
    body = body_of()
    began = (moment_ns(json.loads(body)["sent_at"]) or 0) + 1
    with telling(ws, epoch_ns=began) as told:
        assert told.post("s", body).status == 403
        assert told.failures()[0].code == "time.before_epoch"
        assert told.post("s", body_of()).status == 202


def test_a_replay_is_answered_like_the_first_and_queues_nothing(ws: Path) -> None:
    body = body_of()
    with telling(ws) as told:
        first, again = told.post("s", body), told.post("s", body)
        assert (first.status, first.headers, first.body) == (
            again.status,
            again.headers,
            again.body,
        )
        assert len(told.events()) == 1
        job, visit = told.jobs()[0], told.store.read(lambda tx: tx.schedule.get("d"))
        assert visit.puts == 1 and job.again == 0
    with telling(ws) as told:  # another receiver, later
        assert told.post("s", body).body == first.body and len(told.events()) == 1


def test_a_storm_of_ten_thousand_duplicates_queues_one_job(ws: Path) -> None:
    body = body_of()
    with telling(ws) as told:
        answers = [a for _ in range(20) for a in told.post_all([("s", body)] * 500)]
        assert {(a.status, a.body) for a in answers} == {(202, answers[0].body)}
        assert len(answers) == 10_000 and len(told.events()) == len(told.jobs()) == 1
        assert told.store.read(lambda tx: tx.schedule.get("d")).puts == 1


def test_events_that_differ_ask_once_each_and_share_the_job_that_waits(ws: Path) -> None:
    with telling(ws) as told:
        answers = told.post_all([("s", body_of(metadata={"n": n})) for n in range(40)])
        assert {a.status for a in answers} == {202}
        assert len({a.body for a in answers}) == len(told.events()) == 40
        assert len(told.jobs()) == 1
        assert told.store.read(lambda tx: tx.schedule.get("d")).puts == 40


def test_a_source_that_tells_too_much_is_told_to_come_later(ws: Path) -> None:
    source_file(ws, "s", per_minute=3)
    with telling(ws) as told:
        bodies = [body_of(metadata={"n": n}) for n in range(5)]
        answers = [told.post("s", body) for body in bodies]
        found = [a.status for a in answers]
        assert found[:3] == [202] * 3 and 429 in found[3:]
        late = answers[found.index(429)]
        assert late.headers[b"retry-after"] == b"60"
        assert told.post("s", bodies[0]).body == answers[0].body, "what is known is no news"
        assert told.failures()[0].code == "too_many"


def test_a_body_that_is_too_large_is_not_read(ws: Path) -> None:
    source_file(ws, "s", max_bytes=1000)
    with telling(ws) as told:
        assert told.post("s", body_of(metadata={"x": "y" * 1000})).status == 413
        assert told.post("x", b"y" * 1001).status == 413, "whoever it is for"
        assert told.events() == []


def test_another_method_or_page_is_no_hook(ws: Path) -> None:
    with telling(ws) as told:
        assert told.post("s", b"", method="GET").status == 405
        assert told.post("x", b"", method="PUT").status == 405
        for path in ("/", "/hooks", "/hooks/s/more", "/hooks/../s"):
            assert told.post("s", b"", path=path).status == 404, path


def test_no_address_of_a_payload_is_kept(ws: Path) -> None:
    told_of = {"a": "https://evil.example/x", "b": {"c": ["s3://x/y", "fine"]}, "d": "plain"}
    with telling(ws) as told:
        assert told.post("s", body_of(metadata=told_of)).status == 202
        (event,) = told.events()
        assert "://" not in event.event
        assert json.loads(event.event)["metadata"] == {
            "b": {"c": ["fine"]},
            "d": "plain",
            "left_out": ["a"],
        }


def test_three_providers_become_one_schema(ws: Path) -> None:
    source_file(ws, "gh", kind="github")
    source_file(ws, "store", kind="s3")
    push = {"ref": "refs/heads/main", "commits": [], "repository": {"full_name": "a/b"}}
    record = {
        "eventName": "ObjectCreated:Put",
        "eventTime": "2026-01-01T00:00:00Z",
        "s3": {"bucket": {"name": "b"}, "object": {"key": "x+y%20z.csv", "size": 1}},
    }
    with telling(ws) as told:
        bodies: list[tuple[Any, ...]] = [
            ("s", body_of(), {}, "kfm"),
            ("gh", json.dumps(push).encode(), {"X-GitHub-Event": "push"}, "github"),
            ("store", json.dumps({"Records": [record]}).encode(), {}, "kfm"),
        ]
        for source_id, body, headers, scheme in bodies:
            assert told.post(source_id, body, headers, scheme=scheme).status == 202
        schema = jsonschema_rs.validator_for(json.loads(SCHEMA.read_text()))
        events = [json.loads(row.event) for row in told.events()]
        assert len(events) == 3
        for event in events:
            schema.validate(event)
            assert event["integrity"]["version"] == "v1" and event["integrity"]["signature"]
        assert events[0]["metadata"]["key"] == "x y z.csv"


def test_only_what_is_wanted_starts_something(ws: Path) -> None:
    source_file(ws, "s", only={"file": ["data/*.csv"], "event_type": "update"})
    with telling(ws) as told:
        told.post("s", body_of(metadata={"file": "docs/a.txt"}))
        told.post("s", body_of(metadata={"file": "data/a.csv"}, event_type="remove"))
        assert told.jobs() == [] and "only" in told.events()[0].note
        told.post("s", body_of(metadata={"file": "data/a.csv"}))
        assert len(told.jobs()) == 1 and len(told.events()) == 3


def test_an_event_type_of_ones_own_is_kept_and_starts_what_an_update_does(ws: Path) -> None:
    source_file(ws, "s")
    with telling(ws) as told:
        assert told.post("s", body_of(event_type="check")).status == 202
        assert told.jobs() == []
        assert told.post("s", body_of(event_type="reprocessed")).status == 202
        assert len(told.jobs()) == 1
        assert json.loads(told.events()[0].event)["event_type"] == "reprocessed"


def test_a_paused_schedule_is_asked_afterwards(ws: Path) -> None:
    folder = ws / "pipelines" / "orchestration" / "schedules"
    folder.mkdir()
    (folder / "d.yml").write_text("dataset: d\ncadence: 6h\nevent: 6h\npaused: not now\n")
    with telling(ws) as told:
        assert told.post("s", body_of()).status == 202
        assert told.jobs() == [] and "paused" in told.events()[0].note
        assert told.store.read(lambda tx: tx.schedule.get("d")).due_at is not None


def test_one_key_follows_another_without_a_gap(ws: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old, new = SECRET, "the-key-that-follows-0123456789"
    monkeypatch.setenv("KFM_TEST_NEXT", new)
    with telling(ws) as told:
        assert told.post("s", body_of()).status == 202
        assert told.post("s", body_of(), secret=new).status == 403
        source_file(ws, "s", keys=["env:KFM_TEST_HOOK", "env:KFM_TEST_NEXT"])
        assert told.sources.refresh() and not told.sources.refresh()
        assert [told.post("s", body_of(), secret=k).status for k in (old, new)] == [202, 202]
        source_file(ws, "s", keys=["env:KFM_TEST_NEXT"])
        told.sources.refresh()
        assert [told.post("s", body_of(), secret=k).status for k in (old, new)] == [403, 202]
        used = told.store.read(lambda tx: tx.events.keys("s"))
        assert {name: many for name, (many, _) in used.items()} == {
            "env:KFM_TEST_HOOK": 2,
            "env:KFM_TEST_NEXT": 2,
        }


def test_a_github_header_can_be_replayed_under_no_other_delivery(ws: Path) -> None:
    source_file(ws, "gh", kind="github")
    body = json.dumps({"ref": "refs/heads/main", "commits": []}).encode()
    with telling(ws) as told:
        for delivery in ("1", "2"):
            headers = {"X-GitHub-Event": "push", "X-GitHub-Delivery": delivery}
            assert told.post("gh", body, headers, scheme="github").status == 202
        assert len(told.events()) == 1
        relabelled = {"X-GitHub-Event": "release", "X-GitHub-Delivery": "3"}
        other = json.dumps({"ref": "refs/heads/other", "commits": []}).encode()
        assert told.post("gh", other, relabelled, scheme="github").status == 400


def test_the_failures_of_a_source_are_capped(ws: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from kfm.webhook import failures

    monkeypatch.setattr(failures, "_LARGE", 4000)
    monkeypatch.setattr(failures, "KEPT", 5)
    with telling(ws) as told:
        told.post("s", b"first", scheme=None)
        for n in range(40):
            told.post(f"x{n}", b"forged", scheme=None)
        found = told.failures()
        assert 1 < len(found) < 41 and found[0].source_id == "s", "one flood drowns no other"
        for line in (ws / "ledger" / "webhook_failures.jsonl").read_text().splitlines():
            json.loads(line)


@settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    source=st.sampled_from(["s", "gh", "bucket", "topic", "lake", "items", "ce", "own", "x", "é"]),
    body=st.binary(max_size=200)
    | st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(
                    [
                        "source_id",
                        "trigger",
                        "sent_at",
                        "event_type",
                        "integrity",
                        "version",
                        "metadata",
                        "Records",
                        "s3",
                        "object",
                        "key",
                        "bucket",
                        "Type",
                        "Message",
                        "eventName",
                        "specversion",
                        "id",
                        "source",
                        "type",
                        "data",
                        "properties",
                        "stac_version",
                        "zen",
                        "commits",
                        "release",
                        "a",
                    ]
                ),
                inner,
                max_size=5,
            )
        ),
        max_leaves=12,
    ).map(lambda value: json.dumps(value).encode()),
    headers=st.lists(
        st.tuples(
            st.sampled_from(
                [
                    "X-KFM-Signature",
                    "webhook-id",
                    "webhook-timestamp",
                    "webhook-signature",
                    "content-type",
                    "X-Hub-Signature-256",
                    "X-GitHub-Event",
                    "traceparent",
                    "X-Correlation-ID",
                    "content-length",
                    "ce-id",
                    "ce-type",
                    "ce-source",
                    "ce-specversion",
                    "ce-time",
                ]
            ),
            st.text(st.characters(max_codepoint=255), max_size=40)
            | st.sampled_from(["push", "1.0", "application/cloudevents+json", "0" * 40]),
        ),
        max_size=6,
    ),
    scheme=st.sampled_from([None, "kfm", "github", "standard"]),
)
def test_no_body_and_no_header_is_our_fault(
    hooked: Told, source: str, body: bytes, headers: list[tuple[str, str]], scheme: Any
) -> None:
    assert hooked.post(source, body, headers, scheme=scheme).status < 500


@pytest.fixture
def hooked(ws: Path) -> Any:
    kinds = {"gh": "github", "bucket": "s3", "topic": "sns", "lake": "lakefs", "items": "stac"}
    for name, kind in {**kinds, "ce": "cloudevents"}.items():
        source_file(ws, name, kind=kind, per_minute=100_000)
    source_file(ws, "own", kind="generic", map={"trigger": "$.type", "metadata": {"a": "$.a"}})
    with telling(ws) as told:
        yield told
