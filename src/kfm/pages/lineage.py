"""The page of lineage: what something comes from and what comes from it, as a picture in layers and
as a table.
"""

from collections.abc import Mapping, Sequence

from kfm.catalog.lineage.graph import kind_of
from kfm.lineage.ask import Around, Line
from kfm.lineage.draw import placed, said
from kfm.pages import addresses
from kfm.pages.html import Html, Inside, el
from kfm.pages.layout import Crumb, Frame, Page, document
from kfm.pages.parts import empty, head, section, table, td, th
from kfm.pages.words import plural

__all__ = ["LineagePage", "render"]

WIDE, HIGH = 230, 40  # of a box, as `placed` leaves room for
_MOST = 400  # boxes in the picture
_STEPS = 1_000  # in the table; the JSON twin has all
_KINDS = {"Run": "Run", "Asset": "Input", "Dataset": "File", "DatasetVersion": "Version"}


class LineagePage(Page, frozen=True, kw_only=True):
    """Everything around one version, run or source that this viewer may know of."""

    what: str
    walk: Around


def render(page: LineagePage, frame: Frame) -> str:
    walk = page.walk
    before = sum(p.distance < 0 for p in walk.points)
    after = sum(p.distance > 0 for p in walk.points)
    return document(
        page,
        frame,
        head(
            f"Lineage of {said(walk.start)}",
            f"It comes from {plural(before, 'other')}; {plural(after, 'other comes', 'others come')}"
            " from it.",
        ),
        el("div", _picture(walk), _table(walk), class_="stack"),
        here="/datasets",
        crumbs=(Crumb("Datasets", "/datasets"), Crumb("Lineage"), Crumb(page.what)),
    )


def _picture(walk: Around) -> Html:
    if not walk.lines:
        return empty("Nothing is known to lead here or away from here.")
    if len(walk.points) > _MOST:
        return empty(
            f"{len(walk.points):,} nodes are too many to draw. Follow one step after the other, or take the JSON twin."
        )
    places, wide, high = placed(walk)
    edges = [e for e in walk.lines if e.kind in ("USED_IN", "GENERATED")]
    return section(
        "graph-h",
        "Picture",
        el(
            "div",
            el(
                "svg",
                el("title", f"Lineage of {said(walk.start)}: {len(places)} nodes"),
                _ARROW,
                (_edge(places, e) for e in edges),
                (_node(name, at, name == walk.start) for name, at in places.items()),
                viewBox=f"0 0 {wide} {high}",
                width=wide,
                height=high,
                role="group",
                aria_labelledby="graph-h",
            ),
            class_="graph",
            tabindex="0",
            role="group",
            aria_labelledby="graph-h",
        ),
    )


_ARROW = Html(
    '<defs><marker id="tip" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="7" markerHeight="7"'
    ' orient="auto"><path class="arrow" d="M0 0L8 4L0 8z"/></marker></defs>'
)


def _edge(places: Mapping[str, tuple[int, int]], line: Line) -> Html:
    (ax, ay), (bx, by) = places[line.source], places[line.target]
    x1, y1, x2, y2 = ax + WIDE, ay + HIGH // 2, bx, by + HIGH // 2
    bend = max(30, (x2 - x1) // 2)
    return el(
        "path",
        class_="edge",
        d=f"M{x1} {y1}C{x1 + bend} {y1} {x2 - bend} {y2} {x2} {y2}",
        marker_end="url(#tip)",
    )


def _node(name: str, at: tuple[int, int], start: bool) -> Html:
    x, y = at
    kind, label = kind_of(name), _label(name)
    short = label if len(label) <= 27 else f"{label[:11]}…{label[-15:]}"
    inside = (
        el("title", f"{_KINDS[kind]}: {label}"),
        el("rect", class_="box", x=x, y=y, width=WIDE, height=HIGH, rx="5"),
        el("text", _KINDS[kind], class_="sub", x=x + 10, y=y + 15),
        el("text", short, class_="name", x=x + 10, y=y + 31),
    )
    style = " ".join(
        filter(None, ("node", "src" if kind == "Asset" else "", "focus" if start else ""))
    )
    href = _href(name)
    if href is None:
        return el("g", inside, class_=style)
    return el("a", inside, class_=style, href=href)


def _label(name: str) -> str:
    return said(name).removeprefix("run ")


def _href(name: str) -> str | None:
    rest = name.partition(":")[2]
    match kind_of(name):
        case "Run":
            return addresses.lineage(rest)
        case "Dataset" | "DatasetVersion":
            dataset_id, _, version = rest.partition("@")
            return addresses.version(dataset_id, version.partition("/")[0])
    return None


def _table(walk: Around) -> Html:
    heads = (th("From"), th("How"), th("To"))
    verbs = {"USED_IN": "was used in", "GENERATED": "made"}
    rows: Sequence[Inside] = [
        el("tr", td(_named(e.source)), td(verbs.get(e.kind, e.kind.lower())), td(_named(e.target)))
        for e in walk.lines[:_STEPS]
    ]
    if not rows:
        return empty("No step is known.")
    return section(
        "steps-h",
        "Every step" if len(rows) == len(walk.lines) else "Steps",
        table("steps-h", heads, rows),
        _rest(len(walk.lines) - len(rows)),
        aside=plural(len(walk.lines), "step"),
    )


def _rest(more: int) -> Html | None:
    return el("p", f"{more:,} more steps are in the JSON twin of this page.") if more else None


def _named(name: str) -> Inside:
    href, label = _href(name), f"{_KINDS[kind_of(name)]} {_label(name)}"
    return el("a", label, href=href) if href else label
