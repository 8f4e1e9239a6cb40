"""Questions with a body, and addresses that follow from answers."""

import pytest

from kfm.fetch.base import FetchRequest, SecretEchoed, UpstreamRefused
from kfm.model.errors import UpstreamUnavailable, UsageError

BODY = b'{"features": []}'
ASKED = '{"limit": 10, "name": "é"}'


def test_a_body_makes_it_a_post(upstream, say, fetcher, request_for, into):
    upstream.answers(say.answer(body=BODY))
    got = fetcher().fetch(
        request_for("/search", body=ASKED, accept="application/geo+json", etag='"v1"'), into
    )
    (asked,) = upstream.asked
    assert (asked.line, asked.body) == ("POST /search HTTP/1.1", ASKED.encode())
    assert (asked.headers["content-type"], asked.headers["content-length"]) == (
        "application/json",
        str(len(ASKED.encode())),
    )
    assert asked.headers["accept"] == "application/geo+json"
    assert "if-none-match" not in asked.headers
    assert got.size == len(BODY)


def test_a_get_has_no_body_and_no_length(upstream, say, fetcher, request_for, into):
    upstream.answers(say.answer(body=BODY))
    fetcher().fetch(request_for(), into)
    assert not {"content-length", "content-type"} & set(upstream.asked[0].headers)


def test_a_post_is_asked_again_whole_and_never_continued(upstream, say, fetcher, request_for, into):
    upstream.answers(
        say.answer(503),
        say.answer(body=BODY[:5], length=len(BODY), ETag='"v1"'),
        say.answer(body=BODY, ETag='"v1"'),
    )
    assert fetcher().fetch(request_for(body=ASKED), into).attempts == 3
    assert [a.body for a in upstream.asked] == [ASKED.encode()] * 3
    assert not any("range" in a.headers for a in upstream.asked)
    assert into.read_bytes() == BODY


@pytest.mark.parametrize("status", [307, 308])
def test_a_redirect_that_repeats_the_question_is_followed(
    status, upstream, say, fetcher, request_for, into
):
    upstream.answers(say.answer(status, Location="/elsewhere"), say.answer(body=BODY))
    fetcher().fetch(request_for(body=ASKED), into)
    assert (upstream.asked[1].line, upstream.asked[1].body) == (
        "POST /elsewhere HTTP/1.1",
        ASKED.encode(),
    )


@pytest.mark.parametrize("status", [301, 302, 303])
def test_a_redirect_that_drops_the_question_is_refused(
    status, upstream, say, fetcher, request_for, into
):
    upstream.answers(say.answer(status, Location="/elsewhere"), say.answer(body=BODY))
    with pytest.raises(UpstreamRefused, match=str(status)):
        fetcher().fetch(request_for(body=ASKED), into)
    assert len(upstream.asked) == 1


def test_a_post_is_never_unchanged(upstream, say, fetcher, request_for, into):
    upstream.answers(say.raw("HTTP/1.1 304 x"))
    with pytest.raises(UpstreamUnavailable, match="not conditional"):
        fetcher().fetch(request_for(body=ASKED, etag='"v1"'), into)


@pytest.mark.parametrize("accept", ["text/csv\r\nX-Evil: 1", "snow\u2603man"])
def test_what_is_accepted_cannot_add_headers(accept, upstream, fetcher, request_for, into):
    with pytest.raises(UsageError, match="Accept"):
        fetcher().fetch(request_for(accept=accept), into)
    assert upstream.asked == []


def test_a_next_link_may_name_its_page_with_a_token(upstream, say, fetcher, request_for, into):
    upstream.answers(say.answer(body=BODY))
    fetcher().fetch(request_for("/items?token=next:naip:1", made_from=upstream.url("/items")), into)
    assert upstream.asked[0].line == "GET /items?token=next:naip:1 HTTP/1.1"


def test_a_next_link_resolves_only_what_the_registered_address_names(
    upstream, say, fetcher, request_for, into, monkeypatch
):
    monkeypatch.setenv("OURS", "hunter2-ours")
    monkeypatch.setenv("OTHER", "hunter2-other")
    upstream.answers(say.answer(body=BODY))
    registered = upstream.url("/items?api_key=env:OURS")
    fetcher().fetch(
        request_for("/items?page=2&api_key=env:OURS&token=env:OTHER", made_from=registered), into
    )
    assert (
        upstream.asked[0].line == "GET /items?page=2&api_key=hunter2-ours&token=env:OTHER HTTP/1.1"
    )


def test_a_made_address_on_another_allowed_host_gets_no_credentials(
    upstream, say, fetcher, into, monkeypatch
):
    monkeypatch.setenv("OURS", "hunter2-ours")
    upstream.answers(say.answer(body=BODY))
    request = FetchRequest(
        url=upstream.url("/b?api_key=env:OURS", host="cdn.example"),
        made_from=upstream.url("/a?api_key=env:OURS", host="data.example"),
        hosts=("data.example", f"cdn.example:{upstream.port}"),
        headers={"Authorization": "env:OURS"},
    )
    fetcher(resolve=lambda _: ("127.0.0.1",)).fetch(request, into)
    assert upstream.asked[0].line == "GET /b?api_key=env:OURS HTTP/1.1"
    assert "authorization" not in upstream.asked[0].headers


# What upstream says back


@pytest.mark.parametrize("cut", [0, 4, 11])
def test_a_body_that_repeats_our_credential_is_refused_and_not_kept(
    cut, upstream, say, fetcher, request_for, into, monkeypatch, left_over
):
    monkeypatch.setenv("MY_TOKEN", "Bearer s3cr3t-value")
    echo = b"your token is s3cr3t-value, thanks"
    at = echo.index(b"s3cr3t") + cut
    upstream.answers(say.chunks(echo[:at], echo[at:]))
    with pytest.raises(SecretEchoed) as caught:
        fetcher().fetch(request_for(headers={"Authorization": "env:MY_TOKEN"}), into)
    assert "s3cr3t" not in str(caught.value)
    assert left_over() == []


def test_headers_that_repeat_our_credential_are_as_good_as_missing(
    upstream, say, fetcher, request_for, into, monkeypatch
):
    monkeypatch.setenv("MY_TOKEN", "s3cr3t-value")
    upstream.answers(
        say.answer(
            body=BODY,
            ETag='"S3CR3T-value"',
            Last_Modified="s3cr3t-value",
            Content_Type="x; k=s3cr3t-value",
        )
    )
    got = fetcher().fetch(request_for(headers={"X-Api-Key": "env:MY_TOKEN"}), into)
    assert (got.etag, got.last_modified, got.content_type) == (None, None, None)
    assert got.size == len(BODY)


def test_an_error_that_repeats_our_credential_is_masked(
    upstream, say, fetcher, request_for, into, monkeypatch
):
    monkeypatch.setenv("MY_TOKEN", "S3cr3t-Value")
    upstream.answers(say.answer(302, Location="http://s3cr3t-value.evil.example/?x=S3cr3t-Value"))
    with pytest.raises(Exception, match=r"host \*\*\*\.evil\.example is not allowed"):
        fetcher().fetch(request_for(headers={"X-Api-Key": "env:MY_TOKEN"}), into)


def test_where_a_redirect_led_is_told_without_our_credential(
    upstream, say, fetcher, request_for, into, monkeypatch
):
    monkeypatch.setenv("MY_TOKEN", "s3cr3t-value")
    upstream.answers(say.answer(302, Location="/for/s3cr3t-value/b"), say.answer(body=BODY))
    got = fetcher().fetch(request_for(headers={"X-Api-Key": "env:MY_TOKEN"}), into)
    assert got.final_url == upstream.url("/for/***/b")
