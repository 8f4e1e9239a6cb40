"""The sample upstream, over real HTTP on the loopback: validators, ranges, revisions and every
misbehaviour.
"""

import csv
import hashlib
import http.client
import io
import json
import signal
import socket
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import pytest

from kfm.model import canonical
from kfm.model.errors import UsageError
from kfm.samples import upstream as sample_upstream
from kfm.samples.upstream import DATASETS, MAX_REVISION, MODES, SampleDataset, SampleUpstream

WEATHER, GAUGES, QUAKES = DATASETS
EVERY = pytest.mark.parametrize("dataset", DATASETS, ids=lambda d: d.dataset)
# The ETags of revisions 0, 1 and 2: a change here is a change of the published sample.
PINNED = {
    "ks_weather_stations": (
        "a19f5ee230ba394c09197f75435ec226",
        "61216cef0f18f2dda82ce7c1c23b6f4d",
        "05c06635358049e404306d72adffc710",
    ),
    "ks_stream_gauges": (
        "086dce6049656e71154c6f93c2bc3a5f",
        "389a91ff4ffecfeedb48c6b01f5ec0ea",
        "52d962433e865256ad624b8374aa89fd",
    ),
    "ks_earthquakes": (
        "55ad4ebbc0990c8431a53837649199ea",
        "e199694f6ecb310dc0e3593f1b99b8fc",
        "0b44bae9f06b42ac54a01a8e0a2a9f0a",
    ),
}


@dataclass
class Reply:
    status: int
    headers: http.client.HTTPMessage
    body: bytes
    whole: bool = True

    @property
    def etag(self) -> str:
        return self.headers["ETag"] or ""


def read(
    connection: http.client.HTTPConnection,
    path: str,
    headers: dict[str, str],
    method: str,
    payload: bytes | None,
) -> Reply:
    connection.request(method, path, body=payload, headers=headers)
    response = connection.getresponse()
    try:
        return Reply(response.status, response.headers, response.read())
    except http.client.IncompleteRead as cut:
        return Reply(response.status, response.headers, cut.partial, whole=False)


class Client:
    def __init__(self, upstream: SampleUpstream) -> None:
        self.upstream = upstream

    def connect(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection(urlsplit(self.upstream.url).netloc, timeout=60)

    def get(
        self,
        path: str,
        headers: dict[str, str] | None = None,
        *,
        method: str = "GET",
        payload: bytes | None = None,
    ) -> Reply:
        connection = self.connect()
        try:
            return read(connection, path, headers or {}, method, payload)
        finally:
            connection.close()

    def order(self, value: Any) -> Reply:
        return self.get("/_control", method="POST", payload=json.dumps(value).encode())


@pytest.fixture
def client() -> Iterator[Client]:
    with SampleUpstream() as upstream:
        yield Client(upstream)


def rows(dataset: SampleDataset, raw: bytes) -> list[dict[str, Any]]:
    if dataset is WEATHER:
        return list(csv.DictReader(io.StringIO(raw.decode(), newline="")))
    document = json.loads(raw)
    return (
        document["observations"]
        if dataset is GAUGES
        else [f["properties"] for f in document["features"]]
    )


def keys(dataset: SampleDataset, raw: bytes) -> list[tuple[Any, ...]]:
    return [tuple(row.get(column) for column in dataset.business_key) for row in rows(dataset, raw)]


# --- the data


@EVERY
def test_a_dataset_has_unique_keys_and_its_columns(client: Client, dataset: SampleDataset) -> None:
    raw = client.get(dataset.path).body
    found = keys(dataset, raw)
    assert (
        len(set(found)) == len(found) == {"csv": 600, "json": 400, "geojson": 150}[dataset.format]
    )
    assert all(row[dataset.time_column].startswith("2025-") for row in rows(dataset, raw))
    assert dataset.host.endswith(".sample.kfm.example")


def test_the_documents_are_ijson_with_missing_values(client: Client) -> None:
    gauges, quakes = (
        canonical.loads(client.get(GAUGES.path).body),
        canonical.loads(client.get(QUAKES.path).body),
    )
    assert any(row["discharge_m3s"] is None for row in gauges["observations"])
    assert all(feature["id"] == feature["properties"]["event_id"] for feature in quakes["features"])
    assert any(row["temperature_c"] == "" for row in rows(WEATHER, client.get(WEATHER.path).body))


@EVERY
def test_a_revision_is_the_same_bytes_everywhere(client: Client, dataset: SampleDataset) -> None:
    for revision, etag in enumerate(PINNED[dataset.dataset]):
        client.upstream.control(dataset.dataset, revision=revision)
        reply = client.get(dataset.path)
        assert reply.etag == f'"{etag}"'
        assert hashlib.sha256(reply.body).hexdigest()[:32] == etag


@EVERY
def test_revisions_add_change_and_remove_rows(client: Client, dataset: SampleDataset) -> None:
    zero, one, two = (sample_upstream.body(dataset.dataset, revision) for revision in (0, 1, 2))
    assert set(keys(dataset, zero)) < set(keys(dataset, one))
    assert set(keys(dataset, one)) - set(keys(dataset, two))
    before, after = (
        dict(zip(keys(dataset, zero), rows(dataset, zero))),
        dict(zip(keys(dataset, one), rows(dataset, one))),
    )
    assert 0 < sum(before[key] != after[key] for key in before) <= 5
    assert sample_upstream.body(dataset.dataset, MAX_REVISION) != sample_upstream.body(
        dataset.dataset, MAX_REVISION - 1
    )


@EVERY
def test_going_back_to_a_revision_gives_its_bytes_back(
    client: Client, dataset: SampleDataset
) -> None:
    first = client.get(dataset.path)
    client.upstream.control("*", revision=1)
    changed = client.get(dataset.path, {"If-None-Match": first.etag})
    client.upstream.control("*", revision=0)
    again = client.get(dataset.path, {"If-None-Match": changed.etag})
    assert (changed.status, again.status) == (200, 200)
    assert (again.body, again.etag, again.headers["Last-Modified"]) == (
        first.body,
        first.etag,
        first.headers["Last-Modified"],
    )
    assert changed.headers["Last-Modified"] != first.headers["Last-Modified"]


@EVERY
def test_a_window_is_half_open(client: Client, dataset: SampleDataset) -> None:
    whole = client.get(dataset.path)
    times = sorted({row[dataset.time_column] for row in rows(dataset, whole.body)})
    since, until = times[1], times[4]
    part = client.get(f"{dataset.path}?since={since}&until={until}")
    expected = [
        row for row in rows(dataset, whole.body) if since <= row[dataset.time_column] < until
    ]
    assert rows(dataset, part.body) == expected
    assert part.etag != whole.etag
    assert (
        client.get(f"{dataset.path}?since={since[:-1]}%2B00:00&until={until[:-1]}+00:00").body
        == part.body
    )
    assert rows(dataset, client.get(f"{dataset.path}?until={times[0]}").body) == []


@pytest.mark.parametrize(
    "query",
    ["since=yesterday", "until=2025-06-01T00:00:00", "since=2030-01-01T00:00:00Z&until=never"],
)
def test_a_bad_window_is_refused(client: Client, query: str) -> None:
    assert client.get(f"{GAUGES.path}?{query}").status == 400


# --- HTTP


@EVERY
def test_get_and_head_carry_the_same_headers(client: Client, dataset: SampleDataset) -> None:
    full, head = client.get(dataset.path), client.get(dataset.path, method="HEAD")
    for name in ("ETag", "Last-Modified", "Content-Type", "Content-Length", "Accept-Ranges"):
        assert full.headers[name] == head.headers[name]
    assert int(full.headers["Content-Length"]) == len(full.body)
    assert full.headers["Accept-Ranges"] == "bytes"
    assert (head.status, head.body) == (200, b"")
    assert (
        full.headers["Content-Type"].split(";")[0]
        == {"csv": "text/csv", "json": "application/json", "geojson": "application/geo+json"}[
            dataset.format
        ]
    )


def test_an_unchanged_body_is_304(client: Client) -> None:
    first = client.get(WEATHER.path)
    for condition in (first.etag, f'"other", {first.etag}', f"W/{first.etag}", "*"):
        reply = client.get(WEATHER.path, {"If-None-Match": condition})
        assert (reply.status, reply.body, reply.etag) == (304, b"", first.etag)
    assert client.get(WEATHER.path, {"If-None-Match": '"other"'}).status == 200
    modified = {"If-Modified-Since": first.headers["Last-Modified"]}
    assert client.get(WEATHER.path, modified).status == 304
    assert client.get(WEATHER.path, {**modified, "If-None-Match": '"other"'}).status == 200
    assert client.get(WEATHER.path, {"If-Modified-Since": "not a date"}).status == 200


@pytest.mark.parametrize(
    ("asked", "first", "last"),
    [
        ("0-9", 0, 10),
        ("100-", 100, None),
        ("-7", -7, None),
        ("100-99999999", 100, None),
        ("5-5", 5, 6),
        ("-99999999", 0, None),
    ],
)
def test_a_range_is_that_part(client: Client, asked: str, first: int, last: int | None) -> None:
    whole = client.get(GAUGES.path)
    part = client.get(GAUGES.path, {"Range": f"bytes={asked}"})
    assert (part.status, part.body, part.etag) == (206, whole.body[first:last], whole.etag)
    start = first % len(whole.body) if first else 0
    assert (
        part.headers["Content-Range"]
        == f"bytes {start}-{start + len(part.body) - 1}/{len(whole.body)}"
    )


@pytest.mark.parametrize(
    "asked", ["bytes=0-1,4-5", "bytes=-", "bytes=9-1", "lines=0-1", "bytes=a-b"]
)
def test_an_odd_range_is_ignored(client: Client, asked: str) -> None:
    assert client.get(GAUGES.path, {"Range": asked}).status == 200


def test_a_range_beyond_the_end_is_416(client: Client) -> None:
    size = len(client.get(GAUGES.path).body)
    reply = client.get(GAUGES.path, {"Range": f"bytes={size}-"})
    assert (reply.status, reply.headers["Content-Range"]) == (416, f"bytes */{size}")


def test_if_range_guards_against_joining_two_states(client: Client) -> None:
    old = client.get(QUAKES.path)
    same = client.get(QUAKES.path, {"Range": "bytes=10-", "If-Range": old.etag})
    client.upstream.control("ks_earthquakes", revision=1)
    moved = client.get(QUAKES.path, {"Range": "bytes=10-", "If-Range": old.etag})
    assert (same.status, same.body) == (206, old.body[10:])
    assert moved.status == 200
    dated = {"Range": "bytes=10-", "If-Range": moved.headers["Last-Modified"]}
    assert client.get(QUAKES.path, dated).status == 206


def test_one_connection_serves_many_requests(client: Client) -> None:
    connection = client.connect()
    try:
        replies = [
            read(connection, path, {}, "GET", None)
            for path in (WEATHER.path, "/nothing", GAUGES.path, "/")
        ]
        first = connection.sock
        replies.append(read(connection, "/_control", {}, "POST", b'{"dataset":"*"}'))
        assert connection.sock is first is not None
    finally:
        connection.close()
    assert [reply.status for reply in replies] == [200, 404, 200, 200, 200]


def test_other_paths_are_a_problem_document(client: Client) -> None:
    reply = client.get("/nothing")
    assert (reply.status, reply.headers["Content-Type"]) == (404, "application/problem+json")
    assert json.loads(reply.body)["status"] == 404
    assert client.get("/", method="POST", payload=b"x").status == 404


def test_the_root_describes_what_there_is(client: Client) -> None:
    described = json.loads(client.get("/").body)
    assert described == client.upstream.describe() == sample_upstream.describe(client.upstream.url)
    assert [client.get(urlsplit(d["url"]).path).status for d in described["datasets"]] == [
        200,
        200,
        200,
    ]


def test_requests_are_remembered_up_to_a_bound(client: Client) -> None:
    client.get(WEATHER.path + "?a=1")
    client.get("/nothing", method="HEAD")
    assert client.upstream.requests == [
        ("GET", WEATHER.path + "?a=1", 200),
        ("HEAD", "/nothing", 404),
    ]
    assert client.upstream._shared.log.maxlen == 10_000


# --- control


def test_control_sets_mode_and_revision(client: Client) -> None:
    reply = client.order({"dataset": "ks_earthquakes", "mode": 503, "revision": 2})
    assert reply.status == 200
    assert json.loads(reply.body)["state"]["ks_earthquakes"] == {"mode": "503", "revision": 2}
    assert client.order({"dataset": "ks_earthquakes", "mode": "ok"}).status == 200
    state = json.loads(client.get("/_control").body)["state"]
    assert state == {
        "ks_weather_stations": {"mode": "ok", "revision": 0},
        "ks_stream_gauges": {"mode": "ok", "revision": 0},
        "ks_earthquakes": {"mode": "ok", "revision": 2},
    }
    assert client.upstream.control("*", mode="lying")["ks_stream_gauges"] == {
        "mode": "lying",
        "revision": 0,
    }


@pytest.mark.parametrize(
    ("order", "says"),
    [
        ({"dataset": "other"}, "not a sample dataset"),
        ({"dataset": ["*"]}, "not a sample dataset"),
        ({"mode": "ok"}, "dataset"),
        ({"dataset": "*", "mode": "odd"}, "not a mode"),
        ({"dataset": "*", "mode": 500}, "not a mode"),
        ({"dataset": "*", "mode": True}, "not a mode"),
        ({"dataset": "*", "mode": {}}, "not a mode"),
        ({"dataset": "*", "revision": -1}, "not a revision"),
        ({"dataset": "*", "revision": MAX_REVISION + 1}, "not a revision"),
        ({"dataset": "*", "revision": "1"}, "not a revision"),
        ({"dataset": "*", "revision": True}, "not a revision"),
        ({"dataset": "*", "revision": 1.0}, "not a revision"),
        ({"dataset": "*", "mood": "ok"}, "object"),
        (["*"], "object"),
    ],
)
def test_a_wrong_order_is_refused_and_changes_nothing(
    client: Client, order: Any, says: str
) -> None:
    before = client.upstream._shared.snapshot()
    reply = client.order(order)
    assert reply.status == 400
    assert says in json.loads(reply.body)["detail"]
    assert client.upstream._shared.snapshot() == before


@pytest.mark.parametrize("payload", [b"", b"{", b"\xff", b"[" * 50_000])
def test_an_order_that_is_not_json_is_refused(client: Client, payload: bytes) -> None:
    assert client.get("/_control", method="POST", payload=payload).status == 400


def test_a_very_long_order_is_not_read(client: Client) -> None:
    assert client.get("/_control", {"Content-Length": "999999999"}, method="POST").status == 400


def test_control_raises_in_python() -> None:
    upstream = SampleUpstream()
    with pytest.raises(UsageError, match="not a mode"):
        upstream.control("*", mode="odd")
    upstream.stop()


# --- modes


def in_mode(client: Client, dataset: SampleDataset, mode: str | int, **headers: str) -> Reply:
    client.upstream.control(dataset.dataset, mode=mode)
    return client.get(
        dataset.path, {name.replace("_", "-"): value for name, value in headers.items()}
    )


@EVERY
@pytest.mark.parametrize(
    ("mode", "status", "retry"),
    [("429", 429, "1"), (429, 429, "1"), ("503", 503, None), (503, 503, None)],
)
def test_refusals(
    client: Client, dataset: SampleDataset, mode: str | int, status: int, retry: str | None
) -> None:
    reply = in_mode(client, dataset, mode)
    assert (reply.status, reply.headers["Retry-After"], reply.etag) == (status, retry, "")


@EVERY
def test_truncated_declares_more_than_it_sends(client: Client, dataset: SampleDataset) -> None:
    whole = sample_upstream.body(dataset.dataset)
    for _ in range(2):
        reply = in_mode(client, dataset, "truncated")
        assert (reply.status, reply.whole, int(reply.headers["Content-Length"])) == (
            200,
            False,
            len(whole),
        )
        assert reply.body == whole[: len(whole) // 2]


@EVERY
def test_truncated_once_can_be_resumed(client: Client, dataset: SampleDataset) -> None:
    client.upstream.control(dataset.dataset, mode="truncated_once")
    client.get(dataset.path, method="HEAD")
    start = client.get(dataset.path)
    rest = client.get(dataset.path, {"Range": f"bytes={len(start.body)}-", "If-Range": start.etag})
    assert (start.whole, rest.status, rest.whole) == (False, 206, True)
    assert start.body + rest.body == sample_upstream.body(dataset.dataset)
    assert client.get(dataset.path).whole


@EVERY
def test_lying_is_a_web_page_and_empty_is_nothing(client: Client, dataset: SampleDataset) -> None:
    lie, empty = (
        in_mode(client, dataset, "lying", If_None_Match="*"),
        in_mode(client, dataset, "empty", If_None_Match="*"),
    )
    assert (lie.status, lie.headers["Content-Type"].split(";")[0]) == (200, "text/html")
    assert b"<html>" in lie.body
    assert (empty.status, empty.body, empty.headers["Content-Length"]) == (200, b"", "0")


@EVERY
def test_same_etag_hides_a_change(client: Client, dataset: SampleDataset) -> None:
    before = client.get(dataset.path)
    after = in_mode(client, dataset, "same_etag")
    assert (after.etag, after.body) == (before.etag, sample_upstream.body(dataset.dataset, 1))
    assert in_mode(client, dataset, "same_etag", If_None_Match=before.etag).status == 304


@EVERY
def test_no_validator_has_none(client: Client, dataset: SampleDataset) -> None:
    etag = client.get(dataset.path).etag
    reply = in_mode(client, dataset, "no_validator", If_None_Match=etag)
    assert (reply.status, reply.etag, reply.headers["Last-Modified"]) == (200, "", None)
    assert in_mode(client, dataset, "no_validator", Range="bytes=1-2", If_Range=etag).status == 200


@EVERY
def test_a_weak_etag_validates_but_joins_no_ranges(client: Client, dataset: SampleDataset) -> None:
    strong = client.get(dataset.path).etag
    weak = in_mode(client, dataset, "weak_etag")
    assert weak.etag == f"W/{strong}"
    assert in_mode(client, dataset, "weak_etag", If_None_Match=weak.etag).status == 304
    assert (
        in_mode(client, dataset, "weak_etag", Range="bytes=1-2", If_Range=weak.etag).status == 200
    )


@EVERY
def test_redirects(client: Client, dataset: SampleDataset) -> None:
    client.upstream.control(dataset.dataset, mode="redirect_loop")
    seen = [dataset.path]
    for _ in range(3):
        reply = client.get(seen[-1])
        assert reply.status == 302
        seen.append(reply.headers["Location"])
    assert seen[1:] == [f"{dataset.path}?n={n}" for n in (1, 2, 3)]
    private = in_mode(client, dataset, "redirect_private")
    assert (private.status, private.headers["Location"]) == (302, "http://10.0.0.1/")


@EVERY
def test_flaky_fails_every_second_request(client: Client, dataset: SampleDataset) -> None:
    client.upstream.control(dataset.dataset, mode="flaky")
    assert [client.get(dataset.path).status for _ in range(5)] == [503, 200, 503, 200, 503]


@EVERY
def test_bad_rows_are_few_and_bad(client: Client, dataset: SampleDataset) -> None:
    raw = in_mode(client, dataset, "bad_rows").body
    good, bad = rows(dataset, sample_upstream.body(dataset.dataset)), rows(dataset, raw)
    assert len(good) == len(bad)
    assert sum(a != b for a, b in zip(good, bad)) == 4
    assert sum(not row.get(dataset.business_key[0]) for row in bad) == 1
    assert sum(row[dataset.time_column] == "yesterday" for row in bad) == 1
    assert "broken" in bad[0].values()


@EVERY
def test_duplicates_are_equal_or_conflicting(client: Client, dataset: SampleDataset) -> None:
    equal, conflicting = (
        in_mode(client, dataset, mode).body
        for mode in ("duplicates_equal", "duplicates_conflicting")
    )
    for raw, same in ((equal, True), (conflicting, False)):
        twice = [key for key, count in Counter(keys(dataset, raw)).items() if count == 2]
        assert len(twice) == 4
        for key in twice:
            one, other = (row for row, k in zip(rows(dataset, raw), keys(dataset, raw)) if k == key)
            assert (one == other) is same


@EVERY
def test_deep_is_deep(client: Client, dataset: SampleDataset) -> None:
    reply = in_mode(client, dataset, "deep")
    if dataset is WEATHER:
        assert reply.headers["Content-Type"].startswith("text/html")
        return
    assert b"[" * 20_000 in reply.body
    with pytest.raises(canonical.NotIJson, match="nested too deeply"):
        canonical.loads(reply.body)


@EVERY
def test_huge_numbers_are_there(client: Client, dataset: SampleDataset) -> None:
    raw = in_mode(client, dataset, "huge_numbers").body
    assert b"1e999" in raw
    assert b"NaN" in raw
    if dataset is not WEATHER:
        with pytest.raises(canonical.NotIJson, match="NaN or an infinity"):
            canonical.loads(raw)


def test_slow_begins_at_once_and_ends_with_the_server(client: Client) -> None:
    client.upstream.control("*", mode="slow")
    connection = client.connect()
    connection.request("GET", GAUGES.path)
    response = connection.getresponse()
    whole = sample_upstream.body("ks_stream_gauges")
    assert (response.status, response.read(10)) == (200, whole[:10])
    client.upstream.stop()
    with pytest.raises(http.client.IncompleteRead):
        response.read()
    connection.close()


def test_slow_has_a_bound() -> None:
    assert sample_upstream._DRIPS * sample_upstream._DRIP_PAUSE <= 20


def test_slow_sends_everything_in_the_end(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sample_upstream, "_DRIP_PAUSE", 0.0)
    assert in_mode(client, QUAKES, "slow").body == sample_upstream.body("ks_earthquakes")


def test_a_client_that_left_is_noticed() -> None:
    ours, theirs = socket.socketpair()
    with ours:
        with theirs:
            assert not sample_upstream._has_left(ours)
            theirs.send(b"x")
            assert not sample_upstream._has_left(ours)
            ours.recv(1)
        assert sample_upstream._has_left(ours)


def test_every_mode_answers(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sample_upstream, "_DRIP_PAUSE", 0.0)
    for mode in MODES:
        for dataset in DATASETS:
            assert in_mode(client, dataset, mode).status in (200, 302, 429, 503)


# --- life cycle


def test_a_stopped_upstream_is_gone_and_stopping_twice_is_fine() -> None:
    upstream = SampleUpstream()
    upstream.start()
    upstream.start()
    connection = Client(upstream).connect()
    assert read(connection, "/", {}, "GET", None).status == 200
    upstream.stop()
    upstream.stop()
    with pytest.raises((ConnectionError, http.client.HTTPException)):
        read(connection, "/", {}, "GET", None)
    connection.close()


def test_a_port_in_use_is_a_usage_error(client: Client) -> None:
    port = urlsplit(client.upstream.url).port
    assert port
    with pytest.raises(UsageError, match="cannot be used"):
        SampleUpstream(port)


@pytest.mark.parametrize("ending", [signal.SIGTERM, signal.SIGINT])
def test_the_command_prints_one_line_and_ends_on_a_signal(ending: signal.Signals) -> None:
    program = "from kfm.samples.upstream import serve_forever; serve_forever(0)"
    with subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout
        described = json.loads(process.stdout.readline())
        connection = http.client.HTTPConnection(urlsplit(described["url"]).netloc, timeout=60)
        reply = read(connection, described["datasets"][0]["path"], {}, "GET", None)
        connection.close()
        process.send_signal(ending)
        out, err = process.communicate(timeout=300)
    assert (process.returncode, out, err) == (0, "", "")
    assert reply.body == sample_upstream.body("ks_weather_stations")
    assert [sorted(d) for d in described["datasets"]] == [["dataset", "format", "path", "url"]] * 3
