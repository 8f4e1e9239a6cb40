"""A small upstream on the loopback for demonstrations and tests: synthetic Kansas-shaped data, and
every way an upstream can misbehave.

All of it is invented by this module. Names of counties and rivers are real, every station, reading
and earthquake is made from SHA-256 of its own position, so the same revision is the same bytes in
every process and on every machine.
"""

import base64
import csv
import datetime as dt
import functools
import hashlib
import io
import json
import re
import select
import signal
import socket
import socketserver
import threading
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from email.utils import format_datetime, parsedate_to_datetime
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

from kfm.model import Json, UsageError
from kfm.samples.kansas import HOSTS, answer

__all__ = [
    "DATASETS",
    "MAX_REVISION",
    "MODES",
    "SampleDataset",
    "SampleUpstream",
    "body",
    "describe",
    "serve_forever",
]

MAX_REVISION = 1000  # revisions build on each other, so a boundless one would cost boundless work
MODES: Mapping[str, str] = {
    "ok": "answers as it should",
    "429": "429 with Retry-After: 1",
    "503": "503",
    "slow": "sends a few bytes at a time, about 20 seconds in all",
    "truncated": "declares the whole length, sends half, closes",
    "truncated_once": "truncates the first GET only",
    "lying": "200 with an HTML error page",
    "empty": "200 with no bytes",
    "same_etag": "the body of the next revision under the ETag of this one",
    "no_validator": "neither ETag nor Last-Modified",
    "weak_etag": "a weak ETag",
    "redirect_loop": "302 to itself, each time with another query",
    "redirect_private": "302 to a private address",
    "flaky": "every second request, beginning with the first, is 503",
    "bad_rows": "a few rows of wrong type, without key or without time",
    "duplicates_equal": "a few rows twice",
    "duplicates_conflicting": "a few keys twice, with other values",
    "deep": "20,000 levels of nesting; for CSV the same as lying",
    "huge_numbers": "1e999 and NaN among the numbers",
}
_LONGEST_ORDER = 64 * 1024
_DRIPS, _DRIP_BYTES, _DRIP_PAUSE = 40, 16, 0.5
# rows per revision: each changes some, odd ones add, even ones remove
_CHANGED, _ADDED, _REMOVED = 5, 4, 3
_Row = Json


@dataclass(frozen=True)
class SampleDataset:
    """One dataset this upstream serves, as a registry entry would describe it."""

    dataset: str
    path: str
    format: str
    title: str
    business_key: tuple[str, ...]
    time_column: str
    host: str


DATASETS: tuple[SampleDataset, ...] = (
    SampleDataset(
        dataset="ks_weather_stations",
        path="/weather_stations.csv",
        format="csv",
        title="Synthetic weather stations of Kansas",
        business_key=("station_id", "observed_at"),
        time_column="observed_at",
        host="weather.sample.kfm.example",
    ),
    SampleDataset(
        dataset="ks_stream_gauges",
        path="/stream_gauges.json",
        format="json",
        title="Synthetic stream gauges of Kansas",
        business_key=("site_no", "observed_at"),
        time_column="observed_at",
        host="water.sample.kfm.example",
    ),
    SampleDataset(
        dataset="ks_earthquakes",
        path="/earthquakes.geojson",
        format="geojson",
        title="Synthetic earthquakes of Kansas",
        business_key=("event_id",),
        time_column="time",
        host="quakes.sample.kfm.example",
    ),
)
# served too; the demo registers them to show an approval and a denial
_DEMO: tuple[SampleDataset, ...] = (
    SampleDataset(
        dataset="ks_sites",
        path="/sites.geojson",
        format="geojson",
        title="Synthetic archaeological sites of Kansas",
        business_key=("site_no",),
        time_column="recorded",
        host="heritage.sample.kfm.example",
    ),
    SampleDataset(
        dataset="ks_wells",
        path="/wells.csv",
        format="csv",
        title="Synthetic oil and gas wells of Kansas",
        business_key=("well_id",),
        time_column="spudded",
        host="wells.sample.kfm.example",
    ),
)
_BY_NAME = {d.dataset: d for d in (*DATASETS, *_DEMO)}
_BY_PATH = {d.path: d for d in _BY_NAME.values()}
_CONTENT_TYPES = {
    "csv": "text/csv; charset=utf-8",
    "json": "application/json",
    "geojson": "application/geo+json",
}

# County, its seat, and the county's rough middle in hundredths of a degree.
_COUNTIES = (
    ("Sedgwick", "Wichita", 3768, -9746),
    ("Shawnee", "Topeka", 3904, -9576),
    ("Johnson", "Olathe", 3888, -9482),
    ("Douglas", "Lawrence", 3888, -9529),
    ("Riley", "Manhattan", 3930, -9674),
    ("Reno", "Hutchinson", 3795, -9809),
    ("Saline", "Salina", 3878, -9765),
    ("Finney", "Garden City", 3805, -10074),
    ("Ford", "Dodge City", 3769, -9988),
    ("Ellis", "Hays", 3891, -9932),
    ("Lyon", "Emporia", 3846, -9615),
    ("Butler", "El Dorado", 3778, -9684),
    ("Harper", "Anthony", 3719, -9807),
    ("Sumner", "Wellington", 3724, -9748),
    ("Barton", "Great Bend", 3848, -9876),
    ("Thomas", "Colby", 3935, -10106),
    ("Crawford", "Girard", 3751, -9485),
    ("Cowley", "Winfield", 3724, -9684),
    ("Rooks", "Stockton", 3935, -9932),
    ("Brown", "Hiawatha", 3983, -9556),
)
_RIVERS = (
    "Arkansas River",
    "Kansas River",
    "Smoky Hill River",
    "Republican River",
    "Neosho River",
    "Verdigris River",
    "Big Blue River",
    "Saline River",
    "Solomon River",
    "Marais des Cygnes River",
)


# --- the data


def _draw(below: int, *seed: object) -> int:
    """A number in [0, below) that depends on `seed` alone."""
    text = "\x1f".join(map(str, seed))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8]) % below


def _moment(start: dt.datetime, minutes: int) -> str:
    return (start + dt.timedelta(minutes=minutes)).strftime("%Y-%m-%dT%H:%M:%SZ")


_JUNE, _MARCH = dt.datetime(2025, 6, 1), dt.datetime(2025, 3, 1)


def _weather(index: int, variant: int) -> _Row:
    slot, station = divmod(index, 50)
    county, seat, latitude, longitude = _COUNTIES[station % len(_COUNTIES)]
    # A quote, a comma and a letter beyond ASCII belong in every CSV file that claims to be a
    # sample.
    name = {7: 'Old "Stone" Mill, East', 11: "Peña Ranch"}.get(
        station, f"{seat} {station // len(_COUNTIES) + 1}"
    )
    degrees = (160, 230, 290, 220)[slot % 4] + _draw(81, "temperature", index, variant) - 40
    rain = max(0, _draw(400, "rain", index, variant) - 300)
    return {
        "station_id": f"KS{station + 1:03d}",
        "name": name,
        "county": county,
        "latitude": (latitude * 100 + _draw(2001, "latitude", station) - 1000) / 10_000,
        "longitude": (longitude * 100 + _draw(2001, "longitude", station) - 1000) / 10_000,
        "elevation_m": 230 + _draw(900, "elevation", station),
        "observed_at": _moment(_JUNE, slot * 360),
        "temperature_c": None if _draw(29, "no temperature", index) == 0 else degrees / 10,
        "precipitation_mm": None if _draw(31, "no rain", index) == 0 else rain / 10,
    }


def _gauge(index: int, variant: int) -> _Row:
    slot, site = divmod(index, 40)
    river = _RIVERS[site % len(_RIVERS)]
    seat = _COUNTIES[_draw(len(_COUNTIES), "seat", site)][1]
    flow = 50 + _draw(4000, "usual flow", site) + _draw(400, "flow", index, variant)
    return {
        "site_no": f"{6_800_000 + site * 1730:08d}",
        "name": f"{river} near {seat}",
        "river": river,
        "observed_at": _moment(_JUNE, slot * 720),
        "discharge_m3s": None if _draw(37, "no flow", index) == 0 else flow / 100,
        "gage_height_m": (40 + flow // 10 + _draw(9, "height", index, variant)) / 100,
        "approved": slot < 6,
    }


def _quake(index: int, variant: int) -> _Row:
    _, seat, latitude, longitude = _COUNTIES[_draw(len(_COUNTIES), "where", index)]
    direction = ("N", "NE", "E", "SE", "S", "SW", "W", "NW")[_draw(8, "direction", index)]
    return {
        "event_id": f"ks2025{index:05d}",
        "mag": (10 + _draw(36, "magnitude", index, variant)) / 10,
        "place": f"{1 + _draw(30, 'distance', index)} km {direction} of {seat}, Kansas",
        "time": _moment(_MARCH, index * 180 + _draw(180, "minute", index)),
        "depth_km": (10 + _draw(120, "depth", index)) / 10,
        "status": "reviewed" if variant or _draw(3, "status", index) else "automatic",
        "longitude": (longitude * 100 + _draw(3001, "east", index) - 1500) / 10_000,
        "latitude": (latitude * 100 + _draw(3001, "north", index) - 1500) / 10_000,
    }


def _site(index: int, variant: int) -> _Row:
    """Sites lie close together in a few places, as real ones do; no real one is meant."""
    _, seat, latitude, longitude = _COUNTIES[_draw(8, "river bend", index)]
    return {
        "site_no": f"14XX{index:04d}",
        "name": f"{seat} Mound {1000 + _draw(9000, 'mound', index)}",
        "period": ("Archaic", "Woodland", "Plains Village", "Late Ceramic")[
            _draw(4, "period", index)
        ],
        "condition": ("good", "fair", "poor")[_draw(3, "condition", index, variant)],
        "recorded": _moment(_MARCH, index * 1440),
        "depth_cm": 10 + _draw(140, "depth", index, variant),
        "longitude": (longitude * 10_000 + _draw(40_001, "site east", index) - 20_000) / 1_000_000,
        "latitude": (latitude * 10_000 + _draw(40_001, "site north", index) - 20_000) / 1_000_000,
    }


def _well(index: int, variant: int) -> _Row:
    county, _, latitude, longitude = _COUNTIES[_draw(len(_COUNTIES), "well", index)]
    return {
        "well_id": f"15-{index:05d}",
        "county": county,
        "operator": ("Prairie Oil", "Flint Energy", "Chisholm Gas")[_draw(3, "operator", index)],
        "depth_m": 300 + _draw(1500, "well depth", index, variant),
        "spudded": _moment(_MARCH, index * 720),
        "latitude": (latitude * 100 + _draw(2001, "well north", index) - 1000) / 10_000,
        "longitude": (longitude * 100 + _draw(2001, "well east", index) - 1000) / 10_000,
    }


@dataclass(frozen=True)
class _Shape:
    build: Callable[[int, int], _Row]
    base: int  # rows of revision 0
    measure: str  # the column that corrections, and the modes that break numbers, touch


_SHAPES = {
    "ks_weather_stations": _Shape(_weather, 600, "temperature_c"),
    "ks_stream_gauges": _Shape(_gauge, 400, "discharge_m3s"),
    "ks_earthquakes": _Shape(_quake, 150, "mag"),
    "ks_sites": _Shape(_site, 240, "depth_cm"),
    "ks_wells": _Shape(_well, 120, "depth_m"),
}


def _population(name: str, base: int, revision: int) -> dict[int, int]:
    """Which rows exist at `revision`, each with the revision that last corrected it."""
    alive = dict.fromkeys(range(base), 0)
    fresh = base
    for step in range(1, revision + 1):
        present = list(alive)
        for n in range(_CHANGED):
            alive[present[_draw(len(present), name, "change", step, n)]] = step
        if step % 2:
            alive.update(dict.fromkeys(range(fresh, fresh + _ADDED), step))
            fresh += _ADDED
        else:
            for n in range(_REMOVED):
                alive.pop(present[_draw(len(present), name, "remove", step, n)], None)
    return alive


@functools.lru_cache(maxsize=32)
def _rows(name: str, revision: int) -> tuple[_Row, ...]:
    shape = _SHAPES[name]
    return tuple(
        shape.build(index, variant)
        for index, variant in _population(name, shape.base, revision).items()
    )


def _damage(dataset: SampleDataset, rows: list[_Row], mode: str) -> list[_Row]:
    """`rows` with the faults of `mode`; the rows given are shared, so faulty ones are copies."""
    measure = _SHAPES[dataset.dataset].measure
    first = [dict(row) for row in rows[:4]]
    if mode == "duplicates_equal":
        return [*rows, *first]
    if mode == "duplicates_conflicting":
        return [*rows, *({**row, measure: 99.5 + n} for n, row in enumerate(first))]
    if mode == "huge_numbers":
        return [
            {**row, measure: ("1e999", "NaN", "-1e999", "NaN")[n]} for n, row in enumerate(first)
        ] + rows[4:]
    if mode == "bad_rows":
        faults: tuple[_Row, ...] = (
            {measure: "broken"},
            {dataset.business_key[0]: None},
            {dataset.time_column: "yesterday"},
            {measure: "--"},
        )
        return [{**row, **fault} for row, fault in zip(first, faults, strict=False)] + rows[4:]
    return rows


def _csv(dataset: SampleDataset, rows: list[_Row]) -> str:
    out = io.StringIO()
    writer = csv.DictWriter(
        out, fieldnames=list(_SHAPES[dataset.dataset].build(0, 0)), lineterminator="\n"
    )
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue()


def _feature(row: _Row, key: str) -> _Row:
    properties = {
        k: v for k, v in row.items() if k not in ("longitude", "latitude") and (k, v) != (key, None)
    }
    point = {"type": "Point", "coordinates": [row["longitude"], row["latitude"]]}
    return {"type": "Feature", "id": row[key], "geometry": point, "properties": properties}


def _document(dataset: SampleDataset, rows: list[_Row]) -> _Row:
    if dataset.format == "geojson":
        return {
            "type": "FeatureCollection",
            "features": [_feature(row, dataset.business_key[0]) for row in rows],
        }
    observations = [{k: v for k, v in row.items() if (k, v) != ("site_no", None)} for row in rows]
    return {"generated_by": "kfm sample upstream (synthetic)", "observations": observations}


def _text(dataset: SampleDataset, rows: list[_Row], mode: str) -> str:
    if dataset.format == "csv":
        return _csv(dataset, rows)
    text = json.dumps(_document(dataset, rows), ensure_ascii=False, separators=(",", ":"))
    if mode == "huge_numbers":
        # No encoder writes these, so they travel as strings and lose their quotes here.
        text = re.sub(r'"(-?1e999|NaN)"', r"\1", text)
    if mode == "deep":
        text = f'{text[:-1]},"deep":{"[" * 20_000}{"]" * 20_000}}}'
    return text + "\n"


def _instant(text: str) -> dt.datetime:
    # a plus sign left unescaped in a query arrives as a space
    moment = dt.datetime.fromisoformat(text.replace(" ", "+"))
    if moment.tzinfo is None:
        raise ValueError("a time needs an offset")
    return moment


_EARLIEST, _LATEST = "0001-01-01T00:00:00Z", "9999-12-31T23:59:59Z"


def _window(rows: list[_Row], column: str, since: str | None, until: str | None) -> list[_Row]:
    if since is None and until is None:
        return rows
    first, end = _instant(since or _EARLIEST), _instant(until or _LATEST)
    return [row for row in rows if first <= _instant(row[column]) < end]


@functools.lru_cache(maxsize=64)
def body(
    dataset: str,
    revision: int = 0,
    mode: str = "ok",
    since: str | None = None,
    until: str | None = None,
) -> bytes:
    """The bytes served for `dataset` at `revision`; rows from `since` up to, not including,
    `until`.

    Raises `ValueError` when a bound is not an RFC 3339 time.
    """
    known = _BY_NAME[dataset]
    rows = _window(list(_rows(dataset, revision)), known.time_column, since, until)
    return _text(known, _damage(known, rows, mode), mode).encode()


# --- the answers


@dataclass(frozen=True)
class _Answer:
    status: int
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes = b""
    sent: int | None = None  # truncated after so many bytes
    drip: bool = False


@dataclass(frozen=True)
class _Request:
    method: str
    path: str
    query: str
    headers: Mapping[str, str]

    def field(self, name: str) -> str | None:
        return parse_qs(self.query).get(name, [None])[-1]


@dataclass(frozen=True)
class _Turn:
    """What one request gets to see of a dataset's state."""

    mode: str
    revision: int
    first_get: bool
    odd: bool


def _json(
    status: int, value: object, *headers: tuple[str, str], kind: str = "application/json"
) -> _Answer:
    return _Answer(
        status, (("Content-Type", kind), *headers), json.dumps(value, indent=1).encode() + b"\n"
    )


def _problem(status: int, detail: str, *headers: tuple[str, str]) -> _Answer:
    document = {
        "type": "about:blank",
        "title": HTTPStatus(status).phrase,
        "status": status,
        "detail": detail,
    }
    return _json(status, document, *headers, kind="application/problem+json")


def _redirect(location: str) -> _Answer:
    return _Answer(302, (("Location", location),))


_APOLOGY = (
    b"<!DOCTYPE html>\n<html><head><title>Error</title></head><body><h1>Something went"
    b" wrong</h1></body></html>\n"
)


def _serve(dataset: SampleDataset, request: _Request, turn: _Turn) -> _Answer:
    """The answer of `turn.mode`: those without data first, the rest share one path."""
    mode = turn.mode
    if mode == "429":
        return _problem(429, "Too many requests.", ("Retry-After", "1"))
    if mode == "503" or (mode == "flaky" and turn.odd):
        return _problem(503, "Not available at the moment.")
    if mode == "lying" or (mode == "deep" and dataset.format == "csv"):
        return _Answer(200, (("Content-Type", "text/html; charset=utf-8"),), _APOLOGY)
    if mode == "empty":
        return _Answer(200, (("Content-Type", _CONTENT_TYPES[dataset.format]),))
    if mode == "redirect_loop":
        count = request.field("n") or ""
        return _redirect(
            f"{dataset.path}?n={int(count) + 1 if re.fullmatch('[0-9]{1,9}', count) else 1}"
        )
    if mode == "redirect_private":
        return _redirect("http://10.0.0.1/")
    try:
        return _content(dataset, request, turn)
    except ValueError:
        return _problem(
            400, "since and until are RFC 3339 times with an offset, such as 2025-06-01T00:00:00Z."
        )


def _content(dataset: SampleDataset, request: _Request, turn: _Turn) -> _Answer:
    make = functools.partial(
        body,
        dataset.dataset,
        mode=turn.mode,
        since=request.field("since"),
        until=request.field("until"),
    )
    content = make(revision=turn.revision)
    validators = _validators(content, turn)
    if turn.mode == "same_etag":
        content = make(revision=turn.revision + 1)
    digest = base64.b64encode(hashlib.sha256(content).digest()).decode()
    common = (
        *validators.items(),
        ("Accept-Ranges", "bytes"),
        # what a continued body is checked by
        ("Repr-Digest", f"sha-256=:{digest}:"),
    )
    if _unchanged(request.headers, validators):
        return _Answer(304, common)
    answer = _ranged(
        content, (*common, ("Content-Type", _CONTENT_TYPES[dataset.format])), request, validators
    )
    cut = turn.mode == "truncated" or (turn.mode == "truncated_once" and turn.first_get)
    return _Answer(
        answer.status,
        answer.headers,
        answer.body,
        len(answer.body) // 2 if cut else None,
        turn.mode == "slow",
    )


def _validators(content: bytes, turn: _Turn) -> dict[str, str]:
    if turn.mode == "no_validator":
        return {}
    weak = "W/" if turn.mode == "weak_etag" else ""
    modified = dt.datetime(2025, 7, 1, tzinfo=dt.UTC) + dt.timedelta(hours=turn.revision)
    etag = hashlib.sha256(content).hexdigest()[:32]
    return {"ETag": f'{weak}"{etag}"', "Last-Modified": format_datetime(modified, usegmt=True)}


def _unchanged(headers: Mapping[str, str], validators: Mapping[str, str]) -> bool:
    """RFC 9110 section 13.2.2: If-None-Match, compared weakly, goes before If-Modified-Since."""
    if not validators:
        return False
    wanted = headers.get("If-None-Match")
    if wanted is not None:
        known = {tag.strip().removeprefix("W/") for tag in wanted.split(",")}
        return "*" in known or validators["ETag"].removeprefix("W/") in known
    since = headers.get("If-Modified-Since")
    try:
        return since is not None and parsedate_to_datetime(
            validators["Last-Modified"]
        ) <= parsedate_to_datetime(since)
    except (ValueError, TypeError):  # not a date, or one without a zone: ignored, says RFC 9110
        return False


def _ranged(
    content: bytes,
    headers: tuple[tuple[str, str], ...],
    request: _Request,
    validators: Mapping[str, str],
) -> _Answer:
    """The part asked for; everything when no single range is asked for or If-Range names another
    state.
    """
    whole = _Answer(200, headers, content)
    found = re.fullmatch(
        r"bytes=([0-9]{0,18})-([0-9]{0,18})", request.headers.get("Range", "").strip()
    )
    if (
        request.method != "GET"
        or not found
        or found[0] == "bytes=-"
        or not _range_applies(request.headers, validators)
    ):
        return whole
    size = len(content)
    first, last = (
        (int(found[1]), int(found[2] or size)) if found[1] else (max(0, size - int(found[2])), size)
    )
    if found[1] and found[2] and first > last:
        return whole
    last = min(last, size - 1)
    if first > last:
        return _Answer(416, (*headers, ("Content-Range", f"bytes */{size}")))
    return _Answer(
        206,
        (*headers, ("Content-Range", f"bytes {first}-{last}/{size}")),
        content[first : last + 1],
    )


def _range_applies(headers: Mapping[str, str], validators: Mapping[str, str]) -> bool:
    condition = headers.get("If-Range")
    if condition is None:
        return True
    # A weak tag never matches here: the bytes behind it may differ, and parts of two bodies would
    # be joined.
    return not condition.startswith("W/") and condition in validators.values()


# --- the server


@dataclass
class _State:
    mode: str = "ok"
    revision: int = 0
    hits: int = 0  # since the mode was set
    gets: int = 0


@dataclass
class _Shared:
    """What the handler threads share; `lock` guards all of it."""

    url: str = ""
    lock: threading.Lock = field(default_factory=threading.Lock)
    states: dict[str, _State] = field(default_factory=lambda: {name: _State() for name in _BY_NAME})
    log: deque[tuple[str, str, int]] = field(default_factory=lambda: deque(maxlen=10_000))
    connections: set[socket.socket] = field(default_factory=set)
    stopping: threading.Event = field(default_factory=threading.Event)

    def turn(self, dataset: str, method: str) -> _Turn:
        with self.lock:
            state = self.states[dataset]
            state.hits += 1
            state.gets += method == "GET"
            return _Turn(
                state.mode, state.revision, method == "GET" and state.gets == 1, state.hits % 2 == 1
            )

    def snapshot(self) -> Json:
        with self.lock:
            return {
                d.dataset: {
                    "mode": self.states[d.dataset].mode,
                    "revision": self.states[d.dataset].revision,
                }
                for d in DATASETS
            }

    def control(self, dataset: object, mode: object, revision: object) -> Json:
        names, known, asked = _known_datasets(dataset), _known_mode(mode), _known_revision(revision)
        with self.lock:
            for state in (self.states[name] for name in names):
                if known is not None:
                    state.mode, state.hits, state.gets = known, 0, 0
                state.revision = state.revision if asked is None else asked
        return self.snapshot()


def _known_datasets(dataset: object) -> tuple[str, ...]:
    if dataset == "*":
        return tuple(_BY_NAME)
    if isinstance(dataset, str) and dataset in _BY_NAME:
        return (dataset,)
    raise UsageError(
        f"{dataset!r} is not a sample dataset.", expected=f"* or one of {', '.join(_BY_NAME)}"
    )


def _known_mode(mode: object) -> str | None:
    name = str(mode) if type(mode) is int else mode
    if name is None or (isinstance(name, str) and name in MODES):
        return name
    raise UsageError(f"{mode!r} is not a mode.", expected=f"one of {', '.join(MODES)}")


def _known_revision(revision: object) -> int | None:
    if revision is None or (type(revision) is int and 0 <= revision <= MAX_REVISION):
        return revision
    raise UsageError(
        f"{revision!r} is not a revision.", expected=f"a whole number from 0 to {MAX_REVISION}"
    )


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def __init__(self, port: int, shared: _Shared) -> None:
        self.shared = shared
        super().__init__(("127.0.0.1", port), _Handler)

    def server_bind(self) -> None:
        # HTTPServer's own asks the name service who we are, which can take seconds
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = "127.0.0.1", self.server_address[1]

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that went away is no news; nothing is ever written to stderr."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server_version = "kfm-sample"
    sys_version = ""
    # head and body are two writes; waiting to join them costs 40 ms each time
    disable_nagle_algorithm = True
    timeout = 60
    server: _Server

    def setup(self) -> None:
        super().setup()
        with self.server.shared.lock:
            self.server.shared.connections.add(self.connection)

    def finish(self) -> None:
        with self.server.shared.lock:
            self.server.shared.connections.discard(self.connection)
        super().finish()

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing: stderr belongs to the command that runs this server."""

    def do_GET(self) -> None:
        self._send(self._read_answer())

    def do_HEAD(self) -> None:
        self._send(self._read_answer())

    def do_POST(self) -> None:
        found = self._kansas()
        if found is not None:
            return self._send(found)
        if urlsplit(self.path).path != "/_control":
            self.close_connection = True  # the body stays unread
            return self._send(_problem(404, "Only /_control takes a POST."))
        return self._send(self._control())

    def _kansas(self) -> _Answer | None:
        """The invented answer of an agency, when the request was meant for one."""
        host = (self.headers.get("Host") or "").partition(":")[0]
        if host not in HOSTS:
            return None
        length = self.headers.get("Content-Length") or "0"
        body = (
            self.rfile.read(int(length))
            if length.isdigit() and int(length) <= _LONGEST_ORDER
            else b""
        )
        target = urlsplit(self.path)
        found = answer(host, target.path, target.query, body)
        if found is None:
            return _problem(404, "The sample has no such page.")
        request = _Request(
            self.command, target.path, target.query, {k.title(): v for k, v in self.headers.items()}
        )
        etag = {"ETag": f'"{hashlib.sha256(found[2]).hexdigest()[:32]}"'}
        if _unchanged(request.headers, etag):
            return _Answer(304, tuple(etag.items()), b"")
        return _Answer(found[0], (("Content-Type", found[1]), *etag.items()), found[2])

    def _read_answer(self) -> _Answer:
        shared, target = self.server.shared, urlsplit(self.path)
        found = self._kansas()
        if found is not None:
            return found
        if target.path == "/":
            return _json(200, describe(shared.url))
        if target.path == "/_control":
            return _json(200, {"state": shared.snapshot()})
        dataset = _BY_PATH.get(target.path)
        if dataset is None:
            return _problem(404, "No such file; GET / lists what there is.")
        request = _Request(
            self.command, target.path, target.query, {k.title(): v for k, v in self.headers.items()}
        )
        return _serve(dataset, request, shared.turn(dataset.dataset, self.command))

    def _control(self) -> _Answer:
        length = self.headers.get("Content-Length") or ""
        if not re.fullmatch("[0-9]{1,9}", length) or int(length) > _LONGEST_ORDER:
            self.close_connection = True
            return _problem(400, f"Expected a Content-Length of at most {_LONGEST_ORDER}.")
        try:
            order = json.loads(self.rfile.read(int(length)))
            if (
                not isinstance(order, dict)
                or "dataset" not in order
                or not order.keys() <= {"dataset", "mode", "revision"}
            ):
                raise UsageError(
                    "The order is not usable.",
                    expected="an object with dataset, and optionally mode and revision",
                )
            return _json(
                200,
                {
                    "state": self.server.shared.control(
                        order["dataset"], order.get("mode"), order.get("revision")
                    )
                },
            )
        except UsageError as error:
            return _problem(400, str(error))
        except (ValueError, RecursionError):
            return _problem(400, "The order is not JSON.")

    def _send(self, answer: _Answer) -> None:
        with self.server.shared.lock:
            self.server.shared.log.append((self.command, self.path, answer.status))
        self.send_response(answer.status)
        for name, value in answer.headers:
            self.send_header(name, value)
        if answer.status != 304:
            self.send_header("Content-Length", str(len(answer.body)))
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        if self.command != "HEAD":
            self._send_body(answer)

    def _send_body(self, answer: _Answer) -> None:
        if answer.drip:
            return self._drip(answer.body)
        self.wfile.write(answer.body[: answer.sent])
        if answer.sent is not None:
            self.close_connection = True
        return None

    def _drip(self, content: bytes) -> None:
        """A few bytes, a pause, and so on; the rest at the end, so that patience has a bound."""
        for start in range(0, _DRIPS * _DRIP_BYTES, _DRIP_BYTES):
            self.wfile.write(content[start : start + _DRIP_BYTES])
            if self.server.shared.stopping.wait(_DRIP_PAUSE) or _has_left(self.connection):
                self.close_connection = True
                return
        self.wfile.write(content[_DRIPS * _DRIP_BYTES :])


def _has_left(client: socket.socket) -> bool:
    """Whether the other side has closed; a request it already sent ahead does not count as that."""
    try:
        poll = select.poll()  # unlike select, it takes descriptors of any number
        poll.register(client, select.POLLIN)
        return bool(poll.poll(0)) and client.recv(1, socket.MSG_PEEK) == b""
    except OSError:
        return True


def describe(url: str) -> Json:
    """What a server at `url` offers, as `GET /` and the command line print it."""
    return {
        "url": url,
        "datasets": [
            {"dataset": d.dataset, "path": d.path, "format": d.format, "url": url + d.path}
            for d in DATASETS
        ],
    }


class SampleUpstream:
    """The server as an object: bound when made, serving between `start` and `stop` or inside a
    `with` block.
    """

    def __init__(self, port: int = 0) -> None:
        self._shared = _Shared()
        try:
            self._server = _Server(port, self._shared)
        except (OSError, OverflowError) as error:
            raise UsageError(
                f"Port {port} cannot be used: {error}.", expected="a free port, or 0 for any"
            ) from error
        self._shared.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread: threading.Thread | None = None

    @property
    def url(self) -> str:
        return self._shared.url

    @property
    def requests(self) -> list[tuple[str, str, int]]:
        """Method, path with query, and status of the last 10,000 requests, oldest first."""
        with self._shared.lock:
            return list(self._shared.log)

    def describe(self) -> Json:
        return describe(self.url)

    def control(
        self, dataset: str, mode: str | int | None = None, revision: int | None = None
    ) -> Json:
        """Set what `dataset`, or every one for `*`, does from now on; the new state of all. Setting
        a mode restarts its counting.

        Raises `UsageError` when a dataset, mode or revision is unknown.
        """
        return self._shared.control(dataset, mode, revision)

    def start(self) -> None:
        """Serve from a daemon thread."""
        if self._thread is None:
            self._thread = threading.Thread(
                target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True
            )
            self._thread.start()

    def stop(self) -> None:
        """Stop for good, also in the middle of an answer. May be repeated."""
        self._shared.stopping.set()
        if self._thread is not None:
            self._server.shutdown()
            self._thread.join()
            self._thread = None
        self._server.server_close()
        with self._shared.lock:
            for connection in self._shared.connections:
                try:
                    connection.shutdown(socket.SHUT_RDWR)
                except OSError:
                    pass  # gone already, which is what we want

    def __enter__(self) -> "SampleUpstream":
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def serve_forever(port: int = 0) -> None:
    """Print one JSON line that says what is offered and where, then serve until SIGINT or
    SIGTERM.
    """
    enough = threading.Event()
    before = {
        number: signal.signal(number, lambda *_: enough.set())
        for number in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        with SampleUpstream(port) as upstream:
            print(json.dumps(upstream.describe()), flush=True)
            enough.wait()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
