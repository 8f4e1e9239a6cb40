"""Sheets of an .ods file, row by row: the values that were calculated, never the formulas."""

import datetime as dt
import re
from collections.abc import Iterator
from typing import NamedTuple
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

__all__ = ["OdsBook"]

_CONTENT = "content.xml"
_ERROR = re.compile(r"#(REF|DIV/0|N/A|NAME|NULL|NUM|VALUE)[!?]?|Err:[0-9]{3}")
_TIME = re.compile(r"(-?)P(?:(\d+)D)?T?(?:(\d+)H)?(?:(\d+)M)?(?:(\d+)(?:[.,](\d+))?S)?")


class OdsBook:
    """One file and its list of sheets."""

    def __init__(self, archive: ZipFile, source_id: str) -> None:
        self._archive, self._source_id = archive, source_id
        names = set(archive.namelist())
        if _CONTENT not in names or "[Content_Types].xml" in names:
            refuse_sheet(source_id, "format", "it is no .ods file", "an .ods file")
        manifest = (
            b"".join(part_blocks(archive, "META-INF/manifest.xml", source_id))
            if ("META-INF/manifest.xml" in names)
            else b""
        )
        if b"encryption-data" in manifest:
            refuse_sheet(
                source_id,
                "encrypted",
                "it is encrypted",
                "an .ods file that opens without a password",
                "Ask for it without a password.",
            )
        listed = _Sheets(source_id, None)
        for _ in self._events(listed):
            pass
        if not listed.is_book:
            refuse_sheet(source_id, "format", "it is no spreadsheet", "an .ods file")
        self.names, self._spans = listed.names, listed.spans

    def _events(self, handler: "_Sheets") -> Iterator[tuple[int, Cells]]:
        return events(
            part_blocks(self._archive, _CONTENT, self._source_id),
            handler,
            self._source_id,
            part=_CONTENT,
        )

    def spans(self, sheet: int) -> list[Span]:
        return self._spans.get(sheet, [])

    def rows(self, sheet: int) -> Iterator[tuple[int, Cells]]:
        return self._events(_Sheets(self._source_id, sheet))


class _Given(NamedTuple):
    """The attributes of a cell that count."""

    value: str
    kind: str
    is_error: bool
    formula: bool
    repeated: int


class _Sheets:
    """Hears of all sheets, and makes the rows of the one that is wanted."""

    def __init__(self, source_id: str, wanted: int | None) -> None:
        self._source_id, self._wanted = source_id, wanted
        self.made = list[tuple[int, Cells]]()
        self.names, self.spans, self.is_book = list[str](), dict[int, list[Span]](), False
        self._sheet, self._inside = -1, 0  # tables within tables are no sheets
        self._row, self._repeated, self._column, self._cells = 0, 1, 0, Cells()
        self._given: _Given | None = None
        self._parts, self._takes, self._notes = list[str](), 0, 0

    def start(self, name: str, attributes: dict[str, str]) -> None:
        kind = local(name)
        if self._notes or kind == "annotation":
            self._notes += 1
        elif kind == "table":
            self._inside += 1
            if self._inside == 1:
                self._sheet, self._row = self._sheet + 1, 0
                self.names.append(_attribute(attributes, "name"))
        elif kind == "spreadsheet":
            self.is_book = True
        elif self._inside == 1:
            self._start_inside(kind, attributes)

    def _start_inside(self, kind: str, attributes: dict[str, str]) -> None:
        match kind:
            case "table-row":
                self._row, self._column, self._cells = self._row + 1, 0, {}
                self._repeated = self._times(attributes, "number-rows-repeated")
            case "table-cell" | "covered-table-cell":
                self._given, self._parts = self._cell_given(attributes), []
                self._note_span(attributes)
            case "p":
                if self._parts:
                    self._parts.append("\n")
                self._takes += 1
            case "s" if self._takes:
                self._parts.append(" " * min(self._times(attributes, "c"), 1000))
            case "tab" | "line-break" if self._takes:
                self._parts.append("\t" if kind == "tab" else "\n")

    def end(self, name: str) -> None:
        kind = local(name)
        if self._notes:
            self._notes -= 1
        elif kind == "table":
            self._inside -= 1
        elif self._inside == 1:
            match kind:
                case "p":
                    self._takes -= 1
                case "table-cell" | "covered-table-cell":
                    self._end_cell()
                case "table-row":
                    self._end_row()

    def text(self, text: str) -> None:
        if self._takes and not self._notes:
            self._parts.append(text)

    def _times(self, attributes: dict[str, str], name: str) -> int:
        said = _attribute(attributes, name)
        return max(1, int(said)) if said.isdigit() and len(said) < 12 else 1

    def _cell_given(self, attributes: dict[str, str]) -> _Given:
        kinds = {n: v for n, v in attributes.items() if local(n) == "value-type"}
        kind = next((v for n, v in kinds.items() if "calcext" not in n), "")
        names = {"date": "date-value", "time": "time-value", "boolean": "boolean-value"}
        value = _attribute(
            attributes, names.get(kind, "string-value" if kind == "string" else "value")
        )
        return _Given(
            value,
            kind,
            "error" in kinds.values(),
            bool(_attribute(attributes, "formula")),
            self._times(attributes, "number-columns-repeated"),
        )

    def _note_span(self, attributes: dict[str, str]) -> None:
        wide = self._times(attributes, "number-columns-spanned")
        high = self._times(attributes, "number-rows-spanned")
        if wide > 1 or high > 1:
            top, left = self._row, self._column
            span = Span(top, top + high - 1, left, left + wide - 1)
            self.spans.setdefault(self._sheet, []).append(span)

    def _end_cell(self) -> None:
        given, self._given = self._given, None
        assert given is not None
        cell = self._cell(given, "".join(self._parts)) if self._sheet == self._wanted else None
        if cell is not None:
            if self._column + given.repeated > MOST_CELLS:
                refuse_sheet(
                    self._source_id,
                    "damaged",
                    f"row {self._row} has more than {MOST_CELLS:,} cells",
                    f"at most {MOST_CELLS:,}",
                )
            for i in range(given.repeated):
                self._cells[self._column + i] = cell
        self._column += given.repeated

    def _end_row(self) -> None:
        first, self._row = self._row, self._row + self._repeated - 1
        if not self._cells:
            return
        if self._row > MOST_ROWS:
            refuse_sheet(
                self._source_id,
                "damaged",
                f"it has more than {MOST_ROWS:,} rows",
                f"at most {MOST_ROWS:,}",
            )
        self.made += [(row, self._cells) for row in range(first, self._row + 1)]

    def _cell(self, given: _Given, shown: str) -> Cell | None:
        where = f"the cell in column {self._column + 1}"
        if given.is_error or (given.formula and _ERROR.fullmatch(shown.strip())):
            said = shown.strip()[:40] or "an error"
            return Cell("", ("spreadsheet.error", f"{where} is {said}"))
        if given.formula and not given.kind:
            return Cell(
                "",
                ("spreadsheet.formula", f"{where} is a formula whose value was not calculated"),
            )
        try:
            return _read(given, shown)
        except (ValueError, OverflowError):
            said = (given.value or shown)[:40]
            return Cell("", ("spreadsheet.cell", f"{where} holds {said!r}"))


def _attribute(attributes: dict[str, str], name: str) -> str:
    return next((v for n, v in attributes.items() if local(n) == name), "")


def _read(given: _Given, shown: str) -> Cell | None:
    match given.kind:
        case "float" | "percentage" | "currency":
            return Cell(spelt_number(given.value))
        case "boolean":
            if given.value not in ("true", "false"):
                raise ValueError(given.value)
            return Cell(given.value)
        case "date":
            found = dt.datetime.fromisoformat(given.value)
            if len(given.value) == 10:
                return Cell(found.date().isoformat())
            return Cell(found.isoformat(), None, found if found.tzinfo is None else None)
        case "time":
            return Cell(_clock(given.value))
    text = (given.value or shown).strip()
    return Cell(text) if text else None


def _clock(value: str) -> str:
    found = _TIME.fullmatch(value)
    if found is None:
        raise ValueError(value)
    sign, days, hours, minutes, seconds, parts = found.groups()
    whole = (
        int(days or 0) * 86_400
        + int(hours or 0) * 3600
        + int(minutes or 0) * 60
        + int(seconds or 0)
    )
    told = f"{sign}{whole // 3600:02}:{whole // 60 % 60:02}:{whole % 60:02}"
    rest = (parts or "").rstrip("0")
    return f"{told}.{rest}" if rest else told
