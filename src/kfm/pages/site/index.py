"""The first page of a static copy, and the page that leads from the id of a version to it."""

import msgspec

from kfm.pages.html import Html, el
from kfm.pages.layout import Frame, Page, document
from kfm.pages.parts import chip, head, label_chip, table, td, th
from kfm.pages.site.answers import HERE
from kfm.pages.words import count, plural

__all__ = ["COPY", "IndexPage", "Row", "forward", "render"]

COPY = Frame(copy=True, who="A copy of what is public")


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """A dataset of the copy."""

    dataset_id: str
    title: str
    description: str
    licence: str | None
    label: str | None
    rows: int
    generation: int
    address: str


class IndexPage(Page, frozen=True, kw_only=True):
    """What a copy holds."""

    datasets: tuple[Row, ...]


def render(page: IndexPage) -> str:
    heads = (
        th("Dataset"),
        th("Label"),
        th("Licence"),
        th("Rows", num=True),
        th("Generation", num=True),
    )
    lede = (
        f"{plural(len(page.datasets), 'dataset')}, as anybody could read"
        f" {'it' if len(page.datasets) == 1 else 'them'} when this copy was made. Nothing here asks"
        " a server; every file can be checked against the signature of its version."
    )
    return document(
        page,
        COPY,
        head("Datasets", lede),
        el(
            "section",
            el("h2", "All datasets", id="all", class_="vh"),
            table("all", heads, map(_row, page.datasets)),
            class_="section",
            aria_labelledby="all",
        ),
        here="/datasets",
    )


def _row(row: Row) -> Html:
    name = el("a", row.title, href=row.address.removeprefix(HERE))
    about = el("p", row.description, class_="quiet clip") if row.description else None
    return el(
        "tr",
        el("th", name, el("br"), el("code", row.dataset_id, class_="quiet"), about, scope="row"),
        td(label_chip(row.label)),
        td(chip(row.licence) if row.licence else el("span", "none stated", class_="quiet")),
        td(count(row.rows), head="Rows", num=True),
        td(str(row.generation), head="Generation", num=True),
    )


def forward(folder: str) -> bytes:
    """A page that leads to another at once."""
    to = f"{folder}index.html"
    whole = (
        '<html lang="en"><head><meta charset="utf-8"><title>This version · kfm</title>'
        f'<meta http-equiv="refresh" content="0; url={to}"></head>'
        f'<body><main><h1>This version</h1><p><a href="{to}">Its page</a></p></main></body></html>'
    )
    return f"<!DOCTYPE html>\n{whole}\n".encode()
