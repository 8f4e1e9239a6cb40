"""The pages of runs: all of them, and one with its timeline, journal, log, what it read and
wrote.
"""

import datetime as dt

import msgspec

from kfm.pages import addresses
from kfm.pages.html import Html, Inside, el
from kfm.pages.layout import Crumb, Frame, Page, document
from kfm.pages.parts import (
    Message,
    State,
    bar,
    big,
    card,
    command,
    digest,
    empty,
    head,
    kv,
    message,
    section,
    state,
    table,
    td,
    th,
)
from kfm.pages.words import count, lasting, moment, parsed, plural

__all__ = [
    "STATES",
    "SHOWN",
    "LogLine",
    "Phase",
    "Record",
    "RunLine",
    "RunPage",
    "RunsPage",
    "Step",
    "render_run",
    "render_runs",
    "state_of",
]

STATES: dict[str, tuple[State, str]] = {
    "COMMITTED": ("new", "New version"),
    "NOOP": ("noop", "Unchanged"),
    "STAGED": ("new", "Part made"),
    "PROPOSED": ("wait", "Waits for a person"),
    "REJECTED": ("denied", "Denied"),
    "FAILED": ("failed", "Failed"),
    "SUPERSEDED": ("noop", "Overtaken"),
    "CLAIMED": ("run", "Running"),
}

SHOWN = 200  # steps, and records, at once


def state_of(name: str) -> Html:
    kind, word = STATES.get(name, ("none", name))
    return state(kind, word)


# ---- all -----------------------------------------------------------------------------------------
class RunLine(msgspec.Struct, frozen=True, kw_only=True):
    """A run in the list."""

    run_id: str
    dataset_id: str
    state: str
    at: str
    partition: str
    window: str
    version_id: str | None
    trigger: str
    took_ms: int | None
    why: str


class RunsPage(Page, frozen=True, kw_only=True):
    """Runs, newest first."""

    runs: tuple[RunLine, ...]
    pages: dict[str, str]  # of each dataset that is named: where it is told of
    dataset_id: str
    with_noops: bool
    limit: int


def render_runs(page: RunsPage, frame: Frame) -> str:
    of = f" of {page.dataset_id}" if page.dataset_id else ""
    noops = sum(r.state == "NOOP" for r in page.runs)
    lede = f"{plural(len(page.runs), 'run')}{of}, newest first. {noops:,} found nothing new."
    query = f"?dataset={page.dataset_id}" if page.dataset_id else "?"
    other = (
        el("a", "Without unchanged ones", class_="btn", href=f"{query}&noops=no")
        if page.with_noops
        else el("a", "Unchanged ones too", class_="btn", href=query)
    )
    heads = (
        th("Run"),
        th("Began"),
        th("Dataset"),
        th("State"),
        th("Version"),
        th("Took", num=True),
        th("Why"),
    )
    body = (
        section(
            "all",
            "All runs",
            table("all", heads, (_line(run, page.pages[run.dataset_id]) for run in page.runs)),
        )
        if page.runs
        else empty("No run yet.", "kfm run --all")
    )
    return document(page, frame, head("Runs", lede, actions=other), body, here="/runs")


def _line(run: RunLine, dataset: str) -> Html:
    part = " ".join(filter(None, (run.partition, run.window)))
    return el(
        "tr",
        el("th", digest(run.run_id, "run id", href=addresses.run(run.run_id)), scope="row"),
        td(moment(run.at), class_="nowrap"),
        td(
            (
                el("a", run.dataset_id, href=dataset),
                el("small", f" {part}", class_="quiet") if part else None,
            )
        ),
        td(state_of(run.state)),
        td(digest(run.version_id, "version id")),
        td(lasting(run.took_ms / 1000) if run.took_ms is not None else "", head="Took", num=True),
        td(run.why if run.state != "COMMITTED" else ""),
    )


# ---- one -----------------------------------------------------------------------------------------
class Step(msgspec.Struct, frozen=True, kw_only=True):
    """A step on the timeline."""

    step_id: str
    phase: str
    status: str
    began: str
    ended: str | None
    tries: int


class Phase(msgspec.Struct, frozen=True, kw_only=True):
    """The steps of one phase, summed."""

    phase: str
    steps: int
    done: int
    failed: int
    began: str
    ended: str


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """One record of the journal; what it holds is left out where it is sealed."""

    seq: int
    at: str
    phase: str
    step_id: str
    status: str
    payload: str
    hash: str


class LogLine(msgspec.Struct, frozen=True, kw_only=True):
    """A line of the run's log."""

    at: str
    level: str
    stage: str
    event: str
    rest: str


class RunPage(Page, frozen=True, kw_only=True):
    """One run."""

    run_id: str
    dataset_id: str
    dataset_title: str
    dataset_page: str  # where it is told of
    state: str
    trigger: str
    partition: str
    window: str
    attempt: int
    began: str
    ended: str | None
    sentence: str
    why: tuple[Message, ...]  # why it was denied or failed
    next: str
    steps: tuple[Step, ...]
    records: tuple[Record, ...]
    log: tuple[LogLine, ...]
    read: dict[str, str]  # address -> digest of what was read
    written: dict[str, str]  # what -> where or which
    rows_read: int | None  # None: not told
    rows_written: int | None
    open: bool
    last_seq: int = -1  # of the journal, as of now
    # of all steps and records, of which so many are shown at once
    steps_total: int = 0
    steps_done: int = 0
    first_step: int = 0
    records_total: int = 0
    phases: tuple[Phase, ...] = ()  # where there are more steps than are shown


def render_run(page: RunPage, frame: Frame) -> str:
    return document(
        page,
        frame,
        _head(page),
        el("div", data_after=str(page.last_seq), hidden=True) if page.open else None,
        el(
            "div",
            (message(STATES[page.state][0], STATES[page.state][1], m) for m in page.why),
            _numbers(page),
            _timeline(page),
            el(
                "div",
                el("div", _log(page), _journal(page), class_="stack"),
                el("aside", _aside(page), aria_label="What it read and wrote"),
                class_="two",
            ),
            class_="stack",
        ),
        here="/runs",
        crumbs=(
            Crumb("Runs", "/runs"),
            Crumb(page.dataset_id, page.dataset_page),
            Crumb(page.run_id[:8]),
        ),
        scripts=["live.mjs"] if page.open else (),
    )


def _head(page: RunPage) -> Html:
    part = " ".join(filter(None, (page.partition, page.window)))
    facts: list[Inside] = [
        state_of(page.state),
        el("span", "run ", digest(page.run_id, "run id")),
        f"started by {page.trigger}",
        part,
        f"attempt {page.attempt + 1}" if page.attempt else "",
    ]
    return head(page.title, page.sentence, facts)


def _seconds(a: str, b: str | None) -> float | None:
    began, ended = parsed(a), parsed(b) if b else None
    return (ended - began).total_seconds() if began and ended else None


def _numbers(page: RunPage) -> Html:
    took = _seconds(page.began, page.ended)
    rows: list[tuple[Inside, Inside]] = []
    if took is not None:
        rows.append((lasting(took), "from beginning to end"))
    if page.steps:
        rows.append((f"{page.steps_done:,} of {page.steps_total:,}", "steps done"))
        rows.append((count(page.records_total), "journal records"))
    if page.rows_read is not None:
        rows.append((count(page.rows_read), "rows read"))
        rows.append((count(page.rows_written), "rows written"))
    return big(rows or [(STATES.get(page.state, ("", page.state))[1], "how it ended")])


# ---- timeline ------------------------------------------------------------------------------------
def _timeline(page: RunPage) -> Html | None:
    if not page.steps:
        return None
    first = parsed(page.steps[0].began) or dt.datetime.now(dt.UTC)
    ends = [parsed(s.ended or s.began) or first for s in page.steps]
    span = max(0.001, (max(ends) - first).total_seconds())
    heads = (
        th("Step"),
        th(el("span", el("span", "0 s"), el("span", lasting(span)), class_="axis")),
        th("Worked", num=True),
        th("State"),
        th("Phase"),
    )
    rows = (_step(step, first, span) for step in page.steps)
    return section(
        "tl",
        "Timeline",
        _phases(page),
        table("tl", heads, rows, style="cards flow gantt"),
        _turned(page, "step", page.first_step, len(page.steps), page.steps_total, "tl"),
        aside="from the journal",
    )


def _phases(page: RunPage) -> Html | None:
    """Where there are many steps: what each phase took, all of them summed."""
    if not page.phases:
        return None
    heads = (th("Phase"), th("Steps", num=True), th("Done"), th("From first to last", num=True))
    rows = (
        el(
            "tr",
            el("th", p.phase.lower(), scope="row"),
            td(count(p.steps), head="Steps", num=True),
            td(
                bar(
                    [
                        ("new", p.done),
                        ("failed", p.failed),
                        ("none", p.steps - p.done - p.failed),
                    ],
                    f"{p.done:,} done, {p.failed:,} failed of {p.steps:,}",
                )
            ),
            td(lasting(_seconds(p.began, p.ended) or 0.0), head="Took", num=True),
        )
        for p in page.phases
    )
    return table("tl", heads, rows, style="cards")


def _turned(page: RunPage, name: str, first: int, shown: int, total: int, to: str) -> Html | None:
    """The way to those before and after."""
    if shown == total:
        return None
    ways = (
        ("Earlier", max(0, first - SHOWN) if first else None),
        ("Later", first + SHOWN if first + shown < total else None),
    )
    links = (
        el("a", word, class_="btn", href=f"?{name}={at}#{to}")
        for word, at in ways
        if at is not None
    )
    said = el("span", f"{first + 1:,} to {first + shown:,} of {total:,}", class_="quiet")
    return el("p", said, " ", links, class_="actions")


def _step(step: Step, first: dt.datetime, span: float) -> Html:
    began = parsed(step.began) or first
    took = _seconds(step.began, step.ended)
    x = 1000 * (began - first).total_seconds() / span
    wide = max(4.0, 1000 * (took or 0.0) / span)
    kind, word = {
        "DONE": ("new", "Done"),
        "FAILED": ("failed", "Failed"),
    }.get(step.status, ("run", "Begun"))
    style = {"FAILED": "work failed", "DONE": "work"}.get(step.status, "work run")
    said = lasting(took) if took is not None else "not ended"
    drawn = el(
        "svg",
        el("rect", class_="rail", x="0", y="7", width="1000", height="1"),
        el("rect", class_=style, x=f"{min(x, 996):.1f}", y="2", width=f"{wide:.1f}", height="12"),
        viewBox="0 0 1000 16",
        preserveAspectRatio="none",
        role="img",
        aria_label=f"{step.step_id}: {said}",
    )
    tries = f", {step.tries} tries" if step.tries > 1 else ""
    return el(
        "tr",
        el("th", step.step_id, scope="row"),
        td(drawn, class_="track"),
        td(said if took is not None else "", head="Worked", num=True),
        td(state(kind, f"{word}{tries}", sign="pass" if kind == "new" else "")),  # type: ignore[arg-type]
        td(step.phase.lower(), class_="quiet phone-off"),
    )


# ---- log and journal -----------------------------------------------------------------------------
def _log(page: RunPage) -> Html:
    if not page.log:
        return section("log-h", "Log", empty("Nothing was logged, or it was removed by retention."))
    lines = (
        el(
            "li",
            el("time", line.at[11:19], title=f"{line.at} UTC"),
            " ",
            el("span", line.level, class_=f"lv {_LEVELS.get(line.level, '')}".strip()),
            " ",
            el("span", line.stage, class_="step"),
            f" {line.event} {line.rest}",
        )
        for line in page.log
    )
    return section(
        "log-h",
        "Log",
        el(
            "div",
            el("ol", lines),
            class_="log",
            tabindex="0",
            role="group",
            aria_labelledby="log-h",
        ),
        aside=plural(len(page.log), "line"),
    )


_LEVELS = {"warning": "warn", "error": "err"}


def _journal(page: RunPage) -> Html | None:
    if not page.records:
        return None
    heads = (th("#", num=True), th("When"), th("Step"), th("Status"), th("What"), th("Hash"))
    rows = (
        el(
            "tr",
            td(str(r.seq), num=True),
            el("td", r.at[11:23], class_="nowrap", title=f"{r.at} UTC"),
            el("th", r.step_id, scope="row"),
            td(r.status.lower().replace("_", " ")),
            td(el("code", r.payload, class_="clip1") if r.payload else ""),
            td(digest(r.hash, "hash of the record")),
        )
        for r in page.records
    )
    said = "each record names the hash of the one before"
    turned = _turned(
        page, "record", page.records[0].seq, len(page.records), page.records_total, "wal-h"
    )
    return section("wal-h", "Journal", table("wal-h", heads, rows, style=""), turned, aside=said)


def _aside(page: RunPage) -> list[Inside]:
    parts: list[Inside] = [_named("Read", page.read), _named("Wrote", page.written)]
    if page.next:
        parts.append(card("Next", command(page.next)))
    return parts


def _named(title: str, rows: dict[str, str]) -> Html:
    if not rows:
        return card(title, el("p", "Nothing.", class_="quiet"))
    return card(title, kv((el("code", k), _exact(v)) for k, v in rows.items()))


def _exact(value: str) -> Inside:
    return digest(value, value) if value.startswith(("sha256:", "v", "hmac")) else value
