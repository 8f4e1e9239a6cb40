"""The page of all datasets: search, and filters by label, licence and freshness."""

import msgspec

from kfm.pages.html import Html, Inside, el
from kfm.pages.layout import Frame, Page, document
from kfm.pages.parts import State, chip, empty, head, label_chip, state, table, td, th
from kfm.pages.words import count, moment, plural

__all__ = ["Choice", "DatasetRow", "DatasetsPage", "render"]


class DatasetRow(msgspec.Struct, frozen=True, kw_only=True):
    """A dataset in the list."""

    dataset_id: str
    title: str
    description: str
    label: str | None
    licence: str | None
    state: State
    word: str  # of its state
    note: str  # what is said beside it
    rows: int | None
    generation: int | None
    official_at: str | None
    spatial: bool
    href: str


class Choice(msgspec.Struct, frozen=True, kw_only=True):
    """What was asked for; empty: all."""

    q: str = ""
    label: str = ""
    licence: str = ""
    freshness: str = ""  # fresh, late, or other: waits, is denied, failed


class DatasetsPage(Page, frozen=True, kw_only=True):
    """All datasets this viewer may know of that were asked for."""

    datasets: tuple[DatasetRow, ...]
    choice: Choice
    labels: tuple[str, ...]  # that there are to choose from
    licences: tuple[str, ...]
    among: int  # how many there are without the choice


def render(page: DatasetsPage, frame: Frame) -> str:
    shown = len(page.datasets)
    return document(
        page,
        frame,
        head("Datasets", _lede(page)),
        el(
            "div",
            _form(page),
            _table(page) if shown else _nothing(page),
            class_="stack",
        ),
        here="/datasets",
    )


def _lede(page: DatasetsPage) -> str:
    late = sum(row.state == "late" for row in page.datasets)
    other = sum(row.state in ("denied", "failed", "wait") for row in page.datasets)
    found = plural(len(page.datasets), "dataset")
    if len(page.datasets) != page.among:
        found = f"{len(page.datasets):,} of {plural(page.among, 'dataset')}"
    told = [f"{late:,} late"] if late else []
    told += [f"{other:,} with something to look at"] if other else []
    return f"{found}. {', '.join(told).capitalize() or 'All are on time'}."


def _nothing(page: DatasetsPage) -> Html:
    if page.among:
        return empty("Nothing fits that choice.", "kfm status")
    return empty(
        "Nothing is published here yet. A dataset appears once it has a licence, labels and a"
        " version that passed every gate.",
        "kfm dataset new --help",
    )


def _form(page: DatasetsPage) -> Html:
    c = page.choice
    fresh = (("fresh", "On time"), ("late", "Late"), ("other", "Something to look at"))
    return el(
        "form",
        el(
            "div",
            el("label", "Words", for_="f-q"),
            el("input", class_="field", id="f-q", name="q", type="search", value=c.q),
        ),
        _select("label", "Label", [(x, x) for x in page.labels], c.label),
        _select("licence", "Licence", [(x, x) for x in page.licences], c.licence),
        _select("freshness", "Freshness", fresh, c.freshness),
        el("button", "Show", class_="btn primary", type="submit"),
        class_="filters",
        action="/datasets",
        aria_label="Choose datasets",
    )


def _select(name: str, label: str, options: object, chosen: str) -> Html:
    pairs: list[tuple[str, str]] = [("", "Any"), *options]  # type: ignore[misc]
    return el(
        "div",
        el("label", label, for_=f"f-{name}"),
        el(
            "select",
            (el("option", t, value=v, selected=v == chosen) for v, t in pairs),
            class_="field",
            id=f"f-{name}",
            name=name,
        ),
    )


def _table(page: DatasetsPage) -> Html:
    heads = (
        th("Dataset"),
        th("State"),
        th("Label"),
        th("Licence"),
        th("Rows", num=True),
        th("Official since"),
    )
    return el(
        "section",
        el("h2", "All datasets", id="all", class_="vh"),
        el("div", table("all", heads, map(_row, page.datasets)), data_list=True),
        class_="section",
        aria_labelledby="all",
    )


def _row(row: DatasetRow) -> Html:
    name = el("a", row.title, href=row.href)
    about: Inside = el("p", row.description, class_="quiet clip") if row.description else None
    return el(
        "tr",
        el("th", name, el("br"), el("code", row.dataset_id, class_="quiet"), about, scope="row"),
        td((state(row.state, row.word), el("br"), el("span", row.note, class_="quiet"))),
        td(label_chip(row.label)),
        td(chip(row.licence) if row.licence else el("span", "none stated", class_="quiet")),
        td(count(row.rows), head="Rows", num=True),
        td(moment(row.official_at), head="Official since", class_="nowrap")
        if row.official_at
        else td(""),
    )
