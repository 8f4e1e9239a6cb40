"""An answer on its way to disk: strict framing, bounded heads, every wait under a deadline, hashed
while it is written.

`http.client` would be the obvious choice, but importing it costs `ssl` and the e-mail parser (20
ms, more than the rest of an unchanged run), it reads a dripping head without any total limit, and
it hides where a body was cut off.
"""

import hashlib
import os
import re
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, NoReturn

import msgspec

from kfm.fetch.retry import Pace, Transient
from kfm.model import StepFailed, UpstreamUnavailable

__all__ = ["Head", "Partial", "Wire", "network_reason", "read_body", "read_head"]


_FLAGS = (
    os.O_RDWR | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)
)


class Partial:
    """The bytes received so far, beside `into`.

    No file is made before the first `restart`. Errors of the disk are `StepFailed`: asking upstream
    again cannot cure them.
    """

    def __init__(self, into: Path) -> None:
        self.size = 0
        self._into = into
        self._path = into.with_name(f".{into.name[:100]}.{os.getpid()}-{os.urandom(6).hex()}.part")
        self._file: BinaryIO | None = None
        self._hash = hashlib.sha256()

    @property
    def digest(self) -> str:
        return f"sha256:{self._hash.hexdigest()}"

    def digest_by(self, algorithm: str, size: int | None = None) -> str:
        """The hex digits of another digest of what is here, or of its first `size` bytes; reads it
        again.
        """
        assert self._file is not None
        if algorithm == "sha256" and size is None:
            return self._hash.hexdigest()
        found, left = (
            hashlib.new(algorithm, usedforsecurity=False),
            (self.size if size is None else size),
        )
        with self._disk():
            self._file.seek(0)
            while piece := self._file.read(min(left, 1 << 20)):
                found.update(piece)
                left -= len(piece)
            self._file.seek(0, os.SEEK_END)
        return found.hexdigest()

    def restart(self) -> None:
        """Begin with no bytes."""
        with self._disk():
            if self._file is None:
                self._file = os.fdopen(os.open(self._path, _FLAGS, 0o666), "r+b", buffering=1 << 20)
            self._file.seek(0)
            self._file.truncate()
        self.size, self._hash = 0, hashlib.sha256()

    def write(self, piece: memoryview) -> None:
        assert self._file is not None  # `restart` came first
        with self._disk():
            self._file.write(piece)
        self._hash.update(piece)
        self.size += len(piece)

    def finish(self) -> None:
        """Give the whole body its name. Not synced: the caller makes it durable."""
        assert self._file is not None
        with self._disk():
            self._file.close()
            os.replace(self._path, self._into)
        self._file = None

    def discard(self) -> None:
        """Leave nothing behind; after `finish` there is nothing to do."""
        if self._file is None:
            return
        file, self._file = self._file, None
        try:
            file.close()
        except OSError:
            # a full disk shows once more while the buffer is flushed; the bytes are unwanted now
            pass
        self._path.unlink(missing_ok=True)

    @contextmanager
    def _disk(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise StepFailed(
                f"The body could not be written beside {self._into.name}:"
                f" {error.strerror or type(error).__name__}.",
                expected="a writable folder with room",
                remedy="Make room or correct the permissions, then run again.",
            ) from error


CHUNK = 1 << 20
_MAX_LINE = 16 * 1024
_MAX_LINES = 200
_STATUS = re.compile(rb"HTTP/1\.[01] ([1-5][0-9]{2})(?: [^\r\n\x00]*)?")
_FIELD = re.compile(rb"([A-Za-z0-9!#$%&'*+.^_`|~-]+):[ \t]*([^\x00-\x08\x0a-\x1f\x7f]*)")
_CHUNK_SIZE = rb"([0-9A-Fa-f]{1,15})[ \t]*(?:;[^\r\n]*)?"
_LENGTH = re.compile(r"[0-9]{1,18}")


class Wire:
    """One connection, read under the limits of `pace`."""

    def __init__(self, sock: socket.socket, pace: Pace, read_timeout: float) -> None:
        self._sock, self._pace, self._read_timeout = sock, pace, read_timeout
        self._buffer = bytearray()
        self._timeout: float | None = None
        pace.restart()

    def close(self) -> None:
        self._sock.close()

    def send(self, data: bytes) -> None:
        self._arm()
        try:
            self._sock.sendall(data)
        except OSError as error:
            self._failed(error)

    def line(self) -> bytes:
        """The next line without its line break."""
        while (end := self._buffer.find(b"\n")) < 0:
            if len(self._buffer) > _MAX_LINE:
                raise Transient("the answer has an endless line")
            self._fill()
        line = bytes(self._buffer[:end])
        del self._buffer[: end + 1]
        return line.removesuffix(b"\r")

    def read_into(self, view: memoryview) -> int:
        """Put up to `len(view)` bytes into `view`; 0 when the connection is closed."""
        if self._buffer:
            size = min(len(view), len(self._buffer))
            view[:size] = self._buffer[:size]
            del self._buffer[:size]
            return size
        return self._receive(view)

    def has_more(self) -> bool:
        """Whether bytes are at hand that nobody asked for; the end of the connection is none."""
        if self._buffer:
            return True
        pending = getattr(self._sock, "pending", None)  # TLS holds what it has opened
        if pending is not None:
            return bool(pending())
        try:
            self._sock.settimeout(0)
            return bool(self._sock.recv(1, socket.MSG_PEEK))
        except OSError:
            return False
        finally:
            self._timeout = None

    def _fill(self) -> None:
        scratch = memoryview(bytearray(_MAX_LINE))
        size = self._receive(scratch)
        if size == 0:
            raise Transient("the connection was closed in the middle of the answer")
        self._buffer += scratch[:size]

    def _receive(self, view: memoryview) -> int:
        self._arm()
        try:
            size = self._sock.recv_into(view)
        except OSError as error:
            self._failed(error)
        self._pace.count(size)
        return size

    def _arm(self) -> None:
        timeout = min(self._read_timeout, self._pace.left())
        # setting it is a system call, and most reads come long before the deadline
        if timeout != self._timeout:
            self._sock.settimeout(timeout)
            self._timeout = timeout

    def _failed(self, error: OSError) -> NoReturn:
        self._pace.left()  # a time-out at the deadline is the deadline's
        raise Transient(network_reason(error)) from error


class Head(msgspec.Struct, frozen=True):
    """Status and header fields of an answer."""

    status: int
    fields: tuple[tuple[str, str], ...]

    def get(self, name: str) -> str | None:
        """The value of a field; repeated fields are joined, so that what must be single no longer
        parses.
        """
        values = [value for field, value in self.fields if field == name]
        return ", ".join(values) if values else None

    @property
    def chunked(self) -> bool:
        return self.get("transfer-encoding") is not None

    @property
    def length(self) -> int | None:
        """What `Content-Length` says; None when it is missing."""
        value = self.get("content-length")
        return None if value is None else int(value.split(",")[0])


def network_reason(error: OSError) -> str:
    """A network error in a few words."""
    if isinstance(error, TimeoutError):
        return "time-out"
    if isinstance(error, ConnectionRefusedError):
        return "connection refused"
    if isinstance(error, ConnectionError):
        return "connection reset"
    return f"network error ({type(error).__name__})"


def read_head(wire: Wire) -> Head:
    """The head of the final answer; interim ones (1xx) are skipped."""
    for _ in range(8):
        status = _STATUS.fullmatch(wire.line())
        if status is None:
            raise Transient("the answer is not HTTP/1.1")
        head = Head(int(status[1]), tuple(_read_fields(wire)))
        if head.status >= 200:
            return _checked(head)
        if head.status == 101:
            break
    raise Transient("the answer has too many or unexpected interim heads")


def read_body(wire: Wire, head: Head) -> Iterator[memoryview]:
    """The body in pieces of at most 1 MiB; a piece is valid until the next one.

    Raises `Transient` when it ends early. Without a stated length it ends with the connection,
    which proves nothing.
    """
    buffer = memoryview(bytearray(CHUNK))
    if head.chunked:
        return _chunked_body(wire, buffer)
    if head.length is not None:
        return _sized_whole(wire, buffer, head.length)
    return _until_closed(wire, buffer)


def _read_fields(wire: Wire) -> Iterator[tuple[str, str]]:
    for _ in range(_MAX_LINES):
        line = wire.line()
        if not line:
            return
        # refuses folded lines too: their meaning depends on who reads them
        field = _FIELD.fullmatch(line)
        if field is None:
            raise Transient("the answer has a malformed header")
        yield field[1].decode("ascii").lower(), field[2].decode("latin-1").rstrip(" \t")
    raise Transient("the answer has too many headers")


def _checked(head: Head) -> Head:
    """Refuse framing that two readers could understand differently."""
    coding, length = head.get("transfer-encoding"), head.get("content-length")
    if coding is not None and coding.lower() != "chunked":
        raise UpstreamUnavailable(
            "Upstream answered with an unexpected encoding of the transfer.",
            expected="chunked or none",
            remedy="Tell the upstream: it was asked for the identity encoding.",
        )
    if length is not None:
        stated = {part.strip() for part in length.split(",")}
        if coding is not None or len(stated) > 1 or not _LENGTH.fullmatch(next(iter(stated))):
            raise Transient("the answer states its length in two ways or wrongly")
    return head


def _sized(wire: Wire, buffer: memoryview, length: int) -> Iterator[memoryview]:
    left = length
    while left:
        size = wire.read_into(buffer[: min(left, CHUNK)])
        if size == 0:
            raise Transient(f"the body was cut off, {left} of {length} bytes missing")
        left -= size
        yield buffer[:size]


def _sized_whole(wire: Wire, buffer: memoryview, length: int) -> Iterator[memoryview]:
    """A body of a stated length that is the whole answer: more at hand means that the length is
    wrong, and the body perhaps cut.
    """
    yield from _sized(wire, buffer, length)
    if wire.has_more():
        raise Transient("upstream sent more than it stated")


def _chunked_body(wire: Wire, buffer: memoryview) -> Iterator[memoryview]:
    while size := _chunk_size(wire):
        yield from _sized(wire, buffer, size)
        if wire.line():
            raise Transient("the body has a malformed chunk")
    # trailers carry nothing we use, but the end is only proven behind them
    for _ in _read_fields(wire):
        pass


def _chunk_size(wire: Wire) -> int:
    match = re.fullmatch(_CHUNK_SIZE, wire.line())
    if match is None:
        raise Transient("the body has a malformed chunk")
    return int(match[1], 16)


def _until_closed(wire: Wire, buffer: memoryview) -> Iterator[memoryview]:
    while size := wire.read_into(buffer):
        yield buffer[:size]
