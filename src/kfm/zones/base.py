"""What a zone promises: a name appears whole or not at all, and what is written once stays as it
was.
"""

import hashlib
import re
import stat
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import NamedTuple, Protocol

from kfm.model import IntegrityError, UsageError

__all__ = [
    "Held",
    "Stored",
    "Zone",
    "check_path",
    "copied",
    "hash_file",
    "held_file",
    "lines_of",
    "note",
    "room",
]


class Stored(tuple[str, int]):
    """(digest, size) of what lies under a name."""

    __slots__ = ()

    @property
    def digest(self) -> str:
        return self[0]

    @property
    def size(self) -> int:
        return self[1]


def hash_file(path: Path) -> Stored:
    with path.open("rb", buffering=0) as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return Stored(("sha256:" + digest, path.stat().st_size))


class Held(NamedTuple):
    """What is known of a name without reading its bytes."""

    size: int
    written_ns: int  # since 1970
    names: int  # how many names these bytes have
    bytes_id: tuple[int, int]  # the same for each of those names


def held_file(path: Path) -> Held | None:
    """What is known of a file; None: there is none."""
    try:
        found = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    if not stat.S_ISREG(found.st_mode):
        return None
    return Held(found.st_size, found.st_mtime_ns, found.st_nlink, (found.st_dev, found.st_ino))


def lines_of(path: Path) -> Iterator[bytes]:
    """A file line by line."""
    with path.open("rb") as file:
        yield from file


def copied(path: Path, into: Path) -> Path:
    """A copy of `path` for somebody who may do with it what they like."""
    import shutil  # a NOOP starts faster without it

    shutil.copyfile(path, into)
    return into


def room(scratch: Path, name: str) -> Path:
    """A folder of its own inside a scratch folder."""
    (scratch / name).mkdir(exist_ok=True)
    return scratch / name


def note(path: Path, content: bytes) -> Path:
    """`content` in a scratch file."""
    path.write_bytes(content)
    return path


def check_path(path: str) -> str:
    """`path` if it is relative, plain and stays where it is joined."""
    parts = path.split("/")
    if (
        not path
        or path.startswith("/")
        or "\\" in path
        or "\x00" in path
        or any(p in ("", ".", "..") for p in parts)
        or re.match(r"[A-Za-z]:", path)
    ):
        raise UsageError(
            f"{path!r} is not a path inside the zone.",
            expected="a relative path without '..'",
            remedy="Name it from the folder of the zone on, without a slash at the front.",
        )
    return path


class Zone(Protocol):
    """Named bytes. Every call may be repeated after a crash. This is all that other rooms use of a
    zone.
    """

    def create(self, path: str, content: bytes | Path) -> bool:
        """Make `content` durable under `path`; False when the name is taken already (its bytes
        stay).
        """

    def create_all(self, files: Mapping[str, bytes | Path]) -> dict[str, Stored]:
        """`create` for many, with few waits for the disk; a name that is taken must hold the same
        bytes.
        """

    def replace(self, path: str, content: bytes) -> None:
        """Render a projection: whole, durable, over what was there."""

    def append(self, path: str, lines: bytes) -> None:
        """Add to a log; may be lost by a power cut, never torn in the middle of earlier lines."""

    def read(self, path: str) -> bytes: ...
    def stat(self, path: str) -> Stored | None:
        """Digest and size by reading the bytes, None when the name is free."""

    def holds(self, path: str, digest: str) -> bool:
        """Whether the bytes under `path` are those of `digest`."""
        found = self.stat(path)
        return found is not None and found.digest == digest

    def require(
        self,
        path: str,
        digest: str,
        remedy: str = "Restore it from a backup; `kfm verify` lists what is damaged.",
    ) -> Stored:
        """What lies under `path`. Raises `IntegrityError` with `remedy` when that is nothing, or
        not the bytes of `digest`.
        """
        found = self.stat(path)
        if found is None or found.digest != digest:
            raise IntegrityError(
                f"{path} is {'missing' if found is None else 'damaged'}.",
                expected=digest,
                remedy=remedy,
            )
        return found

    def held(self, path: str) -> Held | None:
        """Size and age of a name, and who shares its bytes, without reading them; None when the
        name is free.
        """

    def exists(self, path: str) -> bool: ...
    def names(self, prefix: str) -> Iterator[str]:
        """Every name under `prefix`, sorted."""

    def remove(self, path: str) -> None: ...
    def remove_all(self, paths: Sequence[str]) -> None:
        """`remove` for many, durably, with the folders that are empty then."""

    def remove_folders(self, folders: Sequence[str]) -> None:
        """Remove those of `folders` that are empty; where there are only names there is nothing to
        do.
        """

    def scratch(self) -> AbstractContextManager[Path]:
        """A private folder on the same file system, gone afterwards, also when its process dies."""

    def leftovers(self) -> list[str]:
        """The names of scratch folders whose process is gone."""

    def sweep(self) -> list[str]:
        """Remove what dead processes left; returns the names."""

    def free(self) -> int | None:
        """How many bytes still fit; None: nobody knows."""

    def close(self) -> None:
        """Give back what this process holds of the zone; its scratch goes."""

    def local(self, path: str) -> Path:
        """A file that a child process may read."""
