"""leak: non-interference. What is public must not change when only what is withheld changes."""

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from kfm import canonical
from kfm.connectors.base import CaptureRefused, ConnectorFailed, TransformResult
from kfm.errors import KfmError
from kfm.model import ids
from kfm.model.dataset import Column, DatasetEntry
from kfm.release import govern_job
from kfm.update import transform_job
from kfm.world import Target, World
from kfm.zones.base import hash_file, note, room

__all__ = ["SEEDS", "compare", "look_for_leaks", "second_net"]

SEEDS = (1, 2, 3)
Side = dict[str, bytes]  # name of a public file, or of what is said beside it -> its bytes
Inputs = Mapping[str, tuple[Path, str]]  # source id -> (captured file, digest)
Merge = Callable[[Path, TransformResult, Path], tuple[Path, TransformResult]]
Render = Callable[[Path, TransformResult], Mapping[str, bytes]]
_PLACES = {"lat", "latitude", "lon", "lng", "longitude"}
_WORD = re.compile(r"[^\W_]+")
_DECIMAL = re.compile(r"(?<![\d.])\d+\.\d{3,}")
_HEX = re.compile(r"[0-9a-f]+")
_DATE = re.compile(r"\d{4}-\d\d-\d\d([T ]|$)")


def look_for_leaks(
    world: World,
    target: Target,
    inputs: Inputs,
    rules: tuple[dict[str, Any], ...],
    *,
    merge: Merge,
    render: Render,
    released: str,
) -> list[dict[str, str]]:
    """Rebuild the public side from the capture and from its twins; every byte must be the same. Returns reasons, none when it is.

    Each build has a scratch folder of its own, and the original is gone before connector code runs on a twin: code that finds it could
    make the twin come out like it.
    """
    build = _Build(world, target, rules, render)
    with world.data.scratch() as scratch:
        made = build.precise(inputs, scratch)
        table, whole = merge(made.table, made.result, scratch)
        own = build.public(_Made(table, whole, made.said), scratch, target.entry)
        if ids.digest(own[target.artifact]) != released:
            unstable = f"{target.artifact} comes out differently each time."
            return [_reason("leak.unstable", unstable, "A step is not repeatable: `kfm drill` names it.")]
        # A difference holds what was official before; what is new in it stands in the table.
        shown = {name: raw for name, raw in own.items() if not name.startswith("the difference ")}
        found = second_net(table, target, shown)
        if target.connector is not None:  # which may have renamed, or left out, what it was given
            found += second_net(build.as_captured(inputs, scratch), target, shown)
        entry = target.entry
        if table != made.table:
            # What was official before has no twins, and hidden keys of a twin would not find theirs in it: new rows are compared alone.
            entry = _showing_all(entry)
            own = build.public(made, room(scratch, "alone"), entry)
        joined = made.table.read_bytes() if entry.source.kind == "join" else None

    def differs(seed: int) -> list[dict[str, str]]:
        with world.data.scratch() as scratch:
            try:
                if joined is None:
                    twin = build.precise(build.twin(inputs, scratch, seed), scratch)
                else:
                    twin = build.of_join(joined, made, scratch, seed)
            except (CaptureRefused, ConnectorFailed):  # what it says may be about hidden values
                remedy = "Let connector code go by the form of withheld values at most, never by what they say."
                return [_reason("leak.differs", "The transform fails when only hidden values change.", remedy)]
            return compare(own, build.public(twin, scratch, entry))

    seeds = SEEDS if entry.release is not None else ()
    with ThreadPoolExecutor(min(len(SEEDS), os.cpu_count() or 1), "kfm-twin") as pool:  # each waits for children of its own
        for reasons in pool.map(differs, seeds):
            found += reasons
    unique = {(r["code"], r["message"]): r for r in found}
    return list(unique.values())


class _Made(NamedTuple):
    """The records of one build, and what was said while they were made."""

    table: Path
    result: TransformResult
    said: list[Any]


class _Build:
    """The way from captured files to what is public, as a run goes it."""

    def __init__(self, world: World, target: Target, rules: tuple[dict[str, Any], ...], render: Render) -> None:
        self._world, self._target, self._rules, self._render = world, target, rules, render

    def precise(self, given: Inputs, scratch: Path) -> _Made:
        """The records, by connector code where there is any."""
        out, said = room(scratch, "precise"), list[Any]()
        result = self._world.transform(transform_job(self._target, given), out, _hearing(said))
        return _Made(out / result.artifact, result, said)

    def public(self, made: _Made, scratch: Path, entry: DatasetEntry) -> Side:
        """Every byte that would be shown."""
        shown, said = room(scratch, "public"), list(made.said)
        job = govern_job(entry, made.table, self._target.artifact, made.result.schema, self._rules, hash_file(made.table).digest)
        public = self._world.transform(job, shown, _hearing(said))
        side: Side = {str(p.relative_to(shown)): p.read_bytes() for p in sorted(shown.rglob("*")) if p.is_file()}
        log = canonical.dumps(_plain([said, made.result.warnings, public.warnings]))
        return side | {**self._render(shown / public.artifact, public), "the log": log}

    def as_captured(self, inputs: Inputs, scratch: Path) -> Path:
        """The captured records as a table, without connector code."""
        job = transform_job(self._target, inputs)
        plain = {"connector": None, "schema": (), "business_key": (), "time_column": None, "max_quarantined": 1.0}
        out = room(scratch, "captured")
        return out / self._world.transform(msgspec.structs.replace(job, **plain), out, None).artifact

    def twin(self, inputs: Inputs, scratch: Path, seed: int, schema: tuple[Column, ...] | None = None) -> Inputs:
        """The files with every hidden place moved inside its cell and every hidden identifier another's, or nobody's."""
        target, folder = self._target, room(scratch, "twin")
        job = msgspec.structs.replace(
            transform_job(target, inputs),
            kind="twin",
            connector=None,
            location=target.entry.location,
            release=target.entry.release,
            schema=target.entry.schema if schema is None else schema,
            suppress=self._rules,
            seed=seed,
        )
        made = self._world.transform(job, folder, None)
        return {name: (folder / file, hash_file(folder / file).digest) for name, file in zip(inputs, made.files)}

    def of_join(self, table: bytes, made: _Made, scratch: Path, seed: int) -> _Made:
        """Keys that tie two inputs together are hidden in both, so the joined table is what has twins."""
        original = note(room(scratch, "joined") / made.result.artifact, table)
        schema = tuple(c for c in made.result.schema if c.type in ("geometry", "json"))
        found, _ = self.twin({"table": (original, "")}, scratch, seed, schema)["table"]
        return made._replace(table=found)


def _hearing(said: list[Any]) -> Callable[[dict[str, Any]], None]:
    def hear(event: dict[str, Any]) -> None:
        if event.get("op") in ("log", "output") and event.get("event") != "child.start":  # that one names a process
            said.append(event)

    return hear


def _showing_all(entry: DatasetEntry) -> DatasetEntry:
    """The release without a least number of records, or a small piece would show nothing to compare."""
    release = entry.release
    return entry if release is None else msgspec.structs.replace(entry, release=msgspec.structs.replace(release, min_records=1))


def compare(own: Mapping[str, bytes], twin: Mapping[str, bytes]) -> list[dict[str, str]]:
    """Each file in which the two differ, by name."""
    found = []
    for name in sorted({*own, *twin}):
        if name not in own or name not in twin:
            message = f"The file name {name} follows hidden values: it exists in one twin only."
            found.append(_reason("leak.name", message, "Name files by what is public."))
        elif own[name] != twin[name]:
            message = f"{name} changes when only hidden values change{_hint(name, own[name], twin[name])}."
            found.append(
                _reason(
                    "leak.differs", message, "Withhold, generalise or sort what it follows in `release` or the connector, then run again."
                )
            )
    return found


def _hint(name: str, a: bytes, b: bytes) -> str:
    """Which member of a JSON record differs."""
    if not name.endswith(".json"):
        return ""
    try:
        one, two = canonical.loads(a), canonical.loads(b)
    except KfmError:
        return ""
    return (
        f": {', '.join(k for k in sorted({*one, *two}) if one.get(k) != two.get(k))}"
        if isinstance(one, dict) and isinstance(two, dict)
        else ""
    )


def second_net(table: Path, target: Target, side: Mapping[str, bytes]) -> list[dict[str, str]]:
    """Hidden texts and exact coordinates of `table`, searched for in everything public once it is decoded."""
    net, found = _Net(table, target), []
    for name, raw in side.items():
        column = net.caught(_decoded(name, raw), words=not name.endswith(".json"))
        if column is not None:
            message = f"{name} holds a value of the withheld column {column}."
            found.append(_reason("leak.identifier", message, f"Keep {column} out of every public column."))
    return found


class _Net:
    """What is hidden in a table, by how it can be told from chance: anywhere, as a word of its own, or as a number of its own."""

    def __init__(self, table: Path, target: Target) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        rows = pq.read_table(table)
        self._phrases: dict[str, str] = {}
        self._words: dict[str, str] = {}
        self._numbers: dict[float, str] = {}
        self._registered = msgspec.json.encode(target.entry).decode()  # a person wrote it for everybody to read
        common = [self._registered]
        for name in rows.schema.names:
            column = rows.column(name).drop_null().unique()
            shapes = pa.types.is_binary(column.type)
            values = _coordinates(column) if shapes else column.to_pylist()
            if _is_hidden(name, target, place=shapes or name.lower() in _PLACES):
                self._hide(name, values)
            else:
                common += [v if isinstance(v, str) else str(v) for v in values]
        self._leave_out(common)

    def _hide(self, column: str, values: Iterable[Any]) -> None:
        for value in values:
            number = _as_number(value)
            if number is not None:
                self._numbers[abs(number)] = column
            text = str(value) if isinstance(value, str | int) and not isinstance(value, bool) else ""
            letters, digits = any(map(str.isalpha, text)), sum(map(str.isdecimal, text))
            if len(text) < 4 or (not letters and digits < 6) or _DATE.match(text):
                continue  # found everywhere by chance
            alone = text.isalnum() and (len(text) < 6 or not (letters and digits) or _HEX.fullmatch(text) is not None)
            (self._words if alone else self._phrases)[text] = column

    def _leave_out(self, common: list[str]) -> None:
        """What an open column has for a value too, and what the registry says, tells nothing."""
        for text in common[1:]:
            self._phrases.pop(text, None)
        text = "\n".join(common)
        for word in self._words.keys() & set(_WORD.findall(text)):
            del self._words[word]
        self._phrases = {t: c for t, c in self._phrases.items() if t not in self._registered}
        self._open_numbers = _number_tokens(text)

    def caught(self, text: str, *, words: bool) -> str | None:
        """The column a hidden value in `text` comes from; plain words only with `words`, for a record of ours is full of them."""
        for word in sorted(self._words.keys() & set(_WORD.findall(text))):
            if words or not word.isalpha():
                return self._words[word]
        return self._phrase_in(text) or self._number_in(text)

    def _phrase_in(self, text: str) -> str | None:
        if not self._phrases:
            return None
        parts = {text[i : i + 4] for i in range(len(text) - 3)}  # most values are ruled out without another look at the text
        for phrase, column in self._phrases.items():
            if all(phrase[i : i + 4] in parts for i in range(len(phrase) - 3)) and phrase in text:
                return column
        return None

    def _number_in(self, text: str) -> str | None:
        """Numbers of three decimals and more, as they are or rounded."""
        shown: dict[int, set[str]] = {}
        for token in _number_tokens(text) - self._open_numbers:
            shown.setdefault(_decimals(token), set()).add(token)
        if not shown:
            return None
        for number, column in self._numbers.items():
            exact = _decimals(repr(number))
            if any(n <= exact and f"{number:.{n}f}" in tokens for n, tokens in shown.items()):
                return column
        return None


def _is_hidden(column: str, target: Target, *, place: bool) -> bool:
    entry, release = target.entry, target.entry.release
    if release is None:
        return False
    told = (entry.location.latitude, entry.location.longitude) if entry.location is not None else ()
    groups = release.aggregate
    keys = entry.business_key if groups is not None else ()
    in_no_group = groups is not None and column in keys and column not in (*groups.by, *groups.collect)
    return column in release.withhold or in_no_group or (release.h3_resolution is not None and (place or column in told))


def _coordinates(shapes: Any) -> list[float]:
    import shapely

    found: list[float] = shapely.get_coordinates(shapely.from_wkb(shapes.to_numpy(zero_copy_only=False))).ravel().tolist()
    return found


def _as_number(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, str | float):
        return None
    try:
        return float(value) if not isinstance(value, str) or "." in value else None
    except ValueError:
        return None


def _number_tokens(text: str) -> set[str]:
    """Numbers with three decimals or more, without a sign, also without the zeros at their end."""
    tokens = set(_DECIMAL.findall(text))
    return tokens | {short for t in tokens if _decimals(short := t.rstrip("0")) >= 3}


def _decimals(number: str) -> int:
    return len(number.partition(".")[2]) if "e" not in number else 17


def _decoded(name: str, raw: bytes) -> str:
    """A public file as text: the cells of a table, the values of JSON, or what stands there."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    if name.endswith(".parquet"):
        shown = pq.read_table(pa.BufferReader(raw))
        cells = (v for c in shown.columns if not pa.types.is_binary(c.type) for v in c.drop_null().unique().to_pylist())
        return "\n".join((*shown.schema.names, *map(str, cells)))
    try:
        return "\n".join(_leaves(msgspec.json.decode(raw)))
    except (msgspec.DecodeError, UnicodeDecodeError):
        return raw.decode("utf-8", "replace")


def _leaves(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        value = [v for pair in value.items() for v in pair]
    if isinstance(value, list):
        for inner in value:
            yield from _leaves(inner)
    elif value is not None and not isinstance(value, bool):
        yield str(value)


def _plain(value: Any) -> Any:
    return msgspec.to_builtins(value, str_keys=True)


def _reason(code: str, message: str, remedy: str) -> dict[str, str]:
    return {"code": code, "message": message, "remedy": remedy}
