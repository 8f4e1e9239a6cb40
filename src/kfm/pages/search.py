"""The page of a search: datasets by their names, and passages with citations that open."""

import msgspec

from kfm.pages import addresses
from kfm.pages.html import Html, Inside, el
from kfm.pages.layout import Frame, Page, document
from kfm.pages.parts import digest, empty, head, section
from kfm.pages.words import plural
from kfm.upkeep.search_answer import Found, Hit

__all__ = ["Named", "SearchPage", "render"]


class Named(msgspec.Struct, frozen=True, kw_only=True):
    """A dataset whose name or description holds the words."""

    dataset_id: str
    title: str
    description: str


class SearchPage(Page, frozen=True, kw_only=True):
    """What was found."""

    q: str
    datasets: tuple[Named, ...]
    found: Found | None  # passages; None: nothing was asked


def render(page: SearchPage, frame: Frame) -> str:
    form = el(
        "form",
        el(
            "div",
            el("label", "Words", for_="words"),
            el("input", class_="field", id="words", name="q", type="search", value=page.q),
        ),
        el("button", "Search", class_="btn primary", type="submit"),
        class_="filters",
        action="/search",
        aria_label="Search",
    )
    return document(
        page,
        frame,
        head("Search", _lede(page)),
        el("div", form, _datasets(page), _passages(page), class_="stack"),
        here="/search",
    )


def _lede(page: SearchPage) -> str:
    if not page.q:
        return "Datasets by name, and passages of documents by words and by meaning."
    hits = len(page.found.hits) if page.found is not None else 0
    return f"{plural(len(page.datasets), 'dataset')} and {plural(hits, 'passage')} for “{page.q}”."


def _datasets(page: SearchPage) -> Html | None:
    if not page.datasets:
        return None
    items = (
        el(
            "li",
            el("h3", el("a", d.title, href=addresses.dataset(d.dataset_id))),
            el("p", d.description or d.dataset_id),
        )
        for d in page.datasets
    )
    return section("ds-h", "Datasets", el("ul", items, class_="todo card", data_list=True))


def _passages(page: SearchPage) -> Html | None:
    if page.found is None:
        return None
    if not page.found.hits:
        return empty(
            page.found.note or "No passage holds these words, in what may be read.",
            f"kfm search {page.q}",
        )
    items = (_hit(hit) for hit in page.found.hits)
    return section("hits-h", "Passages", el("ul", items, class_="todo card", data_list=True))


def _hit(hit: Hit) -> Html:
    cited = hit.citation
    where = addresses.version(cited.dataset_id, cited.version_id)
    place: Inside = f", paragraph {cited.paragraph}" if cited.paragraph else f", row {cited.row}"
    return el(
        "li",
        el("h3", el("a", cited.title or cited.dataset_id, place, href=where)),
        el("p", hit.text if len(hit.text) <= 600 else hit.text[:599] + "…"),
        el(
            "p",
            "Cite ",
            el("code", cited.address, class_="break"),
            " ",
            ("receipt ", digest(cited.receipt, "path of the receipt")) if cited.receipt else None,
            class_="quiet",
        ),
    )
