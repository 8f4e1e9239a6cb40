"""USGS earthquakes: the GeoJSON feeds and the CSV catalogue as one table of events, with the ids an
event also goes by.
"""

import datetime as dt
import re
from collections.abc import Iterator
from typing import Any, Literal
from urllib.parse import parse_qs, urlsplit

import msgspec

from kfm.connectors.base import InputFile, Refused
from kfm.connectors.kind import RowReader, options_of
from kfm.connectors.operations import Read
from kfm.connectors.read.geojson import FEATURE_ID, GeoJsonReader
from kfm.connectors.read.geometry import Point
from kfm.connectors.read.records import Records
from kfm.connectors.read.rows import Loose, Row
from kfm.connectors.read.tabular import CsvReader
from kfm.connectors.table.sanity import Sane
from kfm.model import KINDS, Column, Json, rfc3339

__all__ = ["COLUMNS", "KEY", "KIND", "SANITY", "TOMBSTONES", "Options", "readers"]

KIND = KINDS["usgs_quakes"]

COLUMNS = (
    Column(name="event_id", type="string"),
    Column(name="occurred_at", type="timestamp"),
    Column(name="updated_at", type="timestamp"),
    Column(name="magnitude", type="number"),
    Column(name="magnitude_type", type="string"),
    Column(name="place", type="string"),
    Column(name="event_type", type="string"),
    Column(name="status", type="string"),
    Column(name="network", type="string"),
    Column(name="code", type="string"),
    Column(name="ids", type="json"),
    Column(name="depth_km", type="number", unit="km"),
    Column(name="latitude", type="number", unit="deg"),
    Column(name="longitude", type="number", unit="deg"),
    Column(name="felt", type="integer"),
    Column(name="tsunami", type="boolean"),
    Column(name="url", type="string"),
    Column(name="state", type="string"),  # active | merged | deleted
    Column(name="merged_into", type="string"),
    Column(name="geometry", type="geometry"),
)
KEY = ("event_id",)
SANITY = (
    # the catalogue goes back to 1568
    Sane("occurred_at", "1500-01-01", "+1d", seconds="updated_at"),
    # when a record was written; before, there was no catalogue to write it into
    Sane("updated_at", "1990-01-01", "+1d"),
    Sane("magnitude", -5, 10),
    Sane("depth_km", -100, 1000, (999, 999.9)),
    Sane("felt", 0, 1e8),
)
# An event lives on under another id when another network becomes preferred, and a deleted one
# simply leaves the feed: see `merge`.
TOMBSTONES = {
    "aliases": "ids",
    "state": "state",
    "into": "merged_into",
    "time": "occurred_at",
    "revision": "updated_at",
}

_PAST = re.compile(
    r"(?:_|[Pp]ast )(hour|day|week|month|Hour|Day|Week|Month|7 Days|30 Days)(?:\.|$)"
)
_LENGTHS = {
    "hour": dt.timedelta(hours=1),
    "day": dt.timedelta(days=1),
    "week": dt.timedelta(days=7),
    "month": dt.timedelta(days=30),
}
_LENGTHS |= {"7 days": _LENGTHS["week"], "30 days": _LENGTHS["month"]}
_GEOMETRY = "@geometry"  # what no property is called
_PROPERTIES = (
    "mag place time updated tz url detail felt cdi mmi alert status tsunami sig net code ids"
    " sources types nst dmin rms gap magType type title"
)
# The catalogue grew from 15 columns to 22; it is read by its header.
_CELLS = {
    "id": "event_id",
    "time": "occurred_at",
    "updated": "updated_at",
    "mag": "magnitude",
    "magType": "magnitude_type",
    "place": "place",
    "type": "event_type",
    "status": "status",
    "net": "network",
    "depth": "depth_km",
    "latitude": "latitude",
    "longitude": "longitude",
}
_OTHER_CELLS = (
    "nst gap dmin rms horizontalError depthError magError magNst locationSource magSource"
)


class Options(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    types: tuple[str, ...] = ()  # wanted kinds of event, such as [earthquake]; empty: all


class _Place(msgspec.Struct):
    type: Literal["Point"]
    coordinates: list[float | None]  # longitude, latitude, depth in km


class _Event(msgspec.Struct):
    id: str = msgspec.field(name=FEATURE_ID)
    time: int
    updated: int | None = None
    mag: float | None = None
    mag_type: str | None = msgspec.field(name="magType", default=None)
    place: str | None = None
    type: str | None = None
    status: str | None = None
    net: str | None = None
    code: str | None = None
    ids: str | None = None
    felt: int | None = None
    tsunami: int | None = None
    url: str | None = None
    point: _Place | None = msgspec.field(name=_GEOMETRY, default=None)


def readers(job: Read) -> list["_Reader"]:
    """A reader for each file: the feed's GeoJSON or the catalogue's CSV."""
    options = options_of(job.options, Options)
    kind = _Catalogue if job.format == "csv" else _Feed
    return [kind(source, options, job.encoding) for source in job.inputs]


class _Document(GeoJsonReader):
    """A FeatureCollection that keeps what stood beside the features."""

    metadata: Json = {}

    def _finish(self, records: Records) -> None:
        super()._finish(records)
        found = records.member("metadata")
        self.metadata = found if isinstance(found, dict) else {}


class _Reader(RowReader):
    """Events of the wanted kinds."""

    def __init__(self, source: InputFile, options: Options, encoding: str | None) -> None:
        super().__init__(source)
        self._source, self._encoding, self._types = source, encoding, frozenset(options.types)

    def _wanted(self, record: Loose, row: Row) -> Loose:
        if self._types and row["event_type"] not in self._types:
            return Loose(
                record.line,
                record.raw,
                None,
                ("drop:type", f"{row['event_type']} is not among the wanted types"),
            )
        return Loose(record.line, record.raw, row | {"state": "active", "merged_into": None})

    def _heard_of(self, names: set[str], known: set[str]) -> None:
        for name in sorted(names - known):
            self.warnings.add(
                f"{self.source_id} has {name!r}, which is new upstream and not in the table."
            )


class _Feed(_Reader):
    """The GeoJSON of a feed or of a catalogue query."""

    def rows(self) -> Iterator[Loose]:
        document, count = _Document(self._source, self._encoding, _GEOMETRY), 0
        document.warnings = self.warnings
        for block in document.loose():
            count += len(block)
            names = set[str]().union(*(r.row for r in block if r.row is not None))
            self._heard_of(names, {*_PROPERTIES.split(), FEATURE_ID, _GEOMETRY})
            for record in block:
                yield record if record.row is None else self._event(record, record.row)
        self._note(document.metadata)
        said = document.metadata.get("count")
        if said is not None and said != count:
            raise Refused(
                "usgs_quakes.count",
                f"Source {self.source_id} says that it holds {said} events and holds {count}.",
                expected="as many features as metadata.count says",
                remedy=(
                    "The answer is incomplete; run again, and report it upstream if it stays so."
                ),
                source_id=self.source_id,
            )

    def _note(self, metadata: Json) -> None:
        """When the feed was made, and the time it says it answers for: that of its name, or of the
        query it repeats.
        """
        made = _moment_of(metadata.get("generated"))
        self.stamp = rfc3339(made) if made is not None else ""
        self.answered = _answered(
            str(metadata.get("url") or ""), str(metadata.get("title") or ""), made
        )

    def _event(self, record: Loose, given: Row) -> Loose:
        try:
            event = msgspec.convert(given, _Event)
        except msgspec.ValidationError as error:
            return Loose(record.line, record.raw, None, ("usgs_quakes.event", str(error)))
        where = event.point.coordinates if event.point else [None, None]
        if len(where) not in (2, 3) or (event.point and None in where[:2]):
            return Loose(
                record.line,
                record.raw,
                None,
                ("geometry", "coordinates are not [longitude, latitude, depth]"),
            )
        longitude, latitude, depth = (*where, None)[:3]
        row = {
            "event_id": event.id,
            "occurred_at": event.time,
            "updated_at": event.updated,
            "magnitude": event.mag,
            "magnitude_type": event.mag_type,
            "place": event.place,
            "event_type": event.type,
            "status": event.status,
            "network": event.net,
            "code": event.code,
            "ids": None if event.ids is None else [i for i in event.ids.split(",") if i],
            "depth_km": depth,
            "latitude": latitude,
            "longitude": longitude,
            "felt": event.felt,
            "tsunami": None if event.tsunami is None else event.tsunami != 0,
            "url": event.url,
            "geometry": (
                Point([longitude, latitude])
                if longitude is not None and latitude is not None
                else None
            ),
        }
        return self._wanted(record, row)


def _moment_of(milliseconds: Any) -> dt.datetime | None:
    try:
        return dt.datetime.fromtimestamp(milliseconds / 1000, dt.UTC)
    except (TypeError, ValueError, OverflowError, OSError):
        return None


def _answered(url: str, title: str, made: dt.datetime | None) -> tuple[str, str] | None:
    """The first and last moment a feed or a catalogue query answers for; None: it does not say, or
    it may have been cut by a limit.
    """
    query = parse_qs(urlsplit(url).query)
    if "starttime" in query or "endtime" in query:
        if "limit" in query or "offset" in query:
            return None
        try:
            until = _time(query["endtime"][0]) if "endtime" in query else made
            since = _time(query["starttime"][0]) if "starttime" in query else None
        except (ValueError, OverflowError):
            return None
        return (rfc3339(since), rfc3339(until)) if since is not None and until is not None else None
    past = _PAST.search(urlsplit(url).path) or _PAST.search(title)
    if past is None or made is None:
        return None
    return rfc3339(made - _LENGTHS[past[1].lower()]), rfc3339(made)


def _time(text: str) -> dt.datetime:
    found = dt.datetime.fromisoformat(text)
    return found if found.tzinfo else found.replace(tzinfo=dt.UTC)


class _Catalogue(_Reader):
    """The CSV of a catalogue query, whatever columns it has beside those we take."""

    def rows(self) -> Iterator[Loose]:
        table = CsvReader(self._source, self._encoding)
        table.warnings = self.warnings
        for block in table.loose():
            for record in block:
                yield record if record.row is None else self._event(record, record.row)

    def _event(self, record: Loose, given: Row) -> Loose:
        missing = [
            name
            for name in ("id", "time", "latitude", "longitude", "mag", "type")
            if name not in given
        ]
        if missing:
            raise Refused(
                "csv.header",
                f"The header of source {self.source_id} lacks {', '.join(missing)}.",
                expected="the columns of the earthquake catalogue",
                remedy="Look at the captured bytes; upstream may have renamed columns.",
                source_id=self.source_id,
                columns=missing,
            )
        self._heard_of(set(given), {*_OTHER_CELLS.split(), *_CELLS})
        row: Row = {name: given.get(cell) for cell, name in _CELLS.items()}
        row |= {
            "code": None,
            "ids": None,
            "felt": None,
            "tsunami": None,
            "url": None,
            "geometry": None,
        }
        try:
            row["geometry"] = Point([float(row["longitude"]), float(row["latitude"])])
        except (TypeError, ValueError):
            # an empty cell is no place; one that is no number is found when the column is typed
            pass
        return self._wanted(record, row)
