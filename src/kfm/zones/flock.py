"""Is a lock file held? A free lock means that its holder is gone."""

import fcntl
import os
from pathlib import Path

__all__ = ["is_unlocked"]


def is_unlocked(path: Path) -> bool:
    """True when no process holds `path`, also when it does not exist; False when it cannot be
    told.
    """
    try:
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    finally:
        os.close(fd)
    return True
