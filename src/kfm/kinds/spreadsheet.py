"""A sheet of an .xlsx or .ods file: the names of the columns stand in one row or in several, the
records below them.
"""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Annotated

import msgspec

from kfm.connectors.base import MOST_COLUMNS, InputFile, refuse_record
from kfm.connectors.kind import HeadedReader, in_utc, options_of, zone_of
from kfm.connectors.mapping import column_names
from kfm.connectors.operations import Read
from kfm.connectors.read.geometry import Problem
from kfm.connectors.read.ods import OdsBook
from kfm.connectors.read.rows import Loose
from kfm.connectors.read.sheets import Book, Cells, Span, opened, refuse_sheet
from kfm.connectors.read.xlsx import XlsxBook, letters

__all__ = ["Options", "readers"]

MAX_BYTES = 1 << 30  # of the file, unpacked; and of the text of all its cells
_MOST_MERGED = 1 << 24  # rows and columns that merged cells take up
RowNumber = Annotated[int, msgspec.Meta(ge=1, le=1 << 20)]


class Options(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What may be registered for a spreadsheet."""

    # by its name, or its number from 1
    sheet: Annotated[str, msgspec.Meta(min_length=1)] | Annotated[int, msgspec.Meta(ge=1)] = 1
    # the row with the names of the columns, or the rows whose names are joined from top to bottom
    header: (
        RowNumber | Annotated[tuple[RowNumber, ...], msgspec.Meta(min_length=1, max_length=4)]
    ) = 1
    nulls: tuple[str, ...] = ()  # texts that mean "no value"; a blank cell always does
    time_zone: str | None = None  # of times, which a spreadsheet knows no zone of
    max_bytes: Annotated[int, msgspec.Meta(ge=1)] = MAX_BYTES

    @property
    def rows(self) -> tuple[int, ...]:
        return (self.header,) if isinstance(self.header, int) else self.header


def readers(job: Read) -> list["_Reader"]:
    """One reader per file."""
    options = options_of(job.options, Options)
    return [_Reader(source, job.format, options) for source in job.inputs]


class _Header:
    """Which column is called what, and where cells are merged below the names."""

    def __init__(
        self, source_id: str, options: Options, rows: dict[int, Cells], spans: list[Span]
    ) -> None:
        self._source_id, self._options = source_id, options
        if sum(s.bottom - s.top + s.right - s.left for s in spans) > _MOST_MERGED:
            refuse_sheet(
                source_id, "merged", f"it has {len(spans):,} merged cells", "fewer, or smaller ones"
            )
        texts = {row: {i: c.text for i, c in cells.items()} for row, cells in rows.items()}
        for span in spans:  # what stands over several columns is a part of the name of each
            for row in set(options.rows) & set(range(span.top, span.bottom + 1)):
                named = texts.get(span.top, {}).get(span.left, "")
                for i in range(span.left, min(span.right + 1, MOST_COLUMNS)):
                    texts.setdefault(row, {}).setdefault(i, named)
        joined: dict[int, str] = {}
        for row in options.rows:
            for i, text in texts.get(row, {}).items():
                if text and text not in joined.get(i, "").split("\n"):
                    joined[i] = f"{joined[i]}\n{text}" if i in joined else text
        self._check(joined)
        names = {i: " ".join(joined[i].split()) for i in sorted(joined)}
        clean = column_names(names.values())
        self.names = {i: clean[name] for i, name in names.items()}
        last = max(options.rows)
        self.covered: dict[int, Span] = {
            row: span
            for span in spans
            if span.bottom > last and any(span.left <= i <= span.right for i in self.names)
            for row in range(max(span.top + (span.left == span.right), last + 1), span.bottom + 1)
        }

    def _check(self, joined: dict[int, str]) -> None:
        where = " and ".join(map(str, self._options.rows))
        if not joined:
            refuse_sheet(
                self._source_id,
                "header",
                f"row {where} holds no names",
                "a row with the names of the columns",
                "Say with `header` in source.options in which row they stand.",
            )
        names = [" ".join(text.split()) for text in joined.values()]
        if twice := [name for name, n in Counter(names).items() if n > 1]:
            refuse_sheet(
                self._source_id,
                "header",
                f"row {where} names {', '.join(map(repr, twice[:10]))} twice",
                "one distinct name per column",
                "Name more rows with `header` in source.options if names stand above each other.",
            )
        if len(names) > MOST_COLUMNS:
            refuse_sheet(
                self._source_id,
                "header",
                f"it has {len(names):,} columns",
                f"at most {MOST_COLUMNS:,}",
            )


class _Reader(HeadedReader):
    """The records of one sheet."""

    def __init__(self, source: InputFile, form: str, options: Options) -> None:
        super().__init__(source)
        self._source, self._form, self._options = source, form, options
        self._found: _Header | None = None
        self._zone = zone_of(options.time_zone)

    @contextmanager
    def _sheet(self) -> Iterator[tuple[Book, int]]:
        with opened(self._source, self._form, self._options.max_bytes) as archive:
            make = XlsxBook if self._form == "xlsx" else OdsBook
            book: Book = make(archive, self.source_id)
            yield book, self._number(book.names)

    def _number(self, names: list[str]) -> int:
        wanted = self._options.sheet
        if isinstance(wanted, int) and wanted <= len(names):
            return wanted - 1
        if not isinstance(wanted, str) or names.count(wanted) != 1:
            listed = ", ".join(map(repr, names[:20])) or "none"
            refuse_sheet(
                self.source_id,
                "sheet",
                f"it has no sheet {wanted!r}; there are: {listed}",
                "a sheet by its name, or its number from 1",
                "Correct `sheet` in source.options.",
            )
        return names.index(wanted)

    def header(self) -> tuple[str, ...]:
        return tuple(self._header().names.values())

    def _header(self) -> _Header:
        if self._found is None:
            with self._sheet() as (book, sheet):
                wanted, rows = self._options.rows, dict[int, Cells]()
                for row, cells in book.rows(sheet):
                    if row > max(wanted):
                        break
                    rows |= {row: cells}
                self._found = _Header(self.source_id, self._options, rows, book.spans(sheet))
        return self._found

    def rows(self) -> Iterator[Loose]:
        header, nulls, size = self._header(), set(self._options.nulls), 0
        last, row = max(self._options.rows), 0
        with self._sheet() as (book, sheet):
            for row, cells in book.rows(sheet):
                if row <= last:
                    continue
                length = sum(len(c.text) for c in cells.values())
                size += length
                if length > self.record_limit:
                    refuse_record(self.source_id, row, self.record_limit)
                if size > self._options.max_bytes:
                    refuse_sheet(
                        self.source_id,
                        "size",
                        f"its cells hold more than {self._options.max_bytes:,} characters",
                        f"at most {self._options.max_bytes:,}: `max_bytes` in source.options",
                    )
                yield self._loose(header, row, cells, nulls)
            if row <= last and len(book.names) > 1 and isinstance(self._options.sheet, int):
                listed = ", ".join(map(repr, book.names[:20]))
                refuse_sheet(
                    self.source_id,
                    "sheet",
                    f"its sheet {book.names[sheet]!r} has no record; there are: {listed}",
                    "the sheet with the records, by its name",
                    "Say with `sheet` in source.options which one that is.",
                )

    def _loose(self, header: _Header, row: int, cells: Cells, nulls: set[str]) -> Loose:
        values: dict[str, str | None] = dict.fromkeys(header.names.values())
        problem = self._merged(header, row)
        for i, cell in sorted(cells.items()):
            text, wrong = cell.text, cell.problem
            if cell.moment is not None and self._zone is not None:
                moved = in_utc(cell.moment, self._zone)
                if moved is None:
                    wrong = ("type", f"{letters(i)}{row}: the hour of {text} is not certain")
                text = moved or text
            if i not in header.names:
                wrong = wrong or (
                    "spreadsheet.columns",
                    f"{letters(i)}{row} holds {text[:40]!r}, and its column has no name",
                )
            else:
                values[header.names[i]] = None if text in nulls else text or None
            problem = problem or wrong
        raw = partial(_shown, cells)
        if problem is not None:
            return Loose(row, raw, None, problem, values)
        return Loose(row, raw, values)

    def _merged(self, header: _Header, row: int) -> Problem | None:
        if (span := header.covered.get(row)) is None:
            return None
        where = f"{letters(span.left)}{span.top}:{letters(span.right)}{span.bottom}"
        return (
            "spreadsheet.merged",
            f"the cells {where} are one, so what this row holds is not known",
        )


def _shown(cells: Cells) -> str:
    return msgspec.json.encode({letters(i): c.text for i, c in sorted(cells.items())}).decode()
