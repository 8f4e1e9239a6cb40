"""Whether a document says that it is not all: what looks like a file may be the first page of many."""

from collections.abc import Iterator
from pathlib import Path

import msgspec

from kfm.connectors.operations import Read

__all__ = ["told_of_more"]

_MOST = 1 << 20  # bytes; a page is small, and what is not is read for its records alone
# how a way to the next page is called, without hyphens, underscores and capitals
_NEXT = frozenset(
    ("next", "nexturl", "nextlink", "nextpage", "nexttoken", "nextpagetoken", "nextcursor", "after")
)


def told_of_more(job: Read) -> tuple[str, ...]:
    """A warning where the only input names a page behind it that nobody asked for."""
    if job.source_kind != "http_file" or job.format not in ("json", "geojson"):
        return ()
    if len(job.inputs) != 1 or (path := Path(job.inputs[0].path)).stat().st_size > _MOST:
        return ()
    try:
        document = msgspec.json.decode(path.read_bytes())
    # a record to each line, another encoding, or too deep to look into
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return ()
    for place in _places(document):
        return (
            f"The answer names a page behind it ({place}), which was not asked for: this may be the"
            " first of many. `ask.pages` in connector.py follows them.",
        )
    return ()


def _places(document: object) -> Iterator[str]:
    """Where a document names its next page: at its top, one level below, or in a list of links."""
    if not isinstance(document, dict):
        return
    for key, value in document.items():
        if _leads_on(key, value):
            yield key
        elif isinstance(value, dict):
            yield from (f"{key}.{inner}" for inner, v in value.items() if _leads_on(inner, v))
        elif key == "links" and isinstance(value, list) and any(map(_is_next, value)):
            yield "links[rel=next]"


def _is_next(link: object) -> bool:
    return isinstance(link, dict) and link.get("rel") == "next"


def _leads_on(key: str, value: object) -> bool:
    plain = key.lower().rpartition(".")[2].replace("_", "").replace("-", "")
    return plain in _NEXT and bool(value) and isinstance(value, str | int)
