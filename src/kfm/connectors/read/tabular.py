"""CSV as the csv module means it (quotes, line ends inside cells), read in blocks with exact line
numbers.
"""

import csv
import io
import re
import sys
from collections import Counter
from collections.abc import Iterator
from functools import lru_cache
from itertools import chain, islice
from typing import NamedTuple, NoReturn

from kfm.connectors.base import MOST_COLUMNS, RECORD_BYTES, InputFile, Refused, refuse_record
from kfm.connectors.read.geometry import Problem
from kfm.connectors.read.rows import Batch, Loose
from kfm.connectors.read.text import line_ends, text_blocks, warn_of_ends

__all__ = ["CsvReader"]

# A NUL never reaches us (the text reader refuses it), so a line of one shows whether a quote was
# open when the block ended.
_END = "\x00"
# characters: what is longer is not given to the csv module, which takes four bytes for each and
# copies them twice
_LONG = 8 << 20
_DELIMITERS = ",;\t|"
_GLUED = re.compile("[\r\n]\ufeff")
_LINE = re.compile(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+")


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
        return "".join(
            lines[self.starts[index] - self.first : self.ends[index] - self.first + 1]
        ).rstrip("\r\n")


@lru_cache(1)
def _lines(text: str) -> list[str]:
    """Split once, however many of its rows are asked for."""
    return _LINE.findall(text) if len(text) > _LONG else list(io.StringIO(text, newline=""))


class CsvReader:
    """One CSV file with a header line."""

    record_limit = RECORD_BYTES

    def __init__(self, source: InputFile, encoding: str | None) -> None:
        self._source, self._encoding = source, encoding
        self.source_id = source.source_id
        self.warnings: set[str] = set()
        self._again: dict[int, None] = {}  # lines on which the header stands again

    def loose(self) -> Iterator[list[Loose]]:
        """Rows as dicts of text; an empty cell is None."""
        for header, chunk in self._chunks():
            bad = self._headers_again(header, chunk)
            yield [self._loose(header, chunk, i, bad.get(i)) for i in range(len(chunk.rows))]

    def _loose(
        self, header: list[str], chunk: _Chunk, index: int, problem: Problem | None
    ) -> Loose:
        cells = chunk.rows[index]
        if len(cells) != len(header) or problem is not None:
            return Loose(
                chunk.starts[index],
                lambda: chunk.raw(index),
                None,
                problem or _ragged(cells, header),
            )
        return Loose(
            chunk.starts[index],
            lambda: chunk.raw(index),
            {k: v or None for k, v in zip(header, cells)},
        )

    def batches(self, names: tuple[str, ...]) -> Iterator[Batch]:
        """Rows as columns of text."""
        wanted = set(names)
        for header, chunk in self._chunks():
            rows, bad = chunk.rows, self._headers_again(header, chunk)
            if set(map(len, rows)) != {len(header)}:
                bad |= {i: _ragged(r, header) for i, r in enumerate(rows) if len(r) != len(header)}
            if bad:
                rows = [r if i not in bad else [""] * len(header) for i, r in enumerate(rows)]
            columns = dict(zip(header, zip(*rows)))
            unknown = tuple(h for h in header if h not in wanted)
            known = {k: v for k, v in columns.items() if k in wanted}
            yield Batch(
                self.source_id,
                len(rows),
                known,
                chunk.starts.__getitem__,
                chunk.raw,
                bad,
                unknown,
                cells=True,
            )

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

    def _headers_again(self, header: list[str], chunk: _Chunk) -> dict[int, Problem]:
        """Rows that are the header once more, as where files were put together: dropped, and named
        with their lines.

        One whose names stand in another order changes what every row after it means: the file is
        refused. One that repeats half of the names may do so too, and is set aside.
        """
        names = {
            v
            for n in header
            if n
            for v in (n, n.lower(), n.upper(), n.title(), n.capitalize(), f" {n}", f"{n} ")
        }
        if names.isdisjoint(row[0] for row in chunk.rows):
            return {}
        found: dict[int, Problem] = {}
        wanted = [n.casefold() for n in header]
        for i, row in enumerate(chunk.rows):
            cells = [c.strip().casefold() for c in row] if row[0] in names else []
            if not cells or len(cells) != len(wanted):
                continue
            line, same = chunk.starts[i], sum(a == b for a, b in zip(cells, wanted) if b)
            if cells == wanted:
                self._again[line] = None
                found[i] = ("drop:repeated header", f"line {line} is the header again")
            elif len(wanted) > 1 and sorted(cells) == sorted(wanted):
                self._refuse_order(line)
            elif same > 1 and 2 * same >= len(wanted):
                found[i] = (
                    "csv.header",
                    (
                        f"the row names {same} of the {len(wanted)} columns, as if another header"
                        " stood here"
                    ),
                )
        self._warn_of_headers()
        return found

    def _warn_of_headers(self) -> None:
        if self._again:
            said = f"Source {self.source_id} repeats its header on "
            self.warnings -= {w for w in self.warnings if w.startswith(said)}
            shown = ", ".join(map(str, list(self._again)[:10])) + (
                f" and {len(self._again) - 10:,} more" if len(self._again) > 10 else ""
            )
            self.warnings.add(f"{said}line {shown}; such rows are dropped.")

    def _refuse_order(self, line: int) -> NoReturn:
        raise Refused(
            "csv.header",
            f"Line {line} of source {self.source_id} is a header with the columns in another"
            " order.",
            expected="one header for the whole file",
            remedy=(
                "Files that differ were put together; report it upstream, or register them one by"
                " one."
            ),
            source_id=self.source_id,
            line=line,
        )

    def _parsed(self) -> Iterator[_Chunk]:
        """Blocks cut after a line end outside quotes; what is left open is held for the next
        block.
        """
        csv.field_size_limit(2 * _LONG)
        held, line, delimiter = "", 1, ""
        ends: set[str] = set()
        for block in chain(
            text_blocks(self._source, "csv", self._encoding, self.warnings), (None,)
        ):
            final = block is None
            held += block or ""
            long = len(held) > _LONG
            cut = (
                len(held) if final or long else held.rfind("\n") + 1 or held.rfind("\r", 0, -1) + 1
            )
            if not cut:
                continue
            delimiter = delimiter or self._separator(held)
            if "\ufeff" in held and (glued := _GLUED.search(held)):
                at = line + len(_lines(held[: glued.end()])) - 1
                self._refuse_syntax(
                    "the line begins with a byte order mark, as if two files were put together", at
                )
            chunk, used = (
                _parse_long(held, line, delimiter, final=final)
                if long
                else self._parse(held[:cut], line, delimiter)
            )
            if final and used < cut:
                at = chunk.ends[-1] + 1 if chunk.ends else line
                raise Refused.cut(
                    self.source_id,
                    f"it ends inside a quoted cell, which begins on line {at} or after it",
                    line=at,
                )
            if len(chunk.text) > self.record_limit:
                self._check_sizes(chunk)
            ends |= set() if long else _record_ends(held[:used], chunk)
            line, held = chunk.next, held[used:]
            yield chunk
            del chunk
            # one character beyond the first 65,536 makes all of them take four bytes
            if sys.getsizeof(held) > self.record_limit:
                refuse_record(self.source_id, line, self.record_limit)
        warn_of_ends(self.source_id, ends, self.warnings)

    def _check_sizes(self, chunk: _Chunk) -> None:
        for i, start in enumerate(chunk.starts):
            if len(chunk.raw(i).encode("utf-8", "replace")) > self.record_limit:
                refuse_record(self.source_id, start, self.record_limit)

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
        used = (
            len(text) - len(closing)
            if closed
            else sum(map(len, islice(io.StringIO(text, newline=""), count)))
        )
        starts = [first, *(first + e for e in ends)][: len(ends)]
        if [] in rows:  # blank lines are no records
            full = [i for i, row in enumerate(rows) if row]
            rows, starts, ends = (
                [rows[i] for i in full],
                [starts[i] for i in full],
                [ends[i] for i in full],
            )
        return (
            _Chunk(
                rows,
                starts,
                [first + e - 1 for e in ends],
                text,
                first,
                first + count,
                closing != _END,
            ),
            used,
        )

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
            what = (
                f"names {', '.join(map(repr, twice))} twice"
                if twice
                else f"has no name for column {names.index('') + 1}"
            )
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
                remedy=(
                    "Look at the captured bytes; it may be another separator, or a table that lies"
                    " on its side."
                ),
                source_id=self.source_id,
            )
        return cells

    def _refuse_syntax(self, why: str, line: int) -> NoReturn:
        raise Refused(
            "csv.syntax",
            f"Source {self.source_id} is not valid CSV from line {line} on: {why}.",
            expected="quotes that open and close",
            remedy=(
                "The capture may be truncated; fetch it again, and report it upstream if it stays"
                " broken."
            ),
            source_id=self.source_id,
            line=line,
        )


def _record_ends(text: str, chunk: _Chunk) -> set[str]:
    """In which ways records end; the line ends inside cells are the cells' own."""
    ends = line_ends(text)
    if len(ends) < 2:
        return ends
    lines = _lines(text)
    last = (lines[e - chunk.first] for e in chunk.ends if e - chunk.first < len(lines))
    return {line[len(line.rstrip("\r\n")) :] for line in last} - {""}


def _parse_long(text: str, first: int, delimiter: str, *, final: bool) -> tuple[_Chunk, int]:
    """The whole rows of a text with a long record, as the csv module means them, and how much of it
    they take; each cell is copied once.
    """
    stop = re.compile(f"[{re.escape(delimiter)}\r\n]")
    rows: list[list[str]] = []
    starts: list[int] = []
    ends: list[int] = []
    at, line = 0, first
    while at < len(text):
        found = _record(text, at, stop, final=final)
        if found is None:
            break
        cells, after = found
        count = (
            text.count("\n", at, after)
            + text.count("\r", at, after)
            - text.count("\r\n", at, after)
        )
        if cells != [""]:  # blank lines are no records
            rows.append(cells)
            starts.append(line)
            ends.append(line + max(count, 1) - 1)
        at, line = after, line + count
    return (
        _Chunk(rows, starts, ends, text, first, line, final and not text.endswith(("\n", "\r"))),
        at,
    )


def _record(
    text: str, at: int, stop: "re.Pattern[str]", *, final: bool
) -> tuple[list[str], int] | None:
    """The cells of the row at a place and where the next one begins; None when it does not end
    here.
    """
    cells: list[str] = []
    while True:
        parts: list[str] = []
        if text.startswith('"', at):
            at += 1
            while True:
                quote = text.find('"', at)
                if quote < 0:
                    return None
                twice = text.startswith('"', quote + 1)
                parts.append(text[at : quote + twice])
                at = quote + 1 + twice
                if not twice:
                    break
        end = stop.search(text, at)
        if end is None:
            cells.append("".join([*parts, text[at:]]))
            return (cells, len(text)) if final else None
        cells.append("".join([*parts, text[at : end.start()]]))
        at = end.end()
        if end.group() == "\n":
            return cells, at
        if end.group() == "\r":
            if at == len(text) and not final:
                return None  # the rest of the line end may follow
            return cells, at + text.startswith("\n", at)


def _ragged(cells: list[str], header: list[str]) -> Problem:
    return "csv.columns", f"the row has {len(cells)} cells, the header has {len(header)}"


def _delimiter(text: str) -> str:
    """The separator most frequent in the header line."""
    head = text.lstrip("\r\n").split("\n", 1)[0].split("\r", 1)[0]
    return max(_DELIMITERS, key=head.count)
