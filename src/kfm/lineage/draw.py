"""Lineage as people look at it: a tree of lines, a DOT file, a picture in layers."""

import html
import json
from collections.abc import Iterator, Mapping

from kfm.catalog.lineage.graph import kind_of
from kfm.lineage.ask import Around, Line, Walk

__all__ = ["dot", "placed", "said", "svg", "tree"]

_SHAPES = {"Run": "box", "Asset": "note", "Dataset": "tab", "DatasetVersion": "ellipse"}
_FILLS = {"Run": "#fff3d6", "Asset": "#e4eef8", "Dataset": "#f2f2f2", "DatasetVersion": "#dff0e2"}
_WIDE, _HIGH, _GAP_X, _GAP_Y, _EDGE = 230, 40, 70, 18, 20


def said(name: str) -> str:
    """A node in a few words: ids and digests by their first digits."""
    kind, _, rest = name.partition(":")
    if kind == "asset":
        uri, _, digest = rest.rpartition("#")
        algorithm, _, digits = digest.rpartition(":")
        return f"{uri} {'commitment ' if algorithm.startswith('hmac') else ''}{digits[:12]}"
    if kind == "run":
        return f"run {rest}"
    dataset_id, _, version = rest.partition("@")
    version_id, _, path = version.partition("/")
    return f"{dataset_id}@{version_id[:9]}{'/' + path if path else ''}"


def tree(found: Walk, *, up: bool) -> Iterator[str]:
    """What it comes from, or what comes from it, each node once; what was told above is not told
    again.
    """
    steps: dict[str, list[str]] = {}
    for line in found.lines:
        if line.kind in ("USED_IN", "GENERATED"):
            near, far = (line.target, line.source) if up else (line.source, line.target)
            steps.setdefault(near, []).append(far)
    told: set[str] = set()

    def branch(name: str, before: str) -> Iterator[str]:
        told.add(name)
        nexts = sorted(steps.get(name, ()), key=lambda n: (kind_of(n), n))
        for number, other in enumerate(nexts):
            last = number == len(nexts) - 1
            again = " …" if other in told and steps.get(other) else ""
            yield f"{before}{'└─ ' if last else '├─ '}{said(other)}{again}"
            if other not in told:
                yield from branch(other, before + ("   " if last else "│  "))

    yield from branch(found.start, "")


def dot(found: Walk) -> str:
    """For Graphviz and whatever reads its language."""
    q = json.dumps
    lines = ["digraph lineage {", "  rankdir=LR;", '  node [style=filled, fontname="sans-serif"];']
    for point in found.points:
        shape = f'shape={_SHAPES[point.kind]}, fillcolor="{_FILLS[point.kind]}"'
        lines.append(f"  {q(point.name)} [label={q(said(point.name))}, {shape}];")
    lines += [f"  {q(e.source)} -> {q(e.target)} [label={q(e.kind)}];" for e in found.lines]
    return "\n".join([*lines, "}", ""])


def svg(found: Walk) -> str:
    """One picture without anything from outside: a column for each step, arrows from left to
    right.
    """
    places, wide, high = placed(found)
    kinds = {p.name: p.kind for p in found.points}
    body = [_arrow(places, e) for e in found.lines if e.kind in ("USED_IN", "GENERATED")]
    body += [_box(name, kinds[name], at, name == found.start) for name, at in places.items()]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {wide} {high}" width="{wide}"'
        f' height="{high}" font-family="sans-serif" font-size="11" role="img">\n'
        f"<title>Lineage of {html.escape(said(found.start))}</title>\n"
        '<defs><marker id="end" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="7"'
        ' markerHeight="7" orient="auto"><path d="M0 0L8 4L0 8z" fill="#667"/></marker></defs>\n'
        + "\n".join(body)
        + "\n</svg>\n"
    )


def placed(found: Around) -> tuple[dict[str, tuple[int, int]], int, int]:
    """Where the box of each node begins, and how wide and high all of it is."""
    layers = _layers(found)
    wide = 2 * _EDGE + len(layers) * _WIDE + max(0, len(layers) - 1) * _GAP_X
    high = 2 * _EDGE + max(map(len, layers), default=0) * (_HIGH + _GAP_Y)
    return _places(layers), wide, high


def _layers(found: Around) -> list[list[str]]:
    """Each node one column after the last it comes from; in a column in the order of those before
    it, so that few arrows cross.
    """
    before: dict[str, set[str]] = {p.name: set() for p in found.points}
    for line in found.lines:
        if line.kind in ("USED_IN", "GENERATED"):
            before[line.target].add(line.source)
    depth: dict[str, int] = {}
    left = set(before)
    while left:
        free = {n for n in left if before[n] <= depth.keys()} or left  # a circle ends here
        for name in free:
            depth[name] = 1 + max((depth[b] for b in before[name] if b in depth), default=-1)
        left -= free
    layers: list[list[str]] = [[] for _ in range(1 + max(depth.values(), default=-1))]
    for name in sorted(depth):
        layers[depth[name]].append(name)
    row: dict[str, int] = {}
    for layer in layers:
        layer.sort(key=lambda n: (_middle(before[n], row), n))
        row |= {name: number for number, name in enumerate(layer)}
    return layers


def _middle(names: set[str], row: Mapping[str, int]) -> float:
    rows = [row[n] for n in names if n in row]
    return sum(rows) / len(rows) if rows else 0.0


def _places(layers: list[list[str]]) -> dict[str, tuple[int, int]]:
    return {
        name: (_EDGE + x * (_WIDE + _GAP_X), _EDGE + y * (_HIGH + _GAP_Y))
        for x, layer in enumerate(layers)
        for y, name in enumerate(layer)
    }


def _box(name: str, kind: str, at: tuple[int, int], start: bool) -> str:
    x, y = at
    label = said(name)
    short = label if len(label) <= 36 else f"{label[:17]}…{label[-18:]}"
    return (
        f'<g><title>{html.escape(name)}</title><rect x="{x}" y="{y}" width="{_WIDE}"'
        f' height="{_HIGH}" rx="{0 if kind == "Run" else 10}" fill="{_FILLS[kind]}"'
        f' stroke="#667" stroke-width="{3 if start else 1}"/>'
        f'<text x="{x + 10}" y="{y + 16}" fill="#556">{kind}</text>'
        f'<text x="{x + 10}" y="{y + 31}">{html.escape(short)}</text></g>'
    )


def _arrow(places: Mapping[str, tuple[int, int]], line: Line) -> str:
    (ax, ay), (bx, by) = places[line.source], places[line.target]
    x1, y1, x2, y2 = ax + _WIDE, ay + _HIGH // 2, bx, by + _HIGH // 2
    bend = max(30, (x2 - x1) // 2)
    return (
        f'<path d="M{x1} {y1}C{x1 + bend} {y1} {x2 - bend} {y2} {x2} {y2}" fill="none"'
        ' stroke="#667" marker-end="url(#end)"/>'
    )
