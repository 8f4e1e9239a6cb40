"""Cells of a table as people and JSON have them: times exactly, geometries as text."""

import math
import re
from collections.abc import Mapping

import pyarrow as pa
import pyarrow.compute as pc

from kfm.diff.base import Place
from kfm.model import Json

__all__ = ["rows_of", "shapes", "values"]

_WHOLE = 4  # geometries with at most so many points are written out


def values(array: "pa.Array") -> list[object]:
    """The cells of an array as JSON has them; times exactly, without zeros that say nothing."""
    if pa.types.is_timestamp(array.type):
        texts = array.cast(pa.string()).to_pylist()
        return [
            t and re.sub(r"(?:\.0*|(\.\d*?)0*)(Z|[+-]\d{4}|)$", r"\1\2", t).replace(" ", "T")
            for t in texts
        ]
    if pa.types.is_dictionary(array.type):
        return values(array.dictionary_decode())
    if (
        pa.types.is_temporal(array.type) and not pa.types.is_interval(array.type)
    ) or pa.types.is_decimal(array.type):
        return list(array.cast(pa.string()).to_pylist())
    found = array.to_pylist()
    if pa.types.is_integer(array.type) or str(array.type).endswith("string"):
        return list(found)
    if pa.types.is_floating(array.type) and pc.all(pc.is_finite(array)).as_py() is not False:
        return list(found)
    if pa.types.is_nested(array.type) or pa.types.is_interval(array.type):
        return [_inside(c) for c in found]
    return [_inside(c) if isinstance(c, bytes | float) else c for c in found]


def _inside(value: object) -> object:
    """A value as JSON has it, whatever lies in it."""
    if isinstance(value, dict):
        return {str(k): _inside(v) for k, v in value.items()}
    if isinstance(value, pa.MonthDayNano):
        return f"P{value.months}M{value.days}DT{value.nanoseconds / 1e9:g}S"
    if isinstance(value, list | tuple):
        return [_inside(v) for v in value]
    if isinstance(value, bytes):
        return value.hex()
    whole = isinstance(value, bool | int | str) or value is None
    return value if whole or (isinstance(value, float) and math.isfinite(value)) else str(value)


def rows_of(
    picked: Mapping[str, "pa.Array"], size: int, geometry: str
) -> tuple[list[Json], list[Place | None]]:
    """Rows as plain values, and where each is."""
    places: list[Place | None] = [None] * size
    columns = {}
    for name, array in picked.items():
        if name == geometry:
            columns[name], places = shapes(array)
        else:
            columns[name] = values(array)
    return [{n: column[i] for n, column in columns.items()} for i in range(size)], places


def shapes(array: "pa.Array", most: float = _WHOLE) -> tuple[list[object], list[Place | None]]:
    """Geometries as text, those of more than `most` points by kind and size; and their
    centroids.
    """
    import shapely

    found = shapely.from_wkb(array.to_numpy(zero_copy_only=False), on_invalid="ignore")
    ends = shapely.bounds(shapely.centroid(found)).tolist()  # nan for none and empty ones
    sizes = shapely.get_num_coordinates(found).tolist()
    words = [
        (
            None
            if s is None
            else (
                shapely.to_wkt(s, rounding_precision=-1)
                if n <= most
                else f"{s.geom_type}, {n:,} points"
            )
        )
        for s, n in zip(found, sizes)
    ]
    return words, [(x, y) if math.isfinite(x) else None for x, y, *_ in ends]
