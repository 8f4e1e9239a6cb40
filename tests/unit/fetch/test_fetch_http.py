"""What is asked, who is asked, and what an answer becomes."""

import hashlib
import http.server
import threading

import pytest

from kfm.fetch.base import Budget, Fetcher, FetchRequest, TooLarge, UpstreamRefused
from kfm.fetch.http import HttpFetcher
from kfm.fetch.question import usable_target
from kfm.model.errors import Denied, KfmError, StepFailed, UpstreamUnavailable, UsageError

TAG = '"v1"'
BODY = b"a,b\n1,2\n"


def named(*names: str):
    """A resolver that knows these names, all on loopback, and counts."""
    calls = []

    def resolve(host: str) -> tuple[str, ...]:
        calls.append(host)
        assert host in names
        return ("127.0.0.1",)

    resolve.calls = calls
    return resolve


def test_a_body_arrives_whole_and_hashed(upstream, say, fetcher, request_for, into, left_over):
    modified = "Sun, 06 Nov 1994 08:49:37 GMT"
    upstream.answers(
        say.answer(body=BODY, ETag=TAG, Last_Modified=modified, Content_Type="text/csv")
    )
    got = fetcher().fetch(request_for(), into)
    assert (got.status, got.size, got.digest) == (
        200,
        len(BODY),
        "sha256:" + hashlib.sha256(BODY).hexdigest(),
    )
    assert (got.etag, got.weak_etag, got.last_modified, got.content_type) == (
        TAG,
        None,
        modified,
        "text/csv",
    )
    assert (got.attempts, got.waits, got.final_url) == (1, (), upstream.url())
    assert into.read_bytes() == BODY
    assert left_over() == ["body"]


def test_it_is_a_fetcher(fetcher):
    checked: Fetcher = fetcher()
    assert isinstance(checked, HttpFetcher)


def test_a_body_larger_than_one_piece_arrives_whole(upstream, say, fetcher, request_for, into):
    body = bytes(range(256)) * 4096 * 3 + b"end"
    upstream.answers(say.answer(body=body))
    assert (
        fetcher().fetch(request_for(), into).digest == "sha256:" + hashlib.sha256(body).hexdigest()
    )
    assert into.read_bytes() == body


def test_an_ordinary_server_of_the_standard_library_is_understood(fetcher, tmp_path, into):
    class Quiet(http.server.SimpleHTTPRequestHandler):
        def __init__(self, *args):
            super().__init__(*args, directory=str(tmp_path))

        def log_message(self, *_args):
            pass

    (tmp_path / "data.csv").write_bytes(BODY)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Quiet) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            url = f"http://127.0.0.1:{server.server_port}/data.csv"
            got = fetcher().fetch(FetchRequest(url=url, hosts=("127.0.0.1",)), into)
        finally:
            server.shutdown()
            thread.join()
    assert (got.size, got.etag) == (len(BODY), None)
    assert got.last_modified


def test_the_request_is_plain_and_says_who_asks(
    upstream, say, fetcher, request_for, into, monkeypatch
):
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    upstream.answers(say.answer(body=BODY, Set_Cookie="a=b"))
    agent = fetcher(user_agent="kfm/1 (+mailto:ops@data.example)")
    agent.fetch(request_for("/a%20b?x=1"), into)
    agent.fetch(request_for(headers={"accept": "text/csv"}), into)
    first, second = upstream.asked
    assert first.line == "GET /a%20b?x=1 HTTP/1.1"
    assert first.headers == {
        "host": f"127.0.0.1:{upstream.port}",
        "connection": "close",
        "accept-encoding": "identity",
        "user-agent": "kfm/1 (+mailto:ops@data.example)",
        "accept": "*/*",
    }
    assert second.headers["accept"] == "text/csv"
    assert "cookie" not in second.headers


@pytest.mark.parametrize(
    ("sent", "strong", "weak"),
    [('W/"v1"', None, 'W/"v1"'), ("v1", None, None), ('"v1"', '"v1"', None), ("", None, None)],
)
def test_only_a_strong_etag_counts(sent, strong, weak, upstream, say, fetcher, request_for, into):
    upstream.answers(say.answer(body=BODY, ETag=sent))
    got = fetcher().fetch(request_for(), into)
    assert (got.etag, got.weak_etag) == (strong, weak)


def test_two_different_etags_prove_nothing(upstream, say, fetcher, request_for, into):
    upstream.answers(say.answer(body=BODY, ETag='"a"', eTag='"b"'))
    assert fetcher().fetch(request_for(), into).etag is None


# The conditional request


def test_unchanged_is_said_with_304_and_makes_no_file(
    upstream, say, fetcher, request_for, left_over, into
):
    upstream.answers(say.raw(f"HTTP/1.1 304 Not Modified\nETag: {TAG}"))
    got = fetcher().fetch(request_for(etag=TAG), into)
    assert (got.status, got.etag, got.size, got.digest, got.attempts) == (304, TAG, 0, "", 1)
    assert upstream.asked[0].headers["if-none-match"] == TAG
    assert left_over() == []


def test_a_304_without_a_tag_confirms_the_one_we_sent(upstream, say, fetcher, request_for, into):
    upstream.answers(say.raw("HTTP/1.1 304 Not Modified"))
    assert fetcher().fetch(request_for(etag=TAG), into).etag == TAG


def test_a_304_to_an_unconditional_request_is_an_error(
    upstream, say, fetcher, request_for, into, left_over
):
    upstream.answers(say.raw("HTTP/1.1 304 Not Modified"))
    with pytest.raises(UpstreamUnavailable, match="304"):
        fetcher().fetch(request_for(), into)
    assert "if-none-match" not in upstream.asked[0].headers
    assert len(upstream.asked) == 1
    assert left_over() == []


@pytest.mark.parametrize("other", ['"v2"', 'W/"v1"'])
def test_a_304_that_names_another_tag_is_not_believed(
    other, upstream, say, fetcher, request_for, into
):
    upstream.answers(
        say.raw(f"HTTP/1.1 304 Not Modified\nETag: {other}"), say.answer(body=BODY, ETag='"v2"')
    )
    got = fetcher().fetch(request_for(etag=TAG), into)
    assert (got.status, got.etag, got.attempts) == (200, '"v2"', 2)
    assert "if-none-match" not in upstream.asked[1].headers


@pytest.mark.parametrize("tag", ['W/"v1"', "v1", '"v1"\r\nX: y'])
def test_a_condition_needs_a_strong_tag(tag, fetcher, request_for, upstream, into):
    with pytest.raises(UsageError, match="strong ETag"):
        fetcher().fetch(request_for(etag=tag), into)
    assert upstream.asked == []


# Who may be asked


def test_a_host_that_is_not_listed_is_denied_before_any_connection(
    upstream, fetcher, request_for, into
):
    with pytest.raises(Denied, match=r"source\.hosts"):
        fetcher().fetch(request_for(hosts=("data.example",)), into)
    assert upstream.asked == []


def test_loopback_is_denied_unless_allowed(upstream, fetcher, request_for, into):
    with pytest.raises(Denied, match="loopback"):
        fetcher(allow_loopback=False).fetch(request_for(), into)
    assert upstream.asked == []


@pytest.mark.parametrize(
    "url", ["ftp://127.0.0.1/x", "http://u:p@127.0.0.1/", "http://127.0.0.1/?api_key=hunter2"]
)
def test_unusable_addresses_are_refused_before_any_connection(url, fetcher, into):
    with pytest.raises(UsageError):
        fetcher().fetch(FetchRequest(url=url, hosts=("127.0.0.1",)), into)


def test_a_name_is_resolved_once_and_the_checked_address_is_used(upstream, say, fetcher, into):
    answers = iter([("127.0.0.1",), ("10.0.0.1",)])  # a second look would see the rebound name
    upstream.answers(say.answer(body=BODY))
    agent = fetcher(resolve=lambda _: next(answers))
    agent.fetch(FetchRequest(url=upstream.url(host="data.example"), hosts=("data.example",)), into)
    assert upstream.asked[0].headers["host"] == f"data.example:{upstream.port}"
    assert next(answers) == ("10.0.0.1",)


def test_the_next_address_is_tried_when_one_does_not_answer(upstream, say, fetcher, into):
    upstream.answers(say.answer(body=BODY))
    agent = fetcher(resolve=lambda _: ("127.0.0.2", "127.0.0.1"))  # the server listens on .1 only
    got = agent.fetch(
        FetchRequest(url=upstream.url(host="data.example"), hosts=("data.example",)), into
    )
    assert got.attempts == 1


@pytest.mark.parametrize(
    "host", ["2130706433", "0x7f.0.0.1", "0177.0.0.1", "127.0.0.1.", "[::ffff:127.0.0.1]"]
)
def test_spellings_of_loopback_do_not_pass(host, fetcher, into):
    url = f"http://{host}/"
    with pytest.raises(Denied):
        fetcher(allow_loopback=False).fetch(
            FetchRequest(
                url=url, hosts=(host, host.rstrip("."), "::ffff:127.0.0.1", "::ffff:7f00:1")
            ),
            into,
        )


# Redirects


def test_a_redirect_to_a_listed_host_is_followed_without_headers(
    upstream, say, fetcher, into, monkeypatch
):
    monkeypatch.setenv("MY_TOKEN", "hunter2")
    target = upstream.url("/b?X-Amz-Signature=s3cr3t", host="cdn.example")
    upstream.answers(say.answer(302, Location=target), say.answer(body=BODY))
    request = FetchRequest(
        url=upstream.url(host="data.example"),
        hosts=("data.example", f"cdn.example:{upstream.port}"),
        headers={"Authorization": "env:MY_TOKEN", "X-Plain": "1"},
        etag=TAG,
    )
    got = fetcher(resolve=named("data.example", "cdn.example")).fetch(request, into)
    first, second = upstream.asked
    assert (first.headers["authorization"], first.headers["x-plain"]) == ("hunter2", "1")
    assert not {"authorization", "x-plain"} & set(second.headers)
    assert second.headers["host"] == f"cdn.example:{upstream.port}"
    assert second.line == "GET /b?X-Amz-Signature=s3cr3t HTTP/1.1"
    assert got.final_url == upstream.url("/b?X-Amz-Signature=hidden", host="cdn.example")


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_relative_redirect_stays_on_the_host_and_keeps_headers(
    status, upstream, say, fetcher, request_for, into
):
    upstream.answers(say.answer(status, Location="../b/c\u00e9?x=1#frag"), say.answer(body=BODY))
    got = fetcher().fetch(request_for("/a/data.csv", headers={"X-Plain": "1"}), into)
    assert upstream.asked[1].line == "GET /b/c%E9?x=1 HTTP/1.1"
    assert upstream.asked[1].headers["x-plain"] == "1"
    assert got.final_url == upstream.url("/b/c%E9?x=1")


def test_another_port_of_the_same_host_gets_no_credentials(
    upstream, say, fetcher, request_for, into, tls_upstream
):
    other = tls_upstream(None)
    upstream.answers(say.answer(302, Location=other.url()))
    other.answers(say.answer(body=BODY))
    fetcher().fetch(
        request_for(headers={"X-Plain": "1"}, hosts=("127.0.0.1", f"127.0.0.1:{other.port}")), into
    )
    assert "x-plain" not in other.asked[0].headers


def test_a_redirect_to_a_port_nobody_listed_is_denied(
    upstream, say, fetcher, request_for, into, tls_upstream
):
    other = tls_upstream(None)
    upstream.answers(say.answer(302, Location=other.url()))
    with pytest.raises(Denied, match=f"leads to port {other.port} of 127.0.0.1") as told:
        fetcher().fetch(request_for(), into)
    assert f"Add 127.0.0.1:{other.port} to `source.hosts`" in told.value.remedy
    assert other.asked == []


@pytest.mark.parametrize(
    ("first", "found", "hosts", "fine"),
    [
        ("http://a.example/", "https://a.example/", ("a.example",), True),
        ("http://a.example/", "http://a.example:443/", ("a.example",), False),
        ("https://a.example:8443/", "https://a.example/", ("a.example",), False),
        ("https://a.example/", "https://a.example:9200/", ("a.example",), False),
        ("https://a.example/", "https://a.example:9200/", ("a.example", "a.example:9200"), True),
        ("https://a.example/", "https://b.example/", ("a.example", "b.example"), True),
        ("http://a.example:8080/", "http://b.example/", ("a.example", "b.example"), True),
        ("https://a.example/", "https://b.example:6379/", ("a.example", "b.example"), False),
        ("https://a.example/", "https://b.example:6379/", ("a.example", "b.example:6379"), True),
    ],
)
def test_a_made_address_keeps_to_the_ports_of_its_hosts(first, found, hosts, fine):
    request = FetchRequest(url=found, made_from=first, hosts=hosts)
    if fine:
        assert usable_target(request).url == found
    else:
        with pytest.raises(Denied, match="leads to port"):
            usable_target(request)


def test_a_resolver_that_never_answers_is_not_waited_for(fetcher, request_for, into, upstream):
    ended = threading.Event()
    with pytest.raises(UpstreamUnavailable, match="not be resolved in time"):
        fetcher(
            resolve=lambda host: (ended.wait(60), ())[1], connect_timeout=0.05, attempts=1
        ).fetch(request_for(url=upstream.url(host="data.example"), hosts=("data.example",)), into)
    ended.set()


@pytest.mark.parametrize(
    "location",
    [
        "http://evil.example/",
        "//evil.example/",
        "http://127.0.0.1@evil.example/",
        "http://u:p@127.0.0.1/",
        "file:///etc/passwd",
        "ftp://127.0.0.1/",
        "gopher://127.0.0.1/",
        "http://[::1",
        "http://localhost/",
    ],
)
def test_a_redirect_elsewhere_is_denied_and_names_the_setting(
    location, upstream, say, fetcher, request_for, into, left_over
):
    upstream.answers(say.answer(302, Location=location))
    with pytest.raises(Denied) as caught:
        fetcher().fetch(request_for(), into)
    assert "source.hosts" in caught.value.remedy
    assert len(upstream.asked) == 1
    assert left_over() == []


@pytest.mark.parametrize(
    ("host", "word"),
    [
        ("169.254.169.254", "cloud metadata"), ("169.254.7.7", "link-local"), ("10.0.0.1", "private"), ("192.168.1.1", "private"), ("[fe80::1]", "link-local"),
        ("[fd00::1]", "private"), ("100.64.0.1", "carrier-grade"), ("2130706433", "unusual spelling"), ("metadata.google.internal", "this network"),
        ("printer", "this network"), ("0.0.0.0", "unspecified"),
    ],
)  # fmt: skip
def test_a_redirect_into_this_network_is_denied_and_nobody_is_told_to_allow_it(
    host, word, upstream, say, fetcher, request_for, into
):
    upstream.answers(say.answer(302, Location=f"http://{host}/latest/meta-data/"))
    with pytest.raises(Denied, match=word) as caught:
        fetcher().fetch(request_for(), into)
    assert "source.hosts" not in caught.value.remedy and "Do not trust" in caught.value.remedy


def test_a_redirect_to_a_listed_name_with_a_private_address_is_denied(
    upstream, say, fetcher, request_for, into
):
    upstream.answers(say.answer(302, Location="http://inside.example/"))
    agent = fetcher(resolve=lambda _: ("10.0.0.1",))
    with pytest.raises(Denied, match="private") as caught:
        agent.fetch(request_for(hosts=("127.0.0.1", "inside.example")), into)
    assert "source.hosts" in caught.value.remedy


def test_a_redirect_from_https_to_http_is_denied(upstream, say, fetcher, into):
    upstream.answers(say.answer(302, Location="http://data.example/b"))
    agent = fetcher(allow_loopback=False, reroute=("127.0.0.1", upstream.port))
    with pytest.raises(Denied, match="from https to http"):
        agent.fetch(FetchRequest(url="https://data.example/a", hosts=("data.example",)), into)
    assert len(upstream.asked) == 1


def test_a_step_up_from_http_to_https_keeps_credentials(upstream, say, fetcher, into, monkeypatch):
    monkeypatch.setenv("MY_TOKEN", "hunter2")
    upstream.answers(say.answer(301, Location="https://data.example/a"), say.answer(body=BODY))
    agent = fetcher(allow_loopback=False, reroute=("127.0.0.1", upstream.port))
    request = FetchRequest(
        url="http://data.example/a",
        hosts=("data.example",),
        headers={"Authorization": "env:MY_TOKEN"},
    )
    assert agent.fetch(request, into).final_url == "https://data.example/a"
    assert upstream.asked[1].headers["authorization"] == "hunter2"


def test_a_redirect_loop_is_unavailable(upstream, say, fetcher, request_for, into):
    upstream.answers(say.answer(302, Location="/b"), say.answer(302, Location="/data.csv"))
    with pytest.raises(UpstreamUnavailable, match="never end"):
        fetcher().fetch(request_for(), into)
    assert len(upstream.asked) == 2


def test_five_redirects_are_followed_and_a_sixth_is_not(upstream, say, fetcher, request_for, into):
    hops = [say.answer(302, Location=f"/{n}") for n in range(6)]
    upstream.answers(*hops[:5], say.answer(body=BODY))
    assert fetcher().fetch(request_for(), into).final_url == upstream.url("/4")
    upstream.answers(*hops, say.answer(body=BODY))
    with pytest.raises(UpstreamUnavailable, match="never end"):
        fetcher().fetch(request_for(), into)


def test_a_redirect_without_a_location_is_unavailable(upstream, say, fetcher, request_for, into):
    upstream.answers(say.answer(302))
    with pytest.raises(UpstreamUnavailable, match="nowhere"):
        fetcher().fetch(request_for(), into)


# Secrets


def test_a_query_reference_is_resolved_on_the_wire_only(
    upstream, say, fetcher, request_for, into, monkeypatch
):
    monkeypatch.setenv("MY_TOKEN", "hunter2")
    upstream.answers(say.answer(body=BODY))
    got = fetcher().fetch(request_for("/a?api_key=env:MY_TOKEN"), into)
    assert upstream.asked[0].line == "GET /a?api_key=hunter2 HTTP/1.1"
    assert got.final_url == upstream.url("/a?api_key=env:MY_TOKEN")


def test_a_redirect_cannot_make_us_resolve_a_reference(
    upstream, say, fetcher, request_for, into, monkeypatch
):
    monkeypatch.setenv("OTHER", "hunter2")
    upstream.answers(say.answer(302, Location="/b?token=env:OTHER"), say.answer(body=BODY))
    fetcher().fetch(request_for(), into)
    assert upstream.asked[1].line == "GET /b?token=env:OTHER HTTP/1.1"


@pytest.mark.parametrize("status", [403, 503])
def test_errors_and_waits_never_say_a_secret(
    status, upstream, say, fetcher, request_for, into, monkeypatch
):
    monkeypatch.setenv("MY_TOKEN", "hunter2")
    waits = []
    upstream.answers(
        say.raw(f"HTTP/1.1 {status} hunter2\nContent-Length: 7\nX-Echo: hunter2", b"hunter2")
    )
    request = request_for("/a?key=env:MY_TOKEN", headers={"Authorization": "env:MY_TOKEN"})
    with pytest.raises(UpstreamUnavailable) as caught:
        fetcher(on_wait=waits.append).fetch(request, into)
    assert upstream.asked[0].headers["authorization"] == "hunter2"
    assert "hunter2" not in f"{caught.value!r} {caught.value.__cause__!r} {waits} {request!r}"


# Rerouting to the sample upstream


def test_rerouting_keeps_names_and_skips_tls_and_addresses(upstream, say, fetcher, into):
    upstream.answers(say.answer(body=BODY))
    agent = fetcher(
        allow_loopback=False,
        reroute=("localhost", upstream.port),
        resolve=lambda _: pytest.fail("looked up"),
    )
    got = agent.fetch(FetchRequest(url="https://data.example/a", hosts=("data.example",)), into)
    assert upstream.asked[0].headers["host"] == "data.example"
    assert got.final_url == "https://data.example/a"
    with pytest.raises(Denied):
        agent.fetch(FetchRequest(url="https://evil.example/a", hosts=("data.example",)), into)


@pytest.mark.parametrize("host", ["10.0.0.1", "data.example", "8.8.8.8"])
def test_rerouting_goes_to_loopback_only(host):
    with pytest.raises(UsageError, match="rerouted"):
        HttpFetcher(reroute=(host, 80))


# Answers that are final


@pytest.mark.parametrize(
    ("status", "step"),
    [
        (404, "source.url"),
        (410, "source.url"),
        (401, "source.headers"),
        (403, "source.headers"),
        (418, "browser"),
    ],
)
def test_a_client_error_is_final_and_says_the_next_step(
    status, step, upstream, say, fetcher, request_for, into, slept, left_over
):
    upstream.answers(say.answer(status, b"an error page"))
    with pytest.raises(UpstreamRefused, match=str(status)) as caught:
        fetcher().fetch(request_for(), into)
    assert (caught.value.exit_code, caught.value.retryable) == (4, False)
    assert step in caught.value.remedy
    assert (len(upstream.asked), slept, left_over()) == (1, [], [])


@pytest.mark.parametrize("status", [202, 204, 206, 300, 501, 505])
def test_other_answers_are_no_success(status, upstream, say, fetcher, request_for, into, left_over):
    upstream.answers(say.answer(status, Content_Range="bytes 0-0/1"))
    with pytest.raises(UpstreamUnavailable, match=f"answered {status}") as caught:
        fetcher().fetch(request_for(), into)
    assert caught.value.retryable
    assert (len(upstream.asked), left_over()) == (1, [])


@pytest.mark.parametrize("coding", ["gzip", "br", "identity, gzip"])
def test_an_encoded_body_is_refused_not_decoded(
    coding, upstream, say, fetcher, request_for, into, left_over
):
    upstream.answers(say.answer(body=BODY, Content_Encoding=coding))
    with pytest.raises(UpstreamUnavailable, match="unexpected encoding"):
        fetcher().fetch(request_for(), into)
    assert (len(upstream.asked), left_over()) == (1, [])


def test_identity_is_no_encoding(upstream, say, fetcher, request_for, into):
    upstream.answers(say.answer(body=BODY, Content_Encoding="Identity"))
    assert fetcher().fetch(request_for(), into).size == len(BODY)


def test_a_body_that_states_too_much_is_refused_at_once(
    upstream, say, fetcher, request_for, into, left_over
):
    upstream.answers(say.answer(length=11), say.answer(body=b"x" * 11))
    with pytest.raises(TooLarge) as caught:  # without having seen a byte of it
        fetcher().fetch(request_for(max_bytes=10), into)
    assert (caught.value.code, caught.value.exit_code, left_over()) == ("too-large", 1, [])
    assert len(upstream.asked) == 1
    assert fetcher().fetch(request_for(max_bytes=11), into).size == 11


def test_a_body_that_grows_too_large_is_cut_and_removed(
    upstream, say, fetcher, request_for, into, left_over
):
    upstream.answers(
        say.dripping(
            say.chunks(b"x" * 10, end=b""), upstream.stop, drop=b"a\r\n0123456789\r\n", every=0.001
        )
    )
    with pytest.raises(TooLarge):
        fetcher().fetch(request_for(max_bytes=25), into)
    assert left_over() == []


def test_a_disk_that_refuses_is_not_blamed_on_upstream(upstream, say, fetcher, request_for, into):
    upstream.answers(say.answer(body=BODY))
    with pytest.raises(StepFailed, match="could not be written"):
        fetcher().fetch(request_for(), into.parent / "missing" / "body")
    assert len(upstream.asked) == 1


def test_a_full_disk_leaves_nothing_behind(upstream, say, fetcher, request_for, into, left_over):
    upstream.answers(say.answer(body=BODY))
    into.mkdir()  # a folder in the way makes the final rename fail
    (into / "x").touch()
    with pytest.raises(StepFailed):
        fetcher().fetch(request_for(), into)
    assert left_over() == ["body"]


# One budget for all requests of a capture


def test_what_one_request_has_taken_of_the_budget_another_does_not_get(
    upstream, say, fetcher, request_for, into, tmp_path
):
    held = threading.Event()

    def slowly(conn):
        conn.sendall(say.answer(body=b"", length=80))
        held.wait(60)
        conn.sendall(b"x" * 80)

    class Told(Budget):
        def take(self, size):
            found = super().take(size)
            taken.set()
            return found

    budget, taken = Told(100), threading.Event()
    upstream.answers(slowly, say.answer(body=b"y" * 30))
    first = threading.Thread(target=lambda: fetcher().fetch(request_for(budget=budget), into))
    first.start()
    assert taken.wait(60)
    with pytest.raises(
        TooLarge,
        match=r"larger than 100 bytes, together.*`source.max_bytes` \(4 GiB unless stated\)",
    ):
        fetcher().fetch(request_for(budget=budget), tmp_path / "second")
    held.set()
    first.join()
    assert into.stat().st_size == 80
    assert budget.take(20) and not budget.take(1)


@pytest.mark.parametrize("cut", [True, False])
def test_what_was_not_kept_is_given_back(cut, upstream, say, fetcher, request_for, into):
    budget = Budget(100)
    upstream.answers(
        say.answer(body=b"x" * 30, length=90) if cut else say.chunks(b"x" * 60, b"x" * 60)
    )
    with pytest.raises(KfmError):
        fetcher(attempts=3).fetch(request_for(budget=budget), into)
    upstream.answers(say.answer(body=b"x" * 30, length=90), say.answer(body=b"x" * 40))
    assert fetcher().fetch(request_for(budget=budget), into).size == 40
    assert budget.take(60) and not budget.take(1)


def test_the_time_of_a_request_is_limited_and_the_limit_named(
    upstream, say, fetcher, request_for, into
):
    upstream.answers(say.dripping(say.answer(body=b"", length=1000), upstream.stop))
    with pytest.raises(
        UpstreamUnavailable,
        match=r"not done after 0.2 seconds.*`source.max_step` \(1h unless stated\)",
    ):
        fetcher().fetch(request_for(max_seconds=0.2), into)
