"""The frame of every page: the bar on top, the page itself, and its foot with the permanent
address, the JSON twin and the command that prints the same.
"""

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from kfm.pages.html import Html, Inside, el, join
from kfm.pages.parts import copy

__all__ = ["Crumb", "Frame", "Page", "Shared", "document"]

_ICON = (
    "data:image/svg+xml,%3Csvg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 3 3'%3E%3Crect"
    " width='3' height='3' fill='%23857f70'/%3E%3Crect x='1' y='1' width='1' height='1'"
    " fill='%23e3a81c'/%3E%3C/svg%3E"
)


class Page(msgspec.Struct, frozen=True, kw_only=True):
    """What every page has: its permanent address, its title, the command that prints the same."""

    address: str
    title: str
    command: str


class Crumb(msgspec.Struct, frozen=True):
    """A step of the way here; without an address it is here."""

    text: str
    href: str | None = None


class Shared(NamedTuple):
    """What others show of a page where somebody shares its address."""

    title: str
    words: str
    card: str  # a picture, by its whole address


class Frame(msgspec.Struct, frozen=True, kw_only=True):
    """Who looks, and at what of the house."""

    console: bool = False  # an operator's view: runs, proposals, queue and policy are linked
    who: str = "Sign in"
    role: str = ""  # what whoever looks may do
    csrf: str = ""  # by which a form of this page is known
    done: str = ""  # what was done a moment ago, in a sentence
    theme: str | None = None  # light or dark; None: the system decides
    waiting: int = 0  # proposals that wait for a person
    set_aside: int = 0  # what lies in quarantine undecided
    copy: bool = False  # a page of a static copy: no server answers it


def document(
    page: Page,
    frame: Frame,
    *inside: Inside,
    here: str = "",
    crumbs: Sequence[Crumb] = (),
    scripts: Sequence[str] = (),
    end: Inside = None,
    feed: str = "",
    shared: Shared | None = None,
) -> str:
    """A whole page. `here` is the link of the bar that leads to where one is, `feed` tells what
    becomes of what it shows.
    """
    body = el(
        "body",
        el("a", "Skip to content", class_="skip", href="#main"),
        _SYMBOLS,
        _top(frame, here),
        el(
            "main",
            _crumbs(crumbs),
            _IN_FOLDER if frame.copy else None,
            _done(frame),
            *inside,
            class_="wrap",
            id="main",
        ),
        _foot(page, end),
        el("div", class_="vh", id="live", role="status"),
        _KEYS,
    )
    theme = frame.theme if frame.theme in ("light", "dark") else None
    whole = el(
        "html",
        _head(page, _scripts(scripts, frame.copy), feed, shared),
        body,
        lang="en",
        data_theme=theme,
    )
    return f"<!DOCTYPE html>\n{whole}\n"


def _scripts(names: Sequence[str], copy: bool) -> list[str]:
    """What is loaded; of a copy, which may lie in a folder, no module."""
    if copy:
        return [name for name in names if not name.endswith(".mjs")] + ["site.js"]
    return ["kfm.mjs", *names]


def _head(page: Page, scripts: Sequence[str], feed: str, shared: Shared | None) -> Html:
    return el(
        "head",
        el("meta", charset="utf-8"),
        el("meta", name="viewport", content="width=device-width, initial-scale=1"),
        el("title", f"{page.title} · kfm"),
        el("link", rel="stylesheet", href="/static/kfm.css"),
        el("link", rel="alternate", type="application/json", href=twin_of(page.address)),
        _feed_link("/feed", "New versions of every dataset"),
        _feed_link(feed, f"New versions: {page.title}") if feed else None,
        _told_of(shared) if shared else None,
        Html(f'<link rel="icon" href="{_ICON}">'),
        (_script(name) for name in scripts),
    )


def _told_of(shared: Shared) -> Html:
    said = {
        "og:type": "website",
        "og:title": shared.title,
        "og:description": shared.words[:300],
        "og:image": shared.card,
        "og:image:alt": f"{shared.title}: rows, licence, version, and where its places lie",
    }
    return join(*(el("meta", property=name, content=text) for name, text in said.items()))


def _feed_link(href: str, title: str) -> Html:
    return el("link", rel="alternate", type="application/atom+xml", title=title, href=href)


def _script(name: str) -> Html:
    """A module; a library that is none is loaded before it."""
    return (
        el("script", src=f"/static/{name}", type="module")
        if name.endswith(".mjs")
        else el("script", src=f"/static/{name}", defer=True)
    )


def twin_of(address: str) -> str:
    """Where the same is told as JSON."""
    path, _, query = address.partition("?")
    return f"{'/home' if path == '/' else path}.json{'?' + query if query else ''}"


# ---- the bar -------------------------------------------------------------------------------------
def _links(frame: Frame) -> list[tuple[str, str, int]]:
    if not frame.console:
        search = [] if frame.copy else [("Search", "/search", 0)]
        return [("Datasets", "/datasets", 0), *search, ("About", "/about", 0)]
    return [
        ("Home", "/", 0),
        ("Datasets", "/datasets", 0),
        ("Proposals", "/proposals", frame.waiting),
        ("Runs", "/runs", 0),
        ("Backfills", "/backfills", 0),
        ("Quarantine", "/quarantine", frame.set_aside),
        ("Queue", "/queue", 0),
        ("Schedules", "/schedules", 0),
        ("Policy", "/policy", 0),
        ("SLO", "/slo", 0),
        ("Search", "/search", 0),
    ]


def _top(frame: Frame, here: str) -> Html:
    links = (
        el(
            "a",
            text,
            el("span", many, class_="count") if many else None,
            href=href,
            aria_current="page" if href == here else None,
            class_="narrow" if frame.console and href == "/search" else None,
        )
        for text, href, many in _links(frame)
    )
    name = "console" if frame.console else "Kansas Frontier Matrix"
    search = el(
        "form",
        el(
            "input",
            class_="field",
            id="q",
            name="q",
            type="search",
            placeholder="Search   /",
            aria_label="Search datasets and passages",
        ),
        action="/search",
        role="search",
    )
    return el(
        "header",
        el(
            "div",
            el(
                "a",
                _MARK,
                "kfm ",
                el("small", name),
                el("span", " home", class_="vh"),
                class_="brand",
                href="/",
            ),
            el("nav", links, class_="nav", aria_label="Main"),
            el(
                "div",
                None if frame.copy else search,
                el("span", frame.who, class_="who")
                if frame.copy
                else el("a", frame.who, class_="who", href="/login"),
                _TOOLS,
                class_="tools",
            ),
            class_="wrap",
        ),
        class_="top",
    )


def _done(frame: Frame) -> Html | None:
    """What was done a moment ago."""
    if not frame.done:
        return None
    return el("p", el("b", "Done. "), frame.done, class_="done", role="status")


def _crumbs(crumbs: Sequence[Crumb]) -> Html | None:
    if not crumbs:
        return None
    items = (el("li", el("a", c.text, href=c.href) if c.href else c.text) for c in crumbs)
    return el("nav", el("ol", items, class_="crumbs"), aria_label="Breadcrumb")


def _foot(page: Page, end: Inside) -> Html:
    return el(
        "footer",
        el(
            "div",
            el("span", "Permanent address ", el("code", page.address)),
            el("a", "This page as JSON", href=twin_of(page.address)),
            el(
                "div",
                el("code", page.command),
                copy(page.command, f"terminal command: {page.command}"),
                class_="cmd",
            )
            if page.command
            else None,
            el("span", end, class_="end quiet") if end else None,
            class_="wrap",
        ),
        class_="twin",
    )


_IN_FOLDER = el(
    "p",
    "Opened from a folder, a browser lets a page read no file beside it: no map is painted here, rows"
    " are not sorted and nothing is verified. Any host shows all of it, such as ",
    el("code", "python3 -m http.server"),
    " in the folder of this copy.",
    class_="card hint",
    id="in-folder",
    hidden=True,
)


# ---- what is the same everywhere -----------------------------------------------------------------
def _symbol(name: str, wide: int, drawn: str) -> Html:
    return Html(f'<symbol id="{name}" viewBox="0 0 {wide} {wide}">{drawn}</symbol>')


_SYMBOLS = el(
    "svg",
    el(
        "defs",
        _symbol("s-new", 18, '<path class="glyph" d="M9 4.5v9M4.5 9h9"/>'),
        _symbol("s-noop", 18, '<circle cx="9" cy="9" r="2" fill="currentColor"/>'),
        _symbol(
            "s-late",
            18,
            '<path class="glyph" d="M9 4.5V9l3.2 2.2"/><circle class="glyph" cx="9" cy="9" r="6"'
            ' stroke-width="1.4"/>',
        ),
        _symbol("s-failed", 18, '<path class="glyph" d="m5 5 8 8m0-8-8 8"/>'),
        _symbol(
            "s-denied",
            18,
            '<circle class="glyph" cx="9" cy="9" r="5.6" stroke-width="1.8"/>'
            '<path class="glyph" d="M6 9h6" stroke-width="2.4"/>',
        ),
        _symbol("s-wait", 18, '<path class="glyph" d="M6.6 5v8M11.4 5v8"/>'),
        _symbol("s-run", 18, '<path d="M6 4.2v9.6L13.6 9z" fill="currentColor"/>'),
        _symbol("s-none", 18, ""),
        _symbol("s-pass", 18, '<path class="glyph" d="m4.5 9.5 3 3 6-7"/>'),
        _symbol(
            "i-copy",
            16,
            '<path d="M5.5 5.5V3a1 1 0 0 1 1-1H13a1 1 0 0 1 1 1v6.5a1 1 0 0 1-1 1h-2.5M3'
            ' 5.5h6.5a1 1 0 0 1 1 1V13a1 1 0 0 1-1 1H3a1 1 0 0 1-1-1V6.5a1 1 0 0 1 1-1z"'
            ' fill="none" stroke="currentColor" stroke-width="1.3"/>',
        ),
        _symbol(
            "i-check",
            16,
            '<path d="m3 8.5 3.2 3.2L13 4.5" fill="none" stroke="currentColor" stroke-width="2"/>',
        ),
        _symbol(
            "i-theme",
            16,
            '<circle cx="8" cy="8" r="6" fill="none" stroke="currentColor" stroke-width="1.4"/>'
            '<path d="M8 2a6 6 0 0 1 0 12z" fill="currentColor"/>',
        ),
    ),
    class_="vh",
    aria_hidden="true",
    focusable="false",
)

_MARK = el(
    "svg",
    (
        el(
            "rect",
            x=x,
            y=y,
            width="6",
            height="6",
            rx="1",
            class_="flower" if (x, y) == (16, 8) else None,
        )
        for y in (0, 8, 16)
        for x in (0, 8, 16)
    ),
    viewBox="0 0 22 22",
    aria_hidden="true",
)

_TOOLS = join(
    el(
        "button",
        el("kbd", "?"),
        class_="btn quiet",
        type="button",
        data_open="keys",
        aria_label="Keyboard shortcuts",
    ),
    el(
        "button",
        el("svg", el("use", href="#i-theme"), aria_hidden="true"),
        class_="btn quiet",
        type="button",
        id="theme",
        aria_label="Switch between light and dark",
    ),
)

_KEYS = el(
    "dialog",
    el("h2", "Keyboard", id="keys-h"),
    el(
        "dl",
        (el("dt", el("kbd", "/")), el("dd", "Search")),
        (el("dt", el("kbd", "j"), " ", el("kbd", "k")), el("dd", "Next, previous in a list")),
        (
            el("dt", (join(el("kbd", arrow), " ") for arrow in "←↑↓→")),
            el("dd", "Move inside a grid"),
        ),
        (el("dt", el("kbd", "?")), el("dd", "This help")),
        class_="kv",
    ),
    el(
        "p",
        el(
            "label",
            el("input", type="checkbox", id="keys-on", checked=True),
            " Single-key shortcuts",
            class_="check",
        ),
    ),
    el("form", el("button", "Close", class_="btn", type="submit"), method="dialog"),
    id="keys",
    aria_labelledby="keys-h",
)
