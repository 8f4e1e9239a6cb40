"""Draws docs/rooms.svg: the rooms of src/kfm and the arrows of their real imports. `make schemas` renews it, a test compares."""

import ast
import sys
from pathlib import Path

__all__ = ["drawn", "graph"]

SRC = Path(__file__).parents[1] / "src" / "kfm"
WIDTH, HIGH, GAP_X, GAP_Y, MARGIN = 128, 40, 22, 44, 24


def graph() -> dict[str, set[str]]:
    """room -> the rooms it imports, hidden imports and imports for types counted."""
    found: dict[str, set[str]] = {}
    for path in sorted(SRC.rglob("*.py")):
        parts = path.relative_to(SRC).parts
        if len(parts) < 2 or parts[0] == "template":
            continue
        mine = found.setdefault(parts[0], set())
        for node in ast.walk(ast.parse(path.read_text())):
            names = [node.module] if isinstance(node, ast.ImportFrom) and node.module else []
            names += [a.name for a in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and node.module == "kfm":
                names = [f"kfm.{a.name}" for a in node.names]
            mine |= {n.split(".")[1] for n in names if n.startswith("kfm.")}
    return {name: {t for t in others if t in found and t != name} for name, others in found.items()}


def _levels(rooms: dict[str, set[str]]) -> dict[str, int]:
    """How far each room stands above those it imports; rooms that import one another (faces) stand together."""
    level = dict.fromkeys(rooms, 0)
    for _ in rooms:
        for name, others in rooms.items():
            mutual = {o for o in others if name in rooms[o]}
            level[name] = (
                max([level[name], *(level[o] + 1 for o in others - mutual)])
                if others - mutual
                else level[name]
            )
    return level


def _needed(rooms: dict[str, set[str]]) -> dict[str, set[str]]:
    """Arrows that do not follow from others."""

    def below(name: str, seen: set[str]) -> set[str]:
        for other in rooms[name] - seen:
            seen.add(other)
            below(other, seen)
        return seen

    return {
        name: {o for o in others if not any(o in below(via, set()) for via in others - {o})}
        for name, others in rooms.items()
    }


def drawn() -> str:
    """The picture as SVG text; the same imports give the same bytes."""
    rooms = graph()
    level = _levels(rooms)
    rows: dict[int, list[str]] = {}
    for name in sorted(rooms):
        rows.setdefault(level[name], []).append(name)
    widest = max(len(names) for names in rows.values())
    width = 2 * MARGIN + widest * (WIDTH + GAP_X) - GAP_X
    top = max(rows)
    height = 2 * MARGIN + (top + 1) * (HIGH + GAP_Y) - GAP_Y
    at: dict[str, tuple[float, float]] = {}
    for number, names in rows.items():
        left = (width - len(names) * (WIDTH + GAP_X) + GAP_X) / 2
        for place, name in enumerate(names):
            at[name] = (left + place * (WIDTH + GAP_X), MARGIN + (top - number) * (HIGH + GAP_Y))
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" font-family="system-ui, sans-serif" role="img">',
        "<title>The rooms of kfm: an arrow goes from a room to one it imports</title>",
        '<defs><marker id="a" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        '<path d="M0 0L8 4L0 8z" fill="#7a8791"/></marker></defs>',
        f'<rect width="{width:g}" height="{height:g}" fill="#fbfaf7"/>',
    ]
    for name, others in sorted(_needed(rooms).items()):
        for other in sorted(others):
            (x1, y1), (x2, y2) = at[name], at[other]
            ax, ay, bx, by = x1 + WIDTH / 2, y1 + HIGH, x2 + WIDTH / 2, y2
            lines.append(
                f'<path d="M{ax:g} {ay:g}C{ax:g} {ay + GAP_Y / 2:g} {bx:g} {by - GAP_Y / 2:g} {bx:g} {by:g}" '
                'fill="none" stroke="#b4bdc4" stroke-width="1.3" marker-end="url(#a)"/>'
            )
    for name, (x, y) in sorted(at.items()):
        lines.append(
            f'<rect x="{x:g}" y="{y:g}" width="{WIDTH}" height="{HIGH}" rx="7" fill="#fff" stroke="#3f5563"/>'
        )
        lines.append(
            f'<text x="{x + WIDTH / 2:g}" y="{y + 25:g}" text-anchor="middle" font-size="15" fill="#14222b">{name}/</text>'
        )
    return "\n".join([*lines, "</svg>", ""])


if __name__ == "__main__":
    sys.stdout.write(drawn())
