"""A folder that appears whole or not at all, and takes the place only of one that was made so."""

import contextlib
import fcntl
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import msgspec

from kfm.model import UsageError
from kfm.zones.base import hash_file
from kfm.zones.durable import sync_folder

__all__ = ["MANIFEST", "Manifest", "listed", "putting"]

MANIFEST = "kfm-site.json"


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """What a copy holds; by it a later one knows that it may take its place."""

    datasets: dict[str, list[int]]  # generations
    files: dict[str, str]  # with their digests


@contextlib.contextmanager
def putting(folder: Path) -> Iterator[Path]:
    """A folder to fill; it takes its place when nothing was raised. Raises `UsageError` where
    something is that was not made here.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    mark = os.urandom(4).hex()
    partial, old = (folder.with_name(f".{folder.name}.{mark}.{end}") for end in ("tmp", "old"))
    with contextlib.ExitStack() as stack:
        with _locked(folder.parent):
            _tidy(folder)
            _check_ours(folder)
            partial.mkdir()
            stack.enter_context(_locked(partial))  # by which others know that somebody fills it
        try:
            yield partial
            with _locked(folder.parent):
                _check_ours(folder)  # nobody put something there meanwhile
                if folder.exists():
                    folder.rename(old)
                partial.rename(folder)
                sync_folder(folder.parent)
        finally:
            if old.exists() and not folder.exists():  # whatever stopped it, the earlier copy stays
                old.rename(folder)
            for left in (partial, old):
                shutil.rmtree(left, ignore_errors=True)


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Alone with a folder; it is let go with the process, however that ends."""
    held = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(held, fcntl.LOCK_EX)
        yield
    finally:
        os.close(held)


def _tidy(folder: Path) -> None:
    """What one that was killed has left: the earlier copy comes back where nothing took its place,
    the rest goes.
    """
    named = re.compile(rf"\.{re.escape(folder.name)}\.[0-9a-f]{{8}}\.(tmp|old)")
    for left in sorted(folder.parent.iterdir()):
        found = named.fullmatch(left.name)
        if found is None or left.is_symlink() or not left.is_dir() or _is_held(left):
            continue
        if found[1] == "old" and not folder.exists() and not folder.is_symlink():
            left.rename(folder)
        else:
            shutil.rmtree(left, ignore_errors=True)


def _is_held(folder: Path) -> bool:
    held = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(held)
    return False


def listed(folder: Path) -> dict[str, str]:
    """Every file of a folder with its digest, the manifest apart."""
    return {
        path.relative_to(folder).as_posix(): hash_file(path).digest
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != MANIFEST
    }


def _check_ours(folder: Path) -> None:
    if not folder.exists() and not folder.is_symlink():
        return
    if folder.is_dir() and not folder.is_symlink():
        if not any(folder.iterdir()):
            return
        with contextlib.suppress(OSError, msgspec.MsgspecError):
            known = msgspec.json.decode((folder / MANIFEST).read_bytes(), type=Manifest)
            if all(not p.is_symlink() for p in folder.rglob("*")) and known.files == listed(folder):
                return
    raise UsageError(
        f"{folder} holds something that `kfm export site` did not make, or that was changed since.",
        expected="no folder, an empty one, or a copy as it was made",
        remedy="Name another folder, or take that one away.",
    )
