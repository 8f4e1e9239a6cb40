"""Text in which every column has its place: read by a list of names, first characters and widths."""

import re
from collections.abc import Iterator
from functools import partial
from typing import Annotated, NoReturn

import msgspec

from kfm.connectors.base import InputFile, Refused, refuse_record
from kfm.connectors.kind import HeadedReader, options_of
from kfm.connectors.operations import Read
from kfm.connectors.read.geometry import Problem
from kfm.connectors.read.rows import Loose
from kfm.connectors.read.text import text_blocks

__all__ = ["Options", "readers"]

_END = re.compile(r"\r\n|\r|\n")
_FURTHEST = 1 << 20  # character of a line
Place = Annotated[int, msgspec.Meta(ge=1, le=_FURTHEST)]


class Field(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One column: its first character, counted from 1, and how many it has."""

    name: Annotated[str, msgspec.Meta(min_length=1)]
    start: Place
    width: Place
    nulls: tuple[str, ...] = ()  # texts that mean "no value"; blanks always do


class Options(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What may be registered for text of fixed width."""

    columns: Annotated[tuple[Field, ...], msgspec.Meta(min_length=1)]
    # characters of a whole line: one of another length is set aside; None: blanks at the end of a
    # line may be missing
    line: Place | None = None
    skip_lines: Annotated[int, msgspec.Meta(ge=0)] = 0  # before the first record
    comment: Annotated[str, msgspec.Meta(min_length=1)] | None = (
        None  # how a line begins that is no record
    )
    nulls: tuple[str, ...] = ()  # of every column


def readers(job: Read) -> list["_Reader"]:
    """One reader per file."""
    options = options_of(job.options, Options)
    names = [c.name for c in options.columns]
    ends = max(c.start + c.width - 1 for c in options.columns)
    if twice := next((n for n in names if names.count(n) > 1), None):
        _refuse(f"source.options.columns: {twice!r} is there twice", "each name once")
    if options.line is not None and options.line < ends:
        _refuse(
            f"source.options.columns: a column ends at character {ends}, and a line has"
            f" {options.line}",
            "columns inside the line",
        )
    return [_Reader(source, options, job.encoding) for source in job.inputs]


def _refuse(what: str, expected: str) -> NoReturn:
    raise Refused(
        "options",
        f"{what}.",
        expected=expected,
        remedy="Change source.options of the registry entry; docs/connectors.md has an example.",
    )


class _Reader(HeadedReader):
    """The lines of one file."""

    def __init__(self, source: InputFile, options: Options, encoding: str | None) -> None:
        super().__init__(source)
        self._source, self._options, self._encoding = source, options, encoding
        self._cuts = [
            (c.name, slice(c.start - 1, c.start - 1 + c.width), {*options.nulls, *c.nulls})
            for c in options.columns
        ]
        self._last = max(c.start for c in options.columns)

    def header(self) -> tuple[str, ...]:
        return tuple(name for name, _, _ in self._cuts)

    def rows(self) -> Iterator[Loose]:
        comment, short = self._options.comment, 0
        for number, line in self._lines():
            if (
                number <= self._options.skip_lines
                or not line.strip()
                or (comment is not None and line.startswith(comment))
            ):
                continue
            problem = self._problem(line)
            if problem is not None:
                yield Loose(number, partial(str, line), None, problem)
                continue
            short += len(line) < self._last
            yield Loose(number, partial(str, line), self._row(line))
        if short:
            self.warnings.add(
                f"Lines of {self.source_id} end before the last column begins; what they lack is"
                " read as empty."
            )

    def _row(self, line: str) -> dict[str, str | None]:
        row: dict[str, str | None] = {}
        for name, cut, nulls in self._cuts:
            text = line[cut].strip()
            row[name] = None if not text or text in nulls else text
        return row

    def _problem(self, line: str) -> Problem | None:
        if "\t" in line:
            return (
                "fixed_width.tab",
                "a tab stands in the line, so the places of its columns are not known",
            )
        wanted = self._options.line
        if wanted is not None and len(line) != wanted:
            return "fixed_width.line", f"the line has {len(line)} characters, {wanted} are expected"
        return None

    def _lines(self) -> Iterator[tuple[int, str]]:
        """Lines with their numbers, a block at a time; each ends as lines end anywhere."""
        held, number = "", 0
        for block in text_blocks(self._source, "txt", self._encoding, self.warnings):
            text = held + block
            cut = len(text) - text.endswith("\r")  # its LF may follow
            *whole, held = _END.split(text[:cut])
            held += text[cut:]
            for line in whole:
                number += 1
                yield number, line
            if len(held) > min(self.record_limit, 4 * _FURTHEST):
                refuse_record(self.source_id, number + 1, min(self.record_limit, 4 * _FURTHEST))
        for line in _END.split(held):
            number += 1
            yield number, line
