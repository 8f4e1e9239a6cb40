"""What a publisher promises: each effect is one call, and in a dry run none of them leaves the
run's own folder.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Protocol, runtime_checkable

from kfm.model import Json

__all__ = ["Finishing", "Publisher"]


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


@runtime_checkable
class Finishing(Protocol):
    """A publisher that has something to do when a process publishes no more."""

    def finish(self, report: Callable[[Sequence[Json]], None]) -> None:
        """Tell `report` of the runs that ended; what fails is recorded and not raised, for they
        have.
        """
