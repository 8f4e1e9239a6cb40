"""A publisher that writes into the zones of this workspace."""

from collections.abc import Mapping
from pathlib import Path

from kfm.model import Json, canonical
from kfm.model.paths import tagged_path
from kfm.zones.base import Zone

__all__ = ["LocalPublisher"]


class LocalPublisher:
    """Truth through `create`, projections through `replace`, releases as one marker file each."""

    def __init__(self, data: Zone, root: Zone) -> None:
        self._data, self._root = data, root
        self.events: list[tuple[str, Json]] = []

    def write_file(self, path: str, content: bytes | Path) -> str:
        return self._data.create_all({path: content})[path].digest

    def emit_event(self, name: str, payload: Mapping[str, object]) -> None:
        self.events.append((name, dict(payload)))

    def update_metadata(self, key: str, value: bytes) -> None:
        self._data.replace(key, value)

    def publish_release(self, tag: str, assets: Mapping[str, str]) -> bool:
        return self._root.create(
            tagged_path(tag), canonical.dumps({"tag": tag, "assets": dict(assets)}) + b"\n"
        )

    def noop_guard(self) -> None:
        raise AssertionError(
            "A local publisher writes for real; a dry run must be wired with the no-op publisher."
        )
