"""One dataset of a workspace, and its versions."""

from dataclasses import dataclass, field

from kfm.access.boundary import cited
from kfm.data.asker import Asker
from kfm.data.html import facts
from kfm.data.version import Version
from kfm.evidence.append_times import appended_at
from kfm.model import DatasetEntry, Denied, Generation, IntegrityError, KfmError
from kfm.world.world import World

__all__ = ["Dataset", "version_of", "versions_of"]


@dataclass(frozen=True)
class Dataset:
    """One dataset that is registered here."""

    dataset_id: str
    title: str = ""
    licence: str | None = None
    _asker: Asker = field(kw_only=True, repr=False, compare=False)

    @classmethod
    def of(cls, entry: DatasetEntry, asker: Asker) -> "Dataset":
        return cls(entry.dataset_id, entry.title, entry.licence, _asker=asker)

    def latest(self) -> Version:
        """The version that is official now. Raises `Denied` when this reader may not have it, or
        when it was withdrawn.
        """
        return version_of(self._asker, self.dataset_id)

    def version(self, which: str | int) -> Version:
        """One version: a generation, or `v` and eight or more digits of its id."""
        return version_of(self._asker, f"{self.dataset_id}@{which}")

    def versions(self) -> list[Version]:
        """Every generation whose version this reader may have, oldest first."""
        return versions_of(self._asker, self.dataset_id)

    def _repr_html_(self) -> str:
        rows: list[tuple[str, object]] = [("title", self.title), ("licence", self.licence)]
        try:
            newest = self.latest()
            rows.append(("latest", f"{newest.version_id}, generation {newest.generation}"))
        except KfmError as error:
            rows.append(("not shown", error.happened))
        return facts(self.dataset_id, rows)


def version_of(asker: Asker, ref: str) -> Version:
    """The version a reference means, when the reader may know of it. Raises `Denied`."""
    with asker.world() as world:
        asker.require(world, ref)
        meant = cited(world, ref, asker.reader)
        rows = _generations(world, meant.dataset_id)
        return _version(world, asker, next(g for g in rows if g.generation == meant.generation))


def versions_of(asker: Asker, dataset_id: str) -> list[Version]:
    """Every generation whose version the reader may know of; what was withdrawn, removed by
    retention or is damaged, is left out.
    """
    with asker.world() as world:
        asker.require(world, dataset_id)
        world.store.transaction(lambda tx: world.channel(dataset_id).head(tx))
        found = []
        for made in _generations(world, dataset_id):
            if made.version_id is None:
                continue
            try:
                cited(world, f"{dataset_id}@{made.generation}", asker.reader)
            except (Denied, IntegrityError):
                continue
            found.append(_version(world, asker, made))
        return found


def _generations(world: World, dataset_id: str) -> list[Generation]:
    found: list[Generation] = world.store.read(lambda tx: tx.index.generations(dataset_id))
    return found


def _version(world: World, asker: Asker, made: Generation) -> Version:
    return Version(
        dataset_id=made.dataset_id,
        version_id=str(made.version_id),
        version_digest=str(made.version_digest),
        generation=made.generation,
        kind=made.kind,
        made_at=appended_at(world, made),
        _asker=asker,
    )
