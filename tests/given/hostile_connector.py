"""A connector that tries every way out of its child, mostly behind Python's back, and tells of each
how it ended.

Nothing here is imported by a test: the file is copied to where a connector lies, with `WHERE` in
front.
"""

import _posixsubprocess
import ctypes
import errno
import os
import signal

import cffi
import pyarrow
import pyarrow.fs
import pyarrow.parquet

from kfm.sandbox import confine

WHERE = globals().get("WHERE", {})  # outside, secret, input, parent, port

_REFUSED = {errno.EPERM, errno.EACCES, errno.ENOSYS, errno.EXDEV, errno.ENOTTY}
_FFI = cffi.FFI()
_FFI.cdef(
    "long syscall(long, ...); int system(const char *); void *popen(const char *, const char *); int daemon(int, int);"
    "int posix_spawn(int *, const char *, void *, void *, char *const argv[], char *const envp[]);"
    "int mkfifo(const char *, unsigned); int symlink(const char *, const char *); int link(const char *, const char *);"
    "int mq_open(const char *, int, unsigned, void *); void *memfd(void); int kill(int, int); int open(const char *, int, ...);"
    "int ftruncate(int, long); void *mmap(void *, unsigned long, int, int, int, long); unsigned int getpid(void); void _exit(int);"
)
_C = _FFI.dlopen(None)  # no audit event tells of it
_COLUMN = 0 if os.uname().machine == "x86_64" else 1
_MARK = "kfm-hostile-outlives"
_OUT, _FS = WHERE.get("outside", ""), pyarrow.fs.LocalFileSystem()
_TABLE = pyarrow.table({"a": [1]})


def _number(name):
    others = {
        "clone": confine._CLONE,
        "tgkill": confine._TGKILL,
        "prctl": confine._PRCTL,
        "prlimit64": confine._PRLIMIT,
    }
    others |= {
        "fcntl": confine._FCNTL,
        "ioctl": confine._IOCTL,
        "truncate": confine._PATH_TRUNCATE,
        "symlinkat": (266, 36),
    }
    others |= {
        "memfd_create": (319, 279),
        "mknodat": (259, 33),
        "linkat": (265, 37),
        "unlinkat": (263, 35),
        "renameat2": (316, 276),
    }
    return {**confine._NEVER, **confine._ABSENT, **others}[name][_COLUMN]


def _checked(answer):
    if answer < 0:
        raise OSError(_FFI.errno, os.strerror(_FFI.errno))
    return answer


def _call(name, *args):
    """A system call, straight."""
    given = [_FFI.from_buffer(a) if isinstance(a, bytes) else _FFI.cast("long", a) for a in args]
    given = [
        _FFI.cast("long", _FFI.cast("uintptr_t", a))
        if isinstance(a, _FFI.CData) and _FFI.typeof(a).kind != "primitive"
        else a
        for a in given
    ]
    return _checked(_C.syscall(_number(name), *given))


def _path(name):
    return os.fsencode(f"{_OUT}/{name}") + b"\0"


def _own(name="mine"):
    with open(name, "w") as file:
        file.write("mine")
    return os.path.realpath(name)


def _forked(pid):
    if pid == 0:
        _C._exit(0)
    return pid


def _input():
    return _checked(_C.open(WHERE["input"].encode(), os.O_RDONLY))


def _shell(text):
    return f": {_MARK}; touch {_OUT}/by-shell; {text}".encode()


def _fork_exec():
    command = [b"/bin/sh", b"-c", _shell("sleep 60")]
    tail = (-1, -1, -1, -1, -1, -1, *os.pipe(), True, True, -1, None, None, None, -1, None, False)
    return _posixsubprocess.fork_exec(command, [b"/bin/sh"], True, (), None, None, *tail)


def _spawn():
    argv = [_FFI.new("char[]", a) for a in (b"sh", b"-c", _shell("sleep 60"))]
    pid, empty = _FFI.new("int *"), _FFI.new("char *[]", [_FFI.NULL])
    error = _C.posix_spawn(
        pid, b"/bin/sh", _FFI.NULL, _FFI.NULL, _FFI.new("char *[]", [*argv, _FFI.NULL]), empty
    )
    if error:
        raise OSError(error, os.strerror(error))


def _by_address():
    """A function of C called by its address, which ctypes tells nobody."""
    address = int(_FFI.cast("uintptr_t", _FFI.addressof(_C, "system")))
    done = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_char_p)(address)(_shell("true"))
    if done != 0:
        raise PermissionError(errno.EPERM, "no shell")


def _system():
    if _C.system(_shell("true")) != 0:
        raise PermissionError(errno.EPERM, "no shell")


def _popen():
    if _C.popen(_shell("sleep 60"), b"r") == _FFI.NULL:
        raise PermissionError(errno.EPERM, "no shell")


def _raster():
    import numpy
    import rasterio

    with rasterio.open(
        f"{_OUT}/made.tif", "w", driver="GTiff", width=1, height=1, count=1, dtype="uint8"
    ) as file:
        file.write(numpy.ones((1, 1, 1), "uint8"))


def _raster_delete():
    from rasterio.shutil import delete

    delete(f"{_OUT}/raster.tif")
    if os.path.exists(f"{_OUT}/raster.tif"):
        raise PermissionError(errno.EACCES, "it is still there")


def _over_http():
    import rasterio

    rasterio.open(f"/vsicurl/http://127.0.0.1:{WHERE['port']}/x.tif")


def _vector():
    import pyogrio

    pyogrio.read_info(f"{_OUT}/secret.geojson")


def _memory_exec():
    held = _call("memfd_create", b"x\0", 0)
    os.write(held, b"#!/bin/sh\n")
    _call("execveat", held, b"\0", 0, 0, 0x1000)


_PARENT, _SECRET = WHERE.get("parent", 0), WHERE.get("secret", "")
ATTEMPTS = {
    # files, by Arrow
    "write a file": lambda: pyarrow.OSFile(f"{_OUT}/new", "w").close(),
    "overwrite a file": lambda: pyarrow.OSFile(f"{_OUT}/victim", "w").close(),
    "write a table": lambda: pyarrow.parquet.write_table(_TABLE, f"{_OUT}/new.parquet", filesystem=_FS),
    "append": lambda: _FS.open_append_stream(f"{_OUT}/victim").close(),
    "delete a file": lambda: _FS.delete_file(f"{_OUT}/victim"),
    "delete a folder": lambda: _FS.delete_dir(f"{_OUT}/folder"),
    "empty a folder": lambda: _FS.delete_dir_contents(f"{_OUT}/folder"),
    "make a folder": lambda: _FS.create_dir(f"{_OUT}/made"),
    "rename": lambda: _FS.move(f"{_OUT}/victim", f"{_OUT}/other"),
    "move in": lambda: _FS.move(f"{_OUT}/victim", os.path.realpath("taken")),
    "move over": lambda: _FS.move(_own("over"), f"{_OUT}/victim"),
    "copy over": lambda: _FS.copy_file(_own("copy"), f"{_OUT}/victim"),
    "write into the connector's folder": lambda: pyarrow.OSFile(f"{WHERE['folder']}/connector.py", "w").close(),
    "write into a package": lambda: pyarrow.OSFile(f"{WHERE['package']}/evil.py", "w").close(),
    "write over an input": lambda: pyarrow.OSFile(WHERE["input"], "w").close(),
    # files, by system calls
    "truncate": lambda: _call("truncate", _path("victim"), 0),
    "empty an input while reading it": lambda: os.close(_checked(_C.open(WHERE["input"].encode(), os.O_RDONLY | os.O_TRUNC))),
    "unlink": lambda: _call("unlinkat", -100, _path("victim"), 0),
    "exchange": lambda: _call("renameat2", -100, _own("swap").encode() + b"\0", -100, _path("victim"), 2),
    "link in": lambda: _checked(_C.link(f"{_OUT}/victim".encode(), b"linked")),
    "link an input": lambda: _checked(_C.link(WHERE["input"].encode(), b"linked-input")),
    "link out": lambda: _checked(_C.link(_own("out").encode(), f"{_OUT}/linked".encode())),
    "symlink in scratch": lambda: _checked(_C.symlink(_SECRET.encode(), b"ks_test.parquet")),
    "symlink outside": lambda: _checked(_C.symlink(_SECRET.encode(), f"{_OUT}/symlink".encode())),
    "a pipe in scratch": lambda: _checked(_C.mkfifo(b"fifo", 0o600)),
    "a device": lambda: _call("mknodat", -100, b"device\0", 0o20600, 0x103),
    "chmod": lambda: _call("fchmodat", -100, _path("victim"), 0o777),
    "chmod of an open input": lambda: _call("fchmod", _input(), 0o777),
    "chown": lambda: _call("fchownat", -100, _path("victim"), os.getuid(), os.getgid(), 0),
    "times": lambda: _call("utimensat", -100, _path("victim"), 0, 0),
    "times of an open input": lambda: _call("utimensat", _input(), 0, 0, 0),
    "attributes": lambda: _call("setxattr", _path("victim"), b"user.x\0", b"1", 1, 0),
    "flags of an open input": lambda: _call("ioctl", _input(), 0x40086602, b"\x40\0\0\0\0\0\0\0"),
    # files, by GDAL
    "a raster": _raster,
    "delete by GDAL": _raster_delete,
    "read by GDAL": _vector,
    # reading
    "read a file": lambda: pyarrow.OSFile(_SECRET).read(),
    "map a file": lambda: pyarrow.memory_map(_SECRET).read(),
    "read by another name": lambda: pyarrow.OSFile(f"/proc/self/root{_SECRET}").read(),
    "read /etc/passwd": lambda: pyarrow.OSFile("/etc/passwd").read(),
    "read a key": lambda: pyarrow.OSFile(f"{WHERE['ws']}/keys/signing.pem").read(),
    "list a folder": lambda: _FS.get_file_info(pyarrow.fs.FileSelector(_OUT)),
    "environment of the parent": lambda: pyarrow.OSFile(f"/proc/{_PARENT}/environ").read(),
    "memory of the parent": lambda: pyarrow.OSFile(f"/proc/{_PARENT}/mem").read(1),
    "files of the parent": lambda: os.readlink(f"/proc/{_PARENT}/fd/0"),
    "a file by handle": lambda: _call("open_by_handle_at", -100, bytes(32), 0),
    "watch a folder": lambda: _call("inotify_init1", 0),
    # programs
    "fork and exec": _fork_exec,
    "spawn": _spawn,
    "system": _system,
    "system by address": _by_address,
    "popen": _popen,
    "fork": lambda: _forked(_call("clone", signal.SIGCHLD, 0, 0, 0, 0)),
    "fork with the older call": lambda: _forked(_call("fork")) if _COLUMN == 0 else _forked(_call("clone", signal.SIGCHLD, 0, 0, 0, 0)),
    "fork with the newest call": lambda: _forked(_call("clone3", bytes(64), 64)),
    "daemon": lambda: _checked(_C.daemon(1, 1)),
    "exec": lambda: _call("execve", b"/nonexistent\0", 0, 0),
    "exec from memory": _memory_exec,
    # connections
    "a socket": lambda: _call("socket", 2, 1, 0),
    "a UDP socket": lambda: _call("socket", 2, 2, 0),
    "a local socket": lambda: _call("socket", 1, 1, 0),
    "a netlink socket": lambda: _call("socket", 16, 3, 0),
    "a pair of sockets": lambda: _call("socketpair", 1, 1, 0, bytes(8)),
    "http by GDAL": _over_http,
    "io_uring": lambda: _call("io_uring_setup", 1, bytes(120)),
    # signals and other processes
    "signal the parent": lambda: _checked(_C.kill(_PARENT, signal.SIGCONT)),
    "look for the parent": lambda: _checked(_C.kill(_PARENT, 0)),
    "signal everybody": lambda: _checked(_C.kill(-1, 0)),
    "signal a thread": lambda: _call("tgkill", _PARENT, _PARENT, 0),
    "queue a signal": lambda: _call("rt_sigqueueinfo", _PARENT, 0, b"\0" * 8 + b"\xff\xff\xff\xff" + bytes(116)),
    "a handle of the parent": lambda: _call("pidfd_open", _PARENT, 0),
    "let the kernel signal": lambda: _call("fcntl", 0, 8, _PARENT),
    "limits of the parent": lambda: _call("prlimit64", _PARENT, 7, 0, bytes(16)),
    "priority of the parent": lambda: _call("setpriority", 0, _PARENT, 0),
    "trace the parent": lambda: _call("ptrace", 16, _PARENT, 0, 0),
    "read the parent's memory": lambda: _call("process_vm_readv", _PARENT, 0, 0, 0, 0, 0),
    "write the parent's memory": lambda: _call("process_vm_writev", _PARENT, 0, 0, 0, 0, 0),
    "outlive the parent": lambda: _call("prctl", 1, 0, 0, 0, 0),
    # the system
    "mount": lambda: _call("mount", 0, 0, 0, 0, 0),
    "a new mount": lambda: _call("fsopen", 0, 0),
    "a namespace": lambda: _call("unshare", 0x400),
    "another's namespace": lambda: _call("setns", -1, 0),
    "chroot": lambda: _call("chroot", 0),
    "keys of the kernel": lambda: _call("keyctl", 0, -3, 0),
    "a new key": lambda: _call("add_key", 0, 0, 0, 0, 0),
    "bpf": lambda: _call("bpf", -1, 0, 0),
    "perf": lambda: _call("perf_event_open", 0, 0, 0, 0, 0),
    "page faults": lambda: _call("userfaultfd", -1),
    "shared memory": lambda: _call("shmctl", _call("shmget", 0, 4096, 0o1600), 0, 0),
    "a message queue": lambda: (_call("mq_open", b"kfm-hostile\0", 0o102, 0o600, 0), _call("mq_unlink", b"kfm-hostile\0")),
    "another user": lambda: _call("setresuid", -1, -1, -1),
    "capabilities": lambda: _call("capset", 0, 0),
}  # fmt: skip


def _tried(attempt):
    try:
        attempt()
    except Exception as error:
        # which do not say why
        by_gdal = type(error).__module__.partition(".")[0] in ("rasterio", "pyogrio")
        refused = by_gdal or (isinstance(error, OSError) and error.errno in _REFUSED)
        return f"{'refused' if refused else 'reached'}: {type(error).__name__}: {error}"
    return "did it"


def transform(ctx, rows):
    """Try them all, then do as one should."""
    for name, attempt in ATTEMPTS.items():
        ctx.log("tried", name=name, ended=_tried(attempt))
    yield from rows
