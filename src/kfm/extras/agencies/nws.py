"""National Weather Service API: alerts, stations and observations; an alert without a shape of its
own gets that of its counties.
"""

import contextlib
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Literal, NoReturn

import msgspec
import numpy as np
import shapely
from shapely.geometry import mapping, shape
from shapely.geometry.base import BaseGeometry

from kfm.connectors.arrays import Floats
from kfm.connectors.base import InputFile, Refused
from kfm.connectors.kind import Ask, RowReader, near, options_of, utc
from kfm.connectors.operations import Read
from kfm.connectors.read.geojson import FEATURE_ID, GeoJsonReader
from kfm.connectors.read.geometry import Problem
from kfm.connectors.read.records import Records
from kfm.connectors.read.repeated_members import Twice, decode_once
from kfm.connectors.read.rows import Loose, Row
from kfm.connectors.table.sanity import Sane
from kfm.connectors.table.values import moment
from kfm.model import KINDS, Column, Json

__all__ = ["KIND", "SANITY", "Options", "acquire", "columns", "key", "readers"]

KIND = KINDS["nws"]

_COUNTIES = "counties"  # source id of the county outlines
_GEOMETRY = "@geometry"  # what no property is called
_ACCEPT = "application/geo+json"  # without it, nodes of the CDN have served answers days old
_WHOLE = 64 << 20  # a file of outlines that is decoded at once

_USPS = (
    "AL01 AK02 AZ04 AR05 CA06 CO08 CT09 DE10 DC11 FL12 GA13 HI15 ID16 IL17 IN18 IA19 KS20 KY21 LA22"
    " ME23 MD24 MA25 MI26 MN27 MS28 MO29 MT30 NE31 NV32 NH33 NJ34 NM35 NY36 NC37 ND38 OH39 OK40"
    " OR41 PA42 RI44 SC45 SD46 TN47 TX48 UT49 VT50 VA51 WA53 WV54 WI55 WY56 AS60 GU66 MP69 PR72"
    " VI78"
)
_STATES = {word[:2]: word[2:] for word in _USPS.split()}
_FIPS = frozenset(_STATES.values())  # SAME codes of waters begin with numbers no state has

# What a value is multiplied by, by the unit it is declared in and the one it is sent in: WMO's
# codes and UCUM's, upstream uses both.
_UNITS: dict[str, dict[str, float]] = {
    "Cel": {"degC": 1, "Cel": 1, "degF": 5 / 9, "[degF]": 5 / 9, "K": 1},
    "m/s": {
        "m_s-1": 1,
        "m/s": 1,
        "km_h-1": 1 / 3.6,
        "km/h": 1 / 3.6,
        "kt": 1852 / 3600,
        "[kn_i]": 1852 / 3600,
    },
    "deg": {"degree_(angle)": 1, "deg": 1},
    "Pa": {"Pa": 1, "hPa": 100},
    "m": {"m": 1, "km": 1000, "ft": 0.3048, "[ft_i]": 0.3048, "mi": 1609.344, "[mi_i]": 1609.344},
    "mm": {"mm": 1, "m": 1000, "cm": 10, "in": 25.4, "[in_i]": 25.4},
    "%": {"percent": 1, "%": 1},
}
_ZERO = {"degF": -160 / 9, "[degF]": -160 / 9, "K": -273.15}  # and what is added then
_MEASURES = {  # of an observation; upstream writes them as windSpeed
    "temperature": "Cel",
    "dewpoint": "Cel",
    "wind_direction": "deg",
    "wind_speed": "m/s",
    "wind_gust": "m/s",
    "barometric_pressure": "Pa",
    "sea_level_pressure": "Pa",
    "visibility": "m",
    "relative_humidity": "%",
    "max_temperature_last_24_hours": "Cel",
    "min_temperature_last_24_hours": "Cel",
    "precipitation_last_hour": "mm",
    "precipitation_last_3_hours": "mm",
    "precipitation_last_6_hours": "mm",
    "wind_chill": "Cel",
    "heat_index": "Cel",
}


def _table(text: str) -> tuple[Column, ...]:
    """Columns from words; one that is no text names its type, and its unit."""
    words = [(*word.split(":"), "string", "")[:3] for word in text.split()]
    return tuple(Column(name=n, type=t, unit=u or None) for n, t, u in words)  # type: ignore[arg-type]


# of an alert, as it is sent
_SAID = "event severity certainty urgency status message_type sender sender_name headline"
_TIMES = "sent effective onset expires ends"
_TABLES: dict[str, tuple[tuple[Column, ...], tuple[str, ...]]] = {
    "alerts": (
        _table(
            f"alert_id {_SAID} {_TIMES.replace(' ', ':timestamp ')}:timestamp area ugc:json"
            " same:json references:json superseded:boolean expired:boolean counties:json"
            " geometry_source geometry:geometry"
        ),
        ("alert_id",),
    ),
    "stations": (
        _table(
            "station_id name timezone county county_fips forecast_zone fire_zone elevation:number:m"
            " geometry:geometry"
        ),
        ("station_id",),
    ),
    "observations": (
        _table(
            "station_id observed_at:timestamp description raw_message elevation:number:m "
            + " ".join(f"{name}:number:{unit} {name}_quality" for name, unit in _MEASURES.items())
            + " geometry:geometry"
        ),
        ("station_id", "observed_at"),
    ),
}


REVISION = "sent"  # of an alert
# what upstream's own checks failed or question: such a value stays with its mark
_REJECTED = ("X", "Q", "B")
_PLAUSIBLE = {  # measures in the units of `_MEASURES`, beyond every record
    "temperature": (-95, 65),
    "dewpoint": (-110, 50),
    "wind_direction": (0, 360),
    "wind_speed": (0, 150),
    "wind_gust": (0, 150),
    "barometric_pressure": (30_000, 115_000),
    "sea_level_pressure": (80_000, 115_000),
    "visibility": (0, 500_000),
    "relative_humidity": (0, 110),  # upstream works it out from temperatures, and rounds
    "max_temperature_last_24_hours": (-95, 65),
    "min_temperature_last_24_hours": (-95, 65),
    "precipitation_last_hour": (0, 500),
    "precipitation_last_3_hours": (0, 1000),
    "precipitation_last_6_hours": (0, 1500),
    "wind_chill": (-130, 65),
    "heat_index": (-95, 110),
}
SANITY = (
    Sane("sent", "1990-01-01", "+1d"),
    Sane("effective", "1990-01-01", "+90d"),
    # they speak of what is to come
    *(Sane(name, "1990-01-01", "+400d") for name in ("onset", "expires", "ends")),
    Sane("observed_at", "1990-01-01", "+1d"),
    Sane("elevation", -500, 9000),
    *(
        Sane(name, low, high, flagged=(f"{name}_quality", _REJECTED))
        for name, (low, high) in _PLAUSIBLE.items()
    ),
)


class Options(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    resource: Literal["alerts", "stations", "observations"] = "alerts"
    # alerts: two letters; those that touch no county of it are dropped by rule, and only its
    # counties are listed
    state: str = ""
    # alerts: county outlines, GeoJSON by FIPS code or us-atlas TopoJSON, for alerts without a shape
    counties_url: str = ""
    # alerts: county FIPS codes of forecast zones, beside what the alert itself says
    zones: dict[str, tuple[str, ...]] = {}
    follow: bool = True  # whether next links are followed; some lists have one for ever
    pages: Annotated[int, msgspec.Meta(ge=1)] = 200  # at most, for each address


def _options(given: Json) -> Options:
    options = options_of(given, Options)
    if options.state and options.state not in _STATES:
        _refuse_option(f"state is {options.state!r}", "the two letters of a state, such as KS")
    if options.resource != "alerts" and (options.state or options.counties_url or options.zones):
        _refuse_option(
            f"state, counties_url or zones is given for {options.resource}",
            "them with resource: alerts only",
        )
    return options


def _refuse_option(what: str, expected: str) -> None:
    remedy = "Change source.options of the registry entry; docs/sources.md lists the options."
    raise Refused("options", f"source.options: {what}.", expected=expected, remedy=remedy)


def columns(job: Read) -> tuple[Column, ...]:
    """The table of the resource."""
    return _TABLES[_options(job.options).resource][0]


def key(job: Read) -> tuple[str, ...]:
    """What identifies its rows."""
    return _TABLES[_options(job.options).resource][1]


# -- asking


def acquire(ask: Ask) -> None:
    """Every page of every address, then the county outlines."""
    options, number = _options(ask.options), 0
    for start in ask.urls:
        url, asked, seen = start, set[str](), set[str]()
        while url:
            if len(asked) == options.pages:
                _refuse_paging(
                    f"{start} has more than {options.pages} pages",
                    "Raise `pages` in source.options if that many are right.",
                )
            asked.add(url)
            number += 1
            name = f"page-{number:04}"
            page = _Page(
                InputFile(source_id=name, path=str(ask.get(url, name, accept=_ACCEPT)), digest="")
            )
            ids = {
                str((r.row or {}).get(FEATURE_ID) or r.raw())
                for block in page.loose()
                for r in block
            }
            link = page.further if options.follow else ""
            further = near(url, link) if link else ""
            if not ids:  # upstream ends some lists so
                break
            # what came so far may be a part
            if further in asked or (ids <= seen and ask.conflicts == "refuse"):
                _refuse_paging(
                    f"The pages of {start} repeat themselves at {url}",
                    "Run again later, and report it upstream if it stays so.",
                )
            seen |= ids
            if further is None:
                _refuse_paging(
                    f"The next link of {url} leads to {link[:200]}",
                    "Report it upstream; a next link must stay on its host.",
                )
            url = further
        ask.log("nws.pages", url=start, pages=len(asked))
    if options.counties_url:
        _outlines(
            ask.get(
                options.counties_url, _COUNTIES, accept="application/geo+json, application/json"
            )
        )


def _refuse_paging(what: str, remedy: str) -> NoReturn:
    raise Refused(
        "nws.paging",
        f"{what}.",
        expected="new records on every page, on one host, to an end",
        remedy=remedy,
    )


class _Page(GeoJsonReader):
    """One page, streamed; a problem document is refused in its own words."""

    def __init__(self, source: InputFile) -> None:
        super().__init__(source, None, _GEOMETRY)
        self._records: Records | None = None

    def _open(self) -> Records:
        self._records = super()._open()
        return self._records

    def loose(self) -> Iterator[list[Loose]]:
        try:
            yield from super().loose()
        except Refused as refused:
            said = {n: self.member(n) for n in ("title", "status", "detail", "correlationId")}
            if refused.refusal.code != "geojson.features" or not said["title"]:
                raise
            raise Refused(
                "nws.problem",
                f"Source {self.source_id} is a problem report: {said['title']} (correlationId"
                f" {said['correlationId']}): {said['detail']}",
                expected="a FeatureCollection",
                remedy="Run again later; if it stays, report it to the NWS with the correlationId.",
                **said,
            ) from None

    def member(self, name: str) -> object:
        """What stood beside the features, once they have been read."""
        assert self._records is not None
        return self._records.member(name)

    @property
    def further(self) -> str:
        pagination = self.member("pagination")
        link = pagination.get("next") if isinstance(pagination, dict) else None
        return link if isinstance(link, str) else ""


# -- reading


class _Unfit(Exception):
    """A record that cannot be used, or is not wanted."""

    def __init__(self, rule: str, reason: str) -> None:
        super().__init__(reason)
        self.problem: Problem = (rule, reason)


class _Measure(msgspec.Struct, rename="camel"):
    value: float | str | None = None
    unit_code: str | None = None
    quality_control: str | None = None


class _Reference(msgspec.Struct):
    address: str = msgspec.field(name="@id", default="")
    identifier: str = ""


class _Geocode(msgspec.Struct, rename="upper"):
    ugc: list[str] = []
    same: list[str] = []


def readers(job: Read) -> list["_Reader"]:
    """A reader for each page."""
    options = _options(job.options)
    pages = [i for i in job.inputs if i.source_id != _COUNTIES]
    if options.resource == "alerts":
        outlines = next(
            (_outlines(Path(i.path)) for i in job.inputs if i.source_id == _COUNTIES), {}
        )
        alerts = _Alerts(options, pages, outlines)
        return [_Reader(page, alerts.row) for page in pages]
    row = _station if options.resource == "stations" else _observation
    return [_Reader(page, row) for page in pages]


class _Reader(RowReader):
    """The features of one page through the function of their resource."""

    def __init__(self, source: InputFile, row: Callable[[Row, "_Reader"], Row]) -> None:
        super().__init__(source)
        self._source, self._row = source, row

    def rows(self) -> Iterator[Loose]:
        page = _Page(self._source)
        page.warnings = self.warnings
        for block in page.loose():
            for record in block:
                yield record if record.row is None else self._read(record, record.row)
        self.stamp = utc(page.member("updated"))

    def _read(self, record: Loose, given: Row) -> Loose:
        try:
            return Loose(record.line, record.raw, self._row(given, self))
        except _Unfit as unfit:
            return Loose(record.line, record.raw, None, unfit.problem)
        except msgspec.ValidationError as error:
            return Loose(record.line, record.raw, None, ("nws.record", str(error)))


class _Alerts:
    """Alerts, seen beside each other: one that another names in its references is superseded."""

    def __init__(
        self, options: Options, pages: list[InputFile], outlines: dict[str, BaseGeometry]
    ) -> None:
        self._options, self._outlines = options, outlines
        self._superseded: set[str] = set()
        self._updated: dict[str, int | None] = {}  # of each page: what "now" is for it
        self._unions: dict[tuple[str, ...], Json] = {}
        for source in pages:
            self._look(source)

    def _look(self, source: InputFile) -> None:
        page = _Page(source)
        for block in page.loose():
            for record in block:
                # it is set aside when it is read
                with contextlib.suppress(msgspec.ValidationError):
                    self._superseded.update(_references(record.row or {}))
        self._updated[source.source_id] = _time(page.member("updated"))

    def row(self, given: Row, reader: _Reader) -> Row:
        codes = msgspec.convert(given.get("geocode") or {}, _Geocode)
        counties, state = self._counties(codes), self._options.state
        if state and not counties and not any(u.startswith(state) for u in codes.ugc):
            raise _Unfit("drop:other-state", f"it touches no county of {state}")
        alert_id = given.get("id") or _last(given.get(FEATURE_ID))
        own = given[_GEOMETRY]
        drawn = own if own is not None else self._drawn(counties, reader)
        expires, now = _time(given.get("expires")), self._updated[reader.source_id]
        return {n: given.get(_camel(n)) for n in f"{_SAID} {_TIMES}".split()} | {
            "alert_id": alert_id,
            "area": given.get("areaDesc"),
            "ugc": codes.ugc,
            "same": codes.same,
            "references": _references(given),
            "superseded": str(alert_id) in self._superseded,
            "expired": None if expires is None or now is None else expires <= now,
            "counties": counties,
            "geometry_source": (
                "polygon" if own is not None else "counties" if drawn is not None else "none"
            ),
            "geometry": drawn,
        }

    def _counties(self, codes: _Geocode) -> list[str]:
        """FIPS codes from SAME ("020117"), county UGC codes ("KSC117") and the registered zones, of
        the wanted state.
        """
        found = {s[1:] for s in codes.same if re.fullmatch(r"\d{6}", s) and s[1:3] in _FIPS}
        found |= {f for u in codes.ugc if (f := _fips(u)) is not None}
        found |= {f for u in codes.ugc for f in self._options.zones.get(u, ())}
        return sorted(f for f in found if f.startswith(_STATES.get(self._options.state, "")))

    def _drawn(self, counties: list[str], reader: _Reader) -> Json | None:
        """The counties as one shape; nothing when an outline is missing, for a part would be taken
        for the whole.
        """
        if not counties or not self._outlines:
            return None
        missing = [c for c in counties if c not in self._outlines]
        if missing:
            reader.warnings.add(
                f"No outline of {', '.join(missing)}: alerts that only name such counties have no"
                " shape."
            )
            return None
        which = tuple(counties)
        if which not in self._unions:
            whole = shapely.normalize(shapely.union_all([self._outlines[c] for c in which]))
            self._unions[which] = mapping(
                whole if whole.geom_type == "MultiPolygon" else shapely.MultiPolygon([whole])
            )
        return self._unions[which]


def _references(given: Row) -> list[str]:
    """The ids of the alerts this one takes the place of."""
    found = msgspec.convert(given.get("references") or [], list[_Reference])
    return [r.identifier or _last(r.address) or "" for r in found]


def _camel(name: str) -> str:
    return re.sub("_(.)", lambda m: m[1].upper(), name)


def _time(text: object) -> int | None:
    try:
        return moment(text)
    except ValueError:
        return None  # the column says so when it is typed


def _last(address: object) -> str | None:
    """The last part of an address; upstream names zones, stations and alerts by one."""
    return address.rsplit("/", 1)[-1] if isinstance(address, str) else None


def _fips(ugc: str) -> str | None:
    """The FIPS code of a county UGC code; a zone has none."""
    return (
        _STATES[ugc[:2]] + ugc[3:]
        if re.fullmatch(r"[A-Z]{2}C\d{3}", ugc) and ugc[:2] in _STATES
        else None
    )


def _station(given: Row, _: _Reader) -> Row:
    county = _last(given.get("county"))
    return {
        "station_id": given.get("stationIdentifier") or _last(given.get(FEATURE_ID)),
        "name": given.get("name"),
        "timezone": given.get("timeZone"),
        "county": county,
        "county_fips": _fips(county or ""),
        "forecast_zone": _last(given.get("forecast")),
        "fire_zone": _last(given.get("fireWeatherZone")),
        "elevation": _value(_measure(given, "elevation"), "elevation", "m"),
        "geometry": given[_GEOMETRY],
    }


def _observation(given: Row, _: _Reader) -> Row:
    named = re.search(r"/stations/([^/]+)/observations/([^/]+)$", str(given.get(FEATURE_ID)))
    row: Row = {
        "station_id": _last(given.get("station")) or (named.group(1) if named else None),
        "observed_at": given.get("timestamp") or (named.group(2) if named else None),
        "description": given.get("textDescription"),
        "raw_message": given.get("rawMessage"),
        "elevation": _value(_measure(given, "elevation"), "elevation", "m"),
        "geometry": given[_GEOMETRY],
    }
    for name, unit in _MEASURES.items():
        measure = _measure(given, name)
        row[name] = _value(measure, name, unit)
        row[f"{name}_quality"] = (
            measure.quality_control.removeprefix("qc:") if measure.quality_control else None
        )
    return row


def _measure(given: Row, name: str) -> _Measure:
    return msgspec.convert(given.get(_camel(name)) or {}, _Measure)


def _value(measure: _Measure, name: str, unit: str) -> float | None:
    """The value in the declared unit; untouched when it is sent in that."""
    if measure.value is None:
        return None
    sent = measure.unit_code or ""
    # unit:degC, wmoUnit:degC, an address, Cel
    code = (_last(sent) or "") if sent.startswith("http") else sent.rsplit(":", 1)[-1]
    factor = _UNITS[unit].get(code)
    if factor is None:
        raise _Unfit(
            "unit.unknown",
            f"{name}: {measure.value!r} in the unit {measure.unit_code!r} cannot be turned into"
            f" {unit}",
        )
    try:
        value = float(measure.value)
    except ValueError:
        raise _Unfit("type", f"{name}: expected a number, got {measure.value!r}") from None
    return (
        value
        if factor == 1 and code not in _ZERO
        else round(value * factor + _ZERO.get(code, 0), 6)
    )


# -- county outlines


def _outlines(path: Path) -> dict[str, BaseGeometry]:
    """Outlines of counties by FIPS code: a FeatureCollection, or a quantised TopoJSON with an
    object `counties`.
    """
    try:
        if path.stat().st_size > _WHOLE:
            raise ValueError(f"it is larger than {_WHOLE >> 20} MiB")
        document = decode_once(path.read_bytes())
        found = (
            _topology(document)
            if document.get("type") == "Topology"
            else dict(map(_county, document["features"]))
        )
        return {
            code: s if s.is_valid else _mended(s) for code, s in found.items() if not s.is_empty
        }
    except (
        ValueError,
        LookupError,
        TypeError,
        ArithmeticError,
        AttributeError,
        RecursionError,
        Twice,
        shapely.errors.ShapelyError,
    ) as error:
        raise Refused(
            "nws.counties",
            f"The county outlines cannot be read: {type(error).__name__}: {error}.",
            expected=(
                "a FeatureCollection with county FIPS codes as ids, or the TopoJSON of us-atlas"
            ),
            remedy="Look at the captured bytes and correct `counties_url` in source.options.",
        ) from error


def _mended(outline: BaseGeometry) -> BaseGeometry:
    """A shape that touches itself, as upstream's grid makes some, without the lines that mending
    leaves.
    """
    return shapely.union_all(
        [p for p in shapely.get_parts(shapely.make_valid(outline)) if p.area > 0]
    )


def _county(feature: Json) -> tuple[str, BaseGeometry]:
    return str(feature.get("id") or feature["properties"]["GEOID"]), shape(feature["geometry"])


def _topology(document: Json) -> dict[str, BaseGeometry]:
    """Arcs are steps on a grid; a ring is a chain of them, ~i being arc i backwards. Six decimals
    are a tenth of a metre.
    """
    scale, origin = (np.array(document["transform"][n], float) for n in ("scale", "translate"))
    lines = [
        np.round(np.cumsum(np.array(arc, np.int64), axis=0) * scale + origin, 6)
        for arc in document["arcs"]
    ]

    def ring(arcs: list[int]) -> Floats:
        parts = [lines[i] if i >= 0 else lines[~i][::-1] for i in arcs]
        return np.concatenate([parts[0], *(p[1:] for p in parts[1:])])

    def polygon(rings: list[list[int]]) -> BaseGeometry | None:
        outer, *holes = map(ring, rings)
        # the grid may flatten an islet
        return shapely.Polygon(outer, [h for h in holes if len(h) > 3]) if len(outer) > 3 else None

    found = {}
    for county in document["objects"][_COUNTIES]["geometries"]:
        polygons = [county["arcs"]] if county["type"] == "Polygon" else county["arcs"]
        found[str(county["id"])] = shapely.MultiPolygon(
            [p for p in map(polygon, polygons) if p is not None]
        )
    return found
