"""What was derived from a version that the boundary opened: its tiles. They show no more than the
version does.
"""

from pathlib import Path
from typing import NamedTuple

import msgspec

from kfm.access.boundary import Opened
from kfm.model import KfmError
from kfm.model.paths import version_tiles_folder
from kfm.world.world import World

__all__ = ["Derived", "tiles_of"]


class Derived(NamedTuple):
    """A file, and its digest as it was written down when it was made."""

    path: Path
    digest: str


class _Note(msgspec.Struct, frozen=True):
    """What `tiles.json` says that is needed here."""

    file: str
    checksum: str
    sources: dict[str, str]


def tiles_of(world: World, opened: Opened) -> Derived | None:
    """The tiles of a version; None: there are none that can be had, or they were made of other files.
    `kfm doctor` says what is wrong with those that cannot.
    """
    folder = version_tiles_folder(opened.dataset_id, opened.version_id)
    try:
        note = msgspec.json.decode(world.data.read(f"{folder}/tiles.json"), type=_Note)
    except (KfmError, OSError, msgspec.MsgspecError):
        return None
    if "/" in note.file or not note.sources.items() <= opened.digests.items():
        return None
    return Derived(world.data.local(f"{folder}/{note.file}"), note.checksum)
