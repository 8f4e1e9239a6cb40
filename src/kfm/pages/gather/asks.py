"""Whom pages ask: the door that a request came through, and whether its viewer runs things."""

from collections.abc import Iterable
from contextlib import suppress

from kfm.access.boundary import Opened, Reader
from kfm.access.references import Ref
from kfm.model import VersionFacts
from kfm.reader.ask import Focus, citations, focus_of
from kfm.reader.door import Asking, Hidden, NoLonger
from kfm.story.node import Proof
from kfm.workspace.folder import Workspace
from kfm.world.world import World

__all__ = ["Asks"]


class Asks:
    """One request for a page. What its viewer may not know of raises, and is answered there."""

    def __init__(self, asking: Asking, *, operator: bool = False, copy: bool = False) -> None:
        self._asking = asking
        self.is_operator = operator  # sees how things are run, beside what is published
        self.is_copy = copy  # for a page that is read long after: nothing of now is told

    @property
    def asking(self) -> Asking:
        return self._asking

    @property
    def workspace(self) -> Workspace:
        return self._asking.workspace

    @property
    def world(self) -> World:
        return self._asking.world

    @property
    def reader(self) -> Reader:
        return self._asking.viewer.reader

    @property
    def address(self) -> str:
        """How this server is called, for lines that are pasted elsewhere."""
        return self._asking.address

    def known(self, text: str) -> Ref:
        return self._asking.known(text)

    def seen(self, text: str) -> Ref | None:
        """The same, where what may not be known is left out."""
        with suppress(Hidden, NoLonger):
            return self._asking.known(text)
        return None

    def focus(self, dataset_id: str, which: str, q: str = "") -> Focus:
        """Questions about a version, answered."""
        return focus_of(self._asking, dataset_id, which, q, now=not self.is_copy)

    def opens(self, ref: Ref, proofs: Iterable[Proof]) -> dict[str, str]:
        """Where files that show something are had, by their digests."""
        found = citations(self._asking, ref, proofs)
        return {digest: at.removeprefix(self.address) for digest, at in found.items()}

    def facts(self, text: str) -> VersionFacts:
        return self._asking.facts(text)[1]

    def folder(self, text: str) -> Opened:
        return self._asking.folder(text)

    def data(self, text: str) -> Opened:
        return self._asking.data(text)
