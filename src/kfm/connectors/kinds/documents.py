"""Text documents: one row per paragraph, with an anchor to cite it by and its place in the text.

Paragraphs are blocks between blank lines; a text without a blank line, such as raw OCR, is taken line by line. `char_start` and `char_end`
count characters of the decoded text without its byte order mark: text[char_start:char_end] is the paragraph as it was written, `text` is
the same with every run of white space as one blank. Noise stays: what a machine misread is what the document says.

The anchor is `<document>#p<number>-<hash>`, with eight hex digits of the SHA-256 of `text`: while neither the number nor the words change
it is the same in every version, and a paragraph that was corrected is never cited by the anchor of its old words.
"""

import hashlib
import re
from collections.abc import Iterator
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Annotated

import msgspec
import pyarrow.parquet as pq

from kfm.connectors.base import InputFile, Refused, TransformJob
from kfm.connectors.kinds.base import RowReader, options_of
from kfm.connectors.rows import Loose
from kfm.connectors.text import text_blocks
from kfm.model.dataset import Column

__all__ = ["COLUMNS", "KEY", "About", "Options", "companions", "readers"]

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
_LARGEST = 64 << 20  # characters; a book is one or two million
_END = re.compile(r"\r\n|\r|\n")
_BLANK = re.compile(r"(?:\n|\r(?!\n))[^\S\r\n]*[\r\n]\s*")
_HEADING = re.compile(r"(?:article|section|chapter|part) (?:[0-9]+[a-z]{0,2}|[ivxlc]+)\b.{0,40}", re.IGNORECASE)


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


def readers(job: TransformJob) -> list["_DocumentReader"]:
    """One per document."""
    about = options_of(job.options, Options).documents
    return [_DocumentReader(source, about.get(source.source_id, About()), job.encoding) for source in job.inputs]


class _DocumentReader(RowReader):
    def __init__(self, source: InputFile, about: About, encoding: str | None) -> None:
        super().__init__(source)
        self._source, self._encoding = source, encoding
        self._id = about.id or source.source_id
        self._about = {name: getattr(about, name) for name in ("title", "date", "nations", "place", "url")}

    def rows(self) -> Iterator[Loose]:
        """Every paragraph, headings included; the record number is the paragraph's."""
        document, heading = self._document(), None
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
        parts, size = [], 0
        for block in text_blocks(self._source, "plain", self._encoding):
            size += len(block)
            if size > _LARGEST:
                raise Refused(
                    "document.size",
                    f"Source {self.source_id} is longer than {_LARGEST:,} characters.",
                    expected="one document per file",
                    remedy="Cut it into documents, or register it as another kind of source.",
                    source_id=self.source_id,
                )
            parts.append(block)
        text = "".join(parts)
        if not text.strip():
            raise Refused(
                "empty",
                f"Source {self.source_id} holds nothing but white space.",
                expected="at least one paragraph",
                remedy="Nothing is published from it; look at what upstream sends and run again.",
                source_id=self.source_id,
            )
        return text


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


def companions(job: TransformJob, scratch: Path) -> tuple[str, ...]:
    """The same paragraphs as NDJSON, for those who read line by line."""
    name = f"{job.artifact.rpartition('.')[0]}.ndjson"
    encode = msgspec.json.Encoder(order="deterministic").encode
    with pq.ParquetFile(scratch / job.artifact) as table, (scratch / name).open("wb") as out:
        for batch in table.iter_batches(batch_size=4096):
            out.writelines(encode(row) + b"\n" for row in batch.to_pylist())
    return (name,)
