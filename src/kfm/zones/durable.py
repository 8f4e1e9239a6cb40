"""Small files outside the zones that appear whole or not at all: keys, pins, registry entries."""

import os
from collections.abc import Mapping
from pathlib import Path

__all__ = ["create_durably", "create_folder_durably", "replace_durably", "sync_folder"]


def create_durably(path: Path, content: bytes, mode: int = 0o644) -> None:
    """Make `content` appear at `path`; raises `FileExistsError` when the name is taken."""
    temp = _written(path, content, mode)
    try:
        os.link(temp, path)
        _sync_names(path)
    finally:
        temp.unlink(missing_ok=True)


def create_folder_durably(folder: Path, content: Mapping[str, bytes]) -> None:
    """Make a folder with all of these files appear; raises `OSError` when the name is taken by one
    that holds something.
    """
    partial = folder.with_name(f".{folder.name}.{os.urandom(4).hex()}.tmp")
    try:
        for name, body in content.items():
            create_durably(partial / name, body)
        partial.rename(folder)
    except BaseException:
        for name in content:
            (partial / name).unlink(missing_ok=True)
        partial.rmdir()
        raise
    _sync_names(folder)


def replace_durably(path: Path, content: bytes, mode: int = 0o644) -> None:
    """Make `content` appear at `path` in place of what is there."""
    temp = _written(path, content, mode)
    try:
        temp.replace(path)
        _sync_names(path)
    finally:
        temp.unlink(missing_ok=True)


def _written(path: Path, content: bytes, mode: int) -> Path:
    """A file beside `path` that nobody else writes to, already on the disk."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temp = path.parent / f".{path.name}.{os.urandom(4).hex()}.tmp"
    try:
        with os.fdopen(
            os.open(temp, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode), "wb"
        ) as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
    except BaseException:
        temp.unlink(missing_ok=True)
        raise
    return temp


def _sync_names(path: Path) -> None:
    for folder in (path.parent, path.parent.parent):
        sync_folder(folder)


def sync_folder(folder: Path) -> None:
    """Make what was created, renamed or removed in a folder durable."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
