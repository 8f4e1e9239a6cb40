"""GeoJSON geometry to ISO WKB, with bounds and types; structure is checked, topology is not."""

from array import array
from itertools import chain
from struct import pack
from typing import NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from kfm.connectors.arrays import Floats, Mask, Values

__all__ = ["GeoColumn", "Geometry", "Problem", "encode", "invalid_count"]

Problem = tuple[str, str]  # rule, reason
Codes = npt.NDArray[np.int16]
Position = list[float]


class Point(msgspec.Struct, tag_field="type", tag="Point", gc=False):
    coordinates: Position


class MultiPoint(msgspec.Struct, tag_field="type", tag="MultiPoint", gc=False):
    coordinates: list[Position]


class LineString(msgspec.Struct, tag_field="type", tag="LineString", gc=False):
    coordinates: list[Position]


class MultiLineString(msgspec.Struct, tag_field="type", tag="MultiLineString", gc=False):
    coordinates: list[list[Position]]


class Polygon(msgspec.Struct, tag_field="type", tag="Polygon", gc=False):
    coordinates: list[list[Position]]


class MultiPolygon(msgspec.Struct, tag_field="type", tag="MultiPolygon", gc=False):
    coordinates: list[list[list[Position]]]


class GeometryCollection(msgspec.Struct, tag_field="type", tag="GeometryCollection", gc=False):
    geometries: list["Geometry"]


Geometry = (
    Point | MultiPoint | LineString | MultiLineString | Polygon | MultiPolygon | GeometryCollection
)

_NAMES = {
    1: "Point",
    2: "LineString",
    3: "Polygon",
    4: "MultiPoint",
    5: "MultiLineString",
    6: "MultiPolygon",
    7: "GeometryCollection",
}
_MAX_NESTING = 16  # collections inside collections


class _Bad(Exception):
    """A structure that is not a geometry."""


class GeoColumn(NamedTuple):
    """One geometry column: `low` and `high` are (n, 3) corners, NaN where there is nothing; `codes`
    are ISO WKB types, 0 for null.
    """

    wkb: "pa.Array"
    low: Floats
    high: Floats
    codes: Codes

    def kept(self, keep: Mask) -> "GeoColumn":
        """The rows chosen by a mask."""
        return GeoColumn(self.wkb, self.low[keep], self.high[keep], self.codes[keep])

    def type_names(self) -> set[str]:
        """The GeoParquet names of the types present."""
        return {
            _NAMES[c % 1000] + (" Z" if c > 1000 else "")
            for c in np.flatnonzero(np.bincount(self.codes)).tolist()
            if c
        }


def encode(values: Values, name: str, bad: dict[int, Problem]) -> GeoColumn:
    """Each value as WKB; what is no geometry, or lies outside the globe, goes to `bad` by its
    row.
    """
    column = _points(values)
    if column is None:
        column = _mixed(values, name, bad)
    _check_range(column, name, bad)
    return column


def invalid_count(column: GeoColumn, wkb: "pa.Array") -> int:
    """How many of some rows' shapes are not valid; points always are, and are not looked at."""
    if not np.isin(column.codes % 1000, (0, 1, 4), invert=True).any():
        return 0
    import shapely

    return int(
        (~shapely.is_valid(shapely.from_wkb(wkb.drop_null().to_numpy(zero_copy_only=False)))).sum()
    )


def _points(values: Values) -> GeoColumn | None:
    """The common case, a block of points of one dimension, in one sweep; None when it is not
    that.
    """
    if set(map(type, values)) != {Point}:
        return None
    positions = [v.coordinates for v in values]
    sizes = set(map(len, positions))
    if len(sizes) != 1 or not sizes <= {2, 3}:
        return None
    dims, n = sizes.pop(), len(positions)
    code = 1 if dims == 2 else 1001
    flat = np.fromiter(chain.from_iterable(positions), np.float64, n * dims).reshape(n, dims)
    width = 5 + 8 * dims
    out = np.empty((n, width), np.uint8)
    out[:, :5] = np.frombuffer(pack("<BI", 1, code), np.uint8)
    out[:, 5:] = flat.view(np.uint8).reshape(n, 8 * dims)
    offsets = np.arange(0, (n + 1) * width, width, dtype=np.int32)
    wkb = pa.Array.from_buffers(pa.binary(), n, [None, pa.py_buffer(offsets), pa.py_buffer(out)])
    corners = np.full((n, 3), np.nan)
    corners[:, :dims] = flat
    return GeoColumn(wkb, corners, corners, np.full(n, code, np.int16))


def _mixed(values: Values, name: str, bad: dict[int, Problem]) -> GeoColumn:
    n = len(values)
    wkb: list[bytes | None] = [None] * n
    low, high, codes = np.full((n, 3), np.nan), np.full((n, 3), np.nan), np.zeros(n, np.int16)
    for i, value in enumerate(values):
        if value is None or i in bad:
            continue
        try:
            wkb[i], low[i], high[i], codes[i] = _one(value)
        except (_Bad, msgspec.ValidationError, msgspec.DecodeError) as error:
            bad[i] = ("geometry", f"{name}: {error}")
    return GeoColumn(pa.array(wkb, pa.binary()), low, high, codes)


def _one(value: object) -> tuple[bytes, list[float], list[float], int]:
    if isinstance(value, str):
        if not value.lstrip().startswith("{"):
            return _from_wkt(value)
        value = msgspec.json.decode(value, type=Geometry)
    elif isinstance(value, dict):
        value = msgspec.convert(value, Geometry)
    parts: list[array[float]] = []
    dims: set[int] = set()
    wkb = _wkb(value, parts, dims, 0)
    if len(dims) != 1:
        raise _Bad("positions of two and of three numbers are mixed")
    d = dims.pop()
    low, high = [np.nan] * 3, [np.nan] * 3
    for axis in range(d):
        low[axis] = min(min(p[axis::d]) for p in parts)
        high[axis] = max(max(p[axis::d]) for p in parts)
    return wkb, low, high, int.from_bytes(wkb[1:5], "little")


def _flat(
    positions: list[Position], parts: list["array[float]"], dims: set[int], least: int, what: str
) -> tuple[int, bytes]:
    """(dimension, bytes) of some positions, which are noted for the bounds."""
    if len(positions) < least:
        raise _Bad(f"a {what} has {len(positions)} positions, at least {least} are needed")
    sizes = set(map(len, positions))
    if not sizes <= {2, 3}:
        raise _Bad("a position must have two or three numbers")
    if len(sizes) != 1:
        raise _Bad("positions of two and of three numbers are mixed")
    numbers = array("d", chain.from_iterable(positions))
    parts.append(numbers)
    dims |= sizes
    return sizes.pop(), numbers.tobytes()


def _head(code: int, dims: int) -> bytes:
    return pack("<BI", 1, code if dims == 2 else 1000 + code)


def _line(line: list[Position], parts: list["array[float]"], dims: set[int]) -> tuple[int, bytes]:
    d, body = _flat(line, parts, dims, 2, "line")
    return d, _head(2, d) + pack("<I", len(line)) + body


def _polygon(
    rings: list[list[Position]], parts: list["array[float]"], dims: set[int]
) -> tuple[int, bytes]:
    if not rings:
        raise _Bad("a polygon has no ring")
    d, out = 2, [b""]
    for ring in rings:
        d, body = _flat(ring, parts, dims, 4, "ring")
        if ring[0] != ring[-1]:
            raise _Bad("a ring is not closed: its first and last positions differ")
        out.append(pack("<I", len(ring)) + body)
    out[0] = _head(3, d) + pack("<I", len(rings))
    return d, b"".join(out)


def _many(code: int, pieces: list[tuple[int, bytes]]) -> bytes:
    if not pieces:
        raise _Bad("the geometry is empty")
    return (
        _head(code, pieces[0][0]) + pack("<I", len(pieces)) + b"".join(body for _, body in pieces)
    )


def _wkb(value: object, parts: list["array[float]"], dims: set[int], nesting: int) -> bytes:
    if isinstance(value, Point):
        d, body = _flat([value.coordinates], parts, dims, 1, "point")
        return _head(1, d) + body
    if isinstance(value, LineString):
        return _line(value.coordinates, parts, dims)[1]
    if isinstance(value, Polygon):
        return _polygon(value.coordinates, parts, dims)[1]
    if isinstance(value, MultiPoint):
        flats = [_flat([p], parts, dims, 1, "point") for p in value.coordinates]
        return _many(4, [(d, _head(1, d) + body) for d, body in flats])
    if isinstance(value, MultiLineString):
        return _many(5, [_line(c, parts, dims) for c in value.coordinates])
    if isinstance(value, MultiPolygon):
        return _many(6, [_polygon(c, parts, dims) for c in value.coordinates])
    if isinstance(value, GeometryCollection):
        if nesting >= _MAX_NESTING:
            raise _Bad(f"collections are nested more than {_MAX_NESTING} deep")
        inner = [_wkb(g, parts, dims, nesting + 1) for g in value.geometries]
        return _many(7, [(3 if int.from_bytes(b[1:5], "little") > 1000 else 2, b) for b in inner])
    raise _Bad(f"expected a geometry object, got {type(value).__name__}")


def _from_wkt(text: str) -> tuple[bytes, list[float], list[float], int]:
    import shapely  # only tables with WKT columns need GEOS

    try:
        shape = shapely.from_wkt(text)
    except shapely.GEOSException as error:
        raise _Bad(f"not WKT or GeoJSON: {str(error)[:120]}") from None
    numbers = shapely.get_coordinates(shape, include_z=shapely.has_z(shape))
    if not len(numbers) or not np.isfinite(numbers).all():
        raise _Bad("the geometry is empty or not finite")
    wkb = shapely.to_wkb(shape, output_dimension=3, byte_order=1, flavor="iso")
    low, high = [np.nan] * 3, [np.nan] * 3
    low[: numbers.shape[1]], high[: numbers.shape[1]] = (
        numbers.min(0).tolist(),
        numbers.max(0).tolist(),
    )
    return wkb, low, high, int.from_bytes(wkb[1:5], "little")


def _check_range(column: GeoColumn, name: str, bad: dict[int, Problem]) -> None:
    low, high = column.low, column.high
    with np.errstate(invalid="ignore"):
        outside = (low[:, 0] < -180) | (high[:, 0] > 180) | (low[:, 1] < -90) | (high[:, 1] > 90)
    for i in np.flatnonzero(outside).tolist():
        bad.setdefault(
            i,
            (
                "geometry.range",
                (
                    f"{name}: longitude {low[i, 0]:g}..{high[i, 0]:g}, latitude"
                    f" {low[i, 1]:g}..{high[i, 1]:g} lie outside -180..180, -90..90; are they"
                    " swapped?"
                ),
            ),
        )
