"""The page of one row: which generation gave each value, and where that was had from."""

import msgspec

from kfm.pages import addresses
from kfm.pages.focus import answered
from kfm.pages.html import Html, el
from kfm.pages.layout import Crumb, Frame, Page, document
from kfm.pages.parts import card, empty, head, section, state, table, td, th
from kfm.pages.words import moment, plural
from kfm.reader.ask import Said
from kfm.story.blame import Blame, Cell

__all__ = ["RowPage", "render"]


class RowPage(Page, frozen=True, kw_only=True):
    """Where one row comes from."""

    blame: Blame
    dataset_id: str
    dataset_title: str
    generation: int
    given_by: int | None  # the generation that its newest value came with
    came: Said | None  # where that generation was had from


def render(page: RowPage, frame: Frame) -> str:
    blame = page.blame
    named = ", ".join(f"{name} {value}" for name, value in blame.key.items())
    main = [_cells(page)] if blame.there else [_gone(page)]
    if page.came is not None:
        main.append(answered(page.came, 0))
    return document(
        page,
        frame,
        head(
            "Where this row comes from",
            f"{page.dataset_title}, {named}. Found by looking back through every version"
            f" up to generation {page.generation}.",
            [
                state("new", "It is there", sign="pass")
                if blame.there
                else state("noop", "It is not there")
            ],
        ),
        el(
            "div",
            el("div", main, class_="stack focus"),
            el("aside", _further(page), aria_label="More about this row"),
            class_="two read",
        ),
        here="/datasets",
        crumbs=(
            Crumb("Datasets", "/datasets"),
            Crumb(page.dataset_id, addresses.dataset(page.dataset_id)),
            Crumb(
                f"generation {page.generation}",
                addresses.version(page.dataset_id, page.generation),
            ),
            Crumb("row"),
        ),
    )


def _cells(page: RowPage) -> Html:
    heads = (th("Column"), th("Value"), th("Official since"), th("Given by"))
    cells = page.blame.cells
    given = len({cell.given_by for cell in cells})
    return section(
        "cells-h",
        "Each value, and the version that gave it",
        table("cells-h", heads, (_cell(page, one) for one in cells)),
        aside=plural(given, "version"),
    )


def _cell(page: RowPage, cell: Cell) -> Html:
    def generation(number: int) -> Html:
        return el("a", f"generation {number}", href=addresses.version(page.dataset_id, number))

    since = "at least since " if not cell.certain else ""
    return el(
        "tr",
        el("th", cell.column, scope="row"),
        td(_told(cell.value), head="Value"),
        td(
            el("span", since, generation(cell.generation), ", ", moment(cell.at)),
            head="Official since",
        ),
        td(
            generation(cell.given_by) if cell.certain else "one that is not shown",
            head="Given by",
        ),
    )


def _told(value: object) -> str:
    if not isinstance(value, str):
        value = "" if value is None else msgspec.json.encode(value).decode()
    return value if len(value) <= 300 else value[:299] + "…"


def _gone(page: RowPage) -> Html:
    blame = page.blame
    if blame.last_seen is None:
        return empty("No version that may be shown has a row with this key.")
    at = addresses.version(page.dataset_id, blame.last_seen)
    last = el("a", f"generation {blame.last_seen}", href=at)
    return el("p", "It was there until ", last, f"; generation {blame.gone_by} has it no more.")


def _further(page: RowPage) -> list[Html]:
    which = page.given_by or page.generation
    links = (
        ("How that version was made", addresses.story(page.dataset_id, which)),
        ("What came from what", addresses.lineage(page.dataset_id)),
        ("Every file that proves it", addresses.version(page.dataset_id, which)),
    )
    told = el("ul", (el("li", el("a", text, href=to)) for text, to in links), class_="plain")
    more = "The command below also looks for the line of the captured file it was read from."
    hint = el("p", el("small", more)) if page.blame.there else None
    return [card("Further back", told, hint)]
