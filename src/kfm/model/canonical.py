"""Canonical JSON (RFC 8785) out, strict I-JSON (RFC 7493) in: equal values give equal bytes,
doubtful ones give an error.
"""

import json
import re
from typing import Any

import msgspec

from kfm.model.errors import UsageError

__all__ = ["MAX_DEPTH", "MAX_INTEGER", "Json", "NotIJson", "dumps", "loads"]

# an object of somebody else's, or one that is only passed on: what is our own is a struct
Json = dict[str, Any]

# a fixed bound: whether a document is accepted may not depend on who calls, from how deep a stack
MAX_DEPTH = 200
MAX_INTEGER = 2**53 - 1  # beyond it a double, and so another language's reader, sees another number
_LEAST = -MAX_INTEGER

# Whatever msgspec would write on its own account (dates, structs, subclasses, wide integers) is
# refused before it sees it.
_written = msgspec.json.Encoder(order="sorted").encode
# msgspec writes these canonically, or refuses them, without our help
_PLAIN = frozenset({str, bool, type(None)})
_all_plain, _all_int = _PLAIN.issuperset, frozenset({int}).issuperset
_Steps = tuple[str | int, ...]
_PLAIN_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class NotIJson(UsageError):
    """A value that I-JSON cannot carry unchanged, or bytes that are not I-JSON; `path` says
    where.
    """

    def __init__(self, path: str, problem: str, *, expected: str = "", remedy: str = "") -> None:
        super().__init__(f"Not I-JSON at {path}: {problem}.", expected=expected, remedy=remedy)
        self.path = path


class _Doubt(Exception):
    """The value cannot be written; `_fault` finds out where and why."""


class _Repeated:
    """Stands for an object that named `key` twice, until its path is known."""

    def __init__(self, key: str) -> None:
        self.key = key


def dumps(value: object) -> bytes:
    """The RFC 8785 bytes of `value`: None, bool, int, float, str, list, tuple and dict, and no
    other type.

    A whole float from 2^53 up is written in full digits, as the RFC asks, and `loads` then refuses
    it as an integer.

    Raises `NotIJson` naming the path.
    """
    try:
        return _written(_prepared(value, MAX_DEPTH))
    except (_Doubt, TypeError, UnicodeEncodeError, RecursionError) as error:
        raise _fault(value) from error


def loads(raw: bytes) -> Any:
    """The one value `raw` holds. Whatever this accepts, `dumps` can write.

    Raises `NotIJson` on bytes that are not UTF-8 JSON, repeated keys, numbers out of range, lone
    surrogates and nesting beyond `MAX_DEPTH`.
    """
    try:
        value = _parse(raw.decode())
    except RecursionError as error:
        raise _too_deep("$") from error
    except ValueError as error:
        raise NotIJson(
            "$",
            str(error).rstrip("."),
            expected="one JSON value in UTF-8 without a byte order mark",
        ) from error
    # the parser takes NaN, 1e999, wide integers and lone surrogates; the writer does not, and knows
    # the path
    dumps(value)
    return value


def _object(pairs: list[tuple[str, object]]) -> dict[str, object] | _Repeated:
    members = dict(pairs)
    if len(members) == len(pairs):
        return members
    seen: set[str] = set()
    for key, _ in pairs:
        if key in seen:
            break
        seen.add(key)
    return _Repeated(key)


_DECODER = json.JSONDecoder(object_pairs_hook=_object)
_CLIPPING = json.JSONDecoder(object_pairs_hook=_object, parse_int=lambda digits: int(digits[:32]))


def _parse(text: str) -> Any:
    if text.startswith("\ufeff"):
        raise ValueError("a byte order mark comes first")
    try:
        return _DECODER.decode(text)
    except json.JSONDecodeError:
        raise
    except ValueError:
        # Python refuses integers of some thousand digits; clipped ones are still out of range, and
        # then have a path.
        return _CLIPPING.decode(text)


def _prepared(value: Any, depth: int) -> Any:
    """`value` itself where msgspec writes it canonically, else a copy of just those containers that
    need a change.
    """
    kind = type(value)
    if kind is float:
        # In this range msgspec and RFC 8785 agree on a fraction: shortest digits, no exponent.
        if 1e-3 < value < 1e15 or -1e15 < value < -1e-3:
            return value if value % 1 else int(value)
        return _fragment(value)
    if kind is dict:
        return _prepared_object(value, depth - 1)
    if kind is list or kind is tuple:
        return _prepared_array(value, depth - 1)
    if kind in _PLAIN or (kind is int and _LEAST <= value <= MAX_INTEGER):
        return value
    raise _Doubt


def _prepared_object(value: Json, depth: int) -> Json | msgspec.Raw:
    if depth < 0:
        raise _Doubt
    ready = value
    for key, member in value.items():
        if type(key) is not str:
            raise _Doubt
        kind = type(member)
        if kind in _PLAIN or (kind is int and _LEAST <= member <= MAX_INTEGER):
            continue
        new = _prepared(member, depth)
        if new is not member:
            # Copying only on change is what makes this fast: most containers have nothing to
            # change.
            ready = value.copy() if ready is value else ready
            ready[key] = new
    keys = "".join(value)
    if keys.isascii() or max(keys) <= "\uffff":
        return ready
    return _in_utf16_order(ready)


def _prepared_array(value: Any, depth: int) -> Any:
    if depth < 0:
        raise _Doubt
    if _all_plain(map(type, value)):
        return value
    if _all_int(map(type, value)) and max(value) <= MAX_INTEGER and min(value) >= _LEAST:
        return value
    ready = value
    for index, member in enumerate(value):
        if type(member) not in _PLAIN:
            new = _prepared(member, depth)
            if new is not member:
                ready = list(value) if ready is value else ready
                ready[index] = new
    return ready


def _in_utf16_order(members: Json) -> msgspec.Raw:
    """RFC 8785 sorts by UTF-16 unit, msgspec by code point; the two differ only where a key leaves
    the basic plane.
    """
    ordered = sorted(members, key=lambda key: key.encode("utf-16-be"))
    pairs = (_written(key) + b":" + _written(members[key]) for key in ordered)
    return msgspec.Raw(b"{" + b",".join(pairs) + b"}")


def _fragment(value: float) -> msgspec.Raw:
    if value - value != 0:  # NaN and the infinities
        raise _Doubt
    return msgspec.Raw(_ecmascript(value))


def _ecmascript(value: float) -> str:
    """ECMAScript's Number::toString, which RFC 8785 prescribes: the digits of `repr`, the exponent
    at other places.
    """
    if value == 0:
        return "0"
    mantissa, _, exponent = repr(value).partition("e")
    if not exponent:
        return mantissa.removesuffix(".0")
    power, sign = int(exponent), "-" if value < 0 else ""
    digits = mantissa.lstrip("-").replace(".", "")
    if 0 < power < 21:
        return sign + digits.ljust(power + 1, "0")
    if -7 < power < 0:
        return f"{sign}0.{'0' * (-power - 1)}{digits}"
    return f"{mantissa}e{power:+d}"


def _fault(value: object) -> NotIJson:
    """The first fault of `value` in document order. Written without recursion, because depth may be
    the fault.
    """
    waiting: list[tuple[object, _Steps]] = [(value, ())]
    while waiting:
        item, steps = waiting.pop()
        found = _fault_of(item, steps)
        if found:
            return found
        if type(item) is dict:
            waiting.extend((member, (*steps, key)) for key, member in reversed(item.items()))
        elif type(item) is list or type(item) is tuple:
            waiting.extend((item[index], (*steps, index)) for index in reversed(range(len(item))))
    return _too_deep("$")  # nothing wrong but the caller's own stack, nearly used up


def _fault_of(item: object, steps: _Steps) -> NotIJson | None:
    """What is wrong with `item` itself. Values are not quoted: they may be confidential."""
    if type(item) is int and abs(item) > MAX_INTEGER:
        return NotIJson(
            _path(steps),
            "an integer beyond 2^53-1",
            expected="at most 9007199254740991",
            remedy="Write it as a string.",
        )
    if type(item) is float and item - item != 0:
        return NotIJson(
            _path(steps),
            "NaN or an infinity",
            expected="a finite number",
            remedy="Use null for a missing value.",
        )
    if type(item) is str and not _is_unicode(item):
        return NotIJson(_path(steps), "a lone surrogate", expected="text that UTF-8 can carry")
    if type(item) is _Repeated:
        return NotIJson(
            _path((*steps, item.key)), "a repeated key", expected="each key once per object"
        )
    if type(item) is dict or type(item) is list or type(item) is tuple:
        return _fault_of_container(item, steps)
    if type(item) is float or type(item) is int or type(item) in _PLAIN:
        return None
    return NotIJson(
        _path(steps),
        f"a value of type {type(item).__name__}",
        expected="null, boolean, number, string, array or object",
    )


def _fault_of_container(item: object, steps: _Steps) -> NotIJson | None:
    if len(steps) >= MAX_DEPTH:
        return _too_deep(_path(steps))
    for key in item if type(item) is dict else ():
        if type(key) is not str:
            return NotIJson(
                _path(steps), f"a key of type {type(key).__name__}", expected="string keys"
            )
        if not _is_unicode(key):
            return NotIJson(
                _path((*steps, key)),
                "a lone surrogate in the key",
                expected="text that UTF-8 can carry",
            )
    return None


def _too_deep(path: str) -> NotIJson:
    return NotIJson(path, "nested too deeply", expected=f"at most {MAX_DEPTH} levels")


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _path(steps: _Steps) -> str:
    return "$" + "".join(_step(step) for step in steps)


def _step(step: str | int) -> str:
    if isinstance(step, int):
        return f"[{step}]"
    return f".{step}" if _PLAIN_KEY.fullmatch(step) else f"[{json.dumps(step)}]"
