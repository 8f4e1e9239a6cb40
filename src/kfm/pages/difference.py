"""The page of what changed from one version to the next: counts, columns, rows, places."""

from collections.abc import Sequence

from kfm.diff.base import Change, Diff, number, shown, title
from kfm.diff.map import draw
from kfm.pages import addresses
from kfm.pages.html import Html, Inside, el
from kfm.pages.layout import Crumb, Frame, Page, document
from kfm.pages.parts import big, empty, head, section, table, td, th

__all__ = ["DiffPage", "changes", "render"]

_KINDS = {"changed": ("mod", "±"), "removed": ("del", "−"), "added": ("add", "+")}


class DiffPage(Page, frozen=True, kw_only=True):
    """What one version changed of the one before."""

    dataset_id: str
    dataset_title: str
    generation: int
    before: str  # `generation 3`, or nothing
    diff: Diff


def render(page: DiffPage, frame: Frame) -> str:
    diff = page.diff
    return document(
        page,
        frame,
        head(
            f"{page.dataset_title}: what changed",
            _lede(page),
            actions=el(
                "a",
                f"Generation {page.generation}",
                class_="btn",
                href=addresses.version(page.dataset_id, page.generation),
            ),
        ),
        el("div", changes(diff), class_="stack"),
        here="/datasets",
        crumbs=(
            Crumb("Datasets", "/datasets"),
            Crumb(page.dataset_id, addresses.dataset(page.dataset_id)),
            Crumb(f"{page.before.removeprefix('generation ')} to {page.generation}"),
        ),
        scripts=["slider.mjs"],
    )


def _lede(page: DiffPage) -> str:
    diff = page.diff
    told = f"From {page.before} to generation {page.generation}: "
    if diff.same:
        return told + ("only written anew." if diff.reencoded else "nothing differs.")
    many = f"{diff.added:,} rows came, {diff.removed:,} went, {diff.changed:,} changed"
    return f"{told}{many}; {diff.equal:,} are equal."


def changes(diff: Diff) -> list[Inside]:
    """The parts of a comparison, for a page of its own or for a proposal."""
    parts: list[Inside] = [_numbers(diff)]
    picture = draw(diff)
    if picture:
        slider = el(
            "div",
            el("label", "Before", for_="slider"),
            el("input", type="range", id="slider", min="0", max="100", value="100"),
            el("span", "After"),
            class_="slider",
            hidden=True,
        )
        parts.append(el("div", Html(picture), slider, class_="diffmap"))
    parts += [_profile(diff), _columns(diff), _rows(diff)]
    return parts


def _numbers(diff: Diff) -> Html:
    rows: list[tuple[Inside, Inside]] = [
        (f"+ {diff.added:,}", "rows added"),
        (f"− {diff.removed:,}", "rows removed"),
        (f"± {diff.changed:,}", "rows changed"),
        (f"{diff.equal:,}", "rows equal"),
        (f"{len(diff.touched)} of {diff.columns.common}", "columns touched"),
    ]
    if diff.moved:
        rows.append((f"{diff.moved:,}", "places moved"))
    return big(rows)


def _profile(diff: Diff) -> Html | None:
    rows = [
        el(
            "tr",
            el("th", title(m), scope="row"),
            td(number(m, m.before), head="Before", num=True),
            td(number(m, m.after), head="After", num=True),
            td(number(m, m.change, signed=True), head="Change", num=True),
        )
        for m in diff.shifts
    ]
    heads = (th("Measure"), th("Before", num=True), th("After", num=True), th("Change", num=True))
    return section("prof-h", "In the profile", table("prof-h", heads, rows)) if rows else None


def _columns(diff: Diff) -> Html | None:
    rows = [
        el("tr", _sign(kind), el("th", name, scope="row"), td(what), class_=_KINDS[kind][0])
        for kind, name, what in diff.remarks
    ]
    heads = (th(el("span", "Kind", class_="vh")), th("Column"), th("What changed"))
    return (
        section("cols-h", "In the columns", table("cols-h", heads, rows, style="diff"))
        if rows
        else None
    )


def _sign(kind: str) -> Html:
    return el("td", _KINDS[kind][1], el("span", kind, class_="vh"), class_="sign")


def _rows(diff: Diff) -> Html:
    if not diff.samples:
        return empty("No row differs.")
    by = f"matched by {', '.join(diff.key)}" if diff.keyed else "compared whole"
    parts: list[Inside] = [el("p", f"Rows are {by}.", class_="hint")]
    for kind in _KINDS:
        some = [c for c in diff.samples if c.kind == kind]
        if some:
            parts.append(_of_kind(kind, some))
    said = f"{len(diff.samples):,} of {diff.differences:,} differences"
    return section("rows-h", "In the rows", parts, aside=said)


def _of_kind(kind: str, some: Sequence[Change]) -> Html:
    names = list(dict.fromkeys(name for c in some for name in c.cells))
    heads = [th(el("span", "Kind", class_="vh"))]
    heads += [th(name) for name in (*some[0].key, *names)]
    far = any(c.moved_m is not None for c in some)
    heads += [th("moved", num=True)] if far else []
    label = f"rows-{kind}"
    rows = (_row(c, names, far) for c in some)
    return el(
        "div",
        el("h3", f"{kind.capitalize()} rows", id=label),
        table(label, heads, rows, style="diff"),
        class_="spaced",
    )


def _row(change: Change, names: Sequence[str], far: bool) -> Html:
    cells: list[Inside] = [_sign(change.kind)]
    cells += [td(el("code", _cut(v))) for v in change.key.values()]
    cells += [_cell(change, name) for name in names]
    if far:
        cells.append(td("" if change.moved_m is None else f"{change.moved_m:,.0f} m", num=True))
    return el("tr", cells, class_=_KINDS[change.kind][0])


def _cell(change: Change, name: str) -> Html:
    if name not in change.cells:
        return el("td", el("span", "equal", class_="vh"))
    old, new = (_cut(v) for v in change.cells[name])
    if change.kind == "added":
        return el("td", new)
    if change.kind == "removed":
        return el("td", old)
    return el("td", el("del", old), " ", el("ins", new), class_="chg")


def _cut(value: object) -> str:
    text = shown(value)
    return text if len(text) <= 80 else text[:79] + "…"
