"""What somebody outside is told: what became official, and how runs go."""

from collections.abc import Mapping
from typing import Literal

import msgspec

from kfm.model import LedgerRow

__all__ = ["Announcement", "Moment", "RunNews"]

Moment = Literal["began", "goes on", "ended"]


class Announcement(msgspec.Struct, frozen=True, kw_only=True):
    """A run's generation that is official."""

    dataset_id: str
    generation: int
    run_id: str
    version_id: str
    assets: Mapping[str, str]  # path below the version's folder -> digest

    @property
    def key(self) -> str:
        """The same for ever: what a receiver knows a repetition by."""
        return f"{self.dataset_id}/{self.generation:08}"


class RunNews(msgspec.Struct, frozen=True, kw_only=True):
    """A run that has come to a moment of its life; one that becomes official is announced beside
    it.
    """

    moment: Moment
    run: LedgerRow
