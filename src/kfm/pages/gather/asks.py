"""Whom pages ask: the door that a request came through, and whether its viewer runs things."""

from collections.abc import Iterable
from contextlib import suppress

from kfm.access.boundary import Opened, Reader
from kfm.access.references import Ref
from kfm.model import DatasetEntry, UsageError, VersionFacts
from kfm.pages import addresses
from kfm.reader.ask import Focus, citations, focus_of
from kfm.reader.door import LEFT_OUT, Asking, Hidden
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

    def entry(self, dataset_id: str) -> DatasetEntry:
        """What is registered of a dataset. Raises `Hidden` where nothing is."""
        try:
            return self.workspace.require(dataset_id)
        except UsageError as nothing:
            raise Hidden from nothing

    def known(self, text: str) -> Ref:
        return self._asking.known(text)

    def seen(self, text: str) -> Ref | None:
        """The same, where what may not be known is left out."""
        with suppress(*LEFT_OUT):
            return self._asking.known(text)
        return None

    def page_of(self, dataset_id: str) -> str:
        """The page of a dataset; where nothing of it is published, why not."""
        published = self.seen(dataset_id) is not None
        return addresses.dataset(dataset_id) if published else addresses.decision(dataset_id)

    def pages_of(self, names: Iterable[str]) -> dict[str, str]:
        """The same of each, for lists in which one stands again and again."""
        return {name: self.page_of(name) for name in set(names)}

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
