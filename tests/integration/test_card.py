"""A picture to share says what a dataset is, in text and shapes alone, to whom it may be said."""

import json
import re
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from pathlib import Path

import pytest
from litestar.testing import TestClient

from kfm.cli.init import make_workspace
from kfm.pages.routes import html_pages
from kfm.reader.app import ReaderApp
from kfm.testing import Upstream
from tests.given.pages import ATTACK
from tests.given.reading import called, entry, reader

SVG = "{http://www.w3.org/2000/svg}"
BROWSER = {"accept": "text/html"}


@pytest.fixture(scope="module")
def ws(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Places under a title that is an attack, and a table without places."""
    folder = tmp_path_factory.mktemp("card") / "ws"
    make_workspace(folder, sample=False, allow_loopback=True)
    points = [
        {
            "type": "Feature",
            "geometry": {"type": "Point", "coordinates": [-98 + n / 10, 38 + n % 3 / 10]},
            "properties": {"id": f"t{n}"},
        }
        for n in range(12)
    ]
    with Upstream() as up:
        up.files["/trees.csv"] = json.dumps(
            {"type": "FeatureCollection", "features": points}
        ).encode()
        up.files["/plain.csv"] = b"id,name\na,b\n"
        path = entry(folder, "trees", up.url)
        text = path.read_text().replace("format: csv", "format: geojson")
        path.write_text(text.replace("title: Trees of trees", f"title: {json.dumps(ATTACK)}"))
        entry(folder, "plain", up.url)
        called(folder, "run", "trees")
        called(folder, "run", "plain")
        yield folder


@pytest.fixture
def client(ws: Path) -> "Iterator[TestClient[ReaderApp]]":
    with reader(ws, html_pages()) as found:
        yield found


def _drawn(client: "TestClient[ReaderApp]", path: str) -> tuple[ET.Element, str]:
    answer = client.get(path)
    assert answer.status_code == 200 and answer.headers["content-type"].startswith("image/svg+xml")
    assert "default-src 'none'" in answer.headers["content-security-policy"]
    card = ET.fromstring(answer.content)
    assert {e.tag.removeprefix(SVG) for e in card.iter()} <= {
        "svg", "title", "rect", "g", "circle", "text", "line",
    }  # fmt: skip
    for each in card.iter():
        assert not [n for n in each.attrib if n.startswith("on") or "href" in n or n == "style"]
    return card, " ".join(str(e.text) for e in card.iter(f"{SVG}text"))


def test_a_card_says_what_it_is_and_draws_where(client: "TestClient[ReaderApp]") -> None:
    card, text = _drawn(client, "/datasets/trees/card.svg")
    version = client.get("/datasets/trees").json()["version_id"]
    for words in ("12 rows, 2 columns", "CC0-1.0 · public", "official since", "generation 1"):
        assert words in text
    assert version[:9] in text and len(list(card.iter(f"{SVG}circle"))) == 12
    plain, words = _drawn(client, "/datasets/plain/versions/1/card.svg")
    assert "Trees of plain" in words and not list(plain.iter(f"{SVG}circle"))


def test_whatever_a_title_holds_is_text(client: "TestClient[ReaderApp]") -> None:
    _, text = _drawn(client, "/datasets/trees/card.svg")
    assert "<img" in text, "it is there to be read"


def test_a_card_is_kept_by_its_tag_until_it_may_not_be_seen(
    ws: Path, client: "TestClient[ReaderApp]"
) -> None:
    answer = client.get("/datasets/plain/card.svg")
    known = {"if-none-match": answer.headers["etag"]}
    assert client.get("/datasets/plain/card.svg", headers=known).status_code == 304
    path = ws / "data" / "registry" / "plain.yml"
    before = path.read_text()
    path.write_text(before.replace("sensitivity: public", "sensitivity: restricted"))
    try:
        for each in ("/datasets/plain/card.svg", "/datasets/plain/versions/1/card.svg"):
            refused = client.get(each, headers=known)
            assert refused.status_code == 451 and "plain" not in refused.text
    finally:
        path.write_text(before)


def test_pages_name_their_card_by_its_whole_address(client: "TestClient[ReaderApp]") -> None:
    for path in ("/datasets/plain", "/datasets/plain/versions/1"):
        page = client.get(path, headers=BROWSER).text
        (at,) = re.findall(r'<meta property="og:image" content="([^"]*)">', page)
        assert at.startswith("http://testserver.local/datasets/plain/")
        assert client.get(at).headers["content-type"].startswith("image/svg+xml")
        assert '<meta property="og:title" content="Trees of plain' in page
