"""Makes twins of captured files: other precise places, other hidden values, another order, so the
public side must come out the same.
"""

import codecs
import csv
import datetime as dt
import hashlib
import io
import math
import string
from bisect import bisect
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import accumulate, pairwise, product
from pathlib import Path
from random import Random
from typing import NamedTuple, TypeVar

import h3.api.basic_int as h3
import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import shapely
from shapely.affinity import translate
from shapely.geometry.base import BaseGeometry

from kfm.connectors.arrays import Values
from kfm.connectors.base import Books, InputFile, Refused, TransformResult
from kfm.connectors.operations import Read, Twin
from kfm.connectors.read.geojson import FEATURE_ID, GEOMETRY
from kfm.connectors.read.geometry import Problem, encode
from kfm.connectors.read.packed import unpacked
from kfm.connectors.read.records import Decoder, Records
from kfm.connectors.read.repeated_members import Twice, count_members, decode_once
from kfm.connectors.read.rows import Row
from kfm.connectors.read.tabular import _delimiter
from kfm.connectors.read.text import text_blocks, utf8_blocks
from kfm.connectors.release.govern import Area, Where, folded, representative, touching
from kfm.connectors.table.infer import Inferred
from kfm.connectors.table.values import cells_text, moment, type_cells, type_values
from kfm.model import Release
from kfm.model.labels import unshown

__all__ = ["read_json", "twin"]

T = TypeVar("T")
Vector = tuple[float, float, float]
_TRIES = 60
_GLOBE = shapely.box(-180, -90, 180, 90)
_DAY_US = 86_400_000_000
_CLASSES = {"A": string.ascii_uppercase, "a": string.ascii_lowercase, "0": string.digits}


class _File(NamedTuple):
    """One captured file: its records, those that cannot be read as they are, and how to write it
    again.
    """

    name: str
    records: list[object]  # a Row, or what stands for a record that is none
    write: Callable[[list[object]], str | bytes]


def twin(job: Twin, scratch: Path) -> TransformResult:
    """Write each input again under its name. Which twin it is depends on `seed`: in every third,
    hidden text is text nobody ever wrote, in the others each record has another's, which looks no
    different but shows what follows single records.

    Equal records stay equal, and whether a row is good stays as it was: the transform must see the
    same duplicates and gaps.
    """
    if job.release is None or len({Path(i.path).name for i in job.inputs}) < len(job.inputs):
        raise Refused(
            "twin.job",
            "A twin was asked for without a release, or of two files of one name.",
            expected="a release that says what is hidden, and files of different names",
            remedy="Run the leak check for datasets with `release` only.",
        )
    with unpacked(job.inputs, job.packed, job.format, scratch) as inputs:
        files = [_read(job, source) for source in inputs]
    rows, copies = _distinct(
        record for file in files for record in file.records if isinstance(record, dict)
    )
    rng = Random(job.seed)
    _Twin(job, job.release, rng, rows).change()
    for copy, original in copies:
        copy.update(original)
    if job.neighbour:
        _one_more_or_less(job, job.release, rng, files, rows, copies)
    for file in files:
        _turn(file.records, rng)
        made = file.write(file.records)
        data = (
            made.encode(job.encoding or "utf-8", "surrogatepass") if isinstance(made, str) else made
        )
        (scratch / file.name).write_bytes(data)
    nothing = "sha256:" + hashlib.sha256().hexdigest()
    names = tuple(f.name for f in files)
    return TransformResult(
        artifact=job.artifact, books=Books(), schema=(), content_id=nothing, profile={}, files=names
    )


def _one_more_or_less(
    job: Twin,
    release: Release,
    rng: Random,
    files: list[_File],
    rows: list[Row],
    copies: list[tuple[Row, Row]],
) -> None:
    """Take a record away with whatever repeats it, or put another beside it: the same but for its
    key, or for what is not shown.
    """
    if not rows:
        return
    one = rng.choice(rows)
    if job.neighbour < 0:
        gone = {id(one), *(id(copy) for copy, original in copies if original is one)}
        for file in files:
            file.records[:] = [record for record in file.records if id(record) not in gone]
        return
    hidden = set(unshown(release, one))
    keys = [n for n in job.business_key if n in one]
    for name in sorted(keys, key=lambda n: n not in hidden)[:1] or sorted(hidden):
        values = [row[name] for row in rows if name in row]
        if isinstance(value := one[name], str) and value:
            one = one | {
                name: _renamed([value], {folded(v) for v in values if isinstance(v, str)}, rng)[
                    value
                ]
            }
        elif isinstance(value, int) and not isinstance(value, bool):
            one = one | {name: max(v for v in values if isinstance(v, int)) + 1}
        else:
            continue
        break
    next(file for file in files if any(isinstance(r, dict) for r in file.records)).records.append(
        one
    )


def _distinct(records: Iterator[Row]) -> tuple[list[Row], list[tuple[Row, Row]]]:
    """Each record once, and the others with the one they repeat."""
    seen: dict[bytes, Row] = {}
    copies = []
    for row in records:
        key = hashlib.blake2b(msgspec.json.encode(row, order="sorted"), digest_size=16).digest()
        if key in seen:
            copies.append((row, seen[key]))
        else:
            seen[key] = row
    return list(seen.values()), copies


def _turn(items: list[T], rng: Random) -> None:
    """A random order in which nothing stays where it was."""
    for i in range(len(items) - 1, 0, -1):
        j = rng.randrange(i)
        items[i], items[j] = items[j], items[i]


# -- the changes


class _Twin:
    """The records of all files, and what is done to them."""

    def __init__(self, job: Twin, release: Release, rng: Random, rows: list[Row]) -> None:
        self._job, self._release, self._rng, self._rows = job, release, rng, rows
        self._schema = {c.name: c for c in job.schema}
        self._areas = [rule["area"] for rule in job.suppress if "area" in rule]
        self._since, self._until = (
            moment(t) if t and job.time_column else None for t in (job.since, job.until)
        )

    def change(self) -> None:
        """Move what is precise within its cell, replace or hand round what is withheld."""
        everything, names = (
            self._rows,
            list(dict.fromkeys(name for row in self._rows for name in row)),
        )
        # What a withdrawal names must stay what it names, or the twin would lack other records than
        # the original.
        named = [rule["records"] for rule in self._job.suppress if "records" in rule]
        self._rows = [row for row in self._rows if not any(_named(row, rule) for rule in named)]
        shapes = [c.name for c in self._job.schema if c.type == "geometry"]
        if self._job.format == "geojson" and not shapes:
            shapes = [GEOMETRY]
        shown = (*groups.by, *groups.collect) if (groups := self._release.aggregate) else names
        # groups do not show them either
        keys = [n for n in self._job.business_key if n not in shown]
        # Of what connector code leaves out or renames only a person can say what it is; the rest
        # keeps its name, and is shown by it or not.
        columns = {c.name for c in self._job.known} or set(names)
        hidden = [
            n
            for n in names
            if n in (*self._release.withhold, *keys)
            or (n in columns and unshown(self._release, [n]))
        ]
        if self._release.h3_resolution is not None:
            where = Where.of(names, [n for n in shapes if n in names], self._job.location)
            spots = _Spots(self._release.h3_resolution, self._rng, self._areas)
            for name in where.geometries:
                self._move_shapes(name, spots)
            for pair in where.pairs:
                self._move_points(*pair, spots)
            moved = {*where.geometries, *(n for pair in where.pairs for n in pair)}
            hidden = [n for n in names if n not in moved and (n in hidden or n in where.names)]
        texts = [
            n
            for n in hidden
            if self._job.seed % 3 == 0 and self._is_text(n, [r[n] for r in everything if n in r])
        ]
        existing = (v for row in everything for n in texts if isinstance(v := row.get(n), str))
        other = _renamed(
            existing, {folded(str(v)) for rule in named for v in rule.values()}, self._rng
        )
        for name in hidden:
            rows = [r for r in self._rows if name in r]
            if name in texts and self._is_text(
                name, [other.get(v, v) if isinstance(v := r[name], str) else v for r in rows]
            ):
                rows = self._replace(name, rows, other)
            # Records of another time are not part of the run: what is theirs stays among them.
            for inside in (True, False):
                self._hand_round(name, [r for r in rows if self._in_window(r) is inside])

    def _in_window(self, row: Row) -> bool:
        if self._since is None and self._until is None:
            return True
        time = _microseconds(row.get(self._job.time_column or ""))
        return (
            time is not None
            and (self._since is None or time >= self._since)
            and (self._until is None or time < self._until)
        )

    def _is_text(self, name: str, values: Values) -> bool:
        """Whether the transform takes a column as text, told or by its values."""
        if name in self._schema:
            return self._schema[name].type == "string"
        if not any(isinstance(v, str) and v for v in values):
            return False
        inferred = Inferred(self._job, None, cells=self._job.format == "csv")
        inferred.add(name, values)
        return inferred.columns()[0].type == "string"

    def _replace(self, name: str, rows: list[Row], other: dict[str, str]) -> list[Row]:
        """Put another text where one was; returns the records that hold something else."""
        kept = self._misfits(name, [row[name] for row in rows])
        texts = [
            row
            for i, row in enumerate(rows)
            if i not in kept and isinstance(row[name], str) and row[name]
        ]
        changed = set(map(id, texts))
        for row in texts:
            row[name] = other[row[name]]
        return [row for row in rows if id(row) not in changed]

    def _move_points(self, latitude: str, longitude: str, spots: "_Spots") -> None:
        for row in self._rows:
            lat, lng = _number(row.get(latitude)), _number(row.get(longitude))
            spot = spots.other(lat, lng) if lat is not None and lng is not None else None
            for name, value in zip((latitude, longitude), spot or ()):
                row[name] = repr(value) if isinstance(row[name], str) else value

    def _move_shapes(self, name: str, spots: "_Spots") -> None:
        bad: dict[int, Problem] = {}
        wkb = encode([row.get(name) or None for row in self._rows], name, bad).wkb
        at = [i for i, there in enumerate(wkb.is_valid().to_pylist()) if there and i not in bad]
        shapes = shapely.from_wkb(wkb.take(np.array(at, np.int64)).to_numpy(zero_copy_only=False))
        for i, shape, lat, lng in zip(at, shapes, *(v.tolist() for v in representative(shapes))):
            if not any(touching(shape, area) for area in self._areas):
                moved = spots.other_shape(shape, lat, lng)
                self._rows[i][name] = _written(moved, self._rows[i][name])

    def _hand_round(self, name: str, rows: list[Row]) -> None:
        """Each record gets another's value; the values of a key change places, so that what was one
        key stays one key.
        """
        values = [row[name] for row in rows]
        kept = self._misfits(name, values)
        rows, values = (
            [r for i, r in enumerate(rows) if i not in kept],
            [v for i, v in enumerate(values) if i not in kept],
        )
        if name in self._job.business_key:
            turned = list(dict.fromkeys(values))
            _turn(turned, self._rng)
            values = list(map(dict(zip(dict.fromkeys(values), turned)).__getitem__, values))
        else:
            _turn(values, self._rng)
        for row, value in zip(rows, values):
            row[name] = value

    def _misfits(self, name: str, values: Values) -> set[int]:
        """Values a row is judged by: a gap where none may be, and what is not of its column's
        type.
        """
        column, bad = self._schema.get(name), dict[int, Problem]()
        if column is not None and column.type == "geometry":
            encode([v or None for v in values], name, bad)
        elif column is not None and self._job.format == "csv":
            type_cells(column, cells_text(values), bad)
        elif column is not None:
            type_values(column, values, bad)
        required = name in self._job.business_key or (column is not None and not column.nullable)
        return {*bad, *(i for i, v in enumerate(values) if required and v in (None, ""))}


def _named(row: Row, wanted: Row) -> bool:
    return all(_same(row.get(name), value) for name, value in wanted.items())


def _same(value: object, wanted: object) -> bool:
    if value in (None, "") or wanted is None:
        return value in (None, "") and wanted is None
    return folded(str(value)) == folded(str(wanted)) or (
        _number(value) is not None and _number(value) == _number(wanted)
    )


def _microseconds(value: object) -> int | None:
    """A time as the transform places it in the window: RFC 3339, a date, or epoch milliseconds."""
    if isinstance(value, str):
        text = value.strip()
        if text.lstrip("+-").isdecimal():
            return int(text) * 1000
        value = text
    elif isinstance(value, float) and value.is_integer():
        value = int(value)
    elif isinstance(value, dt.date) and not isinstance(value, dt.datetime):
        return (value - dt.date(1970, 1, 1)).days * _DAY_US
    try:
        return moment(
            f"{value}T00:00:00Z" if isinstance(value, str) and len(value) == 10 else value
        )
    except ValueError:
        return None


def _renamed(texts: Iterable[str], named: set[str], rng: Random) -> dict[str, str]:
    """Another text for each: of the same shape, never an existing one or one a withdrawal names,
    different for different ones.

    Where a shape has too few texts left (the numbers 1 to 9), existing ones fill up.
    """
    shapes: dict[str, list[str]] = {}
    for text in dict.fromkeys(texts):
        shapes.setdefault("".join(map(_class, text)), []).append(text)
    found: dict[str, str] = {}
    for shape, known in shapes.items():
        pools = [_CLASSES.get(c, c) for c in shape]
        taken = set(known)
        if _are_few(pools, 4 * (len(known) + len(named))):
            free = [
                t
                for t in map("".join, product(*pools))
                if t not in taken and folded(t) not in named
            ]
            rng.shuffle(free)
            rest = list(known)
            if not free:
                _turn(rest, rng)
            found |= zip(known, [*free, *rest])
            continue
        for text in known:
            while (new := "".join(map(rng.choice, pools))) in taken or folded(new) in named:
                pass
            taken.add(new)
            found[text] = new
    return found


def _are_few(pools: Sequence[str], limit: int) -> bool:
    """Whether there are fewer texts of a shape than `limit`; of a long one nobody counts all."""
    count = 1
    for pool in pools:
        count *= len(pool)
        if count >= limit:
            return False
    return True


def _class(letter: str) -> str:
    if letter.isdecimal():
        return "0"
    return ("A" if letter.isupper() else "a") if letter.isalpha() else letter


def _number(value: object) -> float | None:
    if not isinstance(value, str | int | float):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


def _written(shape: BaseGeometry, like: object) -> object:
    """A shape in the form another was given in."""
    if isinstance(like, str):
        return shapely.to_geojson(shape) if like.lstrip().startswith("{") else shape.wkt
    return shapely.geometry.mapping(shape)


class _Spots:
    """Other points of the same cell, none of them in an area that was withdrawn."""

    def __init__(self, resolution: int, rng: Random, areas: Sequence[Area]) -> None:
        self._resolution, self._rng, self._areas = resolution, rng, areas
        self._fan = lru_cache(32_768)(_fan)

    def other(self, lat: float, lng: float) -> tuple[float, float] | None:
        """Another point of the cell that holds this one; None when there is none, or when it is
        withdrawn.
        """
        if not self._free(lat, lng):
            return None
        cell = h3.latlng_to_cell(lat, lng, self._resolution)
        centre, sides, sums = self._fan(cell)
        for _ in range(_TRIES):
            one, two = sides[bisect(sums, self._rng.random() * sums[-1], hi=len(sums) - 1)]
            a, b = self._rng.random(), self._rng.random()
            a, b = (a, b) if a + b <= 1 else (1 - a, 1 - b)
            x, y, z = (c + a * (p - c) + b * (q - c) for c, p, q in zip(centre, one, two))
            spot = math.degrees(math.atan2(z, math.hypot(x, y))), math.degrees(math.atan2(y, x))
            if self._free(*spot) and h3.latlng_to_cell(*spot, self._resolution) == cell:
                return spot
        return None

    def other_shape(self, shape: BaseGeometry, lat: float, lng: float) -> BaseGeometry:
        """The shape moved so that its point stays in its cell; one that cannot go far goes less
        far.
        """
        spot = self.other(lat, lng)
        if spot is None:
            return shape
        if shape.geom_type == "Point":
            return shapely.Point(spot[1], spot[0], *((shape.z,) if shape.has_z else ()))
        cell = h3.latlng_to_cell(lat, lng, self._resolution)
        down, right = spot[0] - lat, spot[1] - lng
        for _ in range(_TRIES):
            moved = translate(shape, right, down)
            point = moved.point_on_surface()
            on_globe = _GLOBE.covers(shapely.box(*moved.bounds)) and not any(
                touching(moved, a) for a in self._areas
            )
            if on_globe and h3.latlng_to_cell(point.y, point.x, self._resolution) == cell:
                return moved
            down, right = down / 2, right / 2
        return shape

    def _free(self, lat: float, lng: float) -> bool:
        return (
            abs(lat) <= 90
            and abs(lng) <= 180
            and not any(touching(shapely.Point(lng, lat), area) for area in self._areas)
        )


def _fan(cell: int) -> tuple[Vector, list[tuple[Vector, Vector]], list[float]]:
    """A cell as triangles around its centre, on the sphere, where neither pole nor antimeridian is
    special; and the sums of their sizes.
    """
    corners = [_vector(*corner) for corner in h3.cell_to_boundary(cell)]
    centre = _vector(*h3.cell_to_latlng(cell))
    sides = list(pairwise([*corners, corners[0]]))
    return centre, sides, list(accumulate(_size(centre, p, q) for p, q in sides))


def _size(a: Vector, b: Vector, c: Vector) -> float:
    one, two, three = math.dist(a, b), math.dist(b, c), math.dist(c, a)
    half = (one + two + three) / 2
    return math.sqrt(max(0.0, half * (half - one) * (half - two) * (half - three)))


def _vector(lat: float, lng: float) -> Vector:
    y, x = math.radians(lat), math.radians(lng)
    return math.cos(y) * math.cos(x), math.cos(y) * math.sin(x), math.sin(y)


# -- files


def _read(job: Twin, source: InputFile) -> _File:
    return {"csv": _read_csv, "parquet": _read_table}.get(job.format, read_json)(job, source)


def _read_table(job: Twin, source: InputFile) -> _File:
    """A table that was joined; its shapes as the other formats have them."""
    table = pq.read_table(source.path)
    shapes = [c.name for c in job.schema if c.type == "geometry" and c.name in table.schema.names]
    rows: list[Row] = table.to_pylist()
    for row in rows:
        row |= {
            n: shapely.geometry.mapping(shapely.from_wkb(row[n]))
            for n in shapes
            if row[n] is not None
        }

    def write(records: list[object]) -> bytes:
        back = [
            r
            | {n: shapely.to_wkb(shapely.geometry.shape(r[n])) for n in shapes if r[n] is not None}
            for r in records
            if isinstance(r, dict)
        ]
        out = io.BytesIO()
        pq.write_table(pa.Table.from_pylist(back, table.schema), out)
        return out.getvalue()

    return _File(Path(source.path).name, [*rows], write)


def _read_csv(job: Twin, source: InputFile) -> _File:
    text = "".join(text_blocks(source, "csv", job.encoding))
    csv.field_size_limit(16 << 20)
    delimiter = _delimiter(text)
    head, *body = (
        row for row in csv.reader(io.StringIO(text, newline=""), delimiter=delimiter) if row
    )
    names = [name.strip() for name in head]

    with Path(source.path).open("rb") as raw:
        mark = (
            "\ufeff" if raw.read(3) == codecs.BOM_UTF8 and job.encoding in (None, "utf-8") else ""
        )
    usual, other = ("\r\n", "\n") if "\r\n" in text else ("\n", "\n")
    mixed = "\r\n" in text and text.count("\n") > text.count("\r\n")

    def write(records: list[object]) -> str:
        """In the form of the file, of which a run tells what is odd: its mark, and how its lines
        end.
        """
        out = io.StringIO(newline="")
        lines = csv.writer(out, delimiter=delimiter, lineterminator=usual)
        lines.writerow(head)
        rest = csv.writer(out, delimiter=delimiter, lineterminator=other if mixed else usual)
        rest.writerows(
            list(r.values()) if isinstance(r, dict) else r
            for r in records
            if isinstance(r, dict | list)
        )
        return mark + out.getvalue()

    # a row that only repeats the header stays as it is, for it is dropped wherever it stands
    again = [n.casefold() for n in names]
    held: list[object] = [
        (
            r
            if len(r) != len(names) or [c.strip().casefold() for c in r] == again
            else dict(zip(names, r))
        )
        for r in body
    ]
    return _File(Path(source.path).name, held, write)


def read_json(job: Read | Twin, source: InputFile) -> _File:
    """The records of a JSON document or a feature collection as the transform sees them, each with
    every member any of them has.
    """
    path = tuple(job.records.split(".")) if job.records and job.format == "json" else None
    blocks = utf8_blocks(source, job.format, job.encoding)
    document = Records(
        blocks, source.source_id, path, only="features" if job.format == "geojson" else None
    )
    records: list[object] = []
    for slab in document.split(Decoder(msgspec.json.Decoder(list[object]).decode, count_members)):
        records += slab.items if slab.items is not None else map(_parsed, slab.texts)
    shape = (
        next((c.name for c in job.schema if c.type == "geometry"), GEOMETRY)
        if job.format == "geojson"
        else None
    )
    records = [_flat(r, shape) for r in records]
    names = list(dict.fromkeys(name for r in records if isinstance(r, dict) for name in r))
    # Columns come in the order they are first seen, which must not hang on the order of the
    # records: every record shows them all.
    records = [{name: r.get(name) for name in names} if isinstance(r, dict) else r for r in records]

    def write(records: list[object]) -> str:
        numbered = all(r.get(FEATURE_ID) is not None for r in records if isinstance(r, dict))
        listed = [
            _feature(r, shape, numbered) if shape and isinstance(r, dict) else r for r in records
        ]
        if shape:
            beside = {
                k: msgspec.Raw(v) for k, v in document.members.items() if k not in ("type", "bbox")
            }
            return _text({"type": "FeatureCollection", **beside, "features": listed})
        for member in reversed(path or ()):
            listed = {member: listed} if member else listed  # type: ignore[assignment]
        return _text(listed)

    return _File(Path(source.path).name, records, write)


def _parsed(text: bytes) -> object:
    try:
        return decode_once(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, Twice):
        return msgspec.Raw(text)


def _flat(item: object, shape: str | None) -> object:
    """A record as the transform sees it: of a feature its id, properties and geometry."""
    if not isinstance(item, dict) or shape is None:
        return item
    properties = item.get("properties")
    if item.get("type") != "Feature" or not isinstance(properties, dict | None):
        return msgspec.Raw(msgspec.json.encode(item))
    return (
        ({} if item.get("id") is None else {FEATURE_ID: item["id"]})
        | (properties or {})
        | {shape: item.get("geometry")}
    )


def _feature(row: Row, shape: str, numbered: bool) -> Row:
    properties = {k: v for k, v in row.items() if k != shape and not (numbered and k == FEATURE_ID)}
    return {
        "type": "Feature",
        **({"id": row[FEATURE_ID]} if numbered else {}),
        "properties": properties,
        "geometry": row[shape],
    }


def _text(document: object) -> str:
    return msgspec.json.encode(document).decode()
