"""What a publisher promises: each effect is one call, and in a dry run none of them leaves the
run's own folder.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

__all__ = ["Publisher"]


class Publisher(Protocol):
    """The documents' face for effects. `write_file` goes to zones; release and event are
    external.
    """

    def write_file(self, path: str, content: bytes | Path) -> str:
        """Make `content` durable under `path`, once; returns its digest."""

    def emit_event(self, name: str, payload: Mapping[str, object]) -> None:
        """Tell telemetry; may be lost."""

    def update_metadata(self, key: str, value: bytes) -> None:
        """Render the projection `key`."""

    def publish_release(self, tag: str, assets: Mapping[str, str]) -> bool:
        """Announce `assets` (path: digest) under `tag`; False when that tag was announced
        already.
        """

    def noop_guard(self) -> None:
        """Raise when this publisher could change something outside a dry run's own folder."""
