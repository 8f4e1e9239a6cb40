"""The console in a real browser: signed in over a network, with forms that work without scripts, and
with a key that signs in the browser and never leaves it.
"""

import os
import threading
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from playwright.sync_api import Browser

from kfm.cli import main
from kfm.cli.answer import Call
from kfm.cli.key_sign import signed as signed_word
from kfm.reader.serve import reading
from kfm.webhook.serve import Address
from kfm.workspace.folder import open_workspace
from kfm.workspace.wiring import open_world
from tests.given.browsing import Looker, chromium, looker
from tests.given.console import to_decide, token
from tests.given.ports import free_port
from tests.given.reading import called

AT = "/proposals/2"  # what waits: the first was made official


@pytest.fixture(scope="module")
def started() -> Iterator[Browser]:
    with chromium() as found:
        yield found


@pytest.fixture
def ws(tmp_path: Path) -> Iterator[Path]:
    with to_decide(tmp_path / "ws") as folder:
        called(folder, "run", "wells")
        assert main(["-w", str(folder), "run", "trees"]) == 7, "it waits for somebody"
        yield folder


@pytest.fixture
def url(ws: Path) -> Iterator[str]:
    """The console for others: at this machine's own name nobody is let in without a token."""
    port = free_port()
    known = f"http://127.0.0.1:{port}"
    with reading(open_workspace(ws), Address("127.0.0.1", port), known, console=True) as found:
        thread = threading.Thread(target=found.serve, daemon=True)
        thread.start()
        try:
            yield known
        finally:
            found.stop()
            thread.join(30)


def signs_in(person: Looker, secret: str) -> None:
    page = person.go("/login")
    page.fill("#f-token", secret)
    page.click("main button:has-text('Sign in')")
    page.wait_for_selector(".done")


def aside_of(ws: Path) -> str:
    with open_world(open_workspace(ws)) as world:
        found: str = world.store.read(lambda tx: tx.runs.recent("wells", 1))[0].run_id
        return found


def test_a_steward_decides_without_a_script(ws: Path, url: str, started: Browser) -> None:
    with looker(started, url, java_script_enabled=False) as person:
        assert person.go("/queue").inner_text("h1") == "Nothing is here"
        signs_in(person, token(ws, "steward", "S. Stone"))
        assert "S. Stone" in person.page.inner_text("header")
        page = person.go("/datasets/wells")
        page.click("text=Ask for a run")
        assert "The run is asked for" in page.inner_text(".done")
        page.click("button:has-text('Cancel')")
        assert "cancelled" in page.inner_text(".done")
        page = person.go(f"/quarantine/{aside_of(ws)}")
        page.fill("#fix-column", "depth_m")
        page.fill("#fix-value", "7.5")
        assert not page.is_visible("#fix-column-2")
        page.click("text=More columns of this row")
        page.fill("#fix-column-2", "id")
        page.fill("#fix-value-2", "w-new")
        page.fill("#fix-reason", "read off the plate")
        page.click("text=Correct it")
        assert "fix by S. Stone: depth_m = 7.5, id = w-new; read off the plate" in page.inner_text(
            "#main"
        )
        page.click("text=Ask for a replay")
        assert "quarantine.replay" in page.inner_text("main")
        page = person.go(AT)
        assert not page.is_visible("#sign-key")
        page.fill("#sign-reason", "looked at it")
        page.fill("#sign-name", "S. Stone")
        with page.expect_download() as got:
            page.click("#sign button:has-text('Approve')")
        statement = Path(got.value.path()).read_bytes()
        file = ws.parent / got.value.suggested_filename
        file.write_bytes(statement)
        signed = ws.parent / "signed.json"
        signed.write_bytes(_signed(ws, file))
        page.set_input_files("#bring-file", signed)
        page.click("text=Bring it")
        assert "the promotion is put" in page.inner_text(".done")
        page = person.go("/login")
        page.click("text=Sign out")
        assert person.go("/queue").inner_text("h1") == "Nothing is here"
        assert person.outside == []


def test_what_is_set_aside_is_found_from_home_until_it_is_decided(
    ws: Path, url: str, started: Browser
) -> None:
    badge, listed = ".nav a[href='/quarantine'] .count", ".todo a[href^='/quarantine/']"
    with looker(started, url) as person:
        signs_in(person, token(ws, "steward", "S. Stone"))
        page = person.go("/")
        assert page.inner_text(badge) == "1"
        page.click(listed)
        assert page.inner_text("h1") == "wells: 1 row set aside"
        options = "[...document.querySelectorAll('#fix-columns option')].map((o) => o.value)"
        assert page.evaluate(options) == ["id", "depth_m"]
        page.fill("#fix-column", "depth_m")
        page.fill("#fix-value", "7.5")
        page.fill("#fix-reason", "read off the plate")
        page.click("text=Correct it")
        assert "fix by S. Stone: depth_m = 7.5; read off the plate" in page.inner_text("#main")
        assert person.go("/").inner_text(badge) == "1", "what was decided is not brought in yet"
        page.click(listed)
        called(ws, "quarantine", "accept", aside_of(ws), "--row", "1", "--reason", "it is dry")
        page = person.go("/")
        assert page.query_selector(badge) is None
        assert page.query_selector(listed) is None
        assert (person.said, person.outside) == ([], [])


def test_on_a_phone_every_link_of_the_bar_can_be_reached(
    ws: Path, url: str, started: Browser
) -> None:
    with looker(started, url) as person:
        signs_in(person, token(ws, "steward", "S. Stone"))
        page = person.go("/")
        assert not page.is_visible(".nav a[href='/search']"), "the field is there"
        page.set_viewport_size({"width": 390, "height": 900})
        last = page.locator(".nav a").last
        last.scroll_into_view_if_needed()
        box = last.bounding_box()
        assert box is not None and box["x"] >= 0 and box["x"] + box["width"] <= 390
        last.click()
        assert page.inner_text("h1") == "Search"


def test_a_key_signs_in_the_browser_and_never_leaves_it(
    ws: Path, url: str, started: Browser
) -> None:
    key = ws / "keys" / "people" / "s-stone.key"
    sent: list[str] = []
    with looker(started, url) as person:
        signs_in(person, token(ws, "steward", "S. Stone"))
        person.page.on("request", lambda r: sent.append(f"{r.url} {r.post_data or ''}"))
        page = person.go(AT)
        page.fill("#sign-reason", "looked <b>twice</b>")
        page.set_input_files("#sign-key", files=[_file("no.key", b"no key at all")])
        page.click("#sign button:has-text('Approve')")
        page.wait_for_function(
            "() => document.getElementById('sign-said').textContent.startsWith('That is no key')"
        )
        page.set_input_files("#sign-key", key)
        page.click("#sign button:has-text('Approve')")
        page.wait_for_selector(".done")
        assert "the promotion is put" in page.inner_text(".done")
        assert "looked <b>twice</b>" in page.inner_text("#decide")
        assert (person.said, person.outside) == ([], [])
    secret = "".join(key.read_text().splitlines()[1:-1])
    assert any("envelope" in line for line in sent)
    assert not any(secret[:40] in line or "PRIVATE KEY" in line for line in sent)


def _signed(ws: Path, file: Path) -> bytes:
    """As `kfm keys sign` prints it."""
    found = signed_word(Call(ws), file, Path("S. Stone"))
    return msgspec.json.encode(found.envelope)


def _file(name: str, body: bytes) -> dict[str, object]:
    return {"name": name, "mimeType": "application/octet-stream", "buffer": body}


def test_a_statement_that_is_not_what_the_page_shows_is_not_signed(
    ws: Path, url: str, started: Browser
) -> None:
    """Whoever serves it, or stands between, gives another one."""
    key = ws / "keys" / "people" / "s-stone.key"
    with looker(started, url) as person:
        signs_in(person, token(ws, "steward", "S. Stone"))
        page = person.go(AT)

        def other(route):  # type: ignore[no-untyped-def]
            answer = route.fetch()
            route.fulfill(response=answer, body=answer.text().replace("approve", "reject"))

        page.click("#sign button:has-text('Reject')")
        assert page.inner_text("#sign-said") == "A rejection needs a reason."
        page.route("**/word?*", other)
        page.set_input_files("#sign-key", key)
        page.click("#sign button:has-text('Approve')")
        page.wait_for_function(
            "() => document.getElementById('sign-said').textContent.includes('Nothing was signed')"
        )
        assert "Nobody has signed yet." in person.go(AT).inner_text("#decide")


_TOPS = """() => [...document.querySelectorAll(".head .actions .btn")]
  .map((one) => Math.round(one.getBoundingClientRect().top))"""


def test_forms_shut_nobody_out(ws: Path, url: str, started: Browser) -> None:
    """Every form in two widths and two themes; pictures where KFM_PICTURES names a folder."""
    pictures, found = os.environ.get("KFM_PICTURES"), list[str]()
    paths = {
        "login": "/login",
        "dataset-run": "/datasets/wells",
        "queue-asked": "/queue?done=asked",
        "proposal-decide": AT,
        "quarantine-decide": f"/quarantine/{aside_of(ws)}",
        "decision-run": "/decisions/trees",
    }
    with looker(started, url) as person:
        for name, path in (("login-before", "/login"), *paths.items()):
            if name == "login":
                signs_in(person, token(ws, "steward", "S. Stone"))
                person.go("/datasets/wells").click("text=Ask for a run")
            person.go(path)
            person.settled()
            for wide, theme in ((1280, "light"), (390, "dark")):
                person.page.set_viewport_size({"width": wide, "height": 900})
                person.page.emulate_media(color_scheme=theme)  # type: ignore[arg-type]
                at = f"{path} {wide} {theme}"
                found += [f"{at}: {fault}" for fault in person.faults()]
                if wide == 1280:  # what stands in one row begins at one height
                    tops = person.page.evaluate(_TOPS)
                    found += [f"{at}: {tops}"] if len(set(tops)) > 1 else []
                over = person.page.evaluate("document.documentElement.scrollWidth - innerWidth")
                found += [f"{at}: {over} px too wide"] if over > 0 else []
                if pictures:
                    file = Path(pictures) / f"console-{name}-{wide}.png"
                    person.page.screenshot(path=file, full_page=True)
            person.page.set_viewport_size({"width": 1280, "height": 900})
            person.page.emulate_media(color_scheme="light")
        assert (person.said, person.outside) == ([], [])
    assert not found, "\n".join(found)
