"""What something comes from, what comes from it, the way between two, and what would break."""

import datetime as dt
import re
from collections.abc import Callable, Iterable

import msgspec

from kfm.access.boundary import NOBODY, Reader
from kfm.access.references import generations_of, resolve
from kfm.catalog.lineage.graph import kind_of, part_of, run_name, version_name
from kfm.catalog.lineage.record import LineageRecord
from kfm.evidence.lineage import known_lineage
from kfm.lineage.sight import Sight
from kfm.model import UsageError
from kfm.store.base import Tx
from kfm.store.lineage import EVER_MS
from kfm.world.world import World

__all__ = [
    "DEPTH",
    "Affected",
    "Around",
    "Impact",
    "Line",
    "Point",
    "Walk",
    "impact",
    "path",
    "records_in",
    "walk",
]

DEPTH = 10  # runs, one after the other
_BEGINS = 8  # letters of an id that mean it


class Point(msgspec.Struct, frozen=True, kw_only=True):
    """A node: what it is, its name, and in how many edges it is reached from where one began;
    below zero: it comes from there.
    """

    name: str
    kind: str
    distance: int


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """An edge, by the names of its ends."""

    source: str
    kind: str
    target: str


class Around(msgspec.Struct, frozen=True, kw_only=True):
    """What can be seen of the lineage around a node."""

    start: str
    points: tuple[Point, ...]
    lines: tuple[Line, ...]


class Walk(Around, frozen=True, kw_only=True):
    """The same, for who may learn whether that is all."""

    hidden: bool  # the reader may not know of all there is


class Affected(msgspec.Struct, frozen=True, kw_only=True):
    """A dataset of which something comes from a source."""

    dataset_id: str
    versions: int  # that come from it
    official: str | None  # the version that is official and comes from it; None: not that one
    distance: int  # runs between the source and the nearest of them


class Impact(msgspec.Struct, frozen=True, kw_only=True):
    """What would break if a source were withdrawn."""

    start: tuple[str, ...]
    affected: tuple[Affected, ...]
    hidden: bool


# ---- where one begins ----------------------------------------------------------------------------
def starts(world: World, text: str, sight: Sight) -> list[str]:
    """The nodes that a person means: a version, a run, by its id or how that begins, or an input by
    its address.
    """
    if re.fullmatch(r"[a-z][a-z0-9_]*(@\w+)?", text):
        dataset_id = text.partition("@")[0]
        if world.registry(dataset_id) is None and not generations_of(world, dataset_id):
            raise _unknown(text)
        ref = resolve(world, text)
        return [version_name(f"{ref.dataset_id}@{ref.version_id}")]
    begin = f"asset:{text}#" if "://" in text else run_name(text)
    found = world.store.read(lambda tx: [name for _, name in tx.lineage.beginning(begin)])
    found = sorted(sight.seen(n for n in found if len(text) >= _BEGINS or n == begin))
    if not found:
        raise _unknown(text)
    return found


def _unknown(text: str) -> UsageError:
    """Said of what is not there and of what is hidden alike."""
    return UsageError(
        f"Lineage knows nothing of {text}.",
        expected=(
            "DATASET, DATASET@vHEX, DATASET@GENERATION, the id of a run, or the address of a source"
        ),
        remedy="`kfm runs` lists runs, `kfm status` datasets; `kfm doctor` finds what is missing.",
    )


def until_of(world: World, text: str | None) -> int:
    """The moment that a time, a run or a version stands for, in milliseconds since 1970."""
    if not text:
        return EVER_MS
    if re.match(r"\d{4}-\d{2}-\d{2}", text):
        try:
            moment = dt.datetime.fromisoformat(text)
        except ValueError as error:
            raise UsageError(
                f"{text} is no moment.",
                expected="a day and a time of the calendar, such as 2026-11-17T10:00:00Z",
                remedy="Say another one, the id of a run, or DATASET@GENERATION.",
            ) from error
        return int((moment if moment.tzinfo else moment.replace(tzinfo=dt.UTC)).timestamp() * 1000)
    try:
        (name, *_) = starts(world, text, Sight(world))
    except UsageError as error:
        raise UsageError(
            f"{text} is no moment, and no run or version that lineage knows.",
            expected="2026-11-17, 2026-11-17T10:00:00Z, the id of a run, or DATASET@GENERATION",
            remedy="`kfm runs` lists runs, `kfm history DATASET` versions.",
        ) from error

    def when(tx: Tx) -> int:
        node = tx.lineage.node(name)
        edges = [] if node is None else [*tx.lineage.into([node]), *tx.lineage.out_of([node])]
        made = [e.at_ms for e in edges if e.kind == "GENERATED"]
        return min(made, default=EVER_MS)

    return world.store.read(when)


# ---- walks ---------------------------------------------------------------------------------------
def walk(
    world: World,
    text: str,
    *,
    up: int = DEPTH,
    down: int = DEPTH,
    as_of: str | None = None,
    reader: Reader = NOBODY,
    on: Callable[[], None] = lambda: None,
) -> Walk:
    """Everything within so many runs before and after, as far as the reader may know of it. `on` is
    called now and then, and may end it.
    """
    if min(up, down) < 0:
        raise UsageError(
            f"{min(up, down)} runs cannot be walked.",
            expected="0 or more",
            remedy="--up N and --down N say how many runs back and on; 0 is none.",
        )
    sight, until = Sight(world, reader), until_of(world, as_of)
    (start, *_) = begun = starts(world, text, sight)
    found: dict[str, int] = {}
    lines: set[Line] = set()
    for name in begun:
        on()
        distances, edges = world.store.read(lambda tx: _around(tx, name, up, down, until))
        found = distances | found
        lines |= edges
    shown = _shown(start, found, lines, sight)
    if all(point.distance for point in shown.points):
        raise _unknown(text)
    return shown


def _around(tx: Tx, name: str, up: int, down: int, until: int) -> tuple[dict[str, int], set[Line]]:
    node = tx.lineage.node(name)
    if node is None:
        return {name: 0}, set()
    before = tx.lineage.up(node, 2 * up, until)
    after = tx.lineage.down(node, 2 * down, until)
    distances = {n: -d for n, d in before.items()} | after
    edges = [e for e in tx.lineage.into(distances) if e.source in distances and e.at_ms <= until]
    names = tx.lineage.names(distances)
    lines = {Line(source=names[e.source], kind=e.kind, target=names[e.target]) for e in edges}
    return {names[n]: d for n, d in distances.items()}, lines | _parts(set(names.values()))


def _parts(names: set[str]) -> set[Line]:
    """Which files belong to which version, as their names say."""
    files = (name for name in names if kind_of(name) == "Dataset")
    return {
        Line(source=part_of(file), kind="HAS_PART", target=file)
        for file in files
        if part_of(file) in names
    }


def _shown(start: str, found: dict[str, int], lines: set[Line], sight: Sight) -> Walk:
    """Without what is hidden, and without inputs that nothing visible used."""
    seen = sight.seen(found)
    used = {line.source for line in lines if line.target in seen}
    seen = {n for n in seen if kind_of(n) != "Asset" or n in used}
    points = [Point(name=n, kind=kind_of(n), distance=d) for n, d in found.items() if n in seen]
    return Walk(
        start=start,
        points=tuple(sorted(points, key=lambda p: (p.distance, p.name))),
        lines=tuple(
            sorted(
                (e for e in lines if {e.source, e.target} <= seen),
                key=lambda e: (e.source, e.kind, e.target),
            )
        ),
        hidden=len(seen) < len(found),
    )


def path(world: World, one: str, other: str, reader: Reader = NOBODY) -> tuple[Line, ...] | None:
    """The shortest way from one to the other, whichever comes first; None: neither comes from the
    other, as far as the reader may know.
    """
    sight = Sight(world, reader)
    first, last = starts(world, one, sight), starts(world, other, sight)
    ways = [
        found
        for sources, targets in ((first, last), (last, first))
        for lines in (walk(world, _said(sources[0]), up=0, down=100, reader=reader).lines,)
        for source in sources  # every answer that an address ever gave
        for target in targets
        if (found := _way(lines, source, target)) is not None
    ]
    return min(ways, key=len, default=None)


def _said(name: str) -> str:
    """A name as a person says it."""
    kind, _, rest = name.partition(":")
    return rest.rpartition("#")[0] if kind == "asset" else rest


def _way(lines: Iterable[Line], source: str, target: str) -> tuple[Line, ...] | None:
    onwards: dict[str, list[Line]] = {}
    for line in lines:
        if line.kind in ("USED_IN", "GENERATED"):
            onwards.setdefault(line.source, []).append(line)
    came: dict[str, Line | None] = {source: None}
    edge = [source]
    while edge and target not in came:
        edge = [
            line.target
            for name in edge
            for line in onwards.get(name, ())
            if line.target not in came and not came.update({line.target: line})
        ]
    found: list[Line] = []
    at = target
    while (last := came.get(at)) is not None:
        found.append(last)
        at = last.source
    return tuple(reversed(found)) if at == source and target in came else None


# ---- what would break ----------------------------------------------------------------------------
def impact(world: World, text: str, reader: Reader = NOBODY) -> Impact:
    """Every dataset of which something comes from a source, with the official version if that
    does.
    """
    sight = Sight(world, reader)
    begun = starts(world, text, sight)
    walks = [walk(world, _said(name), up=0, down=100, reader=reader) for name in begun[:1]]
    made: dict[str, dict[str, int]] = {}
    for around in walks:
        for point in around.points:
            if point.kind == "DatasetVersion" and point.distance > 0:
                dataset_id = point.name.removeprefix("version:").partition("@")[0]
                made.setdefault(dataset_id, {})[point.name] = (point.distance + 1) // 2
    heads = {d: world.store.read(lambda tx: tx.index.last_generation(d)) for d in made}
    affected = []
    for dataset_id, versions in made.items():
        head = heads[dataset_id]
        official = head.version_id if head is not None else None
        name = version_name(f"{dataset_id}@{official}")
        affected.append(
            Affected(
                dataset_id=dataset_id,
                versions=len(versions),
                official=official if name in versions else None,
                distance=min(versions.values()),
            )
        )
    return Impact(
        start=tuple(begun),
        affected=tuple(sorted(affected, key=lambda a: (a.distance, a.dataset_id))),
        hidden=any(w.hidden for w in walks),
    )


def records_in(world: World, found: Walk) -> list[LineageRecord]:
    """The records of the runs of a walk."""
    runs = [p.name.removeprefix("run:") for p in found.points if p.kind == "Run"]
    records = world.store.read(lambda tx: [known_lineage(tx, run) for run in runs])
    return [record for record in records if record is not None]
