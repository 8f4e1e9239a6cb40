"""Home: what is stale, stuck or failing, and what waits for whoever looks."""

import datetime as dt
from collections.abc import Iterator, Sequence

import msgspec

from kfm.pages import addresses
from kfm.pages.html import Html, Inside, el, join
from kfm.pages.layout import Frame, Page, document
from kfm.pages.parts import State, big, command, empty, glyph, head, section, state, with_commands
from kfm.pages.words import lasting, moment, plural, size

__all__ = ["Day", "HeatRow", "HomePage", "Need", "Works", "render"]

_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
WORDS: dict[State, str] = {
    "new": "new version",
    "noop": "checked, unchanged",
    "late": "late",
    "failed": "failed",
    "denied": "denied",
    "wait": "waits for a person",
    "run": "running",
    "none": "nothing was asked",
}
LEGEND: dict[State, str] = {
    "new": "New version",
    "noop": "Unchanged",
    "late": "Late",
    "failed": "Failed",
    "denied": "Denied",
    "wait": "Waiting",
    "run": "Running",
    "none": "Not asked",
}


class Day(msgspec.Struct, frozen=True, kw_only=True):
    """A dataset on one day: the worst that happened, and the run that shows it."""

    day: str
    state: State
    runs: int = 0
    run_id: str = ""


class HeatRow(msgspec.Struct, frozen=True, kw_only=True):
    """A dataset over the days."""

    dataset_id: str
    title: str
    href: str
    days: tuple[Day, ...]
    state: State  # now
    word: str
    note: str


class Need(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that needs a person."""

    state: State
    word: str
    title: str
    why: str
    next: str
    href: str


class Works(msgspec.Struct, frozen=True, kw_only=True):
    """How the machine is doing."""

    running: int
    queued: int
    oldest_s: float | None  # how long the oldest that is due waits
    workers: int
    lost: int
    disk_free: int | None
    next_at: str | None
    next_name: str


class HomePage(Page, frozen=True, kw_only=True):
    """Freshness by day, and what needs somebody."""

    now: str
    days: tuple[str, ...]
    rows: tuple[HeatRow, ...]  # the worst first
    hidden: int  # how many more there are
    states: dict[State, int]  # how many of all stand so
    needs: tuple[Need, ...]  # the worst first
    more_needs: int  # how many more there are
    works: Works
    checks: int  # in these days
    unchanged: int  # of them


def render(page: HomePage, frame: Frame) -> str:
    today = dt.date.fromisoformat(page.now[:10])
    name = f"{today:%A} {today.day} {today:%B}"
    return document(
        page,
        frame,
        head(name, _lede(page), actions=el("a", "All runs", class_="btn", href="/runs")),
        el(
            "div",
            _needs(page),
            el("div", _fresh(page), _works(page.works), class_="stack"),
            class_="two lead",
        ),
        here="/",
        end=("as of ", moment(page.now)),
    )


def _lede(page: HomePage) -> str:
    many = len(page.rows) + page.hidden
    words: dict[State, str] = {
        "new": "on time",
        "noop": "at rest",
        "late": "late",
        "failed": "failed",
    }
    words |= {"denied": "denied", "wait": "waiting", "run": "running", "none": "with nothing yet"}
    told = [f"{n:,} {word}" for kind, word in words.items() if (n := page.states.get(kind, 0))]
    checks = f" {page.unchanged:,} of {plural(page.checks, 'check')} found nothing new." * bool(
        page.checks
    )
    return f"{plural(many, 'dataset')}: {', '.join(told)}.{checks}" if many else "No dataset yet."


# ---- what needs somebody -------------------------------------------------------------------------
def _needs(page: HomePage) -> Html:
    if not page.needs:
        inside = el(
            "div", el("p", "Nothing. Everything runs by itself."), class_="card quiet-empty"
        )
    else:
        more = el("li", el("p", f"{page.more_needs:,} more"), command("kfm status"))
        listed = [*map(_need, page.needs), *([more] if page.more_needs else [])]
        inside = el("ul", listed, class_="todo card", data_list=True)
    many = len(page.needs) + page.more_needs
    return section("needs", "What needs you", inside, aside=f"{many:,}, the worst first")


def _need(need: Need) -> Html:
    return el(
        "li",
        state(need.state, need.word),
        el("h3", el("a", need.title, href=need.href)),
        el("p", with_commands(need.why)) if need.why else None,
        command(need.next) if need.next else None,
    )


# ---- freshness -----------------------------------------------------------------------------------
def _fresh(page: HomePage) -> Html:
    if not page.rows:
        return section(
            "fresh",
            "Freshness",
            empty("No dataset is registered.", "kfm dataset new --help"),
        )
    more = el("p", f"{page.hidden:,} more: ", el("a", "all datasets", href="/datasets"))
    return section(
        "fresh",
        "Freshness",
        el(
            "div",
            el(
                "table",
                el(
                    "caption",
                    "State of each dataset on each day. Use the arrow keys to move between days.",
                    class_="vh",
                ),
                el("thead", _days(page.days)),
                el("tbody", (_row(row) for row in page.rows)),
                class_="heat",
                data_list=True,
            ),
            el("hr"),
            _legend(page.rows),
            more if page.hidden else None,
            class_="card snug",
        ),
        aside="datasets by day, UTC",
    )


def _class(at: int, many: int) -> str | None:
    """Of the days at the left fewer are shown where there is less room."""
    return "d-old" if many - at > 14 else "d-mid" if many - at > 7 else None


def _days(days: Sequence[str]) -> Html:
    heads = [el("th", el("span", "Dataset", class_="vh"), scope="col")]
    for at, text in enumerate(days):
        day = dt.date.fromisoformat(text)
        name = _MONTHS[day.month - 1]
        first = at in (0, len(days) - 14, len(days) - 7) or day.day == 1
        own = at == 0 or day.day == 1
        style = "mon" if own else f"mon at-{'mid' if at == len(days) - 14 else 'phone'}"
        heads.append(
            el(
                "th",
                el("span", name, el("br"), class_=style) if first else None,
                str(day.day),
                el("span", f" {day:%B}", class_="vh"),
                scope="col",
                class_=" ".join(
                    filter(None, (_class(at, len(days)), "today" if at == len(days) - 1 else ""))
                )
                or None,
            )
        )
    heads.append(el("td", class_="now"))
    return el("tr", heads)


def _row(row: HeatRow) -> Html:
    name = el("a", row.title, href=row.href)
    return el(
        "tr",
        el("th", name, el("code", row.dataset_id), scope="row"),
        _cells(row),
        el("td", state(row.state, row.word), el("small", row.note, class_="clip1"), class_="now"),
    )


def _cells(row: HeatRow) -> Iterator[Html]:
    for at, day in enumerate(row.days):
        date = dt.date.fromisoformat(day.day)
        href = addresses.run(day.run_id) if day.run_id else row.href
        times = f", {plural(day.runs, 'time')}" if day.runs > 1 else ""
        label = f"{row.title}, {date.day} {_MONTHS[date.month - 1]}: {WORDS[day.state]}{times}"
        cell = el(
            "a",
            glyph(day.state),
            class_="cell",
            data_state=day.state,
            href=href,
            aria_label=label,
            title=label,
        )
        yield el("td", cell, class_=_class(at, len(row.days)))


def _legend(rows: Sequence[HeatRow]) -> Html:
    counts: dict[State, int] = {}
    for row in rows:
        for day in row.days:
            counts[day.state] = counts.get(day.state, 0) + 1
    return el(
        "ul",
        (
            el(
                "li",
                el("span", glyph(kind), class_="g"),
                join(f"{LEGEND[kind]} ", el("b", f"{counts[kind]:,}")),
                data_state=kind,
            )
            for kind in LEGEND
            if kind in counts
        ),
        class_="legend",
    )


def _works(works: Works) -> Html:
    rows: list[tuple[Inside, Inside]] = [
        (f"{works.running:,}", "jobs working"),
        (
            f"{works.queued:,}",
            f"jobs queued, oldest {lasting(works.oldest_s)}" if works.oldest_s else "jobs queued",
        ),
        (f"{works.workers:,}", f"workers, {works.lost:,} lost" if works.lost else "workers"),
    ]
    if works.next_at:
        rows.append((moment(works.next_at), f"next due, {works.next_name}"))
    if works.disk_free is not None:
        rows.append((size(works.disk_free), "of disk free"))
    return big(rows)
