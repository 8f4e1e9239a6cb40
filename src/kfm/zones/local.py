"""A zone on local files: unique temp, fsync, link without replace, fsync folder."""

import contextlib
import errno
import hashlib
import os
import stat
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TypeVar

from kfm.model import IntegrityError, StepFailed
from kfm.zones.base import Held, Stored, Zone, check_path, hash_file, held_file
from kfm.zones.durable import sync_folder
from kfm.zones.temps import Temps, remove_folder

__all__ = ["LocalZone"]

T = TypeVar("T")
CHUNK = 4 << 20
_BATCH = 24  # from this many files on, one syncfs is cheaper than an fsync each


@cache
def _system_call(name: str) -> "Callable[..., int] | None":
    """A function of the C library, None where it has no such one."""
    import ctypes  # what writes little never needs it

    return getattr(ctypes.CDLL(None, use_errno=True), name, None)


def _syncfs(folder: Path) -> bool:
    """Flush the whole file system; False where the system has no such call."""
    call = _system_call("syncfs")
    if call is None:
        return False
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        return bool(call(fd) == 0)
    finally:
        os.close(fd)


class _Hasher(threading.Thread):
    """Hashes chunks beside the thread that writes them; sha256 and write both let go of the
    interpreter lock.
    """

    def __init__(self) -> None:
        import queue  # a NOOP starts faster without it

        super().__init__(name="kfm-hash", daemon=True)
        self.hash = hashlib.sha256()
        self.chunks: queue.Queue[bytes | None] = queue.Queue(maxsize=4)

    def run(self) -> None:
        while (chunk := self.chunks.get()) is not None:
            self.hash.update(chunk)

    def finish(self) -> str:
        self.chunks.put(None)
        self.join()
        return "sha256:" + self.hash.hexdigest()


def _write_whole(fd: int, data: bytes | memoryview) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


def _start_writeback(fd: int, offset: int, length: int) -> None:
    """Ask the kernel to begin writing now, so that the final fsync finds little left to do."""
    call = _system_call("sync_file_range")  # Linux only
    if call is not None:
        import ctypes

        call(ctypes.c_int(fd), ctypes.c_int64(offset), ctypes.c_int64(length), ctypes.c_uint(2))


_BUFFERS = threading.local()


def _copy_small(source: int, fd: int) -> Stored:
    """Through one buffer per thread: memory that is given back and taken again costs more than the
    copying.
    """
    if not hasattr(_BUFFERS, "view"):
        _BUFFERS.view = memoryview(bytearray(1 << 17))
    view, digest, size = _BUFFERS.view, hashlib.sha256(), 0
    while count := os.readv(source, [view]):
        digest.update(view[:count])
        _write_whole(fd, view[:count])
        size += count
    return Stored(("sha256:" + digest.hexdigest(), size))


def _copy_large(source: int, fd: int) -> Stored:
    hasher, size = _Hasher(), 0
    hasher.start()
    try:
        while chunk := os.read(source, CHUNK):
            hasher.chunks.put(chunk)
            _write_whole(fd, chunk)
            _start_writeback(fd, size, len(chunk))
            size += len(chunk)
    finally:
        digest = hasher.finish()  # also after an error: the thread must not outlive its file
    return Stored((digest, size))


def _copy_hashing(path: Path, fd: int) -> Stored:
    source = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        small = os.fstat(source).st_size < CHUNK  # a thread would cost more than it saves
        return _copy_small(source, fd) if small else _copy_large(source, fd)
    finally:
        os.close(source)


class LocalZone(Zone):
    """Files below one folder. Temporary names lie in `.tmp/<process>/`, locked for as long as the
    process lives.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self._synced: set[Path] = set()
        self._temps = Temps(root, lambda: self._mkdirs(root))
        self._prefix = f"{root}/"

    def local(self, path: str) -> Path:
        target = self.root / check_path(path)
        place = str(self.root)
        for part in path.split("/")[:-1]:  # before anything is made on the way
            place = f"{place}/{part}"
            try:
                mode = os.lstat(place).st_mode
            except (FileNotFoundError, NotADirectoryError):
                break
            if stat.S_ISLNK(mode):
                raise IntegrityError(
                    f"{path} leads through a link: {place[len(self._prefix) :]}.",
                    expected="no links in a zone",
                    remedy=(
                        "Put the folder itself there (another disk is mounted, not linked), then"
                        " run `kfm doctor`."
                    ),
                )
        return target

    # ---- temporary names -------------------------------------------------------------------------
    def temp(self) -> Path:
        return self._temps.new()

    @contextlib.contextmanager
    def scratch(self) -> Iterator[Path]:
        folder = self.temp()
        folder.mkdir(mode=0o700)
        try:
            yield folder
        finally:
            remove_folder(folder)

    def leftovers(self) -> list[str]:
        return [folder.name for folder in self._temps.dead()]

    def sweep(self) -> list[str]:
        return self._temps.sweep()

    def close(self) -> None:
        self._temps.close()

    # ---- writing ---------------------------------------------------------------------------------
    def _mkdirs(self, folder: Path) -> None:
        """Make `folder` and make its name durable, from the outside in.

        A folder that exists already may owe its name to a process that has not synced it yet, or
        never will: the first time we rely on one, we sync the names on its way ourselves.
        """
        if folder in self._synced:
            return
        if folder != self.root:
            self._mkdirs(folder.parent)
        with contextlib.suppress(FileExistsError):
            folder.mkdir(parents=folder == self.root)
        sync_folder(folder.parent)
        self._synced.add(folder)

    def _inside(self, folder: Path, act: Callable[[], T]) -> T:
        """Do what needs `folder`; another process may have removed it since we relied on it, empty
        as it was: then it is made again.
        """
        while True:
            try:
                self._mkdirs(folder)
                return act()
            except FileNotFoundError:
                gone = {place for place in (folder, *folder.parents) if not place.is_dir()}
                if not gone:
                    raise
                self._synced -= gone

    def _fill(self, content: bytes | Path, sync: bool) -> tuple[Path, Stored]:
        """Bring `content` to a temp name of our own, hashed on the way; a file of this zone is
        shared, not copied.
        """
        temp = self.temp()
        if isinstance(content, Path) and not stat.S_ISREG(os.lstat(content).st_mode):
            raise IntegrityError(
                f"{content.name} is a link, not a file.",
                expected="a file",
                remedy="Whoever made it must write the bytes.",
            )
        if isinstance(content, Path) and str(content).startswith(self._prefix):
            os.link(content, temp, follow_symlinks=False)
            os.chmod(temp, 0o444)
            if sync:
                _fsync_path(temp)
            return temp, hash_file(temp)
        # a written name is never altered
        fd = os.open(temp, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o444)
        try:
            if isinstance(content, bytes):
                _write_whole(fd, content)
                stored = Stored(("sha256:" + hashlib.sha256(content).hexdigest(), len(content)))
            else:
                stored = _copy_hashing(content, fd)
            if sync:
                os.fsync(fd)
        finally:
            os.close(fd)
        return temp, stored

    def _link(self, temp: Path, target: Path) -> bool:
        try:
            # unlike rename, never replaces: what is immutable stays
            self._inside(target.parent, lambda: os.link(temp, target))
        except FileExistsError:
            if not stat.S_ISREG(os.lstat(target).st_mode):
                raise _no_file(str(target)[len(self._prefix) :]) from None
            return False
        return True

    def create(self, path: str, content: bytes | Path) -> bool:
        target = self.local(path)
        with _failing(path):
            temp, _ = self._fill(content, sync=True)
            made = self._link(temp, target)
            # also when another made it: its name may not be durable yet, and we rely on it
            sync_folder(target.parent)
            temp.unlink()
        return made

    def create_all(self, files: Mapping[str, bytes | Path]) -> dict[str, Stored]:
        if not files:
            return {}
        with _failing(next(iter(files))):
            return self._create_all(files)

    def _create_all(self, files: Mapping[str, bytes | Path]) -> dict[str, Stored]:
        targets = {path: self.local(path) for path in files}
        many = len(files) >= _BATCH
        # One after the other: threads would queue for the temp folder and the interpreter, and take
        # twice as long.
        filled = {path: self._fill(content, sync=not many) for path, content in files.items()}
        if many and not _syncfs(self.root):
            for temp, _ in filled.values():
                _fsync_path(temp)
        for path, (temp, stored) in filled.items():
            if not self._link(temp, targets[path]):
                _check_same(path, targets[path], stored)
            temp.unlink()
        for folder in sorted({t.parent for t in targets.values()}):
            sync_folder(folder)
        return {path: stored for path, (_, stored) in filled.items()}

    def replace(self, path: str, content: bytes) -> None:
        target = self.local(path)
        with _failing(path):
            temp, _ = self._fill(content, sync=True)
            self._inside(target.parent, lambda: os.replace(temp, target))
            sync_folder(target.parent)

    def append(self, path: str, lines: bytes) -> None:
        target = self.local(path)
        with _failing(path):
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
            fd = self._inside(target.parent, lambda: os.open(target, flags, 0o644))
            try:
                _write_whole(fd, lines)
            finally:
                os.close(fd)

    def remove(self, path: str) -> None:
        target = self.local(path)
        with contextlib.suppress(FileNotFoundError):
            target.unlink()

    def remove_all(self, paths: Sequence[str]) -> None:
        for path in paths:
            self.remove(path)
        base = self.local("x").parent
        for folder in sorted(
            {self.local(path).parent for path in paths}, key=lambda f: len(f.parts), reverse=True
        ):
            while (
                folder.is_relative_to(base)
                and len(folder.relative_to(base).parts) > 1
                and folder.is_dir()
            ):
                sync_folder(folder)  # until then the names may come back with the power
                try:
                    folder.rmdir()
                except OSError:
                    break  # not empty
                self._synced.discard(folder)
                folder = folder.parent
            if folder.is_dir():
                sync_folder(folder)

    def remove_folders(self, folders: Sequence[str]) -> None:
        for folder in sorted(set(folders), key=len, reverse=True):
            with contextlib.suppress(OSError):  # not empty, or gone already
                self.local(folder).rmdir()

    # ---- reading ---------------------------------------------------------------------------------
    def read(self, path: str) -> bytes:
        # a pipe in the place of a file would be waited for until somebody writes into it
        fd = os.open(self.local(path), os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:  # of a folder no file can be made
            if not stat.S_ISREG(os.fstat(fd).st_mode):
                raise _no_file(path)
        except BaseException:
            os.close(fd)
            raise
        with os.fdopen(fd, "rb") as file:
            return file.read()

    def exists(self, path: str) -> bool:
        target = self.local(path)
        if target.is_file():
            return True
        if os.path.lexists(target):  # nothing can be made there, and nothing read
            raise _no_file(path)
        return False

    def stat(self, path: str) -> Stored | None:
        target = self.local(path)
        return hash_file(target) if target.is_file() else None

    def held(self, path: str) -> Held | None:
        return held_file(self.local(path))

    def free(self) -> int | None:
        place = self.local("x").parent
        if not place.exists():
            return None
        found = os.statvfs(place)
        return found.f_bavail * found.f_frsize

    def names(self, prefix: str) -> Iterator[str]:
        base = self.root / prefix
        if not base.is_dir():
            return
        for folder, names, files in os.walk(base):
            names[:] = sorted(n for n in names if n != ".tmp")
            for name in sorted(files):
                yield os.path.relpath(os.path.join(folder, name), self.root)


def _check_same(path: str, target: Path, stored: Stored) -> None:
    if hash_file(target) != stored:
        raise IntegrityError(
            f"{path} exists with other bytes.",
            expected=f"{stored.digest}",
            remedy=(
                "Run `kfm verify` on this dataset; a damaged file is restored by removing it and"
                " running again."
            ),
        )


def _no_file(path: str) -> IntegrityError:
    return IntegrityError(
        f"{path} is no file: a folder, or a link to nowhere, stands in its place.",
        expected="a file, or nothing",
        remedy="Move it away, then run again.",
    )


def _fsync_path(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


@contextlib.contextmanager
def _failing(path: str) -> Iterator[None]:
    """A full disk, an I/O error or a read-only folder becomes a failed step with a name."""
    try:
        yield
    except OSError as error:
        known = {
            errno.ENOSPC: "the disk is full",
            errno.EDQUOT: "the quota is used up",
            errno.EROFS: "the file system is read-only",
        }
        known |= {
            errno.EACCES: "the folder is not writable",
            errno.EPERM: "the folder is not writable",
            errno.EIO: "the disk reports an I/O error",
        }
        if error.errno not in known and error.errno != errno.ENOTDIR:
            raise
        why = known.get(error.errno or 0, "a file stands where a folder is needed")
        raise StepFailed(
            f"{path} could not be written: {why}.",
            expected="a writable zone with space left",
            remedy="Mend that, then run again: what is official is unchanged, the run is resumed.",
        ) from error
