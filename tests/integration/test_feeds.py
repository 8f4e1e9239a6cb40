"""New versions are told as Atom: what changed in words, to whom it may be told, and rightly when
something was rolled back or withdrawn.
"""

import datetime as dt
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from pathlib import Path

import pytest
from litestar.testing import TestClient

from kfm.cli.init import make_workspace
from kfm.pages.routes import html_pages
from kfm.reader.app import ReaderApp
from kfm.testing import Upstream
from tests.given.reading import called, entry, reader

ATOM = "{http://www.w3.org/2005/Atom}"
TITLE = 'Trees & "shrubs" <of> the county'


def _csv(many: int, more: str = "") -> bytes:
    head = f"id,kind,y,x{',seen' if more else ''}\n"
    lines = (f"t{n},oak,38.{n},-98.1{f',{more}' if more else ''}\n" for n in range(many))
    return (head + "".join(lines)).encode()


@pytest.fixture(scope="module")
def ws(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Trees promoted twice, rolled back, promoted again; shrubs of which a record was withdrawn."""
    folder = tmp_path_factory.mktemp("feeds") / "ws"
    make_workspace(folder, sample=False, allow_loopback=True)
    again = ("--accept-change", "--reason", "seen & checked")
    with Upstream() as up:
        path = entry(folder, "trees", up.url, "owners: ['County Office <a@example.org>']\n")
        path.write_text(path.read_text().replace("Trees of trees", f"'{TITLE}'"))
        entry(folder, "shrubs", up.url)
        up.files["/trees.csv"] = up.files["/shrubs.csv"] = _csv(9)
        called(folder, "run", "trees")
        up.files["/trees.csv"] = _csv(12, "2026-01-01")
        called(folder, "run", "trees", *again)
        called(folder, "rollback", "trees", "--to", "1", "--reason", "a bad feed")
        up.files["/trees.csv"] = _csv(11)
        called(folder, "run", "trees", *again)
        called(folder, "run", "shrubs")
        called(folder, "withdraw", "shrubs", "--record", "id=t7", "--reason", "asked", "--yes")
        yield folder


@pytest.fixture
def client(ws: Path) -> "Iterator[TestClient[ReaderApp]]":
    with reader(ws, html_pages()) as found:
        yield found


def _checked(raw: bytes) -> ET.Element:
    """A feed in which everything is that RFC 4287 asks for."""
    feed = ET.fromstring(raw)
    assert feed.tag == f"{ATOM}feed"
    for each in (feed, *feed.iter(f"{ATOM}entry")):
        for name in ("id", "title", "updated"):
            assert len(each.findall(f"{ATOM}{name}")) == 1, name
        assert str(each.findtext(f"{ATOM}id")).startswith("urn:uuid:")
        for name in ("updated", "published"):
            for moment in each.findall(f"{ATOM}{name}"):
                assert dt.datetime.fromisoformat(str(moment.text)).tzinfo is not None
        assert each.findtext(f"{ATOM}author/{ATOM}name")
        assert len(each.findall(f"{ATOM}link[@rel='alternate']")) == 1
    assert len(feed.findall(f"{ATOM}link[@rel='self']")) == 1
    names = [e.findtext(f"{ATOM}id") for e in feed.iter(f"{ATOM}entry")]
    assert len({feed.findtext(f"{ATOM}id"), *names}) == 1 + len(names)
    moments = [str(e.findtext(f"{ATOM}updated")) for e in feed.iter(f"{ATOM}entry")]
    assert str(feed.findtext(f"{ATOM}updated")) == max(moments)
    return feed


def _entries(feed: ET.Element) -> list[tuple[str, str]]:
    return [
        (str(e.findtext(f"{ATOM}title")), str(e.findtext(f"{ATOM}summary")))
        for e in feed.iter(f"{ATOM}entry")
    ]


def test_a_feed_tells_what_became_of_a_dataset_in_words(client: "TestClient[ReaderApp]") -> None:
    answer = client.get("/datasets/trees/feed")
    assert answer.headers["content-type"].startswith("application/atom+xml")
    feed = _checked(answer.content)
    assert feed.findtext(f"{ATOM}title") == TITLE
    assert feed.findtext(f"{ATOM}author/{ATOM}name") == "County Office"
    assert _entries(feed) == [
        (f"{TITLE}, generation {number}: {what}", words)
        for number, what, words in (
            (
                4,
                "new version",
                "It has 11 rows. Of the rows 2 came, 0 went, 0 changed. Why: seen & checked",
            ),
            (
                3,
                "rolled back",
                "What is official went back to the version of generation 1. It has 9 rows."
                " That is 3 fewer than before. Gone columns: seen. Why: a bad feed",
            ),
            (
                2,
                "new version",
                "It has 12 rows. Of the rows 3 came, 0 went, 0 changed. New columns: seen."
                " Why: seen & checked",
            ),
            (1, "new version", "It has 9 rows. It is the first."),
        )
    ]
    for each in feed.iter(f"{ATOM}entry"):
        page = each.find(f"{ATOM}link[@rel='alternate']")
        assert page is not None and client.get(page.attrib["href"]).status_code == 200


def test_what_was_withdrawn_is_told_so_and_leads_to_what_is_there(
    client: "TestClient[ReaderApp]",
) -> None:
    feed = _checked(client.get("/datasets/shrubs/feed").content)
    taken, first = feed.iter(f"{ATOM}entry")
    assert _entries(feed) == [
        (
            "Trees of shrubs, generation 2: records withdrawn",
            "Records were withdrawn. It has 8 rows. Why: asked",
        ),
        ("Trees of shrubs, generation 1: no longer shown", "This version may not be had any more."),
    ]
    moment, begun = f"{ATOM}updated", f"{ATOM}published"
    assert first.findtext(moment) == taken.findtext(moment) > str(first.findtext(begun))
    page = first.find(f"{ATOM}link[@rel='alternate']")
    assert page is not None and page.attrib["href"].endswith("/datasets/shrubs")


def test_the_feed_of_all_is_made_after_filtering_and_kept_by_its_tag(
    ws: Path, client: "TestClient[ReaderApp]"
) -> None:
    own = _checked(client.get("/datasets/trees/feed").content)
    answer = client.get("/feed")
    feed = _checked(answer.content)
    names = {e.findtext(f"{ATOM}id") for e in feed.iter(f"{ATOM}entry")}
    told = [e for e in _entries(feed) if TITLE in e[0]]
    assert told == _entries(own), "the same of a generation wherever it is told"
    assert len(names) == 6 and {e.findtext(f"{ATOM}id") for e in own.iter(f"{ATOM}entry")} < names
    known = {"if-none-match": answer.headers["etag"]}
    assert client.get("/feed", headers=known).status_code == 304
    path = ws / "data" / "registry" / "trees.yml"
    before = path.read_text()
    path.write_text(before.replace("sensitivity: public", "sensitivity: restricted"))
    try:
        left = client.get("/feed", headers=known)
        assert left.status_code == 200 and "county" not in left.text
        assert len(_entries(_checked(left.content))) == 2
        assert client.get("/datasets/trees/feed").status_code == 451
    finally:
        path.write_text(before)


def test_pages_name_their_feeds_to_who_follows_them(client: "TestClient[ReaderApp]") -> None:
    page = client.get("/datasets/trees", headers={"accept": "text/html"}).text
    for path in ("/feed", "/datasets/trees/feed"):
        assert 'rel="alternate" type="application/atom+xml"' in page and f'href="{path}"' in page
