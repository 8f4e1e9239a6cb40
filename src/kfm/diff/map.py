"""The shown rows of a comparison on a map of lines and marks alone: there is no picture to
fetch.
"""

import math
from collections.abc import Callable
from html import escape

from kfm.diff.base import Change, Diff, Place, shown

__all__ = ["draw"]

_MARKS = {
    "added": '<rect class="ma" x="-5" y="-5" width="10" height="10"/>',
    "removed": '<circle class="md" r="5"/><path class="md" d="M-3.5 -3.5l7 7"/>',
    "moved": '<path class="mm" d="M-6 4L5 -3M0 -3h5v5"/>',
    "changed": '<path class="mc" d="M0 -6l6 6-6 6-6-6z"/>',
}


def draw(diff: Diff) -> str:
    """Where the shown rows are: squares came, struck circles went, arrows moved, diamonds changed
    in their values.
    """
    spots = [c for c in diff.samples if c.old_at or c.new_at]
    if not spots:
        return ""
    at = [p for c in spots for p in (c.old_at, c.new_at) if p]
    west, east, south, north = (end(p[axis] for p in at) for axis in (0, 1) for end in (min, max))
    # a degree of longitude, measured in degrees of latitude
    squeeze = max(0.1, math.cos(math.radians((south + north) / 2)))
    span_x, span_y = max((east - west) * squeeze, 0.02), max(north - south, 0.02)
    scale = min(430 / span_x, 300 / span_y)
    high = max(200.0, span_y * scale + 50)

    def xy(place: Place) -> Place:
        return (
            240 + (place[0] - (west + east) / 2) * squeeze * scale,
            high / 2 - (place[1] - (south + north) / 2) * scale,
        )

    grid = "".join(_line(v, "EW", xy((v, north))[0], high) for v in _round_values(west, east))
    grid += "".join(_line(v, "NS", xy((west, v))[1], high) for v in _round_values(south, north))
    marks = "".join(
        f"<g><title>{escape(' '.join(map(shown, c.key.values())))}</title>{_mark(c, xy)}</g>"
        for c in spots
    )
    kinds = (
        ("added", diff.added),
        ("removed", diff.removed),
        ("moved", diff.moved),
        ("changed", diff.changed - diff.moved),
    )
    legend = "".join(
        f'<span><svg viewBox="-8 -8 16 16" aria-hidden="true">{_MARKS[kind]}</svg>{kind}'
        f" {count:,}</span>"
        for kind, count in kinds
        if count
    )
    return (
        f'<section><h2>On the map</h2><figure class="card"><svg viewBox="0 0 480 {high:.0f}"'
        f' role="img" aria-label="Map of {len(spots)} rows that differ; the same rows are in the'
        ' tables below."><defs><marker id="tip" orient="auto" refX="7" refY="4" markerWidth="8"'
        ' markerHeight="8" markerUnits="userSpaceOnUse"><path class="mh" d="M0 0l8 4-8'
        f' 4z"/></marker></defs>{grid}{marks}</svg><figcaption>{legend}<span>{len(spots):,} of'
        f" {diff.differences:,} drawn</span></figcaption></figure></section>"
    )


def _mark(change: Change, xy: Callable[[Place], Place]) -> str:
    old, new = change.old_at, change.new_at
    if change.kind == "changed" and old and new and old != new:
        (x0, y0), (x1, y1) = xy(old), xy(new)
        return (
            f'<circle class="mm" cx="{x0:.1f}" cy="{y0:.1f}" r="3.5"/><path class="mm"'
            f' marker-end="url(#tip)" d="M{x0:.1f} {y0:.1f}L{x1:.1f} {y1:.1f}"/>'
        )
    at = new or old
    if at is None:
        return ""
    x, y = xy(at)
    return f'<g transform="translate({x:.1f} {y:.1f})">{_MARKS[change.kind]}</g>'


def _round_values(low: float, high: float) -> list[float]:
    """Two to five round numbers from `low` to `high`."""
    rough = max((high - low) / 4, 0.001)
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(s * power for s in (1, 2, 5, 10) if s * power >= rough)
    return [i * step for i in range(math.ceil(low / step), math.floor(high / step) + 1)]


def _line(value: float, words: str, where: float, high: float) -> str:
    """A meridian or a parallel with its name."""
    name = f"{abs(value):.6g}° {words[value < 0] if value else ''}"
    if words == "EW":
        return (
            f'<path class="g" d="M{where:.1f} 0V{high:.0f}"/><text x="{where + 4:.1f}"'
            f' y="{high - 6:.0f}">{name}</text>'
        )
    return f'<path class="g" d="M0 {where:.1f}H480"/><text x="6" y="{where - 4:.1f}">{name}</text>'
