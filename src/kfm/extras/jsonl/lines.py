"""The file of a ledger in lines: one for each commit, each with a sum that goes on from the line
before.

`{"n": 7, "prev": SUM, "rows": […], "sum": SUM}`: keys in order, the sum is the SHA-256 of every byte
of the line that stands before `,"sum"`. The first line says whose ledger it is and of which format.
"""

import contextlib
import os
import re
from collections.abc import Iterator, Sequence
from hashlib import sha256
from pathlib import Path

import msgspec

from kfm.model import IntegrityError, Json, StepFailed
from kfm.zones.durable import create_durably, replace_durably

__all__ = ["Damaged", "Header", "Lines", "write_lines"]

_SUM = re.compile(rb',"sum":"([0-9a-f]{64})"\}')
_TAIL = 74  # bytes of the sum and what is around it
_CHUNK = 500  # rows in a line of a file that is written at once


class Damaged(IntegrityError):
    """A ledger whose lines do not go on from one another."""

    def __init__(self, path: Path, line: int, why: str) -> None:
        super().__init__(
            f"The store {path.name} is damaged in line {line}: {why}.",
            expected="lines whose sums go on from one another",
            remedy=(
                "Run `kfm reindex`: it sets the file aside and rebuilds the store from the"
                " evidence."
            ),
        )


class Header(msgspec.Struct, frozen=True, kw_only=True):
    """The first line. Field names are its keys, in order."""

    format: int  # of the tables, as the migrations count
    n: int = 0
    prev: str = ""
    size: int = 0  # bytes of rows when the file was last written anew
    store: str = ""  # whose lines these are: a rebuilt store has another


class Read(msgspec.Struct, frozen=True):
    """How far a file was read: bytes, lines, and the sum of the last one."""

    size: int = 0
    lines: int = 0
    sum: str = ""

    def after(self, size: int, found: str) -> "Read":
        return Read(self.size + size, self.lines + 1, found)


class Line(msgspec.Struct, frozen=True):
    """One commit: the rows it left."""

    n: int
    prev: str
    rows: list[Json]


def sealed(document: Header | Line) -> tuple[bytes, str]:
    """A document as a line, and its sum."""
    body = msgspec.json.encode(document, order="sorted")[:-1]
    found = sha256(body).hexdigest()
    return b'%b,"sum":"%b"}\n' % (body, found.encode()), found


def write_lines(path: Path, header: Header, rows: Sequence[Json]) -> None:
    """A whole ledger in the place of what is there."""
    first, before = sealed(header)
    written = [first]
    for number, start in enumerate(range(0, len(rows), _CHUNK), 1):
        line, before = sealed(Line(number, before, list(rows[start : start + _CHUNK])))
        written.append(line)
    replace_durably(path, b"".join(written))


class Lines:
    """An open file, and how far it was read; whoever writes does so in turn."""

    def __init__(self, path: Path, *, writes: bool = True) -> None:
        self.path = path
        self._fd = os.open(path, (os.O_RDWR if writes else os.O_RDONLY) | os.O_CLOEXEC)
        told = os.fstat(self._fd)
        # what tells it from another that takes its name; None: it is to be read again
        self.file: tuple[int, int] | None = (told.st_dev, told.st_ino)
        self.at = Read()
        self._torn = b""  # what stands behind the last whole line
        self._broken = False
        try:
            self.header = self._first()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _first(self) -> Header:
        raw = os.pread(self._fd, 4096, 0)
        line, end, _ = raw.partition(b"\n")
        if not end:
            raise Damaged(self.path, 1, "it does not say what it is")
        header = self._opened(line, Header)
        assert isinstance(header, Header)
        return header

    def _opened(self, line: bytes, kind: type[Header] | type[Line]) -> Header | Line:
        """The document of a line that goes on from the one before."""
        body, number = line[:-_TAIL], self.at.lines + 1
        found = _SUM.fullmatch(line[-_TAIL:])
        if found is None or sha256(body).hexdigest().encode() != found[1]:
            raise Damaged(self.path, number, "its sum does not match")
        try:
            document = msgspec.json.decode(line, type=kind)
        except msgspec.DecodeError as error:
            raise Damaged(self.path, number, str(error)) from error
        if (document.n, document.prev) != (self.at.lines, self.at.sum):
            raise Damaged(self.path, number, "it does not go on from the line before")
        self.at = self.at.after(len(line) + 1, found[1].decode())
        return document

    def read(self) -> Iterator[list[Json]]:
        """The rows of each line that came since; what is not a whole line yet stays unread."""
        *whole, self._torn = self._rest().split(b"\n")
        for number, raw in enumerate(whole, 1):
            # a disk that lost its power may have kept the length of a line and not what it says
            if number == len(whole) and not self._torn and b"\0" in raw:
                self._torn = raw + b"\n"
                return
            line = self._opened(raw, Line)
            assert isinstance(line, Line)
            yield line.rows

    def _rest(self) -> bytes:
        pieces, at = [], self.at.size
        while piece := os.pread(self._fd, 1 << 24, at):
            pieces.append(piece)
            at += len(piece)
        return b"".join(pieces)

    def cut_tail(self, aside: Path) -> None:
        """Drop a line whose writer died before it was whole; its bytes are kept in `aside`. In
        turn, when everything was read.
        """
        if not self._torn:
            return
        with contextlib.suppress(FileExistsError):
            create_durably(aside / f"line-{sha256(self._torn).hexdigest()[:16]}", self._torn)
        os.ftruncate(self._fd, self.at.size)
        os.fsync(self._fd)
        self._torn = b""

    def append(self, rows: list[Json], durable: bool) -> None:
        """One line more, whole or not at all."""
        if self._broken:
            raise _unusable(self.path, "its disk failed before")
        line, found = sealed(Line(self.at.lines, self.at.sum, rows))
        try:
            self._write(line)
            if durable:
                os.fsync(self._fd)
        except OSError as error:
            self._broken = not self._cut_back()
            raise _unusable(self.path, error.strerror or str(error)) from error
        self.at = self.at.after(len(line), found)

    def _write(self, line: bytes) -> None:
        done = 0
        while done < len(line):
            done += os.pwrite(self._fd, line[done:], self.at.size + done)

    def _cut_back(self) -> bool:
        """Whether the file ends again where it did."""
        try:
            os.ftruncate(self._fd, self.at.size)
            os.fsync(self._fd)
        except OSError:
            return False
        return True


def _unusable(path: Path, why: str) -> StepFailed:
    return StepFailed(
        f"The store {path.name} could not be used: {why}.",
        expected="a writable disk with space left",
        remedy="Free space or make it writable, then run again: nothing is lost.",
    )
