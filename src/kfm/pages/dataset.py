"""The page of a dataset: what it is, how fresh, where, what it holds, how to get, cite and trust
it.
"""

import json
from collections.abc import Mapping

import msgspec

from kfm.data.history import Entry
from kfm.data.shown import Map, Profile
from kfm.pages import addresses
from kfm.pages.decide import run_form
from kfm.pages.html import Html, Inside, el, join
from kfm.pages.layout import Crumb, Frame, Page, Shared, document
from kfm.pages.parts import (
    Message,
    State,
    card,
    chip,
    command,
    copy,
    digest,
    head,
    kv,
    label_chip,
    message,
    section,
    spark,
    state,
    table,
    td,
    th,
)
from kfm.pages.picture import spots
from kfm.pages.words import count, moment, plural, size

__all__ = ["Cited", "DatasetPage", "File", "Held", "Snippet", "Standing", "about_licence", "render"]


class Standing(msgspec.Struct, frozen=True, kw_only=True):
    """How it stands now."""

    state: State
    word: str
    note: str
    sentence: str  # the state in words
    trouble: Message | None = None  # what keeps the newest from being published


class File(msgspec.Struct, frozen=True, kw_only=True):
    """A file that can be had."""

    name: str
    what: str
    bytes: int | None
    digest: str
    href: str


class Cited(msgspec.Struct, frozen=True, kw_only=True):
    """How to cite it."""

    text: str
    bibtex: str
    command: str


class Snippet(msgspec.Struct, frozen=True, kw_only=True):
    """A few lines that read it from somewhere else."""

    language: str
    lines: str


class Held(msgspec.Struct, frozen=True, kw_only=True):
    """What the official version holds, for who may know."""

    version_id: str
    version_digest: str
    generation: int
    official_at: str | None
    rows: int
    columns: tuple[Profile, ...]
    units: dict[str, str]
    first: tuple[dict[str, object], ...]
    bbox: tuple[float, float, float, float] | None
    interval: tuple[str, str] | None
    map: Map | None
    tiles: str | None  # where its map tiles are; None: it has none
    layer: str  # of the tiles
    files: tuple[File, ...]
    cite: Cited
    snippets: tuple[Snippet, ...]
    origin: tuple[str, ...]
    receipt: str  # of the run that made it: below the workspace
    h3_resolution: int | None
    key: tuple[str, ...] = ()  # columns that a row is known by; empty: no row has a page


class DatasetPage(Page, frozen=True, kw_only=True):
    """One dataset."""

    card: str  # where a picture to share is
    dataset_id: str
    description: str
    label: str | None
    care: str | None
    licence: str | None
    rights: str | None
    custodian: str | None
    owners: tuple[str, ...]
    cadence: str | None
    source: str
    standing: Standing
    held: Held | None  # None: nothing is official, or nothing of it may be shown
    versions: tuple[Entry, ...]
    earlier: int
    used_by: tuple[str, ...]


def render(page: DatasetPage, frame: Frame) -> str:
    held = page.held
    main = el("div", _main(page), class_="stack")
    aside = el("aside", _aside(page), aria_label="About this dataset")
    scripts: list[str] = []
    if held is not None:
        scripts = ["table.mjs"]
        if held.bbox is not None:
            scripts += ["vendor/pmtiles.js", "map.mjs"]
    return document(
        page,
        frame,
        _head(page, frame),
        el("div", main, aside, class_="two"),
        here="/datasets",
        crumbs=(Crumb("Datasets", "/datasets"), Crumb(page.dataset_id)),
        scripts=scripts,
        end=_end(held),
        feed=addresses.feed(page.dataset_id),
        shared=Shared(page.title, page.description or page.standing.sentence, page.card),
    )


def _end(held: Held | None) -> Inside:
    if held is None:
        return None
    return (f"generation {held.generation} · official since ", moment(held.official_at, "unknown"))


def _head(page: DatasetPage, frame: Frame) -> Html:
    held, told = page.held, page.standing
    facts: list[Inside] = [state(told.state, told.word), told.note, label_chip(page.label)]
    facts.append(chip(page.licence) if page.licence else "no licence stated")
    if page.care:
        facts.append(chip(page.care, "label"))
    if held is not None:
        facts += [plural(held.rows, "row"), *(chip(o) for o in held.origin)]
    actions: Inside = None
    if held is not None:
        story = addresses.story(page.dataset_id, held.generation)
        actions = (
            el("a", "Get the data", class_="btn primary", href="#get"),
            el("a", "How it was made", class_="btn", href=story),
        )
    lede = join(page.description, " " if page.description else "", told.sentence)
    again = run_form(frame, page.dataset_id)
    return head(page.title, lede, facts, (actions, again) if actions or again else None)


def _main(page: DatasetPage) -> list[Inside]:
    parts: list[Inside] = []
    if page.standing.trouble is not None:
        parts.append(message(page.standing.state, page.standing.word, page.standing.trouble))
    held = page.held
    if held is not None:
        if held.bbox is not None:
            parts.append(_map(page, held))
        parts += [_rows(page, held), _profile(held)]
    if page.versions:
        parts.append(_versions(page))
    if held is not None:
        parts.append(_snippets(held))
    return parts


# ---- map -----------------------------------------------------------------------------------------
def _map(page: DatasetPage, held: Held) -> Html:
    west, south, east, north = held.bbox or (0.0, 0.0, 0.0, 0.0)
    drawn = spots(held.map, f"Where the {count(held.rows)} rows of {page.title} lie")
    precision: Inside = None
    if held.h3_resolution is not None:
        precision = el("span", f"Drawn as precisely as may be seen: H3 cells, {held.h3_resolution}")
    return section(
        "map-h",
        "Map",
        el(
            "figure",
            el(
                "div",
                drawn,
                el("div", class_="stage", id="map"),
                class_="canvas",
                data_map=addresses.places(page.dataset_id, held.version_id),
                data_tiles=held.tiles,
                data_layer=held.layer if held.tiles else None,
                data_bbox=f"{west},{south},{east},{north}",
                data_name=page.title,
                **_leads(page, held),
            ),
            el(
                "div",
                el(
                    "span",
                    "Choose a place to see its row",
                    " and where it comes from." if held.key else ".",
                    id="map-said",
                    role="status",
                ),
                el(
                    "span",
                    f"{west:.5g} to {east:.5g} east, {south:.5g} to {north:.5g} north",
                ),
                precision,
                el("a", "The same as a table", href="#rows-h"),
                class_="foot",
            ),
            class_="map",
        ),
    )


# ---- rows ----------------------------------------------------------------------------------------
def _rows(page: DatasetPage, held: Held) -> Html:
    names = [column.name for column in held.columns]
    numbers = {c.name for c in held.columns if _is_number(c)}
    types = {column.name: column.type for column in held.columns}
    heads = [
        th(_head_of(n, held), num=n in numbers, data_column=n, data_type=types[n]) for n in names
    ]
    body = (
        el("tr", (td(_linked(page, held, row, n), num=n in numbers) for n in names))
        for row in held.first
    )
    shown = len(held.first)
    return section(
        "rows-h",
        "Rows",
        el(
            "div",
            table("rows-h", heads, body, style="rows"),
            id="rows",
            data_rows=addresses.rows(page.dataset_id, held.version_id),
            data_total=held.rows,
            **_leads(page, held),
        ),
        el(
            "p",
            el("span", f"The first {count(shown)} of {count(held.rows)}.", id="rows-said"),
            " ",
            el(
                "a",
                "As CSV",
                href=addresses.rows(page.dataset_id, held.version_id, "csv"),
            ),
            class_="hint",
        ),
        aside=f"{count(held.rows)} rows, {plural(len(names), 'column')}",
    )


def _leads(page: DatasetPage, held: Held) -> dict[str, str]:
    """How a script finds the page of a row."""
    if not held.key:
        return {}
    at = addresses.row(page.dataset_id, held.generation)
    return {"data_row": at, "data_key": json.dumps(held.key)}


def _linked(page: DatasetPage, held: Held, row: Mapping[str, object], name: str) -> Inside:
    """A cell; the first of a key leads to where its row comes from."""
    text = _cell(row.get(name))
    if held.key[:1] != (name,) or any(row.get(n) is None for n in held.key):
        return text
    key = {n: row[n] for n in held.key}
    return el("a", text, href=addresses.row(page.dataset_id, held.generation, key))


def _head_of(name: str, held: Held) -> Inside:
    unit = held.units.get(name)
    return (name, el("small", f" {unit}", class_="quiet")) if unit else name


def _is_number(column: Profile) -> bool:
    return column.type.startswith(("int", "uint", "float", "double", "decimal"))


def _cell(value: object) -> str:
    text = "" if value is None else str(value)
    return text if len(text) <= 120 else text[:119] + "…"


# ---- profile -------------------------------------------------------------------------------------
def _profile(held: Held) -> Html:
    heads = (
        th("Column"),
        th("Type"),
        th("Missing", num=True),
        th("Distinct", num=True),
        th("Shape"),
        th("Values"),
    )
    return section(
        "profile-h",
        "Columns",
        table("profile-h", heads, (_column(c, held) for c in held.columns)),
        aside="over all rows",
    )


def _column(column: Profile, held: Held) -> Html:
    missing = f"{100 * column.missing / held.rows:.2g} %" if column.missing and held.rows else ""
    shape = spark(
        column.shape,
        f"{column.name}: {', '.join(map(str, column.shape))} in equal steps from"
        f" {column.lowest} to {column.highest}",
    )
    unit = held.units.get(column.name)
    return el(
        "tr",
        el(
            "th",
            column.name,
            el("small", f" {unit}", class_="quiet") if unit else None,
            scope="row",
        ),
        td(column.type),
        td(missing or ("0" if held.rows else ""), head="Missing", num=True),
        td(count(column.distinct), head="Distinct", num=True),
        td(shape),
        td(_values(column, held.rows), class_="values"),
    )


def _values(column: Profile, rows: int) -> str:
    """The commonest where they are many, else the first and the last."""
    if 10 * sum(many for _, many in column.common) >= rows - column.missing > 0:
        return ", ".join(f"{_cell(text)} ({many:,})" for text, many in column.common)
    ends = dict.fromkeys(_cell(v) for v in (column.lowest, column.highest) if v is not None)
    return " to ".join(ends)


# ---- versions ------------------------------------------------------------------------------------
def _versions(page: DatasetPage) -> Html:
    heads = (
        th("Version"),
        th("Official since"),
        th("Generation", num=True),
        th("Rows", num=True),
        th("Changed"),
        th("By"),
        th(el("span", "Diff", class_="vh")),
    )
    told = plural(len(page.versions) + page.earlier, "generation")
    more = f", the newest {len(page.versions)} shown" if page.earlier else ""
    rows = (_version(page, entry) for entry in page.versions)
    follow = el("a", "Follow new versions", href=addresses.feed(page.dataset_id))
    hint = el("p", follow, " in a feed reader.", class_="hint")
    return section("ver-h", "Versions", table("ver-h", heads, rows), hint, aside=f"{told}{more}")


def _version(page: DatasetPage, entry: Entry) -> Html:
    where = addresses.version(page.dataset_id, entry.generation)
    name = digest(entry.version_id, "version id", href=where) or "none"
    by = ", ".join(entry.approved_by) or (entry.signed_by or "")
    differs = entry.kind == "promote" and entry.change is not None
    return el(
        "tr",
        el("th", name, " ", chip("official", "public") if entry.official else None, scope="row"),
        td(moment(entry.at), class_="nowrap"),
        td(str(entry.generation), head="Generation", num=True),
        td(count(entry.rows), head="Rows", num=True),
        td(entry.in_words, head="Changed"),
        td(by, head="By"),
        td(
            el(
                "a",
                "Diff",
                el("span", f" of generation {entry.generation} with the one before", class_="vh"),
                href=addresses.diff(page.dataset_id, entry.generation),
            )
            if differs
            else ""
        ),
        class_="is-current" if entry.official else None,
    )


# ---- beside --------------------------------------------------------------------------------------
def _aside(page: DatasetPage) -> list[Inside]:
    held, parts = page.held, list[Inside]()
    if held is not None:
        parts.append(_evidence(page, held))
    parts.append(about_licence(page))
    if held is not None:
        parts += [_files(held), _cite(page.dataset_id, held)]
    if page.used_by:
        links = (
            join(", " if n else "", el("a", name, href=addresses.dataset(name)))
            for n, name in enumerate(page.used_by)
        )
        parts.append(card("Used by", el("p", el("small", links))))
    return parts


def _evidence(page: DatasetPage, held: Held) -> Html:
    where = addresses.version(page.dataset_id, held.generation)
    return card(
        "Evidence",
        kv(
            (
                ("Version", digest(held.version_id, "version id", href=where)),
                ("Content", digest(f"sha256:{held.version_digest}", "content digest")),
                ("Generation", str(held.generation)),
                ("Receipt", digest(held.receipt, "path of the receipt") if held.receipt else ""),
                (
                    "Lineage",
                    el("a", "what came from what", href=addresses.lineage(page.dataset_id)),
                ),
                (
                    "Questions",
                    el(
                        "a",
                        "answered from evidence",
                        href=addresses.ask(page.dataset_id, held.generation),
                    ),
                ),
            )
        ),
        el("p", el("a", "Verify in this browser", class_="btn", href=f"{where}#verify")),
    )


def about_licence(page: DatasetPage) -> Html:
    return card(
        "Labels and licence",
        kv(
            (
                ("Label", label_chip(page.label)),
                ("Community", chip(page.care, "label") if page.care else ""),
                ("Licence", page.licence or "none stated"),
                ("Terms", page.rights or ""),
                ("Custodian", page.custodian or ""),
                ("Owners", ", ".join(page.owners)),
                ("Source", page.source),
                ("Checked", page.cadence or "when asked for"),
            )
        ),
    )


def _files(held: Held) -> Html:
    rows = (
        el("tr", el("td", el("a", f.what, href=f.href)), td(size(f.bytes), num=True))
        for f in held.files
    )
    body = el("table", el("tbody", rows), class_="table")
    return card("Get", body, id="get")


def _cite(dataset_id: str, held: Held) -> Html:
    return card(
        "Cite",
        el("p", el("small", held.cite.text)),
        el(
            "p",
            el("small", "BibTeX "),
            copy(held.cite.bibtex, "citation as BibTeX"),
            class_="facts",
        ),
        command(held.cite.command),
        el("p", el("small", el("a", "A card to share", href=addresses.card(dataset_id)), " (SVG)")),
    )


def _snippets(held: Held) -> Html:
    shown = (
        el(
            "details",
            el("summary", one.language),
            el(
                "div",
                el("pre", el("code", one.lines)),
                copy(one.lines, f"lines for {one.language}"),
                class_="snippet",
            ),
            open=not n,
        )
        for n, one in enumerate(held.snippets)
    )
    return section("use-h", "Use it", el("div", shown, class_="card snippets"))
