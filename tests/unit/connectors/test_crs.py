"""Coordinate systems: exact ways to WGS 84 are taken, guesses are refused, and what cannot be there
is marked.
"""

import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import shapely
from pyproj import CRS, Geod

from kfm.connectors.base import Refused
from kfm.connectors.read import crs as module
from kfm.connectors.read.crs import to_wgs84

KANSAS = (-102.1, 36.9, -94.5, 40.1)
NAD27_PLANE = CRS.from_epsg(26714).to_wkt("WKT1_ESRI")
NAD83_PLANE = CRS.from_epsg(3435).to_wkt("WKT1_ESRI")
NAMELESS = (
    'GEOGCS["local",DATUM["somewhere",SPHEROID["GRS_1980",6378137,298.257222101]],'
    'PRIMEM["Greenwich",0],UNIT["Degree",0.017453292519943295]]'
)


def refused(crs: str | int, bounds: tuple[float, float, float, float] | None = None) -> Refused:
    with pytest.raises(Refused) as caught:
        to_wgs84(crs, bounds)
    return caught.value


@pytest.mark.parametrize(
    "crs",
    [
        4326,
        "EPSG:4326",
        "OGC:CRS84",
        CRS.from_epsg(4326).to_wkt("WKT1_ESRI"),
        CRS.from_epsg(4326).to_wkt(),
    ],
)
def test_wgs_84_is_itself_in_every_spelling(crs: str | int) -> None:
    to = to_wgs84(crs)
    assert to.same
    assert [a.tolist() for a in to([-98.5], [38.25])] == [[-98.5], [38.25]]


@pytest.mark.parametrize(
    "crs", [4269, 4258, 6318, 4152, 4283, CRS.from_epsg(4269).to_wkt("WKT1_ESRI")]
)
def test_what_everyone_publishes_as_wgs_84_is_not_moved_but_named(crs: str | int) -> None:
    to = to_wgs84(crs)
    assert not to.same
    assert to.name != "EPSG:4326"
    assert [a.tolist() for a in to([-98.5], [38.25])] == [[-98.5], [38.25]]


@pytest.mark.parametrize("crs", [3435, NAD83_PLANE])
def test_a_point_in_state_plane_feet_is_where_the_formulas_of_the_projection_put_it(
    crs: str | int,
) -> None:
    # Illinois East: transverse Mercator at 88°20'W, 36°40'N, scale 0.999975, 984250 US survey feet;
    # on the meridian only y counts.
    north = 1_000_000 * 1200 / 3937 / 0.999975
    lon, lat = to_wgs84(crs)([984_250.0], [1_000_000.0])
    _, _, along = Geod(ellps="GRS80").inv(lon[0], lat[0], -(88 + 20 / 60), 36 + 40 / 60)
    assert lon[0] == pytest.approx(-(88 + 20 / 60), abs=1e-9)
    assert along == pytest.approx(north, abs=0.001)


@pytest.mark.parametrize("crs", [3857, 102100])
def test_web_mercator_follows_its_definition(crs: int) -> None:
    lon, lat = to_wgs84(crs)([-10857996.0], [4579425.8])
    assert lon[0] == pytest.approx(math.degrees(-10857996.0 / 6378137), abs=1e-9)
    assert lat[0] == pytest.approx(
        math.degrees(math.atan(math.sinh(4579425.8 / 6378137))), abs=1e-9
    )


@pytest.mark.parametrize(
    ("crs", "bounds"), [(4267, KANSAS), (26714, (300_000.0, 4_100_000.0, 400_000.0, 4_200_000.0))]
)
def test_nad27_without_its_grid_is_refused_and_the_grid_is_named(
    crs: int, bounds: tuple[float, float, float, float]
) -> None:
    refusal = refused(crs, bounds).refusal
    assert refusal.code == "crs.grid"
    assert refusal.detail["grids"][0] == "us_noaa_conus.tif"
    assert "about 7 m away" in refusal.happened
    assert "us_noaa_conus.tif" in refusal.remedy


@pytest.mark.parametrize("crs", [4267, NAD27_PLANE, 4277, 4230, 4322, NAMELESS])
def test_a_way_that_is_metres_off_or_a_guess_is_refused(crs: str | int) -> None:
    assert refused(crs).refusal.code == "crs.grid"


class Step:
    """An operation that moves everything a thousandth of a degree east."""

    definition, description = "proj=hgridshift", "NAD27 to WGS 84 (79)"

    def __init__(self, accuracy: float, grids: tuple[str, ...]) -> None:
        self.accuracy, self.operations = accuracy, [SimpleNamespace(grids=grids)]

    def transform(self, x: Any, y: Any) -> tuple[Any, Any]:
        return x + 0.001, y


@pytest.mark.parametrize(
    ("accuracy", "grids", "best", "taken"),
    [
        # what is stated for the grid is how well WGS 84 itself is known
        (5.0, ("us_noaa_conus.tif",), True, True),
        (5.0, ("us_noaa_conus.tif",), False, False),
        (5.0, (), True, False),
        (1.0, (), False, True),
        (-1.0, (), True, False),
    ],
)
def test_an_operation_is_taken_when_it_is_exact_or_the_best_by_grid(
    monkeypatch: pytest.MonkeyPatch,
    accuracy: float,
    grids: tuple[str, ...],
    best: bool,
    taken: bool,
) -> None:
    monkeypatch.setattr(module, "_group", lambda *_: ([Step(accuracy, grids)], best, []))
    if taken:
        assert to_wgs84(4267, KANSAS)([-99.0], [39.0])[0].tolist() == [-98.999]
    else:
        assert refused(4267, KANSAS).refusal.code == "crs.grid"


@pytest.mark.parametrize(
    "crs",
    [
        999999,
        "urn:x",
        "+proj=longlat +datum=NAD27",
        "/etc/hostname",
        4978,
        5773,
        'GEOGCS["x"',
        "NaN",
        "none stated",
        NAD83_PLANE.replace(",", "," + " " * 20_000),
    ],
)
def test_a_system_nobody_knows_is_refused(crs: str | int) -> None:
    assert refused(crs).refusal.code == "crs.unknown"


def test_a_height_system_beside_the_horizontal_one_is_left_aside() -> None:
    assert to_wgs84(5498).name == "EPSG:4269"


def test_a_position_that_cannot_be_in_the_system_is_nan_and_the_others_stay() -> None:
    # Not a number, far outside, and longitude and latitude taken for feet.
    lon, lat = to_wgs84(3435)([1150645.1, math.nan, 1e9, -88.0], [1789768.6, 1.0, 1e9, 41.0])
    assert np.isnan(lon).tolist() == np.isnan(lat).tolist() == [False, True, True, True]
    lon, _ = to_wgs84(4326)([200.0, -98.0], [38.0, 38.0])
    assert np.isnan(lon).tolist() == [True, False]


def test_kansas_in_one_utm_zone_is_not_taken_for_nonsense() -> None:
    corner = shapely.Point(-94.6, 39.0)
    from pyproj import Transformer

    x, y = Transformer.from_crs(4326, 26914, always_xy=True).transform(corner.x, corner.y)
    lon, lat = to_wgs84(26914)([x], [y])
    assert (lon[0], lat[0]) == (pytest.approx(-94.6, abs=1e-9), pytest.approx(39.0, abs=1e-9))


def test_nothing_is_fetched_on_the_way() -> None:
    from pyproj.network import is_network_enabled  # type: ignore[attr-defined]

    assert is_network_enabled() is False
