"""`ledger/webhook_failures.jsonl`: what was refused and why; no body, no secret, and of each source
only the newest.
"""

import fcntl
import os
import re
from collections import deque
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from kfm.model import masked
from kfm.model.ids import ID_PATTERN
from kfm.zones.durable import replace_durably

__all__ = ["KEPT", "NAME", "Failure", "Failures", "read_failures"]

NAME = "webhook_failures.jsonl"
KEPT = 500  # lines of one source; sources that are not there are one together
_LARGE = 2 << 20  # bytes at which the file is looked through
_PLAIN = re.compile(ID_PATTERN)


class Failure(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One line: a request that was not taken."""

    at: str
    source_id: str  # as it was asked for; empty: that was no name
    known: bool  # whether there is such a source
    status: int
    code: str
    field: str = ""
    body_bytes: int = 0
    body_digest: str = ""  # empty: too large to be read
    remote: str = ""
    correlation_id: str = ""

    def named(self) -> "Failure":
        """The same, without a name that cannot be one."""
        fits = _PLAIN.fullmatch(self.source_id) is not None
        return self if fits else msgspec.structs.replace(self, source_id="")


class Failures:
    """Appends lines; many receivers may."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / NAME
        self._lock = folder / f".{NAME}.lock"
        self._large = _LARGE

    def write(self, batch: Sequence[Failure]) -> list[None]:
        """All lines at once. A disk that takes none is no reason to answer otherwise."""
        text = masked("".join(_line(failure.named()) for failure in batch)).encode()
        try:
            self._append(text)
        except OSError:
            pass
        return [None] * len(batch)

    def _append(self, text: bytes) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        lock = os.open(self._lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            with self._path.open("ab") as file:
                file.write(text)
                large = file.tell() > self._large
            if large:
                self._thin()
        finally:
            os.close(lock)

    def _thin(self) -> None:
        newest: dict[str, deque[tuple[int, Failure]]] = {}
        for number, failure in enumerate(read_failures(self._path.parent)):
            name = failure.source_id if failure.known else ""
            newest.setdefault(name, deque(maxlen=KEPT)).append((number, failure))
        kept = sorted((pair for lines in newest.values() for pair in lines), key=lambda p: p[0])
        text = "".join(_line(failure) for _, failure in kept).encode()
        replace_durably(self._path, text)
        self._large = max(_LARGE, 2 * len(text))


def _line(failure: Failure) -> str:
    return msgspec.json.encode(failure).decode() + "\n"


def read_failures(folder: Path) -> Iterator[Failure]:
    """Every line that is whole, oldest first."""
    try:
        lines = (folder / NAME).read_bytes().splitlines()
    except FileNotFoundError:
        return
    for line in lines:
        try:
            yield msgspec.json.decode(line, type=Failure)
        except msgspec.DecodeError:
            continue  # cut short by a full disk
