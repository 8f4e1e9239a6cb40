"""USGS Water Data OGC API: walks the pages of one collection, and makes observations, sites or code
tables of them.
"""

import datetime as dt
import hashlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import parse_qs, urlencode, urlsplit

import msgspec

from kfm.connectors.base import InputFile, Refused
from kfm.connectors.kind import Ask, near, options_of, utc
from kfm.connectors.operations import Read
from kfm.connectors.read.geojson import GeoJsonReader
from kfm.connectors.read.records import Records
from kfm.connectors.read.rows import Batch, Loose, Row, batch_of
from kfm.connectors.table.sanity import Sane
from kfm.model import KINDS, Column

__all__ = ["COLUMNS", "KEY", "KIND", "SANITY", "Options", "acquire", "columns", "key", "readers"]

KIND = KINDS["usgs_ogc"]


class Options(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the registry may say of a source of this kind."""

    # None: the one named in the address
    collection: Annotated[str, msgspec.Meta(pattern=r"^[a-z][a-z0-9-]*$")] | None = None
    # more than this is refused: the filter is too wide
    max_pages: Annotated[int, msgspec.Meta(ge=1, le=100_000)] = 1000


_DAILY, _CONTINUOUS, _SITES = (
    ("daily", "latest-daily"),
    ("continuous", "latest-continuous"),
    "monitoring-locations",
)
# collections a time range can be asked of; of others the whole is taken and compared
_WINDOWED = ("daily", "continuous")
_PAGE_BYTES = 64 << 20
_UNITS = {"ft^3/s": "ft3/s", "degC": "Cel"}
# whose unit is part of what they are
_PARAMETERS = {"00060": "ft3/s", "00065": "ft", "00010": "Cel"}
_TEXTS = ("monitoring_location_id", "time_series_id", "parameter_code", "statistic_id")
_OBSERVED = {
    *_TEXTS,
    "id",
    "time",
    "value",
    "unit_of_measure",
    "approval_status",
    "qualifier",
    "last_modified",
}


def _observations(time: Column) -> tuple[Column, ...]:
    """`status` is measured, estimated or missing: a true zero is measured, and a gap is null
    whatever its qualifier.
    """
    return (
        *(Column(name=name, type="string", nullable=name == "statistic_id") for name in _TEXTS),
        time,
        Column(name="value", type="number"),
        Column(name="unit", type="string"),
        Column(name="status", type="string", nullable=False),
        Column(name="estimated", type="boolean", nullable=False),
        Column(name="approval_status", type="string"),
        Column(name="qualifier", type="string"),
        Column(name="last_modified", type="timestamp"),
        Column(name="geometry", type="geometry"),
    )


# a day at the site is no moment in UTC
COLUMNS = _observations(Column(name="observed_on", type="date", nullable=False))
KEY = ("time_series_id", "observed_on")  # the ids of rows are not stable
_MOMENTS = _observations(Column(name="observed_at", type="timestamp", nullable=False))
_PLACES = (
    Column(name="monitoring_location_id", type="string", nullable=False),
    *(
        Column(name=name, type="string")
        for name in ("monitoring_location_number", "name", "agency_code", "agency_name")
    ),
    *(
        Column(name=name, type="string")
        for name in ("site_type_code", "site_type", "state_code", "state_name", "county_code")
    ),
    *(Column(name=name, type="string") for name in ("county_name", "hydrologic_unit_code")),
    Column(name="drainage_area", type="number", unit="mi2"),
    Column(name="contributing_drainage_area", type="number", unit="mi2"),
    Column(name="altitude", type="number", unit="ft"),
    *(Column(name=name, type="string") for name in ("vertical_datum", "original_horizontal_datum")),
    Column(name="geometry", type="geometry"),
)


REVISION = "last_modified"
# where there is no value
_FILLER = tuple(
    sign * n for n in (9999, 9999.9, 99999, 99999.9, 999999, 9999999) for sign in (1, -1)
)
SANITY = (
    Sane("observed_on", "1800-01-01", "+2d"),
    Sane("observed_at", "1980-01-01", "+1d"),  # before, nothing was sent more often than daily
    Sane("last_modified", "1990-01-01", "+1d"),
    Sane("value", sentinels=_FILLER),
    Sane("value", -1e6, 1e7, where=("unit", ("ft3/s",))),  # the tide turns some rivers
    Sane("value", -500, 30_000, where=("unit", ("ft",))),
    Sane("value", -95, 150, where=("unit", ("Cel",))),
    Sane("drainage_area", 0, 5e6),
    Sane("contributing_drainage_area", 0, 5e6),
    Sane("altitude", -1700, 30_000),
)


def columns(job: Read) -> tuple[Column, ...]:
    """The columns of the collection; none for code tables, whose properties are taken as they
    come.
    """
    name = _collection(job)
    return (
        COLUMNS
        if name in _DAILY
        else _MOMENTS
        if name in _CONTINUOUS
        else _PLACES
        if name == _SITES
        else ()
    )


def key(job: Read) -> tuple[str, ...]:
    """The business key that goes with them."""
    name = _collection(job)
    time = {"observed_on": _DAILY, "observed_at": _CONTINUOUS}
    keys = {c: ("time_series_id", column) for column, names in time.items() for c in names} | {
        _SITES: ("monitoring_location_id",)
    }
    return keys.get(name, ("id",))


def readers(job: Read) -> list[GeoJsonReader]:
    """One reader per captured page."""
    return [_Page(source, _collection(job)) for source in job.inputs]


def _collection(job: Read) -> str:
    """The option, or the name `acquire` gave the pages."""
    name = options_of(job.options, Options).collection or job.inputs[0].source_id.rpartition(".")[0]
    if not name:
        raise _refusal(
            "options",
            "Nothing says which collection these pages are from.",
            "`options.collection`, such as daily",
        )
    return name


def _refusal(code: str, happened: str, expected: str, **detail: Any) -> Refused:
    remedy = (
        "Look at the captured bytes and at the address in the registry entry; what is official"
        " stays."
    )
    return Refused(code, happened, expected=expected, remedy=remedy, **detail)


# -- asking


class _Link(msgspec.Struct):
    rel: str = ""
    href: str = ""


class _Item(msgspec.Struct, gc=False):
    id: str | int | None = None


class _Document(msgspec.Struct):
    """What paging needs to know of a page."""

    type: str = ""
    features: list[_Item] | None = None
    links: list[_Link] = []
    returned: int | None = msgspec.field(default=None, name="numberReturned")
    code: Any = None  # of an error
    description: Any = None


def acquire(ask: Ask) -> None:
    """Every page of every registered address."""
    options = options_of(ask.options, Options)
    name, count = _named(ask.urls, options), 0
    for first in ask.urls:
        seen: set[str] = set()  # addresses that were asked for, and what their pages held
        url: str | None = _windowed(first, name, ask.since, ask.until)
        while url is not None:
            count += 1
            if count > options.max_pages:
                wanted = (
                    "a filter that ends within `options.max_pages` (`limit` in the address makes"
                    " pages larger, up to 50,000 records)"
                )
                raise _refusal(
                    "page.budget", f"More than {options.max_pages} pages are offered.", wanted
                )
            page = _read(ask.get(url, f"{name}.{count:05d}", accept="application/geo+json"), url)
            _check_new(page, url, seen, may_repeat=ask.conflicts != "refuse")
            url = _next(page, url, seen)


def _check_new(page: _Document, url: str, seen: set[str], *, may_repeat: bool) -> None:
    held = hashlib.sha256(msgspec.json.encode(page.features)).hexdigest()
    if held in seen and not may_repeat and any(f.id is not None for f in page.features or ()):
        raise _refusal(
            "page.repeated",
            f"{url} holds the same records as an earlier page.",
            "new records on every page",
            url=url,
        )
    seen.update((url, held))


def _named(urls: tuple[str, ...], options: Options) -> str:
    """The collection: the option, or the one name in all addresses."""
    found = {
        path[path.index("collections") + 1]
        for path in (urlsplit(u).path.split("/") for u in urls)
        if "collections" in path[:-1]
    }
    if options.collection or len(found) == 1:
        return options.collection or found.pop()
    what = f"The addresses name {len(found)} collections ({', '.join(sorted(found)) or 'none'})."
    raise _refusal(
        "options",
        what,
        "addresses of one collection, .../collections/daily/items?…, or `options.collection`",
    )


def _windowed(url: str, name: str, since: str | None, until: str | None) -> str:
    """The address with the window, unless it says a time itself. Upstream counts both ends in, so
    the last day is the one before.
    """
    query = urlsplit(url).query
    if (
        name not in _WINDOWED
        or not (since or until)
        or {"time", "datetime"} & set(parse_qs(query, keep_blank_values=True))
    ):
        return url
    if name in _DAILY:
        since = since[:10] if since else None
        last = dt.datetime.fromisoformat(until) - dt.timedelta(microseconds=1) if until else None
        until = last.date().isoformat() if last else None
    span = urlencode({"time": f"{since or '..'}/{until or '..'}"}, safe="/:")
    return f"{url}{'&' if query else '?'}{span}"


def _read(path: Path, url: str) -> _Document:
    """The page, if it is one: an error message, a web page or half a page may come with status
    200.
    """
    size = path.stat().st_size
    data = path.read_bytes() if size <= _PAGE_BYTES else b""
    if not data:
        what = f"{url} answered {size} bytes; a page has at least one and at most {_PAGE_BYTES}."
        raise _refusal(
            "page.size",
            what,
            "one page of a collection (a smaller `limit` makes pages smaller)",
            url=url,
        )
    try:
        page = msgspec.json.decode(data, type=_Document)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        code = "html" if data.lstrip()[:1] == b"<" else "page.syntax"
        shown = data[:60].decode("utf-8", "replace")
        raise _refusal(
            code,
            f"{url} answered no GeoJSON page ({error}): {shown!r}.",
            "a FeatureCollection",
            url=url,
        ) from None
    if page.type != "FeatureCollection" or page.features is None:
        said = " ".join(str(x) for x in (page.code, page.description) if x) or data[:60].decode(
            "utf-8", "replace"
        )
        raise _refusal(
            "page.error",
            f"{url} answered with a message instead of records: {said[:300]}.",
            "a FeatureCollection",
            url=url,
        )
    _check_count(page.returned, len(page.features), url)
    return page


def _check_count(said: Any, held: int, where: str) -> None:
    if said is not None and said != held:
        raise _refusal(
            "page.count",
            f"{where} says it returns {said} records and holds {held}.",
            "the number of records it announces",
        )


def _next(page: _Document, url: str, seen: set[str]) -> str | None:
    href = next((link.href for link in page.links if link.rel == "next"), None)
    if href is None:
        return None
    target = near(url, href)
    if target is None:
        raise _refusal(
            "page.host",
            f"The next page of {url} is on another host, or nowhere: {href[:200]}.",
            "pages that stay there",
            url=url,
        )
    if target in seen:
        raise _refusal(
            "page.loop",
            f"{url} names {target} as its next page a second time.",
            "a new cursor on every page",
            url=url,
        )
    return target


# -- reading


class _Page(GeoJsonReader):
    """One page, read a block at a time."""

    def __init__(self, source: InputFile, collection: str) -> None:
        super().__init__(source, None)
        self._time = (
            "observed_on"
            if collection in _DAILY
            else "observed_at"
            if collection in _CONTINUOUS
            else ""
        )
        self._sites = collection == _SITES
        self._announced: Any = None
        self.stamp = ""  # when the page says it was made

    def loose(self) -> Iterator[list[Loose]]:
        """Features as rows; their number must be the one the page announces."""
        held = 0
        for rows in super().loose():
            held += len(rows)
            yield rows
        _check_count(self._announced, held, f"Source {self.source_id}")

    def batches(self, names: tuple[str, ...]) -> Iterator[Batch]:
        """The same as columns."""
        for rows in self.loose():
            yield batch_of(self.source_id, rows, names)

    def _finish(self, records: Records) -> None:
        self._announced = records.member("numberReturned")
        self.stamp = utc(records.member("timeStamp"))
        if records.members.get("type") != b'"FeatureCollection"':
            raise _refusal(
                "page.error",
                f"Source {self.source_id} is no FeatureCollection.",
                "a page of a collection",
            )
        super()._finish(records)

    def _row(self, item: Any, line: int, raw: Callable[[], str]) -> Loose:
        properties = (
            item.get("properties")
            if isinstance(item, dict) and item.get("type") == "Feature"
            else None
        )
        if not isinstance(properties, dict):
            return Loose(
                line,
                raw,
                None,
                ("geojson.feature", 'expected an object of type "Feature" with properties'),
            )
        place = {"geometry": item.get("geometry")}
        if self._sites:
            known = {c.name: properties.get(c.name) for c in _PLACES} | place
            return Loose(
                line,
                raw,
                known
                | {
                    "monitoring_location_id": item.get("id"),
                    "name": properties.get("monitoring_location_name"),
                },
            )
        if not self._time:
            return Loose(
                line,
                raw,
                {"id": item.get("id")}
                | properties
                | (place if place["geometry"] is not None else {}),
            )
        # not the same as null: a renamed property must not look like a gap
        if absent := {"time", "value"} - set(properties):
            return Loose(
                line,
                raw,
                None,
                ("ogc.property", f"the feature has no property {sorted(absent)[0]!r}"),
            )
        if more := sorted(set(properties) - _OBSERVED):
            self.warnings.add(
                f"The features of {self.source_id} also have the properties {', '.join(more)}; they"
                " are left out."
            )
        row = _observation(properties, self._time) | place
        due = _PARAMETERS.get(str(row["parameter_code"]))
        if due is not None and row["unit"] is not None and row["unit"] != due:
            reason = (
                f"parameter {row['parameter_code']} is in {due}, the feature says"
                f" {str(row['unit'])[:40]!r}"
            )
            return Loose(line, raw, None, ("unit.contradiction", reason), row)
        return Loose(line, raw, row)


def _observation(properties: Row, time: str) -> Row:
    value, qualifier = properties["value"], properties.get("qualifier")
    if isinstance(value, str) and not value.strip():
        value = None
    codes = (
        sorted(map(str, qualifier))
        if isinstance(qualifier, list)
        else [qualifier]
        if qualifier
        else []
    )
    estimated = value is not None and any(
        word.strip().upper() == "ESTIMATED" for code in codes for word in str(code).split(",")
    )
    return {
        name: properties.get(name) for name in (*_TEXTS, "approval_status", "last_modified")
    } | {
        time: properties["time"],
        "value": value,
        "unit": _UNITS.get(
            str(properties.get("unit_of_measure")), properties.get("unit_of_measure")
        ),
        "status": "missing" if value is None else "estimated" if estimated else "measured",
        "estimated": estimated,
        "qualifier": ",".join(map(str, codes)) or None,
    }
