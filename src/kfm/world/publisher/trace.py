"""A publisher that writes down every call, in order, before passing it on."""

from collections.abc import Callable, Mapping
from pathlib import Path

from kfm.model import Json
from kfm.model.ids import digest
from kfm.world.publisher.base import Publisher

__all__ = ["TracePublisher"]


class TracePublisher:
    """Wraps another publisher; `record` receives one line per call with a strictly increasing
    `seq`.
    """

    def __init__(
        self, inner: Publisher, record: Callable[[Json], None], marks: Mapping[str, object]
    ) -> None:
        self._inner, self._record, self._marks = inner, record, dict(marks)

    def _note(self, call: str, **fields: object) -> None:
        self._record({"call": call, **fields, **self._marks})

    def write_file(self, path: str, content: bytes | Path) -> str:
        size = len(content) if isinstance(content, bytes) else content.stat().st_size
        self._note("write_file", path=path, size=size)
        return self._inner.write_file(path, content)

    def emit_event(self, name: str, payload: Mapping[str, object]) -> None:
        self._note("emit_event", name=name, event_id=payload.get("event_id"))
        self._inner.emit_event(name, payload)

    def update_metadata(self, key: str, value: bytes) -> None:
        self._note("update_metadata", key=key, digest=digest(value))
        self._inner.update_metadata(key, value)

    def publish_release(self, tag: str, assets: Mapping[str, str]) -> bool:
        self._note("publish_release", tag=tag, assets=dict(assets))
        return self._inner.publish_release(tag, assets)

    def noop_guard(self) -> None:
        self._note("noop_guard")
        self._inner.noop_guard()
