"""What a document that was refused may have meant: the values or keys that are known at the place
it was refused for.
"""

import re
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from msgspec.inspect import Type

__all__ = ["meant", "told"]

_AT = re.compile(r" - at `\$([^`]*)`$")
_STEP = re.compile(r"\.([^.\[\]]+)|\[[^\]]*\]")
_VALUE, _KEY = (
    re.compile(r"Invalid enum value '?(.*?)'?(?: - at `|$)", re.DOTALL),
    re.compile(r"unknown field `([^`]+)`"),
)


def meant(error: msgspec.ValidationError, kind: object) -> str:
    """What may stand where a document of type `kind` was refused, and what was probably meant; ""
    where the error says it itself.
    """
    from msgspec import inspect  # likewise below: a NOOP starts faster without it

    said, at = str(error), _AT.search(str(error))
    places = [inspect.type_info(kind)]
    for step in _STEP.finditer(at[1] if at else ""):
        places = [inner for place in places for inner in _below(place, step[1])]
    found = [p for place in places for p in _plain(place)]
    key, value = _KEY.search(said), _VALUE.match(said)
    if key is not None:
        return told(
            "Keys there are",
            key[1],
            [f.encode_name for p in found if isinstance(p, inspect.StructType) for f in p.fields],
        )
    if value is not None:
        literals = [p for p in found if isinstance(p, inspect.LiteralType)]
        return told("It may be", value[1], [str(v) for p in literals for v in p.values if v != ""])
    return ""


def told(what: str, given: str, known: list[str]) -> str:
    """What may stand there, and which of it is spelt almost as what was given."""
    import difflib

    near = difflib.get_close_matches(given.lower(), known, 1)
    near = near or [each for each in known if given.lower() in each.split("_")][:1]
    question = f" Did you mean `{near[0]}`?" if near else ""
    # of many, the one that was meant is all that is read
    return (
        question
        if near and len(known) > 20
        else f" {what} {', '.join(sorted(known))}.{question}"
        if known
        else ""
    )


def _plain(place: "Type") -> "list[Type]":
    """The types a place may hold, none of them a union."""
    return (
        [inner for t in place.types for inner in _plain(t)] if hasattr(place, "types") else [place]
    )


def _below(place: "Type", key: str | None) -> "list[Type]":
    """What may stand under a key, or in a list or mapping."""
    found: list[Type] = []
    for p in _plain(place):
        if key is not None:
            found += [f.type for f in getattr(p, "fields", ()) if f.encode_name == key]
        else:
            found += [
                t
                for name in ("item_type", "value_type")
                if (t := getattr(p, name, None)) is not None
            ]
    return found
