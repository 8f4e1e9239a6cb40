"""Cuts a JSON document of any size into blocks of whole records, without ever holding the document.

A block is first cut where a record seems to end; that the cut is right is proven by the block decoding as a JSON array. Only when it
does not is the text scanned exactly, so `},{` inside a string or a nested array costs time but never a wrong record.

A member that a record has twice leaves no trace once it is decoded. Every block is therefore counted: as many names as stand before a
colon in its text must be found in what was decoded of it, else each of its records is looked at on its own.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from itertools import chain, pairwise
from typing import Any, NamedTuple, NoReturn

import msgspec
import numpy as np

from kfm.connectors.base import DECODED, MOST_COLUMNS, RECORD_BYTES, Refused, refuse_record

__all__ = ["Decoder", "Records", "Slab", "Twice", "count_members", "decode_once", "named_twice", "refuse_depth", "twice_around"]

_BOUNDARY = re.compile(rb"\}(\s*,\s*)\{")
_STRING = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)
_MARK = re.compile(rb'["\[\]{}]')
_SCALAR = re.compile(rb"[^\s,\]}]+")
_BLANK = re.compile(rb"[ \t\r\n]*")
_ESCAPE = re.compile(rb"\\.", re.DOTALL)
_NEAR = 1 << 17  # bytes looked at together, so that they stay near the processor
_MAX_DEPTH = 1000
_TOP = ("", "")  # the path ".": every top-level value is a record
_LARGE = b'"(too large to be kept)"'
_KEEP = 1 << 20  # members beside the records are validated and kept up to this size

_STEP = 8 << 20  # what is longer is one record, and looked at alone
_WINDOW = 1 << 20  # bytes looked at at once
_WEIGHT = np.zeros(256, np.uint8)  # bytes that a value takes in memory, by what stands before it
_WEIGHT[[ord(","), ord("["), ord("{")]] = 32, 64, 200
_DEPTH = np.zeros(256, np.int8)
_DEPTH[[ord("{"), ord("[")]] = 1
_DEPTH[[ord("}"), ord("]")]] = -1


class Decoder(NamedTuple):
    """How the text of a JSON array becomes a list of items, and how many members these stand for: all of them, or fewer."""

    decode: Callable[[bytes], list[Any]]  # raises what msgspec raises
    members: Callable[[list[Any]], int]


class Slab(NamedTuple):
    """Some consecutive records: decoded, or (where the block did not decode) as one text each."""

    items: list[Any] | None
    texts: list[bytes]
    data: bytes

    def text(self, index: int) -> bytes:
        """The raw text of one record; exact and slow, for the few that are shown to people."""
        return self.texts[index] if self.texts else _pieces(self.data)[index]


class Records:
    """The records of one document: a bare array, the array at `path`, the only array of objects, or one value per line."""

    def __init__(
        self,
        blocks: Iterator[bytes],
        source_id: str,
        path: tuple[str, ...] | None,
        *,
        only: str | None = None,
        limit: int = RECORD_BYTES,
    ) -> None:
        self._blocks, self._source, self._path, self._only, self._limit = blocks, source_id, path, only, limit
        self._seen = 0  # records handed on
        self._buf, self._pos, self._base, self._eof = b"", 0, 0, False
        self._guessing = True
        self._found = self._empty = False
        self.members: dict[str, bytes] = {}  # members beside the records, as text; large ones are not kept, but seen

    def member(self, name: str) -> Any:
        """A member beside the records, decoded; None when there is none."""
        try:
            return decode_once(self.members.get(name, b"null"))
        except Twice as twice:
            self._fail(f"in {name[:80]!r} the member {str(twice)[:80]!r} is there twice")

    def split(self, decode: Decoder) -> Iterator[Slab]:
        """Slabs in source order; `decode` turns the text of a JSON array into a list."""
        for slab in self._split(decode):
            if len(slab.data) > self._limit:
                self._check_each(slab)
            yield slab
            self._seen += len(slab.texts if slab.items is None else slab.items)

    def _check_each(self, slab: Slab) -> None:
        for i, text in enumerate(slab.texts or _pieces(slab.data), 1):
            if len(text) > self._limit:
                refuse_record(self._source, self._seen + i, self._limit)

    def _check_open(self) -> None:
        """Refuse a record, or a value beside the records, that has not ended within the limit."""
        if len(self._buf) - self._pos > self._limit:
            refuse_record(self._source, self._seen + 1, self._limit)

    def _check_decoded(self, data: bytes) -> None:
        """A long record may become many times as long: a position of nine characters takes 128 bytes."""
        cost = len(data) + sum(int(np.sum(_WEIGHT[chars] * outside, dtype=np.int64)) for _, chars, outside in _outside_strings(data))
        if cost > DECODED * self._limit:
            refuse_record(self._source, self._seen + 1, self._limit, decoded=cost)

    def _split(self, decode: Decoder) -> Iterator[Slab]:
        """Slabs in source order."""
        head = self._peek()
        if head == b"[":
            if self._path not in (None, _TOP):
                self._refuse_no_array()
            self._found = True
            yield from self._array(decode)
        elif head == b"{":
            if self._path == _TOP or (self._path is None and self._looks_like_lines()):
                self._found = True
                yield from self._lines(decode)
                return
            yield from self._object(self._path, decode)
        else:
            self._fail("the document does not begin with [ or {")
        if self._peek():
            self._fail("there is text after the end of the document")
        if not self._found and not self._empty:
            self._refuse_no_array()

    # -- the document around the records

    def _fill(self, least: int = 1) -> bool:
        """Read on; consumed text is let go. False at the end of the file."""
        parts, size = [self._buf[self._pos :]], 0
        self._base, self._buf, self._pos = self._base + self._pos, b"", 0
        while size < least and not self._eof:
            block = next(self._blocks, None)
            if block is None:
                self._eof = True
            else:
                parts.append(block)
                size += len(block)
        self._buf = b"".join(parts)
        return size > 0

    def _peek(self) -> bytes:
        while True:
            self._pos = _BLANK.match(self._buf, self._pos).end()  # type: ignore[union-attr]
            if self._pos < len(self._buf):
                return self._buf[self._pos : self._pos + 1]
            if not self._fill():
                return b""

    def _expect(self, *wanted: bytes) -> bytes:
        got = self._peek()
        if not got:
            self._cut(f"{' or '.join(w.decode() for w in wanted)} should stand")
        if got not in wanted:
            self._fail(f"expected {' or '.join(w.decode() for w in wanted)}")
        self._pos += 1
        return got

    def _object(self, path: tuple[str, ...] | None, decode: Decoder) -> Iterator[Slab]:
        self._expect(b"{")
        if self._peek() == b"}":
            self._pos += 1
            return
        names: set[str] = set()
        while True:
            key = self._key()
            if key in names or len(names) >= MOST_COLUMNS:
                self._fail(f"the member {key[:80]!r} is there twice" if key in names else f"more than {len(names):,} members are no list")
            names.add(key)
            self._expect(b":")
            if self._is_wanted(key, path):
                rest = path[1:] if path else ()
                if rest and self._peek() == b"{":
                    yield from self._object(rest, decode)
                elif not rest and self._peek() == b"[":
                    self._claim_array(key)
                    yield from self._array(decode)
                else:
                    self._refuse_no_array()
            else:
                self._skip(key)
            if self._expect(b",", b"}") == b"}":
                return

    def _is_wanted(self, key: str, path: tuple[str, ...] | None) -> bool:
        if path:
            return key == path[0]
        if self._only is not None:
            return key == self._only
        return self._peek() == b"[" and self._array_of_objects()

    def _claim_array(self, key: str) -> None:
        if self._found:
            raise Refused(
                "json.records",
                f"Source {self._source} holds a second array of records, {key!r}.",
                expected="one array of records",
                remedy="Name the array in `source.records` of the registry entry.",
                source_id=self._source,
            )
        self._found = True

    def _array_of_objects(self) -> bool:
        """Whether the array at hand begins with an object; an empty one is remembered, it may be all there is."""
        while True:
            after = _BLANK.match(self._buf, self._pos + 1).end()  # type: ignore[union-attr]
            if after < len(self._buf):
                self._empty = self._empty or self._buf[after : after + 1] == b"]"
                return self._buf[after : after + 1] == b"{"
            if not self._fill():
                self._cut("it is not closed")

    def _key(self) -> str:
        if self._peek() != b'"':
            self._fail("expected a member name")
        return str(self._decoded(self._string()))

    def _string(self) -> bytes:
        """The string token at hand; `_fill` keeps what is not consumed, so its start stays in the buffer."""
        while (match := _STRING.match(self._buf, self._pos)) is None:
            if not self._fill(len(self._buf) - self._pos):
                self._cut("a string is not closed")
        self._pos = match.end()
        return match.group()

    def _skip(self, key: str) -> None:
        """Pass over one value; checked and kept under `key` when it is small."""
        head = self._peek()
        if head == b'"':
            text = self._string()
        elif head in (b"{", b"["):
            text = self._container()
        else:
            text = self._scalar()
        if text:
            self._decoded(text)
        self.members.setdefault(key, text or _LARGE)

    def _scalar(self) -> bytes:
        while (match := _SCALAR.match(self._buf, self._pos)) is not None and match.end() == len(self._buf) and self._fill():
            self._check_open()
        if match is None:
            self._fail("expected a value")
        self._pos = match.end()
        return match.group()

    def _container(self) -> bytes:
        """Pass over an object or array of any size without recursion; its text, or nothing when it is large."""
        kept: list[bytes] = []
        size = depth = 0
        while True:
            match = _MARK.search(self._buf, self._pos)
            end = match.start() if match else len(self._buf)
            piece, self._pos = self._buf[self._pos : end], end
            if match is None:
                if not self._fill():
                    self._cut("it is not closed")
            elif match.group() == b'"':
                piece += self._string()
            else:
                piece, self._pos = piece + match.group(), end + 1
                depth += 1 if match.group() in b"{[" else -1
            size += len(piece)
            if size <= _KEEP:
                kept.append(piece)
            if depth > _MAX_DEPTH:
                self._refuse_depth()
            if depth == 0:
                return b"".join(kept) if size <= _KEEP else b""

    def _decoded(self, text: bytes) -> Any:
        try:
            return msgspec.json.decode(text)
        except RecursionError:
            self._refuse_depth()
        except msgspec.DecodeError as error:
            self._fail(str(error))

    # -- the records

    def _array(self, decode: Decoder) -> Iterator[Slab]:
        self._expect(b"[")
        if self._peek() == b"]":
            self._pos += 1
            return
        while True:
            guess = self._guess() if self._guessing else 0
            if guess - self._pos > _STEP:
                guess = 0  # it begins with a long record, which is looked at alone
            if guess:
                data = self._buf[self._pos : guess]
                items = self._try(decode, data)
                if items is not None:
                    yield Slab(items, [], data)
                    self._pos = guess + _skip_comma(self._buf, guess)
                    continue
            commas, close = _structure(self._buf, self._pos)
            if guess and guess - self._pos not in commas:
                self._guessing = False  # this document nests `},{`: guessing would fail at every block
            if close < 0 and not len(commas):
                self._check_open()
                if not self._fill(max(1, min(len(self._buf) - self._pos, _STEP))):
                    self._fail_at_end()
                continue
            end = close if close >= 0 else int(commas[-1])
            if end > _STEP:
                if len(commas):
                    end, close = int(commas[0]), -1
                if end > self._limit:
                    refuse_record(self._source, self._seen + 1, self._limit)
                yield from self._long(decode, end)
                if close >= 0:
                    return
                continue
            if close >= 0 and self._buf[self._pos + close] != ord("]"):
                self.fail_at(self._base + self._pos + close, "expected ]")
            yield self._exact(decode, self._buf[self._pos : self._pos + end], commas[commas < end])
            self._pos += end + 1
            if close >= 0:
                return

    def _long(self, decode: Decoder, end: int) -> Iterator[Slab]:
        """One long record; its text is held once, whatever follows."""
        data, stop = self._buf[self._pos : self._pos + end], self._buf[self._pos + end]
        if stop not in b",]":
            self.fail_at(self._base + self._pos + end, "expected ]")
        self._base += self._pos + end + 1
        self._buf, self._pos = self._buf[self._pos + end + 1 :], 0
        self._check_decoded(data)
        yield self._exact(decode, data, np.empty(0, np.int64))

    def _guess(self) -> int:
        """Where, in the buffer, the last record that is certainly not the last of the array seems to end; 0 when there is none."""
        if len(self._buf) - self._pos < _KEEP:
            self._fill()
        window, size = 1 << 15, len(self._buf)
        while True:
            start = max(self._pos, size - window)
            found = [m.start() for m in _BOUNDARY.finditer(self._buf, start)]
            if found:
                return found[-1] + 1
            if start == self._pos:
                return 0
            window *= 8

    def _try(self, decode: Decoder, data: bytes) -> list[Any] | None:
        try:
            items = decode.decode(b"[" + data + b"]")
            return items if _is_plain(data, lambda: decode.members(items)) else None
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
            return None

    def _exact(self, decode: Decoder, data: bytes, commas: "np.ndarray[Any, Any]") -> Slab:
        items = self._try(decode, data)
        if items is not None:
            return Slab(items, [], data)
        cuts = [-1, *commas.tolist(), len(data)]
        texts = [data[a + 1 : b].strip() for a, b in pairwise(cuts)]
        if not all(texts):
            self._fail("a record is missing between two commas")
        return Slab(None, texts, data)

    def _looks_like_lines(self) -> bool:
        """Whether the first line is a whole JSON object and another one follows."""
        line, newline, rest = self._buf[self._pos :].partition(b"\n")
        if not newline or not rest.lstrip().startswith(b"{"):
            return False
        try:
            return isinstance(msgspec.json.decode(line), dict)
        except (msgspec.DecodeError, RecursionError):
            return False

    def _lines(self, decode: Decoder) -> Iterator[Slab]:
        while True:
            end = self._buf.rfind(b"\n", self._pos) + 1 if not self._eof else len(self._buf)
            if end <= self._pos:
                if self._eof:
                    return
                self._check_open()
                self._fill(max(1, min(len(self._buf) - self._pos, _STEP)))
                continue
            texts = [line for line in self._buf[self._pos : end].split(b"\n") if line and not line.isspace()]
            if end - self._pos > _STEP:
                self._base, self._buf, self._pos, end = self._base + end, self._buf[end:], 0, 0
                yield from self._long_lines(decode, texts)
            elif texts:
                data = b",".join(texts)
                items = self._try(decode, data)
                yield Slab(items, texts, data) if items is None or len(items) == len(texts) else Slab(None, texts, data)
            self._pos = end

    def _long_lines(self, decode: Decoder, texts: list[bytes]) -> Iterator[Slab]:
        """Lines of which one is long, each for itself."""
        for text in texts:
            if len(text) > self._limit:
                refuse_record(self._source, self._seen + 1, self._limit)
            if len(text) > _STEP:
                self._check_decoded(text)
            items = self._try(decode, text)
            yield Slab(items, [text], text) if items is None or len(items) == 1 else Slab(None, [text], text)

    # -- refusals

    def _fail(self, why: str) -> NoReturn:
        self.fail_at(self._base + self._pos, why)

    def _fail_at_end(self) -> NoReturn:
        # 20,000 open brackets and a truncated file look alike from here; the depth tells them apart
        if _deepest(self._buf[self._pos :]) > _MAX_DEPTH:
            self._refuse_depth()
        self._cut("it is inside the array of records")

    def _cut(self, why: str) -> NoReturn:
        offset = self._base + len(self._buf)
        raise Refused.cut(self._source, f"the document ends at byte {offset:,}, where {why}", offset=offset)

    def fail_at(self, offset: int, why: str) -> NoReturn:
        """Refuse the document for a syntax error at a byte offset."""
        raise Refused(
            "json.syntax",
            f"Source {self._source} is not valid JSON at byte {offset}: {why}.",
            expected="one complete JSON document",
            remedy="The capture may be truncated; fetch it again, and report it upstream if it stays broken.",
            source_id=self._source,
            offset=offset,
        )

    def fail_record(self, text: bytes, place: int, why: str) -> NoReturn:
        """Refuse the document for a record that is not JSON at all, `place` bytes into its text."""
        if self._eof and self._buf.endswith(text):  # the last line, and nothing behind it
            self._cut("a record is not closed")
        self.fail_at(self._base + max(self._buf.find(text, self._pos), self._pos) + place, why)

    def _refuse_depth(self) -> NoReturn:
        refuse_depth(self._source)

    def _refuse_no_array(self) -> NoReturn:
        where = ".".join(self._path) if self._path else self._only or "an array of objects"
        raise Refused(
            "json.records" if self._only is None else "geojson.features",
            f"Source {self._source} holds no array of records at {where}.",
            expected="a JSON array, an object with one array of objects, or one object per line"
            if self._only is None
            else "a FeatureCollection",
            remedy="Look at the captured bytes (it may be an error message); name the array in `source.records` if it is nested.",
            source_id=self._source,
        )


def refuse_depth(source_id: str) -> NoReturn:
    """Refuse a document that nests deeper than any data does."""
    raise Refused(
        "json.depth",
        f"Source {source_id} nests arrays or objects too deeply to be data.",
        expected=f"at most {_MAX_DEPTH} levels",
        remedy="Report it upstream; such a document is usually an attack or a bug.",
        source_id=source_id,
    )


class Twice(Exception):
    """A member that is there twice; which of them is meant nobody can know."""


def decode_once(text: bytes) -> Any:
    """A JSON value in which no object has a member twice. Raises `Twice` with the name of one, and what msgspec raises."""
    value = msgspec.json.decode(text)
    if not _is_plain(text, lambda: count_members(value)) and (name := named_twice(text)) is not None:
        raise Twice(name)
    return value


def count_members(value: Any) -> int:
    """How many members the objects in a decoded value have; some that stand behind a number in a list may be left out."""
    count, level = 0, [value]
    while level:
        objects = [v for v in level if type(v) is dict]
        count += sum(map(len, objects))
        lists = [v for v in level if type(v) is list and v and (type(v[0]) is dict or type(v[0]) is list)]  # else the numbers of a position
        level = [v for held in chain(map(dict.values, objects), lists) for v in held if type(v) is dict or type(v) is list]
    return count


def _is_plain(text: bytes, members: Callable[[], int]) -> bool:
    """Whether no object in `text` has a member twice, given how many members were decoded of it, or fewer.

    A name stands before a colon with a quote or a blank between them: there are at most as many as such colons, and at least as many as
    were decoded. Where both agree there is nothing left to be twice. Colons in strings make the first number larger, members that
    nobody wanted the second smaller; then both are counted exactly.
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
    """The same for a document without some of its values, which follow each other in it and are looked at on their own."""
    parts, at = [], 0
    for item in items:
        here = text.find(item, at)
        if here >= 0:
            parts.append(text[at:here])
            at = here + len(item)
    return named_twice(b"0".join([*parts, text[at:]]))


def _once(pairs: list[tuple[str, Any]]) -> None:
    names = {name for name, _ in pairs}
    if len(names) < len(pairs):
        raise Twice(next(name for i, (name, _) in enumerate(pairs) if name in {n for n, _ in pairs[:i]}))


def _skip_comma(buf: bytes, at: int) -> int:
    match = _BOUNDARY.match(buf, at - 1)
    assert match is not None
    return len(match.group(1))


def _structure(text: bytes, start: int = 0) -> tuple["np.ndarray[Any, Any]", int]:
    """Positions, from `start` on, of the commas between records, and of the bracket that closes their array (-1 when it is further on)."""
    found, before = [np.empty(0, np.int64)], 0
    for at, chars, outside in _outside_strings(text, start):
        depth = before + np.cumsum(_DEPTH[chars] * outside, dtype=np.int32)
        closed = np.flatnonzero(depth < 0)
        limit = int(closed[0]) if len(closed) else len(chars)
        found.append(at + np.flatnonzero((chars[:limit] == ord(",")) & (depth[:limit] == 0) & outside[:limit]))
        before = int(depth[-1])
        if len(closed):
            return np.concatenate(found), at + limit
    return np.concatenate(found), -1


def _names(text: bytes) -> int:
    """How many members are named, each as often as it is."""
    return sum(int(np.count_nonzero((chars == ord(":")) & outside)) for _, chars, outside in _outside_strings(text))


def _outside_strings(text: bytes, start: int = 0) -> Iterator[tuple[int, "np.ndarray[Any, Any]", "np.ndarray[Any, Any]"]]:
    """Some characters at a time, where they begin from `start` on, and which of them stand in no string."""
    at, quotes = start, 0
    while at < len(text):
        piece = text[at : at + _WINDOW]
        if (len(piece) - len(piece.rstrip(b"\\"))) % 2:  # what a backslash escapes stands beside it
            piece = text[at : at + _WINDOW + 1]
        chars = np.frombuffer(_ESCAPE.sub(b"__", piece) if b"\\" in piece else piece, np.uint8)
        seen = np.cumsum(chars == ord('"'), dtype=np.uint8) + np.uint8(quotes)  # wraps at 256, which keeps the parity
        yield at - start, chars, seen & 1 == 0
        at, quotes = at + len(piece), int(seen[-1]) & 1


def _deepest(text: bytes) -> int:
    deepest = before = 0
    for at in range(0, len(text), _WINDOW):
        depth = before + np.cumsum(_DEPTH[np.frombuffer(text[at : at + _WINDOW], np.uint8)], dtype=np.int32)
        deepest, before = max(deepest, int(depth.max(initial=0))), int(depth[-1])
    return deepest


@lru_cache(maxsize=1)  # several records of a slab are often asked for, each with its neighbours
def _pieces(data: bytes) -> list[bytes]:
    commas, _ = _structure(data)
    cuts = [-1, *commas.tolist(), len(data)]
    return [data[a + 1 : b].strip() for a, b in pairwise(cuts)]
