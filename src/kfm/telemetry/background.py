"""A process beside this one, that nobody waits for."""

import contextlib
import os
import sys
from collections.abc import Sequence

__all__ = ["start_beside"]

_LATER = 10  # nice
_started: list[int] = []  # by this process, and not known to have ended


def start_beside(words: Sequence[str]) -> None:
    """`python -m WORDS…` without input and output, after whatever else wants the processor. Those
    that ended since the last call are let go.
    """
    for pid in tuple(_started):
        with contextlib.suppress(ChildProcessError):
            if os.waitpid(pid, os.WNOHANG) == (0, 0):
                continue
        _started.remove(pid)
    command = [sys.executable, "-m", *words]
    quiet = [(os.POSIX_SPAWN_OPEN, fd, os.devnull, os.O_RDWR, 0) for fd in (0, 1, 2)]
    try:
        pid = os.posix_spawn(command[0], command, os.environ, file_actions=quiet, setsid=True)
    except NotImplementedError:  # a system that cannot make a session here: it ends with ours
        pid = os.posix_spawn(command[0], command, os.environ, file_actions=quiet)
    _started.append(pid)
    with contextlib.suppress(OSError):  # it has ended already
        os.setpriority(os.PRIO_PROCESS, pid, min(19, os.getpriority(os.PRIO_PROCESS, 0) + _LATER))
