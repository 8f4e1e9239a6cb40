"""Pages in a real browser: they say nothing wrong, ask nobody outside, can be used by everybody, and
show what others wrote as text.
"""

import json
import os
import re
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from html import unescape
from pathlib import Path
from urllib.parse import parse_qs, quote, urljoin, urlsplit

import pytest
from playwright.sync_api import Browser, Page, Route

from kfm.cli.init import make_workspace
from kfm.cli.spec import find
from kfm.workspace.folder import open_workspace
from kfm.workspace.wiring import open_world
from tests.given.browsing import chromium, looker, served
from tests.given.pages import ATTACK, lived_in
from tests.given.tiles import tiles

PUBLIC = (
    "/datasets",
    "/datasets/city_trees",
    "/datasets/hostile",
    "/datasets/city_trees/versions/3",
    "/datasets/city_trees/versions/3/diff",
    "/datasets/city_trees/versions/3/story",
    "/datasets/city_trees/versions/3/ask",
    "/datasets/city_trees/versions/3/blame?key=tree_id=t009",
    "/datasets/hostile/versions/1/blame?key=tree_id=t000",
    "/lineage/city_trees",
    "/search?q=trees",
    "/about",
    "/login",
    "/nothing/here",
)
CONSOLE = (
    "/",
    "/decisions/no_licence",
    "/proposals",
    "/proposals/5",
    "/proposals/5/preview",
    "/runs",
    "/runs/{run}",
    "/runs/{noop}",
    "/quarantine",
    "/quarantine/{aside}",
    "/backfills",
    "/backfills/past_levels",
    "/queue",
    "/schedules",
    "/policy",
    "/webhooks",
    "/slo",
)

_HREF = re.compile(r'<a [^>]*href="([^"]+)"')


@pytest.fixture(scope="module")
def lived(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with lived_in(tmp_path_factory.mktemp("pages") / "ws") as ws:
        yield ws


@pytest.fixture(scope="module")
def console(lived: Path) -> Iterator[str]:
    with served(lived, console=True) as url:
        yield url


@pytest.fixture(scope="module")
def started() -> Iterator[Browser]:
    with chromium() as found:
        yield found


@pytest.fixture(scope="module")
def paths(lived: Path) -> dict[str, str]:
    """Every address, by the name its picture gets."""
    with open_world(open_workspace(lived)) as world:
        runs = world.store.read(lambda tx: tx.runs.recent("city_trees", 1))
        aside = world.store.read(lambda tx: tx.runs.recent("set_aside", 1))
        noops = world.store.read(lambda tx: tx.looks.noops("city_trees", 1))
    ids = {"run": runs[0].run_id, "aside": aside[0].run_id, "noop": noops[0].run_id}
    named = {p: p.format(**ids) for p in (*PUBLIC, *CONSOLE)}
    return {_named(p): path for p, path in named.items()}


def _named(path: str) -> str:
    """What the picture of a page is called."""
    return re.sub(r"\W+", "-", path).strip("-") or "home"


@dataclass
class Seen:
    """What one walk over every page found; pages are loaded once, and several tests look at it."""

    wrong: list[str] = field(default_factory=list)  # page, width and theme: what is wrong
    said: list[str] = field(default_factory=list)
    outside: list[str] = field(default_factory=list)
    commands: dict[str, list[str]] = field(default_factory=dict)
    twins: dict[str, str | None] = field(default_factory=dict)
    ran: list[str] = field(default_factory=list)  # pages on which what others wrote did something
    shown: int = 0  # pages on which it can be read


# what a workspace shows in which nothing was registered yet
EMPTY = (
    "/",
    "/datasets",
    "/proposals",
    "/runs",
    "/quarantine",
    "/backfills",
    "/queue",
    "/schedules",
    "/policy",
    "/webhooks",
    "/slo",
    "/search?q=trees",
    "/about",
)


@pytest.fixture(scope="module")
def seen(console: str, started: Browser, paths: dict[str, str]) -> Seen:
    """Every page in two widths and two themes."""
    return walked(console, started, paths)


def walked(url: str, started: Browser, paths: Mapping[str, str]) -> Seen:
    """Pages in two widths and two themes. A picture of each is kept where KFM_PICTURES names a
    folder: as a desk shows it by day and a phone by night.
    """
    pictures, found = os.environ.get("KFM_PICTURES"), Seen()
    smaller = {"device_scale_factor": 0.75} if pictures else {}
    with looker(started, url, **smaller) as person:
        for name, path in paths.items():
            person.go(path)
            for wide, theme, rules in (
                (1280, "light", ()),
                (1280, "dark", ("color-contrast",)),
                (390, "dark", ()),
                (390, "light", ("color-contrast", "target-size", "scrollable-region-focusable")),
            ):
                person.page.set_viewport_size({"width": wide, "height": 900})
                person.page.emulate_media(color_scheme=theme)  # type: ignore[arg-type]
                at = f"{path} {wide} {theme}"
                found.wrong += [f"{at}: {fault}" for fault in person.faults(rules)]
                over = person.page.evaluate("document.documentElement.scrollWidth - innerWidth")
                found.wrong += [f"{at}: {over} px too wide"] if over > 0 else []
                if pictures and (theme == "light") == (wide == 1280):
                    picture = Path(pictures) / f"{name}-{wide}.png"
                    person.settled()
                    person.page.screenshot(path=picture)
            _noted(found, path, person.page)
            person.page.set_viewport_size({"width": 1280, "height": 900})
        found.said, found.outside = person.said, person.outside
    return found


def _noted(found: Seen, path: str, page: Page) -> None:
    found.commands[path] = [c.inner_text() for c in page.query_selector_all(".cmd code")]
    found.twins[path] = page.get_attribute("footer.twin a", "href")
    if page.evaluate("() => typeof pwned") != "undefined":
        found.ran.append(path)
    if page.query_selector("img, iframe, main script, main style") is not None:
        found.ran.append(f"{path}: an element of others")
    found.shown += "onerror=pwned=1" in page.inner_text("main")


def test_no_page_complains_asks_outside_or_shuts_anybody_out(seen: Seen) -> None:
    allowed = "error: Failed to load resource: the server responded with a status of 404"
    said = [line for line in seen.said if not line.startswith(allowed)]
    assert not seen.wrong, "\n".join(seen.wrong)
    assert (said, seen.outside) == ([], [])
    assert len(seen.said) - len(said) == 1, "the page that is not there, and nothing else"


def test_a_page_on_which_there_is_nothing_yet_says_what_comes_there_and_how(
    tmp_path: Path, started: Browser
) -> None:
    make_workspace(tmp_path / "ws", sample=False, allow_loopback=True)
    named = {f"empty-{_named(path)}": path for path in EMPTY}
    with served(tmp_path / "ws", console=True) as url:
        seen = walked(url, started, named)
        with looker(started, url) as person:
            first = person.go("/").inner_text("main")
    assert not seen.wrong, "\n".join(seen.wrong)
    assert (seen.said, seen.outside) == ([], [])
    assert "kfm dataset new" in first
    for path, commands in seen.commands.items():
        for text in commands:
            words = text.strip().split()
            assert words[0] == "kfm" and find(words[1:])[0] is not None, (path, text)


def test_what_failed_and_is_tried_again_needs_somebody_once(console: str) -> None:
    with urllib.request.urlopen(f"{console}/home.json") as answer:
        needs = json.load(answer)["needs"]
    (gone,) = [n for n in needs if "gone" in n["title"].lower()]
    assert gone["word"] == "Failed" and gone["why"].endswith("the next when a worker runs.")


def test_a_policy_that_says_no_for_the_reasons_of_others_is_shown_to_say_no(console: str) -> None:
    asked = urllib.request.Request(
        f"{console}/decisions/no_licence", headers={"Accept": "text/html"}
    )
    with urllib.request.urlopen(asked) as answer:
        rows = answer.read().decode().split("<tr")
    (policy,) = [row for row in rows if "<code>policy</code>" in row]
    assert "denies, for the reasons above" in policy
    assert "Deny" in policy and "Pass" not in policy


def test_every_page_has_a_twin_and_a_command_that_can_be_typed(console: str, seen: Seen) -> None:
    for path, commands in seen.commands.items():
        for text in commands:
            words = text.strip().split()
            assert words[0] == "kfm" and find(words[1:])[0] is not None, (path, text)
        if path == "/nothing/here":
            continue
        with urllib.request.urlopen(console + str(seen.twins[path])) as answer:
            assert isinstance(json.load(answer), dict), path


def test_no_link_leads_nowhere(console: str, seen: Seen) -> None:
    leads = dict[str, str]()  # where to, and the page that says so

    def asked(path: str) -> tuple[int, str]:
        request = urllib.request.Request(console + path, headers={"Accept": "text/html"})
        try:
            with urllib.request.urlopen(request) as answer:
                return answer.status, answer.read().decode(errors="replace")
        except urllib.error.HTTPError as refused:
            return refused.code, ""

    for path in seen.commands:
        found = (urljoin(path, unescape(at)) for at in _HREF.findall(asked(path)[1]))
        leads |= {at.partition("#")[0]: path for at in found if at.startswith("/")}
    assert len(leads) > 100
    dead = {at: (page, code) for at, page in leads.items() if (code := asked(at)[0]) >= 400}
    assert {at for at in dead if at.startswith("/nothing")} == set(dead), dead


def test_the_map_paints_every_place(console: str, started: Browser) -> None:
    with looker(started, console) as person:
        page = person.go("/datasets/city_trees")
        page.wait_for_selector("[data-painted]", timeout=120_000)
        spots = page.evaluate(_BLOBS)
    assert 40 <= spots <= 65, f"65 trees, of which few cover one another, are {spots} spots"


def test_the_map_paints_from_tiles_where_places_are_many(
    lived: Path, console: str, started: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kfm.pages.gather.dataset.FEW", 4)
    tiles(lived, "hostile")
    asked: list[str] = []
    with looker(started, console) as person:
        person.page.on("request", lambda r: asked.append(r.url))
        page = person.go("/datasets/hostile")
        page.wait_for_selector("[data-painted]", timeout=120_000)
        spots = page.evaluate(_BLOBS)
        assert (person.said, person.outside) == ([], [])
    assert 1 <= spots <= 5, "as many as tiles of this zoom hold"
    assert any(url.endswith("/tiles") for url in asked) and not any("places" in u for u in asked)


def test_a_place_and_a_row_lead_to_where_they_come_from(console: str, started: Browser) -> None:
    with looker(started, console) as person:
        page = person.go("/datasets/city_trees")
        page.wait_for_selector("[data-painted]", timeout=120_000)
        x, y = page.evaluate(_A_SPOT)
        page.mouse.click(x, y)
        link = page.wait_for_selector("#map-said a")
        assert link is not None
        tree = re.search(r"tree_id (t\d{3})", page.inner_text("#map-said"))
        link.click()
        page.wait_for_selector("text=Where this row comes from")
        assert tree is not None and f"tree_id {tree[1]}" in page.inner_text("main")
        assert "kfm asked" in page.inner_text("main"), "what upstream was asked"
        page = person.go("/datasets/city_trees")
        page.click("text=Next")  # rows that a script wrote lead there as those of the server
        page.wait_for_function(
            "() => document.getElementById('rows-said').textContent.includes('26 to')"
        )
        page.click("#rows tbody tr:first-child a")
        page.wait_for_selector("text=Each value, and the version that gave it")
        assert (person.said, person.outside) == ([], [])


# what the map painted, and which of it has the colour of places
_PAINTED = """() => {
  const canvas = document.querySelector(".stage canvas"), flat = document.createElement("canvas");
  [flat.width, flat.height] = [canvas.width, canvas.height];
  const brush = flat.getContext("2d");
  brush.drawImage(canvas, 0, 0);
  const {data, width, height} = brush.getImageData(0, 0, flat.width, flat.height);
  const green = (i) => Math.abs(data[4 * i] - 47) + Math.abs(data[4 * i + 1] - 112) + Math.abs(data[4 * i + 2] - 82) < 40;
"""

# the middle of the page's first spot that has the colour of places, as a mouse points at it
_A_SPOT = (
    _PAINTED
    + """  canvas.scrollIntoView({block: "center"});
  const box = canvas.getBoundingClientRect();
  for (let i = 0; i < width * height; i++) {
    const below = i + 2 * width;
    if (green(i) && green(below) && green(below + 1))
      return [box.x + (below % width) * box.width / width, box.y + Math.floor(below / width) * box.height / height];
  }
}"""
)

# how many separate spots have the colour of places
_BLOBS = (
    _PAINTED
    + """  const seen = new Uint8Array(width * height);
  let spots = 0;
  for (let start = 0; start < width * height; start++) {
    if (seen[start] || !green(start)) continue;
    spots++;
    const edge = [start];
    while (edge.length) {
      const i = edge.pop();
      if (i < 0 || i >= width * height || seen[i] || !green(i)) continue;
      seen[i] = 1;
      edge.push(i - 1, i + 1, i - width, i + width);
    }
  }
  return spots;
}"""
)


def test_rows_are_sorted_filtered_and_turned_by_the_server(console: str, started: Browser) -> None:
    first = "#rows tbody tr:first-child"
    with looker(started, console) as person:
        page = person.go("/datasets/city_trees")
        page.click("th[data-column=height_m] .sort")
        page.wait_for_selector("th[aria-sort=ascending]")
        page.wait_for_function("() => document.querySelectorAll('#rows tbody tr').length === 25")
        assert "4.25" in page.inner_text(first)
        page.click("th[data-column=height_m] .sort")
        page.wait_for_function(
            f"() => document.querySelector('{first}').textContent.includes('26.25')"
        )
        page.click("text=Next")
        page.wait_for_function(
            "() => document.getElementById('rows-said').textContent.includes('26 to')"
        )
        page.select_option("#rows-column", "kind")
        page.fill("#rows-words", "elm")
        page.click("text=Filter")
        page.wait_for_function(
            "() => document.getElementById('rows-said').textContent.includes('1 to 16')"
        )
        kinds = page.eval_on_selector_all(
            "#rows tbody tr", "all => all.map(r => r.cells[1].textContent)"
        )
        assert set(kinds) == {"elm"} and len(kinds) == 16
        page.select_option("#rows-column", "height_m")
        page.fill("#rows-words", ">= 26")
        page.click("text=Filter")
        page.wait_for_function(
            "() => document.getElementById('rows-said').textContent.includes('1 to 2.')"
        )
        page.select_option("#rows-column", "kind")
        page.fill("#rows-words", ATTACK)
        page.click("text=Filter")
        page.wait_for_function(
            "() => document.getElementById('rows-said').textContent === 'No row fits.'"
        )
        assert (person.said, person.outside) == ([], [])


@pytest.mark.parametrize(
    ("kind", "asked"), [("timestamp[us]", "TIMESTAMP"), ("date32[day]", "DATE")]
)
def test_a_moment_and_a_day_are_asked_for_as_what_they_are(
    console: str, started: Browser, kind: str, asked: str
) -> None:
    with looker(started, console) as person:

        def with_kind(route: Route) -> None:
            answer = route.fetch()
            told = re.sub(
                r"""(<th[^>]*data-column="?seen"?[^>]*data-type="?)[^">]*""",
                lambda found: found[1] + kind,
                answer.text(),
            )
            assert kind in told
            route.fulfill(response=answer, body=told)

        person.page.route("**/datasets/city_trees", with_kind)
        page = person.go("/datasets/city_trees")
        page.select_option("#rows-column", "seen")
        page.fill("#rows-words", ">= 2026-03-01")
        with page.expect_request(lambda said: "filter=" in said.url) as sent:
            page.click("text=Filter")
        said = parse_qs(urlsplit(sent.value.url).query)["filter"]
        assert said == [f"\"seen\" >= {asked}('2026-03-01')"]


def test_the_browser_verifies_a_version_and_names_the_file_of_a_flipped_byte(
    console: str, started: Browser
) -> None:
    with looker(started, console) as person:
        page = person.go("/datasets/city_trees/versions/2")
        page.click("#verify-now")
        page.wait_for_function("() => document.querySelectorAll('#verdict li').length === 3")
        assert page.inner_text("#verdict").splitlines() == [
            "All 5 files are as stated.",
            "The digest of the version follows from its files.",
            "Generation 2 names exactly this version, signed by workspace.",
        ]
        page.route("**/files/city_trees.parquet", _with_a_flipped_byte)
        page.click("#verify-now")
        page.wait_for_function(
            "() => document.querySelector('#verdict li')?.textContent.startsWith('Damaged')"
        )
        assert "Damaged: city_trees.parquet." in page.inner_text("#verdict")
        assert page.inner_text("[data-file='city_trees.parquet']").startswith("differs")
        assert page.inner_text("[data-file='version.json']") == "equal"


def _with_a_flipped_byte(route: Route) -> None:
    """Whoever serves it, or stands between, changes one bit."""
    answer = route.fetch()
    body = answer.body()
    route.fulfill(response=answer, body=body[:100] + bytes([body[100] ^ 1]) + body[101:])


def test_the_browser_names_the_file_that_is_damaged_where_it_lies(
    lived: Path, console: str, started: Browser
) -> None:
    table = next((lived / "data/processed/hostile").glob("*/hostile.parquet"))
    before = table.read_bytes()
    table.chmod(0o644)
    table.write_bytes(before[:-9] + b"?" + before[-8:])
    try:
        with looker(started, console) as person:
            page = person.go("/datasets/hostile/versions/1#verify")
            page.wait_for_selector("#verdict li")
            assert "Damaged: hostile.parquet." in page.inner_text("#verdict li")
    finally:
        table.write_bytes(before)


def test_what_others_wrote_is_shown_and_never_run(
    console: str, started: Browser, seen: Seen
) -> None:
    """Titles, descriptions, terms, people, cells, rows that were set aside, and addresses."""
    hostile = ("/datasets/hostile/versions/1", "/datasets/hostile/versions/1/story", "/lineage/hostile", "/search?q=hostile")  # fmt: skip
    asked = f"/search?q={quote(ATTACK)}", f"/{quote(ATTACK)}"
    with looker(started, console) as person:
        for path in (*hostile, *asked):
            person.go(path)
            _noted(seen, path, person.settled())
    assert seen.ran == []
    assert seen.shown >= 8, "it is there to be read"


def test_a_grid_is_walked_by_arrows_and_left_by_tab(console: str, started: Browser) -> None:
    with looker(started, console) as person:
        page = person.go("/")
        page.wait_for_function(
            "() => document.querySelectorAll('.heat [tabindex=\"0\"]').length === 1"
        )
        page.focus(".heat [tabindex='0']")
        name = "document.activeElement.getAttribute('aria-label') ?? document.activeElement.textContent"
        first = page.evaluate(name)
        page.keyboard.press("ArrowLeft")
        before = page.evaluate(name)
        page.keyboard.press("ArrowDown")
        below = page.evaluate(name)
        page.keyboard.press("Home")
        assert page.evaluate("document.activeElement.closest('th') !== null")
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.closest('.heat') === null")
    assert len({first, before, below}) == 3


def test_single_keys_search_and_help_and_can_be_switched_off(
    console: str, started: Browser
) -> None:
    with looker(started, console) as person:
        person.go("/datasets")
        page = person.settled()
        page.keyboard.press("/")
        assert page.evaluate("document.activeElement.id") == "q"
        page.evaluate("document.activeElement.blur()")
        page.keyboard.press("?")
        page.uncheck("#keys-on")
        page.click("#keys button")
        page.keyboard.press("/")
        assert page.evaluate("document.activeElement.id") != "q"


def test_moments_are_told_in_the_viewers_zone_with_utc_beside(
    console: str, started: Browser
) -> None:
    with looker(started, console, timezone_id="America/Chicago") as person:
        page = person.go("/runs")
        page.wait_for_selector("time[title]")
        text, title, exact = page.eval_on_selector(
            "td time", "t => [t.textContent, t.title, t.dateTime]"
        )
    assert title.endswith(" UTC") and title[:16] == exact[:16].replace("T", " ")
    hour = int(re.search(r"(\d\d):\d\d", text)[1])  # type: ignore[index]
    assert (int(exact[11:13]) - hour) % 24 in (5, 6)


def test_a_page_reads_without_scripts(console: str, started: Browser) -> None:
    with looker(started, console, java_script_enabled=False) as person:
        page = person.go("/datasets/city_trees")
        assert page.is_visible(".canvas .still") and "t001" in page.inner_text("#rows")
        assert "UTC" in page.inner_text("footer")


def test_the_slider_leads_from_before_to_after(console: str, started: Browser) -> None:
    with looker(started, console) as person:
        page = person.go("/datasets/city_trees/versions/2/diff")
        page.wait_for_selector("#slider:visible")
        faded = (
            "() => getComputedStyle(document.querySelector('.diffmap figure > svg .ma')).opacity"
        )
        assert page.evaluate(faded) == "1"
        page.focus("#slider")
        page.keyboard.press("Home")
        assert page.evaluate(faded) == "0"


def test_who_does_not_run_things_is_shown_what_is_published_and_nothing_else(
    lived: Path, started: Browser, paths: dict[str, str]
) -> None:
    with served(lived, console=False) as url, looker(started, url) as person:
        listed = person.go("/datasets").inner_text("main")
        assert "City trees" in listed
        for hidden in ("no_licence", "waits_for_you", "gone_upstream"):
            assert hidden not in listed
        unknown = person.go("/datasets/unheard_of").inner_text("main")
        assert person.go("/datasets/no_licence").inner_text("main") == unknown
        for path in (p for p in CONSOLE if p != "/"):
            name = re.sub(r"\W+", "-", path).strip("-")
            assert person.go(paths[name]).inner_text("h1") == "Nothing is here", path
        assert person.go("/").inner_text("h1") == "Datasets"


@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "evil.example"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Host": "127.0.0.1.evil.example"},
    ],
)
def test_another_site_cannot_look_at_how_things_are_run(
    console: str, headers: dict[str, str]
) -> None:
    for path in ("/runs", "/home.json", "/queue", "/proposals/5"):
        asked = urllib.request.Request(console + path, headers=headers)
        with pytest.raises(urllib.error.HTTPError, match="404"):
            urllib.request.urlopen(asked)
    with urllib.request.urlopen(console + "/runs") as answer:
        assert answer.status == 200
