"""Passages of a published version: the paragraphs of documents, else the text of each row of a
table.
"""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from kfm.model import MissingExtra

__all__ = ["Passage", "passages"]

_DECODER = json.JSONDecoder()
_LONGEST = 2000  # characters of one row of a table
_DOCUMENT = (
    "anchor",
    "document_id",
    "paragraph",
    "heading",
    "text",
    "char_start",
    "char_end",
    "title",
    "date",
    "nations",
    "place",
)
_AROUND = ("title", "nations", "place", "date", "heading")  # what a paragraph is also found by


class Passage(NamedTuple):
    """A piece of text and where it stands."""

    text: str
    context: str
    file: str
    row: int
    span: tuple[int, int] | None = None  # bytes of the file that are the text
    about: Mapping[str, Any] = {}  # what a citation says beside that


def passages(files: Mapping[str, Path]) -> Iterator[Passage]:
    """Every passage of the tables among `files`, in the order of the files and their rows."""
    for name in sorted(files):
        stem, _, kind = name.rpartition(".")
        beside = f"{stem}.ndjson"
        if kind != "parquet":
            continue
        if beside in files:
            yield from _lines(beside, files[beside])
        else:
            yield from _rows(name, files[name])


def _lines(name: str, path: Path) -> Iterator[Passage]:
    """A table as lines of JSON, where the text of a paragraph has its own place in the file."""
    at = 0
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            row = json.loads(line)
            if _is_paragraph(row):
                # a quote inside a value has a backslash before it: no value looks like this
                first = line.find(b'"text":"') + 8
                tail = line[first - 1 :].decode()
                last = (
                    first - 2 + len(tail[: _DECODER.raw_decode(tail)[1]].encode())
                    if first > 7
                    else 0
                )
                yield _paragraph(row, name, number, (at + first, at + last) if first > 7 else None)
            elif text := _words(row):
                yield Passage(text, "", name, number)
            at += len(line)


def _rows(name: str, path: Path) -> Iterator[Passage]:
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError as error:
        raise MissingExtra(
            "Tables cannot be read.", expected="pyarrow", remedy="Run `pip install 'kfm[geo]'`."
        ) from error
    number = 0
    with pq.ParquetFile(path) as table:
        fields = {f.name: f.type for f in table.schema_arrow}
        if set(_DOCUMENT) <= set(fields):
            columns = list(_DOCUMENT)
        else:
            columns = [
                n for n, t in fields.items() if pa.types.is_string(t) or pa.types.is_large_string(t)
            ]
        for batch in table.iter_batches(batch_size=4096, columns=columns) if columns else ():
            for row in batch.to_pylist():
                number += 1
                if _is_paragraph(row):
                    yield _paragraph(row, name, number, None)
                elif text := _words(row):
                    yield Passage(text, "", name, number)


def _is_paragraph(row: Mapping[str, Any]) -> bool:
    return (
        isinstance(row.get("text"), str)
        and isinstance(row.get("document_id"), str)
        and isinstance(row.get("paragraph"), int)
    )


def _paragraph(
    row: Mapping[str, Any], file: str, number: int, span: tuple[int, int] | None
) -> Passage:
    about = {
        name: row[name]
        for name in ("document_id", "paragraph", "anchor", "heading", "title")
        if row.get(name) is not None
    }
    if row.get("char_end") is not None:
        about["characters"] = (row["char_start"], row["char_end"])
    around = ". ".join(str(row[name]) for name in _AROUND if row.get(name))
    return Passage(row["text"], around, file, number, span, about)


def _words(row: Mapping[str, Any]) -> str:
    return " · ".join(v for v in row.values() if isinstance(v, str) and v)[:_LONGEST]
