"""The way into a workspace for one reader, opened anew for every question."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from kfm.access.boundary import Reader
from kfm.access.references import dataset_of
from kfm.workspace.folder import Workspace as Folder
from kfm.workspace.wiring import open_world
from kfm.world.world import World

__all__ = ["Asker"]


@dataclass(frozen=True)
class Asker:
    """A workspace, and who asks for something in it."""

    folder: Folder
    reader: Reader

    @contextmanager
    def world(self, *, asks: bool = True) -> Iterator[World]:
        """The workspace as it is now: a rule, a label or a key that was changed since the last
        question counts.
        """
        with open_world(self.folder, asks=asks) as world:
            yield world

    def require(self, world: World, ref: str) -> None:
        """Raise `UsageError` with the nearest name when a reference names no dataset of here."""
        name = dataset_of(ref)
        if not world.data.exists(world.channel(name).path(1)):
            self.folder.require(name)
