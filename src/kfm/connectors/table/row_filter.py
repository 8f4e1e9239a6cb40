"""Which rows are asked for: the window, the area and the extent that the registry states, and what
a reader drops by rule.
"""

from collections import Counter
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kfm.connectors.arrays import Floats, Mask
from kfm.connectors.base import Refused
from kfm.connectors.operations import Read
from kfm.connectors.read.geometry import GeoColumn, Problem
from kfm.connectors.read.rows import Batch
from kfm.connectors.table.sanity import LATITUDE, LONGITUDE
from kfm.connectors.table.values import moment
from kfm.model import Column

__all__ = ["Wanted"]

_DAY_US = 86_400_000_000


class _Window(NamedTuple):
    column: str
    since: int | None
    until: int | None


class Wanted:
    """Judges rows by where and when they are; `dropped` counts, by rule, those that nobody asked
    for.
    """

    def __init__(self, job: Read, columns: tuple[Column, ...]) -> None:
        self._job, self._columns = job, columns
        self._names = tuple(c.name for c in columns)
        self._window = _window_of(job, columns)
        self.dropped: Counter[str] = Counter()

    def judge(
        self, batch: Batch, arrays: list["pa.Array"], geo: GeoColumn | None, timeless: set[int]
    ) -> Mask | None:
        """A mask of the rows that are not wanted, or None when all are; what cannot be placed is
        set aside in `batch.bad`.
        """
        return self._outside(arrays, batch.bad, self._unwanted(batch, arrays, geo), timeless)

    def _unwanted(
        self, batch: Batch, arrays: list["pa.Array"], geo: GeoColumn | None
    ) -> Mask | None:
        """A mask of the rows that are not wanted by rule: the reader said so, or they lie outside
        the registered area.
        """
        bad, found = batch.bad, np.zeros(batch.size, np.bool_)
        for i in [i for i, (rule, _) in bad.items() if rule.startswith("drop:")]:
            self.dropped[bad.pop(i)[0].removeprefix("drop:")] += 1
            found[i] = True
        if self._job.extent is not None:
            self._check_extent(self._job.extent, arrays, geo, bad, found)
        if self._job.area:
            known, inside, swapped = self._placed(arrays, geo)
            # dropping it would lose a record that is wanted without a word
            for i in np.flatnonzero(swapped & ~found).tolist():
                bad.setdefault(i, _swapped("area"))
            away = known & ~inside & ~found
            away[list(bad)] = False
            self.dropped["outside-area"] += int(away.sum())
            for i in np.flatnonzero(~known & ~found).tolist():
                bad.setdefault(
                    i,
                    (
                        "area.unknown",
                        "no location, so nothing says that it lies in the registered area",
                    ),
                )
            found |= away
        return found if found.any() else None

    def _check_extent(
        self,
        extent: tuple[float, ...],
        arrays: list["pa.Array"],
        geo: GeoColumn | None,
        bad: dict[int, Problem],
        dropped: Mask,
    ) -> None:
        """Set aside the rows that lie in the registered extent only with their axes swapped; of
        others the quality gate speaks.
        """
        west, south, east, north = extent
        if geo is not None:
            x0, y0, x1, y1 = geo.low[:, 0], geo.low[:, 1], geo.high[:, 0], geo.high[:, 1]
        else:
            found = self._coordinates(arrays)
            if found is None:
                return
            x0, y0 = x1, y1 = found
        with np.errstate(invalid="ignore"):
            outside = (x0 < west) | (x1 > east) | (y0 < south) | (y1 > north)
            swapped = (
                outside & ~dropped & (y0 >= west) & (y1 <= east) & (x0 >= south) & (x1 <= north)
            )
        for i in np.flatnonzero(swapped).tolist() if west <= east else ():
            bad.setdefault(i, _swapped("extent"))

    def _coordinates(self, arrays: list["pa.Array"]) -> tuple[Floats, Floats] | None:
        """Longitudes and latitudes, NaN where there is none; None without columns of such names."""
        where = [
            next((i for i, n in enumerate(self._names) if n.lower() in names), None)
            for names in (LONGITUDE, LATITUDE)
        ]
        if where[0] is None or where[1] is None:
            return None
        try:
            x, y = (
                arrays[i].cast(pa.float64()).to_numpy(zero_copy_only=False)
                for i in where
                if i is not None
            )
        except pa.ArrowInvalid:  # text that is no number
            return None
        return x, y

    def _placed(self, arrays: list["pa.Array"], geo: GeoColumn | None) -> tuple[Mask, Mask, Mask]:
        """(whether a row says where it is, whether that touches the area, whether it would with its
        axes swapped, and only then).
        """
        import shapely

        area = shapely.Polygon(self._job.area)
        shapely.prepare(area)
        if geo is not None:
            shapes = shapely.from_wkb(geo.wkb.to_numpy(zero_copy_only=False))
            known = np.array([s is not None for s in shapes], np.bool_)
            inside = shapely.intersects(area, shapes)
            swapped = known & ~inside
            swapped[swapped] = shapely.intersects(
                area, shapely.transform(shapes[swapped], lambda c: c[:, ::-1])
            )
            return known, inside, swapped
        found = self._coordinates(arrays)
        if found is None:
            raise Refused(
                "area",
                f"{self._job.dataset_id} has an area, but no column says where a record is.",
                expected="a geometry, or columns latitude and longitude",
                remedy="Take `area` out of the registry entry, or name the columns so.",
            )
        known = np.isfinite(found[0]) & np.isfinite(found[1])
        x, y = np.nan_to_num(found[0]), np.nan_to_num(found[1])
        inside = shapely.intersects_xy(area, x, y)
        return known, inside, known & ~inside & shapely.intersects_xy(area, y, x)

    def _outside(
        self,
        arrays: list["pa.Array"],
        bad: dict[int, Problem],
        unwanted: Mask | None,
        timeless: set[int],
    ) -> Mask | None:
        """A mask of the rows that are not wanted or lie outside the window, or None when none is;
        `timeless` ones lie nowhere.
        """
        if self._window is None:
            return unwanted
        column = self._names.index(self._window.column)
        times = _microseconds(arrays[column], self._columns[column].type)
        outside = np.zeros(len(times), np.bool_)
        known = times.is_valid().to_numpy(zero_copy_only=False)
        stamps = times.fill_null(0).to_numpy()
        if self._window.since is not None:
            outside |= stamps < self._window.since
        if self._window.until is not None:
            outside |= stamps >= self._window.until
        outside &= known
        outside[list(timeless)] = False
        if unwanted is not None:
            outside &= ~unwanted
            known |= unwanted
        for i in np.flatnonzero(~known).tolist():
            bad.setdefault(
                i,
                (
                    "time.missing",
                    f"{self._window.column}: no time, so the row cannot be placed in the window",
                ),
            )
        self.dropped["outside-window"] += int(outside.sum())
        if unwanted is not None:
            outside |= unwanted
        return outside if outside.any() else None


def _window_of(job: Read, columns: tuple[Column, ...]) -> _Window | None:
    if job.time_column is None or (job.since is None and job.until is None):
        return None
    kind = next((c.type for c in columns if c.name == job.time_column), None)
    if kind not in ("timestamp", "date", "integer"):
        raise Refused(
            "schema.time-column",
            f"The time column {job.time_column!r}"
            f" {'is missing' if kind is None else f'holds {kind} values'}.",
            expected="a column of type timestamp or date, or epoch milliseconds",
            remedy="Correct `time_column` or the column's type in the registry entry.",
            column=job.time_column,
        )
    return _Window(
        job.time_column,
        moment(job.since) if job.since else None,
        moment(job.until) if job.until else None,
    )


def _microseconds(array: "pa.Array", kind: str) -> "pa.Array":
    if kind == "timestamp":
        return array.view(pa.int64())
    if kind == "date":
        return pc.multiply(array.view(pa.int32()).cast(pa.int64()), _DAY_US)
    return pc.multiply(array, 1000)  # epoch milliseconds, as for timestamps in JSON


def _swapped(what: str) -> tuple[str, str]:
    return (
        "geometry.swapped",
        (
            f"it lies outside the registered {what}, and inside once longitude and latitude are"
            " swapped"
        ),
    )
