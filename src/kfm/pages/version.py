"""The page of a version: its files, what proves them, and a check of both in the browser."""

import msgspec

from kfm.data.history import Entry
from kfm.pages import addresses
from kfm.pages.dataset import File
from kfm.pages.html import Html, Inside, el
from kfm.pages.layout import Crumb, Frame, Page, Shared, document
from kfm.pages.parts import (
    card,
    chip,
    command,
    digest,
    head,
    kv,
    label_chip,
    section,
    state,
    table,
    td,
    th,
)
from kfm.pages.words import count, moment, plural, size

__all__ = ["Proved", "Signed", "VersionPage", "render"]


class Signed(msgspec.Struct, frozen=True, kw_only=True):
    """The generation that made it official, as it was signed, and the key that signed it."""

    payload: str  # base64, the bytes that were signed
    payload_type: str
    signature: str  # base64
    key: str  # base64, 32 bytes of Ed25519
    keyid: str
    name: str  # whose key
    root: str  # the fingerprint all keys are trusted under


class Proved(msgspec.Struct, frozen=True, kw_only=True):
    """What a browser needs to check it without trusting this page: files, what the version's digest
    is made of, and the signature over that.
    """

    version_digest: str
    artifacts: dict[str, str]  # the data files, each with its digest
    transform_hash: str
    updater_version: str
    signed: Signed | None


class VersionPage(Page, frozen=True, kw_only=True):
    """One version of a dataset."""

    card: str  # where a picture to share is
    dataset_id: str
    dataset_title: str
    generation: int
    version_id: str
    version_digest: str
    label: str | None
    licence: str | None
    rows: int
    columns: int
    entry: Entry | None  # the generation
    official: bool
    files: tuple[File, ...]  # records too
    documents: tuple[File, ...]  # that prove it and are no files of the version
    proved: Proved
    receipt: str
    run_id: str
    cite: str


def render(page: VersionPage, frame: Frame) -> str:
    return document(
        page,
        frame,
        _head(page, frame.copy),
        el(
            "div",
            el("div", _verify(page), _documents(page), class_="stack"),
            el("aside", _aside(page), aria_label="About this version"),
            class_="two",
        ),
        here="/datasets",
        crumbs=(
            Crumb("Datasets", "/datasets"),
            Crumb(page.dataset_id, addresses.dataset(page.dataset_id)),
            Crumb(f"generation {page.generation}"),
        ),
        scripts=["verify.mjs"],
        feed=addresses.feed(page.dataset_id),
        shared=Shared(page.title, f"{plural(page.rows, 'row')}. {page.cite}", page.card),
        end=("official since ", moment(page.entry.at, "unknown")) if page.entry else None,
    )


def _head(page: VersionPage, copy: bool) -> Html:
    entry = page.entry
    what = f"{plural(page.rows, 'row')}, {plural(page.columns, 'column')}."
    then = "was official when this copy was made" if copy else "is official now"
    lede = f"{what} {f'It {then}.' if page.official else 'A later one is official.'}"
    if entry is not None and entry.change is not None:
        lede += f" Against the one before: {entry.in_words}."
    now = state("new", "Official", sign="pass") if page.official else state("noop", "Earlier")
    facts: list[Inside] = [now, digest(page.version_id, "version id"), label_chip(page.label)]
    facts += [chip(page.licence or "no licence stated")]
    facts += [f"made by {entry.signed_by}"] if entry is not None and entry.signed_by else []
    differs = entry is not None and entry.change is not None
    actions: Inside = (
        el(
            "a",
            "What changed",
            class_="btn",
            href=addresses.diff(page.dataset_id, page.generation),
        )
        if differs
        else None,
        el(
            "a",
            "How it was made",
            class_="btn",
            href=addresses.story(page.dataset_id, page.generation),
        ),
    )
    return head(f"{page.dataset_title}, generation {page.generation}", lede, facts, actions)


def _verify(page: VersionPage) -> Html:
    heads = (th("File"), th("Size", num=True), th("Stated digest"), th("In this browser"))
    rows = (_file(f) for f in page.files)
    proved = msgspec.json.encode(page.proved).decode()
    return el(
        "div",
        section(
            "verify",
            "Files and evidence",
            el(
                "p",
                "Your browser fetches every file, computes its SHA-256 and compares: file by file,"
                " then the digest of the whole version, then the signature over that.",
                class_="hint",
            ),
            el(
                "p",
                el(
                    "button",
                    "Verify in this browser",
                    class_="btn primary",
                    type="button",
                    id="verify-now",
                    hidden=True,
                ),
                class_="actions spaced",
            ),
            table("verify", heads, rows),
            el(
                "div",
                el("ul", class_="people", id="verdict", data_proved=proved),
                role="status",
            ),
            el("noscript", el("p", "Without scripts, check it in a terminal:", class_="hint")),
            command(f"kfm verify {page.dataset_id}@{page.generation}"),
        ),
        id="files",
    )


def _file(file: File) -> Html:
    return el(
        "tr",
        el("th", el("a", file.name, href=file.href), scope="row"),
        td(size(file.bytes), head="Size", num=True),
        td(digest(file.digest, f"digest of {file.name}")),
        el(
            "td",
            el("span", "not checked yet", class_="quiet"),
            data_file=file.name,
            data_href=file.href,
            data_digest=file.digest,
        ),
    )


def _documents(page: VersionPage) -> Html | None:
    if not page.documents:
        return None
    heads = (th("Document"), th("What it shows"), th("Digest"))
    rows = (
        el(
            "tr",
            el("th", el("a", d.name, href=d.href) if d.href else d.name, scope="row"),
            td(d.what),
            td(digest(d.digest, f"digest of {d.name}")),
        )
        for d in page.documents
    )
    return section("docs-h", "What else proves it", table("docs-h", heads, rows))


def _aside(page: VersionPage) -> list[Html]:
    signed, entry = page.proved.signed, page.entry
    return [
        card(
            "Identity",
            kv(
                (
                    ("Version", digest(page.version_id, "version id")),
                    ("Content", digest(f"sha256:{page.version_digest}", "content digest")),
                    ("Generation", f"{page.generation}, {entry.kind}" if entry else ""),
                    ("Signed by", signed.name if signed else ""),
                    ("Key", digest(signed.keyid, "key id") if signed else ""),
                    ("Root", digest(signed.root, "fingerprint of the root") if signed else ""),
                    ("Rows", count(page.rows)),
                )
            ),
        ),
        card(
            "How it came",
            kv(
                (
                    ("Why", entry.reason if entry else ""),
                    ("Approved by", ", ".join(entry.approved_by) if entry else ""),
                    ("Run", digest(page.run_id, "run id")),
                    ("Receipt", digest(page.receipt, "path of the receipt")),
                    (
                        "Questions",
                        el(
                            "a",
                            "answered from evidence",
                            href=addresses.ask(page.dataset_id, page.generation),
                        ),
                    ),
                )
            ),
        ),
        card(
            "Take it with you",
            el("p", el("small", "Everything that proves it, in one file that needs no network.")),
            command(f"kfm bundle {page.dataset_id}@{page.generation} -o {page.dataset_id}.zip"),
            el("p", el("small", page.cite)),
        ),
    ]
