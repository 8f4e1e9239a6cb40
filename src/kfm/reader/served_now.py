"""Where a workspace is served now: a note for each reader that listens, held for as long as it
does. Whoever is killed leaves its note behind, and lets go of it.
"""

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

import msgspec

from kfm.zones.flock import is_unlocked

__all__ = ["Noted", "noted", "readers"]


class Noted(msgspec.Struct, frozen=True, kw_only=True):
    """A reader that listens."""

    url: str
    console: bool  # it also shows how things are run


@contextlib.contextmanager
def noted(workspace: Path, reader: Noted) -> Iterator[None]:
    """While a reader listens. Where nothing can be written nobody finds it; it reads all the same."""
    held: int | None = None
    path = _folder(workspace) / f"{os.getpid()}-{reader.url.rpartition(':')[2]}.json"
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        _sweep(path.parent)
        held = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.write(held, msgspec.json.encode(reader))
    try:
        yield
    finally:
        if held is not None:
            path.unlink(missing_ok=True)
            os.close(held)


def readers(workspace: Path) -> list[Noted]:
    """Every reader that listens now, those that show how things are run first."""
    found = []
    for path in sorted(_folder(workspace).glob("*.json")):
        with contextlib.suppress(OSError, msgspec.MsgspecError):
            if not is_unlocked(path):
                found.append(msgspec.json.decode(path.read_bytes(), type=Noted))
    return sorted(found, key=lambda one: (not one.console, one.url))


def _sweep(folder: Path) -> None:
    """Notes of readers that are no more."""
    for path in folder.glob("*.json"):
        if is_unlocked(path):
            path.unlink(missing_ok=True)


def _folder(workspace: Path) -> Path:
    return workspace / "ledger" / "readers"
