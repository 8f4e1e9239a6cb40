"""The page of a dataset that is not published as it should be: why, who can change that, and the
next command.
"""

import msgspec

from kfm.model import Verdict
from kfm.pages import addresses
from kfm.pages.decide import run_form
from kfm.pages.html import Html, Inside, el
from kfm.pages.layout import Crumb, Frame, Page, document
from kfm.pages.operate import Rule
from kfm.pages.parts import (
    Message,
    State,
    card,
    command,
    digest,
    head,
    kv,
    label_chip,
    message,
    section,
    state,
    table,
    td,
    th,
    with_commands,
)
from kfm.pages.words import moment, verdict_word

__all__ = ["DecisionPage", "render"]


class Remedy(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that would change it."""

    said: str
    commands: tuple[str, ...]


class DecisionPage(Page, frozen=True, kw_only=True):
    """Why nothing newer of a dataset is published."""

    dataset_id: str
    dataset_title: str
    state: State
    word: str
    label: str | None
    licence: str | None
    happened: str
    why: tuple[str, ...]
    remedies: tuple[Remedy, ...]
    facts: dict[str, str]
    verdicts: tuple[Verdict, ...]
    rules: tuple[Rule, ...]  # that said no
    run_id: str
    official: int | None  # the generation that stays official


def render(page: DecisionPage, frame: Frame) -> str:
    kept = (
        f"Generation {page.official} stays official."
        if page.official
        else "Nothing of it was published so far."
    )
    return document(
        page,
        frame,
        head(
            page.title,
            f"{kept} What was captured is kept, and nothing is lost.",
            [state(page.state, page.word), label_chip(page.label)],
        ),
        el(
            "div",
            el(
                "div",
                _said(page),
                _next(page, frame),
                _gates(page),
                _rules(page),
                class_="stack",
            ),
            el("aside", _aside(page), aria_label="About this decision"),
            class_="two",
        ),
        here="/datasets",
        crumbs=(Crumb("Datasets", "/datasets"), Crumb(page.dataset_id), Crumb("decision")),
    )


def _said(page: DecisionPage) -> Html:
    if not page.why:
        return message(page.state, page.word, Message(happened=page.happened))
    told = el("dl", el("div", el("dt", "What happened"), el("dd", with_commands(page.happened))))
    because = el("dl", el("div", el("dt", "Why"), (el("dd", w) for w in page.why)))
    return el(
        "section",
        state(page.state, page.word),
        told,
        because,
        class_="say",
        data_state=page.state,
        aria_label="The decision",
    )


def _next(page: DecisionPage, frame: Frame) -> Html | None:
    again = run_form(frame, page.dataset_id)
    if not page.remedies and again is None:
        return None
    items = (
        el(
            "li",
            el(
                "div",
                with_commands(r.said[:1].upper() + r.said[1:]) if r.said else None,
                map(command, r.commands),
            ),
        )
        for r in page.remedies
    )
    steps = el("ol", items, class_="steps") if page.remedies else None
    return section("next", "What to do next", steps, again)


def _gates(page: DecisionPage) -> Html | None:
    if not page.verdicts:
        return None
    words = {
        "pass": ("new", "Pass"),
        "review": ("wait", "Needs a person"),
        "deny": ("denied", "Deny"),
    }
    heads = (th("Verdict"), th("Gate"), th("Reason"))
    rows = []
    for v in page.verdicts:
        kind, word = words[verdict_word(v)]
        reasons = "; ".join(r.message for r in (*v.reasons, *v.review)) or v.note
        sign = "pass" if verdict_word(v) == "pass" else ""
        rows.append(
            el(
                "tr",
                td(state(kind, word, sign=sign), class_="nowrap"),  # type: ignore[arg-type]
                el("th", el("code", v.gate), scope="row"),
                td(reasons),
            )
        )
    passed = sum(verdict_word(v) != "deny" for v in page.verdicts)
    said = f"{passed} of {len(page.verdicts)} let it pass"
    return section("gates", "Every gate", table("gates", heads, rows, style="cards"), aside=said)


def _rules(page: DecisionPage) -> list[Inside]:
    return [
        section(
            f"rule-{n}",
            f"The rule {rule.code}",
            el("p", f"It says no when: {rule.message}"),
            aside=el("a", f"{rule.file}, line {rule.line}", href=f"/policy#{rule.file}"),
        )
        for n, rule in enumerate(page.rules)
    ]


def _named(fact: str) -> str:
    """The rules alone have a digest of their own, which the gate `policy` tells."""
    return "Gates and rules" if fact == "policy" else fact.capitalize()


def _fact(name: str, text: str) -> Inside:
    if name == "when":
        return moment(text)
    return digest(text, f"digest: {name}") if text.startswith("sha256:") else text


def _aside(page: DecisionPage) -> list[Html]:
    rows: list[tuple[Inside, Inside]] = [("Dataset", page.dataset_id)]
    if page.run_id:
        rows.append(("Run", digest(page.run_id, "run id", href=addresses.run(page.run_id))))
    rows += [(_named(name), _fact(name, text)) for name, text in page.facts.items()]
    return [
        card("What was judged", kv(rows)),
        card(
            "Still true",
            el(
                "p",
                f"Generation {page.official} is official and can be read."
                if page.official
                else "What was captured is kept.",
            ),
        ),
    ]
