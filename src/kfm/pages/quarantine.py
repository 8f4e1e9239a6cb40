"""The pages of what was set aside: all of it, and the records of one run."""

from kfm.cli.quarantine import Listed as Aside
from kfm.cli.quarantine import OneAside, ShownRow
from kfm.pages import addresses
from kfm.pages.decide import aside_forms
from kfm.pages.html import Html, Inside, el
from kfm.pages.layout import Crumb, Frame, Page, document
from kfm.pages.parts import (
    State,
    command,
    digest,
    empty,
    head,
    section,
    state,
    table,
    td,
    th,
)
from kfm.pages.words import moment, plural

__all__ = ["AsidePage", "QuarantinePage", "render_aside", "render_quarantine"]


class QuarantinePage(Page, frozen=True, kw_only=True):
    """What was set aside and is to be decided."""

    items: tuple[Aside, ...]
    pages: dict[str, str]  # of each dataset that is named: where it is told of
    hidden: int


class AsidePage(Page, frozen=True, kw_only=True):
    """What one run set aside."""

    aside: OneAside


_ASIDE: dict[str, State] = {
    "open": "failed",
    "fixed": "wait",
    "accepted": "wait",
    "replayed": "new",
}


def render_quarantine(page: QuarantinePage, frame: Frame) -> str:
    heads = (th("Run"), th("Dataset"), th("State"), th("What"), th("Since"), th("Next"))
    closed = f" {page.hidden:,} are closed or overtaken." if page.hidden else ""
    lede = f"{plural(len(page.items), 'capture or run', 'captures or runs')} to decide.{closed}"
    body: Inside = empty("Nothing is set aside.", "kfm quarantine list --all")
    if page.items:
        rows = (_aside_row(item, page.pages[item.dataset_id]) for item in page.items)
        body = section("all", "To decide", table("all", heads, rows))
    return document(page, frame, head("Quarantine", lede), body, here="/quarantine")


def _rules(rules: dict[str, int]) -> str:
    return ", ".join(f"{name} {many:,}" for name, many in rules.items())


def _aside_row(item: Aside, dataset: str) -> Html:
    what = item.code if item.kind == "capture" else plural(item.count or 0, "row")
    href = f"/quarantine/{item.run_id}"
    return el(
        "tr",
        el("th", digest(item.run_id, "run id", href=href), scope="row"),
        td(el("a", item.dataset_id, href=dataset)),
        td(state(_ASIDE.get(item.state, "none"), item.state.capitalize())),
        td((what, el("br"), el("span", _rules(item.rules) or item.happened, class_="quiet"))),
        td(moment(item.since), class_="nowrap"),
        td(command(item.next)),
    )


def render_aside(page: AsidePage, frame: Frame) -> str:
    one = page.aside
    lede = one.happened or "What is set aside is in no version until it is decided."
    rows = plural(one.count, "row") if one.count is not None else "rows"
    title = f"{one.dataset_id}: {'a capture' if one.kind == 'capture' else rows} set aside"
    facts: list[Inside] = [
        state(_ASIDE.get(one.state, "none"), one.state.capitalize()),
        one.much,
        el("span", "since ", moment(one.since)),
        el("span", "run ", digest(one.run_id, "run id", href=addresses.run(one.run_id))),
    ]
    if one.rows is None:
        body: Inside = empty(
            "The records are private: only rules and counts are shown.",
            f"kfm quarantine show {one.run_id} --unseal",
        )
    elif not one.rows:
        body = empty("No single record is shown: the whole capture was refused.")
    else:
        heads = (th("Row", num=True), th("Where"), th("Rule"), th("Record"), th("Decision"))
        body = section("rows", "Records", table("rows", heads, map(_aside_record, one.rows)))
    advice = (
        command(line) if line.startswith("kfm ") else el("p", line, class_="hint")
        for line in one.next
    )
    return document(
        page,
        frame,
        head(title, lede, facts),
        el(
            "div",
            body,
            aside_forms(frame, one),
            section("next", "What can be done", advice),
            class_="stack",
        ),
        here="/quarantine",
        crumbs=(Crumb("Quarantine", "/quarantine"), Crumb(one.run_id[:8])),
    )


def _aside_record(row: ShownRow) -> Html:
    d = row.decision
    lines = ((" ", row.before), (">", row.record), (" ", row.after))
    return el(
        "tr",
        td(str(row.n), num=True),
        td(f"{row.source_id}, line {row.line}"),
        td((el("b", row.rule), el("br"), row.reason)),
        td(el("pre", "\n".join(f"{m} {t}" for m, t in lines if t is not None), class_="record")),
        td(d.told if d else el("span", "open", class_="quiet")),
    )
