"""A zone for dry runs: reads see the real zone, writes stay in a folder of the run's own."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

from kfm.zones.base import Held, Stored, Zone
from kfm.zones.local import LocalZone

__all__ = ["OverlayZone"]


class OverlayZone(Zone):
    """`upper` over `lower`; names under `through` go to `lower` itself (the run's own
    artifacts).
    """

    def __init__(self, lower: LocalZone, upper: LocalZone, through: str) -> None:
        self.lower, self.upper, self._through = lower, upper, through.rstrip("/") + "/"

    def _writer(self, path: str) -> LocalZone:
        return self.lower if path.startswith(self._through) else self.upper

    def _reader(self, path: str) -> LocalZone:
        return self.upper if self.upper.exists(path) else self.lower

    def create(self, path: str, content: bytes | Path) -> bool:
        if self._writer(path) is self.upper and self.lower.exists(path):
            return False
        return self._writer(path).create(path, content)

    def create_all(self, files: Mapping[str, bytes | Path]) -> dict[str, Stored]:
        return self.upper.create_all(files)

    def replace(self, path: str, content: bytes) -> None:
        self._writer(path).replace(path, content)

    def append(self, path: str, lines: bytes) -> None:
        self._writer(path).append(path, lines)

    def remove(self, path: str) -> None:
        self._writer(path).remove(path)

    def remove_all(self, paths: Sequence[str]) -> None:
        for path in paths:
            self.remove(path)

    def read(self, path: str) -> bytes:
        return self._reader(path).read(path)

    def exists(self, path: str) -> bool:
        return self.upper.exists(path) or self.lower.exists(path)

    def stat(self, path: str) -> Stored | None:
        return self._reader(path).stat(path)

    def held(self, path: str) -> Held | None:
        return self.upper.held(path) or self.lower.held(path)

    def local(self, path: str) -> Path:
        return self._reader(path).local(path)

    def names(self, prefix: str) -> Iterator[str]:
        yield from sorted({*self.upper.names(prefix), *self.lower.names(prefix)})

    def scratch(self) -> AbstractContextManager[Path]:
        return self.upper.scratch()

    def remove_folders(self, folders: Sequence[str]) -> None:
        self.upper.remove_folders(folders)

    def leftovers(self) -> list[str]:
        return []

    def sweep(self) -> list[str]:
        return []

    def free(self) -> int | None:
        return self.lower.free()

    def close(self) -> None:
        self.upper.close()
