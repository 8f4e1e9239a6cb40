"""An answer that names a page behind it is told: its rows may be the first of many."""

import json
from typing import Any

import pytest

from kfm.testing import read_kind

ROWS = [{"id": "a"}, {"id": "b"}]


def warnings(document: Any, format: str = "json") -> list[str]:
    made = read_kind("http_file", {"page": json.dumps(document).encode()}, format=format)
    return [w for w in made.result.warnings if "names a page behind it" in w]


@pytest.mark.parametrize(
    ("beside", "place"),
    [
        ({"next": "https://example.org/?page=2"}, "(next)"),
        ({"paging": {"after": "10", "total": 23}}, "(paging.after)"),
        ({"nextPageToken": "x"}, "(nextPageToken)"),
        ({"@odata.nextLink": "https://example.org/?$skip=2"}, "(@odata.nextLink)"),
        ({"meta": {"next_page": 2}}, "(meta.next_page)"),
    ],
)
def test_a_page_that_was_not_asked_for_is_told_with_where_it_is_named(
    beside: dict[str, Any], place: str
) -> None:
    (said,) = warnings({"data": ROWS, **beside})
    assert place in said and "`ask.pages`" in said


def test_a_link_of_a_collection_of_features_counts() -> None:
    point = {"type": "Point", "coordinates": [-98.5, 38.5]}
    feature = {"type": "Feature", "properties": {"id": "a"}, "geometry": point}
    links = [{"rel": "self", "href": "/a"}, {"rel": "next", "href": "/b"}]
    whole = {"type": "FeatureCollection", "features": [feature], "links": links}
    assert "links[rel=next]" in warnings(whole, "geojson")[0]
    assert warnings({**whole, "links": links[:1]}, "geojson") == []


@pytest.mark.parametrize(
    "document",
    [
        {"data": ROWS},
        {"data": ROWS, "next": None, "paging": {"after": ""}},
        {"data": [{"id": "a", "next": "b"}]},  # of a record, not of the answer
        {"data": ROWS, "context": {"next": {"title": "Chapter 2"}}},
        ROWS,
    ],
)
def test_a_last_page_and_what_stands_in_records_are_not_told(document: Any) -> None:
    assert warnings(document) == []
