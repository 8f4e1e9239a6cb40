"""What the child takes away from itself before it runs workspace code.

An audit hook sees what Python does, not what a C library does: it stops accidents early, in words
that help. What truly holds is that the child is given no secret, no store and no key, and what the
kernel refuses (`confine`).
"""

import ctypes
import os
import re
import resource
import signal
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote

__all__ = ["Reads", "close_ways_out", "limit", "reads_of", "tie_to_parent", "without_network"]

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
    "sqlite3.",
    "ftplib.",
    "http.client.",
    "urllib.",
    "smtplib.",
)
_HARMLESS = {"socket.gethostname", "sqlite3.connect/handle"}  # the latter follows the former
# a database that is read as it is, without locks or a journal beside it
_ONLY_READ = re.compile(r"file:(/[^?#]*)\?mode=ro&immutable=1")
_LISTS = {"os.listdir", "os.scandir"}
_LINKS = {"os.link", "os.symlink", "os.chdir", "os.fchdir"}
# nothing needs them, and where the kernel refuses them it cannot see whose file it is
_NEVER = {
    "os.chmod",
    "os.chown",
    "os.utime",
    "os.setxattr",
    "os.removexattr",
    "os.mkfifo",
    "os.mknod",
    "os.chflags",
}
_CHANGES = {
    "os.remove": (0,),
    "os.rename": (0, 1),
    "os.mkdir": (0,),
    "os.rmdir": (0,),
    "os.truncate": (0,),
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
    """Move into an empty network namespace where the system allows it; whether it did. Must run
    before any thread starts.
    """
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


_Args = tuple[Any, ...]  # what an event of Python is told with
_Place = int | str | bytes | os.PathLike[str] | None  # a file that is open, or its name


class Reads(NamedTuple):
    """The workspace, of which nothing may be read, and what may be read all the same."""

    root: str
    scratch: str
    allowed: tuple[str, ...]

    def refuses(self, path: str) -> bool:
        """Whether a file or folder is out of sight."""
        real = os.path.realpath(os.fsdecode(path))
        return _within(real, self.root) and not any(
            _within(real, a) for a in (self.scratch, *self.allowed)
        )


def reads_of(connector: str | None, inputs: Iterable[str], scratch: str) -> Reads | None:
    """What connector code in <workspace>/scripts/connectors/<id>/connector.py may read; None:
    nothing foreign runs, or in no workspace.
    """
    folders = Path(connector).absolute().parents if connector is not None else ()
    if (
        connector is None
        or len(folders) < 4
        or (folders[2].name, folders[1].name) != ("scripts", "connectors")
    ):
        return None
    root = os.path.realpath(folders[3])
    python = (sys.prefix, sys.base_prefix, str(Path(__file__).parents[2]))
    allowed = [os.path.realpath(path) for path in (*inputs, connector, str(folders[0]), *python)]
    return Reads(root, os.path.realpath(scratch), tuple(a for a in allowed if not _within(root, a)))


def _within(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip(os.sep) + os.sep)


def close_ways_out(scratch: Path, reads: Reads | None = None) -> None:
    """From here on Python code cannot connect, start a process, change a file outside `scratch` or
    read what `reads` refuses.

    Cannot be undone.
    """
    inside = os.path.realpath(scratch)
    sys.addaudithook(_hook(inside, reads))


def _hook(inside: str, reads: Reads | None) -> Callable[[str, _Args], None]:
    def hook(event: str, args: _Args) -> None:
        if event == "open":
            _check_open(inside, args)
            _check_read(reads, event, args[0])
        elif event == "sqlite3.connect" and (only := _ONLY_READ.fullmatch(str(args[0]))):
            _check_read(reads, event, unquote(only[1]))
        elif event in _LISTS:
            _check_read(reads, event, "." if args[0] is None else args[0])
        elif event in _LINKS or event in _NEVER:
            # what a link or a relative name means depends on who follows it, and from where
            raise PermissionError(f"connector code may not use {event}")
        elif event in _CHANGES:
            for place in _CHANGES[event]:
                _check_change(inside, event, args[place])
        elif event.startswith(_FORBIDDEN) and event not in _HARMLESS:
            raise PermissionError(
                f"connector code may not use {event}; what lies outside is asked for in acquire()"
            )

    return hook


def _check_open(inside: str, args: _Args) -> None:
    path, mode, flags = args[0], args[1], args[2]
    if isinstance(path, int):
        return  # something already open
    name = os.fsdecode(path)
    if "keys" in name.split(os.sep):
        raise PermissionError(f"connector code may not open {name!r}")
    if (isinstance(mode, str) and set(mode) & set("wax+")) or (
        isinstance(flags, int) and flags & _WRITE
    ):
        _check_change(inside, "open", path)


def _check_read(reads: Reads | None, event: str, path: _Place) -> None:
    if reads is None or path is None or isinstance(path, int):
        return
    name = os.fsdecode(path)
    # a folder held open would be a way to its files by names relative to it
    if reads.refuses(name) or (
        event == "open"
        and os.path.isdir(name)
        and not _within(os.path.realpath(name), reads.scratch)
    ):
        raise PermissionError(
            f"connector code may not {event} {name!r}: it sees its inputs, its scratch folder and"
            " its own folder"
        )


def _check_change(inside: str, event: str, path: _Place) -> None:
    if isinstance(path, int) or path is None:
        return
    real = os.path.realpath(os.fsdecode(path))
    if real != inside and not real.startswith(inside + os.sep) and real != os.devnull:
        raise PermissionError(
            f"connector code may not {event} {real!r}: only its scratch folder can be changed"
        )
