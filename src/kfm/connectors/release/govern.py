"""Releases one table by rule: without what was withdrawn or is withheld, by H3 cell, in groups of
at least k records.
"""

import math
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise, repeat
from pathlib import Path
from typing import NamedTuple, NoReturn

import h3.api.basic_int as h3
import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import shapely
from msgspec import UNSET, UnsetType
from shapely.geometry.base import BaseGeometry

from kfm.connectors.arrays import Floats, Mask, Shapes
from kfm.connectors.base import EXPLAINED, NEIGHBOUR, Books, Refused, Step, TransformResult
from kfm.connectors.operations import Govern, Join
from kfm.connectors.release.columns import missing_of, unfit
from kfm.connectors.release.thresholds import Explained, Shown, in_cells, in_groups, step
from kfm.connectors.table.merge import _TYPES
from kfm.connectors.table.table import Table
from kfm.connectors.table.values import ARROW
from kfm.connectors.table.writer import arrow_schema
from kfm.model import Aggregate, Column, Json, Location, Release, release_steps
from kfm.model.labels import explains, unshown

__all__ = [
    "Where",
    "columns_of",
    "folded",
    "govern",
    "in_order",
    "representative",
    "touching",
    "write_table",
]

_CELL, _GEOMETRY, _RECORDS = "h3_cell", "geometry", "records"
_LATITUDE, _LONGITUDE = {"lat", "latitude"}, {"lon", "lng", "longitude"}
_ROWS = 65_536
Cells = npt.NDArray[np.uint64]  # H3, one for each row
Area = Sequence[float]  # west, south, east, north; west of more than east crosses the antimeridian


def govern(job: Govern, scratch: Path) -> TransformResult:
    """`inputs` is the precise table, what explained its public rows before, and what explains those
    of a neighbour. Withdrawn records go first, then the release; without one the rest passes as it
    is.

    `books` speaks of records: those a group stands for are written, however few rows the groups
    take. Nothing else in the result comes from the precise table; what explains the rows from now
    on is left beside the table, for the restricted side.
    """
    with pq.ParquetFile(job.inputs[0].path) as file:
        columns = columns_of(file.schema_arrow, job.schema)
        rows = _Rows(job, file, columns)
        rows.withdraw(job.suppress)
        if job.release is None:
            batches = rows.kept(tuple(c.name for c in columns))
        else:
            columns, batches = _released(job, job.release, columns, rows, scratch)
        made = write_table(job, scratch, columns, batches, books=rows.books, steps=_steps(job))
        return msgspec.structs.replace(made, fits=rows.fits, step=rows.step)


def _steps(job: Govern) -> tuple[Json, ...]:
    suppress = ({"step": "suppress"},) if job.suppress else ()
    return (*suppress, *release_steps(job.release))


# -- tables


def columns_of(schema: "pa.Schema", known: Iterable[Column]) -> tuple[Column, ...]:
    """The columns of a Parquet table, as `known` where it knows more than Parquet does."""
    named = {c.name: c for c in known}
    found = []
    for field in schema:
        column = named.get(field.name)
        if column is None or ARROW[column.type] != field.type:
            column = Column(
                name=field.name,
                type=_TYPES.get(str(field.type), "string"),  # type: ignore[arg-type]
                nullable=field.nullable,
            )
        found.append(column)
    return tuple(found)


def write_table(
    job: Govern | Join,
    scratch: Path,
    columns: tuple[Column, ...],
    batches: "Iterable[pa.RecordBatch]",
    *,
    books: Books,
    steps: tuple[Json, ...] = (),
    warnings: tuple[str, ...] = (),
) -> TransformResult:
    """Write the batches as `scratch/<artifact>`; everything about the table is taken from what was
    written.
    """
    with Table(scratch / job.artifact, columns, job.business_key) as table:
        for batch in batches:
            table.add(pa.RecordBatch.from_arrays(batch.columns, schema=table.schema))
        return table.result(books, warnings=warnings, steps=steps)


def in_order(table: "pa.Table") -> "Iterator[pa.RecordBatch]":
    """The rows ordered by all their columns: how they came in leaves no trace, nor does the sign of
    a zero.
    """
    names = table.schema.names
    table = pa.table(
        [pc.add(c, 0.0) if pa.types.is_floating(c.type) else c for c in table.columns], names=names
    ).combine_chunks()
    order = pc.sort_indices(table, sort_keys=[(name, "ascending") for name in names])
    for start in range(0, len(order), _ROWS):
        yield from table.take(order.slice(start, _ROWS)).combine_chunks().to_batches()


class _Rows:
    """The rows of the precise table and what became of each."""

    def __init__(self, job: Govern, file: "pq.ParquetFile", columns: tuple[Column, ...]) -> None:
        self._file, self._types = file, {c.name: c.type for c in columns}
        self.where = Where.of(
            list(self._types), [c.name for c in columns if c.type == "geometry"], job.location
        )
        self.keep: Mask = np.ones(file.metadata.num_rows, np.bool_)
        self._dropped: dict[str, int] = {}
        self._withdrawn: list[Mask] = []  # by each rule
        self.step: Step | UnsetType = UNSET  # from a neighbour, where there is one

    @property
    def books(self) -> Books:
        """Where every record went."""
        return Books(
            read=len(self.keep),
            written=int(self.keep.sum()),
            dropped=dict(sorted(self._dropped.items())),
        )

    def drop(self, rule: str, lost: Mask) -> None:
        """Leave out the rows of a mask that are still kept."""
        lost = lost & self.keep
        if lost.any():
            self._dropped[rule] = self._dropped.get(rule, 0) + int(lost.sum())
            self.keep &= ~lost

    def scan(self, names: Iterable[str]) -> "Iterator[tuple[slice, pa.RecordBatch]]":
        """Every row, some columns, with where each batch stands."""
        wanted, at = list(dict.fromkeys(names)), 0
        for batch in self._file.iter_batches(_ROWS, columns=wanted):
            yield slice(at, at := at + batch.num_rows), batch.select(wanted)

    def kept(self, names: tuple[str, ...], these: Mask | None = None) -> "Iterator[pa.RecordBatch]":
        """The rows still kept, or those of a mask, in the order they have."""
        for at, batch in self.scan(names):
            yield batch.filter(pa.array((self.keep if these is None else these)[at]))

    def withdraw(self, rules: Sequence[Json]) -> None:
        """Drop what suppression rules name; a rule that cannot be applied stops the release."""
        understood = self._understood(rules)
        named = {name for rule in understood if isinstance(rule, dict) for name in rule}
        used = named | (
            self.where.names if any(not isinstance(rule, dict) for rule in understood) else set()
        )
        self._withdrawn = [np.zeros(len(self.keep), np.bool_) for _ in rules]
        for at, batch in self.scan(used) if used else ():
            cells = {name: _texts(batch.column(name)) for name in named}
            for rule, lost in zip(understood, self._withdrawn):
                if isinstance(rule, dict):
                    lost[at] = np.logical_and.reduce(
                        [_equals(cells[name], text) for name, text in rule.items()]
                    )
                else:
                    lost[at] = self.where.inside(batch, rule)
        self.drop("withdrawn", self._any(self._withdrawn))

    @property
    def fits(self) -> tuple[int, int] | UnsetType:
        """How many rows the last rule names, and how many of them no rule before it does."""
        if not self._withdrawn:
            return UNSET
        *earlier, last = self._withdrawn
        return int(last.sum()), int((last & ~self._any(earlier)).sum())

    def _any(self, masks: Iterable[Mask]) -> Mask:
        found: Mask = np.logical_or.reduce([np.zeros(len(self.keep), np.bool_), *masks])
        return found

    def withdrawn_since(self, rules: Sequence[Json], known: Sequence[Json]) -> Mask:
        """Rows that are withdrawn, and were not by the rules that are known already."""
        new, old = (
            [m for rule, m in zip(rules, self._withdrawn) if (rule in known) is there]
            for there in (False, True)
        )
        return self._any(new) & ~self._any(old)

    def _understood(self, rules: Sequence[Json]) -> "list[dict[str, str | None] | Area]":
        found: list[dict[str, str | None] | Area] = []
        for rule in rules:
            match rule:
                case {"records": dict() as named, **rest} if named and not rest:
                    for name in named:
                        if self._types.get(name, "geometry") == "geometry":
                            _refuse(
                                "suppress.column",
                                f"A withdrawal names records by {name!r}, which is no plain column"
                                " of the table.",
                            )
                    found.append(
                        {
                            name: _canonical(value, self._types[name])
                            for name, value in named.items()
                        }
                    )
                case {
                    "area": [
                        float() | int(),
                        float() | int(),
                        float() | int(),
                        float() | int(),
                    ] as area,
                    **rest,
                } if _is_area(area) and not rest:
                    if not self.where.known:
                        _refuse(
                            "suppress.place",
                            "A withdrawal names an area, but no column of the table says where a"
                            " record is.",
                        )
                    found.append(area)
                case _:
                    _refuse(
                        "suppress.rule",
                        "A withdrawal has a rule that is neither of records nor of an area.",
                    )
        return found

    def cells(self, resolution: int) -> Cells:
        """The H3 cell of every row, 0 where there is no place."""
        if not self.where.known:
            _refuse(
                "release.place",
                "Records are to be generalised, but no column of the table says where they are.",
            )
        cells = np.zeros(len(self.keep), np.uint64)
        for at, batch in self.scan(self.where.names):
            lat, lng = self.where.points(batch)
            placed = np.flatnonzero(~np.isnan(lat))
            found = map(
                h3.latlng_to_cell, lat[placed].tolist(), lng[placed].tolist(), repeat(resolution)
            )
            cells[at][placed] = np.fromiter(found, np.uint64, len(placed))
        return cells


def _refuse(code: str, happened: str) -> NoReturn:
    raise unfit(code, happened)


def _is_area(area: Area) -> bool:
    west, south, east, north = area
    return -90 <= south < north <= 90 and max(abs(west), abs(east)) <= 180 and west != east


def _canonical(value: object, kind: str) -> str | None:
    """A value of a rule as `_texts` has the cells: the text Arrow gives the value the column would
    hold; None for no value.
    """
    if value is None:
        return None
    if kind == "integer" and isinstance(value, float) and value.is_integer():
        value = int(value)
    text = value if isinstance(value, str) else msgspec.json.encode(value, order="sorted").decode()
    if ARROW[kind] == pa.string():
        return folded(text)
    try:
        return str(pa.scalar(text).cast(ARROW[kind]).cast(pa.string()))
    except pa.ArrowInvalid:
        return text  # no value of this type, so no record has it


def _texts(column: "pa.Array") -> "pa.Array":
    """Cells as text; what was text already, folded."""
    if not pa.types.is_string(column.type):
        return pc.cast(column, pa.string())
    encoded = column.dictionary_encode()
    return pa.array([folded(text) for text in encoded.dictionary.to_pylist()], pa.string()).take(
        encoded.indices
    )


def _equals(column: "pa.Array", text: str | None) -> Mask:
    same = column.is_null() if text is None else pc.equal(column, text).fill_null(False)
    return np.asarray(same)


def folded(text: str) -> str:
    """`text` without what a reader does not see: case, blanks around it, invisible characters, the
    way its letters are encoded.

    A record must not come back because upstream writes its identifier a little differently.
    """
    if not text.isascii():
        text = unicodedata.normalize(
            "NFKC", "".join(c for c in text if unicodedata.category(c) != "Cf")
        )
    return unicodedata.normalize("NFKC", text.casefold()).strip()


# -- places


class Where(NamedTuple):
    """The columns that say where a record is: the first that has a value decides, all of them are
    precise.
    """

    geometries: tuple[str, ...]
    pairs: tuple[tuple[str, str], ...]  # latitude, longitude
    names: set[str]

    @classmethod
    def of(
        cls, names: Sequence[str], geometries: Sequence[str], location: Location | None
    ) -> "Where":
        """What geometry columns, the registry and the columns' names tell."""
        told = ((location.latitude, location.longitude),) if location is not None else ()
        for lat, lng in told:
            if not {lat, lng} <= set(names):
                _refuse(
                    "release.place",
                    f"`location` names {lat!r} and {lng!r}; the table does not have both.",
                )
        others = [n for n in names if n not in geometries and not any(n in pair for pair in told)]
        lats, lngs = (
            [n for n in others if n.lower() in known] for known in (_LATITUDE, _LONGITUDE)
        )
        pairs = (*told, *zip(lats, lngs))
        return cls(
            tuple(geometries),
            pairs,
            {*geometries, *lats, *lngs, *(n for pair in pairs for n in pair)},
        )

    @property
    def known(self) -> bool:
        """Whether any of them can tell."""
        return bool(self.geometries or self.pairs)

    def points(self, batch: "pa.RecordBatch") -> tuple[Floats, Floats]:
        """Latitude and longitude of each row, NaN where it has no place on the globe."""
        lat, lng = np.full(batch.num_rows, np.nan), np.full(batch.num_rows, np.nan)
        found = [representative(_shapes(batch.column(name))) for name in self.geometries]
        found += [(_numbers(batch.column(a)), _numbers(batch.column(b))) for a, b in self.pairs]
        for y, x in found:
            with np.errstate(invalid="ignore"):
                better = np.isnan(lat) & (np.abs(y) <= 90) & (np.abs(x) <= 180)
            lat[better], lng[better] = y[better], x[better]
        return lat, lng

    def inside(self, batch: "pa.RecordBatch", area: Area) -> Mask:
        """Which rows lie in an area by any of their columns."""
        hit = np.zeros(batch.num_rows, np.bool_)
        for name in self.geometries:
            hit |= touching(_shapes(batch.column(name)), area)
        for a, b in self.pairs:
            hit |= touching(
                shapely.points(_numbers(batch.column(b)), _numbers(batch.column(a))), area
            )
        return hit


def touching(shapes: Shapes, area: Area) -> Mask:
    """Whether shapes have a point in an area, its edges included."""
    west, south, east, north = area
    if west <= east:
        there: Mask = shapely.intersects(shapes, shapely.box(west, south, east, north))
        return there
    return touching(shapes, (west, south, 180, north)) | touching(
        shapes, (-180, south, east, north)
    )


def representative(shapes: Shapes) -> tuple[Floats, Floats]:
    """Latitude and longitude of a point on each shape, NaN where there is none."""
    points = shapely.point_on_surface(shapes)
    return shapely.get_y(points), shapely.get_x(points)


def _shapes(column: "pa.Array") -> Shapes:
    shapes: Shapes = shapely.from_wkb(column.to_numpy(zero_copy_only=False))
    return shapes


def _numbers(column: "pa.Array") -> Floats:
    if pa.types.is_string(column.type):
        return np.array([_float(text) for text in column.to_pylist()], np.float64)
    if not (pa.types.is_integer(column.type) or pa.types.is_floating(column.type)):
        return np.full(len(column), np.nan)
    numbers: Floats = pc.cast(column, pa.float64(), safe=False).to_numpy(zero_copy_only=False)
    return numbers


def _float(text: str | None) -> float:
    try:
        return float(text or "nan")
    except ValueError:
        return float("nan")


# -- the release


def _released(
    job: Govern, release: Release, columns: tuple[Column, ...], rows: _Rows, scratch: Path
) -> "tuple[tuple[Column, ...], Iterator[pa.RecordBatch]]":
    there = {c.name for c in columns}
    if missing := missing_of(release, there):
        _refuse("release.column", missing)
    hidden = set(unshown(release, there))
    generalised = release.h3_resolution is not None
    if generalised:
        hidden |= rows.where.names
    public = [c for c in columns if c.name not in hidden]
    shown = public if release.aggregate is None else _grouped_columns(release.aggregate, public)
    if generalised:
        if release.aggregate is None:  # what too few records share is left empty
            shown = [msgspec.structs.replace(c, nullable=True) for c in shown]
        shown = [
            Column(name=_CELL, type="string", nullable=False),
            *shown,
            Column(name=_GEOMETRY, type="geometry", nullable=False),
        ]
    names = [c.name for c in shown]
    if twice := sorted({n for n in names if names.count(n) > 1}):
        _refuse(
            "release.column",
            f"The release would have two columns named {', '.join(map(repr, twice))}.",
        )
    if not names:
        _refuse("release.column", "The release withholds every column.")
    if not explains(release):
        return tuple(shown), in_order(_public_table(public, rows, rows.keep, None))
    table = _explained(job, release, public, rows, scratch)
    return tuple(shown), _with_boundaries(table) if generalised else in_order(table)


def _grouped_columns(groups: Aggregate, public: list[Column]) -> list[Column]:
    named = {c.name: c for c in public if c.type != "geometry"}
    if missing := [n for n in (*groups.by, *groups.collect) if n not in named]:
        _refuse(
            "release.column",
            f"Groups are made of {', '.join(map(repr, missing))}, which is no public column.",
        )
    collected = [Column(name=n, type="string") for n in groups.collect]
    return [
        *(named[n] for n in groups.by),
        Column(name=_RECORDS, type="string", nullable=False),
        *collected,
    ]


def _explained(
    job: Govern, release: Release, public: list[Column], rows: _Rows, scratch: Path
) -> "pa.Table":
    """The rows that at least k records explain, now and in their difference to what was public
    before.
    """
    groups, k = release.aggregate, release.min_records
    cells = _cells(release, rows) if release.h3_resolution is not None else None
    columns = [c for c in public if groups is None or c.name in (*groups.by, *groups.collect)]
    keys = [
        *([_CELL] if cells is not None else ()),
        *(groups.by if groups is not None else (c.name for c in columns)),
    ]
    given = {i.source_id: i.path for i in job.inputs[1:]}
    before = Explained.read(given.get(EXPLAINED), release, keys)
    gone = rows.withdrawn_since(job.suppress, before.rules) & (
        cells != 0 if cells is not None else True
    )
    now, withdrawn = (_public_table(columns, rows, these, cells) for these in (rows.keep, gone))
    if groups is None:
        found: Shown = in_cells(now, withdrawn, before, k)
    else:
        found = in_groups(
            now, withdrawn, before, k, keys=keys, collect=groups.collect, records=_RECORDS
        )
    lost = np.zeros(len(rows.keep), np.bool_)
    lost[rows.keep] = ~found.written
    rows.drop("k_min", lost)
    if NEIGHBOUR in given:
        rows.step = step(
            Explained.read(given[NEIGHBOUR], release, keys),
            Explained(found.explained),
            k,
            cells=groups is None,
        )
    Explained(found.explained).write(scratch / EXPLAINED, release, keys, job.suppress)
    return found.table


def _public_table(
    columns: Sequence[Column], rows: _Rows, these: Mask, cells: Cells | None
) -> "pa.Table":
    """Public columns of some rows, after their cell where they are generalised."""
    names = tuple(c.name for c in columns)
    schema = arrow_schema(tuple(columns))
    batches = (
        [pa.RecordBatch.from_arrays(b.columns, schema=schema) for b in rows.kept(names, these)]
        if names
        else []
    )
    arrays = dict(zip(names, pa.Table.from_batches(batches, schema).columns))
    if cells is not None:
        arrays = {_CELL: pa.chunked_array([pa.array(cells[these])]), **arrays}
    # a table without columns would have no rows
    return pa.table(arrays or {"": pa.nulls(int(these.sum()))})


def _cells(release: Release, rows: _Rows) -> Cells:
    """The cell of every row; rows without one are dropped."""
    assert release.h3_resolution is not None
    cells = rows.cells(release.h3_resolution)
    rows.drop("no_place", cells == 0)
    found = np.unique(cells[rows.keep])
    if release.min_area_km2 and any(
        h3.cell_area(c, "km^2") < release.min_area_km2 for c in found.tolist()
    ):
        raise Refused(
            "release.area",
            f"At H3 resolution {release.h3_resolution} a cell is smaller than"
            f" {release.min_area_km2:g} km².",
            expected="every cell to cover at least `release.min_area_km2`",
            remedy=(
                "Choose a lower `release.h3_resolution`, or ask the custodian for a smaller area."
            ),
        )
    return cells


# -- boundaries


def _with_boundaries(table: "pa.Table") -> "Iterator[pa.RecordBatch]":
    """Cells by name, and their boundaries in a last column."""
    cells = np.unique(table.column(_CELL).to_numpy())
    names = pa.array([h3.int_to_str(c) for c in cells.tolist()], pa.string())
    shapes = pa.array(map(_boundary, cells.tolist()), pa.binary())
    for batch in in_order(table):
        at = pa.array(np.searchsorted(cells, batch.column(_CELL).to_numpy()))
        arrays = [names.take(at), *batch.columns[1:], shapes.take(at)]
        yield pa.RecordBatch.from_arrays(arrays, [*batch.schema.names, _GEOMETRY])


def _boundary(cell: int) -> bytes:
    """A cell's outline as WKB; one that crosses the antimeridian is cut there, one around a pole
    reaches up to it.
    """
    ring = [(lng, lat) for lat, lng in h3.cell_to_boundary(cell)]
    spread = max(x for x, _ in ring) - min(x for x, _ in ring)
    shape = shapely.Polygon(ring) if spread <= 180 else _cut(ring)
    return bytes(shapely.to_wkb(shape, byte_order=1, output_dimension=2))


def _cut(ring: list[tuple[float, float]]) -> BaseGeometry:
    pieces: list[list[tuple[float, float]]] = [[]]
    for (x, y), (to, up) in pairwise([*ring, ring[0]]):
        pieces[-1].append((x, y))
        if abs(to - x) > 180:
            edge = math.copysign(180.0, x)
            at = y + (up - y) * (edge - x) / (to + 2 * edge - x)
            pieces[-1].append((edge, at))
            pieces.append([(-edge, at)])
    pieces[0] = pieces.pop() + pieces[0]  # the end runs on into the beginning
    if len(pieces) == 1:  # once around: there is a pole inside
        pole = math.copysign(90.0, ring[0][1])
        return shapely.Polygon([*pieces[0], (pieces[0][-1][0], pole), (pieces[0][0][0], pole)])
    return shapely.MultiPolygon([shapely.Polygon(piece) for piece in pieces])
