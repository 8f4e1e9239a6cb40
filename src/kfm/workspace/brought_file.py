"""A file that somebody brings as a new source: its columns, what they seem to be, its first
records.
"""

import csv
import io
import tempfile
from collections import Counter
from itertools import islice
from pathlib import Path
from typing import Protocol

import msgspec

from kfm.connectors.base import CaptureRefused, InputFile, Refused
from kfm.connectors.mapping import column_names
from kfm.connectors.operations import Read
from kfm.model import Json, Packed, UsageError

__all__ = [
    "BroughtFile",
    "BroughtRecords",
    "BroughtTable",
    "BroughtWhole",
    "record_path",
    "table_in",
]

SAMPLE_ROWS = 200
_MOST = 8 << 20  # of a file, looked at for its columns
_PYTHON = {"integer": "int", "number": "float", "boolean": "bool", "json": "dict"}
# texts that may mean "no value"; the last two could also be a value of a text column
_NULLS = ("N/A", "n/a", "NA", "-")


class BroughtFile(Protocol):
    """What is known of the file: the columns that the dataset would have, and a sample of it."""

    columns: list[str]
    sample: bytes


def _beginning(path: Path) -> tuple[bytes, bool]:
    """The first bytes of a file, and whether that is all of it."""
    try:
        with path.open("rb") as file:
            found = file.read(_MOST)
            return found, not file.read(1)
    except OSError as error:
        raise UsageError(
            f"{path.name} cannot be read: {error.strerror}.",
            expected="a file",
            remedy="Check the path.",
        ) from error


def _small(path: Path) -> bytes:
    """All of a file that is looked at whole."""
    found, is_all = _beginning(path)
    if not is_all:
        raise UsageError(
            f"{path.name} is larger than 8 MiB.",
            expected="a sample",
            remedy="Give a few records as --file, and --url.",
        )
    return found


class BroughtTable:
    """A CSV: its columns with the types their values have, and its first rows."""

    def __init__(
        self, path: Path, encoding: str | None, key: tuple[str, ...], *, mapped: bool
    ) -> None:
        self._encoding = encoding
        text, is_all = self._text(path)
        self._delimiter = max(",;\t|", key=text.split("\n", 1)[0].count)
        header, rows, lines = self._read(path, text)
        self.sample = "".join(text.splitlines(keepends=True)[:lines]).encode(encoding or "utf-8")
        rows = rows if is_all or len(rows) < 2 else rows[:-1]  # the last one may go on
        self._names = column_names(header)  # header -> column
        self.columns = list(self._names.values() if mapped else self._names)
        self._cells = {
            h: [row[i].strip() for row in rows if i < len(row)] for i, h in enumerate(header)
        }
        guessed = {h: self._type(h) for h in header}
        self._types = {header: kind for header, (kind, _) in guessed.items()}
        self._nulls = {header: nulls for header, (_, nulls) in guessed.items()}
        # a row that stands twice is one record
        different = len(set(map(tuple, ([c.strip() for c in row] for row in rows))))
        self._key = [self.named(k) for k in key] if mapped else list(key)
        self._key = self._key or self._likely_key(different)
        # numbers as a run takes them; days and times are cut by window, which text cannot be
        self._types |= {
            h: "string"
            for h, name in self._names.items()
            if name in self._key and self._types[h] not in ("date", "timestamp")
        }

    def named(self, text: str) -> str:
        """A column by how it is called in the file, or here."""
        return {h.strip(): name for h, name in self._names.items()}.get(text, text)

    def _text(self, path: Path) -> tuple[str, bool]:
        raw, is_all = _beginning(path)
        try:
            text = raw.decode(self._encoding or "utf-8-sig", "strict" if is_all else "ignore")
        except (UnicodeDecodeError, LookupError) as error:
            raise UsageError(
                f"{path.name} is not {self._encoding or 'UTF-8'}.",
                expected="its encoding",
                remedy="Name it: --encoding cp1252, for one.",
            ) from error
        return text, is_all

    def _read(self, path: Path, text: str) -> tuple[list[str], list[list[str]], int]:
        """The header, the rows, and how many lines the first of them take."""
        csv.field_size_limit(16 << 20)
        reader = csv.reader(io.StringIO(text, newline=""), delimiter=self._delimiter)
        try:
            first = [row for row, _ in zip(reader, range(SAMPLE_ROWS + 1)) if row]
            lines, rest = reader.line_num, [row for row in reader if row]
        except csv.Error as error:
            raise UsageError(
                f"{path.name}, line {reader.line_num}: {error}.",
                expected="a CSV with a header",
                remedy="Mend that line, or give a file without it.",
            ) from error
        if len(first) < 2 or len({h.strip() for h in first[0]}) < len(first[0]):
            raise UsageError(
                f"{path.name} has no header with a row below it, or a name twice.",
                expected="a CSV with a header",
                remedy="Give one whose first line names every column once.",
            )
        return first[0], [*first[1:], *rest], lines

    def _type(self, header: str) -> tuple[str, list[str]]:
        """The type of a column, as a run that is told none infers it, and the texts in it that mean
        "no value".
        """
        from kfm.connectors.table.infer import Inferred  # with an extra: pyarrow

        there = {c for c in self._cells[header] if c in _NULLS}
        held = [c for c in self._cells[header] if c and c not in there]
        inferred = Inferred(Read(dataset_id="new", format="csv", artifact="new"), None, cells=True)
        inferred.add(self._names[header], held)
        found = inferred.columns()[0].type
        return found, sorted(there if found != "string" or not held else there & set(_NULLS[:2]))

    def _likely_key(self, rows: int) -> list[str]:
        """The first column that has another value in every row, as far as that can be seen here."""
        for header, cells in self._cells.items():
            distinct = set(cells) - {"", *self._nulls[header]}
            if len(distinct) == rows and self._types[header] in ("string", "integer"):
                return [self._names[header]]
        return []

    def stated(self, dataset_id: str) -> str:
        """The columns as a connector states them."""
        lines = []
        for header, name in self._names.items():
            given = [_quoted(name)]
            if self._types[header] != "string":
                given.append(_PYTHON.get(self._types[header], _quoted(self._types[header])))
            given += ["key=True"] if name in self._key else []
            given += [f"at={_quoted(header.strip())}"] if header.strip() != name else []
            given += [f"nulls={_quoted(self._nulls[header])}"] if self._nulls[header] else []
            lines.append(f"        column({', '.join(given)}),\n")
        return f'source(\n    "{dataset_id}",\n    columns=[\n{"".join(lines)}    ],\n)'

    def mapping(self) -> bytes:
        """How the file is written, as mapping.yml says it."""
        lines = [
            (
                "# How the file is written. Its columns stand in connector.py; their types, the key and"
                " the texts that mean"
            ),
            (
                '# "no value" (nulls) were guessed from its first rows. Coordinates of a known system:'
                " add crs, x and y."
            ),
            "# docs/connectors.md lists every key.",
        ]
        lines += [f"encoding: {self._encoding}"] if self._encoding else []
        lines += [f"delimiter: {_quoted(self._delimiter)}"]
        return "\n".join([*lines, ""]).encode()


def _quoted(value: str | list[str]) -> str:
    """A text, or several, as Python and JSON write them."""
    return msgspec.json.encode(value).decode()


class BroughtRecords:
    """JSON or GeoJSON: its columns and its first records."""

    def __init__(self, dataset_id: str, form: str, path: Path, encoding: str | None) -> None:
        from kfm.connectors.release.twin import read_json  # with an extra: pyarrow

        _small(path)
        job = Read(dataset_id=dataset_id, format=form, artifact=dataset_id, encoding=encoding)
        try:
            found = read_json(job, InputFile(source_id=path.name, path=str(path), digest=""))
        except Refused as error:
            said = error.refusal
            raise UsageError(said.happened, expected=said.expected, remedy=said.remedy) from error
        rows = [r for r in found.records if isinstance(r, dict)]
        if not rows:
            raise UsageError(
                f"{path.name} holds no records.",
                expected="a list of objects, or features",
                remedy="Give a file with at least one.",
            )
        self.columns = list(rows[0])  # every record shows them all
        written = found.write([*rows[:SAMPLE_ROWS]])
        self.sample = written.encode() if isinstance(written, str) else written


class BroughtWhole:
    """A file that is read whole: its columns are what a run makes of it."""

    def __init__(self, dataset_id: str, source: Json, path: Path, encoding: str | None) -> None:
        from kfm.connectors.child.process import run_inline  # with an extra: pyarrow

        self.sample = _small(path)
        packed = source.get("packed")
        job = Read(
            dataset_id=dataset_id,
            source_kind=source["kind"],
            format=source["format"],
            packed=msgspec.convert({"by": packed}, Packed) if packed else None,
            options=source.get("options", {}),
            encoding=encoding,
            inputs=(InputFile(source_id=path.name, path=str(path.absolute()), digest=""),),
            artifact="tried.parquet",
            max_quarantined=1,
        )
        try:
            with tempfile.TemporaryDirectory(prefix="kfm-tried-") as aside:
                found = run_inline(job, Path(aside))
        except CaptureRefused as error:
            raise UsageError(
                error.happened, expected=error.expected, remedy=error.remedy
            ) from error
        self.columns = [c.name for c in found.schema]


class _Counted:
    """Counts the elements of an XML file by the way to them."""

    def __init__(self) -> None:
        self.made = list[None]()
        self.found = Counter[tuple[str, ...]]()
        self._way = list[str]()

    def start(self, name: str, attributes: dict[str, str]) -> None:
        from kfm.connectors.read.xml_events import local

        self._way.append(local(name))
        if len(self.found) < 10_000:
            self.found[tuple(self._way)] += 1

    def end(self, name: str) -> None:
        self._way.pop()

    def text(self, text: str) -> None:
        pass


def record_path(path: Path, packed: str, encoding: str | None) -> str:
    """Where the records of an XML file seem to be: the elements nearest to the root of which there
    are several.
    """
    from kfm.connectors.read.packed import unpacked  # with an extra: pyarrow
    from kfm.connectors.read.xml_events import BLOCK, events

    counted = _Counted()
    given = InputFile(source_id=path.name, path=str(path), digest="")
    how = msgspec.convert({"by": packed}, Packed) if packed else None
    try:
        with (
            tempfile.TemporaryDirectory(prefix="kfm-tried-") as aside,
            unpacked((given,), how, "xml", Path(aside)) as (plain_file,),
            open(plain_file.path, "rb") as file,
        ):
            blocks = iter(lambda: file.read(BLOCK), b"")
            for _ in events(blocks, counted, path.name, encoding=encoding):
                pass
    except Refused as error:
        said = error.refusal
        raise UsageError(said.happened, expected=said.expected, remedy=said.remedy) from error
    several = [(len(way), -n, way) for way, n in counted.found.items() if n > 1]
    if not several:
        raise UsageError(
            f"{path.name} has no elements of which there are several.",
            expected="an element for each record",
            remedy="Give a file with more than one record.",
        )
    return "/" + "/".join(min(several)[2])


_ROWS = 20  # of a sheet, looked at for the names of its columns


def table_in(path: Path, form: str) -> Json:
    """Where the table of a spreadsheet seems to be: the first sheet with two rows of several cells,
    and the rows its names stand in, where that is not the first one. A title above the names is one
    cell; names stand in two rows where a cell of the upper one is merged over several columns.
    """
    from kfm.connectors.read.ods import OdsBook
    from kfm.connectors.read.sheets import Book, opened
    from kfm.connectors.read.xlsx import XlsxBook

    given = InputFile(source_id=path.name, path=str(path), digest="")
    try:
        with opened(given, form, 16 * _MOST) as archive:
            book: Book = (XlsxBook if form == "xlsx" else OdsBook)(archive, path.name)
            for number, name in enumerate(book.names):
                wide = [row for row, cells in islice(book.rows(number), _ROWS) if len(cells) > 1]
                if len(wide) < 2:
                    continue
                top = wide[0]
                joined = any(
                    s.top == s.bottom == top and s.right > s.left for s in book.spans(number)
                )
                header: Json = {"header": [top, top + 1]} if joined else {"header": top}
                return ({"sheet": name} if number else {}) | (header if joined or top > 1 else {})
    except Refused as error:
        said = error.refusal
        raise UsageError(said.happened, expected=said.expected, remedy=said.remedy) from error
    return {}
