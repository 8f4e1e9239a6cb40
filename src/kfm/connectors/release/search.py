"""Looks for what is private in what is to be public: positions in all their spellings, texts
however they are written, numbers.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Set
from itertools import combinations, permutations, product
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import shapely

from kfm.connectors.arrays import Floats, Mask, Whole
from kfm.connectors.base import Books, InputFile, TransformResult
from kfm.connectors.operations import Search
from kfm.connectors.release.govern import Where, columns_of, folded
from kfm.connectors.release.spelling import WIDEST, ZOOMS, Places, Token, number_tokens, spoken
from kfm.model import Column, Release, looks_of, looks_of_values, made_columns
from kfm.model.labels import unshown

__all__ = ["SHOWN", "search"]

SHOWN = "shown/"  # begins the source id of a public file
_ROWS = 16_384
_SAMPLE = 1_000  # values a column is judged by
_WORD = re.compile(r"[^\W_]+")
_HEX = re.compile(r"[0-9a-f]+")
_DATE = re.compile(r"\d{4}-\d\d-\d\d([t ]|$)")
_NUMBER = re.compile(r"\d+(\.\d+)?")
_SIGNED = re.compile(r"\s*[-+]?[0-9]{1,30}(\.[0-9]*)?\s*", re.A)
_BOUND = re.compile(
    r"west|east|north|south|left|right|top|bottom|lat|lon|lng|bbox|bound|extent|(min|max)_?[xy]|[xy]_?(min|max)",
    re.IGNORECASE,
)
_TWO = re.compile(r"\D*([0-9]{2,9})\D+([0-9]{2,9})\D*")
_COLUMNS = 6  # of numbers that are tried with one another
_KEY = 8  # by so many of its last letters a text is looked up
_LEAST = 1e-9


class _Finding(NamedTuple):
    column: str
    what: str  # places, values, or what a column looks like
    how: str  # the spelling, or the private column


def search(job: Search, scratch: Path) -> TransformResult:
    """`inputs` are the tables with everything in them, then the public files. `found` names each
    file and column that gives something away.
    """
    hidden = _Hidden(job)
    found: list[dict[str, str]] = []
    for source in job.inputs:
        if source.source_id.startswith(SHOWN):
            name = source.source_id.removeprefix(SHOWN)
            look = _Look(hidden, job.despite, name)
            findings = (
                look.table(source, job.release)
                if name.endswith(".parquet")
                else look.text(Path(source.path).read_bytes())
            )
            found += [{"file": name, **f._asdict()} for f in dict.fromkeys(findings)]
    found += [{"file": "", **f._asdict()} for f in hidden.joined]
    nothing = "sha256:" + "0" * 64
    return TransformResult(
        artifact=job.artifact,
        books=Books(),
        schema=(),
        content_id=nothing,
        profile={},
        found=tuple(found),
    )


# -- what is private


class _Hidden:
    """Private values of all tables, by how they can be told from chance."""

    def __init__(self, job: Search) -> None:
        release = job.release
        self._words: dict[str, str] = {}
        self._phrases, self._joined_up = _Phrases(), _Phrases()
        self._numbers: dict[float, str] = {}
        self._registered = _plain(job.registered)
        self.joined: list[_Finding] = []  # columns of a join that one of its inputs does not show
        # values of columns that a steward shows all the same; records repeat some of them
        self.decided: set[str] = set()
        lat, lng = [np.empty(0)], [np.empty(0)]
        public = () if release.show is msgspec.UNSET else release.show
        # names in a join, which puts the id of its input before a name that is taken
        taken = set[str]()
        for source in job.inputs:
            if source.source_id.startswith(SHOWN):
                continue
            theirs = job.releases.get(source.source_id)
            with pq.ParquetFile(source.path) as file:
                columns = columns_of(file.schema_arrow, job.schema)
                names = {
                    c.name: (
                        f"{source.source_id}_{c.name}"
                        if c.name in taken and c.name not in job.on
                        else c.name
                    )
                    for c in columns
                }
                if source.source_id in job.releases:
                    taken |= set(names.values())
                if source.source_id in job.releases and theirs is None:
                    continue  # whatever it owes, it calls no column of its own private
                table = _Table(job, theirs or release, file, columns)
                if theirs is not None:
                    self.joined += [
                        _Finding(names[c], "values", source.source_id)
                        for c in table.unshown
                        if names[c] in public
                    ]
                for y, x in table.positions():
                    lat.append(y)
                    lng.append(x)
                for name, values in table.private():
                    self._hide(name, values)
        self.places = Places(np.concatenate(lat), np.concatenate(lng), release.h3_resolution)
        self._sorted = np.array(sorted(self._numbers))

    def _hide(self, column: str, values: Set[object]) -> None:
        whole = [v for v in values if isinstance(v, int) and not isinstance(v, bool)]
        # numbers in a row are met by chance
        crowded = len(whole) > 100 and len(whole) > 0.1 * (max(whole) - min(whole) + 1)
        for value in values:
            number = _decimal(value)
            if number is not None:
                self._numbers[number] = column
            if (
                isinstance(value, bool)
                or not isinstance(value, str | int)
                or (isinstance(value, int) and crowded)
            ):
                continue
            text = _plain(str(value))
            letters, digits = any(map(str.isalpha, text)), sum(map(str.isdecimal, text))
            if (
                len(text) < 4
                or (not letters and digits < 6)
                or _DATE.match(text)
                or text in self._registered
            ):
                continue  # found everywhere by chance, or said by the registry
            if text.isalnum() and (
                len(text) < 6 or not (letters and digits) or _HEX.fullmatch(text)
            ):
                self._words[text] = column
            else:
                self._phrases.add(text, column)
                tight = "".join(_WORD.findall(text))
                if len(tight) >= _KEY and not _HEX.fullmatch(tight):
                    self._joined_up.add(tight, column)

    def near(self, numbers: Floats) -> Mask:
        """Which numbers could be private values at all."""
        whole = bool(self._words) & (numbers >= 100_000)
        return whole | (numbers % 1 != 0) if len(self._sorted) else whole

    def text_in(self, text: str, *, words: bool) -> str:
        """The private column a value in `text` comes from; plain words only with `words`, for a
        record of ours is full of them.
        """
        text = _plain(text)
        parts = _WORD.findall(text)
        for word in self._words.keys() & set(parts):
            if words or not word.isalpha():
                return self._words[word]
        return self._phrases.first(text) or self._joined_up.first("".join(parts))

    def number_in(self, token: Token) -> str:
        """The private column that holds this number, as it is or rounded."""
        if token.digits < 5 or token.unit > 0.1 or token.angle or not len(self._sorted):
            return ""
        slack = 1e-7 * token.value
        at = int(np.searchsorted(self._sorted, token.value - token.unit / 2 - slack))
        if at < len(self._sorted) and self._sorted[at] < token.value + token.unit / 2 + slack:
            return self._numbers[float(self._sorted[at])]
        return ""


class _Phrases:
    """Texts that are looked for inside longer ones."""

    def __init__(self) -> None:
        self._by_end: dict[int, dict[str, dict[str, str]]] = {}

    def add(self, text: str, column: str) -> None:
        length = min(len(text), _KEY)
        self._by_end.setdefault(length, {}).setdefault(text[-length:], {})[text] = column

    def first(self, text: str) -> str:
        """The column of a phrase that stands in `text`, empty when none does."""
        for length, ends in self._by_end.items():
            for end in {text[i : i + length] for i in range(len(text) - length + 1)} & ends.keys():
                for phrase, column in ends[end].items():
                    if phrase in text:
                        return column
        return ""


class _Table:
    """A table with everything in it: which of its columns are private."""

    def __init__(
        self, job: Search, release: Release, file: "pq.ParquetFile", columns: tuple[Column, ...]
    ) -> None:
        self._release, self._file, self._columns = release, file, columns
        self._names = [c.name for c in columns]
        self._keys = job.business_key
        told = (
            job.location
            if job.location and {job.location.latitude, job.location.longitude} <= set(self._names)
            else None
        )
        self._where = Where.of(self._names, [c.name for c in columns if c.type == "geometry"], told)
        groups = release.aggregate
        listed = (*groups.by, *groups.collect) if groups is not None else self._names
        self.unshown = [
            c for c in self._names if unshown(release, [c]) or (c in self._keys and c not in listed)
        ]

    def positions(self) -> Iterator[tuple[Floats, Floats]]:
        """Latitudes and longitudes that nobody may see: of points, of corners, of what stands for a
        shape.
        """
        open_place = self._release.h3_resolution is None and any(
            n not in self.unshown for n in self._where.names
        )
        if open_place or not self._where.known:
            return
        for batch in self._file.iter_batches(_ROWS, columns=sorted(self._where.names)):
            yield self._where.points(batch)
            for name in self._where.geometries:
                corners = shapely.get_coordinates(
                    shapely.from_wkb(batch.column(name).unique().to_numpy(zero_copy_only=False))
                )
                yield corners[:, 1], corners[:, 0]

    def private(self) -> Iterator[tuple[str, set[object]]]:
        """Columns whose values are looked for: withheld by name, keys, what looks private, what
        tells records apart.
        """
        called = {*self._release.withhold, *(c for c in self._keys if c in self.unshown)}
        for column in self._columns:
            name = column.name
            if (
                name not in self.unshown
                or column.type in ("geometry", "timestamp", "date", "boolean")
                or name in self._where.names
            ):
                continue
            sure = name in called or bool(looks_of(name))
            if column.type in ("integer", "number") and not sure:
                continue
            values, rows = set[object](), 0
            for batch in self._file.iter_batches(_ROWS, columns=[name]):
                held = batch.column(0).drop_null()
                values |= set(held.unique().to_pylist())
                rows += len(held)
            if sure or 2 * len(values) > rows:
                yield name, values


def _plain(text: str) -> str:
    return " ".join(folded(text).split())


def _decimal(value: object) -> float | None:
    """A number with five significant digits or more, one of them behind the point."""
    if isinstance(value, bool | int) or not isinstance(value, str | float):
        return None
    text = value.strip().lstrip("+-") if isinstance(value, str) else repr(abs(value))
    tokens = number_tokens(text) if re.fullmatch(r"\d+\.\d+", text) else []
    return tokens[0].value if tokens and tokens[0].digits >= 5 and tokens[0].unit < 1 else None


# -- what is public


class _Cell(NamedTuple):
    """What one value gives away, and its numbers that could be half of a position."""

    findings: tuple[tuple[str, str], ...]
    tokens: tuple[Token, ...]
    y: int = 0  # the systems in which one of them could be a latitude, a bit for each
    x: int = 0


# columns -> number of the value by row, and what there is to each
# the numbers of a row that could be halves, by where they stand
_Row = tuple[tuple[tuple[str, ...], Token], ...]
_Halves = dict[tuple[str, ...], tuple[Whole, dict[int, _Cell]]]


class _Look:
    """One public file."""

    def __init__(self, hidden: _Hidden, despite: tuple[tuple[str, str], ...], name: str) -> None:
        self._hidden, self._despite = hidden, set(despite)
        self._strict = name.endswith(".json")

    # -- tables

    def table(self, source: InputFile, release: Release) -> Iterator[_Finding]:
        """The columns that give something away. What the release makes itself is left out."""
        with pq.ParquetFile(source.path) as file:
            made = made_columns(release)
            names = [
                f.name
                for f in file.schema_arrow
                if f.name not in made and not pa.types.is_binary(f.type)
            ]
            yield from (f for n in names for f in self._named(n))
            seen: dict[str, dict[str, None]] = {n: {} for n in names}
            rows = set[_Row]()
            for batch in file.iter_batches(_ROWS, columns=names) if names else ():
                found, halves = self._batch(batch, names, seen)
                yield from found
                yield from self._across(batch.num_rows, halves, rows)
                yield from self._sides(batch, names)
            for name, texts in seen.items():
                yield from (
                    _Finding(name, look, "")
                    for look in looks_of_values(list(texts))
                    if self._asked(name, look)
                )

    def _named(self, column: str) -> Iterator[_Finding]:
        of = self._hidden.text_in(column, words=False)
        if of:
            yield _Finding(column, "values", of)

    def _batch(
        self, batch: "pa.RecordBatch", names: list[str], seen: dict[str, dict[str, None]]
    ) -> tuple[list[_Finding], _Halves]:
        found, halves = list[_Finding](), _Halves()
        numbers = list[tuple[str, "pa.Array"]]()
        for name in names:
            encoded = batch.column(name).dictionary_encode()
            cells = self._cells(encoded.dictionary)
            for cell in cells.values():
                found += [
                    _Finding(name, what, how)
                    for what, how in cell.findings
                    if self._asked(name, what)
                ]
            tokens = {code: cell for code, cell in cells.items() if cell.tokens}
            if any(column == name for column, _ in self._despite):
                self._hidden.decided |= {
                    _spelt(v) if isinstance(v, int | float) else str(v)
                    for v in encoded.dictionary.to_pylist()
                }
            if tokens and self._asked(name, "places"):
                halves[name,] = (
                    encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False),
                    tokens,
                )
            if _is_number(batch.column(name).type) and self._asked(name, "places"):
                numbers.append((name, batch.column(name)))
            if pa.types.is_string(encoded.dictionary.type) and len(seen[name]) < _SAMPLE:
                seen[name] |= dict.fromkeys(encoded.dictionary.slice(0, _SAMPLE).to_pylist())
        return found, halves | self._angles(numbers)

    def _angles(self, numbers: "list[tuple[str, pa.Array]]") -> _Halves:
        """Degrees, minutes and seconds that stand in columns side by side, by row."""
        found = _Halves()
        held = [
            (name, np.abs(column.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)))
            for name, column in numbers
        ]
        for at, (name, degrees) in enumerate(held[:-1]):
            minutes = held[at + 1][1]
            seconds = held[at + 2][1] if at + 2 < len(held) else np.full(len(degrees), np.nan)
            with np.errstate(invalid="ignore"):
                fits = (degrees % 1 == 0) & (degrees <= 180) & (minutes < 60)
                full = fits & (minutes % 1 == 0) & (seconds < 60)
                near = fits & self._hidden.places.near(degrees + minutes / 60)
            cells = dict[int, _Cell]()
            for row in np.flatnonzero(near).tolist():
                tokens = [_angle(degrees[row], minutes[row])] + (
                    [_angle(degrees[row], minutes[row], seconds[row])] if full[row] else []
                )
                cells[row] = self._cell(tokens)
            if cells:
                found[name, held[at + 1][0]] = (np.arange(len(degrees)), cells)
        return found

    def _across(self, count: int, halves: _Halves, rows: set[_Row]) -> Iterator[_Finding]:
        """Positions whose numbers stand in several columns of a row."""
        if len(halves) < 2:
            return
        y, x = np.zeros(count, np.int64), np.zeros(count, np.int64)
        for codes, cells in halves.values():
            most = max(int(codes.max(initial=0)), max(cells)) + 2  # the last stands for no value
            table = np.zeros((most, 2), np.int64)
            for code, cell in cells.items():
                table[code] = cell.y, cell.x
            y |= table[codes, 0]
            x |= table[codes, 1]
        for row in np.flatnonzero(y & x).tolist():
            held = [
                (columns, cells[code])
                for columns, (codes, cells) in halves.items()
                if (code := int(codes[row])) in cells
            ]
            tokens = [(columns, token) for columns, cell in held for token in cell.tokens]
            key = tuple(tokens)
            if key in rows:
                continue
            rows.add(key)
            pair = self._hidden.places.pair([t for _, t in tokens], together=False)
            if pair is not None:
                how, one, other = pair
                columns = dict.fromkeys((*tokens[one][0], *tokens[other][0]))
                yield from (_Finding(name, "places", how) for name in columns)
                return

    def _sides(self, batch: "pa.RecordBatch", names: list[str]) -> Iterator[_Finding]:
        """Tiles and boxes whose numbers stand in columns of their own."""
        held = {
            n: v
            for n in names
            if self._asked(n, "places") and (v := _floats(batch.column(n))) is not None
        }
        for columns, how in (*self._tiles(held), *self._boxes(held)):
            yield from (_Finding(name, "places", how) for name in columns)
        texts = (
            (n, both)
            for n in names
            if self._asked(n, "places") and (both := _two_numbers(batch.column(n))) is not None
        )
        for name, (x, y) in texts:
            if any(self._tile_columns({"x": x, "y": y})):
                yield _Finding(name, "places", "tile")

    def _tiles(self, held: Mapping[str, Floats]) -> Iterator[tuple[tuple[str, ...], str]]:
        """Columns that name tiles do so in most rows; that a month and two counts do in one row is
        chance.
        """
        with np.errstate(invalid="ignore"):
            numbers = {
                n: np.where((v % 1 == 0) & (v < 2.0**31), v, -1).astype(np.int64)
                for n, v in held.items()
            }
        whole = dict([(n, v) for n, v in numbers.items() if (v >= 0).any()][:_COLUMNS])
        for zoom, levels in whole.items():
            found = sorted(set(levels.tolist()) & set(range(ZOOMS + 1)))
            for x, y in permutations([n for n in whole if n != zoom], 2) if found else ():
                filled = (levels >= 0) & (whole[x] >= 0) & (whole[y] >= 0)
                hits = sum(
                    int(self._hidden.places.tiles(z, whole[x][at], whole[y][at]).sum())
                    for z in found
                    for at in (levels == z,)
                )
                if hits and 2 * hits >= filled.sum():
                    yield (zoom, x, y), "tile"
                    return
        yield from ((columns, "tile") for columns in self._tile_columns(numbers))

    def _tile_columns(self, numbers: Mapping[str, Whole]) -> Iterator[tuple[str, str]]:
        """Pairs of columns that are column and row of tiles of one zoom, which nobody has to say,
        in most rows.
        """
        for zoom in range(ZOOMS + 1):
            across, down = self._hidden.places.tiled(zoom)
            columns, rows = (
                [n for n, v in numbers.items() if any(_mostly(v, *span) for span in spans)]
                for spans in (across, down)
            )
            for x, y in ((x, y) for x in columns for y in rows if x != y):
                filled = (numbers[x] >= 0) & (numbers[y] >= 0)
                hits = int(self._hidden.places.tiles(zoom, numbers[x], numbers[y]).sum())
                if hits and 2 * hits >= filled.sum():
                    yield x, y

    def _boxes(self, held: Mapping[str, Floats]) -> Iterator[tuple[tuple[str, ...], str]]:
        """Columns that are called the sides of boxes, or are so in most rows."""
        places = self._hidden.places
        for system in places.readings if len(held) > 3 else ():
            beyond = WIDEST * system.reading.degree
            with np.errstate(invalid="ignore"):
                ys, xs = (
                    [
                        n
                        for n, v in held.items()
                        if ((v >= axis.low - beyond) & (v <= axis.high + beyond)).any()
                    ][:_COLUMNS]
                    for axis in (system.y, system.x)
                )
            for (a, b), (c, d) in product(combinations(ys, 2), combinations(xs, 2)):
                if len({a, b, c, d}) < 4:
                    continue
                rows = np.column_stack([held[n] for n in (a, b, c, d)])
                with np.errstate(invalid="ignore"):
                    high, wide = np.abs(rows[:, 0] - rows[:, 1]), np.abs(rows[:, 2] - rows[:, 3])
                    close = (high > 0) & (high <= beyond) & (wide > 0) & (wide <= beyond)
                named = all(map(_BOUND.search, (a, b, c, d)))
                coarsest = places.coarsest if named else places.across
                sides, count = np.unique(rows[close], axis=0, return_counts=True)
                hits = sum(
                    n
                    for (y0, y1, x0, x1), n in zip(sides.tolist(), count.tolist())
                    if places.box(system, y0, y1, x0, x1, coarsest)
                )
                if hits and (named or 2 * hits >= np.isfinite(rows).all(axis=1).sum()):
                    yield (a, b, c, d), system.reading.name
                    return

    def _cells(self, values: "pa.Array") -> dict[int, _Cell]:
        """By number of the value; only those that say something."""
        if pa.types.is_string(values.type):
            return {
                n: cell
                for n, text in enumerate(values.to_pylist())
                if (cell := self._text(text)) is not None
            }
        if not _is_number(values.type):
            return {}
        numbers = np.abs(values.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False))
        with np.errstate(invalid="ignore"):
            near = (
                self._hidden.places.near(numbers)
                | (numbers >= 2.0**58)
                | self._hidden.near(numbers)
            )
        return {
            n: cell
            for n in np.flatnonzero(near).tolist()
            if (cell := self._text(_spelt(values[n].as_py()))) is not None
        }

    def _asked(self, column: str, what: str) -> bool:
        return (column, what) not in self._despite

    # -- texts

    def text(self, raw: bytes) -> Iterator[_Finding]:
        """A record or a log: every list and object of it is looked at like a row."""
        try:
            document = msgspec.json.decode(raw)
        except (msgspec.DecodeError, UnicodeDecodeError):
            document = raw.decode("utf-8", "replace").splitlines()
        for group in _groups(document, bounds=not self._strict):
            if not self._strict:
                # a tile or a box, one number in each member
                group = [*group, " ".join(leaf for leaf in group if _NUMBER.fullmatch(leaf))]
            cells = [
                cell
                for leaf in group
                if leaf not in self._hidden.decided and (cell := self._text(leaf)) is not None
            ]
            yield from (_Finding("", what, how) for cell in cells for what, how in cell.findings)
            pair = self._hidden.places.pair(
                [t for cell in cells for t in cell.tokens], together=False
            )
            if pair is not None:
                yield _Finding("", "places", pair[0])

    def _text(self, text: str) -> _Cell | None:
        findings, halves = list[tuple[str, str]](), list[Token]()
        places = self._hidden.places
        for said in spoken(text):
            if of := self._hidden.text_in(said, words=not self._strict):
                findings.append(("values", of))
            if coded := places.coded(said):
                findings.append(("places", coded))
            tokens = number_tokens(said, strict=self._strict) if any(map(str.isdigit, said)) else []
            findings += [("values", of) for t in tokens if (of := self._hidden.number_in(t))]
            findings += [
                ("places", how) for t in tokens if (how := places.alone(t, degrees=self._strict))
            ]
            near = (
                places.near(np.array([t.value for t in tokens]), strict=self._strict)
                if tokens
                else ()
            )
            close = [t for t, hit in zip(tokens, near) if hit]
            if len(close) > 3 and (box := places.boxed(close)):
                findings.append(("places", f"a box in {box}"))
            if places.tile([int(t.value) for t in tokens if t.unit == 1 and not t.angle]):
                findings.append(("places", "tile"))
            if len(close) > 1 and (pair := places.pair(close, together=True)) is not None:
                findings.append(("places", pair[0]))
            halves += close
        cell = self._cell(halves, findings)
        return cell if cell.findings or cell.tokens else None

    def _cell(self, tokens: Iterable[Token], findings: Iterable[tuple[str, str]] = ()) -> _Cell:
        kept, y, x = list[Token](), 0, 0
        for token in tokens:
            sides = self._hidden.places.sides(token)
            if any(sides):
                kept.append(token)
                y, x = y | sides[0], x | sides[1]
        return _Cell(tuple(dict.fromkeys(findings)), tuple(kept), y, x)


def _is_number(kind: "pa.DataType") -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind))


def _angle(degrees: float, minutes: float, seconds: float | None = None) -> Token:
    last, parts = (minutes, 60) if seconds is None else (seconds, 3600)
    unit = number_tokens(_spelt(float(last)))[0].unit / parts
    return Token(
        degrees + minutes / 60 + (seconds or 0.0) / 3600,
        unit,
        4 if seconds is None else 6,
        angle=True,
    )


def _spelt(value: float) -> str:
    """A number as it is written, without its sign and without an exponent for everyday sizes."""
    if isinstance(value, int):
        return str(abs(value))
    text = repr(abs(value))
    return (
        f"{abs(value):.12f}".rstrip("0").rstrip(".")
        if "e" in text and _LEAST < abs(value) < 1e15
        else text.removesuffix(".0")
    )


def _floats(column: "pa.Array") -> Floats | None:
    """Numbers without their signs, also those that were written as text between others; None: the
    column holds none.
    """
    if pa.types.is_string(column.type):
        values = [
            float(text) if _SIGNED.fullmatch(text or "") else None for text in column.to_pylist()
        ]
        if all(value is None for value in values):
            return None
        column = pa.array(values, pa.float64())
    return (
        np.abs(column.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False))
        if _is_number(column.type)
        else None
    )


def _mostly(values: Whole, low: int, high: int) -> bool:
    """Whether most of the values that are there lie between the two."""
    inside = ((values >= low) & (values <= high)).sum()
    return bool(inside and 2 * inside >= (values >= 0).sum())


def _two_numbers(column: "pa.Array") -> tuple[Whole, Whole] | None:
    """Texts with two whole numbers each, as two columns; None: most hold something else."""
    if not pa.types.is_string(column.type):
        return None
    encoded = column.dictionary_encode()
    found = [_TWO.fullmatch(text) for text in encoded.dictionary.to_pylist()]
    if 2 * sum(map(bool, found)) < len(found) or not any(found):
        return None
    values = [(int(m[1]), int(m[2])) if m is not None else (-1, -1) for m in found]
    table = np.array([*values, (-1, -1)], np.int64)  # the last stands for no value
    rows = table[encoded.indices.fill_null(len(found)).to_numpy(zero_copy_only=False)]
    return rows[:, 0], rows[:, 1]


def _groups(value: object, *, bounds: bool) -> Iterator[list[str]]:
    """The plain members of every list and object, as they stand together; of a list of positions,
    all of them.

    `bounds`: also those called so, which in records of ours are of the outlines and hold nothing of
    a record.
    """
    if isinstance(value, Mapping):
        yield [str(k) for k in value]
    if (
        bounds
        and isinstance(value, list)
        and value
        and all(isinstance(m, list) and len(m) in (2, 3) for m in value)
    ):
        yield [
            _spelt(n)
            for m in value
            for n in m[:2]
            if isinstance(n, int | float) and not isinstance(n, bool)
        ]
    members = (
        [v for k, v in value.items() if bounds or k != "bbox"]
        if isinstance(value, Mapping)
        else value
        if isinstance(value, list)
        else [value]
    )
    plain = [
        _spelt(m) if isinstance(m, int | float) else str(m)
        for m in members
        if isinstance(m, str | int | float) and not isinstance(m, bool)
    ]
    if plain:
        yield plain
    for member in members:
        if isinstance(member, Mapping | list):
            yield from _groups(member, bounds=bounds)
