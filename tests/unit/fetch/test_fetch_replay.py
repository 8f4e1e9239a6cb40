"""Recordings answer as upstream did, or say that there is none."""

import hashlib
import json

import pytest
from tests.given.replay_server import ReplayServer
from tests.given.verbs import SHARED

from kfm.fetch.base import FetchRequest, TooLarge, UpstreamRefused
from kfm.fetch.http import HttpFetcher
from kfm.fetch.offline import Recording, Recordings, ReplayFetcher
from kfm.model.errors import Denied, IntegrityError, UpstreamUnavailable, UsageError

HOST = "data.example"
SEARCH = f"https://{HOST}/search"


@pytest.fixture
def folder(tmp_path):
    """A folder of recordings: two files, two pages, three kinds of trouble."""
    entries = []

    def record(name: str, url: str, content: bytes, status: int = 200, **more: str) -> None:
        (tmp_path / name).write_bytes(content)
        sha256 = hashlib.sha256(content).hexdigest()
        method = "POST" if "request_body" in more or name.startswith("post") else "GET"
        entries.append(
            {
                "method": method,
                "url": url,
                "status": status,
                "file": name,
                "content_type": "text/csv",
                "size": len(content),
            }
        )
        entries[-1] |= {"sha256": sha256, "recorded_headers": {"server": "x"}, **more}

    record("a.csv", f"https://{HOST}/a?b=1&c=FIPS%3A20&b=2", b"a\n1\n")
    record("plain.csv", f"https://{HOST}/plain", b"p\n")
    record("page1", SEARCH, b"one", request_body='{"limit": 1}')
    record("page2", SEARCH, b"two", request_body='{"limit": 1, "token": "next:1"}')
    record("post1", f"{SEARCH}2", b"uno")
    record("post2", f"{SEARCH}2", b"due")
    record("missing", f"https://{HOST}/404", b"{}", 404)
    record("broken", f"https://{HOST}/500", b"{}", 500)
    record("busy", f"https://{HOST}/429", b"{}", 429)
    (tmp_path / "REPLAY.json").write_text(json.dumps({"note": "", "entries": entries}))
    return tmp_path


@pytest.fixture(params=["fetcher", "server"])
def replay(request, folder, into):
    """Ask the fetcher of recordings, and the real fetcher against the server of recordings: they
    answer alike.
    """

    def make(agent):
        def ask(path: str, **more):
            url = path if "://" in path else f"https://{HOST}{path}"
            return agent.fetch(FetchRequest(**{"url": url, "hosts": (HOST,), **more}), into)

        return ask

    if request.param == "fetcher":
        yield make(ReplayFetcher(Recordings.of(folder)))
    else:
        with ReplayServer(folder) as server:
            yield make(HttpFetcher(reroute=server.address, attempts=1))


def test_a_recording_is_served_with_its_digest_as_validator(replay, into):
    got = replay("/plain")
    digest = hashlib.sha256(b"p\n").hexdigest()
    assert (got.status, got.digest, got.etag, got.content_type) == (
        200,
        f"sha256:{digest}",
        f'"{digest[:32]}"',
        "text/csv",
    )
    assert into.read_bytes() == b"p\n"
    again = replay("/plain", etag=got.etag)
    assert (again.status, again.etag) == (304, got.etag)
    assert replay("/plain", etag='"other"').status == 200


@pytest.mark.parametrize(
    "query",
    [
        "b=1&c=FIPS%3A20&b=2",
        "c=FIPS:20&b=2&b=1",
        "b=1&b=2&c=FIPS%3a20",
        "b=1&b=2&c=FIPS:20&api_key=env:HOME",
    ],
)
def test_a_query_is_compared_by_its_fields(query, replay, into):
    replay(f"/a?{query}")
    assert into.read_bytes() == b"a\n1\n"


@pytest.mark.parametrize(
    "query", ["b=1&c=FIPS:20", "b=1&b=2&b=2&c=FIPS:20", "b=1&b=2&c=FIPS:21", "b=1&b=2&c=FIPS:20&d="]
)
def test_other_fields_are_another_question(query, folder, into):
    with pytest.raises(
        UpstreamUnavailable, match=r"no recording of https://data\.example/a\?"
    ) as caught:
        ReplayFetcher(Recordings.of(folder)).fetch(
            FetchRequest(url=f"https://{HOST}/a?{query}", hosts=(HOST,)), into
        )
    assert "REPLAY.json" in caught.value.remedy


@pytest.mark.parametrize(
    ("url", "body", "content"),
    [
        (SEARCH, '{"limit":1}', b"one"),
        (SEARCH, '{"token": "next:1", "limit": 1}', b"two"),
        (f"{SEARCH}2", '{"limit": 9}', b"uno"),
        (f"{SEARCH}2", '{"token": "x"}', b"due"),
    ],
)
def test_a_post_is_answered_by_its_body_or_its_page(url, body, content, replay, into):
    got = replay(url, body=body)
    assert (into.read_bytes(), got.etag) == (content, None)


@pytest.mark.parametrize(
    "body",
    [
        '{"limit": 9}',
        '{"limit": 1, "token": "other"}',
        '{"limit": 9, "token": "next:1"}',
        "[]",
        "[1]",
        "limit",
    ],
)
def test_a_post_with_another_body_has_no_recording(body, replay, left_over):
    with pytest.raises(UpstreamUnavailable):
        replay(SEARCH, body=body)
    assert left_over() == []


def test_a_get_is_not_answered_by_a_post(folder, into):
    with pytest.raises(UpstreamUnavailable, match="no recording"):
        ReplayFetcher(Recordings.of(folder)).fetch(FetchRequest(url=SEARCH, hosts=(HOST,)), into)


@pytest.mark.parametrize(
    ("path", "error", "said"),
    [
        ("/404", UpstreamRefused, "404"),
        ("/500", UpstreamUnavailable, "500"),
        ("/429", UpstreamUnavailable, "429"),
    ],
)
def test_recorded_trouble_is_trouble(path, error, said, replay, left_over):
    with pytest.raises(UpstreamUnavailable, match=f"(answered|http) {said}") as caught:
        replay(path)
    assert type(caught.value) is error
    assert left_over() == []


def test_a_damaged_or_lost_recording_is_no_answer(folder, into, left_over):
    agent = ReplayFetcher(Recordings.of(folder))
    (folder / "plain.csv").write_bytes(b"q\n")
    (folder / "a.csv").unlink()
    for path in ("plain", "a?b=1&c=FIPS:20&b=2"):
        with pytest.raises(IntegrityError):
            agent.fetch(FetchRequest(url=f"https://{HOST}/{path}", hosts=(HOST,)), into)
    assert left_over() == []


def test_hosts_and_sizes_count_as_on_the_network(folder, into):
    agent = ReplayFetcher(Recordings.of(folder))
    with pytest.raises(Denied):
        agent.fetch(FetchRequest(url=f"https://{HOST}/plain", hosts=("other.example",)), into)
    with pytest.raises(TooLarge):
        agent.fetch(FetchRequest(url=f"https://{HOST}/plain", hosts=(HOST,), max_bytes=1), into)


@pytest.mark.parametrize("content", [None, "{", '{"entries": [{"url": 1}]}'])
def test_a_folder_without_a_readable_list_is_a_usage_error(content, tmp_path):
    if content is not None:
        (tmp_path / "REPLAY.json").write_text(content)
    with pytest.raises(UsageError, match=r"REPLAY\.json"):
        Recordings.of(tmp_path)


@pytest.mark.needs_shared
@pytest.mark.skipif(
    not (SHARED / "data").is_dir(), reason="not run: the recordings are not beside the repository"
)
def test_every_shared_recording_is_whole_and_answers_over_http(into):
    entries = json.loads((SHARED / "data" / "REPLAY.json").read_text())["entries"]
    with ReplayServer(SHARED / "data") as server:
        agent = HttpFetcher(reroute=server.address, attempts=1)
        for entry in entries:
            request = FetchRequest(
                url=entry["url"],
                hosts=(entry["url"].split("/")[2],),
                body=entry.get("request_body") or "{}" * (entry["method"] == "POST"),
            )
            if entry["status"] == 200:
                assert agent.fetch(request, into).digest == f"sha256:{entry['sha256']}", entry[
                    "url"
                ]
            else:
                with pytest.raises(UpstreamUnavailable, match=str(entry["status"])):
                    agent.fetch(request, into)


def test_captures_of_files_and_datasets_of_our_own_are_known_by_name(tmp_path, into):
    (tmp_path / "a").write_bytes(b"a")
    agent = ReplayFetcher.of_captures(
        [
            Recording(url=url, file=str(tmp_path / "a"))
            for url in ("kfm://dataset/x", "file:///inbox/x.csv")
        ]
    )
    assert agent.fetch(FetchRequest(url="file:///inbox/x.csv", hosts=("",)), into).size == 1
    with pytest.raises(UpstreamUnavailable, match="without `--upstream replay`"):
        agent.fetch(FetchRequest(url="file:///inbox/y.csv", hosts=("",)), into)
