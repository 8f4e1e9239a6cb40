"""Small pictures of characters: a line of bars, a map of dots."""

import os
from collections.abc import Sequence

__all__ = ["bars", "dots"]

_BARS, _ASCII_BARS = "▁▂▃▄▅▆▇█", ".:-=+*%#"
# which dot of a character of Braille stands for which spot of its two by four
_DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))


def _plain() -> bool:
    return bool(os.environ.get("KFM_ASCII"))


def bars(counts: Sequence[int]) -> str:
    """One bar for each count, the highest as high as a line; where nothing is, nothing."""
    marks, most = (_ASCII_BARS if _plain() else _BARS), max(counts, default=0)
    return "".join(marks[(len(marks) - 1) * n // most] if n else " " for n in counts)


def dots(spots: Sequence[Sequence[int]]) -> list[str]:
    """A character for each two by four spots, a dot where something is."""
    lines = []
    for top in range(0, len(spots), 4):
        rows = spots[top : top + 4]
        line = ""
        for left in range(0, len(rows[0]), 2):
            cells = [row[left : left + 2] for row in rows]
            if _plain():
                count = sum(map(sum, cells))
                line += " .:*#"[min(count, 1) + (count > 2) + (count > 5) + (count > 20)]
                continue
            lit = sum(
                _DOTS[y][x] for y, row in enumerate(cells) for x, count in enumerate(row) if count
            )
            line += chr(0x2800 + lit) if lit else " "
        lines.append(line.rstrip())
    return lines
