"""The tables of a version as one file in a format that other tools read; the same version gives the
same bytes.

    csv      RFC 4180 in UTF-8, lines end in LF; texts in quotes, a missing value has none; times as
             ISO 8601, geometries as WKT, what is nested as JSON
    geojson  RFC 7946: longitude and latitude on WGS 84, outer rings counter-clockwise, one feature
             a line; a number that is none is null
    parquet  the file itself; several become one
    xlsx     one sheet; times and numbers that a cell cannot hold exactly are text; never a formula
    gpkg     one layer; times to the millisecond; the same bytes from the same GDAL
"""

import io
import json
import math
import os
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from secrets import token_hex
from typing import IO, NamedTuple
from xml.sax.saxutils import escape

import pyarrow as pa
import pyarrow.parquet as pq

from kfm.data.libraries import library
from kfm.diff.cells import shapes, values
from kfm.diff.side import Side
from kfm.model import UsageError
from kfm.zones.durable import sync_folder

__all__ = ["FORMATS", "csv_line", "write_as"]

_BATCH = 1 << 14
# what a spreadsheet takes for the beginning of a formula
_FORMULA = ("=", "+", "-", "@", "\t", "\r")
_EPOCH = "1980-01-01T00:00:00Z"  # of files that must hold a date
_MOST_ROWS, _MOST_COLUMNS, _MOST_TEXT = 1_048_576, 16_384, 32_767  # of a sheet
_EXACT = 1 << 53  # whole numbers beyond it are not what a cell shows


class _Table(NamedTuple):
    """All tables of a version as one."""

    name: str
    side: Side
    key: tuple[str, ...]

    @property
    def columns(self) -> list[str]:
        return list(self.side.types)

    def batches(self) -> Iterator[dict[str, "pa.Array"]]:
        """Its rows, some at a time; a column that only another file has is empty."""
        for file in self.side.files:
            for batch in file.iter_batches(_BATCH):
                there = dict(zip(batch.schema.names, batch.columns))
                yield {
                    name: there[name] if name in there else pa.nulls(batch.num_rows)
                    for name in self.columns
                }

    def rows(self, geometry: Callable[["pa.Array"], list[object]]) -> Iterator[Sequence[object]]:
        """Its rows as plain values."""
        for batch in self.batches():
            yield from zip(
                *(geometry(a) if n == self.side.geometry else values(a) for n, a in batch.items())
            )


def write_as(
    form: str,
    files: Mapping[str, Path],
    path: Path,
    *,
    name: str,
    key: tuple[str, ...] = (),
    no_formulas: bool = False,
) -> int:
    """Write all tables to `path`, whole or not at all; how many rows there are."""
    table = _Table(name, Side(files), key)
    with _placed(path, form) as part:
        if form == "csv":
            _csv(table, part, no_formulas)
        elif form == "parquet":
            _parquet(table, [p for n, p in sorted(files.items()) if n.endswith(".parquet")], part)
        else:
            {"geojson": _geojson, "xlsx": _xlsx, "gpkg": _gpkg}[form](table, part)
    return int(table.side.rows)


FORMATS = ("csv", "geojson", "parquet", "xlsx", "gpkg")


@contextmanager
def _placed(path: Path, form: str) -> Iterator[Path]:
    """A name beside `path` to write to, which becomes `path` once everything is written."""
    part = path.with_name(f".{path.name}.{token_hex(4)}.part.{form}")
    try:
        yield part
        with part.open("rb+") as written:
            os.fsync(written.fileno())
        part.replace(path)
        sync_folder(path.parent)
    finally:
        for left in path.parent.glob(f"{part.name}*"):  # and what SQLite laid beside it
            left.unlink(missing_ok=True)


# ---- csv -----------------------------------------------------------------------------------------
def _csv(table: _Table, path: Path, no_formulas: bool) -> None:
    guard = _guarded if no_formulas else str
    with path.open("w", encoding="utf-8", newline="") as out:
        out.write(",".join(_quoted(guard(name)) for name in table.columns) + "\n")
        for row in table.rows(_wkt):
            out.write(",".join(_cell(value, guard) for value in row) + "\n")


def csv_line(cells: Sequence[object]) -> str:
    """A line of CSV in which no spreadsheet finds a formula."""
    return ",".join(_cell(value, _guarded) for value in cells) + "\n"


def _wkt(column: "pa.Array") -> list[object]:
    return shapes(column, math.inf)[0]


def _cell(value: object, guard: Callable[[str], str]) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    return _quoted(guard(value if isinstance(value, str) else _as_json(value)))


def _quoted(text: str) -> str:
    return '"' + text.replace('"', '""') + '"'


def _guarded(text: str) -> str:
    """Text that no spreadsheet takes for a formula."""
    return f"'{text}" if text.startswith(_FORMULA) else text


def _as_json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False)


# ---- geojson -------------------------------------------------------------------------------------
def _geojson(table: _Table, path: Path) -> None:
    at = _place_of_geometry(table)
    keyed = len(table.key) == 1 and table.key[0] in table.columns
    key = table.columns.index(table.key[0]) if keyed else None
    with path.open("w", encoding="utf-8", newline="") as out:
        out.write('{"type": "FeatureCollection", "features": [')
        for n, row in enumerate(table.rows(_features)):
            properties = {
                name: _number_or_null(v)
                for i, (name, v) in enumerate(zip(table.columns, row))
                if i != at
            }
            named = (
                f'"id": {_as_json(row[key])}, ' if key is not None and row[key] is not None else ""
            )
            out.write(
                f'{"," if n else ""}\n{{"type": "Feature", {named}"geometry": {row[at] or "null"},'
                f' "properties": {_as_json(properties)}}}'
            )
        out.write("\n]}\n")


def _number_or_null(value: object) -> object:
    return None if value in ("nan", "inf", "-inf") else value


def _features(column: "pa.Array") -> list[object]:
    shapely = library("shapely", "writes geometries")
    found = shapely.from_wkb(column.to_numpy(zero_copy_only=False), on_invalid="ignore")
    return list(shapely.to_geojson(shapely.orient_polygons(found)))


def _place_of_geometry(table: _Table) -> int:
    if not table.side.geometry:
        raise UsageError(
            f"{table.name} has no geometry.",
            expected="a format for tables",
            remedy="Choose csv, xlsx or parquet.",
        )
    return table.columns.index(table.side.geometry)


# ---- parquet -------------------------------------------------------------------------------------
def _parquet(table: _Table, paths: Sequence[Path], path: Path) -> None:
    if len(paths) == 1:
        import shutil

        shutil.copyfile(paths[0], path)
        return
    schemas = [file.schema_arrow for file in table.side.files]
    whole = pa.unify_schemas(
        [schema.remove_metadata() for schema in schemas], promote_options="permissive"
    ).with_metadata(_joined([schema.metadata or {} for schema in schemas], table.side))
    with pq.ParquetWriter(path, whole, compression="zstd") as out:
        for batch in table.batches():
            arrays = [batch[f.name].cast(f.type) for f in whole]
            out.write_batch(pa.record_batch(arrays, schema=whole))


def _joined(metadata: Sequence[Mapping[bytes, bytes]], side: Side) -> dict[bytes, bytes]:
    """What all files say of their geometries."""
    told = [json.loads(m[b"geo"]) for m in metadata if b"geo" in m]
    if not told or not side.geometry:
        return {}
    columns = [one["columns"][side.geometry] for one in told if side.geometry in one["columns"]]
    types = sorted({kind for column in columns for kind in column.get("geometry_types", ())})
    box = [end(e) for end, e in zip((min, min, max, max), zip(*side.boxes))]
    column = {**columns[0], "geometry_types": types} | ({"bbox": box} if box else {})
    whole = {**told[0], "columns": {side.geometry: column}}
    return {b"geo": json.dumps(whole, sort_keys=True, separators=(",", ":")).encode()}


# ---- xlsx ----------------------------------------------------------------------------------------
_PACKAGE = {  # what every workbook of one sheet holds
    "[Content_Types].xml": (
        '<Types xmlns="http://schemas.openxmlformats.org/package/2006/content-types">'
        '<Default Extension="rels"'
        ' ContentType="application/vnd.openxmlformats-package.relationships+xml"/>'
        '<Default Extension="xml" ContentType="application/xml"/>'
        '<Override PartName="/xl/workbook.xml" ContentType="application/vnd.openxmlformats-'
        'officedocument.spreadsheetml.sheet.main+xml"/>'
        '<Override PartName="/xl/worksheets/sheet1.xml" ContentType="application/vnd.'
        'openxmlformats-officedocument.spreadsheetml.worksheet+xml"/></Types>'
    ),
    "_rels/.rels": (
        '<Relationships xmlns="http://schemas.openxmlformats.org/package/2006/relationships">'
        '<Relationship Id="r1" Type="http://schemas.openxmlformats.org/officeDocument/2006/'
        'relationships/officeDocument" Target="xl/workbook.xml"/></Relationships>'
    ),
    "xl/workbook.xml": (
        '<workbook xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main"'
        ' xmlns:r="http://schemas.openxmlformats.org/officeDocument/2006/relationships">'
        '<sheets><sheet name="{name}" sheetId="1" r:id="r1"/></sheets></workbook>'
    ),
    "xl/_rels/workbook.xml.rels": (
        '<Relationships xmlns="http://schemas.openxmlformats.org/package/2006/relationships">'
        '<Relationship Id="r1" Type="http://schemas.openxmlformats.org/officeDocument/2006/'
        'relationships/worksheet" Target="worksheets/sheet1.xml"/></Relationships>'
    ),
}
_HEAD = '<?xml version="1.0" encoding="UTF-8" standalone="yes"?>\n'


def _xlsx(table: _Table, path: Path) -> None:
    rows, columns = table.side.rows + 1, len(table.columns)
    if rows > _MOST_ROWS or columns > _MOST_COLUMNS:
        raise UsageError(
            f"{table.name} has {rows - 1:,} rows and {columns:,} columns.",
            expected=f"at most {_MOST_ROWS - 1:,} rows and {_MOST_COLUMNS:,} columns, as a sheet"
            " holds",
            remedy="Choose csv or parquet.",
        )
    with zipfile.ZipFile(path, "w") as book:
        for name, text in _PACKAGE.items():
            told = text.replace("{name}", escape(table.name[:31], {'"': "&quot;"}))
            book.writestr(_member(name), _HEAD + told)
        with book.open(_member("xl/worksheets/sheet1.xml"), "w", force_zip64=True) as sheet:
            out = io.TextIOWrapper(sheet, encoding="utf-8", newline="")
            _sheet(table, out)
            out.flush()
            out.detach()


def _member(name: str) -> zipfile.ZipInfo:
    found = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
    found.compress_type, found.external_attr = zipfile.ZIP_DEFLATED, 0o644 << 16
    found.create_system = 3
    return found


def _sheet(table: _Table, out: IO[str]) -> None:
    out.write(
        f'{_HEAD}<worksheet xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main">'
        '<sheetViews><sheetView workbookViewId="0"><pane ySplit="1" topLeftCell="A2"'
        ' activePane="bottomLeft" state="frozen"/></sheetView></sheetViews><sheetData>'
    )
    out.write(f"<row>{''.join(map(_text, table.columns))}</row>")
    for row in table.rows(_wkt):
        out.write(f"<row>{''.join(map(_in_sheet, row))}</row>")
    out.write("</sheetData></worksheet>")


def _in_sheet(value: object) -> str:
    if value is None:
        return "<c/>"
    if isinstance(value, bool):
        return f'<c t="b"><v>{int(value)}</v></c>'
    if isinstance(value, float) or (isinstance(value, int) and abs(value) <= _EXACT):
        return f"<c><v>{value!r}</v></c>"
    return _text(value if isinstance(value, int | str) else _as_json(value))


def _text(value: object) -> str:
    text = str(value)
    if len(text) > _MOST_TEXT:
        raise UsageError(
            f"A text has {len(text):,} letters: {text[:40]}…",
            expected=f"at most {_MOST_TEXT:,}, as a cell holds",
            remedy="Choose csv or parquet.",
        )
    # what XML cannot hold has a spelling of its own there
    plain = "".join(
        c if c in "\t\n" or " " <= c < "\ufffe" or c > "\uffff" else f"_x{ord(c):04X}_"
        for c in text
    )
    return f'<c t="inlineStr"><is><t xml:space="preserve">{escape(plain)}</t></is></c>'


# ---- gpkg ----------------------------------------------------------------------------------------
def _gpkg(table: _Table, path: Path) -> None:
    pyogrio = library("pyogrio", "writes GeoPackage")
    geometry, side = table.side.geometry, table.side
    _place_of_geometry(table)
    known = {name.lower() for name in table.columns}
    if len(known) < len(table.columns):
        raise UsageError(
            f"{table.name} has columns that only differ in capitals.",
            expected="columns that SQLite can tell apart",
            remedy="Choose parquet or geojson.",
        )
    fields = [(n, _field(side.types[n], n == geometry)) for n in table.columns]
    schema = pa.schema(
        [
            pa.field(n, kind, metadata={"ARROW:extension:name": "geoarrow.wkb"})
            if n == geometry
            else pa.field(n, kind)
            for n, kind in fields
        ]
    )
    reader = pa.RecordBatchReader.from_batches(
        schema,
        (
            pa.record_batch([_fitted(b[n], kind) for n, kind in fields], schema=schema)
            for b in table.batches()
        ),
    )
    before = pyogrio.get_gdal_config_option("OGR_CURRENT_DATE")
    pyogrio.set_gdal_config_options({"OGR_CURRENT_DATE": _EPOCH})
    try:
        pyogrio.write_arrow(
            reader,
            path,
            layer=table.name,
            driver="GPKG",
            geometry_name=geometry,
            geometry_type=_one_type(side),
            crs="EPSG:4326",
            FID=next(name for name in ("fid", "ogc_fid", "kfm_fid") if name not in known),
        )
    finally:
        pyogrio.set_gdal_config_options({"OGR_CURRENT_DATE": before})


def _one_type(side: Side) -> str:
    """What a layer says it holds: the one type of all geometries, or any."""
    told = [json.loads((f.metadata.metadata or {}).get(b"geo", b"{}")) for f in side.files]
    types = {
        kind
        for one in told
        for kind in one.get("columns", {}).get(side.geometry, {}).get("geometry_types", ["Unknown"])
    }
    return types.pop() if len(types) == 1 else "Unknown"


def _field(kind: "pa.DataType", geometry: bool) -> "pa.DataType":
    if geometry or pa.types.is_large_binary(kind):
        return pa.binary()
    if pa.types.is_timestamp(kind):
        return pa.timestamp("ms", kind.tz)
    keeps = (
        pa.types.is_boolean(kind)
        or pa.types.is_integer(kind)
        or pa.types.is_floating(kind)
        or pa.types.is_date(kind)
    )
    return kind if keeps else pa.string()


def _fitted(column: "pa.Array", kind: "pa.DataType") -> "pa.Array":
    if pa.types.is_string(kind):
        return pa.array(
            [v if v is None or isinstance(v, str) else _as_json(v) for v in values(column)], kind
        )
    return column.cast(kind, safe=not pa.types.is_timestamp(kind))
