"""The pages of proposals: those that wait, and one with its gates, what it changes, and the exact
commands that decide it.
"""

import msgspec

from kfm.diff.base import Diff
from kfm.evidence.proposal import Judged
from kfm.model import Verdict
from kfm.pages import addresses
from kfm.pages.decide import proposal_forms
from kfm.pages.difference import changes
from kfm.pages.html import Html, Inside, el
from kfm.pages.layout import Crumb, Frame, Page, document
from kfm.pages.parts import (
    State,
    command,
    digest,
    empty,
    head,
    kv,
    label_chip,
    section,
    state,
    table,
    td,
    th,
    with_commands,
)
from kfm.pages.words import moment, plural, verdict_word

__all__ = ["ProposalPage", "ProposalsPage", "WaitingLine", "render_all", "render_one"]

_WORDS: dict[str, tuple[State, str]] = {
    "pass": ("new", "Pass"),
    "review": ("wait", "Needs a person"),
    "deny": ("denied", "Deny"),
}


class WaitingLine(msgspec.Struct, frozen=True, kw_only=True):
    """A proposal in the list."""

    proposal: int
    dataset_id: str
    title: str
    since: str
    approvals: int
    needed: int | None
    why: tuple[str, ...]
    problem: str


class ProposalsPage(Page, frozen=True, kw_only=True):
    """Every proposal that waits for a person."""

    proposals: tuple[WaitingLine, ...]


class ProposalPage(Page, frozen=True, kw_only=True):
    """One proposal."""

    proposal: int
    dataset_id: str
    dataset_title: str
    label: str | None
    state: str
    run_id: str
    version_id: str | None
    since: str
    verdicts: tuple[Verdict, ...]
    approvals: tuple[Judged, ...]
    needed: int
    base_generation: int | None
    you_sign: dict[str, object]
    diff: Diff | None
    not_shown: str  # why what changes is not shown
    approve: str
    reject: str
    preview: str


# ---- all -----------------------------------------------------------------------------------------
def render_all(page: ProposalsPage, frame: Frame) -> str:
    many = len(page.proposals)
    lede = f"{plural(many, 'proposal waits', 'proposals wait')} for a person." if many else ""
    body: Inside = empty("Nothing waits for a person.", "kfm review")
    if many:
        heads = (th("Proposal", num=True), th("Dataset"), th("Since"), th("Approved"), th("Why"))
        body = section("all", "Waiting", table("all", heads, map(_line, page.proposals)))
    return document(page, frame, head("Proposals", lede), body, here="/proposals")


def _line(row: WaitingLine) -> Html:
    told: Inside = f"{row.approvals} of {row.needed}" if not row.problem else ""
    return el(
        "tr",
        td(el("a", str(row.proposal), href=addresses.proposal(row.proposal)), num=True),
        el("th", row.title, el("br"), el("code", row.dataset_id, class_="quiet"), scope="row"),
        td(moment(row.since), class_="nowrap"),
        td(told, head="Approved"),
        td(state("failed", row.problem) if row.problem else "; ".join(row.why)),
    )


# ---- one -----------------------------------------------------------------------------------------
def render_one(page: ProposalPage, frame: Frame) -> str:
    return document(
        page,
        frame,
        _head(page),
        el(
            "div",
            el("div", _gates(page), _changes(page), class_="stack"),
            el("aside", _seal(page, frame), aria_label="Decision"),
            class_="two",
        ),
        here="/proposals",
        crumbs=(Crumb("Proposals", "/proposals"), Crumb(str(page.proposal))),
        scripts=["slider.mjs", "sign.mjs"],
    )


def _valid(page: ProposalPage) -> int:
    return sum(a.valid for a in page.approvals)


def _head(page: ProposalPage) -> Html:
    words = [verdict_word(v) for v in page.verdicts]
    denied = words.count("deny")
    waits = f"Waits for approval, {_valid(page)} of {page.needed}"
    now = (
        state("denied", "Denied")
        if denied
        else state("wait", waits)
        if page.state == "PROPOSED"
        else state("noop", page.state.capitalize())
    )
    lede = (
        f"{plural(words.count('pass'), 'gate passes', 'gates pass')},"
        f" {words.count('review')} need a person, {denied} deny."
    )
    if page.diff is not None:
        d = page.diff
        lede += f" {d.added:,} rows come, {d.removed:,} go, {d.changed:,} change."
    preview = el("a", "See it as it would be", class_="btn", href=f"{page.address}/preview")
    facts: list[Inside] = [
        now,
        el("span", "proposed ", moment(page.since)),
        el("span", "by run ", digest(page.run_id, "run id", href=addresses.run(page.run_id))),
        label_chip(page.label),
    ]
    return head(
        f"{page.dataset_title}, proposal {page.proposal}",
        lede,
        facts,
        (preview, el("a", "Decide", class_="btn primary", href="#decide"))
        if page.state == "PROPOSED"
        else None,
    )


def _gates(page: ProposalPage) -> Html:
    words = [verdict_word(v) for v in page.verdicts]
    heads = (th("Verdict"), th("Gate"), th("Reason and evidence"), th("See it yourself"))
    said = (
        f"{words.count('pass')} pass, {words.count('review')} need a person,"
        f" {words.count('deny')} deny"
    )
    rows = (_gate(page, v) for v in page.verdicts)
    return section("gates", "Gates", table("gates", heads, rows, style="cards"), aside=said)


def _gate(page: ProposalPage, verdict: Verdict) -> Html:
    said = verdict_word(verdict)
    kind, word = _WORDS[said]
    reasons = (*verdict.reasons, *verdict.review)
    told: list[Inside] = [
        el("p", el("b", r.code), f": {r.message}", el("br"), with_commands(r.remedy))
        for r in reasons
    ]
    if not told or verdict.note:
        told.append(el("p", verdict.note or "nothing found", class_="quiet"))
    return el(
        "tr",
        td(state(kind, word, sign="pass" if said == "pass" else ""), class_="nowrap"),
        el("th", el("code", verdict.gate), scope="row"),
        td(told),
        td(command(f"kfm gates proposal/{page.proposal} --only {verdict.gate}")),
    )


def _changes(page: ProposalPage) -> Html:
    if page.diff is None:
        inside: Inside = empty(page.not_shown, f"kfm diff proposal/{page.proposal}")
    else:
        inside = el("div", changes(page.diff), class_="stack")
    return section("ch", "What changes", inside)


def _seal(page: ProposalPage, frame: Frame) -> Html:
    signs = page.you_sign
    exact = str(signs.get("candidate_digest", "")).removeprefix("sha256:")
    groups = (el("span", exact[n : n + 8]) for n in range(0, len(exact), 8))
    rows = (
        ("Dataset", page.dataset_id),
        ("Version", digest(str(signs.get("version_digest") or ""), "version digest")),
        (
            "Gates and rules",
            digest(str(signs.get("policy_digest") or ""), "digest of gates and rules"),
        ),
        ("Registry", digest(str(signs.get("registry_digest") or ""), "registry digest")),
        ("Terms", digest(str(signs.get("terms") or ""), "digest of the terms")),
        ("Base", f"generation {page.base_generation}, becomes {(page.base_generation or 0) + 1}"),
    )
    return el(
        "section",
        el(
            "div",
            el(
                "h2",
                "You sign exactly this" if page.state == "PROPOSED" else "What was proposed",
                id="dec-h",
            ),
            el("p", el("span", "Candidate digest ", class_="vh"), groups, class_="hash"),
            kv(rows),
            el("p", "If any of these changes, the signature is void.", class_="hint"),
            class_="what",
        ),
        el(
            "div",
            el("h3", f"Approvals, {_valid(page)} of {page.needed}"),
            el("ul", map(_person, page.approvals), class_="people")
            if page.approvals
            else el("p", "Nobody has signed yet.", class_="quiet"),
        ),
        _decide(page, frame, exact),
        class_="seal",
        id="decide",
        aria_labelledby="dec-h",
    )


def _decide(page: ProposalPage, frame: Frame, exact: str) -> Html:
    if page.state != "PROPOSED":
        return el("div", el("p", "It is closed: nothing is to be decided.", class_="quiet"))
    return el(
        "div",
        el("h3", "Decide"),
        el("p", "Your key stays with you: the command signs where it lies.", class_="hint"),
        command(page.approve),
        command(page.reject),
        proposal_forms(frame, page.proposal, exact),
        class_="form",
    )


def _person(one: Judged) -> Html:
    kind: State = "new" if one.valid else "none"
    why = one.reason if one.valid else f"void: {one.why}"
    sign = "pass" if one.valid else "failed"
    return el(
        "li",
        el("span", el("svg", el("use", href=f"#s-{sign}"), aria_hidden="true"), class_="g"),
        el("span", el("b", one.name), f", key {one.keyid[:8]}", el("br"), why),
        data_state=kind,
        class_="voided" if not one.valid else None,
    )
