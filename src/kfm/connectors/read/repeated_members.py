"""Whether an object has a member twice: decoding leaves no trace of it, so names in the text and
members decoded of it are counted.
"""

import json
from collections.abc import Callable, Iterable
from itertools import chain
from typing import Any

import msgspec
import numpy as np

from kfm.connectors.read.json_text import outside_strings

__all__ = ["Twice", "count_members", "decode_once", "is_plain", "named_twice", "twice_around"]

_NEAR = 1 << 17  # bytes looked at together, so that they stay near the processor


class Twice(Exception):
    """A member that is there twice; which of them is meant nobody can know."""


def decode_once(text: bytes) -> Any:
    """A JSON value in which no object has a member twice. Raises `Twice` with the name of one, and
    what msgspec raises.
    """
    value = msgspec.json.decode(text)
    if not is_plain(text, lambda: count_members(value)) and (name := named_twice(text)) is not None:
        raise Twice(name)
    return value


def count_members(value: object) -> int:
    """How many members the objects in a decoded value have; some that stand behind a number in a
    list may be left out.
    """
    count, level = 0, [value]
    while level:
        objects = [v for v in level if type(v) is dict]
        count += sum(map(len, objects))
        # else the numbers of a position
        lists = [
            v for v in level if type(v) is list and v and (type(v[0]) is dict or type(v[0]) is list)
        ]
        level = [
            v
            for held in chain(map(dict.values, objects), lists)
            for v in held
            if type(v) is dict or type(v) is list
        ]
    return count


def is_plain(text: bytes, members: Callable[[], int]) -> bool:
    """Whether no object in `text` has a member twice, given how many members were decoded of it, or
    fewer.

    A name stands before a colon with a quote or a blank between them: there are at most as many as
    such colons, and at least as many as were decoded. Where both agree there is nothing left to be
    twice. Colons in strings make the first number larger, members that nobody wanted the second
    smaller; then both are counted exactly.
    """
    chars, most = np.frombuffer(text, np.uint8), 0
    for at in range(0, len(chars), _NEAR):
        piece = chars[at : at + _NEAR + 1]
        most += int(np.count_nonzero((piece[1:] == ord(":")) & (piece[:-1] <= ord('"'))))
    if not most or most <= members():
        return True
    least = count_members(msgspec.json.decode(b"[" + text + b"]"))
    return most <= least or _names(text) <= least


def named_twice(text: bytes) -> str | None:
    """A name that an object in this JSON gives to two of its members."""
    try:
        json.loads(text, object_pairs_hook=_once)
    except Twice as twice:
        return str(twice)
    except (ValueError, RecursionError):  # not for us to say
        pass
    return None


def twice_around(text: bytes, items: Iterable[bytes]) -> str | None:
    """The same for a document without some of its values, which follow each other in it and are
    looked at on their own.
    """
    parts, at = [], 0
    for item in items:
        here = text.find(item, at)
        if here >= 0:
            parts.append(text[at:here])
            at = here + len(item)
    return named_twice(b"0".join([*parts, text[at:]]))


def _once(pairs: list[tuple[str, object]]) -> None:
    names = {name for name, _ in pairs}
    if len(names) < len(pairs):
        raise Twice(
            next(name for i, (name, _) in enumerate(pairs) if name in {n for n, _ in pairs[:i]})
        )


def _names(text: bytes) -> int:
    """How many members are named, each as often as it is."""
    return sum(
        int(np.count_nonzero((chars == ord(":")) & outside))
        for _, chars, outside in outside_strings(text)
    )
