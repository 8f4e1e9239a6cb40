"""A publisher for dry runs: files go to the overlay of the run's own folder, everything external
stays undone.
"""

from collections.abc import Mapping
from pathlib import Path

from kfm.world.publisher.local import LocalPublisher
from kfm.zones.base import Zone

__all__ = ["NoopPublisher"]


class NoopPublisher:
    """Without a zone it drops everything; with one (the overlay) files are kept there for the rest
    of the run to read.
    """

    def __init__(self, overlay: Zone | None = None) -> None:
        self._inner = LocalPublisher(overlay, overlay) if overlay is not None else None

    def write_file(self, path: str, content: bytes | Path) -> str:
        if self._inner is not None:
            return self._inner.write_file(path, content)
        from kfm.model.ids import digest

        return digest(content if isinstance(content, bytes) else content.read_bytes())

    def emit_event(self, name: str, payload: Mapping[str, object]) -> None:
        return None

    def update_metadata(self, key: str, value: bytes) -> None:
        if self._inner is not None:
            self._inner.update_metadata(key, value)

    def publish_release(self, tag: str, assets: Mapping[str, str]) -> bool:
        return True

    def noop_guard(self) -> None:
        return None
