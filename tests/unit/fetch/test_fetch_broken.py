"""Broken framing, cut bodies, slow and busy servers."""

import base64
import hashlib

import pytest

from kfm.fetch.base import AskedToWait, Wait
from kfm.model.errors import UpstreamUnavailable

TAG = '"v1"'
BODY = b"0123456789" * 10
DIGEST = "sha256:" + hashlib.sha256(BODY).hexdigest()


def coded(algorithm, body=BODY):
    return base64.b64encode(hashlib.new(algorithm, body).digest()).decode()


SHA256 = f"sha-256=:{coded('sha256')}:"
PROOF = {"Repr_Digest": SHA256}
OTHER = b"ABCDEFGHIJ" * 10


def rest(say, start, *, status=206, tag=TAG, total=100, shown=None, body=None):
    piece = BODY[start:] if body is None else body
    first = start if shown is None else shown
    return say.answer(
        status, piece, ETag=tag, Content_Range=f"bytes {first}-{first + len(piece) - 1}/{total}"
    )


# Cut bodies that can be continued


def test_a_cut_body_is_continued_where_it_ended(
    upstream, say, fetcher, request_for, into, left_over
):
    upstream.answers(
        say.answer(body=BODY[:30], length=100, ETag=TAG, Content_Type="text/csv", **PROOF),
        rest(say, 30),
    )
    got = fetcher().fetch(request_for(etag='"v0"'), into)
    first, second = upstream.asked
    assert first.headers["if-none-match"] == '"v0"'
    assert (second.headers["range"], second.headers["if-range"]) == ("bytes=30-", TAG)
    assert "if-none-match" not in second.headers
    assert (got.status, got.size, got.digest, got.etag, got.content_type) == (
        200,
        100,
        DIGEST,
        TAG,
        "text/csv",
    )
    assert got.waits == (Wait(0.5, "the body was cut off, 70 of 100 bytes missing"),)
    assert (into.read_bytes(), left_over()) == (BODY, ["body"])


def test_a_body_can_be_continued_more_than_once(upstream, say, fetcher, request_for, into):
    cut = say.raw(
        f"HTTP/1.1 206 x\nETag: {TAG}\nContent-Length: 70\nContent-Range: bytes 30-99/100",
        BODY[30:55],
    )
    upstream.answers(
        say.answer(body=BODY[:30], length=100, ETag=TAG, **PROOF),
        cut,
        say.answer(503),
        rest(say, 55),
    )
    assert fetcher().fetch(request_for(), into).digest == DIGEST
    assert [asked.headers.get("range") for asked in upstream.asked] == [
        None,
        "bytes=30-",
        "bytes=55-",
        "bytes=55-",
    ]


def test_a_range_shorter_than_asked_is_continued(upstream, say, fetcher, request_for, into):
    upstream.answers(
        say.answer(body=BODY[:30], length=100, ETag=TAG, **PROOF),
        rest(say, 30, body=BODY[30:60]),
        rest(say, 60),
    )
    assert fetcher().fetch(request_for(), into).digest == DIGEST


def test_a_reset_connection_is_continued(upstream, say, fetcher, request_for, into):
    upstream.answers(
        say.then_reset(say.answer(body=BODY[:30], length=100, ETag=TAG, **PROOF)), rest(say, 30)
    )
    got = fetcher().fetch(request_for(), into)
    assert (got.digest, upstream.asked[1].headers["range"]) == (DIGEST, "bytes=30-")
    assert got.waits[0].reason == "connection reset"


def test_chunks_cut_off_are_continued(upstream, say, fetcher, request_for, into):
    upstream.answers(
        say.chunks(BODY[:30], end=b"", head=f"ETag: {TAG}\r\nRepr-Digest: {SHA256}\r\n"),
        rest(say, 30),
    )
    assert fetcher().fetch(request_for(), into).digest == DIGEST
    assert upstream.asked[1].headers["range"] == "bytes=30-"


def test_a_new_version_while_resuming_starts_over(upstream, say, fetcher, request_for, into):
    upstream.answers(
        say.answer(body=BODY[:30], length=100, ETag=TAG, **PROOF),
        say.answer(body=b"new", ETag='"v2"'),
    )
    got = fetcher().fetch(request_for(), into)
    assert (got.etag, got.size, into.read_bytes()) == ('"v2"', 3, b"new")


@pytest.mark.parametrize("tag", [None, 'W/"v1"', "v1"])
def test_without_a_strong_tag_a_cut_body_starts_over(
    tag, upstream, say, fetcher, request_for, into
):
    headers = {"ETag": tag} if tag else {}
    upstream.answers(
        say.answer(body=BODY[:30], length=100, **headers), say.answer(body=BODY, **headers)
    )
    assert fetcher().fetch(request_for(), into).digest == DIGEST
    assert "range" not in upstream.asked[1].headers


@pytest.mark.parametrize(
    "wrong",
    [
        {"tag": '"v2"'},
        {"tag": 'W/"v1"'},
        {"shown": 29},
        {"shown": 31},
        {"total": 101},
        {"total": 50},
        {"body": BODY[30:] + b"more"},
    ],
)
def test_a_continuation_of_something_else_starts_over(
    wrong, upstream, say, fetcher, request_for, into
):
    upstream.answers(
        say.answer(body=BODY[:30], length=100, ETag=TAG, **PROOF),
        rest(say, 30, **wrong),
        say.answer(body=BODY, ETag=TAG),
    )
    got = fetcher().fetch(request_for(), into)
    assert (got.digest, got.attempts, into.read_bytes()) == (DIGEST, 3, BODY)
    assert "range" not in upstream.asked[2].headers


@pytest.mark.parametrize(
    "head",
    [
        f"HTTP/1.1 206 x\nETag: {TAG}\nContent-Length: 70",
        f"HTTP/1.1 206 x\nETag: {TAG}\nContent-Length: 69\nContent-Range: bytes 30-99/100",
        "HTTP/1.1 206 x\nContent-Length: 70\nContent-Range: bytes 30-99/100",
        "HTTP/1.1 416 x\nContent-Length: 0\nContent-Range: bytes */100",
    ],
)
def test_a_continuation_that_does_not_add_up_starts_over(
    head, upstream, say, fetcher, request_for, into
):
    upstream.answers(
        say.answer(body=BODY[:30], length=100, ETag=TAG, **PROOF),
        say.raw(head, BODY[30:]),
        say.answer(body=BODY, ETag=TAG),
    )
    assert fetcher().fetch(request_for(), into).digest == DIGEST
    assert "range" not in upstream.asked[2].headers


def test_a_chunked_continuation_that_is_too_long_starts_over(
    upstream, say, fetcher, request_for, into
):
    head = (
        f"HTTP/1.1 206 x\nETag: {TAG}\nTransfer-Encoding: chunked\nContent-Range: bytes 30-99/100"
    )
    too_long = say.raw(head, b"47\r\n" + BODY[30:] + b"!\r\n0\r\n\r\n")
    upstream.answers(
        say.answer(body=BODY[:30], length=100, ETag=TAG, **PROOF),
        too_long,
        say.answer(body=BODY, ETag=TAG),
    )
    got = fetcher().fetch(request_for(), into)
    assert (got.digest, got.attempts) == (DIGEST, 3)


def test_equal_tags_of_different_resources_are_not_joined(
    upstream, say, fetcher, request_for, into
):
    upstream.answers(
        say.answer(302, Location="/one"),
        say.answer(body=b"x" * 30, length=100, ETag=TAG, **PROOF),
        say.answer(302, Location="/two"),
        rest(say, 30),
        say.answer(body=BODY, ETag=TAG),
    )
    assert fetcher().fetch(request_for(), into).digest == DIGEST


def test_a_304_to_a_range_request_is_an_error(upstream, say, fetcher, request_for, into, left_over):
    upstream.answers(
        say.answer(body=BODY[:30], length=100, ETag=TAG, **PROOF), say.raw("HTTP/1.1 304 x")
    )
    with pytest.raises(UpstreamUnavailable, match="304"):
        fetcher().fetch(request_for(etag='"v0"'), into)
    assert left_over() == []


# Pieces of two bodies under one tag


STATEMENTS = [
    {"Repr_Digest": SHA256},
    {"Repr_Digest": f"unixsum=:AA==:, sha-512=:{coded('sha512')}:"},
    {"Content_Digest": SHA256},
    {"Digest": f"SHA-256={coded('sha256')},md5={coded('md5')}"},
    {"Digest": f"SHA={coded('sha1')}"},
    {"Content_MD5": coded("md5")},
    {"x_goog_hash": f"crc32c=AAAAAA==, md5={coded('md5')}"},
    {"x_amz_checksum_sha256": coded("sha256")},
    {"ETag": f'"{hashlib.md5(BODY).hexdigest()}"'},
]


@pytest.mark.parametrize("stated", STATEMENTS, ids=lambda stated: next(iter(stated)))
def test_pieces_are_one_body_only_by_a_digest_and_are_else_read_again_whole(
    stated, upstream, say, fetcher, request_for, into
):
    headers = {"ETag": TAG, **stated}
    tag = headers["ETag"]
    upstream.answers(say.answer(body=BODY[:30], length=100, **headers), rest(say, 30, tag=tag))
    assert (fetcher().fetch(request_for(), into).digest, len(upstream.asked)) == (DIGEST, 2)
    upstream.answers(
        say.answer(body=BODY[:30], length=100, **headers),
        rest(say, 30, tag=tag, body=OTHER[30:]),
        say.answer(body=BODY, **headers),
    )
    got = fetcher().fetch(request_for(), into)
    assert (got.digest, got.attempts, into.read_bytes()) == (DIGEST, 3, BODY)
    assert [asked.headers.get("range") for asked in upstream.asked[2:]] == [None, "bytes=30-", None]


@pytest.mark.parametrize(
    "unproven",
    [{}, {"Repr_Digest": "sha-256=:no:"}, {"Digest": "crc32c=AAAAAA=="}, {"ETag": '"abc-2"'}],
)
def test_without_a_digest_a_cut_body_is_read_again_whole_whatever_its_tag_says(
    unproven, upstream, say, fetcher, request_for, into
):
    headers = {"ETag": TAG, **unproven}
    upstream.answers(
        say.answer(body=OTHER[:30], length=100, **headers), say.answer(body=BODY, **headers)
    )
    got = fetcher().fetch(request_for(), into)
    assert (got.digest, into.read_bytes(), "range" in upstream.asked[1].headers) == (
        DIGEST,
        BODY,
        False,
    )


def test_pieces_that_never_fit_are_no_body(upstream, say, fetcher, request_for, into, left_over):
    cut = say.answer(body=OTHER[:30], length=100, ETag=TAG, **PROOF)
    upstream.answers(cut, rest(say, 30), cut)
    with pytest.raises(UpstreamUnavailable, match="70 of 100 bytes missing"):
        fetcher().fetch(request_for(), into)
    assert [asked.headers.get("range") for asked in upstream.asked] == [
        None,
        "bytes=30-",
        None,
        None,
        None,
    ]
    assert left_over() == []


@pytest.mark.parametrize("stated", STATEMENTS[:-1], ids=lambda stated: next(iter(stated)))
def test_a_whole_body_that_is_not_what_its_digest_states_is_not_taken(
    stated, upstream, say, fetcher, request_for, into, left_over
):
    upstream.answers(say.answer(body=OTHER, **stated))
    with pytest.raises(UpstreamUnavailable, match=r"2 attempts failed.* states") as caught:
        fetcher(attempts=2).fetch(request_for(), into)
    assert (caught.value.exit_code, left_over()) == (4, [])
    upstream.answers(say.answer(body=OTHER, **stated), say.answer(body=BODY, **stated))
    assert fetcher().fetch(request_for(), into).digest == DIGEST


def test_a_digest_of_digests_says_nothing_of_the_body(upstream, say, fetcher, request_for, into):
    upstream.answers(
        say.answer(
            body=OTHER, x_amz_checksum_sha256=coded("sha256"), x_amz_checksum_type="COMPOSITE"
        )
    )
    assert fetcher().fetch(request_for(), into).size == 100


def test_a_stated_digest_proves_the_end_of_a_body_without_a_length(
    upstream, say, fetcher, request_for, into
):
    upstream.answers(
        say.raw(f"HTTP/1.0 200 OK\nRepr-Digest: {SHA256}", BODY[:40]),
        say.raw(f"HTTP/1.0 200 OK\nRepr-Digest: {SHA256}", BODY),
    )
    got = fetcher().fetch(request_for(), into)
    assert (got.digest, got.attempts) == (DIGEST, 2)


def test_when_every_attempt_is_cut_off_nothing_is_left(
    upstream, say, fetcher, request_for, into, slept, left_over
):
    upstream.answers(say.answer(body=BODY[:30], length=100))
    with pytest.raises(UpstreamUnavailable, match=r"5 attempts failed.*70 of 100 bytes missing"):
        fetcher().fetch(request_for(), into)
    assert (len(upstream.asked), slept, left_over()) == (5, [0.5, 1.0, 2.0, 4.0], [])


def test_an_older_file_survives_a_failed_fetch(
    upstream, say, fetcher, request_for, into, left_over
):
    into.write_bytes(b"old")
    upstream.answers(say.answer(body=BODY[:30], length=100))
    with pytest.raises(UpstreamUnavailable):
        fetcher(attempts=2).fetch(request_for(), into)
    assert (into.read_bytes(), left_over()) == (b"old", ["body"])


# Framing


def test_chunks_extensions_and_trailers_are_understood(upstream, say, fetcher, request_for, into):
    body = b"5;name=value\r\nhello\r\n6 \r\n world\r\n0\r\nX-Trailer: 1\r\n\r\n"
    upstream.answers(say.raw("HTTP/1.1 200 OK\nTransfer-Encoding: Chunked", body))
    assert fetcher().fetch(request_for(), into).size == 11
    assert into.read_bytes() == b"hello world"


def test_many_small_chunks_across_many_reads(upstream, say, fetcher, request_for, into):
    upstream.answers(say.chunks(*[b"%05d" % n for n in range(20_000)]))
    assert fetcher().fetch(request_for(), into).size == 100_000
    assert into.read_bytes().endswith(b"1999819999")


def test_interim_answers_are_skipped(upstream, say, fetcher, request_for, into):
    upstream.answers(b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" + say.answer(body=BODY))
    assert fetcher().fetch(request_for(), into).digest == DIGEST


def test_an_empty_body_of_stated_length_is_an_answer(upstream, say, fetcher, request_for, into):
    upstream.answers(say.answer())
    assert fetcher().fetch(request_for(), into).size == 0
    assert into.read_bytes() == b""


def test_a_body_that_goes_on_behind_its_stated_length_is_not_believed(
    upstream, say, fetcher, request_for, into
):
    upstream.answers(say.answer(body=BODY + b"HTTP/1.1 200 x\r\n", length=100))
    with pytest.raises(UpstreamUnavailable, match="more than it stated"):
        fetcher().fetch(request_for(), into)
    assert not into.exists()


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"HTTP/1.1 200 OK\r\nContent-Le",
        b"hello\r\n\r\n",
        b"HTTP/2 200 OK\r\n\r\n",
        b"HTTP/1.1 999 x\r\n\r\n",
        b"HTTP/1.1 101 x\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 100 x\r\n\r\n" * 20,
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello!",
        b"HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\nhello",
        b"HTTP/1.1 200 OK\r\nContent-Length: 0x5\r\n\r\nhello",
        b"HTTP/1.1 200 OK\r\nContent-Length: \r\n\r\nhello",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nX: 1\r\n folded\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nX : 1\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nX: a\x00b\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nX: a\rb\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nno colon\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 500 + b"Content-Length: 0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nX: " + b"y" * 100_000 + b"\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhelloXX0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhelloXX\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-5\r\nhello\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n+5\r\nhello\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n\r\n",
    ],
)
def test_a_malformed_answer_is_never_a_success(
    answer, upstream, fetcher, request_for, into, left_over
):
    upstream.answers(answer)
    with pytest.raises(UpstreamUnavailable, match="2 attempts failed"):
        fetcher(attempts=2).fetch(request_for(), into)
    assert (len(upstream.asked), left_over()) == (2, [])


def test_an_encoded_transfer_is_refused(upstream, say, fetcher, request_for, into):
    upstream.answers(say.raw("HTTP/1.1 200 OK\nTransfer-Encoding: gzip, chunked", b"0\r\n\r\n"))
    with pytest.raises(UpstreamUnavailable, match="unexpected encoding"):
        fetcher().fetch(request_for(), into)
    assert len(upstream.asked) == 1


def test_a_body_of_unstated_length_is_read_twice_and_compared(
    upstream, say, fetcher, request_for, into, slept
):
    upstream.answers(say.raw("HTTP/1.0 200 OK\nContent-Type: text/csv", BODY))
    got = fetcher().fetch(request_for(), into)
    assert (got.digest, got.attempts, slept, into.read_bytes()) == (DIGEST, 2, [], BODY)


def test_a_body_of_unstated_length_cut_once_is_noticed(upstream, say, fetcher, request_for, into):
    head = "HTTP/1.0 200 OK"
    upstream.answers(say.raw(head, BODY[:40]), say.raw(head, BODY), say.raw(head, BODY))
    got = fetcher().fetch(request_for(), into)
    assert (got.digest, got.attempts) == (DIGEST, 3)


def test_a_body_of_unstated_length_that_never_repeats_is_unavailable(
    upstream, say, fetcher, request_for, into, left_over
):
    upstream.answers(*[say.raw("HTTP/1.0 200 OK", BODY[:n]) for n in range(10, 20)])
    with pytest.raises(UpstreamUnavailable, match="length was not stated"):
        fetcher().fetch(request_for(), into)
    assert left_over() == []


# Busy servers


@pytest.mark.parametrize("status", [408, 429, 500, 502, 503, 504])
def test_passing_trouble_is_retried_with_growing_waits(
    status, upstream, say, fetcher, request_for, into, slept
):
    told = []
    upstream.answers(say.answer(status), say.answer(status), say.answer(body=BODY))
    got = fetcher(on_wait=told.append).fetch(request_for(), into)
    assert (got.attempts, slept) == (3, [0.5, 1.0])
    assert got.waits == (Wait(0.5, f"http {status}"), Wait(1.0, f"http {status}")) == tuple(told)


def test_the_wait_has_full_jitter(upstream, say, fetcher, request_for, into, slept):
    upstream.answers(say.answer(503), say.answer(body=BODY))
    fetcher(jitter=lambda: 0.5, backoff_base_s=4.0).fetch(request_for(), into)
    assert slept == [2.0]


def test_a_busy_server_is_given_up_in_the_end(
    upstream, say, fetcher, request_for, into, slept, left_over
):
    upstream.answers(say.answer(503, b"<html>busy</html>"))
    with pytest.raises(
        UpstreamUnavailable, match="3 attempts failed, the last one: http 503"
    ) as caught:
        fetcher(attempts=3).fetch(request_for(), into)
    assert (caught.value.exit_code, caught.value.retryable) == (4, True)
    assert (len(upstream.asked), slept, left_over()) == (3, [0.5, 1.0], [])


def test_retry_after_is_obeyed_in_both_forms(upstream, say, fetcher, request_for, into, slept):
    upstream.answers(
        say.answer(429, Retry_After="7"),
        say.answer(503, Retry_After="Sun, 06 Nov 1994 08:49:57 GMT"),
        say.answer(503, Retry_After="30"),
        say.answer(body=BODY),
    )
    fetcher(now=lambda: 784111777.0).fetch(request_for(), into)
    assert slept == [7.0, 20.0, 30.0]


@pytest.mark.parametrize("asked", ["600", "Sun, 06 Nov 1994 08:59:37 GMT"])
def test_a_long_retry_after_ends_the_fetch_and_says_when_to_come_back(
    asked, upstream, say, fetcher, request_for, into, slept
):
    upstream.answers(say.answer(429, Retry_After=asked))
    with pytest.raises(AskedToWait, match="http 429") as caught:
        fetcher(now=lambda: 784111777.0).fetch(request_for(), into)
    assert caught.value.remedy.startswith("Try again after 1994-11-06T08:59:37Z")
    assert (caught.value.exit_code, caught.value.until) == (4, 784112377.0)
    assert (len(upstream.asked), slept) == (1, [])


@pytest.mark.parametrize("asked", ["999999999", "9" * 300, "Fri, 31 Dec 9999 23:59:59 -1200"])
def test_of_an_absurd_retry_after_a_day_is_heeded(asked, upstream, say, fetcher, request_for, into):
    upstream.answers(say.answer(503, Retry_After=asked))
    with pytest.raises(AskedToWait, match=r"asks to wait .*, of which 86400 are heeded") as caught:
        fetcher(now=lambda: 784111777.0).fetch(request_for(), into)
    assert caught.value.until == 784111777.0 + 86400


@pytest.mark.parametrize("asked", ["-600", "1e9", "soon"])
def test_a_retry_after_that_names_no_time_names_none(
    asked, upstream, say, fetcher, request_for, into
):
    upstream.answers(say.answer(503, Retry_After=asked))
    with pytest.raises(UpstreamUnavailable, match="3 attempts failed") as caught:
        fetcher(attempts=3).fetch(request_for(), into)
    assert not isinstance(caught.value, AskedToWait)


def test_short_waits_are_waited_for_only_so_often(upstream, say, fetcher, request_for, into, slept):
    upstream.answers(say.answer(503, Retry_After="25"))
    with pytest.raises(AskedToWait) as caught:
        fetcher(now=lambda: 784111777.0).fetch(request_for(), into)
    assert (slept, caught.value.until) == ([25.0, 25.0], 784111777.0 + 25)


def test_an_upstream_that_asks_for_a_little_time_again_and_again_is_given_it(
    upstream, say, fetcher, request_for, into
):
    upstream.answers(say.answer(429, Retry_After="2"))
    with pytest.raises(AskedToWait, match="5 attempts failed") as caught:
        fetcher(now=lambda: 784111777.0).fetch(request_for(), into)
    assert caught.value.until == 784111777.0 + 2


@pytest.mark.parametrize("status", [202, 403, 404])
def test_any_answer_that_names_a_time_will_pass(status, upstream, say, fetcher, request_for, into):
    upstream.answers(say.answer(status, Retry_After="600"))
    with pytest.raises(AskedToWait, match=f"http {status}, asked to wait 600 s"):
        fetcher().fetch(request_for(), into)


def test_a_refused_connection_is_retried(upstream, fetcher, request_for, into, slept):
    request = request_for()
    upstream.close()
    with pytest.raises(UpstreamUnavailable, match="connection refused"):
        fetcher(attempts=3).fetch(request, into)
    assert slept == [0.5, 1.0]


def test_a_resolver_that_fails_is_retried(
    upstream, say, fetcher, request_for, into, slept, monkeypatch
):
    import socket

    real, failures = socket.getaddrinfo, [socket.gaierror(socket.EAI_AGAIN, "x")]

    def sometimes(*args, **kwargs):
        if failures:
            raise failures.pop()
        return real("127.0.0.1", *args[1:], **kwargs)

    monkeypatch.setattr(socket, "getaddrinfo", sometimes)
    upstream.answers(say.answer(body=BODY))
    got = fetcher().fetch(
        request_for(url=upstream.url(host="data.example"), hosts=("data.example",)), into
    )
    assert got.waits == (Wait(0.5, "the name could not be resolved"),)


def test_every_attempt_reads_its_secrets_again(
    upstream, say, fetcher, request_for, into, monkeypatch
):
    monkeypatch.setenv("MY_TOKEN", "one")
    upstream.answers(say.answer(503), say.answer(body=BODY))
    agent = fetcher(on_wait=lambda _: monkeypatch.setenv("MY_TOKEN", "two"))
    agent.fetch(request_for(headers={"Authorization": "env:MY_TOKEN"}), into)
    assert [asked.headers["authorization"] for asked in upstream.asked] == ["one", "two"]


# Slow servers


def silent(stop):
    return lambda _conn: stop.wait(60)


def test_a_silent_server_times_out_and_is_retried(upstream, say, fetcher, request_for, into):
    upstream.answers(silent(upstream.stop), say.answer(body=BODY))
    got = fetcher(read_timeout=0.3, attempts=50).fetch(request_for(), into)
    assert got.waits[0] == Wait(0.5, "time-out")
    # a busy machine may be silent once more
    assert {wait.reason for wait in got.waits} == {"time-out"}
    assert got.request_ms >= 300


def test_a_dripping_body_is_given_up(upstream, say, fetcher, request_for, into, left_over):
    upstream.answers(say.dripping(say.answer(length=10**6), upstream.stop))
    with pytest.raises(UpstreamUnavailable, match="bytes per second"):
        fetcher(slow_after_s=0.2, least_bytes_per_s=1000).fetch(request_for(), into)
    assert (len(upstream.asked), left_over()) == (1, [])


def test_a_fast_start_does_not_pay_for_dripping(upstream, say, fetcher, request_for, into):
    upstream.answers(say.dripping(say.answer(body=b"x" * 100_000, length=10**6), upstream.stop))
    with pytest.raises(UpstreamUnavailable, match="bytes per second"):
        fetcher(slow_after_s=0.2, least_bytes_per_s=1000, deadline_s=60).fetch(request_for(), into)


def test_a_dripping_head_is_given_up(upstream, say, fetcher, request_for, into):
    upstream.answers(say.dripping(b"HTTP/1.1 200 OK\r\nX: ", upstream.stop))
    with pytest.raises(UpstreamUnavailable, match="bytes per second"):
        fetcher(slow_after_s=0.2, least_bytes_per_s=1000).fetch(request_for(), into)


def test_slow_but_steady_is_fine(upstream, say, fetcher, request_for, into):
    clock = [0.0]

    def steadily(conn):
        conn.sendall(say.answer(length=100))
        for start in range(0, 100, 10):
            clock[0] += 0.03
            conn.sendall(BODY[start : start + 10])

    upstream.answers(steadily)
    settings = {"slow_after_s": 0.05, "least_bytes_per_s": 20, "monotonic": lambda: clock[0]}
    assert fetcher(**settings).fetch(request_for(), into).digest == DIGEST


def test_the_deadline_ends_a_body_that_is_fast_enough(
    upstream, say, fetcher, request_for, into, left_over
):
    clock = [0.0]

    def without_end(conn):
        conn.sendall(say.answer(length=10**9))
        while not upstream.stop.wait(0.03):
            clock[0] += 10
            conn.sendall(b"x" * 10_000)

    upstream.answers(without_end)
    with pytest.raises(UpstreamUnavailable, match="not done after 30 seconds"):
        fetcher(deadline_s=30, monotonic=lambda: clock[0]).fetch(request_for(), into)
    assert (len(upstream.asked), left_over()) == (1, [])


def test_the_deadline_ends_a_silence_too(upstream, fetcher, request_for, into):
    upstream.answers(silent(upstream.stop))
    with pytest.raises(UpstreamUnavailable, match="not done after"):
        fetcher(deadline_s=0.2, read_timeout=30).fetch(request_for(), into)


def test_no_wait_goes_beyond_the_deadline(upstream, say, fetcher, request_for, into, slept):
    upstream.answers(say.answer(503, Retry_After="20"))
    with pytest.raises(UpstreamUnavailable, match="after the deadline"):
        fetcher(deadline_s=10).fetch(request_for(), into)
    assert slept == []
