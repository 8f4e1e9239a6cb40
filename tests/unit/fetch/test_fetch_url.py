"""One spelling per URL, no secrets inside, templates filled safely."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kfm.fetch.http import canonical_url, expand_url, find_inline_secret
from kfm.fetch.url import masked_url, names_a_secret, parse_url
from kfm.model.errors import UsageError


@pytest.mark.parametrize(
    ("url", "canonical"),
    [
        ("HTTPS://Data.Example/A", "https://data.example/A"),
        ("http://data.example:80/a", "http://data.example/a"),
        ("https://data.example:443/a", "https://data.example/a"),
        ("https://data.example:8443/a", "https://data.example:8443/a"),
        ("http://data.example:443/a", "http://data.example:443/a"),
        ("https://data.example", "https://data.example/"),
        ("https://data.example./a", "https://data.example/a"),
        ("https://data.example/a#part", "https://data.example/a"),
        ("https://data.example/%7euser/%2f%c3%a9", "https://data.example/~user/%2F%C3%A9"),
        ("https://data.example/a b/é", "https://data.example/a%20b/%C3%A9"),
        ("https://data.example/100%", "https://data.example/100%25"),
        ("https://data.example/a?z=1&a=2&z=0", "https://data.example/a?z=1&a=2&z=0"),
        ("https://bücher.example/", "https://xn--bcher-kva.example/"),
        ("http://[2001:DB8::0:1]:80/a", "http://[2001:db8::1]/a"),
        ("http://１２７.0.0.1/", "http://127.0.0.1/"),
    ],
)
def test_a_url_has_one_spelling(url, canonical):
    assert canonical_url(url) == canonical


@given(st.text(max_size=30), st.text(max_size=30))
def test_the_canonical_spelling_is_stable(path, query):
    try:
        once = canonical_url(f"https://data.example/{path}?{query}")
    except UsageError:
        return
    assert once.isascii()
    assert canonical_url(once) == once


@pytest.mark.parametrize(
    "url",
    [
        "ftp://data.example/a",
        "data.example/a",
        "https:///a",
        "https://data.example:0/",
        "https://data.example:99999/",
        "https://data.example:x/",
        "https://data..example/",
        "https://data example/",
        "https://data.example\\@evil.example/",
        "https://data.example/a\r\nX: y",
        "https://data.example\t/",
        "http://[fe80::1%25eth0]/",
        "http://[::1/",
        "https://%64ata.example/",
        "https://" + "a" * 64 + ".example/",
        "https://data.example/\ud800",
    ],
)
def test_what_is_not_a_plain_url_is_refused(url):
    with pytest.raises(UsageError):
        canonical_url(url)


def test_a_file_is_nothing_to_ask_a_host_for():
    with pytest.raises(UsageError):
        parse_url("file:///etc/passwd")


def test_user_information_is_an_inline_secret():
    with pytest.raises(UsageError, match="secret inline") as caught:
        find_inline_secret("https://alice:hunter2@data.example/")
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    "name",
    [
        "token",
        "api_key",
        "apikey",
        "key",
        "secret",
        "password",
        "signature",
        "access_token",
        "X-Amz-Signature",
        "API-KEY",
        "%6bey",
        "sig",
    ],
)
def test_a_query_field_named_like_a_secret_must_be_a_reference(name):
    with pytest.raises(UsageError, match="inline secret") as caught:
        find_inline_secret(f"https://data.example/a?x=1&{name}=hunter2")
    assert "hunter2" not in str(caught.value)
    assert name.replace("%6b", "k") in str(caught.value)
    find_inline_secret(f"https://data.example/a?{name}=env:TOKEN")
    find_inline_secret(f"https://data.example/a?{name}=credential%3Aagency")
    with pytest.raises(UsageError, match="names a file itself"):
        find_inline_secret(f"https://data.example/a?{name}=file%3A/run/token")
    find_inline_secret(f"https://data.example/a?{name}=")


@pytest.mark.parametrize(
    "name", ["keyword", "sort_key", "monkey", "tokens_per_page", "design", "since"]
)
def test_ordinary_names_are_no_secrets(name):
    assert not names_a_secret(name)


def test_signed_fields_of_a_redirect_are_hidden():
    assert (
        masked_url(parse_url("https://cdn.example/a?part=1&X-Amz-Signature=abc"))
        == "https://cdn.example/a?part=1&X-Amz-Signature=hidden"
    )


TEMPLATE = "https://data.example/{partition}.csv?from={since}&to={until}&page=1"


def test_placeholders_are_filled_percent_encoded():
    assert (
        expand_url(TEMPLATE, "2024-01-01T00:00:00Z", "2024-02-01T00:00:00Z", "a/../b c")
        == "https://data.example/a%2F..%2Fb%20c.csv?from=2024-01-01T00%3A00%3A00Z&to=2024-02-01T00%3A00%3A00Z&page=1"
    )


def test_query_fields_that_stay_empty_are_left_out():
    assert expand_url(TEMPLATE, None, "", "p") == "https://data.example/p.csv?page=1"
    assert expand_url("https://data.example/a?from={since}", None) == "https://data.example/a"
    assert (
        expand_url("https://data.example/a?keep=&in={since}/{until}", "s", None)
        == "https://data.example/a?keep=&in=s/"
    )


@pytest.mark.parametrize(
    "template",
    [
        "https://data.example/a?x={other}",
        "https://data.example/a?x={}",
        "https://data.example/a?x={since",
        "https://data.example/a?x=since}",
        "https://{partition}.example/a",
        "https://data.example/{until}.csv",
    ],
)
def test_unknown_misplaced_or_unfilled_placeholders_are_refused(template):
    with pytest.raises(UsageError):
        expand_url(template, "s", None, "evil.example/")


def test_a_value_cannot_bring_a_placeholder_of_its_own():
    assert (
        expand_url("https://data.example/a?x={since}", "{until}", "u")
        == "https://data.example/a?x=%7Buntil%7D"
    )
