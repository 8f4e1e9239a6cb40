"""What the child takes away from itself before it runs workspace code.

An audit hook sees what Python does, not what a C library does: it stops accidents and the obvious ways out. What truly holds is that
the child is given no secret, no store and no key, and, where the system lets it, no network and no sight of the workspace.
"""

import ctypes
import os
import resource
import signal
import struct
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

__all__ = ["Reads", "blind", "close_ways_out", "limit", "reads_of", "tie_to_parent", "without_network"]

_PR_SET_PDEATHSIG, _PR_SET_NO_NEW_PRIVS = 1, 38
_LANDLOCK_CREATE, _LANDLOCK_ADD, _LANDLOCK_RESTRICT = 444, 445, 446  # the same number on every architecture
_READ_FILE, _REFER = 1 << 2, 1 << 13
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
_LISTS = {"os.listdir", "os.scandir"}
_LINKS = {"os.link", "os.symlink", "os.chdir", "os.fchdir"}
_CHANGES = {
    "os.remove": (0,),
    "os.rename": (0, 1),
    "os.mkdir": (0,),
    "os.rmdir": (0,),
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


class Reads(NamedTuple):
    """The workspace, of which nothing may be read, and what may be read all the same."""

    root: str
    scratch: str
    allowed: tuple[str, ...]

    def refuses(self, path: Any) -> bool:
        """Whether a file or folder is out of sight."""
        real = os.path.realpath(os.fsdecode(path))
        return _within(real, self.root) and not any(_within(real, a) for a in (self.scratch, *self.allowed))


def reads_of(connector: str | None, inputs: Iterable[str], scratch: str) -> Reads | None:
    """What connector code in <workspace>/scripts/connectors/<id>/connector.py may read; None: nothing foreign runs, or in no workspace."""
    folders = Path(connector).absolute().parents if connector is not None else ()
    if connector is None or len(folders) < 4 or (folders[2].name, folders[1].name) != ("scripts", "connectors"):
        return None
    root = os.path.realpath(folders[3])
    python = (sys.prefix, sys.base_prefix, str(Path(__file__).parents[1]))
    allowed = [os.path.realpath(path) for path in (*inputs, connector, str(folders[0]), *python)]
    return Reads(root, os.path.realpath(scratch), tuple(a for a in allowed if not _within(root, a)))


def _within(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip(os.sep) + os.sep)


def blind(reads: Reads) -> bool:
    """Let the system refuse what `reads` refuses, to C libraries too, where it can (Landlock); whether it does. Cannot be undone."""
    if sys.platform != "linux":
        return False
    libc = ctypes.CDLL(None, use_errno=True)
    abi = libc.syscall(_LANDLOCK_CREATE, None, 0, 1)
    if abi < 1:
        return False
    move = _REFER if abi > 1 else 0  # files may change folders only where a rule says so
    rules = libc.syscall(_LANDLOCK_CREATE, struct.pack("=Q", _READ_FILE | move), 8, 0)
    if rules < 0:
        return False
    for path in (*_beside(reads.root), *reads.allowed):
        _permit(libc, rules, path, _READ_FILE)
    _permit(libc, rules, reads.scratch, _READ_FILE | move)
    libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    done: bool = libc.syscall(_LANDLOCK_RESTRICT, rules, 0) == 0
    os.close(rules)
    return done


def _beside(root: str) -> Iterator[str]:
    """All there is but `root`: a rule can only permit."""
    for way in (Path(root), *Path(root).parents[:-1]):
        try:
            yield from (e.path for e in os.scandir(way.parent) if e.name != way.name and not e.is_symlink())
        except OSError:
            continue


def _permit(libc: Any, rules: int, path: str, access: int) -> None:
    try:
        place = os.open(path, os.O_PATH)
    except OSError:
        return
    libc.syscall(_LANDLOCK_ADD, rules, 1, struct.pack("=Qi", access, place), 0)
    os.close(place)


def close_ways_out(scratch: Path, reads: Reads | None = None) -> None:
    """From here on Python code cannot connect, start a process, change a file outside `scratch` or read what `reads` refuses.

    Cannot be undone.
    """
    inside = os.path.realpath(scratch)
    sys.addaudithook(_hook(inside, reads))


def _hook(inside: str, reads: Reads | None) -> Callable[[str, tuple[Any, ...]], None]:
    def hook(event: str, args: tuple[Any, ...]) -> None:
        if event == "open":
            _check_open(inside, args)
            _check_read(reads, event, args[0])
        elif event in _LISTS:
            _check_read(reads, event, "." if args[0] is None else args[0])
        elif event in _LINKS:  # what a link or a relative name means depends on who follows it, and from where
            raise PermissionError(f"connector code may not use {event}")
        elif event in _CHANGES:
            for place in _CHANGES[event]:
                _check_change(inside, event, args[place])
        elif event.startswith(_FORBIDDEN) and event not in _HARMLESS:
            raise PermissionError(f"connector code may not use {event}; what lies outside is asked for in acquire()")

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


def _check_read(reads: Reads | None, event: str, path: Any) -> None:
    if reads is None or isinstance(path, int):
        return
    name = os.fsdecode(path)
    # a folder held open would be a way to its files by names relative to it
    if reads.refuses(name) or (event == "open" and os.path.isdir(name) and not _within(os.path.realpath(name), reads.scratch)):
        raise PermissionError(f"connector code may not {event} {name!r}: it sees its inputs, its scratch folder and its own folder")


def _check_change(inside: str, event: str, path: Any) -> None:
    if isinstance(path, int) or path is None:
        return
    real = os.path.realpath(os.fsdecode(path))
    if real != inside and not real.startswith(inside + os.sep) and real != os.devnull:
        raise PermissionError(f"connector code may not {event} {real!r}: only its scratch folder can be changed")
