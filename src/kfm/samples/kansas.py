"""Invented answers in the shapes of the agencies the Kansas workspace registers; no value in them
is real.
"""

import io
import json
import math
import struct
import zipfile
from collections.abc import Callable
from functools import cache
from urllib.parse import parse_qs, parse_qsl

from kfm.model import Json

__all__ = ["HOSTS", "answer"]

Answer = tuple[int, str, bytes]  # status, content type, body
_JSON, _GEO = "application/json", "application/geo+json"
_STATIONS = ("USC00144530", "USC00144531", "USW00013985", "US1KSPN0001")
# 105, on a grid of 15 by 7 that is no map of Kansas
_COUNTIES = [f"20{n:03}" for n in range(1, 210, 2)]
_DAYS = 120
_WEST, _SOUTH, _WIDE, _HIGH = -102.0, 37.0, 0.49, 0.428


def _noise(*seed: object) -> float:
    """A number from 0 to 1 that depends on the seed alone."""
    import zlib

    return zlib.crc32("/".join(map(str, seed)).encode()) / 2**32


def _json(value: object, kind: str = _JSON) -> Answer:
    return 200, kind, json.dumps(value).encode()


def _text(lines: list[str], kind: str = "text/plain") -> Answer:
    return 200, kind, ("\n".join(lines) + "\n").encode()


# ---- weather -------------------------------------------------------------------------------------
def _ghcnd(path: str) -> Answer | None:
    name = path.removeprefix("/pub/data/ghcn/daily/")
    if name == "ghcnd-version.txt":
        return _text(
            [
                "The current version of GHCN Daily is 9.99-upd-2026010100 (synthetic)",
                "appended to version: 9.99-por-2026010100.",
            ]
        )
    if name == "ghcnd-stations.txt":
        places = [
            (s, 37.2 + n * 0.7, -101 + n * 1.5, 400.0 + n * 50) for n, s in enumerate(_STATIONS)
        ]
        return _text(
            [
                f"{s:11} {y:8.4f} {x:9.4f} {z:6.1f} KS {'SAMPLE ' + s[-4:]:30} {'':3} {'':3} {'':5}"
                for s, y, x, z in places
            ]
        )
    station = name.removeprefix("all/").removesuffix(".dly")
    if station not in _STATIONS:
        return None
    return _text(
        [
            _dly(station, year, month, element)
            for year in (2024,)
            for month in range(1, 13)
            for element in ("TMAX", "TMIN", "PRCP")
        ]
    )


def _dly(station: str, year: int, month: int, element: str) -> str:
    days = (
        29
        if (month, year) == (2, 2024)
        else [31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31][month - 1]
    )
    slots = []
    for day in range(1, 32):
        draw = _noise(station, year, month, day, element)
        if day > days or draw < 0.01:
            slots.append("-9999   ")
        elif element == "PRCP":
            slots.append(
                f"{0 if draw < 0.75 else round((draw - 0.75) * 1600):5d}{'T' if 0.7 < draw < 0.72 else ' '} 7"
            )
        else:
            warm = round(
                120
                - 150 * math.cos((month - 1) * math.pi / 6)
                + (60 if element == "TMAX" else -60)
                + 80 * (draw - 0.5)
            )
            slots.append(f"{warm:5d} {'I' if draw > 0.998 else ' '}7")
    return f"{station}{year}{month:02}{element}{''.join(slots)}"


def _alerts() -> Answer:
    def alert(
        number: int,
        event: str,
        area: str,
        ugc: list[str],
        same: list[str],
        ring: list[list[float]] | None,
    ) -> Json:
        name = f"urn:oid:2.49.0.1.840.0.sample.{number}"
        times = {
            k: f"2026-01-0{d}T0{h}:00:00-06:00"
            for k, d, h in (
                ("sent", 1, 1),
                ("effective", 1, 1),
                ("onset", 1, 2),
                ("expires", 1, 9),
                ("ends", 2, 3),
            )
        }
        words = {
            "status": "Actual",
            "messageType": "Alert",
            "severity": "Moderate",
            "certainty": "Likely",
            "urgency": "Expected",
        }
        return {
            "id": f"https://api.weather.gov/alerts/{name}",
            "type": "Feature",
            "geometry": {"type": "Polygon", "coordinates": [ring]} if ring else None,
            "properties": {
                "id": name,
                "areaDesc": area,
                "geocode": {"UGC": ugc, "SAME": same},
                "affectedZones": [],
                "references": [],
                **times,
                **words,
                "event": event,
                "headline": f"{event} (invented sample)",
                "sender": "sample@kfm.example",
                "senderName": "Sample office",
            },
        }

    box = [[-98.0, 38.0], [-97.5, 38.0], [-97.5, 38.5], [-98.0, 38.5], [-98.0, 38.0]]
    features = [
        alert(1, "Flood Warning", "Sample, KS", ["KSC001"], ["020001"], box),
        alert(
            2,
            "Wind Advisory",
            "Sample; Sample, KS",
            ["KSC003", "KSC005"],
            ["020003", "020005"],
            None,
        ),
        alert(3, "Heat Advisory", "Sample, AR", ["ARC001"], ["005001"], None),
    ]
    return _json(
        {
            "type": "FeatureCollection",
            "features": features,
            "title": "Synthetic alerts",
            "updated": "2026-01-01T00:00:00+00:00",
        },
        _GEO,
    )


# ---- water and earth -----------------------------------------------------------------------------
def _flow(day: int) -> tuple[str, str]:
    """(value, code) of one day: measured, a true zero, estimated or missing."""
    draw = _noise("flow", day)
    if draw < 0.02:
        return "", ""
    value = 0.0 if draw < 0.2 else round(5 + 40 * draw + 20 * abs(math.sin(day / 58)), 2)
    return f"{value:g}", "A:e" if draw > 0.95 else "A"


def _days(since: str, until: str) -> list[tuple[int, str]]:
    """(number, day) from one day to another, both of which count, of an archive from August 1998 to
    the end of 2025.
    """
    import datetime as dt

    first, last, zero = (
        dt.date.fromisoformat(d)
        for d in (max(since, "1998-08-01"), min(until, "2025-12-31"), "2025-01-01")
    )
    return [
        (n, str(zero + dt.timedelta(days=n)))
        for n in range((first - zero).days, (last - zero).days + 1)
    ]


def _nwis(query: str) -> Answer:
    """Of the days asked for the first 120: fourteen years are too many for a sample."""
    asked = {k: v[0][:10] for k, v in parse_qs(query).items()}
    days = _days(asked.get("startDT", "2025-01-01"), asked.get("endDT", "2025-12-31"))[:_DAYS]
    rows = [
        f"USGS\t07141220\t{day}\t{_flow(n)[0]}\t{_flow(n)[1]}\t{3 + _noise('stage', n):.2f}\tA"
        for n, day in days
    ]
    names = [
        "agency_cd",
        "site_no",
        "datetime",
        *(f"{ts}_{p}_00003{cd}" for ts, p in ((1, "00060"), (2, "00065")) for cd in ("", "_cd")),
    ]
    return _text(
        [
            "# Synthetic daily values, no real gauge",
            "\t".join(names),
            "5s\t15s\t20d\t14n\t10s\t14n\t10s",
            *rows,
        ]
    )


def _ogc(query: str) -> Answer:
    """The days of the time asked for, 50 to a page; who asks for none gets the first 120 of
    2025.
    """
    asked = dict(parse_qsl(query))
    at, (since, _, until) = (
        int(asked.get("cursor", "0")),
        (asked.get("time") or asked.get("datetime") or "2025-01-01/2025-04-30").partition("/"),
    )
    days = _days(
        *(
            day[:10].replace("..", end)
            for day, end in ((since, "1998-08-01"), (until or since, "2025-12-31"))
        )
    )
    rows = days[at : at + 50]
    features = [
        {
            "type": "Feature",
            "id": f"sample-{n}",
            "geometry": {"type": "Point", "coordinates": [-99.1, 38.2]},
            "properties": {
                "monitoring_location_id": "USGS-07141220",
                "time_series_id": "sample-series",
                "parameter_code": "00060",
                "statistic_id": "00003",
                "time": day,
                "value": _flow(n)[0] or None,
                "unit_of_measure": "ft^3/s",
                "approval_status": "Approved" if n < 100 else "Provisional",
                "qualifier": ["ESTIMATED"] if _flow(n)[1] == "A:e" else None,
                "last_modified": "2026-01-01T00:00:00+00:00",
            },
        }
        for n, day in rows
    ]
    base = "https://api.waterdata.usgs.gov/ogcapi/v0/collections/daily/items"
    kept = "&".join(f"{k}={v}" for k, v in parse_qsl(query) if k != "cursor")
    links = (
        [{"rel": "next", "type": _GEO, "href": f"{base}?{kept}&cursor={at + 50}"}]
        if at + 50 < len(days)
        else []
    )
    return _json(
        {
            "type": "FeatureCollection",
            "numberReturned": len(features),
            "features": features,
            "links": links,
        },
        _GEO,
    )


def _quakes(query: str) -> Answer:
    """The feed; as a catalogue, asked with starttime and endtime, only the events between them."""
    import datetime as dt

    asked = {k: v[0] for k, v in parse_qs(query).items()}
    since, until = (
        (
            dt.datetime.fromisoformat(asked[k] if "T" in asked[k] else asked[k] + "T00:00:00")
            .replace(tzinfo=dt.UTC)
            .timestamp()
            * 1000
            if asked.get(k)
            else open_end
        )
        for k, open_end in (("starttime", -math.inf), ("endtime", math.inf))
    )
    events = [
        (f"ks{n}", -101 + 6 * _noise("x", n), 37.2 + 2.5 * _noise("y", n), "Sample, Kansas")
        for n in range(6)
    ]
    events += [(f"ar{n}", -92.5 + _noise(n), 35.2, "Sample, Arkansas") for n in range(3)] + [
        (f"ak{n}", -150.0 - n, 61.0, "Sample, Alaska") for n in range(12)
    ]
    features = [
        {
            "type": "Feature",
            "id": f"sample{name}",
            "geometry": {"type": "Point", "coordinates": [round(x, 4), round(y, 4), 5.0]},
            "properties": {
                "mag": round(1 + 2 * _noise("m", name), 1),
                "place": place,
                "time": 1767225600000 + n * 3600000,
                "updated": 1767225600000 + n * 3600000,
                "type": "quarry blast" if name == "ks5" else "earthquake",
                "status": "reviewed",
                "net": "sample",
                "code": name,
                "magType": "ml",
                "ids": f",sample{name},",
                "tsunami": 0,
                "felt": None,
                "url": f"https://earthquake.usgs.gov/earthquakes/eventpage/sample{name}",
            },
        }
        for n, (name, x, y, place) in enumerate(events)
        if since <= 1767225600000 + n * 3600000 <= until
    ]
    return _json(
        {
            "type": "FeatureCollection",
            "metadata": {"count": len(features), "title": "Synthetic feed", "api": "1.14.1"},
            "features": features,
        },
        _GEO,
    )


def _wells(path: str, query: str) -> Answer:
    fields = {k: v[0] for k, v in parse_qs(query).items()}
    columns = [
        {"name": "OBJECTID", "type": "esriFieldTypeOID"},
        {"name": "LEASE_NAME", "type": "esriFieldTypeString"},
    ]
    columns += [
        {"name": "TOTAL_DEPTH", "type": "esriFieldTypeDouble"},
        {"name": "COMPLETION_DATE", "type": "esriFieldTypeDate"},
    ]
    if not path.endswith("/query"):
        paging = {"supportsPagination": True, "supportsOrderBy": True}
        return _json(
            {
                "currentVersion": 10.91,
                "name": "SAMPLE_WELLS",
                "type": "Feature Layer",
                "geometryType": "esriGeometryPoint",
                "objectIdField": "OBJECTID",
                "copyrightText": "",
                "fields": columns,
                "maxRecordCount": 60,
                "advancedQueryCapabilities": paging,
                "extent": {"spatialReference": {"wkid": 4267}},
            }
        )
    total = 130
    if fields.get("returnCountOnly") == "true":
        return _json({"count": total})
    if fields.get("returnIdsOnly") == "true":
        return _json({"objectIdFieldName": "OBJECTID", "objectIds": list(range(1, total + 1))})
    first = int(fields.get("resultOffset", "0"))
    numbers = range(first + 1, min(first + 60, total) + 1)
    features = [
        {
            "attributes": {
                "OBJECTID": n,
                "LEASE_NAME": f"Sample {n}",
                "TOTAL_DEPTH": round(3000 + 900 * _noise(n)),
                "COMPLETION_DATE": -600000000000 + n * 10**8,
            },
            "geometry": {
                "x": round(-99.7 + _noise("x", n) / 10, 6),
                "y": round(39.2 + _noise("y", n) / 10, 6),
            },
        }
        for n in numbers
    ]
    more = {"exceededTransferLimit": True} if first + 60 < total else {}
    return _json(
        {
            "geometryType": "esriGeometryPoint",
            "spatialReference": {"wkid": 4267},
            "fields": columns,
            "features": features,
            **more,
        }
    )


# ---- places --------------------------------------------------------------------------------------
def _corner(number: int) -> tuple[float, float]:
    return _WEST + (number % 15) * _WIDE, _SOUTH + (number // 15) * _HIGH


def _topology() -> Answer:
    """The same boxes as TopoJSON, quantised to a ten-thousandth of a degree."""
    arcs = []
    for number in range(105):
        x, y = _corner(number)
        at = [round((x - _WEST) * 10000), round((y - _SOUTH) * 10000)]
        arcs.append([at, [4900, 0], [0, 4280], [-4900, 0], [0, -4280]])
    shapes = [
        {"type": "Polygon", "id": c, "arcs": [[n]], "properties": {"name": f"Sample {c}"}}
        for n, c in enumerate(_COUNTIES)
    ]
    scale = {"scale": [0.0001, 0.0001], "translate": [_WEST, _SOUTH]}
    return _json(
        {
            "type": "Topology",
            "transform": scale,
            "objects": {"counties": {"type": "GeometryCollection", "geometries": shapes}},
            "arcs": arcs,
        }
    )


@cache
def _shapefile() -> Answer:
    places = [("20", c, *_corner(n)) for n, c in enumerate(_COUNTIES)] + [
        ("29", "29001", -93.0, 38.0),
        ("31", "31001", -98.0, 41.0),
    ]
    fields = (("STATEFP", 2), ("COUNTYFP", 3), ("GEOID", 5), ("NAME", 30))
    dbf = struct.pack(
        "<BBBBIHH20x",
        3,
        126,
        1,
        1,
        len(places),
        32 * len(fields) + 33,
        1 + sum(n for _, n in fields),
    )
    dbf += (
        b"".join(struct.pack("<11sc4xBB14x", name.encode(), b"C", size, 0) for name, size in fields)
        + b"\r"
    )
    records, index, offset = [], [], 50
    for number, (state, geoid, x, y) in enumerate(places, 1):
        dbf += b" " + b"".join(
            v.ljust(n).encode()
            for v, (_, n) in zip((state, geoid[2:], geoid, f"Sample {geoid}"), fields)
        )
        ring = [(x, y), (x, y + _HIGH), (x + _WIDE, y + _HIGH), (x + _WIDE, y), (x, y)]
        shape = struct.pack("<i4d2ii", 5, x, y, x + _WIDE, y + _HIGH, 1, 5, 0) + b"".join(
            struct.pack("<2d", *p) for p in ring
        )
        records.append(struct.pack(">2i", number, len(shape) // 2) + shape)
        index.append(struct.pack(">2i", offset, len(shape) // 2))
        offset += len(records[-1]) // 2

    def header(words: int) -> bytes:
        return struct.pack(">7i", 9994, 0, 0, 0, 0, 0, words) + struct.pack(
            "<2i8d", 1000, 5, -102, 37, -92, 42, 0, 0, 0, 0
        )

    prj = 'GEOGCS["GCS_North_American_1983",DATUM["D_North_American_1983",SPHEROID["GRS_1980",6378137.0,298.257222101]],PRIMEM["Greenwich",0.0],UNIT["Degree",0.0174532925199433]]'
    files = {
        "shp": header(offset) + b"".join(records),
        "shx": header(50 + 4 * len(index)) + b"".join(index),
        "dbf": dbf + b"\x1a",
        "prj": prj.encode(),
        "cpg": b"UTF-8",
    }
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as pack:
        for suffix, content in files.items():
            pack.writestr(
                zipfile.ZipInfo(f"cb_2014_us_county_20m.{suffix}", (2026, 1, 1, 0, 0, 0)), content
            )
    return 200, "application/zip", out.getvalue()


def _dates() -> Answer:
    head = "LabID,Age,Error,Material,Taxa,d13C,Method,Long,Lat,LocAccuracy,Period,SiteID,SiteName,Country,Province,Continent,Source,Reference"
    rows = []
    for n in range(420):
        x, y = _corner(n * 7 % 105)
        material = ("CHARCOAL", "SEEDS", "BONE")[n % 3]
        rows.append(
            f"SAM-{n:04},{200 + n * 7}.0,{30 + n % 40}.0,{material},,,AMS,{x + 0.2:.2f},{y + 0.2:.2f},1.0,,14XX{n % 140:03},,USA,Kansas,North"
            " America,Sample,Invented 2026"
        )
    return _text([head, *rows], "text/csv")


def _within(moment: str, since: str, until: str) -> bool:
    """Whether a moment lies in a range that may be open at either end."""
    return (since in ("", "..") or since <= moment) and (until in ("", "..") or moment <= until)


def _items(body: bytes) -> Answer:
    """A search over twelve invented aerial images, eight to a page, of the time asked for."""
    asked = json.loads(body or b"{}")
    first, (since, _, until) = (
        8 if asked.get("token") else 0,
        str(asked.get("datetime") or "").partition("/"),
    )
    found = [
        n for n in range(12) if _within(f"2025-06-{n + 1:02}T16:00:00Z", since, until or since)
    ]
    features = []
    for n in found[first : first + 8]:
        x, y = _corner(n * 9)
        box = [round(v, 6) for v in (x, y, x + 0.0625, y + 0.0625)]
        ring = [
            [box[0], box[1]],
            [box[2], box[1]],
            [box[2], box[3]],
            [box[0], box[3]],
            [box[0], box[1]],
        ]
        image = {
            "href": f"https://naipeuwest.blob.core.windows.net/naip/sample/ks_{n}.tif",
            "type": "image/tiff; application=geotiff",
            "roles": ["data"],
        }
        features.append(
            {
                "type": "Feature",
                "stac_version": "1.0.0",
                "stac_extensions": [],
                "id": f"ks_sample_{n:02}",
                "collection": "naip",
                "bbox": box,
                "geometry": {"type": "Polygon", "coordinates": [ring]},
                "links": [],
                "assets": {"image": image},
                "properties": {
                    "datetime": f"2025-06-{n + 1:02}T16:00:00Z",
                    "gsd": 0.6,
                    "proj:epsg": 26914,
                },
            }
        )
    url = "https://planetarycomputer.microsoft.com/api/stac/v1/search"
    links = (
        [
            {
                "rel": "next",
                "method": "POST",
                "href": url,
                "body": {**asked, "token": "next:naip:ks_sample_07"},
            }
        ]
        if first + 8 < len(found)
        else []
    )
    return _json({"type": "FeatureCollection", "features": features, "links": links}, _GEO)


def _treaty(path: str) -> Answer:
    name = path.rpartition("/")[2].removesuffix(".htm")
    paragraphs = [f"SAMPLE DOCUMENT {name.upper()}, WRITTEN FOR THIS DEMONSTRATION."]
    paragraphs += [
        f"ARTICLE {n}. The parties to this invented document agree on point {n} of {name}, and"
        " nothing here was ever signed."
        for n in range(1, 7)
    ]
    return _text(["\ufeff" + "\n\n".join(paragraphs)])


def _grib(path: str) -> Answer:
    """One GRIB2 message: 2 m temperature on a coarse longitude and latitude grid around Kansas,
    packed in 16 bits.
    """
    day = path.partition("nam.")[2][:8]
    nx, ny = 33, 17
    values = [
        round((285 + 8 * math.sin(i / 5) + 6 * math.cos(j / 3)) * 10)
        for j in range(ny)
        for i in range(nx)
    ]
    low = min(values)

    def section(number: int, content: bytes) -> bytes:
        return struct.pack(">IB", len(content) + 5, number) + content

    when = struct.pack(">H5B", int(day[:4]), int(day[4:6]), int(day[6:]), 0, 0, 0)
    micro = 10**6
    grid = (
        struct.pack(">BIBBH", 0, nx * ny, 0, 0, 0)
        + struct.pack(">B B I B I B I", 6, 0, 0, 0, 0, 0, 0)
        + struct.pack(">IIII", nx, ny, 0, 0xFFFFFFFF)
    )
    grid += struct.pack(
        ">I I B I I I I B",
        36 * micro,
        256 * micro,
        0x30,
        44 * micro,
        272 * micro,
        micro // 2,
        micro // 2,
        0x40,
    )
    product = (
        struct.pack(">HH", 0, 0)
        + struct.pack(">BBBBBHBBI", 0, 0, 2, 0, 96, 0, 0, 1, 0)
        + struct.pack(">BbIBbI", 103, 0, 2, 255, 0, 0)
    )
    packing = struct.pack(">IH", nx * ny, 0) + struct.pack(">fhHBB", float(low), 0, 1, 16, 0)
    data = b"".join(struct.pack(">H", v - low) for v in values)
    parts = (
        section(1, struct.pack(">HHBBB", 7, 0, 2, 1, 0) + when + struct.pack(">BB", 0, 0))
        + section(3, grid)
        + section(4, product)
    )
    parts += section(5, packing) + section(6, b"\xff") + section(7, data) + b"7777"
    return (
        200,
        "application/octet-stream",
        struct.pack(">4sHBBQ", b"GRIB", 0, 0, 2, len(parts) + 16) + parts,
    )


HOSTS: dict[str, Callable[[str, str, bytes], Answer | None]] = {
    "www.ncei.noaa.gov": lambda path, query, body: _ghcnd(path),
    "api.weather.gov": lambda path, query, body: _alerts() if path == "/alerts/active" else None,
    "waterservices.usgs.gov": lambda path, query, body: _nwis(query),
    "api.waterdata.usgs.gov": lambda path, query, body: _ogc(query),
    "earthquake.usgs.gov": lambda path, query, body: _quakes(query),
    "services.kansasgis.org": lambda path, query, body: _wells(path, query),
    "cdn.jsdelivr.net": lambda path, query, body: _topology(),
    "www2.census.gov": lambda path, query, body: _shapefile(),
    "core.tdar.org": lambda path, query, body: _dates(),
    "planetarycomputer.microsoft.com": lambda path, query, body: _items(body),
    "digital.library.okstate.edu": lambda path, query, body: _treaty(path),
    "nomads.ncep.noaa.gov": lambda path, query, body: _grib(path),
}


def answer(host: str, path: str, query: str, body: bytes = b"") -> Answer | None:
    """What `host` would say; None: it has no such page here."""
    return HOSTS[host](path, query, body)
