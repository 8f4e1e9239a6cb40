"""What the kernel takes from a child, and so from every library in it: files by Landlock, system
calls by seccomp.

Both hold for C as they do for Python, need no rights of their own and cannot be undone. Landlock
cannot hide that a file exists, nor its size and times; of its contents nothing is read that is not
named here.
"""

import ctypes
import errno
import os
import struct
import sys
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

from kfm.sandbox.isolation import Held

__all__ = ["confine", "packages", "readable"]

# ---- Landlock: linux/landlock.h. The three calls have one number on every architecture.
_CREATE, _ADD, _RESTRICT = 444, 445, 446
_WRITE_FILE, _READ_FILE, _READ_DIR, _REFER, _TRUNCATE = 1 << 1, 1 << 2, 1 << 3, 1 << 13, 1 << 14
_REMOVE_DIR, _REMOVE_FILE, _MAKE_DIR, _MAKE_REG = 1 << 4, 1 << 5, 1 << 7, 1 << 8
# since which version: execute to make_sym, …, ioctl_dev
_HANDLED = ((1, (1 << 13) - 1), (2, _REFER), (3, _TRUNCATE), (5, 1 << 15))
_LOOK = _READ_FILE | _READ_DIR
# No links, pipes, sockets and devices: whoever opens them after the child has gone would be led
# elsewhere, or wait for ever.
_WORK = (
    _LOOK | _WRITE_FILE | _TRUNCATE | _REMOVE_DIR | _REMOVE_FILE | _MAKE_DIR | _MAKE_REG | _REFER
)
_OF_FILES = 1 | _WRITE_FILE | _READ_FILE | _TRUNCATE
_TCP, _SCOPES = 0b11, 0b11  # bind and connect, since 4; abstract sockets and signals, since 6

# ---- what any program on the system may read, and a reader of tables needs: libraries, time zones,
# projections, the processor
_LIBRARIES = (
    "/lib", "/lib32", "/lib64", "/usr/lib", "/usr/lib32", "/usr/lib64", "/usr/libexec", "/usr/share", "/usr/local/lib", "/usr/local/lib64",
    "/usr/local/share", "/nix/store", "/gnu/store",
)  # fmt: skip
# not all of `share`: it may be a person's
_OF_PREFIX = ("lib", "lib64", "share/gdal", "share/locale", "share/proj", "share/zoneinfo")
_SYSTEM = (
    "/etc/ld.so.cache", "/etc/localtime", "/etc/timezone", "/etc/mime.types", "/etc/ssl/openssl.cnf", "/etc/pki/tls/openssl.cnf",
    "/dev/zero", "/dev/random", "/dev/urandom", "/proc/self", "/proc/cpuinfo", "/proc/meminfo", "/proc/stat", "/proc/filesystems",
    "/proc/sys/vm/overcommit_memory", "/sys/devices/system/cpu", "/sys/devices/system/node", "/sys/kernel/mm/transparent_hugepage",
)  # fmt: skip

# ---- seccomp: linux/seccomp.h, linux/filter.h
_ALLOW, _REFUSE = 0x7FFF0000, 0x00050000
_LOAD, _EQUAL, _GREATER, _ANY_BIT, _AND, _RETURN = 0x20, 0x15, 0x25, 0x45, 0x54, 0x06
_NUMBER, _ARCH = 0, 4  # where in struct seccomp_data
_SPEC_ALLOW = 4  # no slower code for the sake of speculation: there is no secret here
_LAST = 462  # a call that came later is not there
# column, architecture, seccomp, capset
_MACHINES = {"x86_64": (0, 0xC000003E, 317, 126), "aarch64": (1, 0xC00000B7, 277, 91)}
_NO = None
# Never: (x86_64, aarch64). No program is started and none forked, so that nothing can outlive the
# child.
_NEVER: dict[str, tuple[int | None, int | None]] = {
    "fork": (57, _NO), "vfork": (58, _NO), "execve": (59, 221), "execveat": (322, 281), "setsid": (112, 157), "setpgid": (109, 154),
    "unshare": (272, 97), "setns": (308, 268), "chroot": (161, 51), "pivot_root": (155, 41), "personality": (135, 92),
    "mount": (165, 40), "umount2": (166, 39), "open_tree": (428, 428), "move_mount": (429, 429), "fsopen": (430, 430), "fsconfig": (431, 431),
    "fsmount": (432, 432), "fspick": (433, 433), "mount_setattr": (442, 442), "swapon": (167, 224), "swapoff": (168, 225),
    "quotactl": (179, 60), "quotactl_fd": (443, 443), "acct": (163, 89), "reboot": (169, 142), "syslog": (103, 116),
    "socket": (41, 198), "socketpair": (53, 199), "connect": (42, 203), "bind": (49, 200), "listen": (50, 201), "accept": (43, 202),
    "accept4": (288, 242), "sendto": (44, 206), "sendmsg": (46, 211), "sendmmsg": (307, 269),
    "tkill": (200, 130), "rt_sigqueueinfo": (129, 138), "rt_tgsigqueueinfo": (297, 240), "pidfd_open": (434, 434),
    "pidfd_getfd": (438, 438), "pidfd_send_signal": (424, 424), "process_madvise": (440, 440), "process_mrelease": (448, 448),
    "ptrace": (101, 117), "process_vm_readv": (310, 270), "process_vm_writev": (311, 271), "kcmp": (312, 272),
    "migrate_pages": (256, 238), "move_pages": (279, 239), "setpriority": (141, 140), "ioprio_set": (251, 30),
    "sched_setparam": (142, 118), "sched_setscheduler": (144, 119), "sched_setaffinity": (203, 122), "sched_setattr": (314, 274),
    "add_key": (248, 217), "request_key": (249, 218), "keyctl": (250, 219), "bpf": (321, 280), "perf_event_open": (298, 241),
    "userfaultfd": (323, 282), "io_uring_setup": (425, 425), "io_uring_enter": (426, 426), "io_uring_register": (427, 427),
    "kexec_load": (246, 104), "kexec_file_load": (320, 294), "init_module": (175, 105), "finit_module": (313, 273),
    "delete_module": (176, 106), "iopl": (172, _NO), "ioperm": (173, _NO), "modify_ldt": (154, _NO), "uselib": (134, _NO),
    "name_to_handle_at": (303, 264), "open_by_handle_at": (304, 265), "inotify_init": (253, _NO), "inotify_init1": (294, 26),
    "fanotify_init": (300, 262), "fanotify_mark": (301, 263), "lookup_dcookie": (212, 18),
    # Landlock does not look at these, and an input may be open.
    "chmod": (90, _NO), "fchmod": (91, 52), "fchmodat": (268, 53), "fchmodat2": (452, 452), "chown": (92, _NO), "fchown": (93, 55),
    "lchown": (94, _NO), "fchownat": (260, 54), "utime": (132, _NO), "utimes": (235, _NO), "futimesat": (261, _NO), "utimensat": (280, 88),
    "setxattr": (188, 5), "lsetxattr": (189, 6), "fsetxattr": (190, 7), "removexattr": (197, 14), "lremovexattr": (198, 15),
    "fremovexattr": (199, 16),
    # What is shared by name with other processes, and stays.
    "shmget": (29, 194), "shmat": (30, 196), "shmctl": (31, 195), "semget": (64, 190), "semop": (65, 193), "semctl": (66, 191),
    "semtimedop": (220, 192), "msgget": (68, 186), "msgsnd": (69, 189), "msgrcv": (70, 188), "msgctl": (71, 187), "mq_open": (240, 180), "mq_unlink": (241, 181),
    # A change of credentials would let go of the parent.
    "setuid": (105, 146), "setgid": (106, 144), "setreuid": (113, 145), "setregid": (114, 143), "setgroups": (116, 159),
    "setresuid": (117, 147), "setresgid": (119, 149), "setfsuid": (122, 151), "setfsgid": (123, 152), "capset": (126, 91),
    "settimeofday": (164, 170), "clock_settime": (227, 112), "adjtimex": (159, 171), "clock_adjtime": (305, 266),
    "sethostname": (170, 161), "setdomainname": (171, 162), "vhangup": (153, 58),
}  # fmt: skip
# what they ask for cannot be seen; their callers know the older call
_ABSENT = {"clone3": (435, 435), "openat2": (437, 437)}
_CLONE, _KILL, _TGKILL, _PRCTL, _PRLIMIT = (56, 220), (62, 129), (234, 131), (157, 167), (302, 261)
_FCNTL, _IOCTL, _OPEN, _OPENAT, _PATH_TRUNCATE = (72, 25), (16, 29), (2, _NO), (257, 56), (76, 45)
_THREAD, _NAMESPACES = 0x10000, 0x7E020000  # of clone
# fcntl: F_SETOWN, F_SETSIG, F_SETOWN_EX, F_SETLEASE, F_NOTIFY send signals to whoever is named
_OWNERS = (8, 10, 15, 1024, 1026)
# ioctl: TCGETS, TCGETS2, TIOCGWINSZ, FIONREAD, FIONBIO, FIONCLEX, FIOCLEX, FICLONE, FICLONERANGE;
# others change files that are only read
_ASKED = (0x5401, 0x802C542A, 0x5413, 0x541B, 0x5421, 0x5450, 0x5451, 0x40049409, 0x4020940D)


def readable(inputs: Iterable[str], code: str | None, scratch: str) -> list[str]:
    """What the child may read: the interpreter, its packages, the inputs, the file `code` and its
    folder.

    A folder of packages in which data lie is no folder of packages: an environment can be made
    around a workspace.
    """
    given = [os.path.realpath(path) for path in inputs]
    folder = [os.path.realpath(os.path.dirname(os.path.abspath(code)))] if code is not None else []
    data = [os.path.realpath(scratch), *given, *folder]
    return [
        *(p for p in packages() if not any(_within(d, p) for d in data)),
        *given,
        *folder,
        *([code] if code is not None else []),
    ]


@cache
def packages() -> tuple[str, ...]:
    """The folders of the interpreter, its packages and the system's libraries."""
    return tuple(dict.fromkeys(map(os.path.realpath, _packages())))


def _packages() -> Iterator[str]:
    for prefix in (sys.prefix, sys.base_prefix, sys.exec_prefix, sys.base_exec_prefix):
        yield from (os.path.join(prefix, name) for name in _OF_PREFIX)
    yield from _LIBRARIES
    yield from (path for path in sys.path if path)
    yield str(Path(__file__).parents[1])


def _within(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip(os.sep) + os.sep)


def confine(reads: Iterable[str], scratch: str | None) -> Held:
    """From here on read nothing but `reads`, change nothing but `scratch`, start, signal and
    connect to nothing; what could be held.

    Must run before any thread starts: only this one and what comes of it is bound.
    """
    machine = (
        _MACHINES.get(os.uname().machine)
        if sys.platform == "linux" and sys.byteorder == "little" and sys.maxsize > 1 << 32
        else None
    )
    if machine is None:
        return Held(
            why=(
                f"{sys.platform} on {os.uname().machine} has no Landlock and no seccomp that kfm"
                " knows"
            )
        )
    if not os.path.isdir("/proc/self/task") or len(os.listdir("/proc/self/task")) != 1:
        # only one of them would be bound
        return Held(why="its threads cannot be counted, or it has several")
    libc = ctypes.CDLL(None, use_errno=True)
    libc.syscall.restype = ctypes.c_long
    column, architecture, seccomp, capset = machine
    # none of root's powers, should it be root
    libc.syscall(capset, struct.pack("=Ii", 0x20080522, 0), bytes(24))
    if libc.prctl(38, 1, 0, 0, 0) != 0:  # PR_SET_NO_NEW_PRIVS
        return Held(why="the system does not let a process give up privileges")
    version = _landlock(libc, reads, scratch)
    program = _Program(column, architecture).filter(os.getpid(), truncate=version >= 3)
    code = ctypes.create_string_buffer(b"".join(program))
    started = (
        libc.syscall(
            seccomp, 1, _SPEC_ALLOW, struct.pack("=HxxxxxxQ", len(program), ctypes.addressof(code))
        )
        == 0
    )
    lacks = [
        name
        for name, there in (("Landlock", version > 0), ("seccomp filters", started))
        if not there
    ]
    return Held(version, started, f"this system has no {' and no '.join(lacks)}" if lacks else "")


def _landlock(libc: ctypes.CDLL, reads: Iterable[str], scratch: str | None) -> int:
    """Bind this thread; the version of Landlock that does, 0 when none."""
    version: int = libc.syscall(_CREATE, None, 0, 1)
    if version < 1:
        return 0
    handled = sum(rights for since, rights in _HANDLED if version >= since)
    wanted = struct.pack("=QQQ", handled, _TCP, _SCOPES)[
        : 24 if version >= 6 else 16 if version >= 4 else 8
    ]
    rules = libc.syscall(_CREATE, wanted, len(wanted), 0)
    if rules < 0:
        return 0
    try:
        for path in (*_SYSTEM, *reads):
            _permit(libc, rules, path, _LOOK & handled)
        _permit(libc, rules, os.devnull, (_READ_FILE | _WRITE_FILE | _TRUNCATE) & handled)
        if scratch is not None and not _permit(libc, rules, scratch, _WORK & handled):
            return 0
        return version if libc.syscall(_RESTRICT, rules, 0) == 0 else 0
    finally:
        os.close(rules)


def _permit(libc: ctypes.CDLL, rules: int, path: str, access: int) -> bool:
    try:
        place = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return False  # what is not there need not be allowed
    added: bool = libc.syscall(_ADD, rules, 1, struct.pack("=Qi", access, place), 0) == 0
    # a file has no entries
    added = (
        added or libc.syscall(_ADD, rules, 1, struct.pack("=Qi", access & _OF_FILES, place), 0) == 0
    )
    if path != "/proc/self":  # its rule hangs on a node that is only kept while somebody holds it
        os.close(place)
    return added


class _Program:
    """A seccomp filter, put together one call at a time."""

    def __init__(self, column: int, architecture: int) -> None:
        self._column = column
        self._code = [
            _step(_LOAD, _ARCH),
            _step(_EQUAL, architecture, 1, 0),
            _refuse(errno.ENOSYS),
            _step(_LOAD, _NUMBER),
        ]
        self._code += [_step(_GREATER, _LAST, 0, 1), _refuse(errno.ENOSYS)]

    def filter(self, pid: int, *, truncate: bool) -> list[bytes]:
        """The whole of it; `pid` is the only process that may be signalled or limited, `truncate`
        whether Landlock looks at that.
        """
        for numbers in _NEVER.values():
            self._on(numbers, [_refuse(errno.EPERM)])
        for numbers in _ABSENT.values():
            self._on(numbers, [_refuse(errno.ENOSYS)])
        yes, no = _step(_RETURN, _ALLOW), _refuse(errno.EPERM)
        self._on(
            _CLONE,
            [
                _argument(0),
                _step(_ANY_BIT, _NAMESPACES, 1, 0),
                _step(_ANY_BIT, _THREAD, 1, 0),
                no,
                yes,
            ],
        )
        for numbers in (_KILL, _TGKILL):
            self._on(numbers, [_argument(0), _step(_EQUAL, pid, 1, 0), no, yes])
        self._on(
            _PRLIMIT, [_argument(0), _step(_EQUAL, 0, 2, 0), _step(_EQUAL, pid, 1, 0), no, yes]
        )
        # PR_SET_PDEATHSIG: it dies with its parent
        self._on(_PRCTL, [_argument(0), _step(_EQUAL, 1, 0, 1), no, yes])
        self._on(
            _FCNTL,
            [
                _argument(1),
                *(_step(_EQUAL, k, len(_OWNERS) - n, 0) for n, k in enumerate(_OWNERS)),
                yes,
                no,
            ],
        )
        self._on(
            _IOCTL,
            [
                _argument(1),
                *(_step(_EQUAL, k, len(_ASKED) - n, 0) for n, k in enumerate(_ASKED)),
                no,
                yes,
            ],
        )
        # before version 3 Landlock lets a file that is only read be emptied
        for numbers, place in ((_OPEN, 1), (_OPENAT, 2)):
            emptied = [
                _step(_ANY_BIT, os.O_TRUNC, 0, 4),
                _step(_AND, 3),
                _step(_EQUAL, os.O_WRONLY, 2, 0),
                _step(_EQUAL, os.O_RDWR, 1, 0),
            ]
            self._on(numbers, [_argument(place), *emptied, no, yes])
        if not truncate:
            self._on(_PATH_TRUNCATE, [no])
        return [*self._code, yes]

    def _on(self, numbers: tuple[int | None, int | None], then: list[bytes]) -> None:
        """What becomes of one call; `then` ends with an answer."""
        number = numbers[self._column]
        if number is not None:
            self._code += [_step(_EQUAL, number, 0, len(then)), *then]


def _step(code: int, value: int, if_so: int = 0, if_not: int = 0) -> bytes:
    return struct.pack("=HBBI", code, if_so, if_not, value)


def _argument(number: int) -> bytes:
    """Load the lower half of an argument, which is all that these calls look at."""
    return _step(_LOAD, 16 + 8 * number)


def _refuse(error: int) -> bytes:
    return _step(_RETURN, _REFUSE | error)
