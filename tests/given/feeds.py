"""For every kind of source an honest feed, and the ways to poison one record of it."""

import contextlib
import copy
import datetime as dt
import io
import json
import sqlite3
import struct
import zipfile
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from kfm.model.dataset import Column
from tests.given.sheets import ods, sheet, xlsx

COUNT, AT = 240, 120  # records of an honest feed, and the one that is poisoned
CAPTURED = "2026-06-01T00:00:00Z"
MARK = "\u202egnp.exe"  # turns the direction of what is read after it

Record = Any
Poison = Callable[[Record], Any]


@dataclass(frozen=True)
class Feed:
    """An honest feed, and the ways to poison one record of it."""

    kind: str
    format: str
    records: list[Record]
    render: Callable[[list[Record]], dict[str, bytes]]
    poisons: dict[str, tuple[Poison, str]]  # name -> (what it does, the rule that finds it)
    line: Callable[[int], int] = lambda at: at + 1
    more: dict[str, Any] = field(default_factory=dict)
    share: float = 0.01


# -- ways to poison a JSON record: `path` leads to a member


def put(path: str, value: Any) -> Poison:
    def change(record: Record) -> Record:
        found = copy.deepcopy(record)
        *way, last = path.split(".")
        at = found
        for name in way:
            at = at[int(name)] if isinstance(at, list) else at[name]
        at[int(last) if isinstance(at, list) else last] = value
        return found

    return change


def twice(name: str, value: Any) -> Poison:
    """The member `name` once more, with another value."""

    def change(record: Record) -> str:
        text, mark = json.dumps(record), json.dumps(name) + ":"
        at = text.index(mark)
        return f"{text[:at]}{mark} {json.dumps(value)}, {text[at:]}"

    return change


def spelt(record: Record) -> str:
    return record if isinstance(record, str) else json.dumps(record)


def collection(**members: Any) -> Callable[[list[Record]], dict[str, bytes]]:
    head = "".join(f"{json.dumps(k)}: {json.dumps(v)}, " for k, v in members.items())
    return lambda records: {
        "feed": f'{{"type": "FeatureCollection", {head}"features": [{", ".join(map(spelt, records))}]}}'.encode(),
    }


def point(n: int) -> dict[str, Any]:
    return {"type": "Point", "coordinates": [round(-101 + n * 0.02, 4), round(37.5 + n * 0.01, 4)]}


SWAPPED = [38.5, -98.5]


# -- ways to poison a line of cells


def cell(index: int, text: str, mark: str = ",") -> Poison:
    def change(record: str) -> str:
        cells = record.split(mark)
        cells[index] = text
        return mark.join(cells)

    return change


def lines(*head: str, name: str = "feed") -> Callable[[list[Record]], dict[str, bytes]]:
    return lambda records: {name: ("\n".join([*head, *records]) + "\n").encode()}


def below(head: int) -> Callable[[int], int]:
    return lambda at: at + 1 + head


def day(n: int) -> str:
    return str(dt.date(2025, 1, 1) + dt.timedelta(days=n))


# -- the feeds


def quakes() -> Feed:
    def event(n: int) -> Record:
        said = {
            "mag": 1 + n % 30 / 10,
            "place": f"Sample {n}",
            "time": 1767225600000 + n * 3600000,
            "updated": 1767225700000 + n * 3600000,
        }
        said |= {
            "type": "earthquake",
            "status": "reviewed",
            "net": "sample",
            "code": str(n),
            "ids": f",s{n},",
            "tsunami": 0,
        }
        where = point(n)
        where["coordinates"].append(5.0)
        return {"type": "Feature", "id": f"s{n}", "properties": said, "geometry": where}

    when = "properties.time"
    return Feed("usgs_quakes", "geojson", [event(n) for n in range(COUNT)], collection(metadata={"count": COUNT}), {
        "future event": (put(when, 4102444800000), "time.range"),
        "future stamp": (put("properties.updated", 253370764800000), "time.range"),
        "seconds": (put(when, 1767657600), "time.unit"),
        "stamp in seconds": (put("properties.updated", 1767657700), "time.range"),
        "microseconds": (put(when, 1767657600000000), "type"),
        "year 33658": (put(when, 10**15 - 1), "time.range"),
        "year 10000": (put(when, 253402300800000), "time.range"),
        "year 0": (put(when, -62135596800001), "time.range"),
        "magnitude -999": (put("properties.mag", -999), "value.range"),
        "magnitude 9999": (put("properties.mag", 9999), "value.range"),
        "depth 999.9": (put("geometry.coordinates.2", 999.9), "value.sentinel"),
        "depth in metres": (put("geometry.coordinates.2", 5000), "value.range"),
        "swapped": (put("geometry.coordinates", [*SWAPPED, 5]), "geometry.range"),
        "duplicate": (twice("mag", 9.9), "json.duplicate"),
        "type": (put("properties.mag", "strong"), "usgs_quakes.event"),
        "control": (put("properties.place", MARK), "text.direction"),
    })  # fmt: skip


def quakes_csv() -> Feed:
    head = "time,latitude,longitude,depth,mag,magType,id,updated,place,type"
    rows = [f"2026-01-01T{n // 60 % 24:02}:{n % 60:02}:00.000Z,{37.5 + n / 100:.2f},-98.5,5,2.1,ml,s{n},2026-01-02T00:00:00.000Z,Sample,earthquake" for n in range(COUNT)]  # fmt: skip
    return Feed("usgs_quakes", "csv", rows, lines(head), {
        "future event": (cell(0, "2100-01-01T00:00:00Z"), "time.range"),
        "future stamp": (cell(7, "9999-01-01T00:00:00Z"), "time.range"),
        "seconds": (cell(0, "1767657600"), "type"),
        "year 0": (cell(0, "0000-06-01T00:00:00Z"), "time.range"),
        "magnitude -9999": (cell(4, "-9999"), "value.range"),
        "depth 999": (cell(3, "999"), "value.sentinel"),
        "swapped": (lambda r: cell(1, "-98.5")(cell(2, "38.5")(r)), "geometry.range"),
        "type": (cell(4, "strong"), "type"),
        "control": (cell(8, MARK), "text.direction"),
    }, line=below(1))  # fmt: skip


def observations() -> Feed:
    def observed(n: int) -> Record:
        when = f"2026-05-{1 + n // 24:02}T{n % 24:02}:00:00+00:00"
        measures = {"temperature": (15.5, "degC"), "windSpeed": (10.8, "km_h-1"), "barometricPressure": (98_000, "Pa"), "relativeHumidity": (60, "percent")}  # fmt: skip
        said = {
            k: {"value": v, "unitCode": f"wmoUnit:{u}", "qualityControl": "V"}
            for k, (v, u) in measures.items()
        }
        about = {"station": "https://api.weather.gov/stations/KSAM", "timestamp": when, "elevation": {"value": 400, "unitCode": "wmoUnit:m"}, "textDescription": "Clear"}  # fmt: skip
        address = f"https://api.weather.gov/stations/KSAM/observations/{when}"
        return {"type": "Feature", "id": address, "geometry": point(1), "properties": about | said}

    return Feed("nws", "json", [observed(n) for n in range(COUNT)], collection(), {
        "future": (put("properties.timestamp", "2027-01-01T00:00:00Z"), "time.range"),
        "seconds": (put("properties.timestamp", 1767657600), "time.range"),
        "year 0": (put("properties.timestamp", "0000-01-01T00:00:00Z"), "time.range"),
        "temperature 9999": (put("properties.temperature.value", 9999), "value.range"),
        "temperature in Fahrenheit": (put("properties.temperature.value", 98.6), "value.range"),
        "pressure in hectopascal": (put("properties.barometricPressure.value", 1013), "value.range"),
        "an unknown unit": (put("properties.windSpeed.unitCode", "wmoUnit:furlong"), "unit.unknown"),
        "elevation -9999": (put("properties.elevation.value", -9999), "value.range"),
        "swapped": (put("geometry.coordinates", SWAPPED), "geometry.range"),
        "duplicate": (twice("textDescription", "Rain"), "json.duplicate"),
        "type": (put("properties.temperature.value", "warm"), "type"),
        "control": (put("properties.textDescription", MARK), "text.direction"),
    }, more={"options": {"resource": "observations"}})  # fmt: skip


def alerts() -> Feed:
    def alert(n: int) -> Record:
        times = dict.fromkeys(
            ("sent", "effective", "onset", "expires", "ends"), "2026-05-31T12:00:00-05:00"
        )
        said = {"id": f"urn:{n}", "event": "Flood Warning", "areaDesc": "Sample", "geocode": {"UGC": ["KSC001"], "SAME": ["020001"]}, "references": []}  # fmt: skip
        return {
            "type": "Feature",
            "id": f"https://api.weather.gov/alerts/urn:{n}",
            "geometry": point(n),
            "properties": said | times,
        }

    return Feed("nws", "json", [alert(n) for n in range(COUNT)], collection(updated="2026-06-01T00:00:00+00:00"), {
        "sent in the future": (put("properties.sent", "2026-07-01T00:00:00Z"), "time.range"),
        "ends in the year 9999": (put("properties.ends", "9999-12-31T00:00:00Z"), "time.range"),
        "onset in seconds": (put("properties.onset", 1767657600), "time.range"),
        "year 0": (put("properties.expires", "0000-01-01T00:00:00Z"), "time.range"),
        "swapped": (put("geometry.coordinates", SWAPPED), "geometry.range"),
        "duplicate": (twice("event", "Heat"), "json.duplicate"),
        "type": (put("properties.geocode", {"UGC": "KSC001"}), "nws.record"),
        "control": (put("properties.areaDesc", MARK), "text.direction"),
    })  # fmt: skip


def stations() -> Feed:
    def station(n: int) -> Record:
        said = {"stationIdentifier": f"K{n:03}", "name": f"Sample {n}", "timeZone": "America/Chicago", "elevation": {"value": 400, "unitCode": "wmoUnit:m"}}  # fmt: skip
        return {
            "type": "Feature",
            "id": f"https://api.weather.gov/stations/K{n:03}",
            "geometry": point(n),
            "properties": said,
        }

    return Feed("nws", "json", [station(n) for n in range(COUNT)], collection(), {
        "elevation in millimetres": (put("properties.elevation.value", 400_000), "value.range"),
        "elevation 9999": (put("properties.elevation.value", 9999), "value.range"),
        "swapped": (put("geometry.coordinates", SWAPPED), "geometry.range"),
        "duplicate": (twice("name", "Other"), "json.duplicate"),
        "type": (put("properties.elevation", "high"), "nws.record"),
        "control": (put("properties.name", MARK), "text.direction"),
    }, more={"options": {"resource": "stations"}})  # fmt: skip


def rdb() -> Feed:
    head = ("# made", "#  1  00060  00003  Discharge, cubic feet per second (Mean)", "agency_cd\tsite_no\tdatetime\t1_00060_00003\t1_00060_00003_cd", "5s\t15s\t20d\t14n\t10s")  # fmt: skip
    rows = [f"USGS\t07141220\t{day(n)}\t{5 + n}\tA" for n in range(COUNT)]

    def value(text: str) -> Poison:
        return cell(3, text, "\t")

    def date(text: str) -> Poison:
        return cell(2, text, "\t")

    return Feed("nwis", "rdb", rows, lines(*head), {
        "9999": (value("9999"), "value.sentinel"),
        "-9999": (value("-9999"), "value.sentinel"),
        "9999.9": (value("9999.9"), "value.sentinel"),
        "too much": (value("1e12"), "value.range"),
        "future": (date("2027-01-01"), "time.range"),
        "year 0": (date("0000-01-01"), "time.range"),
        "year 9999": (date("9999-01-01"), "time.range"),
        "seconds": (date("1767657600"), "type"),
        "type": (value("high"), "nwis.value"),
        "control": (cell(4, f"A:{MARK}", "\t"), "text.direction"),
    }, line=below(len(head)))  # fmt: skip


def waterml() -> Feed:
    """A member that is there twice condemns its whole series, which is the record of the document,
    so it is no poison of one value.
    """

    def reading(n: int) -> Record:
        return {
            "value": str(5 + n),
            "qualifiers": ["A"],
            "dateTime": f"2026-05-{1 + n // 24:02}T{n % 24:02}:00:00.000-05:00",
        }

    def render(records: list[Record]) -> dict[str, bytes]:
        about = {"sourceInfo": {"siteCode": [{"value": "07141220", "agencyCode": "USGS"}]}, "variable": {"variableCode": [{"value": "00060"}], "unit": {"unitCode": "ft3/s"}, "noDataValue": -999999.0, "options": {"option": [{"name": "Statistic", "optionCode": "00000"}]}}}  # fmt: skip
        text = json.dumps(
            {
                "value": {
                    "timeSeries": [
                        {**about, "values": [{"method": [{"methodID": 1}], "value": "@"}]}
                    ]
                }
            }
        )
        return {"feed": text.replace('"@"', f"[{', '.join(map(spelt, records))}]").encode()}

    return Feed("nwis", "json", [reading(n) for n in range(COUNT)], render, {
        "9999": (put("value", "9999"), "value.sentinel"),
        "-9999": (put("value", "-9999"), "value.sentinel"),
        "future": (put("dateTime", "2027-01-01T00:00:00Z"), "time.range"),
        "seconds": (put("dateTime", 1767657600), "time.range"),
        "year 0": (put("dateTime", "0000-01-01T00:00:00Z"), "time.range"),
        "type": (put("value", "high"), "nwis.value"),
    }, more={"options": {"service": "iv"}})  # fmt: skip


def sites() -> Feed:
    head = (
        "agency_cd\tsite_no\tstation_nm\tdec_lat_va\tdec_long_va\tdec_coord_datum_cd\talt_va",
        "5s\t15s\t50s\t16s\t16s\t10s\t8s",
    )
    rows = [
        f"USGS\t{7000000 + n}\tSAMPLE {n}\t{37.5 + n / 100:.2f}\t-98.5\tNAD83\t1500"
        for n in range(COUNT)
    ]
    return Feed("nwis", "rdb", rows, lines(*head), {
        "altitude -999999": (cell(6, "-999999", "\t"), "value.range"),
        "swapped": (lambda r: cell(3, "-98.5", "\t")(cell(4, "38.5", "\t")(r)), "geometry.range"),
        "type": (cell(6, "high", "\t"), "type"),
        "control": (cell(2, MARK, "\t"), "text.direction"),
    }, line=below(len(head)))  # fmt: skip


def peaks() -> Feed:
    head = ("agency_cd\tsite_no\tpeak_dt\tpeak_va\tpeak_cd\tgage_ht", "5s\t15s\t10d\t8s\t33s\t8s")
    rows = [f"USGS\t07141220\t{1780 + n}-05-01\t{500 + n}\t\t7.5" for n in range(COUNT)]
    return Feed("nwis", "rdb", rows, lines(*head), {
        "flow -9999": (cell(3, "-9999", "\t"), "value.sentinel"),
        "height 9999": (cell(5, "9999", "\t"), "value.sentinel"),
        "future": (cell(2, "2090-01-01", "\t"), "time.range"),
        "year 0": (cell(2, "0000-05-01", "\t"), "time.range"),
        "type": (cell(3, "high", "\t"), "type"),
    }, line=below(len(head)))  # fmt: skip


def ogc(collected: str) -> Feed:
    def feature(n: int) -> Record:
        when = (
            day(n) if collected == "daily" else f"2026-05-{1 + n // 24:02}T{n % 24:02}:00:00+00:00"
        )
        said = {
            "monitoring_location_id": "USGS-07141220",
            "time_series_id": "s",
            "parameter_code": "00060",
            "statistic_id": "00003",
        }
        said |= {"time": when, "value": f"{5 + n}", "unit_of_measure": "ft^3/s", "approval_status": "Approved", "qualifier": None, "last_modified": "2026-05-01T00:00:00Z"}  # fmt: skip
        return {"type": "Feature", "id": f"id{n}", "geometry": point(1), "properties": said}

    dated = {
        "seconds": (
            put("properties.time", 1767657600),
            "type" if collected == "daily" else "time.range",
        )
    }
    return Feed("usgs_ogc", "json", [feature(n) for n in range(COUNT)], collection(numberReturned=COUNT), {
        **dated,
        "-999999": (put("properties.value", "-999999"), "value.sentinel"),
        "9999": (put("properties.value", 9999), "value.sentinel"),
        "another unit": (put("properties.unit_of_measure", "m^3/s"), "unit.contradiction"),
        "future": (put("properties.time", "2027-01-01" if collected == "daily" else "2027-01-01T00:00:00Z"), "time.range"),
        "future stamp": (put("properties.last_modified", "9999-01-01T00:00:00Z"), "time.range"),
        "year 0": (put("properties.time", "0000-01-01" if collected == "daily" else "0000-01-01T00:00:00Z"), "time.range"),
        "swapped": (put("geometry.coordinates", SWAPPED), "geometry.range"),
        "duplicate": (twice("value", "7"), "json.duplicate"),
        "type": (put("properties.value", "high"), "type"),
        "control": (put("properties.approval_status", MARK), "text.direction"),
    }, more={"options": {"collection": collected}})  # fmt: skip


def ogc_sites() -> Feed:
    def place(n: int) -> Record:
        said = {"monitoring_location_name": f"Sample {n}", "drainage_area": 12.5, "altitude": 1500}
        return {"type": "Feature", "id": f"USGS-{n}", "geometry": point(n), "properties": said}

    return Feed("usgs_ogc", "json", [place(n) for n in range(COUNT)], collection(numberReturned=COUNT), {
        "altitude -999999": (put("properties.altitude", -999999), "value.range"),
        "drainage area -9999": (put("properties.drainage_area", -9999), "value.range"),
        "swapped": (put("geometry.coordinates", SWAPPED), "geometry.range"),
        "duplicate": (twice("altitude", 7), "json.duplicate"),
        "type": (put("properties.altitude", "high"), "type"),
        "control": (put("properties.monitoring_location_name", MARK), "text.direction"),
    }, more={"options": {"collection": "monitoring-locations"}})  # fmt: skip


def dly() -> Feed:
    station = "USC00144530"

    def month(n: int) -> str:
        values = "".join(f"{100 + (n + d) % 90:5}  7" if d < 28 else "-9999   " for d in range(31))
        return f"{station}{2000 + n // 12}{1 + n % 12:02}TMAX{values}"

    def slot(text: str) -> Poison:
        return lambda line: line[:29] + text.ljust(8) + line[37:]

    def head(at: int, text: str) -> Poison:
        return lambda line: line[:at] + text + line[at + len(text) :]

    return Feed("ghcnd", "dly", [month(n) for n in range(COUNT)], lines(name=station), {
        "+9999": (slot(" 9999  7"), "value.sentinel"),
        "-999": (slot(" -999  7"), "value.range"),
        "tenths of Fahrenheit": (slot("  951  7"), "value.range"),
        "type": (slot("  ab   7"), "ghcnd.value"),
        "control": (slot("  10\x1b  7"), "ghcnd.value"),
        "an unknown element": (head(17, "TMXA"), "ghcnd.element"),
        "year 0": (head(11, "0000"), "ghcnd.line"),
        "another station": (head(0, "USC00999999"), "ghcnd.station"),
    }, more={"options": {"state": "KS"}})  # fmt: skip


def ghcnd_csv() -> Feed:
    rows = [f"USC00144530,{day(n)},{15 + n % 9}.5,0.3" for n in range(COUNT)]
    return Feed("ghcnd", "csv", rows, lines("STATION,DATE,TMAX,PRCP"), {
        "999.9": (cell(2, "999.9"), "value.sentinel"),
        "-9999": (cell(2, "-9999"), "ghcnd.value"),
        "Fahrenheit": (cell(2, "98.6"), "value.range"),
        "less than nothing": (cell(3, "-0.3"), "value.range"),
        "type": (cell(2, "warm"), "ghcnd.value"),
    }, line=below(1), more={"options": {"state": "KS"}})  # fmt: skip


def ghcnd_stations() -> Feed:
    def station(n: int, lat: float = 38.5, lon: float = -98.5, high: float = 400.0) -> str:
        return (
            f"USC0014{n:04} {lat:8.4f} {lon:9.4f} {high:6.1f} KS {'SAMPLE':30} {'':3} {'':3} {'':5}"
        )

    return Feed("ghcnd", "txt", [station(n) for n in range(COUNT)], lines(name="stations"), {
        "elevation 9999": (lambda r: station(AT, high=9999.0), "value.range"),
        "swapped": (lambda r: station(AT, lat=-98.5, lon=38.5), "geometry.range"),
        "type": (lambda r: r.replace("38.5000", "  north"), "ghcnd.line"),
    }, more={"options": {"state": "KS"}})  # fmt: skip


def layer(wkid: int = 4326) -> Feed:
    def well(n: int) -> Record:
        x, y = (-98.5 + n / 1000, 38.5) if wkid == 4326 else (-10_900_000 + n, 4_600_000)
        said = {
            "OBJECTID": n + 1,
            "NAME": f"Sample {n}",
            "DEPTH": 3000 + n,
            "DONE": 1767225600000 + n * 86400000,
        }
        return {"attributes": said, "geometry": {"x": x, "y": y}}

    fields = [("OBJECTID", "OID"), ("NAME", "String"), ("DEPTH", "Double"), ("DONE", "Date")]
    about = {
        "geometryType": "esriGeometryPoint",
        "objectIdField": "OBJECTID",
        "extent": {"spatialReference": {"wkid": wkid}},
    }
    about["fields"] = [{"name": n, "type": f"esriFieldType{t}"} for n, t in fields]

    def render(records: list[Record]) -> dict[str, bytes]:
        page = f'{{"spatialReference": {{"wkid": {wkid}}}, "features": [{", ".join(map(spelt, records))}]}}'
        return {"layer": json.dumps(about).encode(), "page-0001": page.encode()}

    depth = Column(name="depth", type="number", min=0, max=40_000, sentinels=(9999,))
    schema = (
        Column(name="objectid", type="integer"),
        Column(name="name", type="string"),
        depth,
        Column(name="done", type="timestamp"),
    )
    moved = () if wkid == 4326 else (Column(name="source_crs", type="string"), Column(name="source_x", type="number"), Column(name="source_y", type="number"))  # fmt: skip
    more = {"schema": (*schema, *moved, Column(name="geometry", type="geometry"))}
    return Feed("arcgis", "json", [well(n) for n in range(COUNT)], render, {
        "seconds": (put("attributes.DONE", 1767657601), "time.unit"),
        "year 33658": (put("attributes.DONE", 10**15 - 1), "time.range"),
        "year 0": (put("attributes.DONE", -62135596800001), "time.range"),
        "a registered sentinel": (put("attributes.DEPTH", 9999), "value.sentinel"),
        "below what is registered": (put("attributes.DEPTH", -999), "value.range"),
        "degrees on a map of metres" if wkid != 4326 else "metres on the globe": (put("geometry", {"x": -98.5, "y": 38.5} if wkid != 4326 else {"x": -10_900_000, "y": 4_600_000}), "crs.range"),
        "swapped": (put("geometry", {"x": 38.5, "y": -98.5}), "crs.range"),
        "duplicate": (twice("DEPTH", 7), "json.duplicate"),
        "type": (put("attributes.DEPTH", "deep"), "type"),
        "control": (put("attributes.NAME", MARK), "text.direction"),
    }, more=more)  # fmt: skip


def items() -> Feed:
    def item(n: int) -> Record:
        x, y = point(n)["coordinates"]
        ring = [[x, y], [x + 0.05, y], [x + 0.05, y + 0.05], [x, y + 0.05], [x, y]]
        said = {"datetime": f"2025-06-{1 + n % 30:02}T16:00:00Z", "updated": "2026-01-01T00:00:00Z", "gsd": 0.6, "eo:cloud_cover": 5, "platform": "sample"}  # fmt: skip
        return {
            "type": "Feature", "stac_version": "1.0.0", "id": f"i{n}", "collection": "naip", "bbox": [x, y, x + 0.05, y + 0.05],
            "geometry": {"type": "Polygon", "coordinates": [ring]}, "links": [], "assets": {}, "properties": said,
        }  # fmt: skip

    around = [[y, x] for x, y in ([-98.5, 38.5], [-98.4, 38.5], [-98.4, 38.6], [-98.5, 38.5])]
    return Feed("stac", "json", [item(n) for n in range(COUNT)], collection(), {
        "future stamp": (put("properties.updated", "9999-01-01T00:00:00Z"), "time.range"),
        "year 9999": (put("properties.datetime", "9999-01-01T00:00:00Z"), "time.range"),
        "year 0": (put("properties.datetime", "0000-01-01T00:00:00Z"), "time.range"),
        "seconds": (put("properties.datetime", 1767657600), "stac.datetime"),
        "cloud cover -9999": (put("properties.eo:cloud_cover", -9999), "value.range"),
        "swapped": (put("geometry.coordinates", [around]), "geometry.range"),
        "duplicate": (twice("gsd", 7), "json.duplicate"),
        "type": (put("properties.gsd", "fine"), "type"),
        "control": (put("properties.platform", MARK), "text.direction"),
    })  # fmt: skip


PRJ = 'GEOGCS["GCS_North_American_1983",DATUM["D_North_American_1983",SPHEROID["GRS_1980",6378137.0,298.257222101]],PRIMEM["Greenwich",0.0],UNIT["Degree",0.0174532925199433]]'


def shapes() -> Feed:
    def render(records: list[Record]) -> dict[str, bytes]:
        width = 1 + 10 + 8 + 8
        dbf = struct.pack("<BBBBIHH20x", 3, 126, 1, 1, len(records), 32 * 3 + 33, width)
        dbf += b"".join(
            struct.pack("<11sc4xBB14x", n, t, s, 0)
            for n, t, s in ((b"NAME", b"C", 10), (b"DEPTH", b"N", 8), (b"DONE", b"D", 8))
        )
        dbf += (
            b"\r"
            + b"".join(
                f" {r['name']:10}{r['depth']:>8}{r['done']}".encode("cp1252") for r in records
            )
            + b"\x1a"
        )
        shp = b"".join(
            struct.pack(">2i", n, 10) + struct.pack("<i2d", 1, *r["at"])
            for n, r in enumerate(records, 1)
        )
        shx = b"".join(struct.pack(">2i", 50 + 14 * n, 10) for n in range(len(records)))

        def head(words: int) -> bytes:
            return struct.pack(">7i", 9994, 0, 0, 0, 0, 0, words) + struct.pack(
                "<2i8d", 1000, 1, -102, 37, -92, 42, 0, 0, 0, 0
            )

        files = {
            "shp": head(50 + len(shp) // 2) + shp,
            "shx": head(50 + len(shx) // 2) + shx,
            "dbf": dbf,
            "prj": PRJ.encode(),
            "cpg": b"1252",
        }
        out = io.BytesIO()
        with zipfile.ZipFile(out, "w") as pack:
            for suffix, content in files.items():
                pack.writestr(f"layer.{suffix}", content)
        return {"feed": out.getvalue()}

    depth = Column(name="depth", type="integer", min=0, sentinels=(9999,))
    done = Column(name="done", type="date", max="2026-06-01")
    named = (
        Column(name="name", type="string"),
        depth,
        done,
        Column(name="source_crs", type="string"),
    )
    schema = (
        *named,
        *(Column(name=n, type="number") for n in ("source_x", "source_y")),
        Column(name="geometry", type="geometry"),
    )
    records = [
        {"name": f"s{n}", "depth": 100 + n, "done": "20250101", "at": (-98.5 + n / 1000, 38.5)}
        for n in range(COUNT)
    ]
    return Feed("shapefile", "zip", records, render, {
        "a registered sentinel": (put("depth", 9999), "value.sentinel"),
        "below what is registered": (put("depth", -999), "value.range"),
        "future": (put("done", "20991231"), "time.range"),
        "swapped": (put("at", (38.5, -98.5)), "crs.range"),
        "metres": (put("at", (500_000.0, 4_200_000.0)), "crs.range"),
        "control": (put("name", "a\x1bb"), "text.control"),
    }, more={"schema": schema})  # fmt: skip


def delimited() -> Feed:
    rows = [
        f"s{n};{15 + n % 9}.5;2025-06-01 12:{n % 60:02};{600_000 + n};4260000" for n in range(COUNT)
    ]
    columns = [
        {"from": "name", "to": "name", "type": "string"},
        {"from": "warm", "to": "warm", "type": "number", "unit": "Cel"},
    ]
    columns.append({"from": "at", "to": "at", "type": "timestamp", "format": ["%Y-%m-%d %H:%M"]})
    mapping = {
        "delimiter": ";",
        "columns": columns,
        "time_zone": "UTC",
        "crs": "EPSG:26914",
        "x": "x",
        "y": "y",
        "geometry": "point",
    }
    warm = Column(name="warm", type="number", unit="Cel", min=-95, max=65, sentinels=(-9999,))
    at = Column(name="at", type="timestamp", min="1900-01-01", max="2026-06-01")
    places = [Column(name=n, type="number", unit="deg") for n in ("longitude", "latitude")] + [
        Column(name="source_crs", type="string")
    ]
    places += [
        *(Column(name=n, type="number") for n in ("source_x", "source_y")),
        Column(name="geometry", type="geometry"),
    ]
    return Feed("delimited", "csv", rows, lines("name;warm;at;x;y"), {
        "a registered sentinel": (cell(1, "-9999", ";"), "value.sentinel"),
        "Fahrenheit": (cell(1, "98.6", ";"), "value.range"),
        "future": (cell(2, "2099-06-01 12:00", ";"), "time.range"),
        "year 9999": (cell(2, "9999-06-01 12:00", ";"), "time.range"),
        "degrees on a map of metres": (lambda r: cell(3, "-98.5", ";")(cell(4, "38.5", ";")(r)), "crs.range"),
        "swapped": (lambda r: cell(3, "4260000", ";")(cell(4, "600000", ";")(r)), "crs.range"),
        "type": (cell(1, "warm", ";"), "type"),
        "control": (cell(0, MARK, ";"), "text.direction"),
    }, line=below(1), more={"mapping": mapping, "schema": (Column(name="name", type="string"), warm, at, *places)})  # fmt: skip


def fixed_width() -> Feed:
    rows = [f"s{n:04}{1.5 + n:8.2f}{day(n)}" for n in range(COUNT)]
    columns = [{"name": "id", "start": 1, "width": 5}, {"name": "height", "start": 6, "width": 8}]
    columns += [{"name": "day", "start": 14, "width": 10}]
    return Feed("fixed_width", "txt", rows, lines("ID   HEIGHT  DAY"), {
        "type": (lambda r: r[:5] + "    tall" + r[13:], "type"),
        "no such day": (lambda r: r[:13] + "2026-02-31", "type"),
        "year 0": (lambda r: r[:13] + "0000-01-01", "time.range"),
        "a tab": (lambda r: r.replace(" ", "\t", 1), "fixed_width.tab"),
        "short": (lambda r: r[:-1], "fixed_width.line"),
        "control": (lambda r: MARK[0] + r[1:], "text.direction"),
    }, line=below(1), more={"options": {"columns": columns, "line": 23, "skip_lines": 1}})  # fmt: skip


def spreadsheet(form: str) -> Feed:
    rows = [[f"s{n}", 1.5 + n, day(n)] for n in range(COUNT)]

    def render(records: list[Record]) -> dict[str, bytes]:
        listed: list[list[object]] = [["Id", "Height", "Day"], *records]
        return {"feed": xlsx(sheet(listed)) if form == "xlsx" else ods(Feed=[*listed])}

    error = {
        "xlsx": '<c t="e"><v>#REF!</v></c>',
        "ods": '<table:table-cell office:value-type="string" calcext:value-type="error"/>',
    }
    return Feed("spreadsheet", form, rows, render, {
        "type": (lambda r: [r[0], "tall", r[2]], "type"),
        "an error": (lambda r: [r[0], error[form], r[2]], "spreadsheet.error"),
        "a longer row": (lambda r: [*r, "more"], "spreadsheet.columns"),
        "year 0": (lambda r: [r[0], r[1], "0000-01-01"], "time.range"),
        "control": (lambda r: [MARK, r[1], r[2]], "text.direction"),
    }, line=below(1))  # fmt: skip


def elements() -> Feed:
    rows = [f"<w id='s{n}'><h>{1.5 + n}</h><d>{day(n)}</d></w>" for n in range(COUNT)]

    def render(records: list[Record]) -> dict[str, bytes]:
        return {"feed": f"<feed>{''.join(records)}</feed>".encode()}

    return Feed("xml", "xml", rows, render, {
        "type": (lambda r: r.replace("<h>", "<h>tall "), "type"),
        "twice": (lambda r: r.replace("</h>", "</h><h>7</h>"), "xml.repeated"),
        "year 0": (lambda r: r[: r.index("<d>")] + "<d>0000-01-01</d></w>", "time.range"),
        "control": (lambda r: r.replace("id='", f"id='{MARK}"), "text.direction"),
    }, more={"options": {"records": "/feed/w"}})  # fmt: skip


def parquet() -> Feed:
    rows = [{"id": f"s{n}", "height": 1.5 + n, "at": dt.datetime(2026, 1, 1)} for n in range(COUNT)]

    def render(records: list[Record]) -> dict[str, bytes]:
        out = io.BytesIO()
        stamp = pa.timestamp("us", "UTC")
        schema = pa.schema({"id": pa.string(), "height": pa.float64(), "at": stamp})
        pq.write_table(pa.Table.from_pylist(records, schema), out)
        return {"feed": out.getvalue()}

    return Feed("parquet", "parquet", rows, render, {
        "not finite": (put("height", float("-inf")), "number.nonfinite"),
        "year 9999": (put("at", 253_402_300_800_000_000), "time.range"),
        "control": (put("id", MARK), "text.direction"),
    })  # fmt: skip


def geopackage() -> Feed:
    """Written by hand: a table, its shapes behind the header that a GeoPackage has."""
    rows = [
        {"id": f"s{n}", "height": 1.5 + n, "at": "2026-01-01T00:00:00Z", "x": -98.5}
        for n in range(COUNT)
    ]
    about = """
        CREATE TABLE gpkg_contents (table_name, data_type, min_x, min_y, max_x, max_y);
        INSERT INTO gpkg_contents VALUES ('wells', 'features', NULL, NULL, NULL, NULL);
        CREATE TABLE gpkg_spatial_ref_sys (srs_id, organization, organization_coordsys_id, definition);
        INSERT INTO gpkg_spatial_ref_sys VALUES (4326, 'EPSG', 4326, '');
        CREATE TABLE gpkg_geometry_columns (table_name, column_name, geometry_type_name, srs_id);
        INSERT INTO gpkg_geometry_columns VALUES ('wells', 'geom', 'POINT', 4326);
        CREATE TABLE wells (id TEXT, height DOUBLE, at DATETIME, geom POINT);
    """

    def render(records: list[Record]) -> dict[str, bytes]:
        with contextlib.closing(sqlite3.connect(":memory:")) as db:
            db.executescript(about)
            for r in records:
                head = b"GP\0\x01" + struct.pack("<i", r.get("srs", 4326))
                shape = head + struct.pack("<BI2d", 1, 1, r["x"], 38.5)
                db.execute(
                    "INSERT INTO wells VALUES (?, ?, ?, ?)", (r["id"], r["height"], r["at"], shape)
                )
            db.commit()
            return {"feed": db.serialize()}

    return Feed("geopackage", "gpkg", rows, render, {
        "text among numbers": (put("height", "tall"), "type"),
        "not finite": (put("height", float("-inf")), "number.nonfinite"),
        "no time": (put("at", "2026-01-01 00:00"), "type"),
        "off the globe": (put("x", 5000.0), "crs.range"),
        "another system": (put("srs", 3857), "crs.contradiction"),
        "control": (put("id", MARK), "text.direction"),
    })  # fmt: skip


def documents() -> Feed:
    """Text alone: its date and title are the registry's."""

    rows = [f"Paragraph {n} of a document that was written for this." for n in range(COUNT)]
    return Feed("documents", "txt", rows, lambda records: {"feed": ("\n\n".join(records) + "\n").encode()}, {
        "control": (lambda r: r[:-1] + MARK[0], "text.direction"),
    })  # fmt: skip


def rasters() -> Feed:
    def picture(of: Record) -> bytes:
        from rasterio.io import MemoryFile
        from rasterio.transform import Affine

        data = np.full((8, 8), 15.0, np.float32)
        data[3, 3] = of["pixel"]
        west, north, step = of["at"]
        with MemoryFile() as memory:
            with memory.open(driver="GTiff", width=8, height=8, count=1, dtype="float32", crs=of["crs"], transform=Affine(step, 0, west, 0, -step, north)) as out:  # fmt: skip
                out.write(data, 1)
            return bytes(memory.read())

    def render(records: list[Record]) -> dict[str, bytes]:
        return {f"r{n:03}": picture(r) for n, r in enumerate(records)}

    honest = {"pixel": 16.0, "at": (600_000.0, 4_260_000.0, 30.0), "crs": "EPSG:32614"}
    return Feed("raster", "tif", [honest] * 6, render, {
        "an undeclared -9999": (put("pixel", -9999.0), "value.sentinel"),
        "an undeclared 9999": (put("pixel", 9999.0), "value.sentinel"),
        "degrees on a map of metres": (put("at", (-98.5, 38.5, 0.001)), "crs.range"),
        "metres on the globe": (put("crs", "EPSG:4326"), "crs.range"),
        "swapped": (lambda r: r | {"at": (38.5, -98.5, 0.001), "crs": "EPSG:4326"}, "crs.range"),
    }, line=lambda at: 1, share=0.5)  # fmt: skip


def plain_json() -> Feed:
    records = [
        {
            "id": f"s{n}",
            "day": day(n),
            "at": f"2026-01-01T{n // 60:02}:{n % 60:02}:00Z",
            "height": 1.5 + n,
        }
        for n in range(COUNT)
    ]
    return Feed("http_file", "json", records, lambda rows: {"feed": f"[{', '.join(map(spelt, rows))}]".encode()}, {
        "year 0": (put("day", "0000-01-01"), "time.range"),
        "moment in the year 0": (put("at", "0000-01-01T00:00:00Z"), "time.range"),
        "duplicate": (twice("height", 7), "json.duplicate"),
    })  # fmt: skip


def plain_csv() -> Feed:
    rows = [f"s{n},{1.5 + n},{38.5 + n / 1000:.3f},-98.5" for n in range(COUNT)]
    height = Column(name="height", type="number", min=0, max=1000, sentinels=(999.9,))
    schema = (
        Column(name="id", type="string"),
        height,
        *(Column(name=n, type="number") for n in ("latitude", "longitude")),
    )
    return Feed("http_file", "csv", rows, lines("id,height,latitude,longitude"), {
        "a registered sentinel": (cell(1, "999.9"), "value.sentinel"),
        "above what is registered": (cell(1, "9999"), "value.range"),
        "swapped": (lambda r: cell(2, "-98.5")(cell(3, "38.5")(r)), "geometry.range"),
        "swapped, seen by the extent": (lambda r: cell(2, "-60.5")(cell(3, "38.5")(r)), "geometry.swapped"),
        "type": (cell(1, "tall"), "type"),
        "control": (cell(0, MARK), "text.direction"),
    }, line=below(1), more={"schema": schema, "extent": (-102.0, 37.0, -60.0, 40.0)})  # fmt: skip


FEEDS: dict[str, Callable[[], Feed]] = {
    "quakes": quakes, "quakes csv": quakes_csv, "observations": observations, "alerts": alerts, "stations": stations, "rdb": rdb,
    "waterml": waterml, "sites": sites, "peaks": peaks, "ogc daily": lambda: ogc("daily"), "ogc continuous": lambda: ogc("continuous"),
    "ogc sites": ogc_sites, "dly": dly, "ghcnd csv": ghcnd_csv, "ghcnd stations": ghcnd_stations, "arcgis": layer,
    "fixed width": fixed_width, "geopackage": geopackage, "parquet": parquet, "xml": elements, "xlsx": lambda: spreadsheet("xlsx"), "ods": lambda: spreadsheet("ods"),
     "arcgis in metres": lambda: layer(3857), "stac": items, "shapefile": shapes, "delimited": delimited, "documents": documents,
    "raster": rasters, "plain json": plain_json, "plain csv": plain_csv,
}  # fmt: skip
