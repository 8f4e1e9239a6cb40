"""A delimited file that somebody brings, read as its mapping says: which columns, in which units,
in which coordinate system.
"""

import datetime as dt
import re
from collections.abc import Callable, Iterator, Sequence
from decimal import Decimal, InvalidOperation
from functools import lru_cache
from pathlib import Path
from typing import Any, NoReturn
from zoneinfo import ZoneInfo

import msgspec
import numpy as np
import pyarrow as pa

from kfm.connectors.base import InputFile, Refused
from kfm.connectors.child.code import hooks_in
from kfm.connectors.kind import in_utc
from kfm.connectors.mapping import CONVERSIONS, MappedColumn, Mapping, column_names, with_nulls
from kfm.connectors.operations import Read
from kfm.connectors.read.crs import ToWgs84, to_wgs84
from kfm.connectors.read.geometry import Point, Problem
from kfm.connectors.read.rows import Batch, Loose
from kfm.connectors.read.tabular import CsvReader
from kfm.connectors.table.values import cells_text, type_cells
from kfm.model import Column
from kfm.model.did_you_mean import meant

__all__ = ["columns", "readers"]

_PLACE = ("longitude", "latitude", "source_crs", "source_x", "source_y", "geometry")
Cells = Sequence[str]


def readers(job: Read) -> list["_Reader"]:
    """One reader per file."""
    mapping = _mapping(job)
    _compare(job, mapping)
    return [_Reader(source, mapping, job.encoding) for source in job.inputs]


def columns(job: Read) -> tuple[Column, ...]:
    """The mapped columns, those that are kept unlisted, and where the record is."""
    mapping = _mapping(job)
    found = [
        Column(name=c.to, type=c.type, nullable=not c.required, unit=c.unit)
        for c in mapping.columns
    ]
    if mapping.unlisted == "keep" and job.inputs:
        found += [
            Column(name=n, type="string")
            for n in _Reader(job.inputs[0], mapping, job.encoding).kept().values()
        ]
    if mapping.crs is not None:
        degrees = [Column(name=n, type="number", unit="deg") for n in _PLACE[:2]]
        original = [
            Column(name="source_crs", type="string"),
            *(Column(name=n, type="number") for n in _PLACE[3:5]),
        ]
        found += degrees + ([] if _same(mapping) else original)
    if mapping.geometry:
        found.append(Column(name="geometry", type="geometry"))
    return tuple(found)


def _mapping(job: Read) -> Mapping:
    try:
        return msgspec.convert(with_nulls(job.mapping), Mapping)
    except msgspec.ValidationError as error:
        raise Refused(
            "mapping",
            (
                f"mapping.yml of {job.dataset_id}: {error}."
                if job.mapping
                else f"{job.dataset_id} has no mapping.yml."
            ),
            expected="a mapping as docs/connectors.md describes it",
            remedy=(
                "Correct"
                f" scripts/connectors/{job.dataset_id}/mapping.yml.{meant(error, Mapping) if job.mapping else ''}"
            ),
        ) from error


def _compare(job: Read, mapping: Mapping) -> None:
    """What is typed here is not typed again: the registry must say the same, and only code may make
    more of a text.
    """
    types = {c.name: c.type for c in job.schema}
    code = job.connector is not None and "transform" in hooks_in(Path(job.connector))
    for c in mapping.columns:
        stated = types.get(c.to, c.type)
        if c.type != stated and not (
            code and (c.type == "string" or (c.type, stated) == ("integer", "number"))
        ):
            raise Refused(
                "mapping",
                f"{c.to} is {c.type} in mapping.yml and {stated} in the schema of"
                f" data/registry/{job.dataset_id}.yml.",
                expected="one type for one column",
                remedy=(
                    f"Correct one of them: scripts/connectors/{job.dataset_id}/mapping.yml or the"
                    " registry."
                ),
            )


def _same(mapping: Mapping) -> bool:
    """Whether x and y are longitude and latitude on WGS 84; a system that is refused is not, the
    reader says why.
    """
    try:
        return mapping.crs is not None and to_wgs84(mapping.crs).same
    except Refused:
        return False


class _Layout:
    """Which cell of a row is what."""

    def __init__(self, header: list[str], mapping: Mapping, source_id: str) -> None:
        self.width, self.header, self._source_id = len(header), header, source_id
        self.columns = [(self._at(c.source), c) for c in mapping.columns]
        self.place = (
            None
            if mapping.x is None or mapping.y is None
            else (self._at(mapping.x), self._at(mapping.y))
        )
        listed = {at for at, _ in self.columns} | set(self.place or ())
        self.rest = {
            i: h if h and header.count(h) == 1 else f"{h or 'column'}_{i + 1}"
            for i, h in enumerate(header)
            if i not in listed
        }
        if self.rest and mapping.unlisted == "refuse":
            names = ", ".join(
                f"{name!r} (column {i + 1})" for i, name in list(self.rest.items())[:10]
            )
            self._refuse(
                "schema.unknown-column",
                f"has columns the mapping does not know: {names}",
                "only columns the mapping lists",
            )

    def _at(self, where: str | int) -> int:
        if isinstance(where, int):
            if where > self.width:
                self._refuse(
                    "schema.missing-column",
                    f"has {self.width} columns, the mapping names column {where}",
                    "every mapped column",
                )
            return where - 1
        found = [i for i, name in enumerate(self.header) if name == where.strip()]
        if not found:
            self._refuse("schema.missing-column", f"has no column {where!r}", "every mapped column")
        if len(found) > 1:
            self._refuse(
                "csv.header",
                f"names {where!r} {len(found)} times",
                "one column of that name, or a number in the mapping",
            )
        return found[0]

    def _refuse(self, code: str, what: str, expected: str) -> NoReturn:
        raise Refused(
            code,
            f"Source {self._source_id} {what}.",
            expected=expected,
            remedy=(
                "Upstream may have changed its columns; look at the header, then correct the"
                " mapping (columns can be named by number)."
            ),
            source_id=self._source_id,
            header=self.header,
        )


class _Reader(CsvReader):
    """One file through the mapping."""

    def __init__(self, source: InputFile, mapping: Mapping, encoding: str | None) -> None:
        super().__init__(source, mapping.encoding or encoding)
        self._mapping = mapping
        self._to: ToWgs84 | None = None
        self._convert = {c.to: _converter(c, mapping) for c in mapping.columns}

    def kept(self) -> dict[int, str]:
        """The unlisted columns by place, and what they are called."""
        for header, _ in self._chunks():
            return self._named(_Layout(header, self._mapping, self.source_id))
        return {}

    def _named(self, layout: _Layout) -> dict[int, str]:
        taken = [c.to for c in self._mapping.columns] + list(_PLACE[:2] if layout.place else ())
        names = column_names([*taken, *layout.rest.values()])
        return {i: names[name] for i, name in layout.rest.items()}

    def _separator(self, text: str) -> str:
        return self._mapping.delimiter or super()._separator(text)

    def _chunks(self) -> Iterator[tuple[list[str], Any]]:
        mapping, skip = self._mapping, self._mapping.skip_rows
        header = [n.strip() for n in mapping.header] if isinstance(mapping.header, tuple) else []
        for chunk in self._parsed():
            drop = [
                i
                for i, row in enumerate(chunk.rows)
                if mapping.comment and row[0].startswith(mapping.comment)
            ]
            _remove(chunk, drop)
            skipped = min(skip, len(chunk.rows))
            _remove(chunk, range(skipped))
            skip -= skipped
            if chunk.rows and not header:
                self._narrow(chunk.rows[0])
                header = (
                    [c.strip() for c in chunk.rows[0]]
                    if mapping.header is True
                    else [""] * len(chunk.rows[0])
                )
                _remove(chunk, range(1 if mapping.header is True else 0))
            if chunk.rows:
                yield header, chunk

    def batches(self, names: tuple[str, ...]) -> Iterator[Batch]:
        """Rows as finished columns."""
        layout: _Layout | None = None
        for header, chunk in self._chunks():
            layout = layout or _Layout(header, self._mapping, self.source_id)
            yield self._batch(layout, chunk, names)

    def loose(self) -> Iterator[list[Loose]]:
        """The same rows as dicts, for connector code."""
        for batch in self.batches(()):
            lists: dict[str, Any] = {
                k: v.to_pylist() if isinstance(v, pa.Array) else v for k, v in batch.columns.items()
            }
            yield [_loose(batch, lists, i) for i in range(batch.size)]

    def _batch(self, layout: _Layout, chunk: Any, names: tuple[str, ...]) -> Batch:
        self._check_end(chunk, layout.width)
        ragged = {i: len(r) for i, r in enumerate(chunk.rows) if len(r) != layout.width}
        bad: dict[int, Problem] = {
            i: ("csv.columns", f"the row has {n} cells, {layout.width} are expected")
            for i, n in ragged.items()
        }
        bad |= self._headers_again(layout.header, chunk)
        rows = (
            [[""] * layout.width if i in bad else r for i, r in enumerate(chunk.rows)]
            if bad
            else chunk.rows
        )
        cells: list[Cells] = list(zip(*rows))
        found: dict[str, Any] = {
            c.to: self._convert[c.to](cells[at], bad) for at, c in layout.columns
        }
        if self._mapping.unlisted == "keep":
            found |= {
                name: cells_text(_clean(cells[i], set(self._mapping.nulls)))
                for i, name in self._named(layout).items()
            }
        elif layout.rest:
            left = ", ".join(layout.rest.values())
            self.warnings.add(f"Columns of {self.source_id} that the mapping drops: {left[:300]}.")
        if layout.place is not None:
            found |= self._place(cells[layout.place[0]], cells[layout.place[1]], bad)
        unknown = tuple(n for n in found if n not in names) if names else ()
        return Batch(
            self.source_id, len(rows), found, chunk.starts.__getitem__, chunk.raw, bad, unknown
        )

    def _place(self, xs: Cells, ys: Cells, bad: dict[int, Problem]) -> dict[str, Any]:
        """Where the records are: the original kept, moved to WGS 84."""
        x, y = (
            _converter(MappedColumn(source=1, to="coordinate", type="number"), self._mapping)(
                cells, bad
            )
            for cells in (xs, ys)
        )
        has_x, has_y = (a.is_valid().to_numpy(zero_copy_only=False) for a in (x, y))
        both = has_x & has_y
        there = [a.to_numpy(zero_copy_only=False).astype(np.float64) for a in (x, y)]
        to = self._system(there[0][both], there[1][both])
        lon, lat = (np.full(len(both), np.nan) for _ in "xy")
        lon[both], lat[both] = to(there[0][both], there[1][both])
        for i in np.flatnonzero((both & np.isnan(lon)) | (has_x != has_y)).tolist():
            bad.setdefault(
                i, ("crs.range", f"x {xs[i]!r}, y {ys[i]!r} is no position in {to.name}")
            )
        found: dict[str, Any] = {
            "longitude": pa.array(lon, from_pandas=True),
            "latitude": pa.array(lat, from_pandas=True),
        }
        if not to.same:
            found |= {
                "source_crs": pa.array([to.name if b else None for b in both], pa.string()),
                "source_x": x,
                "source_y": y,
            }
        if self._mapping.geometry:
            found["geometry"] = [
                Point([a, b]) if a == a else None for a, b in zip(lon.tolist(), lat.tolist())
            ]
        return found

    def _system(self, x: Any, y: Any) -> ToWgs84:
        if self._to is None:
            assert self._mapping.crs is not None
            bounds = (
                (float(x.min()), float(y.min()), float(x.max()), float(y.max())) if len(x) else None
            )
            self._to = to_wgs84(self._mapping.crs, bounds)
        return self._to


def _remove(chunk: Any, drop: Sequence[int]) -> None:
    for i in reversed(drop):
        del chunk.rows[i], chunk.starts[i], chunk.ends[i]


def _loose(batch: Batch, lists: dict[str, Any], index: int) -> Loose:
    problem = batch.bad.get(index)
    row = {name: values[index] for name, values in lists.items()}
    return Loose(
        batch.line(index),
        lambda: batch.raw(index),
        None if problem else row,
        problem,
        row if problem else None,
    )


def _clean(cells: Cells, null: set[str]) -> list[str]:
    """Cells without blanks around them, empty where they mean nothing."""
    found = [c.strip() for c in cells]
    return ["" if c in null else c for c in found] if null else found


def _converter(
    column: MappedColumn, mapping: Mapping
) -> Callable[[Cells, dict[int, Problem]], "pa.Array"]:
    """Text cells of one column as an Arrow array of its type."""
    null = {*mapping.nulls, *column.nulls}
    target = Column(name=column.to, type=column.type)
    change: Callable[[str], str | None] | None = None
    what = "is not in a form that is stated, or its hour is not certain"
    if column.type in ("number", "integer"):
        change, what = (
            _number_change(column, mapping),
            f"is not written as mapping.yml says numbers are (decimal {mapping.decimal!r})",
        )
    elif column.format or (column.type == "timestamp" and mapping.time_zone):
        change = _time_change(column, mapping.time_zone)

    def convert(cells: Cells, bad: dict[int, Problem]) -> "pa.Array":
        text = _clean(cells, null)
        if change is not None:
            for i, cell in enumerate(text):
                found = change(cell) if cell else cell
                if found is None:
                    bad.setdefault(i, ("type", f"{column.to}: {cell[:80]!r} {what}"))
                text[i] = found or ""
        return type_cells(target, cells_text(text), bad)

    return convert


def _number_change(column: MappedColumn, mapping: Mapping) -> Callable[[str], str | None] | None:
    """Numbers with the marks of their country, in the unit that is wanted; None: they are fine as
    they are.
    """
    unit = _unit_change(column) if column.source_unit is not None else None
    if mapping.decimal == "." and mapping.thousands is None:
        return unit
    group = r"[ \u00a0\u202f]" if mapping.thousands == " " else re.escape(mapping.thousands or "")
    grouped = rf"\d{{1,3}}(?:{group}\d{{3}})+|" if mapping.thousands else ""
    form = re.compile(
        rf"([+-]?)({grouped}\d*)(?:{re.escape(mapping.decimal)}(\d*))?([eE][+-]?\d+)?", re.ASCII
    )

    def change(text: str) -> str | None:
        found = form.fullmatch(text)
        if found is None or not (found[2] or found[3]):
            return None
        plain = (
            found[1]
            + re.sub(r"\D", "", found[2])
            + (f".{found[3]}" if found[3] else "")
            + (found[4] or "")
        )
        return unit(plain) if unit is not None else plain

    return change


def _unit_change(column: MappedColumn) -> Callable[[str], str]:
    add, by, over = CONVERSIONS[column.source_unit or "", column.unit or ""]

    def change(text: str) -> str:
        try:
            number = Decimal(text)
        except InvalidOperation:
            return text  # typing it says what is wrong
        return repr(float((number + add) * by / over)) if number.is_finite() else text

    return change


def _time_change(column: MappedColumn, time_zone: str | None) -> Callable[[str], str | None]:
    zone = _zone(column, time_zone)

    @lru_cache(maxsize=65_536)
    def change(text: str) -> str | None:
        for form in column.format or (None,):
            try:
                found = (
                    dt.datetime.strptime(text, form) if form else dt.datetime.fromisoformat(text)
                )
            except ValueError:
                continue
            if form and "%y" in form and column.first_year is not None:
                found = found.replace(
                    year=column.first_year + (found.year - column.first_year) % 100
                )
            if column.type == "date":
                return found.date().isoformat()
            return in_utc(found, zone)
        return None

    return change


def _zone(column: MappedColumn, time_zone: str | None) -> ZoneInfo | None:
    try:
        return ZoneInfo(time_zone) if time_zone else None
    except (KeyError, ValueError, OSError):
        raise Refused(
            "mapping",
            f"The time zone {time_zone!r} of {column.to} is not known.",
            expected="a name such as America/Chicago",
            remedy="Write `time_zone` in mapping.yml as the IANA list spells it.",
        ) from None
