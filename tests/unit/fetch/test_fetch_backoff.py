"""Waits grow, vary and obey."""

import pytest

from kfm.fetch.heads import strong_etag, weak_etag
from kfm.fetch.retry import Backoff, retry_after_seconds

NOV_6_1994 = 784111777.0  # Sun, 06 Nov 1994 08:49:37 GMT


def test_the_wait_doubles_up_to_the_cap():
    backoff = Backoff(jitter=lambda: 1.0)
    assert [backoff.delay(n, None) for n in (1, 2, 3, 7, 8, 9, 5000)] == [
        0.5,
        1.0,
        2.0,
        32.0,
        60.0,
        60.0,
        60.0,
    ]


def test_jitter_covers_the_whole_wait():
    assert Backoff(jitter=lambda: 0.0).delay(5, None) == 0.0
    assert Backoff(jitter=lambda: 0.25).delay(5, None) == 2.0


def test_never_less_than_upstream_asked_for():
    assert Backoff(jitter=lambda: 0.0).delay(1, 7.0) == 7.0
    assert Backoff(jitter=lambda: 1.0).delay(5, 1.0) == 8.0


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("0", 0.0),
        ("17", 17.0),
        ("Sun, 06 Nov 1994 08:50:37 GMT", 60.0),
        ("Sunday, 06-Nov-94 08:50:37 GMT", 60.0),
        ("Sun Nov  6 08:50:37 1994", 60.0),
        ("Sun, 06 Nov 1994 08:40:00 GMT", 0.0),
        ("-5", None),
        ("1.5", None),
        ("soon", None),
        ("Sun, 99 Nov 1994 08:50:37 GMT", None),
        ("9" * 30, 1e18 - 1),
        ("600, 600", None),
        ("", None),
        (None, None),
    ],
)
def test_retry_after_is_read_in_every_form(value, seconds):
    assert retry_after_seconds(value, NOV_6_1994) == seconds


@pytest.mark.parametrize("tag", ['"abc"', '""', '"a!#~"'])
def test_strong_tags(tag):
    assert strong_etag(tag) == tag
    assert weak_etag(tag) is None
    assert weak_etag(f"W/{tag}") == f"W/{tag}"
    assert strong_etag(f"W/{tag}") is None


@pytest.mark.parametrize(
    "tag", [None, "", "abc", '"a', 'a"', '"a b"', '"a"b"', '"a", "b"', 'w/"a"', '"é"', '"a"\n', "*"]
)
def test_malformed_tags_prove_nothing(tag):
    assert strong_etag(tag) is None
    assert weak_etag(tag) is None
