"""Documents as YAML that people read: in the order they were written in, with notes where they
help, and the same bytes every time.
"""

import json
import re
from collections.abc import Iterator, Mapping
from typing import TypeAlias

import msgspec

__all__ = ["Noted", "Tree", "Value", "Verbatim", "yaml_text"]


class Noted(msgspec.Struct, frozen=True):
    """A text with a note behind it, on its line."""

    value: str
    note: str


class Verbatim(msgspec.Struct, frozen=True):
    """What stands there as it is: a number that somebody else will fill in."""

    text: str


Value: TypeAlias = (
    bool
    | int
    | str
    | Noted
    | Verbatim
    | list["Value"]
    | tuple["Value", ...]
    | Mapping[str, "Value"]
    | None
)
Tree: TypeAlias = Mapping[str, Value]  # a key that begins with # is a note above what follows

_WIDTH = 100
_PLAIN = re.compile(
    r"-{0,2}[A-Za-z/][A-Za-z0-9_./@+$()=-]*(?:(?: |:(?=[^ ]))[A-Za-z0-9_./@+$()=-]+)*"
)
# lines that stand as they are: none begins or ends with a blank that a reader would take away,
# and of several line ends behind the last one a reader keeps one
_BLOCK = re.compile(r"[!-~…·](?:[ -~…·]*[!-~…·])?(?:\n(?:[ -~…·]*[!-~…·])?)*(?<!\n)\n")
_OTHER = {"yes", "no", "on", "off", "null", "true", "false", "y", "n"}  # no text to every reader


def yaml_text(*documents: Tree) -> str:
    """One document after the other."""
    return "---\n".join("".join(f"{line}\n" for line in _keys(each, "")) for each in documents)


def _keys(tree: Tree, indent: str) -> Iterator[str]:
    for key, value in tree.items():
        if key.startswith("#"):
            yield f"{indent}{key}"
        else:
            yield from _under(f"{indent}{_scalar(key)}:", value, indent)


def _under(head: str, value: Value, indent: str) -> Iterator[str]:
    """What stands behind `key:`, on its line where it fits, else below it."""
    if isinstance(value, str) and _BLOCK.fullmatch(value):
        yield f"{head} |"
        yield from (f"{indent}  {line}".rstrip() for line in value[:-1].split("\n"))
    elif isinstance(value, Mapping) and value:
        yield head
        yield from _keys(value, indent + "  ")
    elif isinstance(value, list | tuple) and not _fits(head, value):
        yield head
        for item in value:
            yield from _dash(item, indent + "  ")
    else:
        yield f"{head} {_short(value)}"


def _dash(item: Value, indent: str) -> Iterator[str]:
    below = list[str]()
    if isinstance(item, Mapping):
        below = list(_keys(item, indent + "  "))
    elif isinstance(item, list | tuple) and not _fits(f"{indent}-", item):
        below = [line for each in item for line in _dash(each, indent + "  ")]
    if below:
        yield f"{indent}- {below[0].lstrip()}"
        yield from below[1:]
    else:
        yield from _under(f"{indent}-", item, indent)


def _fits(head: str, items: list[Value] | tuple[Value, ...]) -> bool:
    """Whether a list of plain values stands on its line."""
    plain = not any(isinstance(each, Mapping | Noted | Verbatim | list | tuple) for each in items)
    return plain and len(head) + len(_short(items)) < _WIDTH


def _short(value: Value) -> str:
    if isinstance(value, Mapping):
        return "{}"
    if isinstance(value, Noted):
        return f"{_scalar(value.value)} # {value.note}"
    if isinstance(value, Verbatim):
        return value.text
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_short, value))}]"
    return _scalar(value)


def _scalar(value: bool | int | str | None) -> str:
    if isinstance(value, str):
        plain = _PLAIN.fullmatch(value) and value.lower() not in _OTHER
        return value if plain else json.dumps(value, ensure_ascii=False)
    return json.dumps(value)
