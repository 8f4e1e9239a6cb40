"""What a file is by its first bytes, and the refusal of one that is plainly something else."""

import re
from typing import Literal, NoReturn

from kfm.connectors.base import InputFile, Refused

__all__ = [
    "LOOKED_AT",
    "magic_of",
    "markup_of",
    "refuse_beginning",
    "refuse_magic",
    "refuse_markup",
]

LOOKED_AT = 1024  # bytes that tell
_MAGIC = (
    (b"PK\x03\x04", "a zip archive"),
    (b"\x1f\x8b", "gzip data"),
    (b"%PDF", "a PDF document"),
    (b"PAR1", "a Parquet file"),
    (b"BZh", "bzip2 data"),
    (b"\x28\xb5\x2f\xfd", "zstd data"),
    (b"7z\xbc\xaf\x27\x1c", "a 7z archive"),
    (b"\xfd7zXZ\x00", "xz data"),
    (b"SQLite format 3\x00", "a SQLite database"),
    (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "an old Office file, or an encrypted one"),
)
# what stands before the first element: a mark, blanks, a declaration, comments
_BEFORE = rb"(?:\xef\xbb\xbf)?\s*(?:<\?[^>]*>\s*|<!--.*?-->\s*)*"
# nothing behind an element that would separate two cells: <DATE>,<TIME> is a header
_WHOLE = rb"(?:\s[^<>]*)?/?>(?!\s*[,;|\t])"
_HTML = re.compile(
    _BEFORE
    + rb"<(?:(?:!doctype\s+html|html)\b|(?:head|body|title|meta|link|script|style|h[1-6]|p|div"
    rb"|center|pre|table|br|hr|b|font|span|form|iframe|noscript)" + _WHOLE + rb")",
    re.IGNORECASE | re.DOTALL,
)
_XML = re.compile(
    rb"(?:\xef\xbb\xbf)?\s*<(?:\?xml|!--|!DOCTYPE|[A-Za-z_][\w:.-]*" + _WHOLE + rb")", re.DOTALL
)


def magic_of(head: bytes) -> str | None:
    """What kind of file begins so; None: none of those that are known by it."""
    return next((what for magic, what in _MAGIC if head.startswith(magic)), None)


def markup_of(head: bytes) -> Literal["html", "xml"] | None:
    """Whether a text begins as a web page does, or as other markup."""
    head = head[:LOOKED_AT]
    if _HTML.match(head):
        return "html"
    return "xml" if _XML.match(head) else None


def refuse_magic(head: bytes, source: InputFile, expected: str) -> None:
    """Refuse what is known by its first bytes."""
    if (what := magic_of(head)) is not None:
        raise Refused(
            "format",
            f"Source {source.source_id} is {what}.",
            expected=expected,
            remedy=(
                "Point the registry at the file itself, say with `source.packed` what it is packed"
                " in, or correct `source.kind` and `source.format`."
            ),
            source_id=source.source_id,
        )


def refuse_markup(head: bytes, source: InputFile, expected: str) -> None:
    """Refuse a web page, or other markup."""
    found = markup_of(head)
    shown = head[:LOOKED_AT].lstrip()[:24].decode("utf-8", "replace")
    if found == "html":
        raise Refused(
            "html",
            f"Source {source.source_id} begins with {shown!r}: a web page, probably an error page.",
            expected=expected,
            remedy="Open the address in a browser to see what upstream says, then run again.",
            source_id=source.source_id,
        )
    if found == "xml":
        raise Refused(
            "format",
            f"Source {source.source_id} begins with {shown!r}: XML.",
            expected=expected,
            remedy=(
                "Look at the captured bytes; if upstream sends its records as XML, register `kind:"
                " xml`."
            ),
            source_id=source.source_id,
        )


def refuse_beginning(head: bytes, source: InputFile, expected: str) -> NoReturn:
    """Refuse a file that does not begin as its format does."""
    refuse_markup(head, source, expected)
    refuse_magic(head, source, expected)
    raise Refused(
        "format",
        f"Source {source.source_id} begins with {head[:8]!r}."
        if head
        else f"Source {source.source_id} is empty: 0 bytes.",
        expected=expected,
        remedy="Look at the captured bytes; correct the address or `source.format`.",
        source_id=source.source_id,
    )
