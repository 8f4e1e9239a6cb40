"""What the readers of spreadsheets share: a sheet is rows of cells, each a text or a reason why it
is none.
"""

import datetime as dt
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import NamedTuple, NoReturn, Protocol
from zipfile import ZipFile

from kfm.connectors.base import InputFile, Refused
from kfm.connectors.read.archive import checked
from kfm.connectors.read.beginning import LOOKED_AT, refuse_beginning
from kfm.connectors.read.geometry import Problem

__all__ = [
    "MOST_CELLS",
    "MOST_ROWS",
    "Book",
    "Cell",
    "Cells",
    "Span",
    "opened",
    "part_blocks",
    "refuse_sheet",
    "spelt_number",
]

MOST_ROWS, MOST_CELLS = 1 << 20, 1 << 14  # of a sheet, and of a row; what Excel can hold
_BLOCK = 1 << 20
_OLD = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"


class Cell(NamedTuple):
    """What a cell holds as people would write it, or what is wrong with it."""

    text: str
    problem: Problem | None = None
    moment: dt.datetime | None = None  # a day with a time, in no zone


Cells = dict[int, Cell]  # by column, counted from 0; empty ones are left out


class Span(NamedTuple):
    """Cells that are one: the first and last row and column, counted from 1 and from 0."""

    top: int
    bottom: int
    left: int
    right: int


class Book(Protocol):
    """A file with sheets."""

    @property
    def names(self) -> list[str]:
        """Of its sheets, in order."""
        ...

    def spans(self, sheet: int) -> list[Span]:
        """The cells of a sheet that are merged."""
        ...

    def rows(self, sheet: int) -> Iterator[tuple[int, Cells]]:
        """The rows of a sheet that hold anything, by number from 1, in order."""
        ...


def refuse_sheet(
    source_id: str,
    rule: str,
    why: str,
    expected: str,
    remedy: str = "Look at the captured file, and report it upstream.",
) -> NoReturn:
    raise Refused(
        f"spreadsheet.{rule}",
        f"The spreadsheet {source_id} was not taken: {why}.",
        expected=expected,
        remedy=remedy,
        source_id=source_id,
    )


def opened(source: InputFile, form: str, max_bytes: int) -> AbstractContextManager[ZipFile]:
    """The archive that a spreadsheet is, judged as any other."""
    path = Path(source.path)
    with path.open("rb") as file:
        head = file.read(LOOKED_AT)
    if head.startswith(_OLD):
        refuse_sheet(
            source.source_id,
            "encrypted",
            "it is encrypted, or of the form that Excel had before 2007",
            f"an .{form} file that opens without a password",
            f"Ask for it without a password, or save it as .{form}.",
        )
    if not head.startswith(b"PK\x03\x04"):
        refuse_beginning(head, source, f"an .{form} file")
    return checked(path, max_bytes=max_bytes)


def part_blocks(archive: ZipFile, name: str, source_id: str) -> Iterator[bytes]:
    """One file of the archive, block by block."""
    try:
        part = archive.open(name)
    except KeyError:
        refuse_sheet(source_id, "part", f"it has no {name}", "every part that a spreadsheet has")
    with part:
        while block := part.read(_BLOCK):
            yield block


def spelt_number(text: str) -> str:
    """A number as people write it: without .0 where it is whole. Raises ValueError."""
    number = float(text)
    if number != number or number in (float("inf"), float("-inf")):
        raise ValueError(text)
    return str(int(number)) if number.is_integer() and abs(number) < 1e15 else repr(number)
