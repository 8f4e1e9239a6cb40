"""Folders in the system's temporary place, private, locked while their process lives and swept by
the next that works here.
"""

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from kfm.zones.flock import is_unlocked

__all__ = ["aside", "sweep_aside"]

_PREFIX = "kfm-aside-"


@contextmanager
def aside(purpose: str) -> Iterator[Path]:
    """A folder of our own (0700), gone afterwards; killed in between, it goes with the next
    `sweep_aside`.
    """
    folder = Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{purpose}-"))
    lock = os.open(folder / "lock.new", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    fcntl.flock(lock, fcntl.LOCK_EX)
    os.rename(folder / "lock.new", folder / "lock")  # under its name it has never been free
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(lock)


def sweep_aside() -> None:
    """Remove what dead processes of this user left; one without a lock is just being made."""
    for folder in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        with suppress(OSError):  # another user's, into which we may not look, or gone meanwhile
            lock = folder / "lock"
            if folder.lstat().st_uid == os.getuid() and lock.is_file() and is_unlocked(lock):
                shutil.rmtree(folder, ignore_errors=True)
