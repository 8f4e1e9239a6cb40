"""Which items are meant: by place, time, name, and questions in CQL2; in which order, with which
members, by the page.
"""

import bisect
import datetime as dt
import functools
import operator
import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any, NamedTuple, cast

import msgspec

from kfm.catalog.base import geometry
from kfm.model import Json
from kfm.reader import cql2
from kfm.reader.door import LEFT_OUT, Asking, BadQuestion
from kfm.reader.kinds import CRS84
from kfm.reader.stac_index import After, Box, Items, Row, items_of, microseconds
from kfm.reader.stac_items import item_of, times_of

__all__ = ["Found", "Search", "read_get", "read_post", "searched", "trimmed"]

MOST, _MEMBERS = 1000, 8
_ENOUGH = 4.0  # seconds: then a page ends with what it has, and the rest comes with the next
_SOME = 64
_COUNTED = 100  # up to so many are counted: each is decided for that
_LIGHT = {"id", "collection", "datetime", "version"}
_LIGHT |= {f"properties.{name}" for name in _LIGHT}
_TOKEN = re.compile(r"(-?[0-9]{1,18})~([A-Za-z0-9]{1,80})~([a-z0-9_]{1,200})")
_OPS: dict[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq, "<>": operator.ne, "<": operator.lt,
    ">": operator.gt, "<=": operator.le, ">=": operator.ge,
}  # fmt: skip
_ALWAYS = ("type", "stac_version", "id", "collection", "links", "geometry", "bbox", "assets")


class Search(msgspec.Struct, frozen=True, kw_only=True):
    """What is searched for."""

    collections: tuple[str, ...] = ()
    ids: tuple[str, ...] = ()
    bbox: tuple[float, ...] = ()
    intersects: Json | None = None
    datetime: tuple[dt.datetime | None, dt.datetime | None] | None = None
    filter: cql2.Question | None = None
    sortby: tuple[tuple[str, bool], ...] = ()  # a member, and whether the greatest come first
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    limit: int = 10
    token: int = 0  # how many come before, in an order that was asked for
    after: After | None = None  # where the page before ended, else


def read_get(given: dict[str, str | None]) -> Search:
    """A search as an address says it. Raises `BadQuestion`."""
    said: dict[str, object] = {}
    for name in ("collections", "ids"):
        said[name] = [v for v in (given.get(name) or "").split(",") if v]
    if given.get("bbox"):
        said["bbox"] = [_number(v) for v in str(given["bbox"]).split(",")]
    if given.get("intersects"):
        said["intersects"] = _object(str(given["intersects"]), "intersects")
    said["filter-lang"] = given.get("filter_lang") or "cql2-text"
    if given.get("filter"):
        text = str(given["filter"])
        said["filter"] = _object(text, "filter") if said["filter-lang"] == "cql2-json" else text
    if given.get("sortby"):
        said["sortby"] = [
            {"field": v.lstrip("+- "), "direction": "desc" if v.startswith("-") else "asc"}
            for v in str(given["sortby"]).split(",")
        ]
    if given.get("fields"):
        names = str(given["fields"]).split(",")
        said["fields"] = {
            "include": [n.lstrip("+ ") for n in names if not n.startswith("-")],
            "exclude": [n[1:] for n in names if n.startswith("-")],
        }
    for name in ("datetime", "limit", "token", "filter-crs"):
        if value := given.get(name.replace("-", "_")):
            said[name] = value
    return read_post(said)


def read_post(said: Json) -> Search:
    """The same, as a body says it. Raises `BadQuestion`."""
    said = {name: each for name, each in said.items() if each is not None}
    fields = said.get("fields", {})
    if not isinstance(fields, dict):
        raise BadQuestion("fields has `include` and `exclude`.", "fields")
    fields = {name: each for name, each in fields.items() if each is not None}
    if said.get("bbox") and said.get("intersects"):
        raise BadQuestion("bbox and intersects exclude each other.", "intersects")
    asked = said.get("filter")
    if said.get("filter-lang", "cql2-json") not in ("cql2-text", "cql2-json"):
        raise BadQuestion("filter-lang is cql2-text or cql2-json.", "filter-lang")
    if said.get("filter-crs", CRS84) != CRS84:
        raise BadQuestion(f"filter-crs is {CRS84} alone.", "filter-crs")
    return Search(
        collections=_texts(said, "collections"),
        ids=_texts(said, "ids"),
        bbox=_box(said.get("bbox")),
        intersects=_shape(said.get("intersects")),
        datetime=_times(said.get("datetime")),
        filter=cql2.parsed(asked) if isinstance(asked, str) else _read(asked),
        sortby=_order(said.get("sortby")),
        include=_texts(fields, "include"),
        exclude=_texts(fields, "exclude"),
        limit=min(MOST, _whole(said.get("limit", 10), "limit", 1)),
        **_token(said.get("token", 0)),
    )


class Found(NamedTuple):
    """A page of a search."""

    items: list[msgspec.Raw | Json]
    matched: int | None  # None: so many may fit that nobody counted those that may be seen
    next: str | None  # the token of the next page


def searched(asking: Asking, search: Search) -> Found:
    """The items that fit and may be seen, in the order that is asked for; the latest first, else.
    Raises `BadQuestion`.
    """
    names: Sequence[str] = asking.workspace.registered()
    if search.collections:
        there = {*names}
        names = [name for name in search.collections if name in there]
    items = items_of(asking.world, names)
    looked = _Looked(asking, items, search)
    if search.collections:
        asking.is_at_beat = not looked.knows_all(search.collections, names)
    # the members that a filter and an order speak of
    members = {*_members(search.filter), *(name for name, _ in search.sortby)}
    if members <= _LIGHT:
        return looked.in_order(_ordered(items, _candidates(items, search), search))
    return looked.all_of(_candidates(items, search))


class _Looked:
    """One search: what may be seen of what was looked at, each looked at once, as long as there is
    time.
    """

    def __init__(self, asking: Asking, items: Items, search: Search) -> None:
        self._asking, self._items, self._search = asking, items, search
        began = time.monotonic()
        self._enough = began + _ENOUGH
        asking.limit_time()
        self._known: dict[str, bool] = {}
        self._generations: dict[int, int | None] = {}
        self._shape = _shapely(search.intersects) if search.intersects is not None else None

    def knows_all(self, asked: Sequence[str], there: Sequence[str]) -> bool:
        """Whether each dataset that is asked for is there, and may be seen."""
        self._known |= {name: self._may_know(name) for name in there}
        return len(there) == len(asked) and all(self._known.values())

    def in_order(self, positions: Sequence[int]) -> Found:
        """A page, and no more decisions than it takes. What nobody asked for before is decided from
        its signed records: a page that would take too long ends sooner, behind what may be seen.
        """
        search, rows = self._search, self._items.rows
        begin, skip = 0, search.token
        if search.after is not None and not search.sortby:
            begin = bisect.bisect_left(positions, self._items.behind(search.after))
        page, told, more, short = list[int](), list[msgspec.Raw](), False, False
        for at in _each(positions, begin):
            short = bool(page) and time.monotonic() > self._enough
            if short:
                break
            if self._seen(at) is None:
                continue
            if skip:
                skip -= 1
                continue
            more = len(page) == search.limit
            if more:
                break
            page.append(at)
            if (item := self._item(at)) is not None:
                told.append(item)
        matched = None
        if not short and (len(positions) <= _COUNTED or not (more or begin or search.token)):
            matched = self._matched(positions)
        following = None
        if (more or short) and not search.sortby:
            last = rows[page[-1]]
            following = f"{last.last}~{last.version_id}~{last.dataset_id}"
        elif more or short:
            following = str(search.token + len(page))
        return Found([trimmed(item, search) for item in told], matched, following)

    def _matched(self, positions: Sequence[int]) -> int | None:
        """How many may be seen; None: there is no time to decide about each."""
        count = 0
        for at in _each(positions):
            if at not in self._generations and time.monotonic() > self._enough:
                return None
            count += self._seen(at) is not None
        return count

    def all_of(self, positions: Sequence[int]) -> Found:
        """A page of what can be put in order, or told to fit, by the items alone."""
        search, kept = self._search, list[Json]()
        for at in _each(positions):
            if self._seen(at) is not None and (item := self._item(at)) is not None:
                found = msgspec.json.decode(item)
                if search.filter is None or _holds(found, search.filter):
                    kept.append(found)
        for name, last in reversed(search.sortby):
            kept.sort(key=functools.partial(_rank, name), reverse=last)
        end = search.token + search.limit
        page = [trimmed(each, search) for each in kept[search.token : end]]
        return Found(page, len(kept), str(end) if end < len(kept) else None)

    def _seen(self, at: int) -> int | None:
        """The generation by which an item may be seen; None: by none, or it does not fit."""
        if at not in self._generations:
            self._asking.check_time()
            self._generations[at] = self._decided(self._items.rows[at])
        return self._generations[at]

    def _decided(self, row: Row) -> int | None:
        if row.dataset_id not in self._known:
            self._known[row.dataset_id] = self._may_know(row.dataset_id)
        # how long it takes to tell whether it fits tells nobody of what is hidden
        if not self._known[row.dataset_id] or not self._fits(row):
            return None
        for number in row.generations:
            if self._may_know(f"{row.dataset_id}@{number}"):
                return number
        return None

    def _fits(self, row: Row) -> bool:
        """As far as that can be told without the item itself."""
        if self._shape is not None and not _touch(row, self._shape):
            return False
        asked = self._search.filter
        light = asked is not None and set(_members(asked)) <= _LIGHT
        return not light or asked is None or _holds(row.light, asked)

    def _may_know(self, text: str) -> bool:
        with suppress(*LEFT_OUT):
            self._asking.known(text)
            return True
        return False

    def _item(self, at: int) -> msgspec.Raw | None:
        """None: a label was tightened since it was decided, in this very question."""
        with suppress(*LEFT_OUT):
            number = self._generations[at] or 0
            return item_of(self._asking, self._items.rows[at].dataset_id, number)
        self._generations[at] = None
        return None


def _candidates(items: Items, search: Search) -> Sequence[int]:
    """Where those stand that fit by place, time and name, the latest first."""
    found = items.everything()
    if search.ids:
        found &= items.named(search.ids)
    if search.bbox:
        found &= items.within(_flat(search.bbox))
    if search.datetime is not None:
        first, last = (None if at is None else microseconds(at) for at in search.datetime)
        found &= items.during(first, last)
    if search.intersects is not None:
        found &= items.within(_bounds(search.intersects))
    return cast(Sequence[int], found.nonzero()[0])


def _each(positions: Sequence[int], begin: int = 0) -> Iterator[int]:
    """Those from `begin` on, some at a time: a page needs few of many."""
    for at in range(begin, len(positions), _SOME):
        yield from map(int, positions[at : at + _SOME])


def _touch(row: Row, shape: object) -> bool:
    import shapely

    return bool(shapely.intersects(_shapely(geometry(row.bbox)), shape))


def _ordered(items: Items, positions: Sequence[int], search: Search) -> Sequence[int]:
    by: dict[str, Callable[[int], object]] = {
        "datetime": lambda at: items.rows[at].first,
        "collection": lambda at: items.rows[at].dataset_id,
    }
    found = list(_each(positions)) if search.sortby else positions
    for name, last in reversed(search.sortby):
        bare = name.removeprefix("properties.")
        rank: Callable[[int], Any] = by.get(bare, lambda at: items.rows[at].version_id)
        found = sorted(found, key=rank, reverse=last)
    return found


def _members(said: cql2.Question | None) -> Iterator[str]:
    """The members of items that a question speaks of."""
    match said:
        case cql2.Both(parts=parts):
            for part in parts:
                yield from _members(part)
        case cql2.Nothing(name=name) | cql2.Compared(name=name):
            yield name


def trimmed(item: msgspec.Raw | Json, search: Search) -> msgspec.Raw | Json:
    """An item with the members that are asked for."""
    if not search.include and not search.exclude:
        return item
    if isinstance(item, msgspec.Raw):
        item = msgspec.json.decode(item, type=dict[str, Any])
    kept: Json = {}
    for name in search.include or tuple(item):
        _copy(item, kept, name.split("."))
    for name in ("type", "stac_version", "id", "collection", "links"):  # else it is no item
        kept.setdefault(name, item[name])
    for name in search.exclude:
        if name not in ("type", "id"):
            _drop(kept, name.split("."))
    return kept


# ---- does it fit ---------------------------------------------------------------------------------
def _meets(item: Json, geometry: Json) -> bool:
    import shapely

    return bool(shapely.intersects(_shapely(item["geometry"]), _shapely(geometry)))


def _shapely(geometry: Json) -> object:
    import shapely

    try:
        return shapely.from_geojson(msgspec.json.encode(geometry))
    except (shapely.errors.ShapelyError, ValueError, TypeError) as error:
        raise BadQuestion("This is no geometry.", "intersects") from error


def _bounds(geometry: Json) -> Box:
    """The box around a shape; of an empty one none that holds anything."""
    import shapely

    west, south, east, north = map(float, shapely.bounds(_shapely(geometry)))
    return west, south, east, north


def _flat(box: Sequence[float]) -> Box:
    """A box without heights."""
    west, south, east, north = box if len(box) == 4 else (box[0], box[1], box[3], box[4])
    return west, south, east, north


def _holds(item: Json, said: cql2.Question) -> bool:
    match said:
        case cql2.Both(op="and", parts=parts):
            return all(_holds(item, part) for part in parts)
        case cql2.Both(op="or", parts=parts):
            return any(_holds(item, part) for part in parts)
        case cql2.Both(parts=parts):
            return not _holds(item, parts[0])
        case cql2.Nothing(name=name):
            return _member(item, name) is None
        case cql2.Intersects(geometry=geometry):
            return _meets(item, geometry)
        case cql2.Compared():
            return _compared(_member(item, said.name), said)


def _compared(value: object, said: cql2.Compared) -> bool:
    if value is None:
        return False
    if said.op == "like":
        return isinstance(value, str) and cql2.like(str(said.values[0]))(value)
    others = [_alike(value, other) for other in said.values]
    if said.op == "between":
        return all(o is not None for o in others) and others[0] <= value <= others[1]  # type: ignore[operator]
    if said.op == "in":
        return any(o is not None and o == value for o in others)
    other = others[0]
    return (said.op == "<>") if other is None else _OPS[said.op](value, other)


def _alike(value: object, other: object) -> object:
    """The other in the kind of the one; None: they cannot be compared."""
    if isinstance(value, dt.datetime):
        if isinstance(other, dt.datetime):
            return other
        if isinstance(other, dt.date):
            return dt.datetime(other.year, other.month, other.day, tzinfo=dt.UTC)
        return _moment_or_none(other)
    if isinstance(value, bool) or isinstance(other, bool):
        return other if type(value) is type(other) else None
    if isinstance(value, int | float):
        return other if isinstance(other, int | float) else None
    return other if isinstance(value, str) and isinstance(other, str) else None


def _moment_or_none(other: object) -> dt.datetime | None:
    try:
        found = dt.datetime.fromisoformat(str(other))
    except ValueError:
        return None
    return found if found.tzinfo else found.replace(tzinfo=dt.UTC)


def _member(item: Json, name: str) -> object:
    """A property, or a member of the item itself; times as times."""
    name = name.removeprefix("properties.")
    if name == "datetime":
        return times_of(item["properties"])[0]
    found = item["properties"].get(name, item.get(name) if name in ("id", "collection") else None)
    if name in ("created", "start_datetime", "end_datetime"):
        return _moment_or_none(found)
    return found


def _rank(name: str, item: Json) -> tuple[int, str, object]:
    """Where an item stands by a member; those that lack it come first."""
    found = _member(item, name)
    if isinstance(found, str | int | float | dt.datetime):
        kind = "number" if isinstance(found, int | float) else type(found).__name__
        return 1, kind, found
    return 0, "", 0


# ---- reading -------------------------------------------------------------------------------------
def _texts(said: Json, name: str) -> tuple[str, ...]:
    found = said.get(name, ())
    if not isinstance(found, list | tuple) or not all(isinstance(v, str) for v in found):
        raise BadQuestion(f"{name} is a list of texts.", name)
    if len(found) > MOST:
        raise BadQuestion(f"{name} has {len(found)} texts, at most {MOST} can be asked.", name)
    return tuple(found)


def _number(text: object) -> float:
    try:
        found = float(str(text))
    except ValueError as error:
        raise BadQuestion("A bbox has numbers.", "bbox") from error
    if abs(found) > 1e9 or found != found:
        raise BadQuestion("A bbox has numbers.", "bbox")
    return found


def _box(said: object) -> tuple[float, ...]:
    if said is None:
        return ()
    if not isinstance(said, list | tuple) or len(said) not in (4, 6):
        raise BadQuestion("A bbox has four or six numbers.", "bbox")
    found = tuple(map(_number, said))
    south, north = (found[1], found[3]) if len(found) == 4 else (found[1], found[4])
    if south > north:
        raise BadQuestion("The south of a bbox lies south of its north.", "bbox")
    return found


def _shape(said: object) -> Json | None:
    if said is None:
        return None
    if not isinstance(said, dict) or _shapely(said) is None:
        raise BadQuestion("This is no geometry.", "intersects")
    return said


def _times(said: object) -> tuple[dt.datetime | None, dt.datetime | None] | None:
    if said is None:
        return None
    if not isinstance(said, str):
        raise BadQuestion("datetime is a text.", "datetime")
    first, divided, last = said.partition("/")
    found = (_time(first), _time(last) if divided else _time(first))
    if found == (None, None) or (found[0] and found[1] and found[0] > found[1]):
        raise BadQuestion(f"{said[:60]!r} is no span of time.", "datetime")
    return found


_RFC3339 = re.compile(r"\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(?:\.\d+)?(?:[Zz]|[+-]\d\d:\d\d)")


def _time(text: str) -> dt.datetime | None:
    if text in ("", ".."):
        return None
    found = _moment_or_none(text.upper()) if _RFC3339.fullmatch(text) else None
    if found is None:
        raise BadQuestion(f"{text[:60]!r} is no time of RFC 3339.", "datetime")
    return found


def _order(said: object) -> tuple[tuple[str, bool], ...]:
    if said is None:
        return ()
    if not isinstance(said, list) or not all(
        isinstance(v, dict) and isinstance(v.get("field"), str) for v in said
    ):
        raise BadQuestion("sortby is a list of fields and directions.", "sortby")
    if not all(v.get("direction", "asc") in ("asc", "desc") for v in said):
        raise BadQuestion("The direction of sortby is asc or desc.", "sortby")
    if len(said) > _MEMBERS:
        raise BadQuestion(f"sortby has {len(said)} fields, it has at most {_MEMBERS}.", "sortby")
    return tuple((v["field"], v.get("direction", "asc") == "desc") for v in said)


def _read(said: object) -> cql2.Question | None:
    return None if said is None else cql2.read_json(said)


def _token(said: object) -> dict[str, Any]:
    if isinstance(said, str) and (found := _TOKEN.fullmatch(said)):
        return {"after": After(int(found[1]), found[2], found[3])}
    return {"token": _whole(said, "token", 0)}


def _whole(said: object, name: str, least: int) -> int:
    if isinstance(said, str) and re.fullmatch("[0-9]{1,9}", said):
        said = int(said)
    if not isinstance(said, int) or isinstance(said, bool) or not least <= said < 10**9:
        raise BadQuestion(f"{name} is a whole number from {least} on.", name)
    return said


def _object(text: str, name: str) -> object:
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError as error:
        raise BadQuestion(f"{name} is no JSON.", name) from error


def _copy(item: Json, into: Json, path: Sequence[str]) -> None:
    head, *rest = path
    if head not in item:
        return
    if rest and isinstance(item[head], dict):
        _copy(item[head], into.setdefault(head, {}), rest)
    elif not rest:
        into[head] = item[head]


def _drop(item: Json, path: Sequence[str]) -> None:
    head, *rest = path
    if not rest:
        item.pop(head, None)
    elif isinstance(item.get(head), dict):
        item[head] = dict(item[head])
        _drop(item[head], rest)
