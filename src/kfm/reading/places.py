"""Where and when a version is, for an index that shows nobody anything: the boundary decides about
each that is shown.
"""

import msgspec

from kfm.model.paths import version_path
from kfm.world.world import World

__all__ = ["Place", "place_of"]


class Place(msgspec.Struct, frozen=True):
    """What `version.json` says of that."""

    bbox: tuple[float, float, float, float] | None
    interval: tuple[str, str] | None


def place_of(world: World, dataset_id: str, version_id: str) -> Place:
    """Raises `OSError`, and `msgspec.DecodeError` for a record that is damaged."""
    raw = world.data.read(version_path(dataset_id, version_id, "version.json"))
    return msgspec.json.decode(raw, type=Place)
