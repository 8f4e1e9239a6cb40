"""A static copy holds what anybody may see and nothing else, works from a folder and from any host,
and is written whole or not at all.
"""

import contextlib
import functools
import http.server
import json
import re
import threading
from collections.abc import Iterator
from html import unescape
from pathlib import Path
from urllib.parse import unquote

import pytest

from kfm.cli import main
from kfm.cli.init import make_workspace
from kfm.pages.site import copy
from kfm.testing import Upstream
from tests.given.browsing import Looker, chromium, looker
from tests.given.reading import STATES, called, mark, published
from tests.given.tiles import tiles
from tests.given.verbs import Kfm, caller, tree

_LINK = re.compile(r' (?:href|src|action|data-map|data-tiles|data-href|data-rows)="([^"]*)"')


@pytest.fixture(scope="module")
def ws(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A dataset in every state; the one that is open has two versions."""
    folder = tmp_path_factory.mktemp("site") / "ws"
    make_workspace(folder, sample=False, allow_loopback=True)
    with Upstream() as up:
        published(folder, up)
        told = json.loads(up.files["/open.geojson"])
        told["features"][3]["properties"]["name"] = "<script>pwned=1</script>"
        up.files["/open.geojson"] = json.dumps(told).encode()
        called(folder, "run", "open", "--accept-change", "--reason", "seen")
        yield folder


@pytest.fixture(scope="module")
def site(ws: Path) -> Path:
    """A copy of everything that may be in one."""
    folder = ws.parent / "public"
    assert main(["-w", str(ws), "export", "site", "-o", str(folder)]) == 0
    return folder


@pytest.fixture
def kfm(ws: Path, capsys: pytest.CaptureFixture[str]) -> Kfm:
    return caller(ws, capsys)


def test_a_copy_holds_what_anybody_may_see_and_says_what_is_left_out(
    ws: Path, kfm: Kfm, tmp_path: Path
) -> None:
    said = kfm("export", "site", "-o", str(tmp_path / "out"), "--json").json
    assert said["datasets"] == {"open": [1, 2]}
    why = {one["dataset_id"]: one["why"] for one in said["left_out"]}
    assert why.keys() == STATES.keys() - {"open"}
    for names, words in (
        (("cells", "groups"), "its label asks something of who reads it"),
        (("closed", "unlicensed"), "nothing of it is public"),
        (("tightened", "withdrawn"), "it was public, and may not be shown now"),
    ):
        assert all(words in why[name] for name in names)
    for path in (p for p in (tmp_path / "out").rglob("*") if p.is_file()):
        raw = path.read_bytes()
        assert not [n for n in STATES if n != "open" and mark(n).encode() in raw], path
    folder = tmp_path / "out" / "datasets" / "open"
    for name in ("index.html", "feed.xml", "versions.json", "versions/2/diff/index.html"):
        assert (folder / name).is_file(), name
    version = json.loads((folder / "versions.json").read_text())["generations"][0]["version_id"]
    for name in ("rows.csv", "rows.json", "places.geojson", "cite.bib", "story.json", "dcat.json"):
        assert (folder / "versions" / version / name).is_file(), name
    official = ws / "data" / "processed" / "open" / version
    for path in (folder / "versions" / version / "files").iterdir():
        assert path.read_bytes() == (official / path.name).read_bytes()


@pytest.mark.parametrize("name", ["closed", "cells", "tightened"])
def test_what_may_not_be_copied_is_refused_and_nothing_is_written(
    kfm: Kfm, tmp_path: Path, name: str
) -> None:
    said = kfm("export", "site", name, "-o", str(tmp_path / "out"))
    assert said.code == 3 and list(tmp_path.iterdir()) == []
    assert kfm("export", "site", "opne", "-o", str(tmp_path / "out")).code == 2
    assert kfm("export", "site", "open@9", "-o", str(tmp_path / "out")).code == 2
    assert list(tmp_path.iterdir()) == []


def test_no_copy_is_written_among_the_data_of_the_workspace(kfm: Kfm, ws: Path) -> None:
    inside = ws / "data" / "processed" / "copy"
    said = kfm("export", "site", "open", "-o", str(inside))
    assert said.code == 2 and not inside.exists()
    assert kfm("verify").code == 0


def test_the_same_evidence_gives_the_same_bytes_and_only_an_unchanged_copy_is_replaced(
    kfm: Kfm, site: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    for _ in range(2):
        assert kfm("export", "site", "-o", str(out)).code == 0
        assert tree(out) == tree(site)
    (out / "mine.txt").write_text("mine")
    before = tree(out)
    refused = kfm("export", "site", "-o", str(out))
    assert refused.code == 2 and "did not make" in refused.err and tree(out) == before
    (out / "mine.txt").unlink()
    (out / "index.html").write_text("mine")
    assert kfm("export", "site", "-o", str(out)).code == 2
    assert (out / "index.html").read_text() == "mine"
    assert [p.name for p in tmp_path.iterdir()] == ["out"], "nothing is left beside it"


def test_what_is_tightened_while_it_is_copied_is_in_no_copy(
    ws: Path, kfm: Kfm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry, was = ws / "data" / "registry" / "open.yml", copy._index
    before = entry.read_text()

    def late(made: copy._Copy) -> None:
        entry.write_text(before.replace("sensitivity: public", "sensitivity: restricted"))
        was(made)

    monkeypatch.setattr(copy, "_index", late)
    try:
        said = kfm("export", "site", "open", "-o", str(tmp_path / "out"))
    finally:
        entry.write_text(before)
    assert said.code != 0 and list(tmp_path.iterdir()) == []


def test_every_link_of_a_copy_leads_to_a_file_of_it(site: Path) -> None:
    pages = sorted(site.rglob("*.html"))
    assert len(pages) >= 10
    for page in pages:
        text = page.read_text()
        assert "kfm.invalid" not in text and "/search" not in text
        for link in map(unescape, _LINK.findall(text)):
            if link.startswith(("#s-", "#i-", "data:")):
                continue
            path, _, anchor = link.partition("#")
            assert "://" not in link and not link.startswith("/"), (page, link)
            file = page.parent / unquote(path) if path else page
            assert file.is_file(), (page, link)
            assert not anchor or f'id="{anchor}"' in file.read_text(), (page, link)
    for path in (*site.rglob("*.json"), *site.rglob("*.xml")):
        assert b"kfm.invalid" not in path.read_bytes(), path
    twin = next(site.glob("datasets/open/versions/v*.json"))
    told = json.loads(twin.read_text())
    for address in (*(f["address"] for f in told["files"] + told["proofs"]), told["links"]["cite"]):
        assert (twin.parent / unquote(address)).is_file(), address
    assert told["links"]["tiles"] is None, "none were made"


def test_a_copy_of_one_version_and_one_whose_address_is_known(kfm: Kfm, tmp_path: Path) -> None:
    at = "https://data.example.org/copy"
    out = tmp_path / "out"
    assert kfm("export", "site", "open@1", "-o", str(out), "--at", at).code == 0
    assert not (out / "datasets/open/index.html").exists()
    assert 'href="datasets/open/versions/1/index.html"' in (out / "index.html").read_text()
    assert kfm("export", "site", "open", "-o", str(out)).code == 0
    page = (out / "datasets/open/index.html").read_text()
    assert "og:image" not in page, "nobody knows its whole address"
    named = re.findall(r"read_parquet\(&quot;(datasets/[^&]*)&quot;", page)
    assert named and (out / named[0]).is_file()
    assert kfm("export", "site", "open", "-o", str(out), "--at", at).code == 0
    page = (out / "datasets/open/index.html").read_text()
    assert f'property="og:image" content="{at}/datasets/open/versions/v' in page
    assert f"read_parquet(&quot;{at}/datasets/open/versions/v" in page
    assert f'href="{at}/datasets/open/feed.xml"' in (out / "datasets/open/feed.xml").read_text()
    assert kfm("export", "site", "open", "-o", str(out), "--at", "ftp://x").code == 2


# ---- in a browser --------------------------------------------------------------------------------
class _Host(http.server.SimpleHTTPRequestHandler):
    """Any static host: it sends files, or the part of one that is asked for."""

    def log_message(self, *_: object) -> None:
        pass

    def do_GET(self) -> None:
        asked = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("range", ""))
        path = Path(self.translate_path(self.path))
        if asked is None or not path.is_file():
            return super().do_GET()
        raw = path.read_bytes()
        part = raw[int(asked[1]) : int(asked[2]) + 1]
        self.send_response(206)
        self.send_header("content-range", f"bytes {asked[1]}-{asked[2]}/{len(raw)}")
        self.send_header("content-length", str(len(part)))
        self.end_headers()
        self.wfile.write(part)
        return None


@contextlib.contextmanager
def hosted(folder: Path) -> Iterator[str]:
    handler = functools.partial(_Host, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join(30)


def test_a_copy_works_on_any_host_and_from_a_folder(site: Path) -> None:
    page_of = "/datasets/open/index.html"
    with chromium() as started:
        with hosted(site) as url, looker(started, url) as person:
            _walked(person, site)
            page = person.go(page_of)
            page.wait_for_selector("[data-painted]", timeout=120_000)
            assert page.is_hidden("#in-folder")
            page.select_option("#rows-column", "site_no")
            page.fill("#rows-words", "7")
            page.click("text=Filter")
            page.wait_for_function(
                "() => /^Rows 1 to .* of /.test(document.getElementById('rows-said').textContent)"
            )
            found = page.eval_on_selector_all(
                "#rows tbody tr", "all => all.map(r => r.cells[0].textContent)"
            )
            page.click("th[data-column=site_no] .sort")
            page.click("th[data-column=site_no] .sort")
            page.wait_for_selector("th[aria-sort=descending]")
            page.wait_for_function(
                "(first) => document.querySelector('#rows td').textContent !== first", arg=found[0]
            )
            turned = page.inner_text("#rows tbody tr:first-child td:first-child")
            assert found and all("7" in each for each in [*found, turned]) and turned > found[0]
            page = person.go("/datasets/open/versions/2/index.html#verify")
            page.wait_for_function("() => document.querySelectorAll('#verdict li').length === 3")
            assert "All 5 files are as stated." in page.inner_text("#verdict")
            assert (person.said, person.outside) == ([], [])
        with looker(started, site.as_uri()) as person:
            _walked(person, site)
            page = person.go(page_of)
            assert page.is_visible("#in-folder") and page.is_visible(".canvas .still")
            assert "Zyx" in page.inner_text("#rows")
            assert page.evaluate("() => typeof pwned") == "undefined"
            assert (person.said, person.outside) == ([], [])


def _walked(person: Looker, site: Path) -> None:
    for path in sorted(site.rglob("*.html")):
        person.go(f"/{path.relative_to(site)}")
        person.settled()


def test_many_places_are_painted_from_the_tiles_of_the_copy(
    ws: Path, kfm: Kfm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kfm.pages.gather.dataset.FEW", 4)
    tiles(ws, "open")
    assert kfm("export", "site", "open", "-o", str(tmp_path / "out")).code == 0
    (made,) = (tmp_path / "out").rglob("tiles.pmtiles")
    with chromium() as started, hosted(tmp_path / "out") as url, looker(started, url) as person:
        asked: list[str] = []
        person.page.on("request", lambda r: asked.append(r.url))
        page = person.go("/datasets/open/index.html")
        page.wait_for_selector("[data-painted]", timeout=120_000)
        assert any(each.endswith(made.name) for each in asked)
        assert not any("places" in each for each in asked)
        assert (person.said, person.outside) == ([], [])
