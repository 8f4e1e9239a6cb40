"""Upstreams that speak broken HTTP, lead elsewhere or never end, and catalogues of traps: nothing
official changes, nobody else is asked.
"""

import gzip
import json
import time
from collections.abc import Iterator
from typing import Any

import pytest

from kfm.fetch.http import HttpFetcher
from tests.given.stand import Stand, answer

ROWS = [{"id": i, "name": f"n{i}"} for i in range(20)]
JSON = json.dumps(ROWS).encode()
PACKED = gzip.compress(JSON)
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


@pytest.fixture(scope="module")
def stand(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stand]:
    with Stand(tmp_path_factory.mktemp("http")) as found:
        found.register("feed", {"format": "json", "max_bytes": 1 << 20}, business_key=["id"])
        found.publish("feed", answer(JSON))
        yield found


def head(*lines: str, status: str = "200 OK") -> bytes:
    return "\r\n".join([f"HTTP/1.1 {status}", *lines, "", ""]).encode("latin-1")


@pytest.mark.parametrize(
    ("said", "words"),
    [
        pytest.param(
            answer(JSON).replace(b"Content-Length: ", b"Content-Length: 9"),
            "cut off",
            id="shorter than it says",
        ),
        pytest.param(head("Content-Length: -5") + JSON, "length", id="a length below nothing"),
        pytest.param(
            head("Content-Length: 5", "Content-Length: 600") + JSON, "length", id="two lengths"
        ),
        pytest.param(
            head("Content-Length: 5", "Transfer-Encoding: chunked") + JSON,
            "length",
            id="a length and chunks",
        ),
        pytest.param(CHUNKED + b"zz\r\n" + JSON, "chunk", id="chunks of no size"),
        pytest.param(CHUNKED + b"ffffffffffffffff\r\n" + JSON, "chunk", id="a chunk of any size"),
        pytest.param(
            CHUNKED + b"%x\r\n%bmore\r\n0\r\n\r\n" % (len(JSON), JSON),
            "chunk",
            id="chunks that do not end",
        ),
        pytest.param(CHUNKED + b"%x\r\n%b\r\n" % (len(JSON), JSON), "", id="chunks without an end"),
        pytest.param(
            head("Transfer-Encoding: gzip, chunked") + JSON, "encoding", id="another transfer"
        ),
        pytest.param(
            head("Content-Length: 5", " folded: yes") + JSON, "header", id="a folded header"
        ),
        pytest.param(
            head("Content-Length: 5", "X: a\rSet-Cookie: b") + JSON,
            "header",
            id="a header in a header",
        ),
        pytest.param(head("Content Length: 5") + JSON, "header", id="a blank in a name"),
        pytest.param(head(*(f"X-{i}: y" for i in range(300))), "headers", id="300 headers"),
        pytest.param(head("X: " + "y" * 100_000), "line", id="a header without an end"),
        pytest.param(head(status="999 Odd") + JSON, "", id="status 999"),
        pytest.param(
            head(status="206 Partial Content") + JSON, "206", id="a part nobody asked for"
        ),
        pytest.param(
            head(status="304 Not Modified"), "304", id="unchanged, though nobody asked that"
        ),
        pytest.param(head(status="100 Continue") * 50, "interim", id="for ever about to answer"),
        pytest.param(JSON, "", id="no head at all"),
        pytest.param(b"HTTP/2 200 OK\r\n\r\n" + JSON, "", id="another protocol"),
        pytest.param(b"", "", id="nothing"),
        pytest.param(
            answer(gzip.compress(bytes(50 << 20)), Content_Encoding="gzip"),
            "encoding",
            id="a gzip bomb nobody asked for",
        ),
        pytest.param(
            head("Content-Encoding: gzip") + PACKED[:-20],
            "encoding",
            id="gzip cut short without a length",
        ),
        pytest.param(
            answer(PACKED[:-20], Content_Encoding="gzip"),
            "encoding",
            id="gzip cut short with an honest length",
        ),
        pytest.param(
            head("Content-Encoding: x-gzip", f"Content-Length: {len(PACKED)}") + PACKED[:-20],
            "encoding",
            id="gzip cut off",
        ),
        pytest.param(
            CHUNKED[:-2] + b"Content-Encoding: deflate\r\n\r\n5\r\n" + PACKED[:5],
            "encoding",
            id="deflate in chunks that end early",
        ),
        pytest.param(
            answer(PACKED[:-1], Content_Encoding="identity, gzip"), "encoding", id="gzip in a list"
        ),
        pytest.param(
            answer(JSON, Content_MD5="1B2M2Y8AsgTpgAmY7PhCfg=="),
            "Content-MD5",
            id="another body than its digest states",
        ),
        pytest.param(head("Location: ", status="302 Found"), "nowhere", id="a redirect to nowhere"),
    ],
)
def test_an_answer_that_is_no_http_is_a_failure_of_transport(
    stand: Stand, said: bytes, words: str
) -> None:
    stand.speaker.says["/feed"] = said
    stand.fails("feed", 4, words)


@pytest.mark.parametrize("length", [True, False], ids=["with a length", "without"])
def test_compressed_bytes_cut_short_that_do_not_say_what_they_are_are_refused(
    stand: Stand, length: bool
) -> None:
    stand.speaker.says["/feed"] = answer(PACKED[:-20]) if length else head() + PACKED[:-20]
    stand.refuses("feed", "format", "gzip", kept=[PACKED[:-20]])


def test_an_answer_longer_than_it_says_is_not_believed(stand: Stand) -> None:
    stand.speaker.says["/feed"] = head(f"Content-Length: {len(JSON) - 9}") + JSON
    stand.fails("feed", 4, "more than it stated")


def test_an_answer_without_an_end_is_left_at_its_limit(stand: Stand) -> None:
    def endless(*_: Any) -> Iterator[bytes]:
        yield CHUNKED
        while True:
            yield b"10000\r\n" + b" " * 0x10000 + b"\r\n"

    stand.speaker.says["/feed"] = endless
    stand.fails("feed", 1, "larger than", "max_bytes")


def test_a_body_that_differs_each_time_and_has_no_length_is_not_believed(stand: Stand) -> None:
    stand.speaker.says["/feed"] = lambda *_: head() + JSON + b" " * len(stand.speaker.asked)
    stand.fails("feed", 4, "length was not stated")


def test_a_byte_now_and_then_is_given_up(stand: Stand, monkeypatch: pytest.MonkeyPatch) -> None:
    defaults = HttpFetcher.__init__.__kwdefaults__
    for name, value in {"slow_after_s": 0.5, "backoff_base_s": 0.01}.items():
        monkeypatch.setitem(defaults, name, value)

    def drip(*_: Any) -> Iterator[bytes]:
        yield head(f"Content-Length: {len(JSON)}")
        for byte in JSON:
            yield bytes([byte])
            time.sleep(0.1)

    stand.speaker.says["/feed"] = drip
    stand.fails("feed", 4, "given up")


# -- where a redirect may lead


@pytest.mark.parametrize(
    "place",
    [
        "http://10.0.0.1/feed",
        "http://192.168.0.1/",
        "http://169.254.169.254/latest/meta-data/",
        "http://[::1]:{port}/feed",
        "http://[::ffff:127.0.0.1]:{port}/feed",
        "http://localhost:{port}/feed",
        "http://2130706433:{port}/feed",
        "http://0x7f000001:{port}/feed",
        "http://0177.0.0.1:{port}/feed",
        "http://127.1:{port}/feed",
        "http://evil.example/feed",
        "http://127.0.0.1@evil.example/feed",
        "//evil.example/feed",
        "file:///etc/passwd",
        "ftp://127.0.0.1/feed",
        "gopher://127.0.0.1/_x",
        "javascript:alert(1)",
        "http://[",
    ],
)
def test_a_redirect_elsewhere_is_denied(stand: Stand, place: str) -> None:
    stand.speaker.says["/feed"] = head(
        f"Location: {place.format(port=stand.speaker.port)}", status="302 Found"
    )
    asked = len(stand.speaker.asked)
    stand.fails("feed", 3)
    assert stand.speaker.asked[asked:] == ["/feed"]


@pytest.mark.parametrize(
    "host", ["10.0.0.1", "169.254.169.254", "100.64.0.1", "2130706433", "::1%lo"]
)
def test_even_a_host_that_is_registered_is_not_reached_at_a_private_address(
    stand: Stand, host: str
) -> None:
    name = "inner_" + "".join(c if c.isalnum() else "_" for c in host)
    stand.register(name, {"format": "json", "hosts": [host]}, business_key=["id"])
    stand.publish(name, answer(JSON))
    stand.speaker.says[f"/{name}"] = head(f"Location: http://{host}/", status="302 Found")
    stand.fails(name, 3)


def test_a_thousand_redirects_are_not_followed(stand: Stand) -> None:
    stand.speaker.says |= {
        f"/r{i}": head(f"Location: /r{i + 1}", status="302 Found") for i in range(1000)
    }
    stand.speaker.says["/feed"] = head("Location: /r0", status="301 Moved")
    asked = len(stand.speaker.asked)
    stand.fails("feed", 4, "redirects never end")
    assert len(stand.speaker.asked) - asked <= 12


def test_https_is_not_left_for_http(stand: Stand, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KFM_REROUTE", f"127.0.0.1:{stand.speaker.port}")
    stand.register(
        "sealed",
        {"format": "json", "url": "https://data.agency.example/sealed"},
        business_key=["id"],
    )
    stand.publish("sealed", answer(JSON))
    stand.speaker.says["/sealed"] = head(
        "Location: http://data.agency.example/feed", status="302 Found"
    )
    stand.fails("sealed", 3, "https to http")


# -- addresses that pages and options name


@pytest.mark.parametrize(
    ("link", "code"),
    [
        ("http://169.254.169.254/latest/", "page.host"),
        ("https://127.0.0.1/items", "page.host"),
        ("file:///etc/passwd", "page.host"),
        ("http://[", "page.host"),
        ("//evil.example/items", "page.host"),
    ],
)
def test_a_next_link_that_leads_elsewhere_is_not_followed(
    stand: Stand, link: str, code: str
) -> None:
    point = {"type": "Point", "coordinates": [-99.0, 38.2]}
    said = {
        "time_series_id": "a",
        "monitoring_location_id": "USGS-1",
        "parameter_code": "00060",
        "statistic_id": "00003",
        "value": "1.5",
    }
    said |= {
        "unit_of_measure": "ft^3/s",
        "approval_status": "Approved",
        "qualifier": None,
        "last_modified": "2026-07-30T15:43:16Z",
    }
    features = [
        {
            "type": "Feature",
            "id": "r",
            "properties": said | {"time": "2026-01-01"},
            "geometry": point,
        }
    ]
    document = {"type": "FeatureCollection", "features": features, "numberReturned": 1, "links": []}
    if "flows" not in stand.good:
        url = f"{stand.speaker.url}/collections/daily/items"
        stand.register("flows", {"kind": "usgs_ogc", "url": url})
        stand.speaker.says["/collections/daily/items"] = answer(document)
        stand.publish("flows")
    body = json.dumps(document | {"links": [{"rel": "next", "href": link}]}).encode()
    stand.speaker.says["/collections/daily/items"] = answer(body)
    asked = len(stand.speaker.asked)
    stand.refuses("flows", code, kept=[body])
    assert len(stand.speaker.asked) == asked + 1


@pytest.mark.parametrize(
    ("place", "hosts"),
    [
        ("http://10.0.0.1/c.json", ["10.0.0.1"]),
        ("http://evil.example/c.json", []),
        ("file:///etc/passwd", []),
    ],
)
def test_county_outlines_are_fetched_under_the_same_rules(
    stand: Stand, place: str, hosts: list[str]
) -> None:
    alert = {
        "id": "urn:a",
        "geocode": {"SAME": ["020001"], "UGC": []},
        "references": [],
        "event": "Flood",
        "expires": "2019-09-03T06:15:00Z",
    }
    page = {
        "type": "FeatureCollection",
        "features": [
            {"type": "Feature", "id": "https://a/a", "geometry": None, "properties": alert}
        ],
    }
    source = {"kind": "nws", "hosts": hosts, "options": {"resource": "alerts"}}
    if "alerts" not in stand.good:
        stand.register("alerts", source)
        stand.publish("alerts", answer(page))
    stand.register("alerts", source | {"options": {"resource": "alerts", "counties_url": place}})
    outcome = stand.fails("alerts", 2 if place.startswith("file") else 3)
    assert outcome["reason"]


# -- catalogues


def discovers(stand: Stand, kind: str, url: str = "") -> tuple[int, list[dict[str, Any]], str]:
    config = stand.ws / "kfm.yml"
    plain = config.read_text().partition("catalogues:")[0]
    config.write_text(
        plain
        + f"catalogues:\n  - {{url: '{url or stand.speaker.url + '/catalogue'}', kind: {kind}}}\n"
    )
    before = stand.official()
    said = stand("discover", "--catalogues", "--json")
    told = stand("discover", "--catalogues")
    config.write_text(plain)
    assert stand.official() == before
    assert (told.out + told.err).replace("\n", "").isprintable(), (
        "what a catalogue says must not steer a terminal"
    )
    return said.code, said.json["drafts"], told.out + told.err


@pytest.mark.parametrize(
    ("kind", "body", "words"),
    [
        ("dcat", b"<html>busy</html>", "no JSON object"),
        ("dcat", b"[]", "no JSON object"),
        ("dcat", b"{}", "offers 0"),
        ("dcat", b'{"a":' * 100_000, "no JSON object"),
        ("dcat", b'{"dataset": 7}', "offers 0"),
        ("dcat", b'{"dataset": [{"title": "x", "distribution": 7}, 8]}', "offers 0"),
        ("stac", b'{"links": 7, "collections": {"a": 1}}', "offers 0"),
        ("arcgis", b'{"layers": [7, {"id": "x"}], "services": true}', "offers 0"),
    ],
)
def test_a_catalogue_that_is_none_is_refused(
    stand: Stand, kind: str, body: bytes, words: str
) -> None:
    stand.speaker.says["/catalogue"] = answer(body)
    code, drafts, told = discovers(stand, kind)
    assert (code, drafts) == (1, [])
    assert words in told


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("http://169.254.169.254/catalogue", b""),
        ("http://10.0.0.1/catalogue", b""),
        ("", head("Location: http://169.254.169.254/", status="302 Found")),
        ("", head("Location: http://evil.example/", status="302 Found")),
    ],
)
def test_a_catalogue_is_fetched_under_the_same_rules(stand: Stand, url: str, said: bytes) -> None:
    stand.speaker.says["/catalogue"] = said
    assert discovers(stand, "dcat", url)[:2] == (3, [])


def test_a_catalogue_cannot_draft_files_passwords_or_signatures(stand: Stand) -> None:
    def offer(title: str, link: str) -> dict[str, Any]:
        return {
            "title": title,
            "description": "d",
            "distribution": [{"downloadURL": link, "mediaType": "text/csv"}],
        }

    traps = [
        "file:///keys/root",
        "file:///etc/passwd",
        "ftp://h.example/x",
        "http://user:pw@h.example/x",
        "http://h.example/x?sig=Zm9yZ2Vk",
    ]
    traps += [
        "http://h.example/x?X-Amz-Signature=Zm9yZ2Vk",
        "http://[",
        "javascript:alert(1)",
        "//[/x",
    ]
    document = {
        "dataset": [
            *(offer(f"trap {i}", link) for i, link in enumerate(traps)),
            offer("\x1b[2JFish \u202elive", "http://h.example/f.csv"),
        ]
    }
    stand.speaker.says["/catalogue"] = answer(document)
    code, drafts, _ = discovers(stand, "dcat")
    assert (code, [d["source_url"] for d in drafts]) == (0, ["http://h.example/f.csv"])
    written = "".join(
        p.read_text() for p in (stand.ws / "data" / "work" / "_discovered").rglob("*.json")
    )
    assert (
        "Zm9yZ2Vk" not in written and "file:///" not in written and "\x1b" not in drafts[0]["title"]
    )
