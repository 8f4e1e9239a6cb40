"""Where and when every version is, in memory: which items a search may mean is found here, and each
that is shown or counted is decided by the door, in the request that asks. What is here lets nobody
see anything.
"""

import bisect
import datetime as dt
import time
from collections.abc import Iterator, Sequence
from threading import Lock
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from kfm.catalog.base import geometry
from kfm.catalog.stac import ANY_TIME
from kfm.data.libraries import library
from kfm.evidence.append_times import appended_at
from kfm.model import Generation, Json, KfmError, rfc3339
from kfm.reader.stac_items import moment
from kfm.reading.generations import generations_of
from kfm.reading.memory import Mark, Watched, is_settled, mark_of
from kfm.reading.places import place_of
from kfm.workspace.folder import Workspace
from kfm.world.world import World

if TYPE_CHECKING:
    from numpy import ndarray as Mask

__all__ = ["After", "Box", "Items", "Row", "items_of", "microseconds"]

_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_MICROSECOND = dt.timedelta(microseconds=1)
_MOST = 32  # sets of datasets that are kept in order
Box = tuple[float, float, float, float]


class Row(NamedTuple):
    """A version with a place."""

    dataset_id: str
    version_id: str
    generations: tuple[int, ...]  # that name it, the newest first
    bbox: Box
    first: int  # microseconds since 1970
    last: int

    @property
    def light(self) -> Json:
        """As much of the item as is known without asking for it."""
        times = {"start_datetime": _text(self.first), "end_datetime": _text(self.last)}
        return {
            "id": self.version_id,
            "collection": self.dataset_id,
            "geometry": geometry(self.bbox),
            "properties": {"datetime": None, "version": self.version_id, **times},
        }


class After(NamedTuple):
    """Where a page ended: how late, and which item."""

    last: int
    version_id: str
    dataset_id: str


class _Part(NamedTuple):
    """The versions of one dataset, as of a list of its generations."""

    made: Sequence[Generation]
    rows: tuple[Row, ...]
    whole: bool  # whether every version could be read


class Items:
    """The versions of some datasets, the latest first."""

    def __init__(self, parts: Sequence[_Part]) -> None:
        np = library("numpy", "looks for places")
        self.parts = tuple(parts)
        self.rows = [row for part in parts for row in part.rows]
        self.rows.sort(key=_order)
        west, south, east, north = (
            np.array([row.bbox[side] for row in self.rows], dtype="float64") for side in range(4)
        )
        self._west, self._south, self._east, self._north = west, south, east, north
        self._crossing = west > east  # the antimeridian
        self.first = np.array([row.first for row in self.rows], dtype="int64")
        self.last = np.array([row.last for row in self.rows], dtype="int64")
        self._by_id: dict[str, list[int]] = {}
        for at, row in enumerate(self.rows):
            self._by_id.setdefault(row.version_id, []).append(at)

    def everything(self) -> "Mask":
        np = library("numpy", "looks for places")
        found: Mask = np.ones(len(self.rows), dtype=bool)
        return found

    def named(self, names: Sequence[str]) -> "Mask":
        found = ~self.everything()
        for name in names:
            found[self._by_id.get(name, [])] = True
        return found

    def within(self, box: Box) -> "Mask":
        """Those whose box shares a point with this one; both may cross the antimeridian."""
        west, south, east, north = box
        parts = ((west, east),) if west <= east else ((west, 180.0), (-180.0, east))
        found = self._between(*parts[0])
        for part in parts[1:]:
            found |= self._between(*part)
        found &= self._south <= north
        found &= self._north >= south
        return found

    def _between(self, low: float, high: float) -> "Mask":
        found: Mask = (self._west <= high) & (self._east >= low)
        if self._crossing.any():
            found |= self._crossing & ((self._west <= high) | (self._east >= low))
        return found

    def during(self, first: int | None, last: int | None) -> "Mask":
        found = self.everything()
        if last is not None:
            found &= self.first <= last
        if first is not None:
            found &= self.last >= first
        return found

    def behind(self, after: After) -> int:
        """How many stand up to and with this one."""
        key = (-after.last, after.version_id, after.dataset_id)
        return bisect.bisect_right(self.rows, key, key=_order)


def _order(row: Row) -> tuple[int, str, str]:
    return -row.last, row.version_id, row.dataset_id


def items_of(workspace: Workspace, world: World, names: Sequence[str]) -> Items:
    """The versions of these datasets as they are now, whoever may see them."""
    shelf = world.memory.once("items", _Shelf) if isinstance(world, Watched) else _Shelf()
    return shelf.items(world, tuple(dict.fromkeys(names)), _stamp(workspace))


def _stamp(workspace: Workspace) -> tuple[Mark, ...] | None:
    """What changes with everything that is written into the store, as every generation is soon after
    it was made; None: nothing tells, or a change within this tick of the clock could not be told.
    """
    if workspace.server:
        return None
    file, now = workspace.lines_file or workspace.store_file, time.time_ns()
    marks = (mark_of(file), mark_of(f"{file}-wal"))
    return marks if all(is_settled(mark, now) for mark in marks) else None


class _Shelf:
    """What was put in order before."""

    def __init__(self) -> None:
        self._parts: dict[str, _Part] = {}
        self._items: dict[tuple[str, ...], tuple[Items, tuple[Mark, ...] | None]] = {}
        self._lock = Lock()

    def items(self, world: World, names: tuple[str, ...], stamp: tuple[Mark, ...] | None) -> Items:
        """As of `stamp`, or of now."""
        kept, before = self._items.get(names, (None, None))
        if kept is not None and stamp is not None and stamp == before:
            return kept
        parts = tuple(part for name in names for part in self._part(world, name))
        whole = all(part.whole for part in parts)
        made = kept if kept is not None and _are_the(kept.parts, parts) else Items(parts)
        with self._lock:
            self._items.pop(names, None)
            self._items[names] = (made, stamp if whole else None)
            while len(self._items) > _MOST:
                del self._items[next(iter(self._items))]
        return made

    def _part(self, world: World, name: str) -> Iterator[_Part]:
        try:
            made = generations_of(world, name)
        except KfmError:
            return  # no name of a dataset, or a channel that has to be mended first
        kept = self._parts.get(name)
        if kept is None or kept.made is not made or not kept.whole:
            kept = _part(world, made, {row.version_id: row for row in kept.rows} if kept else {})
            self._parts[name] = kept
        yield kept


def _are_the(some: Sequence[object], others: Sequence[object]) -> bool:
    return len(some) == len(others) and all(a is b for a, b in zip(some, others))


def _part(world: World, made: Sequence[Generation], known: dict[str, Row]) -> _Part:
    numbers: dict[str, list[Generation]] = {}
    for each in reversed(made):
        if each.version_id is not None:
            numbers.setdefault(each.version_id, []).append(each)
    rows, whole = list[Row](), True
    for version_id, named in numbers.items():
        generations = tuple(each.generation for each in named)
        row = known.get(version_id)
        if row is None or row.generations != generations:
            try:
                row = _row(world, named[0], generations)
            except (KfmError, OSError, ValueError, msgspec.DecodeError):
                whole = False  # it is looked at again the next time
                continue
        if row is not None:
            rows.append(row)
    return _Part(made, tuple(rows), whole)


def _row(world: World, made: Generation, generations: tuple[int, ...]) -> Row | None:
    said = place_of(world, made.dataset_id, str(made.version_id))
    if said.bbox is None:
        return None
    first, last = said.interval or (None, None)
    if first is None or last is None:
        at = appended_at(world, made)
        first, last = (at, at) if at else ANY_TIME
    times = (microseconds(moment(first)), microseconds(moment(last)))
    return Row(made.dataset_id, str(made.version_id), generations, said.bbox, *times)


def microseconds(at: dt.datetime) -> int:
    return (at - _EPOCH) // _MICROSECOND


def _text(at: int) -> str:
    return rfc3339(_EPOCH + at * _MICROSECOND)
