"""The page of a proposal as it would be once published."""

import msgspec

from kfm.model import Column, Json
from kfm.pages import addresses
from kfm.pages.html import Html, Inside, el
from kfm.pages.layout import Crumb, Frame, Page, document
from kfm.pages.parts import (
    card,
    command,
    digest,
    head,
    kv,
    label_chip,
    section,
    state,
    table,
    td,
    th,
)
from kfm.pages.words import plural, size

__all__ = ["PreviewFile", "PreviewPage", "render"]


class PreviewFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file of what is proposed."""

    name: str
    digest: str
    bytes: int
    href: str


class PreviewPage(Page, frozen=True, kw_only=True):
    """What a proposal would publish."""

    proposal: int
    dataset_id: str
    dataset_title: str
    label: str | None
    licence: str | None
    version_id: str
    version_digest: str
    base_generation: int | None  # what is official now; None: nothing is
    rows: int
    bbox: tuple[float, float, float, float] | None
    interval: tuple[str, str] | None
    columns: tuple[Column, ...]
    files: tuple[PreviewFile, ...]
    first: tuple[Json, ...]  # rows
    links: dict[str, str]


def render(page: PreviewPage, frame: Frame) -> str:
    lede = (
        f"{plural(page.rows, 'row')} that would be published. Nobody else sees them before the"
        " proposal is approved, and nothing here is in a list, a search or a catalog."
    )
    facts: list[Inside] = [
        state("wait", "Not published"),
        label_chip(page.label),
        el("span", "version ", digest(page.version_id, "version id")),
    ]
    back = el(
        "a", f"Proposal {page.proposal}", class_="btn", href=addresses.proposal(page.proposal)
    )
    return document(
        page,
        frame,
        head(f"{page.dataset_title}, as proposed", lede, facts, actions=back),
        el(
            "div",
            el("div", _rows(page), _columns(page), _files(page), class_="stack"),
            el("aside", _aside(page), class_="stack", aria_label="About this proposal"),
            class_="two",
        ),
        here="/proposals",
        crumbs=(
            Crumb("Proposals", "/proposals"),
            Crumb(str(page.proposal), addresses.proposal(page.proposal)),
            Crumb("As it would be"),
        ),
    )


def _rows(page: PreviewPage) -> Html | None:
    if not page.first:
        return None
    names = list(page.first[0])
    lines = (
        el("tr", (td(el("span", _text(row.get(name)), class_="clip1")) for name in names))
        for row in page.first
    )
    aside = f"{len(page.first):,} of {page.rows:,}"
    shown = table("rows", [th(name) for name in names], lines, style="")
    return section("rows", "Rows", shown, aside=aside)


def _text(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    return msgspec.json.encode(value).decode()


def _columns(page: PreviewPage) -> Html:
    heads = (th("Column"), th("Type"), th("Unit"))
    lines = (
        el("tr", el("th", c.name, scope="row"), td(str(c.type)), td(str(c.unit or "")))
        for c in page.columns
    )
    return section("columns", "Columns", table("columns", heads, lines))


def _files(page: PreviewPage) -> Html:
    heads = (th("File"), th("Size", num=True), th("Digest"))
    lines = (
        el(
            "tr",
            el("th", el("a", f.name, href=f.href), scope="row"),
            td(size(f.bytes), head="Size", num=True),
            td(digest(f.digest)),
        )
        for f in page.files
    )
    return section("files", "Files", table("files", heads, lines))


def _aside(page: PreviewPage) -> list[Inside]:
    box = ", ".join(f"{x:.4g}" for x in page.bbox) if page.bbox else ""
    official: Inside = (
        el(
            "a",
            f"generation {page.base_generation}",
            href=addresses.version(page.dataset_id, page.base_generation),
        )
        if page.base_generation
        else "nothing yet"
    )
    about = kv(
        [
            ("Dataset", el("code", page.dataset_id)),
            ("Official now", official),
            ("Licence", page.licence or "none stated"),
            ("Place", box),
            ("Time", " to ".join(page.interval) if page.interval else ""),
            ("Digest", digest(page.version_digest, "digest of the version")),
        ]
    )
    links = el(
        "div",
        (el("a", name, class_="btn", href=href) for name, href in page.links.items()),
        class_="actions",
    )
    return [
        card("About", about),
        card("As data", links),
        card("Look at it", command(f"kfm show proposal/{page.proposal}")),
    ]
