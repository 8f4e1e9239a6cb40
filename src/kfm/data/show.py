"""A version on a screen: its first rows, what each column holds, and where its places are."""

from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from kfm.data.shown import Map, Profile, Shown
from kfm.diff.cells import shapes, values
from kfm.diff.side import Side
from kfm.model import Json

__all__ = ["preview"]

_BINS = 12
_COMMON = 3
_WIDE, _HIGH = 96, 56  # spots of a map, at the most
_BATCH = 1 << 16
Counts = npt.NDArray[np.int64]


def preview(files: Mapping[str, Path], rows: int) -> tuple[Shown, Map | None]:
    """All tables of a version together; one column of them is in memory at a time."""
    side = Side(files)
    found = Shown(
        rows=side.rows,
        columns=[_profile(side, name) for name in side.types],
        first=list(islice(_rows(side, rows), rows)),
        bbox=_around(side.boxes),
    )
    return found, _map(side) if side.geometry else None


def _around(boxes: list[list[float]]) -> list[float] | None:
    return [end(e) for end, e in zip((min, min, max, max), zip(*boxes))] or None


def _rows(side: Side, most: int) -> Iterator[dict[str, object]]:
    for file in side.files if most else ():
        for batch in file.iter_batches(min(most, _BATCH)):
            cells = {
                name: (shapes(column, float("inf"))[0] if name == side.geometry else values(column))
                for name, column in zip(batch.schema.names, batch.columns)
            }
            for n in range(batch.num_rows):
                # a column that only another file has is empty here
                yield {name: cells[name][n] if name in cells else None for name in side.types}


def _profile(side: Side, name: str) -> Profile:
    column = side.column(name)
    about: Json = {"name": name, "missing": column.null_count}
    if name == side.geometry:
        return Profile(**about, type="geometry", distinct=None)
    about |= {"type": side.shown[name], "distinct": pc.count_distinct(column).as_py()}
    there = column.drop_null()
    if not len(there) or pa.types.is_large_binary(there.type):
        return Profile(**about)
    if pa.types.is_boolean(there.type):
        return Profile(**about, common=_common(there))
    lowest, highest = values(pa.array(list(pc.min_max(there).values()), there.type))
    if pa.types.is_large_string(there.type):
        return Profile(**about, lowest=lowest, highest=highest, common=_common(there))
    return Profile(**about, lowest=lowest, highest=highest, shape=_shape(there))


def _common(column: "pa.Array") -> list[tuple[object, int]]:
    """The commonest values of those that come again."""
    counted = pc.value_counts(column)
    counts = counted.field("counts").to_numpy()
    again = [int(n) for n in np.argsort(-counts, kind="stable")[:_COMMON] if counts[n] > 1]
    texts = values(counted.field("values").take(pa.array(again, pa.int64())))
    return [(text, int(counts[n])) for text, n in zip(texts, again)]


def _shape(column: "pa.Array") -> list[int]:
    """How many values lie in each of equal steps from the lowest to the highest."""
    if pa.types.is_temporal(column.type):
        wide = pa.types.is_date32(column.type) or pa.types.is_time32(column.type)
        column = column.cast(pa.int32() if wide else pa.int64())
    numbers = column.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
    numbers = numbers[np.isfinite(numbers)]
    if not len(numbers) or numbers.min() == numbers.max():
        return []
    low, high = float(numbers.min()), float(numbers.max())
    if not np.isfinite(high - low):
        return []
    return [int(n) for n in np.histogram(numbers, _BINS, (low, high))[0]]


def _map(side: Side) -> Map | None:
    """Where the places lie, by their centroids; a column of them is in memory at a time."""
    _, found = shapes(side.column(side.geometry), 0)
    places = np.array([p for p in found if p is not None], np.float64).reshape(-1, 2)
    if not len(places):
        return None
    (west, south), (east, north) = places.min(0), places.max(0)
    # a degree of longitude is shorter the farther north it lies
    narrow = max(0.05, float(np.cos(np.radians(min(89.0, abs(south + north) / 2)))))
    if not all(abs(e) <= 360 for e in (west, east)) or not all(
        abs(n) <= 90 for n in (south, north)
    ):
        narrow = 1.0  # metres, not degrees
    across, up = max((east - west) * narrow, 1e-12), max(north - south, 1e-12)
    scale = min(_WIDE / across, _HIGH / up)
    wide = max(1, min(_WIDE, round(across * scale)))
    high = max(1, min(_HIGH, round(up * scale)))
    spots: Counts = np.zeros((high, wide), np.int64)
    x = np.clip((places[:, 0] - west) * narrow / across * wide, 0, wide - 1).astype(int)
    y = np.clip((north - places[:, 1]) / up * high, 0, high - 1).astype(int)
    np.add.at(spots, (y, x), 1)
    return Map(bbox=(west, south, east, north), spots=spots.tolist())
