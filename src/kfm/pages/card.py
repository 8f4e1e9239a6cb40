"""A card to share: one picture that says what a dataset is, made here, of text and shapes alone."""

import textwrap

import msgspec

from kfm.data.shown import Map
from kfm.pages.html import Html, el
from kfm.pages.words import count, plural, when

__all__ = ["Card", "draw"]

WIDE, HIGH = 1200, 630  # as those who show cards ask for
_INK, _QUIET, _PAPER, _LAND = "#1f241f", "#5d6459", "#fcfaf5", "#f4f1e6"
_LINE, _GREEN, _FLOWER, _GREY = "#d9d4c5", "#2f7052", "#e3a81c", "#b9b3a4"
_FONT = "system-ui, 'Noto Sans', 'Segoe UI', Helvetica, Arial, sans-serif"
_SKETCH = (720, 96, 416, 416)  # where the places are drawn: x, y, wide, high
_MOST_LINES = 3
# of letters, in shares of their height, where they are other than most
_widths = dict.fromkeys("iIjl.,:;'!| ", 0.33) | dict.fromkeys("mwMW@%", 0.95)


class Card(msgspec.Struct, frozen=True, kw_only=True):
    """What a card says of a version."""

    title: str
    dataset_id: str
    generation: int
    version_id: str
    rows: int
    columns: int
    licence: str | None
    label: str | None
    official_at: str | None
    looked_at: str | None  # when its source was last asked; None: it is not told
    places: Map | None


def draw(card: Card) -> str:
    """The card as SVG. Whatever a title holds is text."""
    facts = [
        f"{plural(card.rows, 'row')}, {plural(card.columns, 'column')}",
        " · ".join(filter(None, (card.licence or "no licence stated", card.label))),
        f"official since {when(card.official_at)}" if card.official_at else "",
        f"source last asked {when(card.looked_at)}" if card.looked_at else "",
    ]
    title, wide = _wrapped(card.title, 22 if card.places else 38), 620 if card.places else 1060
    top = 190 + 62 * len(title)
    parts = [
        el("title", f"{card.title}: {count(card.rows)} rows"),
        el("rect", width=WIDE, height=HIGH, fill=_PAPER),
        el("rect", width=WIDE, height=10, fill=_GREEN),
        _mark(),
        *(_text(line, 64, 190 + 62 * n, 52, weight=700, most=wide) for n, line in enumerate(title)),
        *(
            _text(line, 64, top + 44 * n, 30, fill=_QUIET)
            for n, line in enumerate(filter(None, facts))
        ),
        _sketch(card.places),
        el("line", x1=64, y1=552, x2=WIDE - 64, y2=552, stroke=_LINE, stroke_width=2),
        _text(_cut(card.dataset_id, 40), 64, 594, 26, weight=600),
        _text(
            f"generation {card.generation} · {card.version_id[:9]}",
            WIDE - 64,
            594,
            26,
            fill=_QUIET,
            anchor="end",
        ),
    ]
    return el(
        "svg",
        parts,
        xmlns="http://www.w3.org/2000/svg",
        width=WIDE,
        height=HIGH,
        viewBox=f"0 0 {WIDE} {HIGH}",
        font_family=_FONT,
        role="img",
    )


def _wrapped(text: str, wide: int) -> list[str]:
    lines = textwrap.wrap(" ".join(text.split()), wide) or [""]
    if len(lines) > _MOST_LINES:
        lines = [*lines[: _MOST_LINES - 1], _cut(f"{lines[_MOST_LINES - 1]} …", wide)]
        lines[-1] = f"{lines[-1].rstrip(' …')} …"
    return lines


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"


def _text(
    text: str,
    x: int,
    y: int,
    size: int,
    *,
    fill: str = _INK,
    weight: int = 400,
    anchor: str = "start",
    most: int = WIDE,
) -> Html:
    """A line; one that would be wider than `most` is squeezed into it, whatever the font."""
    squeezed: dict[str, str | int] = {}
    if size * sum(_widths.get(c, 0.95 if ord(c) > 0x2E80 else 0.58) for c in text) > most:
        squeezed = {"textLength": most, "lengthAdjust": "spacingAndGlyphs"}
    return el(
        "text",
        text,
        x=x,
        y=y,
        font_size=size,
        fill=fill,
        font_weight=weight,
        text_anchor=anchor,
        **squeezed,
    )


def _mark() -> Html:
    squares = (
        el(
            "rect",
            x=64 + 18 * x,
            y=56 + 18 * y,
            width=14,
            height=14,
            rx=2,
            fill=_FLOWER if (x, y) == (2, 1) else _GREY,
        )
        for y in range(3)
        for x in range(3)
    )
    return el("g", squares, _text("kfm", 132, 98, 34, weight=700))


def _sketch(places: Map | None) -> Html | None:
    """Where its places lie: the more in a spot, the larger the point."""
    if places is None or not places.spots:
        return None
    left, top, wide, high = _SKETCH
    rows, columns = len(places.spots), len(places.spots[0])
    step = min((wide - 48) / columns, (high - 48) / rows)
    x0, y0 = left + (wide - step * columns) / 2, top + (high - step * rows) / 2
    frame = {"y": f"{y0 - 24:.1f}", "height": f"{step * rows + 48:.1f}"}
    most = max(max(row) for row in places.spots) or 1
    points = (
        el(
            "circle",
            cx=f"{x0 + (x + 0.5) * step:.1f}",
            cy=f"{y0 + (y + 0.5) * step:.1f}",
            r=f"{min(step, 16) * (0.35 + 0.4 * (many / most) ** 0.5):.1f}",
        )
        for y, row in enumerate(places.spots)
        for x, many in enumerate(row)
        if many
    )
    return el(
        "g",
        el("rect", x=left, width=wide, rx=8, fill=_LAND, stroke=_LINE, **frame),
        el("g", points, fill=_GREEN),
    )
