"""Lock files that die with their process: a free lock means its holder is gone, whatever the lease
row says.
"""

import contextlib
import fcntl
import os
from pathlib import Path

from kfm.store.base import Token
from kfm.zones.flock import is_unlocked

__all__ = ["LockFolder", "NoLocks"]


class LockFolder:
    """One file per lease and token under `ledger/locks/`, flocked by the holder for as long as it
    lives.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._held: dict[Token, int] = {}

    def _path(self, token: Token) -> Path:
        return self._folder / f"{token.lease.replace('/', '~')}.{token.epoch}-{token.number}"

    def hold(self, token: Token) -> None:
        """Create and lock the file of a token that nobody else can have."""
        self._folder.mkdir(parents=True, exist_ok=True)
        fd = os.open(self._path(token), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        self._held[token] = fd

    def is_dead(self, token: Token) -> bool:
        """True when no process holds the file of `token`."""
        if token in self._held:
            return False
        return is_unlocked(self._path(token))

    def drop(self, token: Token) -> None:
        """Unlock and remove; also clears the file of a dead holder."""
        fd = self._held.pop(token, None)
        with contextlib.suppress(FileNotFoundError):
            self._path(token).unlink()
        if fd is not None:
            os.close(fd)

    def forget_all(self) -> None:
        """Let go of every lock without touching the files, as the death of this process would."""
        for fd in self._held.values():
            os.close(fd)
        self._held.clear()

    def held(self) -> list[Token]:
        return list(self._held)

    def stale_files(self) -> list[Path]:
        """Lock files that no process holds."""
        if not self._folder.is_dir():
            return []
        mine = {self._path(t) for t in self._held}
        return [p for p in sorted(self._folder.iterdir()) if p not in mine and is_unlocked(p)]


class NoLocks:
    """Holders on other machines leave no lock files: there only the expiry tells. What we hold
    ourselves is remembered.
    """

    def __init__(self) -> None:
        self._held: set[Token] = set()

    def hold(self, token: Token) -> None:
        self._held.add(token)

    def is_dead(self, token: Token) -> bool:
        return False

    def drop(self, token: Token) -> None:
        self._held.discard(token)

    def held(self) -> list[Token]:
        return sorted(self._held)

    def stale_files(self) -> list[Path]:
        return []
