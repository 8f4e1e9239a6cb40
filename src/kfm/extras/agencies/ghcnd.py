"""NOAA GHCN-Daily: station files (.dly), the Access Data Service's CSV, and the station list.

A record of a station file is a value that is present: a slot of -9999 is padding or a missing day
and no record, 0 is a true zero. A line that cannot be read is one record and set aside whole; so is
a value on a day that does not exist; a line of an element that is not registered is one record,
dropped, and one of an element that NOAA does not know is set aside. A value that failed a check of
NOAA's stays, with `good` false; one that passed and cannot be true is set aside. The layout is that
of NOAA's readme.txt.
"""

import datetime as dt
import re
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache, partial
from itertools import chain
from operator import itemgetter
from typing import Annotated, Any, NamedTuple
from urllib.parse import parse_qs, urljoin, urlsplit

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kfm.connectors.arrays import Array
from kfm.connectors.base import InputFile, Refused
from kfm.connectors.kind import Ask, NotFetched, RowReader, options_of
from kfm.connectors.operations import Read
from kfm.connectors.read.geometry import Point, Problem
from kfm.connectors.read.rows import Batch, Loose, Row
from kfm.connectors.read.tabular import CsvReader
from kfm.connectors.read.text import text_blocks, utf8_blocks
from kfm.connectors.table.sanity import Sane, limits_for
from kfm.connectors.table.values import ARROW
from kfm.model import KINDS, Column, rfc3339

__all__ = [
    "COLUMNS",
    "KEY",
    "KIND",
    "STATION_COLUMNS",
    "Options",
    "acquire",
    "change_token",
    "columns",
    "key",
    "readers",
    "sanity",
]

KIND = KINDS["ghcnd"]

COLUMNS = (
    Column(name="station_id", type="string", nullable=False),
    # the observer's day, which for many stations is not the calendar day
    Column(name="observed_on", type="date", nullable=False),
    Column(name="element", type="string", nullable=False),
    Column(name="value", type="number", nullable=False),
    # null: a code or a count, or an element the readme does not give a unit for
    Column(name="unit", type="string"),
    Column(name="measurement_flag", type="string"),
    Column(name="quality_flag", type="string"),
    Column(name="source_flag", type="string"),
    Column(name="good", type="boolean"),  # no quality flag; null where the source does not say
    Column(name="trace", type="boolean"),  # too little to measure: the value is 0
)
KEY = ("station_id", "element", "observed_on")
STATION_COLUMNS = (
    Column(name="station_id", type="string", nullable=False),
    Column(name="name", type="string"),
    Column(name="state", type="string"),
    Column(name="latitude", type="number", nullable=False, unit="deg"),
    Column(name="longitude", type="number", nullable=False, unit="deg"),
    Column(name="elevation", type="number", unit="m"),
    Column(name="gsn", type="boolean"),  # of the GCOS Surface Network
    Column(name="network", type="string"),  # HCN or CRN
    Column(name="wmo_id", type="string"),
    Column(name="geometry", type="geometry"),
)
_AIR = ("TMAX", "TMIN", "TAVG", "TOBS", "TAXN", "MDTN", "MDTX")
# nines with the wrong sign, in tenths and in whole units; -9999 is a gap
_FILLER = (999.9, 9999, 9999.9, 99999)
_FLAGGED = ("quality_flag", ())
_VALUES: tuple[Sane, ...] = tuple(  # by element, or by unit; a value that NOAA flagged itself stays
    Sane("value", low, high, _FILLER, where, _FLAGGED)
    for low, high, where in (
        (-95, 65, ("element", _AIR)),
        (0, 2000, ("element", ("PRCP",))),
        (0, 3000, ("element", ("SNOW",))),
        (-100, 110, ("unit", ("Cel",))),  # of soil and water too
        (0, 50_000, ("unit", ("mm",))),
        (0, 150, ("unit", ("m/s",))),
        (0, 360, ("unit", ("deg",))),
        (0, 100, ("unit", ("%",))),
        (-10_000, 10_000, ("unit", ("cm",))),
        (0, 100_000, ("unit", ("km",))),
        (0, 1440, ("unit", ("min",))),
        (0, 400, ("unit", ("d",))),
    )
)
_DAYS_OF = Sane("observed_on", "1700-01-01", "+2d")  # the oldest station began in 1763
_STATIONS = (Sane("elevation", -500, 9000),)
_MISSING, _WIDTH, _STATION_WIDTH, _DAYS, _MAX_LINE = -9999, 269, 85, 31, 1 << 20
AT_ONCE = 50  # station files asked for together
_SLOT = re.compile(rb" *-?[0-9]+[ -~]{3}")
_HEAD = re.compile(rb"[A-Z0-9_-]{11}(?!0000)[0-9]{4}(?:0[1-9]|1[0-2])[A-Z0-9]{4}")
_STATION = re.compile(r"[A-Z0-9_-]{11}")
_ELEMENT = re.compile(r"[A-Z0-9]{4}")
_NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)")
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_ABSENT = re.compile(r"/([A-Z0-9_-]{11})\.dly answered 404")
_VERSION = re.compile(r"\d+(?:\.\d+)+-(?:upd|por)-\d{8,12}")
_UNITS: tuple[tuple[str, str, bool], ...] = (  # elements, unit, whether the file gives tenths
    (r"TMAX|TMIN|TAVG|TOBS|MDTN|MDTX|MNPN|MXPN|S[NX]\d\d", "Cel", True),
    ("PRCP|EVAP|MDEV|MDPR|THIC|WESD|WESF", "mm", True),
    ("SNOW|SNWD", "mm", False),
    (r"AWND|WSF\w", "m/s", True),
    (r"AWDR|WDF\w", "deg", False),
    ("ACMC|ACMH|ACSC|ACSH|PSUN", "%", False),
    ("FRGB|FRGT|FRTH|GAHT", "cm", False),
    ("MDWM|WDMV", "km", False),
    ("TSUN", "min", False),
    (r"DA(?:EV|PR|SF|TN|TX|WM)|DWPR", "d", False),
)
_KNOWN = re.compile(  # every element of the readme
    "|".join(names for names, _, _ in _UNITS)
    + r"|ADPT|ASLP|ASTP|AWBT|FMTM|MDSF|PGTM|RHAV|RHMN|RHMX|TAXN|DASF|W[TV]\d\d"
)
# the character of a flag -> its text; a blank says nothing
_FLAGS = pa.array([chr(c) if 32 < c < 127 else None for c in range(256)], pa.string())
_SLOTS = np.arange(_DAYS, dtype=np.int32)


class Options(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`source.options`; the address is the tree that holds ghcnd-stations.txt and all/, or with
    format csv each file itself.
    """

    stations: tuple[str, ...] = ()  # ids, in the order they are read; empty: by state and prefix
    state: str = ""  # all of this state's stations, from the list
    prefix: str = ""  # only ids that begin so, e.g. USC0014
    limit: Annotated[int, msgspec.Meta(ge=1)] | None = None  # the first so many of them
    elements: tuple[str, ...] = ("TMAX", "TMIN", "PRCP")  # empty: all
    allow_missing: bool = False  # a listed station without a file is left out, not refused

    def __post_init__(self) -> None:
        for station in self.stations:
            if not _STATION.fullmatch(station):
                raise ValueError(f"{station!r} is not a station id of 11 characters")
        if len(set(self.stations)) < len(self.stations):
            raise ValueError("a station is named twice")


def columns(job: Read) -> tuple[Column, ...]:
    """The table of a station list, or that of daily values."""
    return STATION_COLUMNS if job.format == "txt" else COLUMNS


def key(job: Read) -> tuple[str, ...]:
    """Its key."""
    return ("station_id",) if job.format == "txt" else KEY


def sanity(job: Read) -> tuple[Sane, ...]:
    """What can be true of them; values of station files are judged as they are read, by the same
    table.
    """
    if job.format == "txt":
        return _STATIONS
    return (_DAYS_OF,) if job.format == "dly" else (_DAYS_OF, *_VALUES)


# -- asking


def change_token(ask: Ask) -> str | None:
    """Both stamps of ghcnd-version.txt: of the daily update and of the last full rebuild; None for
    CSV, which has none.
    """
    if ask.format == "csv" or _is_file(ask.urls[0]):
        return None
    path = ask.get(_below(ask, "ghcnd-version.txt"), "version", keep=False)
    with path.open("rb") as file:
        stamps = _VERSION.findall(file.read(4096).decode("ascii", "replace"))
    # not the sentence we know: everything is asked for
    return " ".join(stamps) if len(stamps) == 2 else None


def stamp(token: str) -> str | None:
    """When the daily update of a release was made: 3.32-upd-2026110918 is of 18 o'clock on 9
    November.
    """
    made = re.search(r"-upd-(\d{8})(\d{2})?(\d{2})?", token)
    if made is None:
        return None
    try:
        return rfc3339(
            dt.datetime.strptime(
                made[1] + (made[2] or "00") + (made[3] or "00"), "%Y%m%d%H%M"
            ).replace(tzinfo=dt.UTC)
        )
    except ValueError:
        return None


def acquire(ask: Ask) -> None:
    """The station list and the file of every station; of CSV, each registered address."""
    options = options_of(ask.options, Options)
    if ask.format == "csv":
        for number, url in enumerate(ask.urls, 1):
            _refuse_units(url)
            ask.get(url, f"daily-{number}", accept="text/csv")
        return
    url = ask.urls[0] if _is_file(ask.urls[0]) else _below(ask, "ghcnd-stations.txt")
    path = ask.get(url, "stations", accept="text/plain")
    if ask.format == "txt":
        return
    wanted = _chosen(InputFile(source_id="stations", path=str(path), digest=""), options)
    size = 1 if options.allow_missing else AT_ONCE
    for at in range(0, len(wanted), size):
        try:
            ask.get_many(
                {s: _below(ask, f"all/{s}.dly") for s in wanted[at : at + size]},
                accept="text/plain",
            )
        except NotFetched as error:
            _absent(ask, error, options)


def _absent(ask: Ask, error: NotFetched, options: Options) -> None:
    """A listed station without a file is left out or refused; anything else is trouble on the
    way.
    """
    found = _ABSENT.search(str(error))
    if not found:
        raise error
    if options.allow_missing:
        ask.log("ghcnd.missing", station=found[1])
        return
    raise Refused(
        "ghcnd.missing",
        f"Station {found[1]} has no file upstream (404).",
        expected="a file of every station the registry asks for",
        remedy="Take the station out of `source.options`, or set `allow_missing: true` there.",
        station=found[1],
    ) from error


def _chosen(listed: InputFile, options: Options) -> list[str]:
    if not (options.stations or options.state or options.prefix):
        _refuse_choice(
            "names no station, no state and no prefix",
            "one of them: the whole world is 100,000 files",
        )
    found = []
    for record in _StationReader(listed, options, None).rows():
        if record.row is not None:
            found.append(str(record.row["station_id"]))
        elif record.problem is not None and record.problem[0] == "ghcnd.width":
            raise Refused.cut(
                listed.source_id,
                f"it ends without a line break inside line {record.line}: {record.problem[1]}",
                line=record.line,
            )
    unlisted = [s for s in options.stations if s not in set(found)]
    if unlisted or not found:
        _refuse_choice(
            f"asks for {', '.join(unlisted[:5]) or 'stations'} not in the list",
            "stations of ghcnd-stations.txt",
        )
    return (list(options.stations) or found)[: options.limit]


def _refuse_choice(happened: str, expected: str) -> None:
    raise Refused(
        "ghcnd.stations",
        f"source.options {happened}.",
        expected=expected,
        remedy="Change source.options of the registry entry; docs/sources.md lists the options.",
    )


def _refuse_units(url: str) -> None:
    """The service's own default is inches and Fahrenheit, and nothing in its answer says so."""
    units = parse_qs(urlsplit(url).query).get("units")
    if units != ["metric"] and (units or "/services/data/" in url):
        raise Refused(
            "ghcnd.units",
            f"The registered address asks for {'units=' + units[0] if units else 'no units'}.",
            expected="units=metric: degrees Celsius and millimetres",
            remedy="Correct `source.url` in the registry entry.",
        )


def _is_file(url: str) -> bool:
    return urlsplit(url).path.endswith(".txt")


def _below(ask: Ask, name: str) -> str:
    return urljoin(ask.urls[0].rstrip("/") + "/", name)


# -- reading


def readers(job: Read) -> list[RowReader]:
    """One per data file; the list that is captured beside station files is evidence of what was
    asked for, not data.
    """
    options = options_of(job.options, Options)
    if job.format == "txt":
        return [_StationReader(source, options, job.encoding) for source in job.inputs]
    if job.format == "csv":
        return [_DailyCsvReader(source, options, job.encoding) for source in job.inputs]
    return [_DlyReader(source, options) for source in job.inputs if source.source_id != "stations"]


def _unit(element: str) -> tuple[str | None, float]:
    """The unit of an element and what its figures are divided by."""
    for names, unit, tenths in _UNITS:
        if re.fullmatch(names, element):
            return unit, 10.0 if tenths else 1.0
    return None, 1.0


def _row(
    station: str,
    day: str,
    element: str,
    value: float,
    unit: str | None,
    flags: Sequence[str] | None,
) -> Row:
    """One observation; `flags` are those of measurement, quality and source, None where the source
    does not give them.
    """
    m, q, s = (f.strip() or None for f in flags) if flags is not None else (None, None, None)
    judged = (
        {"good": q is None, "trace": m == "T" and value == 0}
        if flags is not None
        else {"good": None, "trace": None}
    )
    about = {
        "station_id": station,
        "observed_on": day,
        "element": element,
        "value": value,
        "unit": unit,
    }
    return about | {"measurement_flag": m, "quality_flag": q, "source_flag": s} | judged


class _Part(NamedTuple):
    """Some consecutive lines of a file: those of the right width as a table of characters, and the
    others.
    """

    lines: Array  # (n, 269)
    numbers: Array  # of those lines in the file, from 1
    odd: list[tuple[int, bytes]]

    def text(self, index: int) -> bytes:
        return bytes(self.lines[index].tobytes())


class _DlyReader(RowReader):
    """One station's file: a line is a month of one element, 31 slots of a value and three flags."""

    def __init__(self, source: InputFile, options: Options) -> None:
        super().__init__(source)
        self._source, self._wanted = source, frozenset(options.elements)
        self._station = np.frombuffer(source.source_id.encode().ljust(11)[:11], np.uint8)

    def rows(self) -> Iterator[Loose]:
        """The records of `batches` one by one."""
        for batch in self.batches(tuple(c.name for c in COLUMNS)):
            for i, row in enumerate(pa.table(dict(batch.columns)).to_pylist()):
                row["observed_on"] = str(row["observed_on"])
                yield Loose(
                    batch.line(i),
                    partial(batch.raw, i),
                    None if batch.bad else row,
                    batch.bad.get(i),
                )

    def batches(self, names: tuple[str, ...]) -> Iterator[Batch]:
        """Some thousand lines at a time, every column typed already; what is set aside follows its
        block.
        """
        for part in self._parts():
            made, rows, aside = self._columns(part)
            if len(rows):
                yield self._batch(
                    names, made, part.numbers[rows], partial(_line_at, part, rows), {}
                )
            if aside:
                nothing = {c.name: pa.nulls(len(aside), ARROW[c.type]) for c in COLUMNS}
                bad = {i: problem for i, (_, _, problem) in enumerate(aside)}
                yield self._batch(
                    names,
                    nothing,
                    [n for n, _, _ in aside],
                    [line for _, line, _ in aside].__getitem__,
                    bad,
                )

    def _batch(
        self,
        names: tuple[str, ...],
        made: Any,
        numbers: Any,
        line: Callable[[int], bytes],
        bad: dict[int, Problem],
    ) -> Batch:
        unknown = tuple(name for name in made if name not in names)
        number, raw = (lambda i: int(numbers[i])), (lambda i: line(i).decode("ascii", "replace"))
        return Batch(self.source_id, len(numbers), made, number, raw, bad, unknown)

    def _parts(self) -> Iterator[_Part]:
        """The file in blocks of whole lines. Raises `Refused` when not one of its lines is of this
        station.
        """
        held, number, ours = b"", 1, False
        for block in chain(utf8_blocks(self._source, "dly", None, self.warnings), (None,)):
            held += block or b""
            cut = len(held) if block is None else held.rfind(b"\n") + 1
            _refuse_endless(len(held) - cut, self.source_id)
            if not cut:
                continue
            part, count = _part(held[:cut], number)
            ours = (
                ours
                or bool(self._own(part.lines).any())
                or any(line.startswith(self._station.tobytes()) for _, line in part.odd)
            )
            yield part
            number, held = number + count, held[cut:]
        if not ours:
            raise Refused(
                "ghcnd.station",
                f"No line of source {self.source_id} is one of that station.",
                expected="lines that begin with the id of the station",
                remedy=(
                    "Look at the captured bytes: it may be another station's file or an error"
                    " message."
                ),
                source_id=self.source_id,
            )

    def _own(self, lines: Array) -> Array:
        own: Array = (lines[:, :11] == self._station).all(axis=1)
        return own

    def _problem(self, line: bytes) -> Problem:
        """What is the matter with a line."""
        if len(line) != _WIDTH:
            return "ghcnd.width", f"the line is {len(line)} characters wide, not {_WIDTH}"
        if not _HEAD.match(line):
            return (
                "ghcnd.line",
                "the line does not begin with a station, a year, a month and an element",
            )
        if line[:11] != self._station.tobytes():
            return "ghcnd.station", f"the line is of another station than {self.source_id}"
        if (problem := _unwanted(line[17:21].decode(), self._wanted)) is not None:
            return problem
        day = next(
            d for d in range(1, _DAYS + 1) if not _SLOT.fullmatch(line, 13 + 8 * d, 21 + 8 * d)
        )
        return "ghcnd.value", f"day {day} is not a value and three flags"

    def _columns(
        self, part: _Part
    ) -> tuple[dict[str, "pa.Array"], Array, list[tuple[int, bytes, Problem]]]:
        """The values of a block as columns, the line of each, and what is none."""
        lines = part.lines
        first, length, dated = _months(lines[:, 11:17])
        codes, which = np.unique(
            np.ascontiguousarray(lines[:, 17:21]).view("S4").ravel(), return_inverse=True
        )
        elements = [c.decode("ascii", "replace") for c in codes.tolist()]
        wanted = np.array(
            [bool(_ELEMENT.fullmatch(e)) and _unwanted(e, self._wanted) is None for e in elements],
            np.bool_,
        )
        fine = dated & wanted[which] & self._own(lines)
        # one per character of a slot
        planes = np.ascontiguousarray(np.moveaxis(lines[:, 21:].reshape(-1, _DAYS, 8), 2, 0))
        values, whole = _integers(planes[:5])
        printable = planes[5:] - np.uint8(32) < 95  # flags are
        if not (whole.all() and printable.all()):
            fine &= whole.all(axis=1) & printable.all(axis=(0, 2))
        present = (values != _MISSING) & fine[:, None]
        late = present & (length[:, None] <= _SLOTS)
        units = [_unit(e) for e in elements]
        untrue = present & ~late & (planes[6] == ord(" ")) & _untrue(values, which, elements, units)
        aside = [(n, line, self._problem(line)) for n, line in part.odd]
        aside += [
            (int(part.numbers[i]), part.text(i), self._problem(part.text(i)))
            for i in np.flatnonzero(~fine).tolist()
        ]
        aside += [
            (
                int(part.numbers[i]),
                part.text(i),
                _no_value(elements[which[i]], day + 1, int(values[i, day])),
            )
            for i, day in np.argwhere(untrue).tolist()
        ]
        aside += [
            (int(part.numbers[i]), part.text(i), _no_day(day + 1))
            for i, day in np.argwhere(late).tolist()
        ]
        taken = present & ~late & ~untrue
        at, count = np.flatnonzero(taken), taken.sum(axis=1)
        # the values of a line follow one another, so that what is the same for all is repeated
        rows = np.repeat(np.arange(len(lines)), count)
        value = values.take(at) / np.repeat(
            np.array([divisor for _, divisor in units])[which], count
        )
        m, q, s = (planes[i].take(at) for i in (5, 6, 7))
        made = {
            "station_id": pa.repeat(self.source_id, len(at)),
            "observed_on": pa.array((first[:, None] + _SLOTS).take(at)).view(pa.date32()),
            "element": _repeated(elements, which, count),
            "value": pa.array(value),
            "unit": _repeated([unit for unit, _ in units], which, count),
            "measurement_flag": _flag(m),
            "quality_flag": _flag(q),
            "source_flag": _flag(s),
            "good": pa.array(q == ord(" ")),
            "trace": pa.array((m == ord("T")) & (value == 0)),
        }
        return made, rows, sorted(aside, key=itemgetter(0))


def _part(data: bytes, first: int) -> tuple[_Part, int]:
    """Whole lines as a table, and how many they are."""
    table = np.frombuffer(data, np.uint8)
    if len(data) % (_WIDTH + 1) == 0 and np.count_nonzero(table == ord("\n")) == len(data) // (
        _WIDTH + 1
    ):
        table = table.reshape(-1, _WIDTH + 1)
        if (table[:, _WIDTH] == ord("\n")).all():
            return _Part(table[:, :_WIDTH], np.arange(first, first + len(table)), []), len(table)
    lines = [_padded(line.removesuffix(b"\r")) for line in data.removesuffix(b"\n").split(b"\n")]
    if not data.endswith(b"\n"):  # the end of the file: it may have been cut, and flags with it
        lines[-1] = data.rpartition(b"\n")[2].removesuffix(b"\r")
    wide = [i for i, line in enumerate(lines) if len(line) == _WIDTH]
    table = np.frombuffer(b"".join(lines[i] for i in wide), np.uint8).reshape(-1, _WIDTH)
    odd = [
        (first + i, line) for i, line in enumerate(lines) if len(line) != _WIDTH and line.strip()
    ]
    return _Part(table, first + np.array(wide, np.int64), odd), len(lines)


def _padded(line: bytes) -> bytes:
    """A line from which someone took the blanks at its end, that is flags of the last day, with
    them.
    """
    return line.ljust(_WIDTH) if len(line) >= _WIDTH - 3 else line


def _line_at(part: _Part, rows: Array, index: int) -> bytes:
    return part.text(rows[index])


def _repeated(texts: Sequence[str | None], which: Array, count: Array) -> "pa.Array":
    """One text for each line, as often as the line has values."""
    some = np.flatnonzero(count)
    ends = pa.array(np.cumsum(count[some]), pa.int64())
    return pc.run_end_decode(
        pa.RunEndEncodedArray.from_arrays(
            ends, pa.array(texts, pa.string()).take(pa.array(which[some]))
        )
    )


def _flag(characters: Array) -> "pa.Array":
    if (characters == ord(" ")).all():  # most are, most of the time
        return pa.nulls(len(characters), pa.string())
    return _FLAGS.take(pa.array(characters))


def _months(digits: Array) -> tuple[Array, Array, Array]:
    """Of YYYYMM: the first day as days since 1970, how many days there are, and whether it is a
    month at all.
    """
    figures = digits - np.uint8(ord("0"))
    year, month = figures[:, :4] @ np.array([1000, 100, 10, 1]), figures[:, 4:] @ np.array([10, 1])
    good = (figures < 10).all(axis=1) & (year > 0) & (month > 0) & (month < 13)
    start = np.where(good, (year - 1970) * 12 + month - 1, 0).astype("M8[M]")
    first = start.astype("M8[D]").astype(np.int32)
    return first, (start + 1).astype("M8[D]").astype(np.int32) - first, good


def _integers(text: Array) -> tuple[Array, Array]:
    """Right-justified integers of five characters, given as five planes, and whether each is
    one.
    """
    figures = text - np.uint8(ord("0"))
    digit, minus, blank = figures < 10, text == ord("-"), text == ord(" ")
    figures *= digit
    good = digit[4] & (digit[0] | minus[0] | blank[0])
    number = figures[0].astype(np.int32)
    for i in range(1, 5):
        number *= 10
        number += figures[i]
        # after a minus or a digit only a digit
        good &= digit[i] | (blank[i - 1] & (minus[i] | blank[i]))
    return np.where(minus.any(axis=0), -number, number), good


def _unwanted(element: str, wanted: frozenset[str]) -> Problem | None:
    """Why an element is not taken: nobody knows it, or nobody asked for it. One that the registry
    names is known.
    """
    if element in wanted or (not wanted and _KNOWN.fullmatch(element)):
        return None
    if not _KNOWN.fullmatch(element):
        return (
            "ghcnd.element",
            (
                f"{element} is no element that NOAA's readme lists; register it under `elements` if"
                " it is one"
            ),
        )
    return "drop:element", "the element is not a registered one"


def _untrue(
    values: Array, which: Array, elements: list[str], units: list[tuple[str | None, float]]
) -> Array:
    """Which figures cannot be true values of their element."""
    limits = [_limits(element, unit, by) for element, (unit, by) in zip(elements, units)]
    low, high = (np.array([ends[n] for ends in limits], np.int32)[which, None] for n in (0, 1))
    found: Array = (values < low) | (values > high)
    for element, (least, greatest, figures) in enumerate(limits):
        for figure in figures:
            if least <= figure <= greatest and (same := values == figure).any():
                found |= same & (which == element)[:, None]
    return found


@lru_cache(maxsize=512)
def _limits(element: str, unit: str | None, by: float) -> tuple[int, int, tuple[int, ...]]:
    """(least, greatest, sentinels) as the figures of the file."""
    low, high, filler = limits_for(_VALUES, "value", element=element, unit=unit)
    figures = {
        round(s * by)
        for s in filler
        if isinstance(s, int | float) and float(s * by).is_integer() and abs(s * by) < 10**5
    }
    return (
        max(-(10**6), round(max(low, -(10.0**6)) * by)),
        min(10**6, round(min(high, 10.0**6) * by)),
        tuple(sorted(figures)),
    )


def _no_value(element: str, day: int, figure: int) -> Problem:
    unit, by = _unit(element)
    low, high, filler = _limits(element, unit, by)
    if figure in filler:
        return (
            "value.sentinel",
            f"{element} of day {day}: {figure} is what stands where there is no value, not a value",
        )
    shown = f"{low / by:g}..{high / by:g}{f' {unit}' if unit else ''}"
    return "value.range", f"{element} of day {day}: {figure / by:g} lies outside {shown}"


def _no_day(day: int) -> Problem:
    return "ghcnd.day", f"there is a value for day {day}, which the month does not have"


def _refuse_endless(size: int, source_id: str) -> None:
    if size > _MAX_LINE:
        raise Refused(
            "ghcnd.line",
            f"Source {source_id} holds a line of more than {_MAX_LINE:,} characters.",
            expected="lines of fixed width",
            remedy="Look at the captured bytes; correct the address or `source.format`.",
            source_id=source_id,
        )


class _DailyCsvReader(RowReader):
    """What the Access Data Service sends with units=metric: a row per station and day, a column per
    element, empty where missing.
    """

    def __init__(self, source: InputFile, options: Options, encoding: str | None) -> None:
        super().__init__(source)
        self._csv, self._wanted = CsvReader(source, encoding), frozenset(options.elements)
        self._csv.warnings = self.warnings

    def rows(self) -> Iterator[Loose]:
        """A record per value."""
        for record in chain.from_iterable(self._csv.loose()):
            if record.row is None:
                yield record
                continue
            cells = {name: (cell or "").strip() for name, cell in record.row.items()}
            elements = [
                name for name in cells if _ELEMENT.fullmatch(name) and name not in ("DATE", "NAME")
            ]
            if not {"STATION", "DATE"} <= cells.keys() or not elements:
                self._refuse_header(list(cells))
            for element in elements:
                if cells[element]:
                    yield record._replace(**self._observed(cells, element))

    def _observed(self, cells: dict[str, str], element: str) -> Row:
        """The row or the problem of one value."""
        station, day, text = cells["STATION"], cells["DATE"], cells[element]
        # measurement, quality and source flag, perhaps a time
        attributes = cells.get(f"{element}_ATTRIBUTES")
        flags = None if attributes is None else [*attributes.split(","), "", ""][:3]
        if (unwanted := _unwanted(element, self._wanted)) is not None:
            return {"row": None, "problem": unwanted}
        if (
            not _STATION.fullmatch(station)
            or not _DATE.fullmatch(day)
            or not _NUMBER.fullmatch(text)
            or float(text) == _MISSING
        ):
            reason = (
                f"{element}: {text!r} of station {station!r} on {day!r} is not a value with its"
                " place and day"
            )
            return {"row": None, "problem": ("ghcnd.value", reason)}
        return {"row": _row(station, day, element, float(text), _unit(element)[0], flags)}

    def _refuse_header(self, found: list[str]) -> None:
        raise Refused(
            "csv.header",
            f"Source {self.source_id} has the columns {', '.join(found[:20])}.",
            expected="STATION, DATE and a column per element",
            remedy="Look at the captured bytes; correct the address in the registry entry.",
            source_id=self.source_id,
            columns=found,
        )


class _StationReader(RowReader):
    """ghcnd-stations.txt: a line per station in fixed columns; an elevation of -999.9 is
    missing.
    """

    def __init__(self, source: InputFile, options: Options, encoding: str | None) -> None:
        super().__init__(source)
        self._source, self._encoding = source, encoding
        self._options, self._named = options, frozenset(options.stations)

    def rows(self) -> Iterator[Loose]:
        """A record per line."""
        held, number, widths = "", 0, set[int]()
        for block in text_blocks(self._source, "txt", self._encoding, self.warnings):
            *lines, held = (held + block).split("\n")
            _refuse_endless(len(held), self.source_id)
            for line in lines:
                number += 1
                if line.strip():
                    widths.add(len(line.rstrip("\r")))
                    yield self._station(number, line.rstrip("\r"))
        if held.strip():
            yield self._last(number + 1, held.rstrip("\r"), widths or {_STATION_WIDTH})

    def _last(self, number: int, line: str, widths: set[int]) -> Loose:
        """A line without an end: where all others are of one width, a narrower one was cut, and
        with it a name or a state.
        """
        if len(widths) == 1 and len(line) < (width := min(widths)):
            return Loose(
                number,
                partial(str, line),
                None,
                ("ghcnd.width", f"the line is {len(line)} characters wide, not {width}"),
            )
        return self._station(number, line)

    def _station(self, number: int, line: str) -> Loose:
        latitude, longitude, elevation = (
            line[a:b].strip() for a, b in ((12, 20), (21, 30), (31, 37))
        )
        station, state = line[:11], line[38:40].strip()
        if not _STATION.fullmatch(station) or not all(
            map(_NUMBER.fullmatch, (latitude, longitude, elevation))
        ):
            problem: Problem | None = (
                "ghcnd.line",
                "the line is not an id, a latitude, a longitude and an elevation in their columns",
            )
        else:
            problem = self._unwanted(station, state)
        if problem is not None:
            return Loose(number, partial(str, line), None, problem)
        row = {
            "station_id": station,
            "name": line[41:71].strip() or None,
            "state": state or None,
            "latitude": float(latitude),
            "longitude": float(longitude),
            "elevation": None if float(elevation) == -999.9 else float(elevation),
            "gsn": line[72:75] == "GSN",
            "network": line[76:79].strip() or None,
            "wmo_id": line[80:85].strip() or None,
            "geometry": Point(coordinates=[float(longitude), float(latitude)]),
        }
        return Loose(number, partial(str, line), row)

    def _unwanted(self, station: str, state: str) -> Problem | None:
        """Why a listed station is not one of those asked for."""
        if self._named:
            return (
                None
                if station in self._named
                else ("drop:station", "the registry names other stations")
            )
        if self._options.state and state != self._options.state:
            return "drop:state", f"the registry asks for {self._options.state}"
        return (
            None
            if station.startswith(self._options.prefix)
            else ("drop:station", f"the registry asks for {self._options.prefix}…")
        )
