"""An invented picture of what generalising does: points in cells, then the cells that have enough.

No real place is drawn, whatever the data are.
"""

import math

__all__ = ["figure"]

_ROWS, _COLUMNS, _WIDE, _HIGH, _R = 4, 5, 42.0, 36.0, 23.5
# how many points each cell of the picture has, as multiples and remainders of what is enough
_MANY = ("few", "none", "enough", "few", "none", "none", "enough", "enough", "few", "few", "none", "enough", "enough", "none", "none", "few", "none", "enough", "none", "few")  # fmt: skip


def figure(enough: int) -> str:
    """Two drawings side by side and what they mean; `enough` records make a cell."""
    cells = [(r, c) for r in range(_ROWS) for c in range(_COLUMNS)]
    inside = "".join(_cell(r, c, "") for r, c in cells)
    points = "".join(_points(r, c, enough, many) for (r, c), many in zip(cells, _MANY, strict=True))
    shown = "".join(
        _cell(r, c, " on" if many == "enough" else "")
        for (r, c), many in zip(cells, _MANY, strict=True)
    )
    left = _svg(
        "Invented points scattered over hexagonal cells, some cells with only a few",
        inside + points,
    )
    right = _svg("The same cells; those with enough points are filled, the others empty", shown)
    return (
        f'<figure class="figure"><div class="pair">{left}{right}</div><figcaption>Invented example.'
        f" Left, what stays inside. Right, what you get: cells with {enough} records or more. Real"
        " places are never drawn, not even here.</figcaption></figure>"
    )


def _svg(words: str, drawn: str) -> str:
    return f'<svg viewBox="0 0 250 172" role="img" aria-label="{words}">{drawn}</svg>'


def _centre(row: int, column: int) -> tuple[float, float]:
    return 30 + column * _WIDE + (row % 2) * _WIDE / 2, 32 + row * _HIGH


def _cell(row: int, column: int, style: str) -> str:
    x, y = _centre(row, column)
    corners = " ".join(
        f"{x + _R * math.cos(math.radians(a)):.1f},{y + _R * math.sin(math.radians(a)):.1f}"
        for a in range(30, 390, 60)
    )
    return f'<polygon class="cell{style}" points="{corners}"/>'


def _points(row: int, column: int, enough: int, many: str) -> str:
    """Points on a sunflower's spiral: regular, so that nobody looks for a place in them."""
    count = {"none": 0, "few": max(1, min(enough - 1, 2))}.get(many, min(enough + row, 12))
    x, y = _centre(row, column)
    turn = 2.399963 * (row + 1)
    return "".join(
        f'<circle class="dot" cx="{x + 4.4 * math.sqrt(i + 0.6) * math.cos(turn + 2.399963 * i):.1f}"'
        f' cy="{y + 4.4 * math.sqrt(i + 0.6) * math.sin(turn + 2.399963 * i):.1f}" r="2"/>'
        for i in range(count)
    )
