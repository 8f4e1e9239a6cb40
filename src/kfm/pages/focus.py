"""The page of questions: each answered from evidence, each sentence with the files that show it,
which open.
"""

from urllib.parse import quote, urlsplit

from kfm.pages import addresses
from kfm.pages.html import Html, Inside, el
from kfm.pages.layout import Crumb, Frame, Page, document
from kfm.pages.parts import digest, empty, head, state
from kfm.pages.words import plural
from kfm.reader.ask import Citation, Focus, Said

__all__ = ["FocusPage", "answered", "render"]


class FocusPage(Page, frozen=True, kw_only=True):
    """What is asked about one version, and answered."""

    focus: Focus


def render(page: FocusPage, frame: Frame) -> str:
    focus = page.focus
    here = addresses.ask(focus.dataset_id, focus.generation)
    shown = [answered(one, n) for n, one in enumerate(focus.answers)]
    return document(
        page,
        frame,
        head(
            f"Ask about {focus.title}",
            f"Generation {focus.generation}. Answered from the records of what was done and from"
            " nothing else: each number is a file that shows it, and what may be handed out opens.",
            [state("new", "Digests compared", sign="pass"), _many(focus)],
        ),
        el(
            "div",
            el("div", shown, class_="stack focus"),
            el("aside", _questions(focus, here, frame.copy), aria_label="Questions"),
            class_="two read",
        ),
        here="/datasets",
        crumbs=(
            Crumb("Datasets", "/datasets"),
            Crumb(focus.dataset_id, addresses.dataset(focus.dataset_id)),
            Crumb(
                f"generation {focus.generation}",
                addresses.version(focus.dataset_id, focus.generation),
            ),
            Crumb("questions"),
        ),
    )


def _many(focus: Focus) -> str:
    return plural(len({c.digest for one in focus.answers for c in one.evidence}), "file") + " cited"


def _questions(focus: Focus, here: str, copy: bool) -> Html:
    """What can be asked; where a server answers, in words of one's own."""
    form = el(
        "form",
        el("label", "In your words", for_="ask-q"),
        el(
            "input",
            class_="field",
            id="ask-q",
            name="q",
            type="search",
            value=focus.asked,
            maxlength="500",
            placeholder="may I use it",
        ),
        el("button", "Ask", class_="btn", type="submit"),
        action=here,
        class_="ask",
    )
    told = [
        el(
            "li",
            one.question
            if copy or one.needs_row
            else el("a", one.question, href=f"{here}?q={quote(one.question)}"),
        )
        for one in focus.questions
    ]
    hint = el(
        "p",
        el(
            "small",
            "A row is named by its key, as in ",
            el("code", next(one.example for one in focus.questions if one.needs_row)),
            "; no guess is made.",
        ),
    )
    everything = el("p", el("a", "All answers", href=here)) if focus.asked else None
    return el(
        "section",
        el("h2", "Questions"),
        None if copy else form,
        el("ul", told, class_="plain"),
        None if copy else hint,
        everything,
        class_="card",
    )


def answered(one: Said, number: int) -> Html:
    """A question with its answer, and the files that show each sentence."""
    name = f"q{number}"
    return el(
        "section",
        el("h2", one.question, id=name),
        None if one.known else el("p", "Evidence does not say all of it.", class_="hint"),
        el("p", ((_sentence(s.text, s.evidence, name), " ") for s in one.answer))
        if one.answer
        else empty("Nothing that was written down answers this."),
        el("ol", (_cited(c, name) for c in one.evidence), class_="evidence"),
        class_="card",
        aria_labelledby=name,
    )


def _sentence(text: str, numbers: tuple[int, ...], name: str) -> list[Inside]:
    refs = [
        el("a", f"[{n}]", class_="ref", href=f"#{name}-e{n}", aria_label=f"Evidence {n}")
        for n in numbers
    ]
    return [text, Html("&#8288;"), refs]


def _cited(one: Citation, name: str) -> Html:
    return el(
        "li",
        el("b", str(one.n)),
        el(
            "span",
            el("a", one.what, href=urlsplit(one.address).path) if one.address else one.what,
            el("br"),
            el("span", one.shows, class_="quiet") if one.shows else None,
            el("br") if one.shows else None,
            el("code", one.path),
            " ",
            digest(one.digest, f"digest of {one.what}"),
        ),
        id=f"{name}-e{one.n}",
    )
