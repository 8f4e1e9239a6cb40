"""CSV as the csv module means it (quotes, line ends inside cells), read in blocks with exact line numbers."""

import csv
import io
import re
from collections import Counter
from collections.abc import Iterator
from functools import lru_cache
from itertools import chain, islice
from typing import NamedTuple, NoReturn

from kfm.connectors.base import MOST_COLUMNS, InputFile, Refused
from kfm.connectors.geometry import Problem
from kfm.connectors.rows import Batch, Loose
from kfm.connectors.text import text_blocks

__all__ = ["CsvReader"]

# A NUL never reaches us (the text reader refuses it), so a line of one shows whether a quote was open when the block ended.
_END = "\x00"
_MAX_CELL = 16 << 20
_DELIMITERS = ",;\t|"
_GLUED = re.compile("[\r\n]\ufeff")


class _Chunk(NamedTuple):
    rows: list[list[str]]
    starts: list[int]  # first line of each row
    ends: list[int]  # last line of each row
    text: str
    first: int  # number of the first line of `text`
    next: int  # number of the line after the last row
    open: bool = False  # the last row has no line break behind it

    def raw(self, index: int) -> str:
        lines = _lines(self.text)
        return "".join(lines[self.starts[index] - self.first : self.ends[index] - self.first + 1]).rstrip("\r\n")


@lru_cache(1)
def _lines(text: str) -> list[str]:
    """Split once, however many of its rows are asked for."""
    return list(io.StringIO(text, newline=""))


class CsvReader:
    """One CSV file with a header line."""

    def __init__(self, source: InputFile, encoding: str | None) -> None:
        self._source, self._encoding = source, encoding
        self.source_id = source.source_id
        self.warnings: set[str] = set()

    def loose(self) -> Iterator[list[Loose]]:
        """Rows as dicts of text; an empty cell is None."""
        for header, chunk in self._chunks():
            yield [self._loose(header, chunk, i) for i in range(len(chunk.rows))]

    def _loose(self, header: list[str], chunk: _Chunk, index: int) -> Loose:
        cells = chunk.rows[index]
        if len(cells) != len(header):
            return Loose(chunk.starts[index], lambda: chunk.raw(index), None, _ragged(cells, header))
        return Loose(chunk.starts[index], lambda: chunk.raw(index), {k: v or None for k, v in zip(header, cells)})

    def batches(self, names: tuple[str, ...]) -> Iterator[Batch]:
        """Rows as columns of text."""
        wanted = set(names)
        for header, chunk in self._chunks():
            rows, bad = chunk.rows, {}
            if set(map(len, rows)) != {len(header)}:
                bad = {i: _ragged(r, header) for i, r in enumerate(rows) if len(r) != len(header)}
                rows = [r if i not in bad else [""] * len(header) for i, r in enumerate(rows)]
            columns = dict(zip(header, zip(*rows)))
            unknown = tuple(h for h in header if h not in wanted)
            known = {k: v for k, v in columns.items() if k in wanted}
            yield Batch(self.source_id, len(rows), known, chunk.starts.__getitem__, chunk.raw, bad, unknown, cells=True)

    def _chunks(self) -> Iterator[tuple[list[str], _Chunk]]:
        header: list[str] = []
        for chunk in self._parsed():
            if not header and chunk.rows:
                header = self._header(chunk.rows.pop(0))
                chunk.starts.pop(0), chunk.ends.pop(0)
            if chunk.rows:
                self._check_end(chunk, len(header))
                yield header, chunk

    def _check_end(self, chunk: _Chunk, width: int) -> None:
        """A last row without a line break that lacks cells was cut off."""
        if chunk.open and len(chunk.rows[-1]) < width:
            why = f"it ends on line {chunk.ends[-1]} after {len(chunk.rows[-1])} of {width} cells"
            raise Refused.cut(self.source_id, why, line=chunk.starts[-1])

    def _parsed(self) -> Iterator[_Chunk]:
        """Blocks cut after a line end outside quotes; what is left open is held for the next block."""
        csv.field_size_limit(_MAX_CELL)
        held, line, delimiter = "", 1, ""
        for block in chain(text_blocks(self._source, "csv", self._encoding), (None,)):
            final = block is None
            held += block or ""
            cut = len(held) if final else held.rfind("\n") + 1 or held.rfind("\r", 0, -1) + 1
            if not cut:
                continue
            delimiter = delimiter or self._separator(held)
            if "\ufeff" in held and (glued := _GLUED.search(held)):
                at = line + len(_lines(held[: glued.end()])) - 1
                self._refuse_syntax("the line begins with a byte order mark, as if two files were put together", at)
            chunk, used = self._parse(held[:cut], line, delimiter)
            if final and used < cut:
                at = chunk.ends[-1] + 1 if chunk.ends else line
                raise Refused.cut(self.source_id, f"it ends inside a quoted cell, which begins on line {at} or after it", line=at)
            yield chunk
            line, held = chunk.next, held[used:]
            if len(held) > 2 * _MAX_CELL:
                self._refuse_syntax("a quoted cell never ends", line)

    def _separator(self, text: str) -> str:
        return _delimiter(text)

    def _parse(self, text: str, first: int, delimiter: str) -> tuple[_Chunk, int]:
        """The whole rows of `text` and how much of it they take."""
        closing = _END if text.endswith(("\n", "\r")) else "\n" + _END
        text += closing
        rows, ends = self._rows(text, first, delimiter)
        closed = rows.pop() == [_END]
        total = ends.pop()
        count = total - 1 if closed else ends[-1] if ends else 0
        used = len(text) - len(closing) if closed else sum(map(len, islice(io.StringIO(text, newline=""), count)))
        starts = [first, *(first + e for e in ends)][: len(ends)]
        if [] in rows:  # blank lines are no records
            full = [i for i, row in enumerate(rows) if row]
            rows, starts, ends = [rows[i] for i in full], [starts[i] for i in full], [ends[i] for i in full]
        return _Chunk(rows, starts, [first + e - 1 for e in ends], text, first, first + count, closing != _END), used

    def _rows(self, text: str, first: int, delimiter: str) -> tuple[list[list[str]], list[int]]:
        """Rows and the line, counted from 1, each ends on."""
        reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter)
        try:
            rows = list(reader)
            if len(rows) == reader.line_num:  # no line end inside a cell
                return rows, list(range(1, len(rows) + 1))
            reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter)
            return rows, [reader.line_num for _ in reader]
        except csv.Error as error:
            self._refuse_syntax(str(error), first + reader.line_num - 1)

    def _header(self, cells: list[str]) -> list[str]:
        names = [c.strip() for c in self._narrow(cells)]
        twice = sorted(n for n, times in Counter(names).items() if times > 1 and n)
        if twice or not all(names):
            what = f"names {', '.join(map(repr, twice))} twice" if twice else f"has no name for column {names.index('') + 1}"
            raise Refused(
                "csv.header",
                f"The header of source {self.source_id} {what}.",
                expected="one distinct name per column",
                remedy="Report it upstream, or rename the columns in a connector.",
                source_id=self.source_id,
                columns=twice,
            )
        return names

    def _narrow(self, cells: list[str]) -> list[str]:
        if len(cells) > MOST_COLUMNS:
            raise Refused(
                "csv.header",
                f"The first line of source {self.source_id} has {len(cells):,} columns.",
                expected=f"at most {MOST_COLUMNS:,}",
                remedy="Look at the captured bytes; it may be another separator, or a table that lies on its side.",
                source_id=self.source_id,
            )
        return cells

    def _refuse_syntax(self, why: str, line: int) -> NoReturn:
        raise Refused(
            "csv.syntax",
            f"Source {self.source_id} is not valid CSV from line {line} on: {why}.",
            expected="quotes that open and close",
            remedy="The capture may be truncated; fetch it again, and report it upstream if it stays broken.",
            source_id=self.source_id,
            line=line,
        )


def _ragged(cells: list[str], header: list[str]) -> Problem:
    return "csv.columns", f"the row has {len(cells)} cells, the header has {len(header)}"


def _delimiter(text: str) -> str:
    """The separator most frequent in the header line."""
    head = text.lstrip("\r\n").split("\n", 1)[0].split("\r", 1)[0]
    return max(_DELIMITERS, key=head.count)
