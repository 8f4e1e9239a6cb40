"""Temporary names of a zone: a folder for each process, locked for as long as it lives."""

import contextlib
import fcntl
import itertools
import os
import threading
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

from kfm.zones.flock import is_unlocked

__all__ = ["Temps", "remove_folder"]


def remove_folder(folder: Path) -> None:
    """Remove a folder of ours with what is in it; what resists stays for the next sweep."""
    with contextlib.suppress(OSError):
        fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            for name in os.listdir(fd):
                os.unlink(name, dir_fd=fd)
        finally:
            os.close(fd)
        os.rmdir(folder)
        return
    import shutil  # folders within: rare, and a NOOP starts faster without it

    shutil.rmtree(folder, ignore_errors=True)


class Temps:
    """`.tmp/<process>/` below `root`, made at first use."""

    def __init__(self, root: Path, make_root: Callable[[], None]) -> None:
        self._root, self._make_root = root, make_root
        self._own: Path | None = None
        self._lock = -1
        self._mutex = threading.Lock()
        self._numbers = itertools.count()

    def new(self) -> Path:
        """A name that nobody else has."""
        return self._folder() / str(next(self._numbers))  # the folder is ours alone

    def _folder(self) -> Path:
        with self._mutex:
            if self._own is None:
                self._make_root()
                with self._alone():
                    folder = self._root / ".tmp" / uuid.uuid4().hex
                    # what is being worked on is nobody else's, whatever it will be
                    folder.mkdir(mode=0o700)
                    self._lock = os.open(
                        folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600
                    )
                    fcntl.flock(self._lock, fcntl.LOCK_EX)
                self._own = folder
            return self._own

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        """Alone with the list of temp folders: none is half made, none is being swept. The folder
        itself is the lock and stays.
        """
        base = self._root / ".tmp"
        base.mkdir(exist_ok=True)
        fd = os.open(base, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
            yield
        finally:
            os.close(fd)

    def dead(self) -> list[Path]:
        """Temp folders whose process is gone."""
        base = self._root / ".tmp"
        return (
            [f for f in sorted(base.iterdir()) if f != self._own and is_unlocked(f / "lock")]
            if base.is_dir()
            else []
        )

    def sweep(self) -> list[str]:
        if not (self._root / ".tmp").is_dir() or not self.dead():
            return []
        with self._alone():
            gone = self.dead()
            for folder in gone:
                remove_folder(folder)
        return [f.name for f in gone]

    def close(self) -> None:
        if self._own is not None:
            remove_folder(self._own)
            os.close(self._lock)
            self._own = None
