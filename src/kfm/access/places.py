"""Where and when a version is, for an index that shows nobody anything: the boundary decides about
each that is shown.
"""

from contextlib import suppress

import msgspec

from kfm.model import KfmError, ids
from kfm.model.paths import items_path, version_path
from kfm.world.world import World

__all__ = ["Place", "keep_places", "kept_places", "place_of"]


class Place(msgspec.Struct, frozen=True):
    """What `version.json` says of that."""

    bbox: tuple[float, float, float, float] | None
    interval: tuple[str, str] | None


def place_of(world: World, dataset_id: str, version_id: str) -> Place:
    """Raises `OSError`, and `msgspec.DecodeError` for a record that is damaged."""
    raw = world.data.read(version_path(dataset_id, version_id, "version.json"))
    return msgspec.json.decode(raw, type=Place)


def kept_places(world: World, dataset_id: str) -> bytes | None:
    """What was kept of a dataset, as it was written; None: there is nothing, or it is damaged."""
    try:
        digest, _, body = world.data.read(items_path(dataset_id)).partition(b"\n")
    except (KfmError, OSError):
        return None
    return body if ids.digest(body).encode() == digest else None


def keep_places(world: World, dataset_id: str, body: bytes) -> None:
    """Keep it for who begins next, its digest before it. Nothing is kept in plain text of what is
    sealed, and who may only read here keeps nothing.
    """
    if not world.is_withheld(dataset_id):
        with suppress(KfmError, OSError):
            world.data.replace(items_path(dataset_id), ids.digest(body).encode() + b"\n" + body)
