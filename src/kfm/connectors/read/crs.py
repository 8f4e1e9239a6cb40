"""Coordinates of any reference system to longitude and latitude on WGS 84, or a refusal: never
metres off without saying so.
"""

import re
import warnings
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple, NoReturn

import numpy as np
import numpy.typing as npt
from pyproj import CRS, Transformer
from pyproj.aoi import AreaOfInterest
from pyproj.exceptions import CRSError, ProjError
from pyproj.network import set_network_enabled  # type: ignore[attr-defined]
from pyproj.transformer import TransformerGroup

from kfm.connectors.arrays import Floats, Mask
from kfm.connectors.base import Refused

__all__ = ["Bounds", "ToWgs84", "fits", "to_wgs84"]

set_network_enabled(False)  # a grid that is fetched on the way would make results depend on the day

Numbers = npt.ArrayLike | Sequence[float | None]  # one, or many
# in source coordinates: least x, least y, greatest x, greatest y
Bounds = tuple[float, float, float, float]
_WGS84 = CRS.from_user_input("OGC:CRS84")
_CODE = re.compile(r"(?:(EPSG|ESRI|OGC):{1,2})?([A-Za-z0-9]{1,16})", re.ASCII | re.IGNORECASE)
_LONGEST = 1 << 16  # characters of WKT
_EXACT = 1.0  # metres: an operation that moves coordinates may be off by this much without a grid
# metres: stated for NAD83, ETRS89 and their like, which everyone publishes as WGS 84 without moving
# a point
_NULL = 4.0
# degrees around the area a projection is meant for: a whole state is often drawn in one zone of two
_MARGIN = 2.0


class ToWgs84(NamedTuple):
    """What turns the x and y of one reference system into longitude and latitude."""

    name: str  # such as "EPSG:4269"
    same: bool  # the coordinates are longitude and latitude on WGS 84 already
    how: str  # the operation in words
    plane: Transformer | None  # from the plane to its own longitude and latitude: exact
    datum: Transformer | None  # from there to WGS 84
    area: Bounds | None
    # of a projection: the part of the Earth it is meant for, also where positions beyond are taken
    home: Bounds | None = None

    def __call__(self, x: Numbers, y: Numbers) -> tuple[Floats, Floats]:
        """(longitude, latitude); NaN where a position cannot be in this system, or plainly is
        degrees and not its lengths.
        """
        lon, lat = np.array(x, np.float64), np.array(y, np.float64)
        for step in (self.plane, self.datum):
            if step is not None:
                lon, lat = step.transform(lon, lat)
        with np.errstate(invalid="ignore"):
            good = (np.abs(lon) <= 180) & (np.abs(lat) <= 90)
            if self.area is not None:
                west, south, east, north = self.area
                good &= (lon >= west) & (lon <= east) & (lat >= south) & (lat <= north)
            good &= ~self.in_degrees(x, y)
        return np.where(good, lon, np.nan), np.where(good, lat, np.nan)

    def in_degrees(self, x: Numbers, y: Numbers) -> Mask:
        """Where numbers that should be lengths are longitude and latitude inside the very area this
        projection is meant for.

        In metres or feet they would be a few steps from the projection's origin, which no
        projection has where it is used.
        """
        return _in_degrees(self.home if self.plane is not None else None, x, y)


def fits(crs: str | int, x: Numbers, y: Numbers) -> Mask:
    """Whether numbers can be positions in `crs` as they are: degrees where it counts in degrees,
    lengths where it counts in those.
    """
    degrees, home = _meant(crs)
    if degrees:
        there: Mask = (np.abs(np.asarray(x)) <= 180) & (np.abs(np.asarray(y)) <= 90)
        return there
    return ~_in_degrees(home, x, y)


@lru_cache(maxsize=16)
def _meant(crs: str | int) -> tuple[bool, Bounds | None]:
    """Whether a system counts in degrees, and the part of the Earth it is meant for."""
    system = _parsed(crs)
    return system.is_geographic, _area(system) or _home(system)


def _in_degrees(home: Bounds | None, x: Numbers, y: Numbers) -> Mask:
    xs, ys = np.asarray(x, np.float64), np.asarray(y, np.float64)
    found = np.zeros(np.shape(xs), np.bool_)
    if home is None:
        return found
    west, south, east, north = home
    for lon, lat in ((xs, ys), (ys, xs)):  # their axes may be swapped too
        found |= (
            (np.abs(lon) <= 180)
            & (np.abs(lat) <= 90)
            & (lon >= west)
            & (lon <= east)
            & (lat >= south)
            & (lat <= north)
        )
    degrees: Mask = found & ((xs != 0) | (ys != 0))
    return degrees


def to_wgs84(crs: str | int, bounds: Bounds | None = None) -> ToWgs84:
    """The way from `crs` (a code, AUTHORITY:CODE or WKT) to WGS 84; `bounds` of the data choose
    between operations.

    Raises `Refused`: "crs.unknown", or "crs.grid" when the way there is a guess or needs a grid
    that is not installed.
    """
    system = _parsed(crs)
    base = system.geodetic_crs
    if base is None or not (system.is_geographic or system.is_projected):
        _unknown(crs, "it is no map projection and no longitude and latitude")
    base = base.to_2d()
    name = _name(system)
    plane = Transformer.from_crs(system, base, always_xy=True) if system.is_projected else None
    datum = _operation(base, name, _degrees(plane, bounds))
    how = " + ".join(p for p in datum.description.split(" + ") if "axis order" not in p) or "WGS 84"
    area = _area(system)
    return ToWgs84(
        name, plane is None and datum.accuracy == 0, how, plane, datum, area, area or _home(system)
    )


def _parsed(crs: str | int) -> CRS:
    text = str(crs).strip()
    code = _CODE.fullmatch(text)
    if len(text) > _LONGEST:
        _unknown(crs, f"it is {len(text)} characters long")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            # Nothing but codes and WKT: a PROJ string can name files.
            return _flat(
                _from_code((code[1] or "").upper(), code[2]) if code else CRS.from_wkt(text)
            )
    except CRSError as error:
        _unknown(crs, str(error).split(":", 1)[-1].strip() or "PROJ does not know it")


def _from_code(authority: str, code: str) -> CRS:
    if authority:
        return CRS.from_authority(authority, code)
    try:
        return CRS.from_authority("EPSG", code)
    except CRSError:
        return CRS.from_authority("ESRI", code)  # ArcGIS has numbers of its own: 102100, 102697


def _flat(system: CRS) -> CRS:
    """The horizontal part."""
    flat = system.sub_crs_list[0] if system.is_compound else system
    return flat.to_2d() if len(flat.axis_info) > 2 else flat  # a copy would lose its code


def _unknown(crs: str | int, why: str) -> NoReturn:
    raise Refused(
        "crs.unknown",
        f"The coordinate reference system {str(crs)[:120]!r} is not known: {why[:200]}.",
        expected="an EPSG or ESRI code, or WKT, of a geographic or projected system",
        remedy=(
            "Ask upstream which system the coordinates are in and state it where this kind of"
            " source takes it."
        ),
        crs=str(crs)[:1000],
    )


def _name(system: CRS) -> str:
    if code := system.to_epsg():
        return f"EPSG:{code}"
    found = system.to_authority()
    return ":".join(found) if found else system.name


def _area(system: CRS) -> Bounds | None:
    """Where positions of a projection can lie; longitude and latitude are used far beyond their
    area (Guam in NAD83).
    """
    used = system.area_of_use if system.is_projected else None
    if used is None or used.west >= used.east:
        return None
    return used.west - _MARGIN, used.south - _MARGIN, used.east + _MARGIN, used.north + _MARGIN


def _home(system: CRS) -> Bounds | None:
    """What a projection that comes as text is meant for, where it is one of EPSG's."""
    code = system.to_epsg() if system.is_projected else None
    return _area(CRS.from_epsg(code)) if code else None


def _degrees(plane: Transformer | None, bounds: Bounds | None) -> AreaOfInterest | None:
    if bounds is None:
        return None
    x, y = np.array(bounds[0::2], np.float64), np.array(bounds[1::2], np.float64)
    lon, lat = (x, y) if plane is None else plane.transform(x, y)
    inside = np.isfinite([lon, lat]).all() and np.abs(lon).max() <= 180 and np.abs(lat).max() <= 90
    return (
        AreaOfInterest(float(min(lon)), float(min(lat)), float(max(lon)), float(max(lat)))
        if inside
        else None
    )


def _operation(base: CRS, name: str, area: AreaOfInterest | None) -> Transformer:
    """The operation from one datum to WGS 84 that is right, or a refusal."""
    for step in _group(base, None)[0]:
        if step.definition.startswith("proj=noop") and 0 <= step.accuracy <= _NULL:
            return step
    usable, best, missing = _group(base, area)
    if not usable:
        _refuse_operation(name, missing, -1)
    gridded = best and any(step.grids for step in usable[0].operations or ())
    if not (gridded or 0 <= usable[0].accuracy <= _EXACT):
        _refuse_operation(name, missing, usable[0].accuracy)
    return usable[0]


def _refuse_operation(name: str, missing: list[str], accuracy: float) -> NoReturn:
    near = (
        f"what is left puts points about {accuracy:g} m away"
        if accuracy >= 0
        else "there is no other way"
    )
    grid = missing[0] if missing else None
    raise Refused(
        "crs.grid",
        (
            f"Coordinates in {name} need the grid file {grid} to become WGS 84, and it is not"
            f" installed; {near}."
            if grid
            else f"Coordinates in {name} cannot become WGS 84 exactly: {near}."
        ),
        expected=(
            f"{grid} of PROJ-data where pyproj reads it"
            if grid
            else f"an operation good to {_EXACT:g} m"
        ),
        remedy=(
            f"Run `pyproj sync --system-directory --file {grid}` and then this again; or "
            if grid
            else "Either "
        )
        + "ask upstream for WGS 84, or keep the coordinates as plain columns under their own names,"
        " without a geometry.",
        crs=name,
        grids=missing,
    )


def _group(base: CRS, area: AreaOfInterest | None) -> tuple[list[Transformer], bool, list[str]]:
    """(operations that can be done here, best first; whether the first is the best known; grid
    files others need).
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # pyproj warns that a better one exists; we refuse instead
        try:
            group = TransformerGroup(
                base,
                _WGS84,
                always_xy=True,
                area_of_interest=area,  # type: ignore[arg-type]
                allow_ballpark=False,
            )
        except ProjError:
            return [], False, []
    missing = [
        grid.short_name
        for step in group.unavailable_operations
        for grid in step.grids
        if not grid.available
    ]
    return group.transformers, group.best_available, list(dict.fromkeys(missing))
