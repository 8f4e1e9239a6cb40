"""Questions about rows and items in CQL2, as text and as JSON: the basic operators, LIKE, BETWEEN, IN
and IS NULL, and S_INTERSECTS. A question becomes a small tree; nothing of it is ever put into a query
in words.
"""

import datetime as dt
import math
import re
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import NamedTuple

from kfm.model import Json
from kfm.reader.door import BadQuestion

__all__ = ["Both", "Compared", "Intersects", "Nothing", "Question", "like", "parsed", "read_json"]

Value = str | float | int | bool | dt.datetime | dt.date
COMPARE = ("=", "<>", "<", ">", "<=", ">=", "like", "between", "in")
_LONGEST, _DEEPEST, _MOST = 4096, 16, 128
_TOKEN = re.compile(
    r"\s*(?:(?P<number>-?[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?)|'(?P<text>(?:[^']|'')*)'"
    r"|\"(?P<quoted>[^\"]+)\"|(?P<word>[A-Za-z_][\w:.\-]*)|(?P<sign><>|<=|>=|[=<>(),]))"
)
_WORDS = {"and", "or", "not", "like", "between", "in", "is", "null", "true", "false"}


class Compared(NamedTuple):
    """A property and what it is compared with; of `between` and `in` several values."""

    op: str
    name: str
    values: tuple[Value, ...]


class Nothing(NamedTuple):
    """A property that has no value."""

    name: str


class Intersects(NamedTuple):
    """A geometry that shares a point with this one (GeoJSON)."""

    name: str
    geometry: Json


class Both(NamedTuple):
    """`and`, `or`, or `not` of the first part."""

    op: str
    parts: tuple["Question", ...]


Question = Compared | Nothing | Intersects | Both


@lru_cache(maxsize=64)
def like(pattern: str) -> Callable[[str], bool]:
    """Whether a text is like a pattern: `%` is any letters, `_` is one. The first place where a part
    between two `%` stands is taken for good, so that no pattern takes longer than its length times
    that of the text.
    """
    first, *rest = (re.escape(part).replace("_", ".") for part in pattern.split("%"))
    if rest:
        *between, last = rest
        first += "".join(f"(?>.*?{part})" for part in between if part) + f".*{last}"
    found = re.compile(first, re.DOTALL)
    return lambda text: found.fullmatch(text) is not None


def parsed(text: str) -> Question:
    """A question in CQL2 text. Raises `BadQuestion`."""
    if len(text) > _LONGEST:
        raise _wrong("it is too long")
    return read_json(_Text(text).whole())


def read_json(said: object) -> Question:
    """A question in CQL2 JSON. Raises `BadQuestion`."""
    count = iter(range(_MOST))
    return _read(said, 0, count)


def _read(said: object, depth: int, count: Iterator[int]) -> Question:
    if depth > _DEEPEST or next(count, None) is None:
        raise _wrong("it is nested too deeply or has too many parts")
    if not isinstance(said, dict) or not isinstance(said.get("op"), str):
        raise _wrong("a part of it is no operation")
    op, args = said["op"].lower(), said.get("args")
    if not isinstance(args, list) or not args:
        raise _wrong(f"{op[:20]} has nothing to work on")
    if op in ("and", "or", "not"):
        if op == "not" and len(args) != 1:
            raise _wrong("not takes one part")
        return Both(op, tuple(_read(each, depth + 1, count) for each in args))
    if op == "isnull" and len(args) == 1:
        return Nothing(_name(args[0]))
    if op in ("s_intersects", "intersects") and len(args) == 2:
        return Intersects(_name(args[0]), _geometry(args[1]))
    if op == "in" and len(args) == 2 and isinstance(args[1], list) and args[1]:
        return Compared(op, _name(args[0]), tuple(map(_value, args[1])))
    if op == "between" and len(args) == 2 and isinstance(args[1], list):
        args = [args[0], *args[1]]  # as it was written before the standard was done
    if op == "between" and len(args) == 3:
        return Compared(op, _name(args[0]), (_value(args[1]), _value(args[2])))
    if op in ("!=", *COMPARE[:7]) and len(args) == 2:
        return Compared("<>" if op == "!=" else op, _name(args[0]), (_value(args[1]),))
    raise _wrong(f"{op[:20]} is not understood here, or has other parts")


def _name(said: object) -> str:
    if isinstance(said, dict) and isinstance(said.get("property"), str) and said["property"]:
        return str(said["property"])[:200]
    raise _wrong("the left side is no property")


def _value(said: object) -> Value:
    if isinstance(said, dict) and len(said) == 1:
        kind, text = next(iter(said.items()))
        if kind in ("timestamp", "date") and isinstance(text, str):
            return _moment(text) if kind == "timestamp" else _moment(text).date()
    if isinstance(said, float) and not math.isfinite(said):
        raise _wrong("a number is too large")
    if isinstance(said, str | bool | int | float):
        return said
    raise _wrong("the right side is no value")


def _moment(text: str) -> dt.datetime:
    try:
        found = dt.datetime.fromisoformat(text)
    except ValueError as error:
        raise _wrong(f"{text[:40]!r} is no time") from error
    return found if found.tzinfo else found.replace(tzinfo=dt.UTC)


def _geometry(said: object) -> Json:
    if isinstance(said, dict) and isinstance(said.get("bbox"), list):
        west, south, east, north = _box(said["bbox"])
        ring = [[west, south], [east, south], [east, north], [west, north], [west, south]]
        return {"type": "Polygon", "coordinates": [ring]}
    if isinstance(said, dict) and isinstance(said.get("type"), str):
        return said
    raise _wrong("the right side is no geometry")


def _box(said: list[object]) -> tuple[float, float, float, float]:
    numbers = [n for n in said if isinstance(n, int | float) and not isinstance(n, bool)]
    if len(numbers) != 4 or len(said) != 4:
        raise _wrong("a bbox has four numbers")
    return (numbers[0], numbers[1], numbers[2], numbers[3])


def _wrong(why: str) -> BadQuestion:
    return BadQuestion(f"The filter cannot be understood: {why}.", "filter")


class _Token(NamedTuple):
    kind: str
    text: str


class _Text:
    """Reads CQL2 text into the JSON form."""

    def __init__(self, text: str) -> None:
        self._tokens, at = list[_Token](), 0
        text = text.strip()
        while at < len(text):
            found = _TOKEN.match(text, at)
            if found is None:
                raise _wrong(f"what stands at {at + 1} is not understood")
            self._tokens.append(_Token(str(found.lastgroup), str(found[str(found.lastgroup)])))
            at = found.end()
        self._at, self._depth = 0, 0

    def whole(self) -> Json:
        found = self._either()
        if self._at < len(self._tokens):
            raise _wrong("something stands behind its end")
        return found

    def _peek(self) -> _Token:
        return self._tokens[self._at] if self._at < len(self._tokens) else _Token("end", "")

    def _take(self) -> _Token:
        found = self._peek()
        self._at += 1
        return found

    def _is(self, word: str) -> bool:
        """Whether this comes next; then it is taken."""
        kind, text = self._peek()
        if kind in ("word", "sign") and text.lower() == word:
            self._at += 1
            return True
        return False

    def _must(self, word: str) -> None:
        if not self._is(word):
            raise _wrong(f"`{word}` is missing")

    def _either(self) -> Json:
        parts = [self._all()]
        while self._is("or"):
            parts.append(self._all())
        return parts[0] if len(parts) == 1 else {"op": "or", "args": parts}

    def _all(self) -> Json:
        parts = [self._one()]
        while self._is("and"):
            parts.append(self._one())
        return parts[0] if len(parts) == 1 else {"op": "and", "args": parts}

    def _one(self) -> Json:
        self._depth += 1
        if self._depth > _MOST:
            raise _wrong("it is nested too deeply or has too many parts")
        if self._is("not"):
            return {"op": "not", "args": [self._one()]}
        if self._is("("):
            found = self._either()
            self._must(")")
            return found
        kind, text = self._take()
        if kind not in ("word", "quoted") or (kind == "word" and text.lower() in _WORDS):
            raise _wrong("a property is missing")
        if kind == "word" and text.lower() == "s_intersects":
            return self._intersects()
        return self._about({"property": text})

    def _about(self, name: Json) -> Json:
        no = self._is("not")
        if self._is("like"):
            found: Json = {"op": "like", "args": [name, self._literal()]}
        elif self._is("between"):
            low = self._literal()
            self._must("and")
            found = {"op": "between", "args": [name, low, self._literal()]}
        elif self._is("in"):
            found = {"op": "in", "args": [name, self._list()]}
        elif not no and self._is("is"):
            no = self._is("not")
            self._must("null")
            found = {"op": "isNull", "args": [name]}
        else:
            sign = self._take()
            if no or sign.kind != "sign" or sign.text in "(),":
                raise _wrong("a comparison is missing")
            found = {"op": sign.text, "args": [name, self._literal()]}
        return {"op": "not", "args": [found]} if no else found

    def _list(self) -> list[object]:
        self._must("(")
        found = [self._literal()]
        while self._is(","):
            found.append(self._literal())
        self._must(")")
        return found

    def _literal(self) -> object:
        kind, text = self._take()
        if kind == "number":
            return float(text) if re.search(r"[.eE]", text) else int(text)
        if kind == "text":
            return text.replace("''", "'")
        word = text.lower()
        if kind == "word" and word in ("true", "false"):
            return word == "true"
        if kind == "word" and word in ("timestamp", "date"):
            self._must("(")
            inside = self._take()
            self._must(")")
            return {word: inside.text}
        raise _wrong("a value is missing")

    def _intersects(self) -> Json:
        self._must("(")
        name = self._take()
        self._must(",")
        self._must("bbox")
        box = self._list()
        self._must(")")
        return {"op": "s_intersects", "args": [{"property": name.text}, {"bbox": box}]}
