"""Folders in the system's temporary place, private, locked while their process lives and swept by
the next that works here.
"""

import fcntl
import os
import sys
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
    import shutil
    import tempfile  # a NOOP starts faster without these

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
    for folder in _left():
        with suppress(OSError):  # another user's, into which we may not look, or gone meanwhile
            lock = folder / "lock"
            if folder.lstat().st_uid == os.getuid() and lock.is_file() and is_unlocked(lock):
                import shutil

                shutil.rmtree(folder, ignore_errors=True)


def _left() -> list[Path]:
    """Folders of `aside`, in the place that the library has chosen or in all that it may choose: it
    is not loaded, and does not try where it may write, only to look there.
    """
    if "tempfile" in sys.modules:
        import tempfile

        places = [tempfile.gettempdir()]
    else:
        named = (os.environ.get(name, "") for name in ("TMPDIR", "TEMP", "TMP"))
        places = [*dict.fromkeys(filter(None, (*named, "/tmp", "/var/tmp", "/usr/tmp")))]
    found = []
    for place in places:
        with suppress(OSError):
            found += [Path(place, n) for n in os.listdir(place) if n.startswith(_PREFIX)]
    return found
