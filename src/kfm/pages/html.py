"""Markup that cannot be broken out of: text is escaped unless it was made here."""

from collections.abc import Iterable
from functools import cache
from html import escape
from typing import TypeAlias

from kfm.diff.base import plain

__all__ = ["Html", "Inside", "el", "join", "safe_address"]

_VOID = frozenset({"br", "hr", "img", "input", "link", "meta"})
_ADDRESSES = frozenset({"href", "src", "action", "formaction"})
_PLAIN_STARTS = ("/", "#", "?", "https://", "http://")


class Html(str):
    """Markup that was made here."""

    __slots__ = ()


Inside: TypeAlias = "Html | str | int | float | Iterable[Inside] | None"
Value = str | int | float | bool | None


def el(tag: str, *inside: Inside, **attributes: Value) -> Html:
    """An element. `class_` is `class`, `data_state` is `data-state`; what is None or False is left
    out, True has no value.
    """
    told = "".join(_attribute(name, value) for name, value in attributes.items())
    if tag in _VOID:
        return Html(f"<{tag}{told}>")
    return Html(f"<{tag}{told}>{join(*inside)}</{tag}>")


def join(*inside: Inside) -> Html:
    """Pieces one after the other."""
    return Html("".join(map(_text, inside)))


def _text(piece: Inside) -> str:
    if isinstance(piece, Html):
        return piece
    if piece is None:
        return ""
    if isinstance(piece, str):
        return escape(_shown(piece), quote=True)
    if isinstance(piece, int | float):
        return escape(str(piece), quote=True)
    return "".join(map(_text, piece))


def _shown(text: str) -> str:
    """Lines stay lines; what would turn the reading direction or hide is spelt out."""
    return "\n".join(map(plain, text.split("\n"))) if "\n" in text else plain(text)


def _attribute(name: str, value: Value) -> str:
    if value is None or value is False:
        return ""
    said = _spelt(name)
    if value is True:
        return f" {said}"
    text = str(value)
    if said in _ADDRESSES:
        text = safe_address(text)
    return f' {said}="{escape(_shown(text), quote=True)}"'


@cache
def _spelt(name: str) -> str:
    return name.rstrip("_").replace("_", "-")


def safe_address(text: str) -> str:
    """An address that only leads somewhere; a script, or whatever else a browser would run, leads
    nowhere.
    """
    return text if text.startswith(_PLAIN_STARTS) and not text.startswith("//") else "#"
