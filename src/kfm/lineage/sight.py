"""What of the lineage a reader may know: the nodes of datasets whose catalog the boundary lets him
have, without versions that were withdrawn.
"""

from collections.abc import Iterable

from kfm.access.boundary import NOBODY, Reader, cited
from kfm.catalog.lineage.graph import kind_of
from kfm.channel.generations import version_kept_out
from kfm.evidence.lineage import known_lineage
from kfm.model import KfmError
from kfm.world.world import World

__all__ = ["Sight"]


class Sight:
    """Asks once for each dataset; whatever is no clear yes is a no."""

    def __init__(self, world: World, reader: Reader = NOBODY) -> None:
        self._world, self._reader = world, reader
        self._known: dict[str, bool] = {}
        self._gone: dict[str, bool] = {}

    def sees_dataset(self, dataset_id: str) -> bool:
        if dataset_id not in self._known:
            try:
                cited(self._world, dataset_id, self._reader)
                self._known[dataset_id] = True
            except (KfmError, OSError):
                self._known[dataset_id] = False
        return self._known[dataset_id]

    def sees_version(self, version: str) -> bool:
        """Of DATASET@VERSION."""
        if version not in self._gone:
            dataset_id, _, version_id = version.partition("@")
            head = self._world.store.read(lambda tx: tx.index.last_generation(dataset_id))
            out = version_kept_out(head, version_id) if head is not None else None
            self._gone[version] = out is not None and out.how == "suppressed"
        return not self._gone[version] and self.sees_dataset(version.partition("@")[0])

    def seen(self, names: Iterable[str]) -> set[str]:
        """Those of these nodes that may be shown; an input is as visible as the runs that used
        it.
        """
        return {name for name in names if self._sees(name)}

    def _sees(self, name: str) -> bool:
        rest = name.partition(":")[2]
        match kind_of(name):
            case "Run":
                record = self._world.store.read(lambda tx: known_lineage(tx, rest))
                return record is not None and self.sees_dataset(record.dataset_id)
            case "Dataset" | "DatasetVersion":
                return self.sees_version(rest.partition("/")[0])
            case "Asset":
                return True  # with the run it was used in, and only then: see `walk`
