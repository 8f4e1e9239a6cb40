"""Sheets of an .xlsx file, row by row: the values that were calculated, never the formulas."""

import datetime as dt
import posixpath
import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Literal
from zipfile import ZipFile

from kfm.connectors.read.sheets import (
    MOST_CELLS,
    MOST_ROWS,
    Cell,
    Cells,
    Span,
    part_blocks,
    refuse_sheet,
    spelt_number,
)
from kfm.connectors.read.xml_events import events, local

__all__ = ["XlsxBook", "letters"]

_RELATION = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
_STRICT = "http://purl.oclc.org/ooxml/officeDocument/relationships"
_CELL = re.compile(r"([A-Z]{1,3})([0-9]{1,7})")
_MERGED = re.compile(rb"""<(?:\w+:)?mergeCell\s+ref=["']([A-Z]+[0-9]+):([A-Z]+[0-9]+)["']""")
_ESCAPED = re.compile(r"_x([0-9A-Fa-f]{4})_")
# what a format of numbers says literally, in colour or under a condition
_LITERAL = re.compile(r'"[^"]*"|\\.|_.|\*.|\[(?!h+\]|m+\]|s+\])[^\]]*\]', re.IGNORECASE)
_BUILT_IN: dict[int, "Form"] = {
    **dict.fromkeys((14, 15, 16, 17, *range(27, 32), 36, *range(50, 59)), "day"),
    **dict.fromkeys((18, 19, 20, 21, 32, 33, 34, 35, 45, 47), "time"),
    22: "moment",
    46: "span",
}
Form = Literal["number", "day", "time", "moment", "span"]


class XlsxBook:
    """One file, its list of sheets and what all of them share."""

    def __init__(self, archive: ZipFile, source_id: str) -> None:
        self._archive, self._source_id = archive, source_id
        names = set(archive.namelist())
        if "xl/workbook.bin" in names or "[Content_Types].xml" not in names:
            refuse_sheet(source_id, "format", "it is no .xlsx file", "an .xlsx file")
        main = next(
            (t for kind, t in self._relations("").values() if kind == "officeDocument"),
            "xl/workbook.xml",
        )
        if main not in names:
            refuse_sheet(source_id, "format", "it has no workbook", "an .xlsx file")
        self._relations_of_book = self._relations(main)
        book = _Workbook()
        for _ in self._events(main, book):
            pass
        self._from_1904 = book.from_1904
        self._sheets = [
            (name, self._relations_of_book.get(i, ("", ""))[1]) for name, i in book.sheets
        ]
        self._forms: list[Form] | None = None
        self._strings: list[str] | None = None

    @property
    def names(self) -> list[str]:
        return [name for name, _ in self._sheets]

    def _events(self, part: str, handler: "_Handler") -> Iterator[tuple[int, Cells]]:
        return events(
            part_blocks(self._archive, part, self._source_id),
            handler,
            self._source_id,
            part=part,
        )

    def _relations(self, part: str) -> dict[str, tuple[str, str]]:
        """Of each id what it is to a part, and where it is."""
        folder, name = posixpath.split(part)
        listed = posixpath.join(folder, "_rels", f"{name}.rels")
        if listed not in self._archive.namelist():
            return {}
        handler = _Relations(folder)
        for _ in self._events(listed, handler):
            pass
        return handler.found

    def _shared(self, kind: str) -> str | None:
        return next(
            (
                t
                for k, t in self._relations_of_book.values()
                if k == kind and t in self._archive.namelist()
            ),
            None,
        )

    def spans(self, sheet: int) -> list[Span]:
        """They stand behind the cells, so that the whole sheet is looked through, but not read."""
        found: dict[Span, None] = {}
        held = b""
        for block in part_blocks(self._archive, self._sheets[sheet][1], self._source_id):
            held += block
            for first, last in _MERGED.findall(held):
                top, left = self.place(first.decode())
                bottom, right = self.place(last.decode())
                found[Span(top, bottom, left, right)] = None
            held = held[-200:]
        return list(found)

    def place(self, ref: str) -> tuple[int, int]:
        """(row from 1, column from 0) of a reference such as B7."""
        match = _CELL.fullmatch(ref)
        row, column = (int(match[2]), _column(match[1])) if match else (0, 0)
        if not 1 <= row <= MOST_ROWS or column >= MOST_CELLS:
            refuse_sheet(
                self._source_id,
                "damaged",
                f"a cell is said to be at {ref[:20]!r}",
                "cells from A1 to XFD1048576",
            )
        return row, column

    def rows(self, sheet: int) -> Iterator[tuple[int, Cells]]:
        if self._strings is None:
            strings = _Strings()
            if (part := self._shared("sharedStrings")) is not None:
                for _ in self._events(part, strings):
                    pass
            self._strings = strings.found
        if self._forms is None:
            styles = _Styles()
            if (part := self._shared("styles")) is not None:
                for _ in self._events(part, styles):
                    pass
            self._forms = styles.forms()
        handler = _Sheet(self, self._source_id, self._strings, self._forms, self._from_1904)
        yield from self._events(self._sheets[sheet][1], handler)


class _Handler:
    """What hears of every element and makes nothing of it."""

    def __init__(self) -> None:
        self.made: list[tuple[int, Cells]] = []

    def start(self, name: str, attributes: dict[str, str]) -> None:
        pass

    def end(self, name: str) -> None:
        pass

    def text(self, text: str) -> None:
        pass


class _Relations(_Handler):
    def __init__(self, folder: str) -> None:
        super().__init__()
        self._folder, self.found = folder, dict[str, tuple[str, str]]()

    def start(self, name: str, attributes: dict[str, str]) -> None:
        if local(name) == "Relationship" and attributes.get("TargetMode") != "External":
            target = attributes.get("Target", "")
            path = posixpath.normpath(posixpath.join("/", self._folder, target)).lstrip("/")
            kind = attributes.get("Type", "").rpartition("/")[2]
            self.found[attributes.get("Id", "")] = (kind, path)


class _Workbook(_Handler):
    def __init__(self) -> None:
        super().__init__()
        self.from_1904, self.sheets = False, list[tuple[str, str]]()

    def start(self, name: str, attributes: dict[str, str]) -> None:
        if local(name) == "workbookPr":
            self.from_1904 = attributes.get("date1904", "0").lower() in ("1", "true")
        elif local(name) == "sheet":
            relation = attributes.get(f"{_RELATION} id") or attributes.get(f"{_STRICT} id") or ""
            self.sheets.append((attributes.get("name", ""), relation))


class _Strings(_Handler):
    """The texts that cells name by number; how they are pronounced is no part of them."""

    def __init__(self) -> None:
        super().__init__()
        self.found = list[str]()
        self._parts, self._takes, self._spoken = list[str](), False, 0

    def start(self, name: str, attributes: dict[str, str]) -> None:
        match local(name):
            case "si":
                self._parts = []
            case "rPh":
                self._spoken += 1
            case "t":
                self._takes = not self._spoken

    def end(self, name: str) -> None:
        match local(name):
            case "si":
                self.found.append(_unescaped("".join(self._parts)))
            case "rPh":
                self._spoken -= 1
            case "t":
                self._takes = False

    def text(self, text: str) -> None:
        if self._takes:
            self._parts.append(text)


class _Styles(_Handler):
    """Which cells hold days and times is said by how they are shown."""

    def __init__(self) -> None:
        super().__init__()
        self._codes, self._of_cells, self._cells = dict[int, str](), list[int](), False

    def start(self, name: str, attributes: dict[str, str]) -> None:
        match local(name):
            case "numFmt" if attributes.get("numFmtId", "").isdigit():
                self._codes[int(attributes["numFmtId"])] = attributes.get("formatCode", "")
            case "cellXfs":
                self._cells = True
            case "xf" if self._cells:
                number = attributes.get("numFmtId", "0")
                self._of_cells.append(int(number) if number.isdigit() else 0)

    def end(self, name: str) -> None:
        if local(name) == "cellXfs":
            self._cells = False

    def forms(self) -> list[Form]:
        return [
            _form_of(self._codes[n]) if n in self._codes else _BUILT_IN.get(n, "number")
            for n in self._of_cells
        ]


@lru_cache(1024)
def _form_of(code: str) -> Form:
    """What a number stands for that is shown so."""
    plain = _LITERAL.sub("", code.split(";")[0]).lower()
    if "[" in plain:
        return "span"
    day, time = not {"y", "d"}.isdisjoint(plain), not {"h", "s"}.isdisjoint(plain)
    if day or time:
        return "moment" if day and time else "day" if day else "time"
    return "day" if "m" in plain else "number"


class _Sheet(_Handler):
    """The rows of one sheet."""

    def __init__(
        self,
        book: XlsxBook,
        source_id: str,
        strings: list[str],
        forms: list[Form],
        from_1904: bool,
    ) -> None:
        super().__init__()
        self._book, self._source_id = book, source_id
        self._strings, self._forms, self._from_1904 = strings, forms, from_1904
        self._row, self._column, self._cells = 0, -1, Cells()
        self._kind, self._style, self._formula = "n", 0, False
        self._takes, self._parts, self._value, self._spoken = False, list[str](), False, 0

    def start(self, name: str, attributes: dict[str, str]) -> None:
        match local(name):
            case "c":
                self._at(attributes.get("r"))
                self._kind, style = attributes.get("t", "n"), attributes.get("s", "0")
                self._style = int(style) if style.isdigit() else 0
                self._parts, self._value, self._formula, self._spoken = [], False, False, 0
            case "v":
                self._takes = self._value = True
            case "t" if self._kind == "inlineStr":
                self._takes, self._value = not self._spoken, True
            case "rPh":
                self._spoken += 1
            case "f":
                self._formula = True
            case "row":
                self._next_row(attributes.get("r"))

    def end(self, name: str) -> None:
        match local(name):
            case "v" | "t":
                self._takes = False
            case "rPh":
                self._spoken -= 1
            case "c":
                cell = self._cell("".join(self._parts))
                if cell is not None:
                    self._cells[self._column] = cell
            case "row":
                if self._cells:
                    self.made.append((self._row, self._cells))

    def text(self, text: str) -> None:
        if self._takes:
            self._parts.append(text)

    def _next_row(self, said: str | None) -> None:
        row = int(said) if said is not None and said.isdigit() and len(said) < 9 else self._row + 1
        if not self._row < row <= MOST_ROWS:
            refuse_sheet(
                self._source_id,
                "damaged",
                f"row {row} comes after row {self._row}",
                f"rows in order, up to {MOST_ROWS:,}",
            )
        self._row, self._column, self._cells = row, -1, {}

    def _at(self, said: str | None) -> None:
        if said is None:
            self._column += 1
        else:
            row, self._column = self._book.place(said)
            if row != self._row:
                refuse_sheet(
                    self._source_id,
                    "damaged",
                    f"the cell {said} stands in row {self._row}",
                    "cells in their rows",
                )
        if self._column >= MOST_CELLS:
            refuse_sheet(
                self._source_id, "damaged", "a row is too long", f"at most {MOST_CELLS:,} cells"
            )

    def _cell(self, held: str) -> Cell | None:
        if self._kind == "e":
            return Cell("", ("spreadsheet.error", f"{self._name()} is {held[:40] or 'an error'}"))
        if not held and self._formula and self._kind != "str":
            return Cell(
                "",
                (
                    "spreadsheet.formula",
                    f"{self._name()} is a formula whose value was not calculated",
                ),
            )
        if not self._value or not held:
            return None
        try:
            return self._read(held)
        except (ValueError, IndexError, OverflowError):
            return Cell("", ("spreadsheet.cell", f"{self._name()} holds {held[:40]!r}"))

    def _read(self, held: str) -> Cell | None:
        match self._kind:
            case "s":
                if not held.isdigit():
                    raise ValueError(held)
                text = self._strings[int(held)]
            case "str" | "inlineStr":
                text = _unescaped(held)
            case "b":
                text = {"1": "true", "0": "false", "true": "true", "false": "false"}.get(held, "")
                if not text:
                    raise ValueError(held)
            case "d":
                return _moment(
                    dt.datetime.fromisoformat(held), "day" if len(held) == 10 else "moment"
                )
            case _:
                return self._number(held)
        text = text.strip()
        return Cell(text) if text else None

    def _number(self, held: str) -> Cell:
        form = self._forms[self._style] if self._style < len(self._forms) else "number"
        if form == "number":
            return Cell(spelt_number(held))
        return _of_serial(float(held), form, self._from_1904)

    def _name(self) -> str:
        return f"{letters(self._column)}{self._row}"


def _of_serial(serial: float, form: Form, from_1904: bool) -> Cell:
    """A day or a time that is written as the number of days since one; the first of 1900 says that
    this year was a leap year. Raises ValueError.
    """
    if not serial >= 0:
        raise ValueError(serial)
    milliseconds = round(serial * 86_400_000)
    if form == "span" or (serial < 1 and (form == "time" or not from_1904)):
        return Cell(_clock(milliseconds))
    days, rest = divmod(milliseconds, 86_400_000)
    if from_1904:
        began = dt.datetime(1904, 1, 1)
    elif days >= 61:
        began = dt.datetime(1899, 12, 30)
    elif days == 60:
        raise ValueError(serial)
    else:
        began = dt.datetime(1899, 12, 31)
    found = began + dt.timedelta(days=days, milliseconds=rest)
    return _moment(found, "day" if form == "day" and not rest else "moment")


def _moment(found: dt.datetime, form: Literal["day", "moment"]) -> Cell:
    if form == "day":
        return Cell(found.date().isoformat())
    return Cell(found.isoformat(), None, found)


def _clock(milliseconds: int) -> str:
    seconds, rest = divmod(milliseconds, 1000)
    told = f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
    return told + (f".{rest:03}" if rest else "")


def _unescaped(text: str) -> str:
    return _ESCAPED.sub(lambda m: chr(int(m[1], 16)), text) if "_x" in text else text


def _column(letters: str) -> int:
    number = 0
    for letter in letters:
        number = number * 26 + ord(letter) - 64
    return number - 1


def letters(column: int) -> str:
    """What a column is called, counted from 0."""
    found = ""
    column += 1
    while column:
        column, rest = divmod(column - 1, 26)
        found = chr(65 + rest) + found
    return found
