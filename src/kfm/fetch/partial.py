"""A body on its way to disk: hashed while it is written, under a name of its own until it is whole."""

import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from kfm.model.errors import StepFailed

__all__ = ["Partial"]

_FLAGS = os.O_RDWR | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)


class Partial:
    """The bytes received so far, beside `into`.

    No file is made before the first `restart`. Errors of the disk are `StepFailed`: asking upstream again cannot cure them.
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
        """The hex digits of another digest of what is here, or of its first `size` bytes; reads it again."""
        assert self._file is not None
        if algorithm == "sha256" and size is None:
            return self._hash.hexdigest()
        found, left = hashlib.new(algorithm, usedforsecurity=False), self.size if size is None else size
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
        except OSError:  # a full disk shows once more while the buffer is flushed; the bytes are unwanted now
            pass
        self._path.unlink(missing_ok=True)

    @contextmanager
    def _disk(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise StepFailed(
                f"The body could not be written beside {self._into.name}: {error.strerror or type(error).__name__}.",
                expected="a writable folder with room",
                remedy="Make room or correct the permissions, then run again.",
            ) from error
