"""Where and when every version is, in memory: which items a search may mean is found here, and each
that is shown or counted is decided by the door, in the request that asks. What is here lets nobody
see anything.

Of a dataset with many versions it is also kept in a file, so that a reader that begins does not read
them all again. The file says of which head it is and counts for that head alone; whatever is wrong
with it, it is made again.
"""

import bisect
import datetime as dt
from collections.abc import Iterator, Sequence
from functools import cached_property
from threading import Lock
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from kfm.access.history import generations_of, head_of
from kfm.access.memory import Watched
from kfm.access.places import keep_places, kept_places, place_of
from kfm.catalog.base import geometry
from kfm.catalog.stac import ANY_TIME
from kfm.data.libraries import library
from kfm.evidence.append_times import appended_at
from kfm.model import Generation, Json, KfmError, LedgerRow, rfc3339
from kfm.reader.stac_items import moment
from kfm.world.world import World

if TYPE_CHECKING:
    from numpy import ndarray as Mask

__all__ = ["After", "Box", "Items", "Row", "items_of", "microseconds"]

_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_MICROSECOND = dt.timedelta(microseconds=1)
_MOST = 32  # sets of datasets that are kept in order
_WORTH = 16  # versions of which a file saves more than it costs
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
    """The versions of one dataset, as of a head."""

    head: Generation
    rows: tuple[Row, ...]
    whole: bool  # whether every version could be read
    loose: frozenset[str] = frozenset()  # versions of which the time will be known better

    @property
    def lasts(self) -> bool:
        return self.whole and not self.loose


class _Saved(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the file of a dataset says; before it stands its own digest."""

    dataset_id: str
    generation: int  # the head that it is of
    file_digest: str
    epoch: int  # of the store that knew when each was appended
    rows: tuple[Row, ...]

    def is_of(self, made: Generation) -> bool:
        return (self.generation, self.file_digest) == (made.generation, made.file_digest)


class Items:
    """The versions of some datasets, the latest first."""

    def __init__(self, parts: Sequence[_Part]) -> None:
        np = library("numpy", "looks for places")
        self.parts = tuple(parts)
        self.rows = [row for part in parts for row in part.rows]
        self.rows.sort(key=_order)
        boxes = np.array([row.bbox for row in self.rows], dtype="float64").reshape(-1, 4)
        west, south, east, north = np.ascontiguousarray(boxes.T)
        self._west, self._south, self._east, self._north = west, south, east, north
        self._crossing = west > east  # the antimeridian
        self.first = np.array([row.first for row in self.rows], dtype="int64")
        self.last = np.array([row.last for row in self.rows], dtype="int64")

    @cached_property
    def _by_id(self) -> dict[str, list[int]]:
        found = dict[str, list[int]]()
        for at, row in enumerate(self.rows):
            found.setdefault(row.version_id, []).append(at)
        return found

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


def items_of(world: World, names: Sequence[str]) -> Items:
    """The versions of these datasets as they are now, whoever may see them."""
    shelf = world.memory.once("items", _Shelf) if isinstance(world, Watched) else _Shelf()
    # every generation is written into the store soon after it was made
    return shelf.items(world, tuple(dict.fromkeys(names)), world.store.changes())


class _Shelf:
    """What was put in order before."""

    def __init__(self) -> None:
        self._parts: dict[str, _Part] = {}
        self._items: dict[tuple[str, ...], tuple[Items, int | None]] = {}
        self._lock = Lock()

    def items(self, world: World, names: tuple[str, ...], stamp: int | None) -> Items:
        """As of a count of the store's changes, or of now."""
        kept, before = self._items.get(names, (None, None))
        if kept is not None and stamp is not None and stamp == before:
            return kept
        parts = tuple(part for name in names for part in self._part(world, name))
        lasts = all(part.lasts for part in parts)
        made = kept if kept is not None and _are_the(kept.parts, parts) else Items(parts)
        with self._lock:
            self._items.pop(names, None)
            self._items[names] = (made, stamp if lasts else None)
            while len(self._items) > _MOST:
                del self._items[next(iter(self._items))]
        return made

    def _part(self, world: World, name: str) -> Iterator[_Part]:
        try:
            head = head_of(world, name)
        except KfmError:
            return  # no name of a dataset, or a channel that has to be mended first
        kept = self._parts.get(name)
        if kept is None or kept.head.file_digest != head.file_digest or not kept.lasts:
            kept = self._parts[name] = _found(world, head, kept)
        yield kept


def _are_the(some: Sequence[object], others: Sequence[object]) -> bool:
    return len(some) == len(others) and all(a is b for a, b in zip(some, others))


def _found(world: World, head: Generation, before: _Part | None) -> _Part:
    saved = _saved(world, head.dataset_id) if before is None else None
    if saved is not None and saved.is_of(head):
        return _Part(head, saved.rows, whole=True)
    made = generations_of(world, head.dataset_id)
    rows: Sequence[Row] = ()
    if before is not None:
        rows = [row for row in before.rows if row.version_id not in before.loose]
    if saved is not None and any(saved.is_of(each) for each in made):  # what was there before
        rows = saved.rows
    part = _part(world, made, {row.version_id: row for row in rows}) if made else None
    if part is None:
        return _Part(head, (), whole=True)
    _save(world, part)
    return part


def _saved(world: World, dataset_id: str) -> _Saved | None:
    """What was kept, whole and by this store; None: there is nothing of the kind."""
    body = kept_places(world, dataset_id)
    if body is None:
        return None
    try:
        saved = msgspec.json.decode(body, type=_Saved)
    except ValueError:  # of another kfm
        return None
    return saved if (saved.dataset_id, saved.epoch) == (dataset_id, world.store.epoch) else None


def _save(world: World, part: _Part) -> None:
    head = part.head
    if not part.lasts or len(part.rows) < _WORTH:
        return
    saved = _Saved(
        dataset_id=head.dataset_id,
        generation=head.generation,
        file_digest=head.file_digest,
        epoch=world.store.epoch,
        rows=part.rows,
    )
    keep_places(world, head.dataset_id, msgspec.json.encode(saved))


def _part(world: World, made: Sequence[Generation], known: dict[str, Row]) -> _Part:
    numbers: dict[str, list[Generation]] = {}
    for each in reversed(made):
        if each.version_id is not None:
            numbers.setdefault(each.version_id, []).append(each)
    rows, whole, loose = list[Row](), True, set[str]()
    for version_id, named in numbers.items():
        generations = tuple(each.generation for each in named)
        row = known.get(version_id)
        if row is None or row.generations != generations:
            try:
                row, lasts = _row(world, named[0], generations)
                loose |= set() if lasts else {version_id}
            except (KfmError, OSError, ValueError, msgspec.DecodeError):
                whole = False  # it is looked at again the next time
                continue
        if row is not None:
            rows.append(row)
    rows.sort(key=_order)  # what is in order already is soon put in order with others
    return _Part(made[-1], tuple(rows), whole, frozenset(loose))


def _row(world: World, made: Generation, generations: tuple[int, ...]) -> tuple[Row | None, bool]:
    """A version, and whether nothing of it will be known better later."""
    said = place_of(world, made.dataset_id, str(made.version_id))
    if said.bbox is None:
        return None, True
    first, last = said.interval or (None, None)
    lasts = True
    if first is None or last is None:
        at = appended_at(world, made)
        lasts = at is not None and _has_ended(world, made)
        first, last = (at, at) if at else ANY_TIME
    times = (microseconds(moment(first)), microseconds(moment(last)))
    return Row(made.dataset_id, str(made.version_id), generations, said.bbox, *times), lasts


def _has_ended(world: World, made: Generation) -> bool:
    row: LedgerRow | None = world.store.read(lambda tx: tx.runs.get(made.run_id))
    return row is None or row.ended_at is not None


def microseconds(at: dt.datetime) -> int:
    return (at - _EPOCH) // _MICROSECOND


def _text(at: int) -> str:
    return rfc3339(_EPOCH + at * _MICROSECOND)
