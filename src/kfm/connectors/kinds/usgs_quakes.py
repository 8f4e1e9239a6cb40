"""USGS earthquakes: the GeoJSON feeds and the CSV catalogue as one table of events, with the ids an event also goes by."""

from collections.abc import Iterator
from typing import Any, Literal

import msgspec

from kfm.connectors.base import InputFile, Refused, TransformJob
from kfm.connectors.geojson import FEATURE_ID, GeoJsonReader
from kfm.connectors.geometry import Point
from kfm.connectors.kinds.base import RowReader, options_of
from kfm.connectors.records import Records
from kfm.connectors.rows import Loose, Row
from kfm.connectors.sanity import Sane
from kfm.connectors.tabular import CsvReader
from kfm.model.dataset import Column

__all__ = ["COLUMNS", "KEY", "SANITY", "TOMBSTONES", "Options", "readers"]

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
    Sane("occurred_at", "1500-01-01", "+1d", seconds="updated_at"),  # the catalogue goes back to 1568
    Sane("updated_at", "1990-01-01", "+1d"),  # when a record was written; before, there was no catalogue to write it into
    Sane("magnitude", -5, 10),
    Sane("depth_km", -100, 1000, (999, 999.9)),
    Sane("felt", 0, 1e8),
)
# An event lives on under another id when another network becomes preferred, and a deleted one simply leaves the feed: see `merge`.
TOMBSTONES = {"aliases": "ids", "state": "state", "into": "merged_into", "time": "occurred_at", "revision": "updated_at"}

_GEOMETRY = "@geometry"  # what no property is called
_PROPERTIES = "mag place time updated tz url detail felt cdi mmi alert status tsunami sig net code ids sources types nst dmin rms gap magType type title"
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
_OTHER_CELLS = "nst gap dmin rms horizontalError depthError magError magNst locationSource magSource"


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


def readers(job: TransformJob) -> list["_Reader"]:
    """A reader for each file: the feed's GeoJSON or the catalogue's CSV."""
    options = options_of(job.options, Options)
    kind = _Catalogue if job.format == "csv" else _Feed
    return [kind(source, options, job.encoding) for source in job.inputs]


class _Document(GeoJsonReader):
    """A FeatureCollection that keeps what stood beside the features."""

    metadata: dict[str, Any] = {}

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
            return Loose(record.line, record.raw, None, ("drop:type", f"{row['event_type']} is not among the wanted types"))
        return Loose(record.line, record.raw, row | {"state": "active", "merged_into": None})

    def _heard_of(self, names: set[str], known: set[str]) -> None:
        for name in sorted(names - known):
            self.warnings.add(f"{self.source_id} has {name!r}, which is new upstream and not in the table.")


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
        said = document.metadata.get("count")
        if said is not None and said != count:
            raise Refused(
                "usgs_quakes.count",
                f"Source {self.source_id} says that it holds {said} events and holds {count}.",
                expected="as many features as metadata.count says",
                remedy="The answer is incomplete; run again, and report it upstream if it stays so.",
                source_id=self.source_id,
            )

    def _event(self, record: Loose, given: Row) -> Loose:
        try:
            event = msgspec.convert(given, _Event)
        except msgspec.ValidationError as error:
            return Loose(record.line, record.raw, None, ("usgs_quakes.event", str(error)))
        where = event.point.coordinates if event.point else [None, None]
        if len(where) not in (2, 3) or (event.point and None in where[:2]):
            return Loose(record.line, record.raw, None, ("geometry", "coordinates are not [longitude, latitude, depth]"))
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
            "geometry": Point([longitude, latitude]) if longitude is not None and latitude is not None else None,
        }
        return self._wanted(record, row)


class _Catalogue(_Reader):
    """The CSV of a catalogue query, whatever columns it has beside those we take."""

    def rows(self) -> Iterator[Loose]:
        table = CsvReader(self._source, self._encoding)
        table.warnings = self.warnings
        for block in table.loose():
            for record in block:
                yield record if record.row is None else self._event(record, record.row)

    def _event(self, record: Loose, given: Row) -> Loose:
        missing = [name for name in ("id", "time", "latitude", "longitude", "mag", "type") if name not in given]
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
        row |= {"code": None, "ids": None, "felt": None, "tsunami": None, "url": None, "geometry": None}
        try:
            row["geometry"] = Point([float(row["longitude"]), float(row["latitude"])])
        except (TypeError, ValueError):
            pass  # an empty cell is no place; one that is no number is found when the column is typed
        return self._wanted(record, row)
