"""Markup that cannot be broken out of, files that are what they say, numbers as people read them."""

import datetime as dt
import hashlib
import re
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from tests.brought import PACKAGES, npm_package
from tests.given.reading import reader
from tests.given.verbs import had

import kfm.pages
from kfm.cli.init import make_workspace
from kfm.pages.addresses import asset, lineage, version
from kfm.pages.html import Html, el, safe_address
from kfm.pages.layout import Frame, Page, document
from kfm.pages.parts import command, digest, short, with_commands
from kfm.pages.problem import problem_page, render
from kfm.pages.routes import html_pages
from kfm.pages.row import RowPage
from kfm.pages.row import render as render_row
from kfm.pages.static_files import FILES
from kfm.pages.words import ago, lasting, plural, size, when
from kfm.story.blame import Blame, Cell

FOLDER = Path(kfm.pages.__file__).parent


@given(st.text())
def test_text_stays_text_inside_and_in_attributes(text: str) -> None:
    made = el("p", text, title=text)
    inside = made.removeprefix("<p").removesuffix("</p>")
    assert inside.count("<") == 0 and inside.count(">") == 1 and inside.count('"') == 2


def test_only_what_was_made_here_is_markup() -> None:
    assert el("p", el("b", "x"), "<b>") == "<p><b>x</b>&lt;b&gt;</p>"
    assert el("p", Html("<i></i>"), None, ["a", ("b", 1)]) == "<p><i></i>ab1</p>"
    assert el("input", disabled=True, value="", hidden=False, name=None) == (
        '<input disabled value="">'
    )


def test_what_turns_the_reading_direction_is_spelt_out() -> None:
    assert el("p", "a\u202eb\x00") == "<p>a\\u202eb\\x00</p>"


@pytest.mark.parametrize(
    "address",
    ["javascript:alert(1)", "JaVaScRiPt:x", "data:text/html,x", "//evil.example", " javascript:x",
     "\tjavascript:x", "vbscript:x", "file:///etc/passwd", "ftp://x", ""],
)  # fmt: skip
def test_an_address_that_would_run_or_leave_leads_nowhere(address: str) -> None:
    assert safe_address(address) == "#"
    assert el("a", "x", href=address) == '<a href="#">x</a>'


def test_the_page_of_a_row_tells_any_value_exactly() -> None:
    cell = Cell(
        column="serial", value=2**63 - 1, generation=2, given_by=2, run_id="r", version_id="v",
        at=None, certain=False,
    )  # fmt: skip
    told = Blame(
        dataset_id="a", ref="a@2", key={"id": "1"}, there=True, cells=(cell,), origin=None, was=(),
        last_seen=None, gone_by=None, not_shown=(),
    )  # fmt: skip
    page = RowPage(
        address="/x", title="x", command="kfm", blame=told, dataset_id="a", dataset_title="A",
        generation=2, given_by=2, came=None,
    )  # fmt: skip
    text = render_row(page, Frame())
    assert "9223372036854775807" in text and "at least since" in text
    assert "one that is not shown" in text, "what came before may not be looked at"


def test_addresses_hold_any_name() -> None:
    assert version("a", "b/../c") == "/datasets/a/versions/b%2F..%2Fc"
    assert asset("a", 1, "x y/é.csv") == "/datasets/a/versions/1/files/x%20y/%C3%A9.csv"
    assert lineage("https://x/?a=1#b") == "/lineage/https%3A%2F%2Fx%2F%3Fa%3D1%23b"


def test_a_page_has_nothing_inline_and_ends_with_its_address_twin_and_command() -> None:
    page = Page(address="/datasets/x", title="<x>", command="kfm status")
    made = document(page, Frame(), el("h1", "x"), scripts=["map.mjs", "vendor/pmtiles.js"])
    assert not re.search(r"<[^>]+ (style|on\w+)=", made)
    scripts = re.findall(r"<script([^>]*)>(.*?)</script>", made)
    assert scripts and all("src=" in head and not body for head, body in scripts)
    assert "<style" not in made and "<title>&lt;x&gt; · kfm</title>" in made
    foot = made[made.index("<footer") :]
    assert "/datasets/x" in foot and 'href="/datasets/x.json"' in foot and "kfm status" in foot


@pytest.mark.parametrize("status", [400, 401, 403, 404, 405, 413, 451, 500, 503])
def test_what_is_not_answered_is_said_in_three_parts(status: int) -> None:
    made = render(
        problem_page(status, "It happened.", "/x", "r1" if status == 500 else ""), Frame()
    )
    assert "What happened" in made and "What to do next" in made and "It happened." in made
    assert ("r1" in made) == (status == 500)


def test_files_are_a_fixed_list_and_the_map_library_is_the_one_it_says() -> None:
    assert "kfm.css" in FILES and "vendor/maplibre-gl.mjs" in FILES
    stated = dict(
        reversed(line.split("  "))
        for line in (FOLDER / "static/vendor/checksums.sha256").read_text().splitlines()
    )
    assert set(stated) == {p.name for p in FILES.values() if p.parent.name == "vendor"} - {
        "LICENCES.txt",
        "maplibre-gl.LICENSE.txt",
    }
    for name, digits in stated.items():
        raw = (FOLDER / "static/vendor" / name).read_bytes()
        assert hashlib.sha256(raw).hexdigest() == digits
        package = PACKAGES["pmtiles" if name == "pmtiles.js" else "maplibre-gl"]
        assert (had(lambda: npm_package(package)) / "dist" / name).read_bytes() == raw


def test_a_browser_reaches_the_governed_reader_and_nothing_else(tmp_path: Path) -> None:
    """No page brings a client of a database or of anybody else, its policy would let none out, and
    where kfm is set up no port of a database is open.
    """
    make_workspace(tmp_path / "ws", sample=False)
    with reader(tmp_path / "ws", html_pages()) as client:
        answer = client.get("/datasets", headers={"accept": "text/html"})
    policy = dict(
        part.split(" ", 1) for part in answer.headers["content-security-policy"].split("; ")
    )
    assert answer.status_code == 200 and "<h1>Datasets</h1>" in answer.text
    assert (policy["default-src"], policy["connect-src"], policy["script-src"]) == (
        "'none'",
        "'self'",
        "'self'",
    )
    ours = [p for p in FILES.values() if p.suffix == ".mjs" and p.parent.name != "vendor"]
    # the one that listens does so to the run whose page it is on
    (listens,) = [p for p in ours if "EventSource(" in p.read_text()]
    assert re.findall(r"EventSource\((.*?/)", listens.read_text()) == ["`${location.pathname}/"]
    others = r"WebSocket|XMLHttpRequest|sendBeacon|indexedDB|https?://(?!www\.w3\.org/2000/svg)"
    assert ours and [p.name for p in ours if re.search(others, p.read_text())] == []
    brought = {p.name for p in FILES.values() if p.parent.name == "vendor" and "js" in p.suffix}
    assert brought == {"maplibre-gl.mjs", "maplibre-gl-worker.mjs", "pmtiles.js"}
    compose = yaml.safe_load((FOLDER.parents[2] / "deploy/compose/compose.yaml").read_text())
    assert [name for name, service in compose["services"].items() if "ports" in service] == []


def test_every_module_that_a_page_names_is_there() -> None:
    named = set()
    for path in FOLDER.rglob("*.py"):
        named |= set(re.findall(r'"((?:vendor/)?[\w-]+\.(?:mjs|js))"', path.read_text()))
    made = {"site.js"}  # of the modules, where a copy is made
    assert named and named <= set(FILES) | made
    for path in FILES.values():
        if path.suffix == ".mjs" and path.parent.name != "vendor":
            for name in re.findall(r'from "\./([\w/.-]+)"', path.read_text()):
                assert name in FILES


def test_colours_are_tokens() -> None:
    """A hex value outside the first section of the style sheet is a mistake."""
    text = (FOLDER / "static/kfm.css").read_text()
    after = text[text.index("2. base") :]
    found = set(re.findall(r"#[0-9a-fA-F]{3,8}\b", re.sub(r"/\*.*?\*/", "", after, flags=re.S)))
    assert found <= {"#fff", "#hatch"}


def test_numbers_and_moments_as_people_read_them() -> None:
    assert (size(999), size(184_300_000), size(None)) == ("999 bytes", "184 MB", "")
    assert (lasting(1.94), lasting(61), lasting(7 * 3600), lasting(3 * 86_400)) == (
        "1.9 s",
        "1 min",
        "7 h",
        "3 days",
    )
    assert (plural(1, "row"), plural(1204, "row")) == ("1 row", "1,204 rows")
    assert when("2026-11-13T02:41:09.5-06:00") == "13 Nov 2026, 08:41 UTC"
    now = dt.datetime(2026, 11, 13, 10, tzinfo=dt.UTC)
    assert (ago("2026-11-13T08:00:00Z", now), ago(None, now)) == ("2 h ago", "")


def test_digests_are_short_on_screen_and_exact_on_copy() -> None:
    exact = "sha256:" + "ab" * 32
    assert short(exact) == "ababababa…" and f'data-copy="{exact}"' in str(digest(exact))
    assert short("01a1e9cf-9528-73e8-8a7d-7bd1ecb15856") == "01a1e9cf…5856"
    assert "<span>--only</span>" in command("kfm gates x --only leak")
    assert with_commands("run `kfm <x>` now") == "run <code>kfm &lt;x&gt;</code> now"
