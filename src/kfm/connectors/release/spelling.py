"""Finds hidden positions in numbers and texts, however they are spelt: degrees, minutes, scaled,
projected, as a code of a grid.
"""

import base64
import binascii
import html
import json
import math
import re
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import cached_property, lru_cache
from typing import NamedTuple
from urllib.parse import unquote

import h3.api.basic_int as h3
import numpy as np
import shapely

from kfm.connectors.arrays import Floats, Mask, Whole

__all__ = ["WIDEST", "ZOOMS", "Places", "Token", "number_tokens", "readings_of", "spoken"]

Moved = Callable[[Floats, Floats], tuple[Floats, Floats]]  # into another system
_NUMBER = re.compile(r"\d+(?:\.\d+)?(?:[eE][+-]?\d{1,2}(?![\d.]))?|(?<!\d)\.\d+")
_COMMA = re.compile(r"(?<![\d.,])\d{1,3},\d{2,}(?![\d,.])")  # a decimal comma
_THOUSANDS = re.compile(r"(?<![\d.,])\d{1,3}(?:,\d{3})+(?![\d,])")
_BETWEEN = re.compile(r"(?:[^\w,;/|()\[\]{}]|[_dDmM]|deg|min){1,5}")  # degrees and minutes
_STRICT = re.compile(r"(?<![0-9A-Za-z.])(?:\d+(?:\.\d+)?(?:[eE][+-]?\d{1,2})?)(?![0-9A-Za-z])")
_DIGEST = re.compile(r"(?<![0-9A-Za-z])(?=\d*[A-Fa-f])[0-9A-Fa-f]{16,}(?![0-9A-Za-z])")
_TIME = re.compile(r"(?<!\d)\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:\.\d+)?)?)?(?!\d)")
_WORD = re.compile(r"[0-9A-Za-z]{5,}")
_LONG = re.compile(r"[A-Za-z0-9+/_=-]{8,}")
_PLUS = re.compile(
    r"(?<![0-9A-Za-z])([23456789CFGHJMPQRVWX]{4,8})(0{0,4})\+([23456789CFGHJMPQRVWX]{0,7})",
    re.IGNORECASE,
)
_MGRS = re.compile(
    r"(?<![0-9A-Za-z])(\d{1,2})\s?([C-HJ-NP-X])\s?([A-HJ-NP-Z])\s?([A-HJ-NP-V])\s?((?:\d\s?){4,10})(?![0-9A-Za-z])",
    re.IGNORECASE,
)
_LOCATOR = re.compile(
    r"(?<![0-9A-Za-z])[A-R]{2}\d{2}[A-X]{2}(?:\d{2}(?:[A-X]{2})?)?(?![0-9A-Za-z])", re.IGNORECASE
)
_GEOHASH = "0123456789bcdefghjkmnpqrstuvwxyz"
_CODE = "23456789CFGHJMPQRVWX"
_BANDS = "CDEFGHJKLMNPQRSTUVWX"
# other scripts have decimal points of their own
_SEPARATORS = {0x066B: ".", 0x066C: ",", 0x00B7: "."}
_RINGS = {0x00BA: "\u00b0", 0x02DA: "\u00b0"}  # what people type for a sign of degrees
# systems that are in use where the positions lie; others differ from one of these by a metre
_USUAL = re.compile(r"(NAD27|NAD83|WGS 84|ETRS89|GDA94|SIRGAS 2000) / (?!UTM grid|Equi7|World)")
_SYSTEMS = 40  # of those that are looked for
_LARGE = 100_000  # of a place in metres or feet one number is larger
_TRIES = 1_000  # records two numbers may both belong to
ZOOMS = 24  # the finest tiles that anybody numbers
_NUMBERS = 400  # of one text that are looked at as tiles and boxes
WIDEST = 0.6  # degrees; a box that is longer says nothing
_DEPTH = 2  # so often is something decoded that was decoded


class Token(NamedTuple):
    """A number somebody wrote, without its sign: how large, what its last digit stands for, how
    many digits tell something.
    """

    value: float
    unit: float
    digits: int
    angle: bool = False  # degrees with minutes, read as degrees
    marked: bool = False  # by a sign of degrees or a point of the compass


class _Reading(NamedTuple):
    """Every hidden position in one system of numbers, and when one of its numbers alone is
    telling.
    """

    name: str
    y: Floats
    x: Floats
    degree: float  # so many units are one degree
    alone: int  # significant digits


def spoken(text: str, depth: int = _DEPTH) -> Iterator[str]:
    """A text, and what stands in it encoded: percent signs, entities, escapes, base64, hexadecimal,
    WKB.
    """
    if not text.isascii():
        text = unicodedata.normalize("NFKC", text.translate(_RINGS)).translate(_SEPARATORS)
        text = "".join(
            str(d) if (d := unicodedata.decimal(c, -1)) >= 0 else c
            for c in text
            if unicodedata.category(c) != "Cf"
        )
    yield text
    if depth:
        others = {
            unquote(text) if "%" in text else text,
            html.unescape(text) if "&" in text else text,
            _unescaped(text),
        } - {text}
        for word in _LONG.findall(text) if len(text) < 1 << 20 else ():
            others |= {found for found in (_decoded(word),) if found}
        for other in sorted(others):
            yield from spoken(other, depth - 1)


def _unescaped(text: str) -> str:
    if "\\u" not in text:
        return text
    try:
        return str(json.loads(f'"{text}"' if '"' not in text else text))
    except (ValueError, RecursionError):
        return re.sub(r"\\u([0-9a-fA-F]{4})", lambda found: chr(int(found[1], 16)), text)


def _decoded(word: str) -> str:
    """What base64 or hexadecimal digits stand for, when that is text or a shape."""
    raws = []
    if len(word) % 2 == 0 and re.fullmatch(r"[0-9A-Fa-f]+", word):
        raws.append(bytes.fromhex(word))
    try:
        raws.append(
            base64.b64decode(
                word.rstrip("=").translate(str.maketrans("-_", "+/"))
                + "=" * (-len(word.rstrip("=")) % 4)
            )
        )
    except (binascii.Error, ValueError):
        pass
    for raw in raws:
        if raw[:1] in (b"\0", b"\1") and len(raw) >= 21:
            try:
                shape = shapely.from_wkb(raw)
                return " ".join(
                    f"{x!r} {y!r};" for x, y in shapely.get_coordinates(shape)[:10_000].tolist()
                )
            except shapely.errors.ShapelyError:
                pass
        try:
            found = raw.decode()
        except UnicodeDecodeError:
            continue
        if found.isprintable() and any(map(str.isdigit, found)):
            return found
    return ""


def number_tokens(text: str, *, strict: bool = False) -> list[Token]:
    """The numbers of a text, and what follows each other in it as degrees, minutes and seconds.

    `strict`: letters beside a number make it a part of something else, a digest perhaps.
    """
    found, plain = list[Token](), list[tuple[Token, int, int]]()
    text = _DIGEST.sub(" ", _TIME.sub(" ", text))
    for match in (_STRICT if strict else _NUMBER).finditer(text):
        token = _token(match[0])
        if token is not None:
            plain.append((token, match.start(), match.end()))
    found += [token for token, _, _ in plain]
    if "," in text:
        found += [t for m in _COMMA.findall(text) if (t := _token(m.replace(",", "."))) is not None]
        found += [
            t for m in _THOUSANDS.findall(text) if (t := _token(m.replace(",", ""))) is not None
        ]
    for at in range(len(plain) - 1):
        found += _angles(text, plain[at : at + 3])
    return found


def _token(text: str) -> Token | None:
    mantissa, _, power = text.lower().partition("e")
    if len(mantissa) > 40:
        return None
    value, scale = float(text), int(power or 0)
    decimals = len(mantissa.partition(".")[2])
    digits = (
        len(mantissa.replace(".", "").strip("0")) if "." in mantissa else len(mantissa.lstrip("0"))
    )
    return Token(value, 10.0 ** (scale - decimals), digits)


def _angles(text: str, run: Sequence[tuple[Token, int, int]]) -> list[Token]:
    """Degrees with minutes, and with seconds, where numbers stand close enough to be read so."""
    (degrees, _, end), (minutes, start, stop) = run[0], run[1]
    if (
        degrees.unit < 1
        or degrees.value > 180
        or minutes.value >= 60
        or not _BETWEEN.fullmatch(text, end, start)
    ):
        return []
    around = text[end:start] + text[stop : stop + 4] + text[max(0, run[0][1] - 2) : run[0][1]]
    marked = any(c in "°º˚" or c.upper() in "NSEW" for c in around)
    value, digits = degrees.value + minutes.value / 60, degrees.digits + max(minutes.digits, 2)
    found = [Token(value, minutes.unit / 60, digits, True, marked)]
    if (
        len(run) > 2
        and minutes.unit >= 1
        and (seconds := run[2][0]).value < 60
        and _BETWEEN.fullmatch(text, stop, run[2][1])
    ):
        found.append(
            Token(
                value + seconds.value / 3600,
                seconds.unit / 3600,
                digits + max(seconds.digits, 2),
                True,
                marked,
            )
        )
    return found


class Places:
    """Hidden positions, and what of a text or a row of numbers is one of them."""

    def __init__(self, lat: Floats, lng: Floats, resolution: int | None) -> None:
        there = np.isfinite(lat) & np.isfinite(lng) & (np.abs(lat) <= 90) & (np.abs(lng) <= 180)
        unique = np.unique(np.column_stack([lat[there], lng[there]]), axis=0)
        self.lat, self.lng, self._resolution = (
            unique[:, 0],
            unique[:, 1],
            -1 if resolution is None else resolution,
        )
        side = (
            math.sqrt(h3.average_hexagon_area(resolution, "km^2")) / 111
            if resolution is not None
            else 0.2
        )
        self.coarsest = min(side / 2, 0.3)  # degrees; what says less is no more than the cell says
        # numbers of several columns meet by chance more easily
        self.across = min(self.coarsest, 0.05)
        self._cells: dict[int, set[int]] = {}
        self._codes: dict[tuple[str, int], set[str]] = {}
        self._tiles: dict[int, Whole] = {}
        self._large = False

    def __len__(self) -> int:
        return len(self.lat)

    @property
    def readings(self) -> "list[_Sorted]":
        """The positions as numbers, in every system that is looked for."""
        return self._readings + (self._maps if self._large else [])

    @cached_property
    def _readings(self) -> "list[_Sorted]":
        return (
            [_Sorted(reading) for reading in readings_of(self.lat, self.lng)] if len(self) else []
        )

    @cached_property
    def _maps(self) -> "list[_Sorted]":
        return [_Sorted(reading) for reading in _projected(self.lat, self.lng)]

    # -- numbers

    def alone(self, token: Token, *, degrees: bool = False) -> str:
        """How one number gives a latitude or longitude away; empty when it does not. `degrees`:
        sizes and counts stand beside it.
        """
        for system in self.readings:
            reading = system.reading
            if degrees and reading.degree != 1:
                continue
            if token.digits < reading.alone or (
                token.angle and (reading.degree != 1 or not token.marked)
            ):
                continue
            if reading.degree == 1 and token.unit > 0.001000001:
                continue
            if reading.degree > 1 and token.unit > 1:
                continue
            # it may have been a single
            slack = token.value * (1e-7 if float(np.float32(token.value)) == token.value else 1e-12)
            if any(
                axis.between(token.value - token.unit / 2 - slack, token.value + token.unit + slack)
                for axis in (system.y, system.x)
            ):
                return reading.name
        return ""

    def near(self, values: Floats, *, strict: bool = False) -> Mask:
        """Which numbers could be a part of a position at all: the rest needs no second look. The
        systems of maps cost time, and are looked for once there are numbers as large as theirs.
        """
        with np.errstate(invalid="ignore"):
            self._large |= bool(len(self) and not strict and (values >= _LARGE).any())
        hit = np.zeros(len(values), np.bool_)
        for system in self.readings:
            slack = (
                max(1.0, WIDEST * system.reading.degree) if system.reading.degree > 1 else WIDEST
            )
            for axis in (system.y, system.x):
                hit |= (values >= axis.low - slack) & (values <= axis.high + slack)
        return hit

    def sides(self, token: Token) -> tuple[int, int]:
        """In which systems a number of a row could be the latitude, and the longitude, of some
        record: a bit for each.
        """
        y = x = 0
        for bit, system in enumerate(self.readings):
            for low, high in _spans(token, system.reading, self.across):
                y |= system.y.between(low, high) << bit
                x |= system.x.between(low, high) << bit
        return y, x

    def pair(self, tokens: Sequence[Token], together: bool) -> tuple[str, int, int] | None:
        """Two numbers that are the position of one record, and in which system; `together`: they
        stand in one text.
        """
        coarsest = self.coarsest if together else self.across
        for system in self.readings:
            # a number says more than the cell does; or it is, to the digit, the one that is hidden
            for fine in (True, False):
                spans = [
                    (n, s)
                    for n, t in enumerate(tokens)
                    if (s := _span(t, system.reading, coarsest, fine)) is not None
                ]
                ys, xs = (
                    [(n, h) for n, s in spans if len(h := axis.among(*s))]
                    for axis in (system.y, system.x)
                )
                if not ys or not xs:
                    continue
                both = np.intersect1d(
                    np.concatenate([h for _, h in ys]), np.concatenate([h for _, h in xs])
                )
                for record in both[:_TRIES].tolist():
                    here, there = (
                        [n for n, hits in side if (hits == record).any()] for side in (ys, xs)
                    )
                    for n, m in ((n, m) for n in here for m in there if n != m):
                        if fine or tokens[n].digits + tokens[m].digits >= 7:
                            return system.reading.name, n, m
        return None

    # -- tiles and boxes

    def tile(self, numbers: Sequence[int]) -> bool:
        """Whether three numbers in a row are zoom, column and row of a tile, in any of their
        orders, that a position lies in.
        """
        for a, b, c in zip(numbers[:_NUMBERS], numbers[1:], numbers[2:]):
            for zoom, x, y in ((a, b, c), (a, c, b), (c, a, b), (c, b, a)):
                if (
                    self._least_zoom <= zoom <= ZOOMS
                    and self.tiles(zoom, np.array([x]), np.array([y])).any()
                ):
                    return True
        return False

    def tiles(self, zoom: int, x: Whole, y: Whole) -> Mask:
        """Which columns and rows, counted from the north or from the south, are of tiles that
        positions lie in; coarser ones than the cell are none.
        """
        found = np.zeros(len(x), np.bool_)
        if not len(self) or not self._least_zoom <= zoom <= ZOOMS:
            return found
        if zoom not in self._tiles:
            column, row = _tile_numbers(self.lat, self.lng, zoom)
            self._tiles[zoom] = np.unique(column << 32 | row)
        last = (1 << zoom) - 1
        there = (x >= 0) & (x <= last) & (y >= 0) & (y <= last)
        for row in (y, last - y):
            packed = x << 32 | row
            at = np.minimum(np.searchsorted(self._tiles[zoom], packed), len(self._tiles[zoom]) - 1)
            found |= there & (self._tiles[zoom][at] == packed)
        return found

    def tiled(self, zoom: int) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
        """(the columns, the rows) of the tiles that positions lie in, from the least to the
        greatest; the rows counted from the north and from the south. None of coarse ones.
        """
        if not len(self) or not self._least_zoom <= zoom <= ZOOMS:
            return [], []
        column, row = (
            (int(n.min()), int(n.max())) for n in _tile_numbers(self.lat, self.lng, zoom)
        )
        last = (1 << zoom) - 1
        return [column], [row, (last - row[1], last - row[0])]

    @cached_property
    def _least_zoom(self) -> int:
        return math.ceil(math.log2(360 / (2 * self.coarsest)))

    def boxed(self, tokens: Sequence[Token]) -> str:
        """The system in which the numbers of a text are the sides or corners of a box that says
        more of a position than its cell does.
        """
        plain, angles = [t for t in tokens if not t.angle], [t for t in tokens if t.angle]
        finest = min((t.unit for t in angles), default=0.0)
        for run in (plain[:_NUMBERS], [t for t in angles if t.unit < 2 * finest][:_NUMBERS]):
            for system in self.readings if len(run) > 3 else ():
                degree = system.reading.degree
                if run[0].angle and degree != 1:
                    continue
                values = [
                    t.value
                    for t in run
                    if t.unit / degree <= self.coarsest and system.near(t.value, WIDEST * degree)
                ]
                if any(self.box(system, *box, self.coarsest) for box in _boxes(values)):
                    return system.reading.name
        return ""

    def box(
        self, system: "_Sorted", y0: float, y1: float, x0: float, x1: float, coarsest: float
    ) -> bool:
        """Whether a position lies between two latitudes and two longitudes that are closer to each
        other than the sides of its cell.
        """
        high, wide = (abs(a - b) / system.reading.degree for a, b in ((y0, y1), (x0, x1)))
        small = 0 < high <= WIDEST and 0 < wide <= WIDEST and high * wide < (2 * coarsest) ** 2
        return small and system.holds(min(x0, x1), min(y0, y1), max(x0, x1), max(y0, y1))

    # -- codes

    def coded(self, text: str) -> str:
        """The grid a code of which in `text` names the place of a position more closely than its
        cell does.
        """
        if not len(self):
            return ""
        for word in set(_WORD.findall(text)):
            if self._is_cell(word):
                return "H3"
            if (
                len(word) <= 12
                and not word.isdecimal()
                and _is_geohash(word)
                and word.lower() in self._listed("geohash", len(word))
            ):
                return "geohash"
            if (
                self._least_zoom <= len(word) <= ZOOMS
                and set(word) <= set("0123")
                and word in self._listed("quadkey", len(word))
            ):
                return "quadkey"
        if "+" in text and any(self._is_plus_code(*found) for found in _PLUS.findall(text)):
            return "Plus Code"
        if any(self._is_mgrs(*found) for found in _MGRS.findall(text)):
            return "MGRS"
        if any(
            word.upper() in self._listed("locator", len(word)) for word in _LOCATOR.findall(text)
        ):
            return "grid locator"
        return ""

    def _is_cell(self, word: str) -> bool:
        word = word.lower().removeprefix("0x").lstrip("0")
        if re.fullmatch(r"8[0-9a-f]{14}", word):
            cell = int(word, 16)
        elif re.fullmatch(r"[56]\d{17}", word):
            cell = int(word)
        else:
            return False
        if (
            not h3.is_valid_cell(cell)
            or (resolution := h3.get_resolution(cell)) <= self._resolution
            or resolution < 4
        ):
            return False
        if resolution not in self._cells:
            pairs = zip(self.lat.tolist(), self.lng.tolist())
            self._cells[resolution] = {
                h3.latlng_to_cell(lat, lng, resolution) for lat, lng in pairs
            }
        return cell in self._cells[resolution]

    def _is_plus_code(self, front: str, zeros: str, end: str) -> bool:
        code = (front + end).upper()
        if len(front) + len(zeros) == 8:
            return len(code) >= 6 and code[:10] in self._listed("plus", min(len(code), 10))
        return (
            not zeros
            and len(front) == 4
            and len(end) >= 2
            and code[:6] in self._listed("short plus", 6)
        )

    def _is_mgrs(self, zone: str, band: str, column: str, row: str, digits: str) -> bool:
        digits = "".join(digits.split())
        if len(digits) % 2:
            return False
        return f"{int(zone)}{band}{column}{row}{digits}".upper() in self._listed(
            "MGRS", len(digits)
        )

    def _listed(self, grid: str, length: int) -> set[str]:
        if (grid, length) not in self._codes:
            self._codes[grid, length] = set(_ENCODE[grid](self.lat, self.lng, length))
        return self._codes[grid, length]


def _is_geohash(word: str) -> bool:
    return not set(word.lower()) - set(_GEOHASH)


class _Sorted:
    """A reading, each of its axes in order."""

    def __init__(self, reading: _Reading) -> None:
        self.reading, self.y, self.x = reading, _Axis(reading.y), _Axis(reading.x)

    def near(self, value: float, slack: float) -> bool:
        return any(axis.low - slack <= value <= axis.high + slack for axis in (self.y, self.x))

    @cached_property
    def _tree(self) -> "shapely.STRtree":
        return shapely.STRtree(shapely.points(self.reading.x, self.reading.y))

    def holds(self, west: float, south: float, east: float, north: float) -> bool:
        """Whether some record lies in a box."""
        if not self.x.between(west, np.nextafter(east, math.inf)) or not self.y.between(
            south, np.nextafter(north, math.inf)
        ):
            return False
        return (
            len(self._tree.query(shapely.box(west, south, east, north), predicate="intersects")) > 0
        )


class _Axis:
    def __init__(self, values: Floats) -> None:
        self._order = np.argsort(values, kind="stable")
        self._sorted = values[self._order]
        self.low, self.high = float(self._sorted[0]), float(self._sorted[-1])

    def between(self, low: float, high: float) -> bool:
        if high < self.low or low > self.high:
            return False
        return bool(
            np.searchsorted(self._sorted, high, "left") > np.searchsorted(self._sorted, low, "left")
        )

    def among(self, low: float, high: float) -> Whole:
        """The records whose value lies between."""
        if high < self.low or low > self.high:
            return self._order[:0]
        return self._order[
            np.searchsorted(self._sorted, low, "left") : np.searchsorted(self._sorted, high, "left")
        ]


def _boxes(values: Sequence[float]) -> Iterator[tuple[float, float, float, float]]:
    """What numbers in a row may be the box of: four are its sides in any order, more are corners of
    a shape, the axes in turn.
    """
    if len(values) >= 6 and len(values) % 2 == 0:
        one, two = values[::2], values[1::2]
        sides = [(min(one), max(one), min(two), max(two))]
    else:
        fours = zip(values, values[1:], values[2:], values[3:]) if len(values) < 8 else ()
        sides = [s for a, b, c, d in fours for s in ((a, c, b, d), (a, b, c, d), (a, d, b, c))]
    for a, b, c, d in sides:
        yield a, b, c, d
        yield c, d, a, b


def _span(
    token: Token, reading: _Reading, coarsest: float, fine: bool
) -> tuple[float, float] | None:
    """What a number may stand for that was rounded or cut off, a metre always allowed; or what it
    is, for positions of few digits.
    """
    if token.angle and reading.degree != 1:
        return None
    if not fine:
        return token.value * (1 - 1e-7), token.value * (1 + 1e-7)
    if token.unit / reading.degree > coarsest:
        return None
    grain = max(token.unit, 1e-5 * reading.degree)
    return token.value - grain, token.value + grain


def _spans(token: Token, reading: _Reading, coarsest: float) -> list[tuple[float, float]]:
    return [
        span
        for fine in (True, False)
        if (span := _span(token, reading, coarsest, fine)) is not None
    ]


def readings_of(lat: Floats, lng: Floats) -> list[_Reading]:
    """Positions as numbers without their signs: degrees, scaled, packed, radians, metres."""
    y, x = np.abs(lat), np.abs(lng)
    found = [_Reading("degrees", y, x, 1.0, 5), _Reading("degrees", y, lng % 360, 1.0, 5)]
    found.append(_Reading("degrees from the pole", lat + 90, lng + 180, 1.0, 7))
    found += [
        _Reading(f"degrees times 1e{n}", y * 10**n, x * 10**n, 10.0**n, 7)
        for n in (3, 4, 5, 6, 7, 8)
    ]
    found.append(_Reading("radians", np.radians(y), np.radians(x), math.radians(1), 7))
    found.append(_Reading("seconds of arc", y * 3600, x * 3600, 3600.0, 7))
    found.append(_Reading("minutes of arc", y * 60, x * 60, 60.0, 6))
    found.append(_Reading("degrees and minutes", _packed(y, 1), _packed(x, 1), 100.0, 6))
    found.append(
        _Reading("degrees, minutes and seconds", _packed(y, 2), _packed(x, 2), 10_000.0, 6)
    )
    merc = 6378137.0 * np.log(np.tan(np.pi / 4 + np.radians(np.clip(y, 0, 89.9)) / 2))
    found.append(_Reading("Web Mercator metres", merc, np.radians(x) * 6378137.0, 111_000.0, 7))
    _, east, north = utm(lat, lng)
    found.append(_Reading("UTM metres", north, east, 111_000.0, 7))
    return found


def _projected(lat: Floats, lng: Floats) -> list[_Reading]:
    """Positions as metres and feet in the systems of the maps of where they lie, without signs: no
    number of them is telling alone.
    """
    west, south, east, north = (
        math.floor(lng.min()), math.floor(lat.min()), math.ceil(lng.max()), math.ceil(lat.max()),
    )  # fmt: skip
    found = list[_Reading]()
    for zone in (-1, 1):  # a map that reaches into the next zone keeps to its own
        _, x, y = utm(lat, lng, zone)
        found.append(_Reading("UTM metres of the next zone", y, np.abs(x), 111_000.0, 99))
    for name, transform in _systems(west, south, east, north):
        x, y = transform(lng, lat)
        if np.isfinite(x).all() and np.isfinite(y).all():
            # without its grids NAD27 is some metres off
            degree = 1_500_000.0 if name.startswith("NAD27") else 111_000.0
            found.append(_Reading(name, np.abs(y), np.abs(x), degree, 99))
    return found


@lru_cache(maxsize=8)
def _systems(west: int, south: int, east: int, north: int) -> list[tuple[str, Moved]]:
    from pyproj import Transformer
    from pyproj.aoi import AreaOfInterest
    from pyproj.database import query_crs_info
    from pyproj.enums import PJType
    from pyproj.exceptions import ProjError

    area = AreaOfInterest(west, south, east, north)
    listed = query_crs_info("EPSG", PJType.PROJECTED_CRS, area_of_interest=area)
    found = list[tuple[str, Moved]]()
    for info in [i for i in listed if _USUAL.match(i.name)][:_SYSTEMS]:
        with suppress(ProjError):  # of a name that stands for many systems
            one = Transformer.from_crs(4326, int(info.code), always_xy=True)
            found.append((info.name, one.transform))
    return found


def _packed(degrees: Floats, parts: int) -> Floats:
    """30.5125 degrees as 3030.75, or as 303045."""
    whole = np.floor(degrees)
    minutes = (degrees - whole) * 60
    full = np.floor(minutes)
    packed: Floats = (
        whole * 100 + minutes if parts == 1 else whole * 10_000 + full * 100 + (minutes - full) * 60
    )
    return packed


def utm(lat: Floats, lng: Floats, away: int = 0) -> tuple[Whole, Floats, Floats]:
    """Zone, easting and northing on WGS 84, by Krüger's series; `away`: in a zone so far to the
    east.
    """
    zone = np.minimum(np.floor((lng + 180) / 6), 59) + 1 + away
    f = 1 / 298.257223563
    n = f / (2 - f)
    radius = 6378137.0 / (1 + n) * (1 + n**2 / 4 + n**4 / 64)
    alpha = (n / 2 - 2 * n**2 / 3 + 5 * n**3 / 16, 13 * n**2 / 48 - 3 * n**3 / 5, 61 * n**3 / 240)
    phi, lam = np.radians(np.clip(lat, -89.9, 89.9)), np.radians(lng - (zone * 6 - 183))
    e = 2 * math.sqrt(n) / (1 + n)
    t = np.sinh(np.arctanh(np.sin(phi)) - e * np.arctanh(e * np.sin(phi)))
    xi, eta = np.arctan2(t, np.cos(lam)), np.arctanh(np.sin(lam) / np.sqrt(1 + t**2))
    north, east = xi.copy(), eta.copy()
    for j, a in enumerate(alpha, 1):
        north += a * np.sin(2 * j * xi) * np.cosh(2 * j * eta)
        east += a * np.cos(2 * j * xi) * np.sinh(2 * j * eta)
    return (
        zone.astype(np.int64),
        500_000 + 0.9996 * radius * east,
        0.9996 * radius * north + np.where(lat < 0, 10_000_000, 0),
    )


def _geohashes(lat: Floats, lng: Floats, length: int) -> Iterator[str]:
    axes = [
        ((lng + 180) / 360 * 2.0**30).astype(np.int64),
        ((lat + 90) / 180 * 2.0**30).astype(np.int64),
    ]
    codes = np.zeros((len(lat), length), np.int64)
    for at in range(5 * length):  # a bit of longitude, a bit of latitude
        codes[:, at // 5] = codes[:, at // 5] << 1 | (axes[at % 2] >> (29 - at // 2) & 1)
    letters = np.array(list(_GEOHASH))[codes]
    return ("".join(row) for row in letters.tolist())


def _plus_codes(lat: Floats, lng: Floats, length: int) -> Iterator[str]:
    ys = np.floor(np.minimum(lat + 90, 180 - 1e-9) * 8000 + 1e-6).astype(np.int64).tolist()
    xs = np.floor((lng + 180) % 360 * 8000 + 1e-6).astype(np.int64).tolist()
    for y, x in zip(ys, xs):
        code = ""
        for power in (160_000, 8_000, 400, 20, 1):
            code += _CODE[y // power % 20] + _CODE[x // power % 20]
        yield code[:length]


def _short_plus_codes(lat: Floats, lng: Floats, length: int) -> Iterator[str]:
    return (code[4:] for code in _plus_codes(lat, lng, 4 + length))


def _tile_numbers(lat: Floats, lng: Floats, zoom: int) -> tuple[Whole, Whole]:
    """Column and row, from the north, of the tile that each position lies in."""
    sine = np.clip(np.sin(np.radians(lat)), -0.9999, 0.9999)
    found = ((lng + 180) / 360, 0.5 - np.log((1 + sine) / (1 - sine)) / (4 * np.pi))
    column, row = (np.clip((part * 2.0**zoom).astype(np.int64), 0, 2**zoom - 1) for part in found)
    return column, row


def _quadkeys(lat: Floats, lng: Floats, length: int) -> Iterator[str]:
    for x, y in zip(*(numbers.tolist() for numbers in _tile_numbers(lat, lng, length))):
        yield "".join(str((x >> i & 1) + 2 * (y >> i & 1)) for i in range(length - 1, -1, -1))


def _locators(lat: Floats, lng: Floats, length: int) -> Iterator[str]:
    for y, x in zip((lat + 90).tolist(), (lng + 180).tolist()):
        code = ""
        for at, (step, first) in enumerate(
            ((10.0, "A"), (1.0, "0"), (1 / 24, "A"), (1 / 240, "0"), (1 / 5760, "A"))
        ):
            base = (18, 10, 24, 10, 24)[at]
            code += chr(ord(first) + int(x / (2 * step)) % base) + chr(
                ord(first) + int(y / step) % base
            )
        yield code[:length]


def _mgrs(lat: Floats, lng: Floats, length: int) -> Iterator[str]:
    zones, east, north = utm(lat, lng)
    cut = 10 ** (5 - length // 2)
    for zone, y, e, n in zip(zones.tolist(), lat.tolist(), east.tolist(), north.tolist()):
        band = _BANDS[min(max(int((y + 80) // 8), 0), 19)]
        column = ("ABCDEFGH", "JKLMNPQR", "STUVWXYZ")[(zone - 1) % 3][
            min(max(int(e // 100_000) - 1, 0), 7)
        ]
        row = ("ABCDEFGHJKLMNPQRSTUV", "FGHJKLMNPQRSTUVABCDE")[(zone - 1) % 2][
            int(n // 100_000) % 20
        ]
        half = length // 2
        for shift in (0, 0.5 * cut):  # cut off, or rounded
            yield (
                f"{zone}{band}{column}{row}{int((e + shift) % 100_000) // cut:0{half}d}{int((n + shift) % 100_000) // cut:0{half}d}"
            )


_ENCODE: dict[str, Callable[[Floats, Floats, int], Iterator[str]]] = {
    "geohash": _geohashes, "plus": _plus_codes, "short plus": _short_plus_codes, "quadkey": _quadkeys, "locator": _locators, "MGRS": _mgrs,
}  # fmt: skip
