"""Cuts a JSON document of any size into blocks of whole records, without ever holding the document.

A block is first cut where a record seems to end; that the cut is right is proven by the block
decoding as a JSON array. Only when it does not is the text scanned exactly, so `},{` inside a
string or a nested array costs time but never a wrong record.

A member that a record has twice leaves no trace once it is decoded: every block is counted
(`members.py`).
"""

import re
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any, NamedTuple, NoReturn

import msgspec
import numpy as np
import numpy.typing as npt

from kfm.connectors.base import MOST_COLUMNS, RECORD_BYTES, Refused, refuse_record
from kfm.connectors.read.json_text import KEEP, JsonText, pieces, structure
from kfm.connectors.read.repeated_members import Twice, decode_once, is_plain

__all__ = ["Decoder", "Items", "Records", "Slab"]

_BOUNDARY = re.compile(rb"\}(\s*,\s*)\{")
_TOP = ("", "")  # the path ".": every top-level value is a record
_STEP = 8 << 20  # what is longer is one record, and looked at alone


# records as a decoder makes them: objects, or structs of their shape
Items = list[Any]


class Decoder(NamedTuple):
    """How the text of a JSON array becomes a list of items, and how many members these stand for:
    all of them, or fewer.
    """

    decode: Callable[[bytes], Items]  # raises what msgspec raises
    members: Callable[[Items], int]


class Slab(NamedTuple):
    """Some consecutive records: decoded, or (where the block did not decode) as one text each."""

    items: Items | None
    texts: list[bytes]
    data: bytes

    def text(self, index: int) -> bytes:
        """The raw text of one record; exact and slow, for the few that are shown to people."""
        return self.texts[index] if self.texts else pieces(self.data)[index]


class Records:
    """The records of one document: a bare array, the array at `path`, the only array of objects, or
    one value per line.
    """

    def __init__(
        self,
        blocks: Iterator[bytes],
        source_id: str,
        path: tuple[str, ...] | None,
        *,
        only: str | None = None,
        limit: int = RECORD_BYTES,
    ) -> None:
        self._text, self._source, self._path, self._only = (
            JsonText(blocks, source_id, limit),
            source_id,
            path,
            only,
        )
        self._guessing = True
        self._found = self._empty = False
        # members beside the records, as text; large ones are not kept, but seen
        self.members: dict[str, bytes] = {}

    def member(self, name: str) -> object:
        """A member beside the records, decoded; None when there is none."""
        try:
            return decode_once(self.members.get(name, b"null"))
        except Twice as twice:
            self._text.fail(f"in {name[:80]!r} the member {str(twice)[:80]!r} is there twice")

    def split(self, decode: Decoder) -> Iterator[Slab]:
        """Slabs in source order; `decode` turns the text of a JSON array into a list."""
        for slab in self._split(decode):
            if len(slab.data) > self._text.limit:
                self._check_each(slab)
            yield slab
            self._text.seen += len(slab.texts if slab.items is None else slab.items)

    def _check_each(self, slab: Slab) -> None:
        seen, limit = self._text.seen, self._text.limit
        for i, text in enumerate(slab.texts or pieces(slab.data), 1):
            if len(text) > limit:
                refuse_record(self._source, seen + i, limit)

    def _split(self, decode: Decoder) -> Iterator[Slab]:
        """Slabs in source order."""
        text = self._text
        head = text.peek()
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
            text.fail("the document does not begin with [ or {")
        if text.peek():
            text.fail("there is text after the end of the document")
        if not self._found and not self._empty:
            self._refuse_no_array()

    def _object(self, path: tuple[str, ...] | None, decode: Decoder) -> Iterator[Slab]:
        text = self._text
        text.expect(b"{")
        if text.peek() == b"}":
            text.pos += 1
            return
        names: set[str] = set()
        while True:
            key = text.key()
            if key in names or len(names) >= MOST_COLUMNS:
                text.fail(
                    f"the member {key[:80]!r} is there twice"
                    if key in names
                    else f"more than {len(names):,} members are no list"
                )
            names.add(key)
            text.expect(b":")
            if self._is_wanted(key, path):
                rest = path[1:] if path else ()
                if rest and text.peek() == b"{":
                    yield from self._object(rest, decode)
                elif not rest and text.peek() == b"[":
                    self._claim_array(key)
                    yield from self._array(decode)
                else:
                    self._refuse_no_array()
            else:
                self.members.setdefault(key, text.value())
            if text.expect(b",", b"}") == b"}":
                return

    def _is_wanted(self, key: str, path: tuple[str, ...] | None) -> bool:
        if path:
            return key == path[0]
        if self._only is not None:
            return key == self._only
        if self._text.peek() != b"[":
            return False
        inside = self._text.inside()
        self._empty = self._empty or inside == b"]"  # it may be all there is
        return inside == b"{"

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

    def _array(self, decode: Decoder) -> Iterator[Slab]:
        text = self._text
        text.expect(b"[")
        if text.peek() == b"]":
            text.pos += 1
            return
        while True:
            guess = self._guess() if self._guessing else 0
            if guess - text.pos > _STEP:
                guess = 0  # it begins with a long record, which is looked at alone
            if guess:
                data = text.buf[text.pos : guess]
                items = self._try(decode, data)
                if items is not None:
                    yield Slab(items, [], data)
                    text.pos = guess + _skip_comma(text.buf, guess)
                    continue
            commas, close = structure(text.buf, text.pos)
            if guess and guess - text.pos not in commas:
                # this document nests `},{`: guessing would fail at every block
                self._guessing = False
            if close < 0 and not len(commas):
                text.check_open()
                if not text.fill(max(1, min(len(text.buf) - text.pos, _STEP))):
                    text.fail_at_end()
                continue
            end = close if close >= 0 else int(commas[-1])
            if end > _STEP:
                if len(commas):
                    end, close = int(commas[0]), -1
                if end > text.limit:
                    refuse_record(self._source, text.seen + 1, text.limit)
                yield from self._long(decode, end)
                if close >= 0:
                    return
                continue
            if close >= 0 and text.buf[text.pos + close] != ord("]"):
                text.fail_at(text.base + text.pos + close, "expected ]")
            yield self._exact(decode, text.buf[text.pos : text.pos + end], commas[commas < end])
            text.pos += end + 1
            if close >= 0:
                return

    def _long(self, decode: Decoder, end: int) -> Iterator[Slab]:
        """One long record; its text is held once, whatever follows."""
        text = self._text
        data, stop = text.buf[text.pos : text.pos + end], text.buf[text.pos + end]
        if stop not in b",]":
            text.fail_at(text.base + text.pos + end, "expected ]")
        text.base += text.pos + end + 1
        text.buf, text.pos = text.buf[text.pos + end + 1 :], 0
        text.check_decoded(data)
        yield self._exact(decode, data, np.empty(0, np.int64))

    def _guess(self) -> int:
        """Where, in the buffer, the last record that is certainly not the last of the array seems
        to end; 0 when there is none.
        """
        text = self._text
        if len(text.buf) - text.pos < KEEP:
            text.fill()
        window, size = 1 << 15, len(text.buf)
        while True:
            start = max(text.pos, size - window)
            found = [m.start() for m in _BOUNDARY.finditer(text.buf, start)]
            if found:
                return found[-1] + 1
            if start == text.pos:
                return 0
            window *= 8

    def _try(self, decode: Decoder, data: bytes) -> Items | None:
        try:
            items = decode.decode(b"[" + data + b"]")
            return items if is_plain(data, lambda: decode.members(items)) else None
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
            return None

    def _exact(self, decode: Decoder, data: bytes, commas: npt.NDArray[np.int64]) -> Slab:
        items = self._try(decode, data)
        if items is not None:
            return Slab(items, [], data)
        cuts = [-1, *commas.tolist(), len(data)]
        texts = [data[a + 1 : b].strip() for a, b in pairwise(cuts)]
        if not all(texts):
            self._text.fail("a record is missing between two commas")
        return Slab(None, texts, data)

    def _looks_like_lines(self) -> bool:
        """Whether the first line is a whole JSON object and another one follows."""
        line, newline, rest = self._text.buf[self._text.pos :].partition(b"\n")
        if not newline or not rest.lstrip().startswith(b"{"):
            return False
        try:
            return isinstance(msgspec.json.decode(line), dict)
        except (msgspec.DecodeError, RecursionError):
            return False

    def _lines(self, decode: Decoder) -> Iterator[Slab]:
        text = self._text
        while True:
            end = text.buf.rfind(b"\n", text.pos) + 1 if not text.eof else len(text.buf)
            if end <= text.pos:
                if text.eof:
                    return
                text.check_open()
                text.fill(max(1, min(len(text.buf) - text.pos, _STEP)))
                continue
            texts = [
                line
                for line in text.buf[text.pos : end].split(b"\n")
                if line and not line.isspace()
            ]
            if end - text.pos > _STEP:
                text.base, text.buf, text.pos, end = text.base + end, text.buf[end:], 0, 0
                yield from self._long_lines(decode, texts)
            elif texts:
                data = b",".join(texts)
                items = self._try(decode, data)
                yield (
                    Slab(items, texts, data)
                    if items is None or len(items) == len(texts)
                    else Slab(None, texts, data)
                )
            text.pos = end

    def _long_lines(self, decode: Decoder, texts: list[bytes]) -> Iterator[Slab]:
        """Lines of which one is long, each for itself."""
        for line in texts:
            if len(line) > self._text.limit:
                refuse_record(self._source, self._text.seen + 1, self._text.limit)
            if len(line) > _STEP:
                self._text.check_decoded(line)
            items = self._try(decode, line)
            yield (
                Slab(items, [line], line)
                if items is None or len(items) == 1
                else Slab(None, [line], line)
            )

    def fail_record(self, record: bytes, place: int, why: str) -> NoReturn:
        """Refuse the document for a record that is not JSON at all, `place` bytes into its text."""
        text = self._text
        if text.eof and text.buf.endswith(record):  # the last line, and nothing behind it
            text.cut("a record is not closed")
        text.fail_at(text.base + max(text.buf.find(record, text.pos), text.pos) + place, why)

    def _refuse_no_array(self) -> NoReturn:
        where = ".".join(self._path) if self._path else self._only or "an array of objects"
        raise Refused(
            "json.records" if self._only is None else "geojson.features",
            f"Source {self._source} holds no array of records at {where}.",
            expected=(
                "a JSON array, an object with one array of objects, or one object per line"
                if self._only is None
                else "a FeatureCollection"
            ),
            remedy=(
                "Look at the captured bytes (it may be an error message); name the array in"
                " `source.records` if it is nested."
            ),
            source_id=self._source,
        )


def _skip_comma(buf: bytes, at: int) -> int:
    match = _BOUNDARY.match(buf, at - 1)
    assert match is not None
    return len(match.group(1))
