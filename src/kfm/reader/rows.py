"""The rows of a version: some columns, filtered, sorted and by the page, as JSON, CSV or GeoJSON. A
page is read in pieces, holds no more than it shows, and takes no longer than a few seconds.
"""

import datetime as dt
import functools
import operator
import re
import time
from collections.abc import Callable, Iterator, Sequence
from math import floor
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

import msgspec
from litestar import Response
from litestar.handlers import HTTPRouteHandler

from kfm.access.boundary import Opened
from kfm.access.checked_files import check_bytes
from kfm.access.memory import Mark, not_at_hand
from kfm.data.libraries import library
from kfm.model import Json
from kfm.reader import cql2
from kfm.reader.door import Asking, BadQuestion
from kfm.reader.kinds import CSV, FEATURES, GEOJSON, TEXT, Answers, named
from kfm.reader.route import reads
from kfm.reader.row_groups import TableFile, rows_between
from kfm.reader.versions import which_of

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.compute as pc

__all__ = ["ROUTES", "Question", "Rows", "rows_page"]

_MOST, _DEEPEST, _SORTED = 10_000, 50_000_000, 100_000
_SECONDS = 10.0
_QUICK = 200  # rows that are told while nobody else is answered
_SCANNED, _HELD = 1 << 16, 1 << 16
_AT = "kfm row"  # where a row stands: no column of a registered table has a space in front of this
_OPS: dict[str, Callable[[Any, Any], Any]] = {
    "=": operator.eq, "<>": operator.ne, "<": operator.lt,
    ">": operator.gt, "<=": operator.le, ">=": operator.ge,
}  # fmt: skip
_ORDERED = ("string", "int", "uint", "float", "double", "decimal", "date", "timestamp", "bool")


class Rows(msgspec.Struct, frozen=True, kw_only=True):
    """A page of rows."""

    dataset_id: str
    version_id: str
    generation: int  # 0: a proposal
    columns: list[str]
    rows: list[Json]
    returned: int
    total: int | None  # of the version; None: a filter was given, nobody counted what fits
    next: str | None  # the address of the next page
    evidence: str  # what proves these rows


class _Asked(NamedTuple):
    """Which rows were asked for."""

    columns: list[str]
    filter: "pc.Expression | None"
    sort: list[tuple[str, str]]
    limit: int
    offset: int


@reads(
    ["/datasets/{dataset_id:str}/rows", "/datasets/{dataset_id:str}/versions/{which:str}/rows"],
    page="rows",
    quick=True,
    answers=Answers(kinds={CSV: TEXT, GEOJSON: FEATURES}),
    strict=True,
)
def rows(
    asking: Asking,
    dataset_id: str,
    which: str = "latest",
    form: Literal["json", "csv", "geojson"] = "json",
    columns: str | None = None,
    filter: str | None = None,
    sort: str | None = None,
    limit: Annotated[int, named(minimum=1, maximum=_MOST)] = 100,
    token: Annotated[str | None, named(pattern=r"^[0-9]{1,9}$")] = None,
) -> Rows:
    """Rows of a version. `filter` is CQL2 text, `sort` names columns, each with a minus for the
    greatest first, `token` is that of the page before.
    """
    opened = asking.data(which_of(dataset_id, which))
    at = f"/datasets/{dataset_id}/versions/{opened.version_id}"
    proof = f"/evidence/{opened.dataset_id}@{opened.version_id}"
    said = Question(form, columns, filter, sort, limit, token)
    return rows_page(asking, opened, at, proof, said, _told_rows)


class Question(NamedTuple):
    """Which rows, and how, as it was asked."""

    form: Literal["json", "csv", "geojson"] = "json"
    columns: str | None = None
    filter: str | None = None
    sort: str | None = None
    limit: int = 100
    token: str | None = None


def rows_page(
    asking: Asking,
    opened: Opened,
    at: str,
    proof: str,
    said: Question,
    make: "Callable[[pa.Table, str], list[Json]] | None" = None,
) -> Rows:
    """A page of rows of what the boundary let out. `at`: where its rows are asked for, `proof`: what
    proves them, `make`: makes rows that are shown another way than as they are.
    """
    library("pyarrow", "reads Parquet")
    table = _table(_tables(opened), is_kept=opened.generation is not None)
    asked = _asked(table.schema, said.columns, said.filter, said.sort, said.limit, said.token)
    if said.form != "json" or said.limit > _QUICK or table.geometry in asked.columns:
        not_at_hand()
    found, more = _page(table, asked)
    following = _following(f"{asking.address}{at}", said, asked) if more else None
    if said.form == "json":
        proof = f"{asking.address}{proof}"
        rows = (make or _plain)(found, table.geometry)
        return _as_json(opened, table, asked, rows, following, proof)
    return _as_text(said.form, found, table.geometry, opened, following)  # type: ignore[return-value]


class _Table(NamedTuple):
    """What the heads of files say; the rows are read when they are asked for."""

    files: tuple[TableFile, ...]
    schema: "pa.Schema"
    types: "dict[str, pa.DataType]"
    geometry: str
    rows: int


def _tables(opened: Opened) -> tuple[tuple[Path, Mark], ...]:
    """The tables of a version, whose bytes are those that were published, and what they are known
    by.
    """
    names = [name for name in sorted(opened.files) if name.endswith(".parquet")]
    if not names:
        raise BadQuestion("This version holds no table.")
    return tuple(
        (opened.files[name], check_bytes(opened.files[name], opened.digests[name]))
        for name in names
    )


@functools.lru_cache(64)
def _table(files: tuple[tuple[Path, Mark], ...], is_kept: bool) -> _Table:
    """The same for as long as the files are: a head of many row groups takes longer than a page."""
    not_at_hand()
    import pyarrow as pa
    import pyarrow.parquet as pq

    from kfm.diff.side import Side

    read = tuple(TableFile(path, mark, pq.read_metadata(path), is_kept) for path, mark in files)
    schema = pa.unify_schemas(
        [file.head.schema.to_arrow_schema().remove_metadata() for file in read],
        promote_options="permissive",
    )
    geometry = str(Side({path.name: path for path, _ in files}).geometry)
    types = dict(zip(schema.names, schema.types))
    return _Table(read, schema, types, geometry, sum(file.rows for file in read))


# ---- what was asked ------------------------------------------------------------------------------
def _asked(
    schema: "pa.Schema",
    columns: str | None,
    filter: str | None,
    sort: str | None,
    limit: int,
    token: str | None,
) -> _Asked:
    if not 1 <= limit <= _MOST:
        raise BadQuestion(f"limit is {limit}, it is 1 to {_MOST}.", "limit")
    offset = _offset(token)
    wanted = columns.split(",") if columns else schema.names
    order = [_by(schema, each) for each in sort.split(",")] if sort else []
    for name in wanted if columns else ():
        _field(schema, name, "columns")
    if order and offset + limit > _SORTED:
        raise BadQuestion(f"Sorted rows are shown up to {_SORTED}. Filter them.", "token")
    condition = _expression(schema, cql2.parsed(filter)) if filter else None
    return _Asked(list(dict.fromkeys(wanted)), condition, order, limit, offset)


def _offset(token: str | None) -> int:
    if token is None:
        return 0
    if not re.fullmatch(r"[0-9]{1,9}", token) or int(token) > _DEEPEST:
        raise BadQuestion("This token is none that was given out.", "token")
    return int(token)


def _by(schema: "pa.Schema", text: str) -> tuple[str, str]:
    name = text.removeprefix("-").removeprefix("+").strip()
    if not str(_field(schema, name, "sort").type).startswith(_ORDERED):
        raise BadQuestion("Rows cannot be sorted by this column.", "sort")
    return name, "descending" if text.startswith("-") else "ascending"


def _field(schema: "pa.Schema", name: str, where: str) -> "pa.Field":
    if schema.get_field_index(name) < 0:
        raise BadQuestion(f"There is no column {name[:60]!r}.", where)
    return schema.field(name)


def _expression(schema: "pa.Schema", said: cql2.Question) -> "pc.Expression":
    """A question as Arrow has it: a tree of its own, made of columns and typed values."""
    import pyarrow.compute as pc

    match said:
        case cql2.Both(op="not", parts=(part, *_)):
            return ~_expression(schema, part)
        case cql2.Both(op=op, parts=parts):
            join = operator.and_ if op == "and" else operator.or_
            return functools.reduce(join, [_expression(schema, part) for part in parts])
        case cql2.Nothing(name=name):
            return pc.field(_field(schema, name, "filter").name).is_null()
        case cql2.Compared():
            return _comparison(schema, said)
    raise BadQuestion("Rows are not looked up by place; tiles and STAC are.", "filter")


def _comparison(schema: "pa.Schema", said: cql2.Compared) -> "pc.Expression":
    import pyarrow.compute as pc

    field = _field(schema, said.name, "filter")
    column = pc.field(field.name)
    if said.op == "like":
        if not str(field.type).endswith("string") or not isinstance(said.values[0], str):
            raise BadQuestion(f"{said.name} is no text.", "filter")
        return pc.match_like(column, said.values[0])
    if str(field.type).startswith(("int", "uint")) and float in map(type, said.values):
        return _whole_numbers(schema, said)
    values = [_scalar(field, value) for value in said.values]
    if said.op == "between":
        return (column >= values[0]) & (column <= values[1])
    if said.op == "in":
        return functools.reduce(operator.or_, [column == value for value in values])
    return _OPS[said.op](column, values[0])


def _whole_numbers(schema: "pa.Schema", said: cql2.Compared) -> "pc.Expression":
    """A column of whole numbers compared with a decimal: with the whole number beside it, because
    Arrow would compare both as the smallest kind of decimal that holds the one.
    """
    import pyarrow.compute as pc

    column = pc.field(said.name)
    is_there = {True: column == column, False: column != column}  # of no value nobody can tell
    if said.op in ("in", "between"):
        ops = (">=", "<=") if said.op == "between" else ("=",) * len(said.values)
        join = operator.and_ if said.op == "between" else operator.or_
        parts = (cql2.Compared(op, said.name, (v,)) for op, v in zip(ops, said.values))
        return functools.reduce(join, [_comparison(schema, part) for part in parts])
    value = said.values[0]
    assert isinstance(value, float)
    at, field = floor(value), _field(schema, said.name, "filter")
    least, most = _reach(field)
    if said.op in ("=", "<>") and (at != value or not least <= at <= most):
        return is_there[said.op == "<>"]
    if said.op in (">", "<=") or at == value:
        edge, op = at, said.op
    else:  # the next whole number above it is the first that is not smaller
        edge, op = at + 1, said.op
    if not least <= edge <= most:
        return is_there[(edge < least) == (op in (">", ">="))]
    return _OPS[op](column, _scalar(field, edge))


def _reach(field: "pa.Field") -> tuple[int, int]:
    """The least and the greatest number that a column of whole numbers holds."""
    width = field.type.bit_width
    signed = str(field.type).startswith("int")
    return (-(1 << width - 1), (1 << width - 1) - 1) if signed else (0, (1 << width) - 1)


def _scalar(field: "pa.Field", value: cql2.Value) -> "pa.Scalar":
    """A value in the type of its column; what does not fit is refused."""
    import pyarrow as pa

    try:
        if isinstance(value, dt.datetime) and pa.types.is_timestamp(field.type):
            given = value if field.type.tz else value.astimezone(dt.UTC).replace(tzinfo=None)
            return pa.scalar(given, type=field.type)
        if pa.types.is_temporal(field.type):  # of a number Arrow would take the unit of the column
            if not isinstance(value, dt.date):
                raise TypeError
            if isinstance(value, dt.datetime) and pa.types.is_date(field.type):
                raise TypeError  # its time of day would be dropped
            return pa.scalar(value).cast(field.type)
        if isinstance(value, bool) != pa.types.is_boolean(field.type):
            raise TypeError
        if isinstance(value, str) != str(field.type).endswith("string"):
            raise TypeError
        return pa.scalar(value, type=field.type)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        hint = ""
        if pa.types.is_date(field.type):
            hint = "; write DATE('2025-03-01')"
        elif pa.types.is_temporal(field.type) and not isinstance(value, dt.date):
            hint = "; write DATE('2025-03-01') or TIMESTAMP('2025-03-01T12:00:00Z')"
        raise BadQuestion(
            f"{field.name} is {field.type}; {_in_words(value):.60} is not{hint}.", "filter"
        ) from error


def _in_words(value: cql2.Value) -> str:
    """A value as a filter has it."""
    match value:
        case bool():
            return str(value).lower()
        case dt.datetime():
            return f"TIMESTAMP('{value.isoformat()}')"
        case dt.date():
            return f"DATE('{value.isoformat()}')"
    return repr(value)


# ---- the page ------------------------------------------------------------------------------------
def _page(table: _Table, asked: _Asked) -> tuple["pa.Table", bool]:
    """The rows of one page, and whether there are more."""
    import pyarrow as pa

    try:
        if asked.sort:
            return _sorted(table, asked)
        return _in_order(table, asked)
    except pa.ArrowException as error:
        raise BadQuestion("These rows cannot be looked up so.", "filter") from error


def _batches(table: _Table, asked: _Asked) -> Iterator["pa.RecordBatch"]:
    """What fits, in the order of the files, some at a time, as long as there is time."""
    not_at_hand()
    import pyarrow.dataset as ds

    files = [str(file.path) for file in table.files]
    names = list(dict.fromkeys([*asked.columns, *(name for name, _ in asked.sort)]))
    until = time.monotonic() + _SECONDS
    scanner = ds.dataset(files, format="parquet", schema=table.schema).scanner(
        columns=names, filter=asked.filter, batch_size=_SCANNED, batch_readahead=2,
        fragment_readahead=1, use_threads=False,
    )  # fmt: skip
    for batch in scanner.to_batches():
        if time.monotonic() > until:
            raise BadQuestion("That takes too long. Filter by less, or take the whole file.")
        yield batch


def _in_order(table: _Table, asked: _Asked) -> tuple["pa.Table", bool]:
    import pyarrow as pa

    if asked.filter is None:
        return _by_number(table, asked)
    left, found, have = asked.offset, list["pa.RecordBatch"](), 0
    for batch in _batches(table, asked):
        if batch.num_rows <= left:
            left -= batch.num_rows
            continue
        found.append(batch.slice(left, asked.limit + 1 - have))
        have, left = have + found[-1].num_rows, 0
        if have > asked.limit:
            break
    whole = pa.Table.from_batches(found, schema=_shown(table, asked.columns))
    return whole.slice(0, asked.limit), have > asked.limit


def _by_number(table: _Table, asked: _Asked) -> tuple["pa.Table", bool]:
    """Without a filter a page is found by counting row groups, not rows."""
    import pyarrow as pa

    left, wanted, found = asked.offset, asked.limit + 1, list["pa.Table"]()
    for file in table.files:
        if wanted and left < file.rows:
            found += rows_between(file, asked.columns, left, wanted)
            wanted = asked.limit + 1 - sum(part.num_rows for part in found)
        left = max(0, left - file.rows)
    if len(found) == 1 and _is_whole(found[0], table, asked):
        return found[0].slice(0, asked.limit), not wanted
    schema = _shown(table, asked.columns)
    parts = [_filled(part, schema) for part in found]
    whole = pa.concat_tables(parts) if parts else schema.empty_table()
    return whole.slice(0, asked.limit), not wanted


def _is_whole(part: "pa.Table", table: _Table, asked: _Asked) -> bool:
    """Whether a part has every column already, each in the type of the table, or as numbers of
    different values of it.
    """
    import pyarrow as pa

    own = part.schema
    return own.names == asked.columns and all(
        (kind.value_type if isinstance(kind, pa.DictionaryType) else kind) == table.types[name]
        for name, kind in zip(own.names, own.types)
    )


def _filled(part: "pa.Table", schema: "pa.Schema") -> "pa.Table":
    """A column that only another file has is empty here."""
    import pyarrow as pa

    there = dict(zip(part.column_names, part.columns))
    columns = [
        (column if column.type == field.type else _as(column, field.type))
        if (column := there.get(field.name)) is not None
        else pa.nulls(part.num_rows, field.type)
        for field in schema
    ]
    return pa.Table.from_arrays(columns, schema=schema)


def _as(column: "pa.ChunkedArray", kind: "pa.DataType") -> "pa.ChunkedArray":
    column = _decoded(column)
    return column if column.type == kind else column.cast(kind)


def _decoded(column: "pa.ChunkedArray") -> "pa.ChunkedArray":
    """The values themselves, where a column holds numbers of different ones."""
    import pyarrow as pa

    kind = column.type
    if not isinstance(kind, pa.DictionaryType):
        return column
    # a cast would look at everything that has a number
    parts = [chunk.dictionary.take(chunk.indices) for chunk in column.iterchunks()]
    return pa.chunked_array(parts, kind.value_type)


def _shown(table: _Table, names: Sequence[str]) -> "pa.Schema":
    import pyarrow as pa

    return pa.schema([table.schema.field(name) for name in names])


def _sorted(table: _Table, asked: _Asked) -> tuple["pa.Table", bool]:
    """The first rows by the order that is asked for; no more are held than the page needs. Rows that
    are equal by it stand as they do in the files.
    """
    import pyarrow as pa

    numpy = library("numpy", "counts rows")
    need, best, seen, last = asked.offset + asked.limit + 1, None, 0, None
    order = [*asked.sort, (_AT, "ascending")]
    for batch in _batches(table, asked):
        numbers = pa.array(numpy.arange(seen, seen + batch.num_rows))
        seen += batch.num_rows
        part = pa.Table.from_batches([batch.append_column(_AT, numbers)])
        part = part if last is None else part.filter(_no_worse(part, asked.sort[0], last))
        best = part if best is None else pa.concat_tables([best, part])
        if best.num_rows > need + _HELD:
            best = best.sort_by(order).slice(0, need).combine_chunks()
            last = best.column(asked.sort[0][0])[-1] if best.num_rows == need else None
    if best is None:
        return _shown(table, asked.columns).empty_table(), False
    found = best.sort_by(order).slice(asked.offset, asked.limit + 1).select(asked.columns)
    return found.slice(0, asked.limit), found.num_rows > asked.limit


def _no_worse(part: "pa.Table", by: tuple[str, str], last: "pa.Scalar") -> "pa.Array":
    """The rows that may come before the last of those that are held; all of them, where that one
    has no value: whatever has none comes last.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    column = part.column(by[0])
    if not last.is_valid or (pa.types.is_floating(last.type) and last.as_py() != last.as_py()):
        return pa.chunked_array([pa.array([True] * len(column))])
    return (pc.less_equal if by[1] == "ascending" else pc.greater_equal)(column, last)


# ---- how it is told ------------------------------------------------------------------------------
def _following(at: str, said: Question, asked: _Asked) -> str:
    """The address of the next page, which is of this very version."""
    from urllib.parse import urlencode

    given = {"columns": said.columns, "filter": said.filter, "sort": said.sort}
    rest = urlencode({name: value for name, value in given.items() if value is not None})
    chosen = f"form={said.form}{'&' if rest else ''}{rest}"
    return f"{at}/rows?{chosen}&limit={said.limit}&token={asked.offset + asked.limit}"


def _as_json(
    opened: Opened,
    table: _Table,
    asked: _Asked,
    rows: list[Json],
    following: str | None,
    proof: str,
) -> Rows:
    return Rows(
        dataset_id=opened.dataset_id,
        version_id=opened.version_id,
        generation=int(opened.generation or 0),
        columns=asked.columns,
        rows=rows,
        returned=len(rows),
        total=table.rows if asked.filter is None else None,
        next=following,
        evidence=proof,
    )


def _plain(found: "pa.Table", geometry: str) -> list[Json]:
    """Rows as JSON has them; geometries as GeoJSON."""
    columns = _columns(found, geometry)
    return [dict(zip(found.column_names, row)) for row in zip(*columns)]


def _told_rows(found: "pa.Table", geometry: str) -> list[Any]:
    """The same, of a kind that is only good for being written down, which takes half as long."""
    kind = _row_of(tuple(found.column_names))
    return _plain(found, geometry) if kind is None else [*map(kind, *_columns(found, geometry))]


@functools.lru_cache(64)
def _row_of(names: tuple[str, ...]) -> type[msgspec.Struct] | None:
    """A record with these fields; None: one of them has a name that none can have."""
    fields = {f"c{number}": name for number, name in enumerate(names)}
    try:
        return msgspec.defstruct("Row", [(field, Any) for field in fields], rename=fields)
    except ValueError:
        return None


def _columns(found: "pa.Table", geometry: str) -> list[list[object]]:
    return [
        _places(column) if name == geometry else _cells(column)
        for name, column in zip(found.column_names, found.itercolumns())
    ]


def _cells(column: "pa.ChunkedArray") -> list[object]:
    """What `values` tells, of the kinds that most columns are without looking at every cell."""
    import pyarrow as pa

    from kfm.diff.cells import values

    column = _decoded(column)
    kind = column.type
    if kind in (pa.string(), pa.large_string()):
        return list(column.to_numpy().tolist())
    if not column.null_count and pa.types.is_integer(kind):
        return list(column.to_numpy().tolist())
    if not column.null_count and kind == pa.float64():
        numbers = column.to_numpy()
        if library("numpy", "counts rows").isfinite(numbers).all():
            return list(numbers.tolist())
    return values(column)


def _places(column: "pa.ChunkedArray") -> list[object]:
    import shapely

    shapes = shapely.from_wkb(_decoded(column).to_numpy(), on_invalid="ignore")
    texts = shapely.to_geojson(shapely.orient_polygons(shapes))
    return [msgspec.Raw(text.encode()) if text is not None else None for text in texts]


def _as_text(
    form: str, found: "pa.Table", geometry: str, opened: Opened, following: str | None
) -> Response[bytes]:
    headers = {"link": f'<{following}>; rel="next"'} if following else {}
    name = re.sub(r"[^a-z0-9_]", "_", opened.dataset_id)
    if form == "csv":
        headers["content-disposition"] = f'attachment; filename="{name}.csv"'
        return Response(_csv(found, geometry), media_type=CSV, headers=headers)
    if geometry not in found.column_names:
        raise BadQuestion("These rows have no geometry, or it was not asked for.", "form")
    features = [
        {"type": "Feature", "geometry": row.pop(geometry), "properties": row}
        for row in _plain(found, geometry)
    ]
    told: Json = {
        "type": "FeatureCollection",
        "features": features,
        "numberReturned": len(features),
    }
    if following:
        told["links"] = [{"rel": "next", "href": following, "type": GEOJSON}]
    return Response(msgspec.json.encode(told), media_type=GEOJSON, headers=headers)


def _csv(found: "pa.Table", geometry: str) -> bytes:
    from kfm.data.formats import csv_line
    from kfm.diff.cells import shapes

    columns = [
        shapes(_decoded(column), float("inf"))[0] if name == geometry else _cells(column)
        for name, column in zip(found.column_names, found.itercolumns())
    ]
    lines = [csv_line(found.column_names), *(csv_line(row) for row in zip(*columns))]
    return "".join(lines).encode()


ROUTES: tuple[HTTPRouteHandler, ...] = (rows,)
