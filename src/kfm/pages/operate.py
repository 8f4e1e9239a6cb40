"""The pages of who runs things: queue and workers, schedules, rules, webhooks."""

import msgspec

from kfm.cli.jobs import Job
from kfm.cli.schedule import Listed as Schedule
from kfm.cli.schedule import Moment
from kfm.cli.scheduler import Problem
from kfm.cli.webhook import Delivery, Turned
from kfm.cli.worker import AtWork
from kfm.pages.decide import job_forms
from kfm.pages.html import Html, Inside, el
from kfm.pages.layout import Frame, Page, document
from kfm.pages.parts import (
    Message,
    State,
    bar,
    command,
    digest,
    empty,
    head,
    message,
    section,
    state,
    table,
    td,
    th,
    with_commands,
)
from kfm.pages.words import count, lasting, moment, plural
from kfm.upkeep.pools import Pool

__all__ = [
    "PolicyPage",
    "QueuePage",
    "Rule",
    "SchedulesPage",
    "Tried",
    "WebhooksPage",
    "render_policy",
    "render_queue",
    "render_schedules",
    "render_webhooks",
]


# ---- queue and workers ---------------------------------------------------------------------------
class QueuePage(Page, frozen=True, kw_only=True):
    """What waits, what runs and who works."""

    running: tuple[Job, ...]
    queued: tuple[Job, ...]
    dead: tuple[Job, ...]
    pools: tuple[Pool, ...]
    workers: tuple[AtWork, ...]


_JOB: dict[str, State] = {
    "queued": "wait", "running": "run", "succeeded": "new", "skipped": "noop", "failed": "failed",
    "dead": "failed", "cancelled": "noop",
}  # fmt: skip


def render_queue(page: QueuePage, frame: Frame) -> str:
    lost = sum(w.state == "lost" for w in page.workers)
    lede = (
        f"{plural(len(page.running), 'job works', 'jobs work')}, {len(page.queued):,} wait,"
        f" {len(page.dead):,} were put aside. {plural(len(page.workers) - lost, 'worker')}."
    )
    parts: list[Inside] = []
    for name, title, jobs in (
        ("dead", "Put aside", page.dead),
        ("running", "At work", page.running),
        ("queued", "Waiting", page.queued),
    ):
        if jobs:
            parts.append(_jobs(frame, name, title, jobs))
    if not parts:
        parts.append(empty("No job waits or works.", "kfm up"))
    parts += [_pools(page.pools), _workers(page.workers)]
    return document(
        page,
        frame,
        head("Queue and workers", lede),
        el("div", parts, class_="stack"),
        here="/queue",
    )


def _jobs(frame: Frame, name: str, title: str, jobs: tuple[Job, ...]) -> Html:
    heads = (th("Job"), th("What"), th("State"), th("Since"), th("Why"))
    rows = (
        el(
            "tr",
            el("th", digest(j.job_id, "job id"), scope="row"),
            td((j.job_type, el("br"), el("span", j.dataset_id, class_="quiet"))),
            td(state(_JOB.get(j.word, "none"), j.word.capitalize())),
            td(moment(j.started_at or j.put_at), class_="nowrap"),
            td(
                (
                    j.error or j.reason,
                    command(f"kfm jobs show {j.job_id[:8]}"),
                    job_forms(frame, j),
                )
            ),
        )
        for j in jobs
    )
    return section(name, title, table(name, heads, rows), aside=plural(len(jobs), "job"))


def _pools(pools: tuple[Pool, ...]) -> Html | None:
    if not pools:
        return None
    heads = (
        th("Pool"), th("Share"), th("Working", num=True), th("Waiting", num=True),
        th("Later", num=True), th("Oldest waits", num=True), th("Paused"),
    )  # fmt: skip
    rows = (
        el(
            "tr",
            el("th", p.name, scope="row"),
            td(
                bar(
                    (("run", p.running), ("none", max(0, (p.slots or p.running) - p.running))),
                    f"{p.running} of {p.slots or 'any number of'} slots are taken",
                ),
                class_="share",
            ),
            td(
                f"{p.running} of {p.slots}" if p.slots else str(p.running), head="Working", num=True
            ),
            td(count(p.queued), head="Waiting", num=True),
            td(count(p.later), head="Later", num=True),
            td(lasting(p.wait_ms / 1000) if p.wait_ms else "", head="Oldest waits", num=True),
            td(p.paused),
        )
        for p in pools
    )
    return section("pools", "Pools", table("pools", heads, rows))


def _workers(workers: tuple[AtWork, ...]) -> Html:
    if not workers:
        return section("workers", "Workers", empty("No worker runs.", "kfm up"))
    heads = (th("Worker"), th("State"), th("Jobs", num=True))
    rows = (
        el(
            "tr",
            el("th", w.name, scope="row"),
            td(
                state("late", "Lost, its lease ran out")
                if w.state == "lost"
                else state("run", "Working")
            ),
            td(count(len(w.jobs)), head="Jobs", num=True),
        )
        for w in workers
    )
    return section("workers", "Workers", table("workers", heads, rows))


# ---- schedules -----------------------------------------------------------------------------------
class SchedulesPage(Page, frozen=True, kw_only=True):
    """When data is asked for."""

    schedules: tuple[Schedule, ...]
    pages: dict[str, str]  # of each dataset that is named: where it is told of
    problems: tuple[Problem, ...]
    next: tuple[Moment, ...]


def render_schedules(page: SchedulesPage, frame: Frame) -> str:
    failing = sum(bool(s.failing) for s in page.schedules)
    paused = sum(bool(s.paused) for s in page.schedules)
    lede = f"{plural(len(page.schedules), 'schedule')}, {failing:,} failing, {paused:,} paused."
    heads = (th("Schedule"), th("State"), th("How often"), th("Time zone"), th("Next"), th("Pool"))
    body: Inside = empty(
        "Nothing is scheduled: give a dataset a cadence in its registry entry.",
        "kfm schedule list",
    )
    if page.schedules:
        rows = (_schedule(s, page.pages.get(s.dataset or "")) for s in page.schedules)
        body = section("all", "Schedules", table("all", heads, rows))
    problems = (
        el(
            "div",
            state("failed", f"{p.file}: {p.what}"),
            el("p", with_commands(p.remedy)),
            class_="say small",
            data_state="failed",
        )
        for p in page.problems
    )
    return document(
        page,
        frame,
        head("Schedules", lede),
        el("div", problems, body, _soon(page.next), class_="stack"),
        here="/schedules",
    )


def _schedule(row: Schedule, dataset: str | None) -> Html:
    now = (
        state("wait", "Paused")
        if row.paused
        else state("failed", "Failing")
        if row.failing
        else state("new", "Runs", sign="pass")
    )
    trouble: Inside = None
    if row.paused:
        trouble = command(f"kfm schedule unpause {row.name}")
    elif row.failing:
        first = row.failing[0]
        trouble = (
            el("p", f"{first.window or 'whole'} failed {first.fails} times: {first.error}"),
            command(f"kfm jobs show {first.job_id}"),
        )
    cut = f" by {row.windows}" if row.windows else ""
    name: Inside = el("a", row.name, href=dataset) if dataset else row.name
    return el(
        "tr",
        el("th", name, scope="row"),
        td((now, el("br") if trouble else None, row.paused or "", trouble)),
        td(f"{row.cadence}{cut}"),
        td(row.time_zone),
        td(moment(row.next_at, "nothing due"), class_="nowrap"),
        td(row.pool),
    )


def _soon(moments: tuple[Moment, ...]) -> Html | None:
    if not moments:
        return None
    heads = (th("When"), th("There"), th("Schedule"), th("Window"))
    rows = (
        el("tr", td(moment(m.at)), td(m.local), el("th", m.name, scope="row"), td(m.window))
        for m in moments
    )
    return section("soon", "What comes next", table("soon", heads, rows))


# ---- rules ---------------------------------------------------------------------------------------
class Rule(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that the rules say no to."""

    file: str
    line: int
    code: str
    message: str
    remedy: str


class Tried(msgspec.Struct, frozen=True, kw_only=True):
    """What the rules answer to an input that somebody tries; nothing is done or recorded."""

    package: str
    input: str
    wrong: str = ""  # why it was not asked
    allow: bool = False
    deny: tuple[dict[str, str], ...] = ()  # {code, message, remedy}
    input_digest: str = ""
    policy_digest: str = ""


class PolicyPage(Page, frozen=True, kw_only=True):
    """The rules in words, and as they are asked."""

    policy_digest: str
    rules: tuple[Rule, ...]
    files: dict[str, str]
    trouble: str  # why they cannot be asked; empty: they can
    packages: tuple[str, ...] = ()  # what can be asked
    asked: str = ""  # of these, unless another is chosen
    example: str = ""
    tried: Tried | None = None


def _try(page: PolicyPage) -> Html:
    """A form that asks the rules about an input."""
    chosen, text = (
        (page.tried.package, page.tried.input) if page.tried else (page.asked, page.example)
    )
    options = (el("option", p, value=p, selected=p == chosen) for p in page.packages)
    form = el(
        "form",
        el(
            "div",
            el("label", "Rules", for_="try-package"),
            el("select", options, class_="field", id="try-package", name="package"),
        ),
        el(
            "div",
            el("label", "Input, as JSON", for_="try-input"),
            el("textarea", text, class_="field mono", id="try-input", name="input", rows="12",
               maxlength="2500", spellcheck="false"),
        ),
        el("div", el("button", "Ask the rules", class_="btn primary", type="submit"),
           class_="actions"),
        class_="form card",
        action="/policy#try",
        aria_label="Input to try",
    )  # fmt: skip
    said = "nothing is done or recorded"
    eval_ = command("kfm policy eval --input question.json")
    return section("try", "Try an input", form, _answer(page.tried), eval_, aside=said)


def _answer(tried: Tried | None) -> list[Html] | None:
    if tried is None:
        return None
    if tried.wrong:
        return [message("failed", "It was not asked", Message(happened=tried.wrong))]
    if tried.allow:
        fine = Message(happened=f"{tried.package} allows it: no rule says no.")
        return [message("new", "Allowed", fine, named="What the rules say")]
    why = " ".join(f"{d.get('code', '')}: {d.get('message', '')}" for d in tried.deny)
    clears = " ".join(dict.fromkeys(d.get("remedy", "") for d in tried.deny))
    said = Message(happened=why or "No rule allows it.", remedy=clears)
    return [message("denied", "Denied", said, named="What the rules say")]


def render_policy(page: PolicyPage, frame: Frame) -> str:
    heads = (th("Code"), th("It says no when"), th("What clears it"), th("Where"))
    rows = (
        el(
            "tr",
            el("th", el("code", r.code), scope="row"),
            td(r.message),
            td(with_commands(r.remedy)),
            td(el("a", f"{r.file}, line {r.line}", href=f"#{r.file}"), class_="nowrap"),
        )
        for r in page.rules
    )
    sources = (
        el(
            "details",
            el("summary", name),
            el("pre", text, class_="log", tabindex="0", role="group", aria_label=name),
            id=name,
        )
        for name, text in page.files.items()
    )
    now = (
        state("failed", f"They cannot be asked: {page.trouble}")
        if page.trouble
        else state("new", "Asked on every read and promotion", sign="pass")
    )
    return document(
        page,
        frame,
        head(
            "Rules",
            "What is no clear yes is a no. These are all the reasons that the rules give for one.",
            [now, el("span", "digest ", digest(page.policy_digest, "digest of the rules"))],
        ),
        el(
            "div",
            _try(page),
            section("words", "In words", table("words", heads, rows, style="cards")),
            section("source", "As they are asked", el("div", sources, class_="card snippets")),
            class_="stack",
        ),
        here="/policy",
    )


# ---- webhooks ------------------------------------------------------------------------------------
class WebhooksPage(Page, frozen=True, kw_only=True):
    """What came by webhook, and what was refused."""

    accepted: tuple[Delivery, ...]
    refused: tuple[Turned, ...]
    sources: tuple[str, ...]


def render_webhooks(page: WebhooksPage, frame: Frame) -> str:
    lede = (
        f"{plural(len(page.sources), 'source')} may tell us that something changed."
        f" {len(page.accepted):,} of the newest were accepted, {len(page.refused):,} refused."
    )
    parts: list[Inside] = []
    if page.accepted:
        heads = (th("Event"), th("When"), th("Source"), th("What"), th("Then"))
        parts.append(section("in", "Accepted", table("in", heads, map(_delivery, page.accepted))))
    if page.refused:
        heads = (th("When"), th("Source"), th("Answer"), th("Why"), th("Body"))
        parts.append(section("no", "Refused", table("no", heads, map(_turned, page.refused))))
    if not parts:
        parts.append(empty("Nothing has come.", "kfm webhook list"))
    return document(
        page, frame, head("Webhooks", lede), el("div", parts, class_="stack"), here="/webhooks"
    )


def _delivery(d: Delivery) -> Html:
    then = "; ".join(f"{j.dataset_id} {j.outcome or j.state}" for j in d.started) or d.note
    return el(
        "tr",
        el("th", digest(d.event_id, "event id"), scope="row"),
        td(moment(d.received_at), class_="nowrap"),
        td(d.source_id),
        td(f"{d.event.trigger}, {d.event.event_type}"),
        td(then),
    )


def _turned(t: Turned) -> Html:
    return el(
        "tr",
        td(moment(t.at), class_="nowrap"),
        el("th", t.source_id or "unknown", scope="row"),
        td(str(t.status)),
        td((el("code", t.code), f" {t.why}")),
        td(digest(t.body_digest, "digest of the body")),
    )
