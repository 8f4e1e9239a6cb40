"""What a zone promises: a name appears whole or not at all, and what is written once stays as it was."""

import hashlib
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol

from kfm.model.errors import UsageError

__all__ = ["copied", "Stored", "Zone", "check_path", "hash_file", "lines_of", "note", "room"]


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


def lines_of(path: Path) -> Iterator[bytes]:
    """A file line by line."""
    with path.open("rb") as file:
        yield from file


def copied(path: Path, into: Path) -> Path:
    """A copy of `path` for somebody who may do with it what they like."""
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
        raise UsageError(f"{path!r} is not a path inside the zone.", expected="a relative path without '..'", remedy="Correct the name.")
    return path


class Zone(Protocol):
    """Named bytes. Every call may be repeated after a crash."""

    def create(self, path: str, content: bytes | Path) -> bool:
        """Make `content` durable under `path`; False when the name is taken already (its bytes stay)."""

    def create_all(self, files: Mapping[str, bytes | Path]) -> dict[str, Stored]:
        """`create` for many, with few waits for the disk; a name that is taken must hold the same bytes."""

    def replace(self, path: str, content: bytes) -> None:
        """Render a projection: whole, durable, over what was there."""

    def append(self, path: str, lines: bytes) -> None:
        """Add to a log; may be lost by a power cut, never torn in the middle of earlier lines."""

    def read(self, path: str) -> bytes: ...
    def stat(self, path: str) -> Stored | None:
        """Digest and size by reading the bytes, None when the name is free."""

    def exists(self, path: str) -> bool: ...
    def names(self, prefix: str) -> Iterator[str]:
        """Every name under `prefix`, sorted."""

    def remove(self, path: str) -> None: ...
    def remove_all(self, paths: Sequence[str]) -> None:
        """`remove` for many, durably, with the folders that are empty then."""

    def scratch(self) -> AbstractContextManager[Path]:
        """A private folder on the same file system, gone afterwards, also when its process dies."""

    def local(self, path: str) -> Path:
        """A file that a child process may read."""
