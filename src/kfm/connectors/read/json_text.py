"""The text of a JSON document of any size: read on as it is asked for, and let go once it is passed
over.
"""

import re
from collections.abc import Iterator
from functools import lru_cache
from itertools import pairwise
from typing import NoReturn

import msgspec
import numpy as np
import numpy.typing as npt

from kfm.connectors.base import DECODED, Refused, refuse_record

__all__ = ["KEEP", "JsonText", "outside_strings", "pieces", "refuse_depth", "structure"]

KEEP = 1 << 20  # members beside the records are validated and kept up to this size

_STRING = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)
_MARK = re.compile(rb'["\[\]{}]')
_SCALAR = re.compile(rb"[^\s,\]}]+")
_BLANK = re.compile(rb"[ \t\r\n]*")
_ESCAPE = re.compile(rb"\\.", re.DOTALL)
_MAX_DEPTH = 1000
_LARGE = b'"(too large to be kept)"'
_WINDOW = 1 << 20  # bytes looked at at once
_WEIGHT = np.zeros(256, np.uint8)  # bytes that a value takes in memory, by what stands before it
_WEIGHT[[ord(","), ord("["), ord("{")]] = 32, 64, 200
_DEPTH = np.zeros(256, np.int8)
_DEPTH[[ord("{"), ord("[")]] = 1
_DEPTH[[ord("}"), ord("]")]] = -1


class JsonText:
    """What is held of the text of one document, and how much of it was passed over."""

    def __init__(self, blocks: Iterator[bytes], source_id: str, limit: int) -> None:
        self._blocks, self._source = blocks, source_id
        self.limit, self.seen = limit, 0  # bytes of a record; records handed on
        self.buf, self.pos, self.base, self.eof = b"", 0, 0, False

    def fill(self, least: int = 1) -> bool:
        """Read on; consumed text is let go. False at the end of the file."""
        parts, size = [self.buf[self.pos :]], 0
        self.base, self.buf, self.pos = self.base + self.pos, b"", 0
        while size < least and not self.eof:
            block = next(self._blocks, None)
            if block is None:
                self.eof = True
            else:
                parts.append(block)
                size += len(block)
        self.buf = b"".join(parts)
        return size > 0

    def peek(self) -> bytes:
        """The next character that is no blank; nothing at the end of the file."""
        while True:
            self.pos = _BLANK.match(self.buf, self.pos).end()  # type: ignore[union-attr]
            if self.pos < len(self.buf):
                return self.buf[self.pos : self.pos + 1]
            if not self.fill():
                return b""

    def expect(self, *wanted: bytes) -> bytes:
        """Pass over one of these characters; which of them it was."""
        got = self.peek()
        if not got:
            self.cut(f"{' or '.join(w.decode() for w in wanted)} should stand")
        if got not in wanted:
            self.fail(f"expected {' or '.join(w.decode() for w in wanted)}")
        self.pos += 1
        return got

    def key(self) -> str:
        """Pass over the name of a member."""
        if self.peek() != b'"':
            self.fail("expected a member name")
        return str(self._decoded(self._string()))

    def _string(self) -> bytes:
        """The string token at hand; `fill` keeps what is not consumed, so its start stays in the
        buffer.
        """
        while (match := _STRING.match(self.buf, self.pos)) is None:
            if not self.fill(len(self.buf) - self.pos):
                self.cut("a string is not closed")
        self.pos = match.end()
        return match.group()

    def value(self) -> bytes:
        """Pass over one value; its text, checked when it is small, or else what stands for it."""
        head = self.peek()
        if head == b'"':
            text = self._string()
        elif head in (b"{", b"["):
            text = self._container()
        else:
            text = self._scalar()
        if text:
            self._decoded(text)
        return text or _LARGE

    def _scalar(self) -> bytes:
        while (
            (match := _SCALAR.match(self.buf, self.pos)) is not None
            and match.end() == len(self.buf)
            and self.fill()
        ):
            self.check_open()
        if match is None:
            self.fail("expected a value")
        self.pos = match.end()
        return match.group()

    def _container(self) -> bytes:
        """Pass over an object or array of any size without recursion; its text, or nothing when it
        is large.
        """
        kept: list[bytes] = []
        size = depth = 0
        while True:
            match = _MARK.search(self.buf, self.pos)
            end = match.start() if match else len(self.buf)
            piece, self.pos = self.buf[self.pos : end], end
            if match is None:
                if not self.fill():
                    self.cut("it is not closed")
            elif match.group() == b'"':
                piece += self._string()
            else:
                piece, self.pos = piece + match.group(), end + 1
                depth += 1 if match.group() in b"{[" else -1
            size += len(piece)
            if size <= KEEP:
                kept.append(piece)
            if depth > _MAX_DEPTH:
                refuse_depth(self._source)
            if depth == 0:
                return b"".join(kept) if size <= KEEP else b""

    def _decoded(self, text: bytes) -> object:
        try:
            return msgspec.json.decode(text)
        except RecursionError:
            refuse_depth(self._source)
        except msgspec.DecodeError as error:
            self.fail(str(error))

    def inside(self) -> bytes:
        """What stands behind the opening bracket at hand, which is not consumed."""
        while True:
            after = _BLANK.match(self.buf, self.pos + 1).end()  # type: ignore[union-attr]
            if after < len(self.buf):
                return self.buf[after : after + 1]
            if not self.fill():
                self.cut("it is not closed")

    # -- refusals

    def check_open(self) -> None:
        """Refuse a record, or a value beside the records, that has not ended within the limit."""
        if len(self.buf) - self.pos > self.limit:
            refuse_record(self._source, self.seen + 1, self.limit)

    def check_decoded(self, data: bytes) -> None:
        """A long record may become many times as long: a position of nine characters takes 128
        bytes.
        """
        cost = len(data) + sum(
            int(np.sum(_WEIGHT[chars] * outside, dtype=np.int64))
            for _, chars, outside in outside_strings(data)
        )
        if cost > DECODED * self.limit:
            refuse_record(self._source, self.seen + 1, self.limit, decoded=cost)

    def fail(self, why: str) -> NoReturn:
        """Refuse the document for a syntax error here."""
        self.fail_at(self.base + self.pos, why)

    def fail_at_end(self) -> NoReturn:
        """Refuse a document that ends inside a record."""
        # 20,000 open brackets and a truncated file look alike from here; the depth tells them apart
        if _deepest(self.buf[self.pos :]) > _MAX_DEPTH:
            refuse_depth(self._source)
        self.cut("it is inside the array of records")

    def cut(self, why: str) -> NoReturn:
        """Refuse a document that ends too soon."""
        offset = self.base + len(self.buf)
        raise Refused.cut(
            self._source, f"the document ends at byte {offset:,}, where {why}", offset=offset
        )

    def fail_at(self, offset: int, why: str) -> NoReturn:
        """Refuse the document for a syntax error at a byte offset."""
        raise Refused(
            "json.syntax",
            f"Source {self._source} is not valid JSON at byte {offset}: {why}.",
            expected="one complete JSON document",
            remedy=(
                "The capture may be truncated; fetch it again, and report it upstream if it stays"
                " broken."
            ),
            source_id=self._source,
            offset=offset,
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


def structure(text: bytes, start: int = 0) -> tuple[npt.NDArray[np.int64], int]:
    """Positions, from `start` on, of the commas between records, and of the bracket that closes
    their array (-1 when it is further on).
    """
    found, before = [np.empty(0, np.int64)], 0
    for at, chars, outside in outside_strings(text, start):
        depth = before + np.cumsum(_DEPTH[chars] * outside, dtype=np.int32)
        closed = np.flatnonzero(depth < 0)
        limit = int(closed[0]) if len(closed) else len(chars)
        found.append(
            at
            + np.flatnonzero((chars[:limit] == ord(",")) & (depth[:limit] == 0) & outside[:limit])
        )
        before = int(depth[-1])
        if len(closed):
            return np.concatenate(found), at + limit
    return np.concatenate(found), -1


def outside_strings(
    text: bytes, start: int = 0
) -> Iterator[tuple[int, npt.NDArray[np.uint8], npt.NDArray[np.bool_]]]:
    """Some characters at a time, where they begin from `start` on, and which of them stand in no
    string.
    """
    at, quotes = start, 0
    while at < len(text):
        piece = text[at : at + _WINDOW]
        if (len(piece) - len(piece.rstrip(b"\\"))) % 2:  # what a backslash escapes stands beside it
            piece = text[at : at + _WINDOW + 1]
        chars = np.frombuffer(_ESCAPE.sub(b"__", piece) if b"\\" in piece else piece, np.uint8)
        # wraps at 256, which keeps the parity
        seen = np.cumsum(chars == ord('"'), dtype=np.uint8) + np.uint8(quotes)
        yield at - start, chars, seen & 1 == 0
        at, quotes = at + len(piece), int(seen[-1]) & 1


def _deepest(text: bytes) -> int:
    deepest = before = 0
    for at in range(0, len(text), _WINDOW):
        depth = before + np.cumsum(
            _DEPTH[np.frombuffer(text[at : at + _WINDOW], np.uint8)], dtype=np.int32
        )
        deepest, before = max(deepest, int(depth.max(initial=0))), int(depth[-1])
    return deepest


@lru_cache(maxsize=1)  # several records of a slab are often asked for, each with its neighbours
def pieces(data: bytes) -> list[bytes]:
    """The text of each value of an array without its brackets."""
    commas, _ = structure(data)
    cuts = [-1, *commas.tolist(), len(data)]
    return [data[a + 1 : b].strip() for a, b in pairwise(cuts)]
