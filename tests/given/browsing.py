"""A person at a browser: one Chromium, the console of a workspace, and what both said meanwhile."""

import contextlib
import os
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, BrowserContext, Page, sync_playwright

from kfm.reader.serve import reading
from kfm.webhook.serve import Address
from kfm.workspace.folder import open_workspace
from tests.brought import AXE, browser, npm_package
from tests.given.verbs import had

__all__ = ["Looker", "chromium", "looker", "served"]

_FLAGS = [
    "--no-sandbox",
    "--disable-dev-shm-usage",
    "--use-angle=swiftshader",
    "--enable-unsafe-swiftshader",
    "--disable-background-networking",
    "--disable-component-update",
    "--no-first-run",
]


@contextlib.contextmanager
def chromium() -> Iterator[Browser]:
    """A browser without a window."""
    found = had(browser)
    with sync_playwright() as play:
        started = play.chromium.launch(
            executable_path=str(found.program),
            env={**os.environ, **found.environment},
            args=_FLAGS,
        )
        try:
            yield started
        finally:
            started.close()


@contextlib.contextmanager
def served(ws: Path, *, console: bool) -> Iterator[str]:
    """The address of a reader on loopback."""
    with reading(open_workspace(ws), Address("127.0.0.1", 0), console=console) as found:
        thread = threading.Thread(target=found.serve, daemon=True)
        thread.start()
        try:
            yield found.address.url
        finally:
            found.stop()
            thread.join(30)


@dataclass
class Looker:
    """A page, and everything it complained of or asked for outside."""

    page: Page
    url: str
    said: list[str] = field(default_factory=list)
    outside: list[str] = field(default_factory=list)

    def go(self, path: str) -> Page:
        self.page.goto(self.url + path)
        return self.page

    def settled(self) -> Page:
        """The page once its own scripts have run and what they changed is drawn. What it still asks
        for by itself, a stream of events for one, is not waited for: some of it has no end.
        """
        self.page.wait_for_load_state("load")
        self.page.wait_for_function(_DRAWN)  # also of the page that this one leads to by itself
        return self.page

    def faults(self, rules: tuple[str, ...] = ()) -> list[str]:
        """What axe-core finds wrong with the page as it stands now."""
        script = had(lambda: npm_package(AXE)) / "axe.min.js"
        if not self.page.evaluate("() => 'axe' in window"):
            self.page.evaluate(script.read_text() + ";0")
        only: Any = {"type": "rule", "values": list(rules)} if rules else _TAGS
        found = self.page.evaluate(_AXE, only)
        return [
            f"{v['id']}: {node['html'][:200]} {node['failureSummary'][:200]}"
            for v in found["violations"]
            for node in v["nodes"]
        ]


_DRAWN = """() => new Promise((done) => {
  requestAnimationFrame(() => requestAnimationFrame(() => done(document.readyState === "complete")))
})"""
# only what is wrong is told: working out what to say of all else takes longer than looking
_AXE = """(only) => axe.run(document, {
  runOnly: only, resultTypes: ["violations"], selectors: false, preload: false, iframes: false,
})"""
_TAGS = {
    "type": "tag",
    "values": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"],
}


@contextlib.contextmanager
def looker(started: Browser, url: str, **how: Any) -> Iterator[Looker]:
    """A fresh page. Scripts of tests are put in beside the page's own policy, by evaluation."""
    context: BrowserContext = started.new_context(
        **{"viewport": {"width": 1280, "height": 900}, **how}
    )
    page = context.new_page()
    found = Looker(page, url)
    page.on("console", lambda m: found.said.append(f"{m.type}: {m.text}"))
    page.on("pageerror", lambda e: found.said.append(f"error: {e}"))
    page.on("request", lambda r: _inside(r.url, url) or found.outside.append(r.url))
    try:
        yield found
    finally:
        context.close()


def _inside(asked: str, url: str) -> bool:
    return asked.startswith((url + "/", "data:", "blob:"))
