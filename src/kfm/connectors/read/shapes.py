"""Shapes of any reference system brought to WGS 84, with what they were before."""

import contextlib
from typing import Any

import numpy as np
import shapely

from kfm.connectors.read.crs import ToWgs84
from kfm.connectors.read.rows import Row
from kfm.model import Column

__all__ = ["place_columns", "placed", "shapes_of"]

_PLAIN = 7  # the last of the types that GeoJSON has too; curves and surfaces come after it


def place_columns(to: ToWgs84, *, points: bool) -> list[Column]:
    """The columns that say where a record is: the system and coordinates it had where these are
    others, and the shape.
    """
    found = []
    if not to.same:
        found.append(Column(name="source_crs", type="string"))
        if points:
            found += [Column(name=n, type="number") for n in ("source_x", "source_y")]
    return [*found, Column(name="geometry", type="geometry")]


def shapes_of(wkb: list[bytes | None]) -> tuple[Any, set[int]]:
    """(the shapes, empty ones as none; which of the texts are no shape that can be published)."""
    shapes = _shapes(wkb)
    empty = shapely.is_empty(shapes)
    wrong = {i for i, data in enumerate(wkb) if data is not None and shapes[i] is None}
    wrong |= set(np.flatnonzero(shapely.get_type_id(shapes) > _PLAIN).tolist())
    shapes[[*wrong, *np.flatnonzero(empty).tolist()]] = None
    return shapes, wrong


def _shapes(wkb: list[bytes | None]) -> Any:
    try:
        return shapely.from_wkb(np.array(wkb, object), on_invalid="ignore")
    except NotImplementedError:  # a curve among them: all would be lost
        found = np.empty(len(wkb), object)
        for i, data in enumerate(wkb):
            with contextlib.suppress(NotImplementedError):
                found[i] = shapely.from_wkb(data, on_invalid="ignore")
        return found


def placed(
    shapes: Any,
    to: ToWgs84,
    source_id: str,
    warnings: set[str],
    *,
    points: bool,
) -> list[tuple[Row, bool]]:
    """Of each shape the columns above, and whether a position of it cannot be in its system."""
    if shapely.has_z(shapes).any():
        warnings.add(
            f"Heights in {source_id} are left out: what they are measured from is not stated."
        )
    flat = shapely.force_2d(shapes)
    before, owner = shapely.get_coordinates(flat, return_index=True)
    lon, lat = to(before[:, 0], before[:, 1])
    lost = set(owner[np.isnan(lon)].tolist())
    moved = shapely.orient_polygons(shapely.set_coordinates(flat, np.column_stack([lon, lat])))
    found: list[tuple[Row, bool]] = []
    for i, text in enumerate(shapely.to_geojson(moved).tolist()):
        place: Row = {"geometry": text}
        if not to.same:
            place["source_crs"] = to.name
            if points:
                x, y = (
                    before[np.searchsorted(owner, i)].tolist() if text is not None else (None, None)
                )
                place |= {"source_x": x, "source_y": y}
        found.append((place, i in lost))
    return found
