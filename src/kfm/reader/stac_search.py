"""Which items are meant: by place, time, name, and questions in CQL2; in which order, with which
members, by the page.
"""

import datetime as dt
import functools
import operator
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec

from kfm.model import Json
from kfm.reader import cql2
from kfm.reader.door import BadQuestion
from kfm.reader.stac_items import times_of

__all__ = ["Search", "matching", "read_get", "read_post", "trimmed"]

MOST = 1000
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
    token: int = 0


def read_get(given: dict[str, str | None]) -> Search:
    """A search as an address says it. Raises `BadQuestion`."""
    said: dict[str, object] = {}
    for name in ("collections", "ids"):
        said[name] = [v for v in (given.get(name) or "").split(",") if v]
    if given.get("bbox"):
        said["bbox"] = [_number(v) for v in str(given["bbox"]).split(",")]
    if given.get("intersects"):
        said["intersects"] = _object(str(given["intersects"]), "intersects")
    if given.get("filter"):
        text = str(given["filter"])
        is_json = (given.get("filter_lang") or "cql2-text") == "cql2-json"
        said["filter"] = _object(text, "filter") if is_json else text
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
    for name in ("datetime", "limit", "token"):
        if given.get(name):
            said[name] = given[name]
    return read_post(said)


def read_post(said: Json) -> Search:
    """The same, as a body says it. Raises `BadQuestion`."""
    fields = said.get("fields") or {}
    if not isinstance(fields, dict):
        raise BadQuestion("fields has `include` and `exclude`.", "fields")
    if said.get("bbox") and said.get("intersects"):
        raise BadQuestion("bbox and intersects exclude each other.", "intersects")
    asked = said.get("filter")
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
        token=_whole(said.get("token", 0), "token", 0),
    )


def matching(found: Iterable[Json], search: Search) -> list[Json]:
    """Those that fit, in the order that is asked for; the newest first, else."""
    kept = [each for each in found if _fits(each, search)]
    kept.sort(key=lambda i: str(i["id"]))
    kept.sort(key=lambda i: times_of(i["properties"])[1], reverse=True)
    for name, last in reversed(search.sortby):
        kept.sort(key=functools.partial(_rank, name), reverse=last)
    return kept


def trimmed(item: Json, search: Search) -> Json:
    """An item with the members that are asked for."""
    if not search.include and not search.exclude:
        return item
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
def _fits(item: Json, search: Search) -> bool:
    if search.ids and item["id"] not in search.ids:
        return False
    if search.bbox and not _meets(item, _ring(search.bbox)):
        return False
    if search.intersects is not None and not _meets(item, search.intersects):
        return False
    if search.datetime is not None and not _within(item["properties"], search.datetime):
        return False
    return search.filter is None or _holds(item, search.filter)


def _within(properties: Json, asked: tuple[dt.datetime | None, dt.datetime | None]) -> bool:
    first, last = times_of(properties)
    return (asked[1] is None or first <= asked[1]) and (asked[0] is None or last >= asked[0])


def _meets(item: Json, geometry: Json) -> bool:
    import shapely

    return bool(shapely.intersects(_shapely(item["geometry"]), _shapely(geometry)))


def _shapely(geometry: Json) -> object:
    import shapely

    try:
        return shapely.from_geojson(msgspec.json.encode(geometry))
    except (shapely.errors.ShapelyError, ValueError, TypeError) as error:
        raise BadQuestion("This is no geometry.", "intersects") from error


def _ring(box: Sequence[float]) -> Json:
    from kfm.catalog.base import geometry

    west, south, *rest = box if len(box) == 4 else (box[0], box[1], box[3], box[4])
    return geometry((west, south, rest[0], rest[1]))


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
        pattern = re.escape(str(said.values[0])).replace("%", ".*").replace("_", ".")
        return isinstance(value, str) and re.fullmatch(pattern, value, re.DOTALL) is not None
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
    found = said.get(name) or ()
    if not isinstance(found, list | tuple) or not all(isinstance(v, str) for v in found):
        raise BadQuestion(f"{name} is a list of texts.", name)
    return tuple(found[:1000])


def _number(text: object) -> float:
    try:
        found = float(str(text))
    except ValueError as error:
        raise BadQuestion("A bbox has numbers.", "bbox") from error
    if abs(found) > 1e9 or found != found:
        raise BadQuestion("A bbox has numbers.", "bbox")
    return found


def _box(said: object) -> tuple[float, ...]:
    if said is None or said == []:
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
    return tuple((v["field"], v.get("direction", "asc") == "desc") for v in said[:8])


def _read(said: object) -> cql2.Question | None:
    return None if said is None else cql2.read_json(said)


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
