"""Doorbells of one machine: a worker that rests hangs up a FIFO, whoever puts a job writes a byte
into every one of them.
"""

import contextlib
import errno
import itertools
import os
from pathlib import Path

__all__ = ["Bell", "Bells"]

_numbers = itertools.count()


class Bell:
    """One FIFO, open at both ends so that it never reports an end of file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        new = path.with_name(f".{path.name}")  # who rings looks past it until somebody listens
        new.unlink(missing_ok=True)
        os.mkfifo(new, 0o660)
        self._fd = os.open(new, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        new.replace(path)

    def fileno(self) -> int:
        return self._fd

    def drain(self) -> None:
        """Forget what has rung."""
        with contextlib.suppress(BlockingIOError):
            while os.read(self._fd, 4096):
                pass

    def close(self) -> None:
        if self._fd >= 0:
            self._path.unlink(missing_ok=True)
            os.close(self._fd)
            self._fd = -1


class Bells:
    """The folder `ledger/bells/`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def hang(self) -> Bell:
        return Bell(self._folder / f"{os.getpid()}-{next(_numbers)}")

    def ring(self) -> None:
        """Wake everybody; a bell without a listener is taken down."""
        try:
            names = os.listdir(self._folder)
        except FileNotFoundError:
            return
        for name in names:
            if name.startswith("."):
                continue
            path = self._folder / name
            try:
                fd = os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            except OSError as error:
                # nobody listens any more; another person's bell is left alone
                if error.errno == errno.ENXIO:
                    with contextlib.suppress(OSError):
                        path.unlink()
                continue
            try:
                os.write(fd, b"1")
            except OSError:
                pass  # full: it has rung often enough
            finally:
                os.close(fd)
