"""What the child takes away from itself before it runs workspace code.

An audit hook sees what Python does, not what a C library does: it stops accidents and the obvious ways out. What truly holds is that
the child is given no secret, no store and no key, and, where the system lets it, no network.
"""

import ctypes
import os
import resource
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

__all__ = ["close_ways_out", "limit", "tie_to_parent", "without_network"]

_PR_SET_PDEATHSIG = 1
_CLONE_NEWUSER, _CLONE_NEWNET = 0x10000000, 0x40000000
_WRITE = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_FORBIDDEN = (
    "socket.",
    "subprocess.",
    "os.exec",
    "os.fork",
    "os.forkpty",
    "os.posix_spawn",
    "os.spawn",
    "os.startfile",
    "os.system",
    "os.kill",
    "pty.spawn",
    "ctypes.dlopen",
    "ctypes.dlsym",
    "ctypes.call_function",
    "sqlite3.connect",
    "ftplib.",
    "http.client.",
    "urllib.",
    "smtplib.",
)
_HARMLESS = {"socket.gethostname"}
_CHANGES = {
    "os.remove": (0,),
    "os.rename": (0, 1),
    "os.mkdir": (0,),
    "os.rmdir": (0,),
    "os.link": (0, 1),
    "os.symlink": (0, 1),
    "os.truncate": (0,),
    "os.chmod": (0,),
    "os.chown": (0,),
    "os.utime": (0,),
    "os.setxattr": (0,),
    "os.removexattr": (0,),
    "os.mkfifo": (0,),
    "os.mknod": (0,),
    "os.chflags": (0,),
    "tempfile.mkstemp": (0,),
    "tempfile.mkdtemp": (0,),
}


def tie_to_parent(parent: int) -> None:
    """Die when the parent does, however it dies."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:  # it died before the line above took hold
        os._exit(1)


def limit(memory_bytes: int) -> None:
    """No core dumps, no readable files for others, and an end to memory."""
    os.umask(0o077)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    try:
        resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))
    except (ValueError, OSError):  # macOS does not know it, or the limit outside is lower still
        pass


def without_network() -> bool:
    """Move into an empty network namespace where the system allows it; whether it did. Must run before any thread starts."""
    if sys.platform != "linux":
        return False
    uid, gid = os.getuid(), os.getgid()
    if ctypes.CDLL(None).unshare(_CLONE_NEWUSER | _CLONE_NEWNET) != 0:
        return False
    try:  # keep the same user and group, so that files are made and seen as before
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"{uid} {uid} 1")
        Path("/proc/self/gid_map").write_text(f"{gid} {gid} 1")
    except OSError:
        pass
    return True


def close_ways_out(scratch: Path) -> None:
    """From here on Python code cannot connect, start a process or change a file outside `scratch`. Cannot be undone."""
    inside = os.path.realpath(scratch)
    sys.addaudithook(_hook(inside))


def _hook(inside: str) -> Callable[[str, tuple[Any, ...]], None]:
    def hook(event: str, args: tuple[Any, ...]) -> None:
        if event == "open":
            _check_open(inside, args)
        elif event in _CHANGES:
            for place in _CHANGES[event]:
                _check_change(inside, event, args[place])
        elif event.startswith(_FORBIDDEN) and event not in _HARMLESS:
            raise PermissionError(f"connector code may not use {event}; ask ctx.fetch for what lies outside")

    return hook


def _check_open(inside: str, args: tuple[Any, ...]) -> None:
    path, mode, flags = args[0], args[1], args[2]
    if isinstance(path, int):
        return  # something already open
    name = os.fsdecode(path)
    if "keys" in name.split(os.sep):
        raise PermissionError(f"connector code may not open {name!r}")
    if (isinstance(mode, str) and set(mode) & set("wax+")) or (isinstance(flags, int) and flags & _WRITE):
        _check_change(inside, "open", path)


def _check_change(inside: str, event: str, path: Any) -> None:
    if isinstance(path, int) or path is None:
        return
    real = os.path.realpath(os.fsdecode(path))
    if real != inside and not real.startswith(inside + os.sep) and real != os.devnull:
        raise PermissionError(f"connector code may not {event} {real!r}: only its scratch folder can be changed")
