"""What an answer says of itself that cannot be right is taken, but not without a word."""

import pytest

from kfm.fetch.media_types import type_oddity

BODY = b"0123456789" * 10
OTHER = b"ABCDEFGHIJ" * 10
NOV_6_1994 = 784111777.0


@pytest.mark.parametrize(
    ("said", "format_"),
    [
        ("text/html; charset=utf-8", "csv"),
        ("TEXT/HTML", "json"),
        ("application/json", "csv"),
        ("application/problem+json", "csv"),
        ("text/csv", "geojson"),
        ("application/xml", "csv"),
        ("application/atom+xml", "json"),
        ("application/pdf", "rdb"),
        ("image/png", "tif"),
        ("text/html", "zip"),
        ("application/gzip", "csv"),
        ("application/vnd.openxmlformats-officedocument.spreadsheetml.sheet", "csv"),
        ("text/html", "dly"),
        ("text/html", "txt"),
    ],
)
def test_a_type_that_contradicts_the_registered_format_is_named(said, format_):
    warning = type_oddity(said, format_)
    assert warning is not None
    assert said.partition(";")[0].lower() in warning and format_ in warning


@pytest.mark.parametrize(
    ("said", "format_", "kind"),
    [
        (None, "csv", "http_file"),
        ("", "csv", "http_file"),
        ("text/plain; charset=utf-8", "json", "http_file"),
        ("application/octet-stream", "csv", "http_file"),
        ("binary/octet-stream", "zip", "http_file"),
        ("application/force-download", "csv", "http_file"),
        ("text/csv; header=present", "csv", "http_file"),
        ("application/vnd.ms-excel", "csv", "http_file"),
        ("application/geo+json", "geojson", "http_file"),
        ("application/vnd.geo+json", "json", "usgs_ogc"),
        ("text/tab-separated-values", "rdb", "nwis"),
        ("application/x-zip-compressed", "zip", "shapefile"),
        ("image/tiff; application=geotiff", "tif", "raster"),
        ("application/x-hdf5", "nc", "raster"),
        ("text/html", "txt", "documents"),
        ("text/html", "unheard-of", "http_file"),
    ],
)
def test_a_type_that_says_nothing_or_fits_is_no_oddity(said, format_, kind):
    assert type_oddity(said, format_, kind) is None


def test_what_upstream_writes_there_steers_nothing():
    warning = type_oddity("image/\x9b31m\té" + "x" * 500, "csv")
    assert warning is not None
    assert warning.isprintable() and warning.isascii() and len(warning) < 250


@pytest.mark.parametrize(
    ("date", "words"),
    [
        ("Sun, 06 Nov 1994 08:49:37 GMT", None),
        ("Mon, 07 Nov 1994 08:00:00 GMT", None),
        ("Sunday, 06-Nov-94 08:49:37 GMT", None),
        ("Sun Nov  6 08:49:37 1994", None),
        ("Tue, 08 Nov 1994 08:49:37 GMT", "in the future"),
        ("Fri, 31 Dec 9999 23:59:59 GMT", "in the future"),
        ("yesterday", "no date"),
        ("Sun, 31 Feb 1994 08:49:37 GMT", "no date"),
        ("1994-11-06", "no date"),
    ],
)
def test_a_date_that_cannot_be_is_named(date, words, upstream, say, fetcher, request_for, into):
    upstream.answers(say.answer(body=BODY, Last_Modified=date))
    got = fetcher(now=lambda: NOV_6_1994).fetch(request_for(), into)
    assert got.size == 100
    assert [words in warning for warning in got.warnings] == ([True] if words else [])


def test_an_honest_answer_warns_of_nothing(upstream, say, fetcher, request_for, into):
    upstream.answers(say.answer(body=BODY, ETag='"v1"', Content_Type="text/csv"))
    assert fetcher().fetch(request_for(), into).warnings == ()


@pytest.mark.parametrize(
    ("head", "words"),
    [
        ("HTTP/1.0 200 OK", "how long"),
        ("HTTP/1.1 200 OK\nContent-Length: 100\nContent-Length: 100", "more than once"),
    ],
)
def test_a_length_that_is_not_stated_or_stated_twice_is_named(
    head, words, upstream, say, fetcher, request_for, into
):
    upstream.answers(say.raw(head, BODY))
    (warning,) = fetcher().fetch(request_for(), into).warnings
    assert words in warning


@pytest.mark.parametrize("other", [OTHER, OTHER[:20]])
def test_another_body_under_the_tag_of_one_that_was_cut_off_is_named(
    other, upstream, say, fetcher, request_for, into
):
    upstream.answers(
        say.answer(body=BODY[:30], length=100, ETag='"same"'), say.answer(body=other, ETag='"same"')
    )
    got = fetcher().fetch(request_for(), into)
    assert into.read_bytes() == other
    (warning,) = got.warnings
    assert '"same"' in warning and "two bodies" in warning


@pytest.mark.parametrize("tag", ['"same"', '"new"'])
def test_the_same_body_again_or_another_under_another_tag_is_no_oddity(
    tag, upstream, say, fetcher, request_for, into
):
    body = BODY if tag == '"same"' else OTHER
    upstream.answers(
        say.answer(body=BODY[:30], length=100, ETag='"same"'), say.answer(body=body, ETag=tag)
    )
    assert fetcher().fetch(request_for(), into).warnings == ()
