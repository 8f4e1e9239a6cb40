"""The pages of backfills: all of them, and one as a grid of its partitions, or of ranges of them
where they are many.
"""

import msgspec

from kfm.pages import addresses
from kfm.pages.html import Html, Inside, el, join
from kfm.pages.layout import Crumb, Frame, Page, document
from kfm.pages.parts import (
    Message,
    State,
    bar,
    card,
    command,
    digest,
    empty,
    glyph,
    head,
    kv,
    message,
    section,
    state,
    table,
    td,
    th,
    with_commands,
)
from kfm.pages.words import lasting, moment, plural

__all__ = [
    "PART_STATES",
    "Backfill",
    "BackfillLine",
    "BackfillPage",
    "BackfillsPage",
    "Block",
    "GridRow",
    "Part",
    "Range",
    "render_all",
    "render_one",
]

# of a partition: its state on the page, its glyph, what it is called
PART_STATES: dict[str, tuple[State, str, str]] = {
    "COMMITTED": ("new", "new", "official"),
    "STAGED": ("new", "pass", "made"),
    "NOOP": ("noop", "noop", "unchanged"),
    "WORKING": ("run", "run", "working"),
    "QUEUED": ("wait", "wait", "queued"),
    "FAILED": ("failed", "failed", "failed"),
    "MISSING": ("none", "none", "not begun"),
}
_STATES: dict[str, tuple[State, str]] = {
    "running": ("run", "Working"),
    "assembling": ("run", "Putting it together"),
    "stopped": ("failed", "Stopped"),
    "incomplete": ("failed", "Incomplete"),
    "waiting": ("wait", "Waits for a person"),
    "denied": ("denied", "Denied"),
    "done": ("new", "Done"),
    "cancelled": ("noop", "Cancelled"),
}


def _state(name: str) -> Html:
    return state(*_STATES.get(name, ("none", name)))


# ---- all -----------------------------------------------------------------------------------------
class BackfillLine(msgspec.Struct, frozen=True, kw_only=True):
    """A backfill in the list."""

    backfill_id: str
    name: str
    dataset_id: str
    title: str
    state: str
    since: str
    until: str
    partitions: int
    put_by: str
    put_at: str
    reason: str


class BackfillsPage(Page, frozen=True, kw_only=True):
    """Backfills, newest first."""

    backfills: tuple[BackfillLine, ...]
    limit: int


def render_all(page: BackfillsPage, frame: Frame) -> str:
    going = sum(b.state in ("running", "assembling") for b in page.backfills)
    stuck = sum(_STATES.get(b.state, ("", ""))[0] in ("failed", "denied") for b in page.backfills)
    lede = (
        f"{plural(len(page.backfills), 'backfill')}, newest first: {going:,} at work,"
        f" {stuck:,} with something to look at."
    )
    heads = (
        th("Backfill"),
        th("Dataset"),
        th("State"),
        th("Past"),
        th("Partitions", num=True),
        th("Started"),
        th("Why"),
    )
    body = (
        section("all", "All backfills", table("all", heads, map(_line, page.backfills)))
        if page.backfills
        else empty("No past was ever made up for.", "kfm backfill plan --help")
    )
    return document(page, frame, head("Backfills", lede), body, here="/backfills")


def _line(row: BackfillLine) -> Html:
    return el(
        "tr",
        el("th", el("a", row.name, href=addresses.backfill(row.backfill_id)), scope="row"),
        td(row.title),
        td(_state(row.state)),
        td(f"{row.since[:10]} to {row.until[:10]}", class_="nowrap"),
        td(f"{row.partitions:,}", head="Partitions", num=True),
        td((moment(row.put_at), el("br"), el("span", f"by {row.put_by}", class_="quiet"))),
        td(row.reason),
    )


# ---- one -----------------------------------------------------------------------------------------
class Part(msgspec.Struct, frozen=True, kw_only=True):
    """One partition."""

    n: int
    label: str  # its window as people say it, and its name
    window: str
    partition: str
    state: str  # a key of PART_STATES
    run_id: str = ""
    attempts: int = 0
    reason: str = ""


class GridRow(msgspec.Struct, frozen=True, kw_only=True):
    """A row of cells; None: a place of the calendar that the range leaves out."""

    name: str
    cells: tuple[int | None, ...]  # which of the page's parts


class Block(msgspec.Struct, frozen=True, kw_only=True):
    """A table of cells: what its columns are called, short and in full."""

    caption: str
    corner: str
    columns: tuple[tuple[str, str], ...]
    rows: tuple[GridRow, ...]


class Range(msgspec.Struct, frozen=True, kw_only=True):
    """Neighbouring partitions, summed."""

    name: str
    first: int
    partitions: int
    counts: dict[str, int]


class Backfill(msgspec.Struct, frozen=True, kw_only=True):
    """What was asked for, and how it stands."""

    backfill_id: str
    name: str
    dataset_id: str
    dataset_title: str
    dataset_page: str  # where it is told of
    state: str
    reason: str
    since: str
    until: str
    step: str  # of a window
    total: int
    plan_digest: str
    pool: str
    assemble: str
    put_by: str
    put_at: str
    version_id: str | None
    generation: int | None
    run_id: str  # that put the parts together


class BackfillPage(Page, frozen=True, kw_only=True):
    """One backfill, or a range of it. `ranges` where it holds many partitions, else `parts`."""

    of: Backfill
    first: int  # of the range that is shown
    partitions: int  # in it
    range_name: str
    counts: dict[str, int]  # in it, by state
    eta_seconds: int | None
    ranges: tuple[Range, ...]
    blocks: tuple[Block, ...]
    parts: tuple[Part, ...]
    failing: tuple[Part, ...]  # of the range, the first of them
    failing_after: int | None  # where the next of them are; None: that is all
    next: tuple[str, ...]


_LISTED = 100  # so many partitions are also told in a list


def render_one(page: BackfillPage, frame: Frame) -> str:
    whole = page.partitions == page.of.total
    crumbs = [Crumb("Backfills", "/backfills"), Crumb(page.of.name)]
    if not whole:
        crumbs[1:] = [
            Crumb(page.of.name, addresses.backfill(page.of.backfill_id)),
            Crumb(page.range_name),
        ]
    return document(
        page,
        frame,
        _head(page, whole),
        el(
            "div",
            el("div", _problem(page), _progress(page), _listed(page), class_="stack"),
            el("aside", _aside(page), class_="stack", aria_label="About this backfill"),
            class_="two",
        ),
        here="/backfills",
        crumbs=crumbs,
    )


def _head(page: BackfillPage, whole: bool) -> Html:
    done = sum(page.counts.get(name, 0) for name in ("COMMITTED", "STAGED", "NOOP"))
    left = page.partitions - done
    told = plural(page.partitions, "partition")
    lede = f"{told}, all done." if not left else f"{told}, {left:,} still to do"
    if left:
        lede += f", about {lasting(page.eta_seconds)}." if page.eta_seconds else "."
    if left and page.of.state == "running":
        lede += " Stop it whenever you like; it goes on where it was."
    facts: list[Inside] = [
        _state(page.of.state),
        el("span", "plan ", digest(page.of.plan_digest, "hash of the plan")),
        f"pool {page.of.pool}",
        "one version at the end" if page.of.assemble == "once" else f"a version {page.of.assemble}",
    ]
    title = page.of.dataset_title if whole else f"{page.of.dataset_title}, {page.range_name}"
    return head(title, lede, facts)


def _problem(page: BackfillPage) -> Html | None:
    if page.of.state not in ("stopped", "incomplete", "denied") or not page.of.reason:
        return None
    kind, word = _STATES[page.of.state]
    said = Message(happened=page.of.reason, remedy=f"`{page.next[0]}`" if page.next else "")
    return message(kind, word, said)


def _progress(page: BackfillPage) -> Html:
    shares = [(PART_STATES[name][0], many) for name, many in page.counts.items()]
    said = "arrow keys move, Enter opens" if page.blocks else "a range opens its partitions"
    return section(
        "parts",
        "Partitions",
        el(
            "div",
            bar(shares, told_of(page.counts)),
            _legend(page.counts),
            [_block(block, page) for block in page.blocks] or None,
            class_="card snug stack",
        ),
        _ranges(page),
        aside=said,
    )


def told_of(counts: dict[str, int]) -> str:
    """220 official, 3 failed."""
    return ", ".join(f"{many:,} {PART_STATES[name][2]}" for name, many in counts.items())


def _legend(counts: dict[str, int]) -> Html:
    return el(
        "ul",
        (
            el(
                "li",
                el("span", glyph(PART_STATES[name][1]), class_="g"),
                join(f"{PART_STATES[name][2].capitalize()} ", el("b", f"{many:,}", class_="num")),
                data_state=PART_STATES[name][0],
            )
            for name, many in counts.items()
        ),
        class_="legend",
    )


def _block(block: Block, page: BackfillPage) -> Html:
    heads = (
        el("th", el("span", short, aria_hidden="true"), el("span", name, class_="vh"), scope="col")
        for short, name in block.columns
    )
    return el(
        "div",
        el(
            "table",
            el("caption", f"{block.caption}. Use the arrow keys to move.", class_="vh"),
            el(
                "thead",
                el("tr", el("th", el("span", block.corner, class_="vh"), scope="col"), heads),
            ),
            el("tbody", (_row(row, page) for row in block.rows)),
            class_="heat grid",
        ),
        class_="scrolled",
    )


def _row(row: GridRow, page: BackfillPage) -> Html:
    cells = (el("td", _cell(page.parts[at], page) if at is not None else None) for at in row.cells)
    return el("tr", el("th", row.name, scope="row"), cells)


def _cell(part: Part, page: BackfillPage) -> Html:
    kind, sign, word = PART_STATES[part.state]
    tries = f", {part.attempts} tries" if part.attempts > 1 else ""
    label = f"{part.label}: {word}{tries}"
    return el(
        "a",
        glyph(sign),
        class_="cell",
        data_state=kind,
        href=_opened(part, page),
        aria_label=label,
        title=label,
    )


def _opened(part: Part, page: BackfillPage) -> str:
    """Where a partition is told: its run, else its place in the backfill."""
    if part.run_id and part.state != "FAILED":
        return addresses.run(part.run_id)
    return addresses.backfill(page.of.backfill_id, part.n, 1)


# ---- where they are many -------------------------------------------------------------------------
def _ranges(page: BackfillPage) -> Html | None:
    if not page.ranges:
        return None
    heads = (th("Range"), th("Shares"), th("Partitions", num=True), th("Counts"))
    rows = (
        el(
            "tr",
            el(
                "th",
                el(
                    "a", r.name, href=addresses.backfill(page.of.backfill_id, r.first, r.partitions)
                ),
                scope="row",
                class_="nowrap",
            ),
            td(
                bar(
                    [(PART_STATES[name][0], many) for name, many in r.counts.items()],
                    told_of(r.counts),
                ),
                class_="shares",
            ),
            td(f"{r.partitions:,}", head="Partitions", num=True),
            td(told_of(r.counts)),
        )
        for r in page.ranges
    )
    return el("div", table("parts", heads, rows, style="cards ranges"), data_list=True)


# ---- partitions in words -------------------------------------------------------------------------
def _listed(page: BackfillPage) -> list[Html]:
    found = []
    if page.failing:
        more = (
            el(
                "p",
                el(
                    "a",
                    "The next that failed",
                    href=addresses.backfill(
                        page.of.backfill_id, page.first, page.partitions, page.failing_after
                    ),
                ),
            )
            if page.failing_after is not None
            else None
        )
        many = page.counts.get("FAILED", 0)
        aside = f"{len(page.failing):,} of {many:,}" if many > len(page.failing) else f"{many:,}"
        inside = _parts("failed", page, page.failing)
        found.append(section("failed", "What failed", inside, more, aside=aside))
    rest = [p for p in page.parts if p.state != "FAILED"]
    if rest and page.partitions <= _LISTED:
        found.append(section("each", "Each partition", _parts("each", page, rest)))
    return found


def _parts(name: str, page: BackfillPage, parts: "list[Part] | tuple[Part, ...]") -> Html:
    failed = name == "failed"
    heads = [th("Partition"), th("State"), th("Tries", num=True), th("Run")]
    heads += [th("Why"), th("Next")] if failed else []
    return table(name, heads, (_part(part, page, failed) for part in parts))


def _part(part: Part, page: BackfillPage, failed: bool) -> Html:
    kind, sign, word = PART_STATES[part.state]
    told = f"kfm explain {part.run_id}" if part.run_id else f"kfm backfill resume {page.of.name}"
    return el(
        "tr",
        el("th", part.label, scope="row"),
        td(state(kind, word.capitalize(), sign=sign)),
        td(str(part.attempts) if part.attempts else "", head="Tries", num=True),
        td(digest(part.run_id, "run id", href=addresses.run(part.run_id)) if part.run_id else ""),
        (td(with_commands(part.reason)), td(command(told))) if failed else None,
    )


def _aside(page: BackfillPage) -> list[Inside]:
    made = (
        el(
            "a",
            f"generation {page.of.generation}",
            href=addresses.version(page.of.dataset_id, page.of.generation),
        )
        if page.of.generation
        else ""
    )
    about = kv(
        [
            ("Dataset", el("a", page.of.dataset_id, href=page.of.dataset_page)),
            ("Past", f"{page.of.since[:10]} to {page.of.until[:10]}"),
            ("Windows of", page.of.step),
            ("Started", moment(page.of.put_at)),
            ("By", page.of.put_by),
            ("Put together by", digest(page.of.run_id, "run id", href=addresses.run(page.of.run_id))
             if page.of.run_id else ""),
            ("Made", made),
        ]
    )  # fmt: skip
    parts: list[Inside] = [card("About", about)]
    if page.next:
        parts.append(card("Next", (command(text) for text in page.next)))
    return parts
