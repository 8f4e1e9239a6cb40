"""USGS NWIS as archives keep it, RDB tables and WaterML in JSON: a true zero, an estimate and a gap
stay three things.
"""

import re
from collections.abc import Callable, Iterator
from functools import partial
from itertools import chain, groupby
from operator import itemgetter
from typing import Any, Literal

import msgspec

from kfm.connectors.base import InputFile, Refused
from kfm.connectors.kind import RowReader, options_of, utc
from kfm.connectors.operations import Read
from kfm.connectors.read.geojson import JsonReader
from kfm.connectors.read.geometry import Point, Problem
from kfm.connectors.read.records import Records
from kfm.connectors.read.rows import Loose, Row
from kfm.connectors.read.text import text_blocks
from kfm.connectors.table.sanity import Sane
from kfm.model import KINDS, Column

__all__ = ["COLUMNS", "KEY", "KIND", "SANITY", "Options", "columns", "key", "readers"]

KIND = KINDS["nwis"]

Service = Literal["dv", "iv", "site", "peak"]


class Options(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the registry may say of an NWIS source."""

    # which service the files came from; None: the first file itself shows it
    service: Service | None = None


def _table(*rows: str) -> tuple[Column, ...]:
    """Columns from `name type [unit]`; a type ending in `!` may not be null."""
    parts = [(*row.split(), "")[:3] for row in rows]
    return tuple(
        Column(name=n, type=t.rstrip("!"), nullable=not t.endswith("!"), unit=u or None)  # type: ignore[arg-type]
        for n, t, u in parts
    )


# The cells of a site or peak line, and the columns they become.
_SITE = {
    "agency_cd": "agency string!",
    "site_no": "site_no string!",
    "station_nm": "name string",
    "site_tp_cd": "site_type_code string",
    "dec_lat_va": "latitude number deg",
    "dec_long_va": "longitude number deg",
    "dec_coord_datum_cd": "source_crs string",
    "coord_acy_cd": "position_accuracy_code string",
    "alt_va": "altitude number ft",
    "alt_acy_va": "altitude_accuracy number ft",
    "alt_datum_cd": "altitude_datum string",
    "huc_cd": "hydrologic_unit_code string",
}
_PEAK = {
    "agency_cd": "agency string!",
    "site_no": "site_no string!",
    "peak_dt": "peak_date string!",  # as sent: month and day may be 00
    "peak_tm": "peak_time string",
    "peak_va": "peak_flow number ft3/s",
    "peak_cd": "peak_codes string",
    "gage_ht": "gage_height number ft",
    "gage_ht_cd": "gage_height_codes string",
    "year_last_pk": "highest_since integer",
    "ag_dt": "max_gage_date string",
    "ag_tm": "max_gage_time string",
    "ag_gage_ht": "max_gage_height number ft",
    "ag_gage_ht_cd": "max_gage_height_codes string",
}
_SERIES = ("agency", "site_no", "parameter_code", "statistic_code", "ts_id")
# `status` is measured, estimated or missing; `condition` says what the agency gave as the reason.
_VALUE = (
    "value number",
    "unit string",
    "status string!",
    "estimated boolean!",
    "approval_status string",
    "condition string",
)


def _values(time: str) -> tuple[Column, ...]:
    return _table(*(f"{name} string!" for name in _SERIES), time, *_VALUE, "qualifiers string")


_TABLES: dict[Service, tuple[tuple[Column, ...], tuple[str, ...]]] = {
    # a day at the site is no moment in UTC
    "dv": (_values("observed_on date!"), (*_SERIES, "observed_on")),
    "iv": (_values("observed_at timestamp!"), (*_SERIES, "observed_at")),
    "site": (_table(*_SITE.values(), "geometry geometry"), ("agency", "site_no")),
    "peak": (
        _table(*_PEAK.values(), "peak_on date", "max_gage_on date", "estimated boolean!"),
        ("agency", "site_no", "peak_date"),
    ),
}
COLUMNS, KEY = _TABLES["dv"]

# Figures that stand for "no value" beside -999999, which is read as missing; flows are rounded to
# three digits, so none of them is one.
_FILLER = tuple(
    sign * n for n in (9999, 9999.9, 99999, 99999.9, 999999, 9999999) for sign in (1, -1)
)
# ft3/s (the tide turns some rivers), ft of water, ft of land
_FLOW, _STAGE, _HEIGHT = (-1e6, 1e7), (-500, 30_000), (-1700, 30_000)
SANITY = (
    Sane("observed_on", "1800-01-01", "+2d"),
    Sane("observed_at", "1980-01-01", "+1d"),  # before, nothing was sent more often than daily
    Sane("value", sentinels=_FILLER),
    Sane("value", *_FLOW, where=("unit", ("ft3/s",))),
    Sane("value", *_STAGE, where=("unit", ("ft",))),
    Sane("value", -95, 150, where=("unit", ("Cel",))),
    Sane("altitude", *_HEIGHT),
    Sane("altitude_accuracy", 0, 30_000),
    Sane("peak_on", "1500-01-01", "+2d"),
    Sane("max_gage_on", "1500-01-01", "+2d"),
    Sane("peak_flow", *_FLOW, _FILLER),
    Sane("gage_height", *_STAGE, _FILLER),
    Sane("max_gage_height", *_STAGE, _FILLER),
    Sane("highest_since", 1000, 2100),
)

# by parameter; others as the document says, in these words
_UNITS = {"00060": "ft3/s", "00065": "ft"}
_UNIT_WORDS = {
    "cubic feet per second": "ft3/s",
    "feet": "ft",
    "degrees Celsius": "Cel",
    "deg C": "Cel",
    "inches": "in",
}
_UNITS_KNOWN = {
    *_UNIT_WORDS.values(),
    "cubic meters per second",
    "meters",
    "centimeters",
    "millimeters",
    "liters per second",
    "deg F",
}
# The documented words that stand where a number should. Dry and ZFl mean no flow, but no number was
# published: none is made up.
_WORDS = (
    "Ssn",
    "Bkw",
    "Ice",
    "Pr",
    "Rat",
    "Eqp",
    "Fld",
    "Dry",
    "Dis",
    "Mnt",
    "ZFl",
    "Pmp",
    "Tst",
    "Nd",
    "--",
    "***",
)
_CONDITIONS = {word.lower(): word for word in _WORDS}
_APPROVAL = {"A": "Approved", "P": "Provisional"}
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
_NO_DATA = -999999.0
_ZONES = {
    "UTC": 0,
    "GMT": 0,
    "AST": -4,
    "ADT": -3,
    "EST": -5,
    "EDT": -4,
    "CST": -6,
    "CDT": -5,
    "MST": -7,
    "MDT": -6,
}
_ZONES |= {"PST": -8, "PDT": -7, "AKST": -9, "AKDT": -8, "HST": -10, "HDT": -9}
# series, parameter, statistic (dv only)
_COLUMN = re.compile(r"(\d+)_(\d{5})(?:_(\d{5}))?", re.ASCII)
_DESCRIBED = re.compile(r"#\s+\d+\s+(\d{5})\s+(?:\d{5}\s+)?(\S.*)", re.ASCII)
_RETRIEVED = re.compile(
    r"#\s+[Rr]etrieved: (\d{4}-\d\d-\d\d) (\d\d:\d\d:\d\d) ([A-Z]{3,4}|[+-]\d\d:\d\d)(?:\s|$)",
    re.ASCII,
)
_MIDNIGHT = re.compile(r"(\d{4}-\d\d-\d\d)T00:00:00(?:\.0+)?", re.ASCII)
_LONGEST = 1 << 20  # characters in a line
# NAD83 and WGS 84 agree to the metre or two these positions are good for; other datums need grids,
# so they are not taken.
_DATUMS = {"NAD83": "EPSG:4269", "WGS84": "EPSG:4326"}


def columns(job: Read) -> tuple[Column, ...]:
    """The columns of the table this job makes."""
    return _TABLES[_service(job)][0]


def key(job: Read) -> tuple[str, ...]:
    """Its business key."""
    return _TABLES[_service(job)][1]


def readers(job: Read) -> list[RowReader]:
    """One reader per captured file."""
    service = _service(job)
    return [(_WaterMl if job.format == "json" else _Rdb)(source, service) for source in job.inputs]


def _service(job: Read) -> Service:
    """The option, or what the first file shows."""
    given, first = options_of(job.options, Options).service, job.inputs[0]
    if given or job.format != "json":
        return given or _kind_of(
            first.source_id,
            next((x.split("\t") for _, x in _lines(first) if x.strip() and x[0] != "#"), []),
        )
    return (
        "iv"
        if next(filter(None, (_statistic(s.row) for s in _series_of(_Document(first)))), "00000")
        == "00000"
        else "dv"
    )


def _reading(text: str, codes: list[str], no_data: float = _NO_DATA) -> tuple[Row, Problem | None]:
    """What a cell with its codes says: empty, the sentinel or a documented word is missing, never
    zero.
    """
    word, number = _CONDITIONS.get(text.lower()), _NUMBER.fullmatch(text)
    missing = (
        not text or word is not None or (number is not None and float(text) in (no_data, _NO_DATA))
    )
    if not missing and not number:
        return {}, ("nwis.value", f"{text[:40]!r} is neither a number nor a documented code")
    conditions = {c for c in (word, *(_CONDITIONS.get(c.lower()) for c in codes)) if c}
    estimated = not missing and not {"e", "E"}.isdisjoint(codes)
    row = {
        "value": None if missing else float(text),
        "status": "missing" if missing else "estimated" if estimated else "measured",
        "estimated": estimated,
        "approval_status": next((_APPROVAL[c] for c in codes if c in _APPROVAL), None),
        "condition": ",".join(sorted(conditions)) or None,
        "qualifiers": ",".join(codes) or None,
    }
    return row, None


def _contradiction(parameter: str, stated: str | None) -> Problem | None:
    """A document that states another unit than its parameter has: one of them is wrong, and nobody
    can say which.
    """
    due = _UNITS.get(parameter)
    if due is None or not stated or stated == due:
        return None
    return (
        "unit.contradiction",
        f"parameter {parameter} is in {due}, the document says {stated[:40]!r}",
    )


# -- RDB


def _lines(source: InputFile, said: set[str] | None = None) -> Iterator[tuple[int, str]]:
    """Lines with their numbers, a block at a time."""
    held, number = "", 0
    for block in chain(text_blocks(source, "rdb", None, said), ("\n",)):
        *whole, held = (held + block).split("\n")
        for line in whole:
            number += 1
            yield number, line.rstrip("\r")
        if len(held) > _LONGEST:
            raise _refusal(
                source.source_id,
                "rdb.line",
                f"line {number + 1} is longer than {_LONGEST} characters",
            )


def _kind_of(source_id: str, header: list[str]) -> Service:
    """The service whose header this is."""
    shows: dict[str, Service] = {
        "peak_dt": "peak",
        "tz_cd": "iv",
        "datetime": "dv",
        "station_nm": "site",
    }
    service = next((shows[name] for name in shows if name in header), None)
    if (
        service is None
        or not {"agency_cd", "site_no"} <= set(header)
        or len(set(header)) < len(header)
    ):
        what = (
            f"its header is {' '.join(header)[:120]!r}"
            if header
            else "it holds nothing but comments"
        )
        raise _refusal(source_id, "rdb.header" if header else "empty", what)
    return service


def _refusal(source_id: str, code: str, what: str) -> Refused:
    return Refused(
        code,
        f"Source {source_id} cannot be read: {what}.",
        expected=(
            "what the dv, iv, site or peak service sends: series with values, or RDB (comments, a"
            " header, a line of types, data)"
        ),
        remedy=(
            "Look at the captured bytes (it may be a message such as 'No sites found'); correct the"
            " address or `options.service`."
        ),
        source_id=source_id,
    )


class _Rdb(RowReader):
    """One RDB file; every site may bring its own header and line of types."""

    def __init__(self, source: InputFile, service: Service) -> None:
        super().__init__(source)
        self._source, self._service = source, service
        self._units: dict[str, str] = {}  # by parameter, as the comments describe it

    def rows(self) -> Iterator[Loose]:
        """Every value of every line, or every line of a site or peak table."""
        header: list[str] = []
        typed, self.stamp = False, ""
        for number, line in _lines(self._source, self.warnings):
            cells = line.split("\t")
            if not line.strip() or line[0] == "#":
                self._describe(line)
            elif not header or cells[0] == header[0]:
                header, typed = self._header(cells), False
            elif not typed:
                typed = len(cells) == len(header) and all(
                    re.fullmatch(r"\d+[sdn]", c.strip()) for c in cells
                )
                if not typed:
                    raise _refusal(
                        self.source_id,
                        "rdb.types",
                        f"line {number} should give a type such as 5s or 14n for each column",
                    )
            elif len(cells) != len(header):
                problem = (
                    "rdb.columns",
                    f"the line has {len(cells)} cells, the header has {len(header)}",
                )
                yield Loose(number, partial(str, line), None, problem)
            else:
                for row, found in self._records(dict(zip(header, (c.strip() for c in cells)))):
                    yield Loose(number, partial(str, line), None if found else row, found, row)

    def _describe(self, line: str) -> None:
        if (made := _RETRIEVED.match(line)) is not None:
            hours = _ZONES.get(made[3])
            stamp = utc(
                f"{made[1]}T{made[2]}{made[3] if made[3][0] in '+-' else f'{hours:+03d}:00' if hours is not None else ''}"
            )
            # files may be put together: the oldest counts
            self.stamp = min(filter(None, (self.stamp, stamp)), default="")
        if match := _DESCRIBED.match(line):
            words = match[2].split("(")[0].rpartition(",")[2].strip()
            self._units[match[1]] = _UNIT_WORDS.get(words, words)

    def _header(self, cells: list[str]) -> list[str]:
        if _kind_of(self.source_id, cells) != self._service:
            raise _refusal(
                self.source_id,
                "rdb.header",
                f"it is no table of the {self._service} service, its header is"
                f" {' '.join(cells)[:120]!r}",
            )
        known = {"site": _SITE, "peak": _PEAK}.get(self._service, {})
        if known and (more := [c for c in cells if c not in known]):
            self.warnings.add(
                f"{self.source_id} also has the columns {', '.join(more)}; they are left out."
            )
        return cells

    def _records(self, cells: dict[str, str]) -> Iterator[tuple[Row, Problem | None]]:
        if self._service == "site":
            yield _site(_renamed(cells, _SITE))
        elif self._service == "peak":
            yield _peak(_renamed(cells, _PEAK)), None
        else:
            when, fault = self._when(cells)
            for name, text in cells.items():
                if match := _COLUMN.fullmatch(name):
                    row, problem = _reading(
                        text, [c for c in re.split(r"[:\s,]+", cells.get(f"{name}_cd", "")) if c]
                    )
                    # what stands last in a description is not always a unit
                    stated = self._units.get(match[2], "")
                    other = _contradiction(match[2], stated if stated in _UNITS_KNOWN else None)
                    yield (
                        self._series(cells, *match.groups()) | when | row,
                        fault or problem or other,
                    )

    def _when(self, cells: dict[str, str]) -> tuple[Row, Problem | None]:
        if self._service == "dv":
            return {"observed_on": cells["datetime"] or None}, None
        hours = _ZONES.get(cells["tz_cd"])
        if hours is None:
            return {}, ("nwis.zone", f"the time zone {cells['tz_cd'][:12]!r} is not known")
        return {"observed_at": f"{cells['datetime'].replace(' ', 'T')}{hours:+03d}:00"}, None

    def _series(
        self, cells: dict[str, str], ts_id: str, parameter: str, statistic: str | None
    ) -> Row:
        site = {
            "agency": cells["agency_cd"] or None,
            "site_no": cells["site_no"] or None,
            "ts_id": ts_id,
        }
        unit = _UNITS.get(parameter) or self._units.get(parameter)
        return site | {
            "parameter_code": parameter,
            "statistic_code": statistic or "00000",
            "unit": unit,
        }


def _renamed(cells: dict[str, str], names: dict[str, str]) -> Row:
    return {column.split()[0]: cells.get(cell) or None for cell, column in names.items()}


def _site(row: Row) -> tuple[Row, Problem | None]:
    datum, place = row["source_crs"], (row["longitude"], row["latitude"])
    row |= {"source_crs": _DATUMS.get(datum), "geometry": None}
    if None in place:
        return row, None
    if datum not in _DATUMS:
        return row, (
            "nwis.datum",
            (
                f"the position is on {datum or 'no stated datum'}; only NAD83 and WGS84 can be"
                " taken as they are"
            ),
        )
    if all(_NUMBER.fullmatch(p) for p in place):  # else the columns themselves condemn the row
        row["geometry"] = Point(coordinates=[float(p) for p in place])
    return row, None


def _peak(row: Row) -> Row:
    for text, day in (("peak_date", "peak_on"), ("max_gage_date", "max_gage_on")):
        # only year or month is known
        row[day] = None if re.fullmatch(r"\d{4}-(0\d|1[0-2])-00", row[text] or "") else row[text]
    return row | {"estimated": "2" in (row["peak_codes"] or "").split(",")}


# -- WaterML in JSON


class _Document(JsonReader):
    """The time series of a document, and what its notes say of when it was made."""

    def __init__(self, source: InputFile) -> None:
        super().__init__(source, None, "value.timeSeries")
        self.stamp = ""

    def _finish(self, records: Records) -> None:
        info = records.member("queryInfo")
        notes = info.get("note") if isinstance(info, dict) else None
        made = (
            [n.get("value") for n in notes if isinstance(n, dict) and n.get("title") == "requestDT"]
            if isinstance(notes, list)
            else []
        )
        self.stamp = utc(made[0]) if made else ""


def _series_of(reader: _Document) -> Iterator[Loose]:
    """Each time series."""
    found = False
    for series in chain.from_iterable(reader.loose()):
        found = True
        yield series
    if not found:
        raise _refusal(
            reader.source_id, "empty", "it holds no time series, so nothing matched the request"
        )


def _statistic(series: Any) -> str:
    """Its statistic; 00000 is none, which only instantaneous values have."""
    try:
        options = series["variable"]["options"]["option"]
        return str(next(o["optionCode"] for o in options if o["name"] == "Statistic"))
    except (KeyError, TypeError, StopIteration):
        return ""


_Found = tuple[Callable[[], str], Row, Problem | None]
_AGAIN = ("drop:same-moment", "a gap listed once per reason; the codes are in its first row")


class _WaterMl(RowReader):
    """One JSON document of time series."""

    def __init__(self, source: InputFile, service: Service) -> None:
        super().__init__(source)
        self._source, self._service = source, service

    def rows(self) -> Iterator[Loose]:
        """Every value of every series; the number of a record counts values."""
        number = empty = 0
        document = _Document(self._source)
        document.warnings = self.warnings
        for series in _series_of(document):
            before = number
            for raw, row, problem in self._checked(series):
                number += 1
                yield Loose(number, raw, None if problem else row, problem, row)
            empty += number == before
        self.stamp = document.stamp
        if empty:
            self.warnings.add(f"{empty} time series of {self.source_id} hold no value.")

    def _checked(self, series: Loose) -> Iterator[_Found]:
        try:
            yield from self._values(series.row)
        except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
            built = f"the series is not built as WaterML: {type(error).__name__} {error}"
            yield series.raw, {}, series.problem or ("nwis.series", built)

    def _values(self, series: Any) -> Iterator[_Found]:
        site, variable = series["sourceInfo"]["siteCode"][0], series["variable"]
        parameter, unit = (
            variable["variableCode"][0]["value"],
            (variable.get("unit") or {}).get("unitCode"),
        )
        fixed = {
            "agency": site["agencyCode"],
            "site_no": site["value"],
            "parameter_code": parameter,
        }
        fixed |= {
            "statistic_code": _statistic(series) or "00000",
            "unit": _UNITS.get(parameter) or _UNIT_WORDS.get(unit or "", unit),
        }
        no_data = float(variable.get("noDataValue") or _NO_DATA)
        other = _contradiction(parameter, _UNIT_WORDS.get(unit or "", unit))
        # one per method, whose number is the one its series has in RDB
        for block in series["values"]:
            here = fixed | {"ts_id": str(block["method"][0]["methodID"])}
            for when, points in groupby(block["value"], key=itemgetter("dateTime")):
                time, fault = self._when(when)
                for point, text, codes in _joined(list(points), no_data):
                    row, problem = (
                        _reading(text, codes, no_data) if text is not None else ({}, _AGAIN)
                    )
                    yield partial(_shown, here, point), here | time | row, fault or problem or other

    def _when(self, text: str) -> tuple[Row, Problem | None]:
        if self._service == "iv":
            return {"observed_at": text}, None
        if day := _MIDNIGHT.fullmatch(text):
            return {"observed_on": day[1]}, None
        return {}, ("nwis.time", f"{text[:40]!r} is no plain day")


def _joined(points: list[Row], no_data: float) -> Iterator[tuple[Row, str | None, list[str]]]:
    """Points of one moment with text and codes; where a gap is listed once per reason, the first
    has all reasons and the rest no text.
    """
    texts = ["" if p["value"] is None else str(p["value"]).strip() for p in points]
    gap = len(points) > 1 and all(
        _reading(t, [], no_data)[0].get("status") == "missing" for t in texts
    )
    codes = [p.get("qualifiers") or [] for p in points]
    for i, point in enumerate(points):
        yield (
            point,
            None if gap and i else texts[i],
            sorted(set(chain(*codes))) if gap else codes[i],
        )


def _shown(series: Row, point: Row) -> str:
    return msgspec.json.encode(series | point).decode()
