"""Small maps drawn on the server, which stand where no script runs."""

from kfm.data.shown import Map
from kfm.pages.html import Html, el

__all__ = ["spots"]

_STEP = 8


def spots(found: Map | None, words: str) -> Html | None:
    """How many places lie in each spot: the more, the larger the point."""
    if found is None or not found.spots:
        return None
    high, wide = len(found.spots), len(found.spots[0])
    top = max(max(row) for row in found.spots) or 1
    points = (
        el(
            "circle",
            class_="pt",
            cx=f"{(x + 0.5) * _STEP:g}",
            cy=f"{(y + 0.5) * _STEP:g}",
            r=f"{2 + 3 * (many / top) ** 0.5:.1f}",
        )
        for y, row in enumerate(found.spots)
        for x, many in enumerate(row)
        if many
    )
    return el(
        "svg",
        points,
        viewBox=f"-8 -8 {wide * _STEP + 16} {high * _STEP + 16}",
        role="img",
        aria_label=words,
        class_="still",
    )
