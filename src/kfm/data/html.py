"""How notebooks show what they were given; whatever comes from a registry or from upstream is
escaped.
"""

from collections.abc import Iterable, Sequence
from html import escape

__all__ = ["facts", "listing"]


def facts(title: str, rows: Iterable[tuple[str, object]]) -> str:
    """A heading and a table of names and values; what is empty is left out."""
    told = "".join(
        f'<tr><th style="text-align:left">{escape(name)}</th>'
        f'<td style="text-align:left">{escape(str(value))}</td></tr>'
        for name, value in rows
        if value not in (None, "")
    )
    return f"<div><strong>{escape(title)}</strong><table>{told}</table></div>"


def listing(title: str, heads: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A heading and a table with a head."""
    top = "".join(f'<th style="text-align:left">{escape(name)}</th>' for name in heads)
    told = "".join(
        "<tr>"
        + "".join(
            f'<td style="text-align:left">{escape("" if cell is None else str(cell))}</td>'
            for cell in row
        )
        + "</tr>"
        for row in rows
    )
    return (
        f"<div><strong>{escape(title)}</strong><table><thead><tr>{top}</tr></thead>"
        f"<tbody>{told}</tbody></table></div>"
    )
