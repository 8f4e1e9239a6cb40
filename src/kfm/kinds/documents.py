"""Text documents: one row per paragraph, with an anchor to cite it by and its place in the text.

Paragraphs are blocks between blank lines; a text without a blank line, such as raw OCR, is taken
line by line. `char_start` and `char_end` count characters of the decoded text without its byte
order mark: text[char_start:char_end] is the paragraph as it was written, `text` is the same with
every run of white space as one blank. Noise stays: what a machine misread is what the document
says.

A web page is refused, for it may be an error message, unless the registry says `html: true`. Then
its text is taken as html.parser reads it: blocks are paragraphs, `<br>` ends a line, character
references are decoded, scripts, styles and the title are left out, links and other furniture stay.
Characters are counted in that text, not in the page.

A document that falls below half of the words it has in the official version is refused, and so is a
page that asks for a password or is little more than a form: what upstream shows instead of a
document is no new version of it.

The anchor is `<document>#p<number>-<hash>`, with eight hex digits of the SHA-256 of `text`: while
neither the number nor the words change it is the same in every version, and a paragraph that was
corrected is never cited by the anchor of its old words.
"""

import codecs
import hashlib
import re
from collections.abc import Iterator
from functools import partial
from html.parser import HTMLParser
from itertools import chain
from pathlib import Path
from typing import Annotated, Any, NoReturn

import msgspec
import pyarrow.parquet as pq

from kfm.connectors.base import InputFile, Refused
from kfm.connectors.kind import RowReader, options_of
from kfm.connectors.operations import Read
from kfm.connectors.read.rows import Loose
from kfm.connectors.read.text import text_blocks
from kfm.connectors.table.sanity import Sane
from kfm.model import Column

__all__ = ["COLUMNS", "KEY", "SANITY", "About", "Options", "companions", "readers"]

COLUMNS = (
    Column(name="anchor", type="string", nullable=False),
    Column(name="document_id", type="string", nullable=False),
    Column(name="paragraph", type="integer", nullable=False),
    Column(name="heading", type="string"),  # the heading a paragraph stands under, "ARTICLE 3."
    Column(name="text", type="string", nullable=False),
    Column(name="char_start", type="integer", nullable=False),
    Column(name="char_end", type="integer", nullable=False),  # exclusive
    Column(name="words", type="integer", nullable=False),
    Column(name="title", type="string"),
    Column(name="date", type="date"),
    Column(name="nations", type="string"),
    Column(name="place", type="string"),
    Column(name="url", type="string"),
)
KEY = ("anchor",)
SANITY = (Sane("date", high="+2d"),)
_LARGEST = 64 << 20  # characters; a book is one or two million
_SMALL = 100  # words: a document that had fewer may change as it likes
# words: a page with a form, or a password field, and fewer is no document
_FORM, _LOGIN = 200, 1000
_LARGEST_PAGE = 8 << 20  # bytes of a web page
_END = re.compile(r"\r\n|\r|\n")
_WORD = re.compile(r"\S+")
_BLANK = re.compile(r"(?:\n|\r(?!\n))[^\S\r\n]*[\r\n]\s*")
_HEADING = re.compile(
    r"(?:article|section|chapter|part) (?:[0-9]+[a-z]{0,2}|[ivxlc]+)\b.{0,40}", re.IGNORECASE
)
_PAGE = re.compile(
    rb"(?:\xef\xbb\xbf)?\s*(?:<\?xml[^>]*>\s*)?(?:<!--.*?-->\s*)*<(?:!doctype\s+html|html)\b",
    re.IGNORECASE | re.DOTALL,
)
_CHARSET = re.compile(rb"<meta[^>]*?charset\s*=\s*[\"']?\s*([\w.:-]+)", re.IGNORECASE)
# comments, and the sections of some editors
_HIDDEN = re.compile(r"<!--.*?-->|<!\[[^>]*>", re.DOTALL)
_UNSEEN = {"script", "style", "title", "template"}
_BLOCK = re.compile(
    "address|article|aside|blockquote|body|caption|center|d[dlt]|details|div|fieldset|figcaption|figure|footer|form|h[1-6r]|header|html"
    "|legend|li|main|nav|[ou]l|option|p|pre|section|table|tbody|t[dhr]|tfoot|thead"
)


class About(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is known of a document beside its text."""

    id: str | None = None  # its name in anchors; else that of its source
    title: str | None = None
    date: Annotated[str, msgspec.Meta(pattern=r"^\d{4}-\d{2}-\d{2}$")] | None = None
    nations: str | None = None
    place: str | None = None
    url: str | None = None  # where it can be read


class Options(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`source.options`."""

    documents: dict[str, About] = {}  # by source id
    html: bool = False  # web pages are read too; else one is refused
    # of a web page: one with fewer is taken for an error message
    min_words: Annotated[int, msgspec.Meta(ge=1)] = 50


def readers(job: Read) -> list["_DocumentReader"]:
    """One per document."""
    options = options_of(job.options, Options)
    return [
        _DocumentReader(source, options, job.encoding, job.known_words) for source in job.inputs
    ]


class _DocumentReader(RowReader):
    def __init__(
        self, source: InputFile, options: Options, encoding: str | None, known: dict[str, int]
    ) -> None:
        super().__init__(source)
        self._source, self._options, self._encoding = source, options, encoding
        about = options.documents.get(source.source_id, About())
        self._id = about.id or source.source_id
        self._known = known.get(self._id, 0)
        self._about = {
            name: getattr(about, name) for name in ("title", "date", "nations", "place", "url")
        }

    def rows(self) -> Iterator[Loose]:
        """Every paragraph, headings included; the record number is the paragraph's."""
        document, heading = self._document(), None
        words = sum(1 for _ in _WORD.finditer(document))
        if self._known >= _SMALL and words * 2 < self._known:
            happened = f"has {words:,} words, and {self._known:,} in the official version"
            remedy = (
                "open the address to see what upstream says; if it really shrank, accept the"
                " capture with `kfm quarantine accept`"
            )
            self._refuse("document.shrunk", happened, "at least half of them", remedy)
        for number, (start, end) in enumerate(_paragraphs(document), 1):
            text = " ".join(document[start:end].split())
            heading = text if _HEADING.fullmatch(text) else heading
            digest = hashlib.sha256(text.encode()).hexdigest()[:8]
            row = {
                "anchor": f"{self._id}#p{number}-{digest}",
                "document_id": self._id,
                "paragraph": number,
                "heading": heading,
                "text": text,
                "char_start": start,
                "char_end": end,
                "words": text.count(" ") + 1,
                **self._about,
            }
            yield Loose(number, partial(str, text), row)

    def _document(self) -> str:
        if self._options.html:
            with self.path.open("rb") as file:
                data = file.read(_LARGEST_PAGE + 1)
            if _PAGE.match(data[:4096]):
                return self._page(data)
        parts, size = [], 0
        for block in text_blocks(self._source, "plain", self._encoding, self.warnings):
            size += len(block)
            if size > _LARGEST:
                self._refuse_size(f"{_LARGEST:,} characters")
            parts.append(block)
        text = "".join(parts)
        if not text.strip():
            self._refuse(
                "empty",
                "holds nothing but white space",
                "at least one paragraph",
                "look at what upstream sends and run again",
            )
        return text

    def _page(self, data: bytes) -> str:
        """The text of a web page, in the registered encoding, or the one the page states."""
        if len(data) > _LARGEST_PAGE:
            self._refuse_size(f"{_LARGEST_PAGE:,} bytes")
        try:
            page = data.decode(self._encoding or _encoding(data))
        except (UnicodeError, LookupError) as error:
            self._refuse(
                "encoding",
                f"cannot be decoded: {error}",
                "the encoding it states",
                "state `encoding` under `source` and run again",
            )
        if page.startswith("\ufeff"):
            self.warnings.add(
                f"Source {self.source_id} begins with a byte order mark, which is left out."
            )
            page = page[1:]
        if "\0" in page:
            self._refuse("encoding", "holds a NUL", "text", "look at the captured bytes")
        # the parser would look for the end again and again
        if "<" in page.rpartition(">")[2] or page.rfind("<!--") > page.rfind("-->"):
            self._refuse(
                "document.html",
                "ends inside a tag or a comment",
                "a whole web page",
                "fetch it again",
            )
        shown = _Text.of(_HIDDEN.sub("", page))
        text = shown.text
        for there, most, what in (
            (shown.asks_password, _LOGIN, "asks for a password"),
            (shown.has_form, _FORM, "is little more than a form"),
        ):
            if there and (words := len(text.split())) < most:
                remedy = (
                    "open the address in a browser: it may want you to log in, and then another"
                    " address is needed"
                )
                self._refuse(
                    "document.form",
                    f"{what}, with {words} words beside it",
                    f"a document, with {most} words or more",
                    remedy,
                )
        if (words := len(text.split())) < (least := self._options.min_words):
            happened, remedy = (
                f"is a web page of {words} words, perhaps an error message",
                "open the address in a browser, then run again",
            )
            self._refuse(
                "document.short",
                happened,
                f"`min_words` in source.options, {least}, or more",
                remedy,
            )
        return text

    def _refuse_size(self, limit: str) -> NoReturn:
        remedy = "cut it into documents, or register it as another kind of source"
        self._refuse("document.size", f"is longer than {limit}", "one document per file", remedy)

    def _refuse(self, code: str, happened: str, expected: str, remedy: str) -> NoReturn:
        remedy = f"Nothing is published from it; {remedy}."
        raise Refused(
            code,
            f"Source {self.source_id} {happened}.",
            expected=expected,
            remedy=remedy,
            source_id=self.source_id,
        )


def _encoding(page: bytes) -> str:
    """What the page states; browsers read Latin-1 as the code page 1252, and so did those who wrote
    it.
    """
    stated = None if page.startswith(codecs.BOM_UTF8) else _CHARSET.search(page[:4096])
    name = codecs.lookup(stated[1].decode("ascii", "replace")).name if stated else "utf-8"
    if not re.fullmatch(r"utf-8|ascii|iso8859-\d+|cp125\d", name):
        raise LookupError(f"it states the encoding {name}")
    return "cp1252" if name in ("iso8859-1", "ascii") else name


class _Text(HTMLParser):
    """Collects what a page shows; white space of the source, line ends too, is one blank except in
    `<pre>`.
    """

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self._parts: list[str] = []
        self._unseen = ""  # the element whose text is left out
        self._as_is = False
        self.has_form = self.asks_password = False

    @classmethod
    def of(cls, page: str) -> "_Text":
        parser = cls()
        parser.feed(page)
        parser.close()
        return parser

    @property
    def text(self) -> str:
        return "".join(self._parts)

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self._unseen = self._unseen or (tag if tag in _UNSEEN else "")
        self.has_form = self.has_form or tag == "form"
        self.asks_password |= tag == "input" and any(
            k == "type" and (v or "").strip().lower() == "password" for k, v in attrs
        )
        self._as_is = self._as_is or tag == "pre"
        self._parts.append("\n\n" if _BLOCK.fullmatch(tag) else "\n" if tag == "br" else "")

    def handle_endtag(self, tag: str) -> None:
        self._unseen = "" if tag == self._unseen else self._unseen
        self._as_is = self._as_is and tag != "pre"
        self._parts.append("\n\n" if _BLOCK.fullmatch(tag) else "")

    def handle_data(self, data: str) -> None:
        if not self._unseen:
            self._parts.append(data if self._as_is else re.sub(r"[ \t\r\n\f]+", " ", data))


def _paragraphs(text: str) -> Iterator[tuple[int, int]]:
    """Where each begins and ends, white space around it left out."""
    between = _BLANK if _BLANK.search(text.strip()) else _END
    start = 0
    for stop, after in chain((m.span() for m in between.finditer(text)), [(len(text), len(text))]):
        piece = text[start:stop]
        if piece.strip():
            first = start + len(piece) - len(piece.lstrip())
            yield first, first + len(piece.strip())
        start = after


def companions(job: Read, scratch: Path) -> tuple[str, ...]:
    """The same paragraphs as NDJSON, for those who read line by line."""
    name = f"{job.artifact.rpartition('.')[0]}.ndjson"
    encode = msgspec.json.Encoder(order="deterministic").encode
    with pq.ParquetFile(scratch / job.artifact) as table, (scratch / name).open("wb") as out:
        for batch in table.iter_batches(batch_size=4096):
            out.writelines(encode(row) + b"\n" for row in batch.to_pylist())
        rows = table.metadata.num_rows
    with (scratch / name).open("rb") as made:  # as whoever takes it line by line will read it
        if sum(isinstance(msgspec.json.decode(line), dict) for line in made) != rows:
            raise OSError(f"{name} cannot be read back as it was written")
    return (name,)
