"""What of the lineage somebody outside is told: every record but those of versions that were
withdrawn. In what is told, commitments stand for inputs that are not public.
"""

from collections.abc import Iterator
from typing import NamedTuple

from kfm.access.references import withdrawn
from kfm.catalog.lineage.record import LineageRecord, read
from kfm.model import Generation
from kfm.world.world import World

__all__ = ["Page", "Told"]


class Page(NamedTuple):
    """Records in the order of their runs, and the last run that was looked at."""

    records: list[LineageRecord]
    last: str


class Told:
    """Asks each channel once; what was withdrawn since is found by another."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._channels: dict[str, dict[int, Generation]] = {}

    def may(self, record: LineageRecord) -> bool:
        """Whether the version it speaks of may be told of."""
        made = self._generations(record.dataset_id)
        meant = made.get(record.generation)
        return meant is None or withdrawn(made[max(made)], meant) is None

    def pages(self, after: str = "", size: int = 500) -> Iterator[Page]:
        """Everything after a run."""
        while raw := self._world.store.read(lambda tx: tx.lineage.page(after=after, limit=size)):
            after = raw[-1][0]
            yield Page([r for r in (read(text) for _, text in raw) if self.may(r)], after)

    def of(self, dataset_id: str) -> list[LineageRecord]:
        """Everything of a dataset."""
        raw = self._world.store.read(lambda tx: tx.lineage.page(dataset_id))
        return [r for r in (read(text) for _, text in raw) if self.may(r)]

    def _generations(self, dataset_id: str) -> dict[int, Generation]:
        if dataset_id not in self._channels:
            rows: list[Generation] = self._world.store.read(
                lambda tx: tx.index.generations(dataset_id)
            )
            self._channels[dataset_id] = {row.generation: row for row in rows}
        return self._channels[dataset_id]
