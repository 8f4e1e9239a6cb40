"""Feeds: new versions as Atom (RFC 4287), of one dataset and of all that whoever asks may know of.

What is told is filtered first. Names of feeds and entries are made of what is signed, so that they
are the same wherever a feed is read, and nothing in one depends on the moment it is asked for.
"""

import re
import uuid
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple
from xml.sax.saxutils import escape, quoteattr

from litestar import Response
from litestar.handlers import HTTPRouteHandler

from kfm.access.references import generations_of
from kfm.data.history import Change, Entry, history
from kfm.evidence.append_times import appended_at
from kfm.model import DatasetEntry, Generation
from kfm.reader.door import Asking
from kfm.reader.kinds import ATOM
from kfm.reader.route import reads

__all__ = ["ROUTES", "in_words"]

_MOST = 50  # entries in a feed; the channel has all
_NEVER = "1970-01-01T00:00:00Z"  # of a moment that nothing tells
_NO_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


class _Told(NamedTuple):
    """One generation, as an entry tells it."""

    dataset: DatasetEntry
    entry: Entry
    name: str
    updated: str
    title: str
    words: str


@reads("/feed", media=ATOM)
def of_all(asking: Asking) -> Response[bytes]:
    """New versions of every dataset that may be shown, newest first, as Atom."""
    found = {entry.dataset_id: entry for entry, _, _ in asking.datasets()}
    newest = sorted(
        (
            (appended_at(asking.world, made) or _NEVER, name, made.generation)
            for name in found
            for made in generations_of(asking.world, name)[-_MOST:]
        ),
        reverse=True,
    )[:_MOST]
    first: dict[str, int] = {}
    for _, name, number in newest:
        first[name] = min(number, first.get(name, number))
    told = [one for name in first for one in _told(asking, found[name], first[name])]
    trust = asking.world.keys.trust()
    return _feed(
        asking,
        name=_urn(f"all {trust.fingerprint if trust is not None else asking.address}"),
        title="What is published here",
        paths=("/feed", "/datasets"),
        author="kfm",
        told=sorted(told, key=lambda one: (one.updated, one.entry.generation), reverse=True),
    )


@reads("/datasets/{dataset_id:str}/feed", media=ATOM)
def of_one(asking: Asking, dataset_id: str) -> Response[bytes]:
    """What became of a dataset, newest first, as Atom: new versions, and what was rolled back or
    withdrawn.
    """
    asking.known(dataset_id)
    entry = asking.workspace.require(dataset_id)
    return _feed(
        asking,
        name=_urn(f"feed {generations_of(asking.world, dataset_id)[0].file_digest}"),
        title=entry.title,
        paths=(f"/datasets/{dataset_id}/feed", f"/datasets/{dataset_id}"),
        author=_author(entry),
        told=list(_told(asking, entry)),
    )


def _told(asking: Asking, dataset: DatasetEntry, first: int = 0) -> Iterator[_Told]:
    """The generations of a dataset down to the `first`, newest first; one that changed nothing is
    left out.
    """
    made = {g.generation: g for g in generations_of(asking.world, dataset.dataset_id)}
    most = min(_MOST, sum(number >= first for number in made))
    past = history(asking.world, dataset.dataset_id, asking.viewer.reader, most).generations
    for entry in past:
        if entry.kind != "void":
            # what was told is told anew when it is taken away
            gone = _gone_by(entry, past)
            yield _Told(
                dataset=dataset,
                entry=entry,
                name=_urn(made[entry.generation].file_digest),
                updated=(gone or entry).at or _NEVER,
                title=f"{dataset.title}, generation {entry.generation}: {_title(entry)}",
                words=in_words(entry, _came(made, entry.version_id)),
            )


def _gone_by(entry: Entry, past: Iterable[Entry]) -> Entry | None:
    """The withdrawal after which what an entry tells of may not be had any more."""
    if entry.version_id is None or entry.rows is not None:
        return None
    later = (e for e in past if e.generation > entry.generation and e.kind == "withdraw")
    return min(later, key=lambda e: e.generation, default=None)


def _title(entry: Entry) -> str:
    if entry.version_id is not None and entry.rows is None:
        return "no longer shown"
    if entry.kind == "withdraw":
        return "withdrawn" if entry.version_id is None else "records withdrawn"
    return "rolled back" if entry.kind == "rollback" else "new version"


def _came(made: Mapping[int, Generation], version_id: str | None) -> int:
    """The generation that a version came with."""
    return min((n for n, g in made.items() if g.version_id == version_id), default=0)


def in_words(entry: Entry, came: int) -> str:
    """What a generation changed, in sentences; its version came with the generation `came`."""
    if entry.version_id is None:
        return "Everything was withdrawn: nothing of this dataset is official from here on."
    if entry.rows is None:
        return "This version may not be had any more."
    said = []
    if entry.kind == "rollback":
        back = f" of generation {came}" if came < entry.generation else ""
        said.append(f"What is official went back to the version{back}.")
    elif entry.kind == "withdraw":
        said.append("Records were withdrawn.")
    said.append(f"It has {entry.rows:,} {'row' if entry.rows == 1 else 'rows'}.")
    if entry.change is not None:
        said.append(_changed(entry.change))
    elif entry.generation == 1:
        said.append("It is the first.")
    # what started a run is no reason
    said += [f"Why: {entry.reason}"] if entry.reason not in ("", entry.trigger) else []
    return " ".join(said)


def _changed(change: Change) -> str:
    """Against what was official before."""
    if change.added is None:
        many = abs(change.rows)
        more = "more" if change.rows > 0 else "fewer"
        rows = f"{many:,} {more} than before" if many else "as many as before, not all the same"
    else:
        rows = f"{change.added:,} came, {change.removed:,} went, {change.changed:,} changed"
    said = [f"Of the rows {rows}." if change.added is not None else f"That is {rows}."]
    for names, what in ((change.columns_added, "New"), (change.columns_removed, "Gone")):
        said += [f"{what} columns: {', '.join(names)}."] if names else []
    return " ".join(said)


# ---- Atom ----------------------------------------------------------------------------------------
def _feed(
    asking: Asking, name: str, title: str, paths: tuple[str, str], author: str, told: list[_Told]
) -> Response[bytes]:
    own, page = (f"{asking.address}{path}" for path in paths)
    parts = [
        _el("id", name),
        _el("title", title),
        _el("updated", max((one.updated for one in told), default=_NEVER)),
        _link("self", ATOM, own),
        _link("alternate", "text/html", page),
        _author_el(author),
        _el("generator", "kfm"),
        *(_entry(asking, one) for one in told),
    ]
    whole = f'<feed xmlns="http://www.w3.org/2005/Atom" xml:lang="en">{"".join(parts)}</feed>'
    return Response(f'<?xml version="1.0" encoding="utf-8"?>\n{whole}\n'.encode(), media_type=ATOM)


def _entry(asking: Asking, one: _Told) -> str:
    entry, at = one.entry, f"{asking.address}/datasets/{one.dataset.dataset_id}"
    # a version that may not be had has no page: its dataset says how things are
    page = f"{at}/versions/{entry.generation}" if entry.rows is not None else at
    parts = [
        _el("id", one.name),
        _el("title", one.title),
        _el("updated", one.updated),
        _el("published", entry.at) if entry.at else "",
        _link("alternate", "text/html", page),
        _author_el(_author(one.dataset)),
        _el("rights", one.dataset.licence) if one.dataset.licence else "",
        _el("summary", one.words),
    ]
    return _raw("entry", "".join(parts))


def _author(dataset: DatasetEntry) -> str:
    owners = [owner.partition("<")[0].strip() for owner in dataset.owners]
    return next(filter(None, (dataset.custodian, *owners)), "kfm")


def _author_el(name: str) -> str:
    return _raw("author", _el("name", name))


def _urn(what: str) -> str:
    """A name that is the same for ever and nobody else's."""
    return uuid.uuid5(uuid.NAMESPACE_URL, f"kfm {what}").urn


def _link(rel: str, kind: str, href: str) -> str:
    return f"<link rel={quoteattr(rel)} type={quoteattr(kind)} href={quoteattr(href)}/>"


def _el(tag: str, text: str) -> str:
    return _raw(tag, escape(_NO_XML.sub("\ufffd", text)))


def _raw(tag: str, inside: str) -> str:
    return f"<{tag}>{inside}</{tag}>"


ROUTES: tuple[HTTPRouteHandler, ...] = (of_all, of_one)
