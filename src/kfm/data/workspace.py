"""A workspace, opened to be read."""

import os
from dataclasses import dataclass
from pathlib import Path

from kfm.access.boundary import NOBODY, Reader
from kfm.data.asker import Asker
from kfm.data.dataset import Dataset, version_of, versions_of
from kfm.data.html import listing
from kfm.data.version import Version
from kfm.model import UsageError
from kfm.workspace.folder import open_workspace

__all__ = ["Run", "Workspace", "open_data"]


@dataclass(frozen=True)
class Run:
    """One run, as `kfm runs` lists it; what it read is told by the version it made."""

    run_id: str
    dataset_id: str
    state: str  # CLAIMED, STAGED, PROPOSED, COMMITTED, REJECTED, FAILED, SUPERSEDED
    partition: str
    window: str
    started_at: str
    ended_at: str | None
    version_id: str | None
    reason: str


class Workspace:
    """A workspace as one reader may see it. Nothing is kept open: every question looks at what is
    there now.
    """

    def __init__(self, asker: Asker) -> None:
        self._asker = asker

    @property
    def path(self) -> Path:
        """Its folder."""
        return self._asker.folder.path

    def dataset(self, dataset_id: str) -> Dataset:
        """One registered dataset; an unknown name gets the nearest one."""
        return Dataset.of(self._asker.folder.require(dataset_id), self._asker)

    def datasets(self) -> list[Dataset]:
        """Every dataset that is properly registered, by name."""
        entries = (self._asker.folder.readable(name) for name in self._asker.folder.registered())
        return [Dataset.of(entry, self._asker) for entry in entries if entry is not None]

    def version(self, ref: str) -> Version:
        """The version a reference means: DATASET, DATASET@vHEX or DATASET@GENERATION."""
        return version_of(self._asker, ref)

    def versions(self, dataset_id: str) -> list[Version]:
        """Every generation of a dataset whose version this reader may have, oldest first."""
        return versions_of(self._asker, dataset_id)

    def runs(self, dataset_id: str | None = None, *, limit: int = 50) -> list[Run]:
        """What was run, newest first; what changed nothing is left out, as in `kfm runs`."""
        if limit < 1:
            raise UsageError(
                f"limit is {limit}.", expected="how many runs at the most", remedy="Say 1 or more."
            )
        if dataset_id is not None:
            self._asker.folder.require(dataset_id)
        with self._asker.world(asks=False) as world:
            rows = world.store.read(lambda tx: tx.runs.recent(dataset_id, limit))
        found = [
            Run(
                run_id=row.run_id,
                dataset_id=row.dataset_id,
                state=row.state,
                partition=row.partition,
                window=row.win,
                started_at=row.timestamp,
                ended_at=row.ended_at,
                version_id=row.version_id,
                reason=row.reason if row.state != "COMMITTED" else "",
            )
            for row in rows
        ]
        return sorted(found, key=lambda run: run.run_id, reverse=True)

    def __repr__(self) -> str:
        who = f", reader={self._asker.reader.name!r}" if self._asker.reader.name else ""
        return f"kfm.open({str(self.path)!r}{who})"

    def _repr_html_(self) -> str:
        rows = [(d.dataset_id, d.title, d.licence) for d in self.datasets()]
        return listing(str(self.path), ("dataset", "title", "licence"), rows)


def open_data(
    folder: "str | os.PathLike[str] | None" = None, *, reader: str | None = None
) -> Workspace:
    """The workspace in `folder`; without one, that of KFM_WORKSPACE or of the folder one is in."""
    name = (reader or "").strip()
    found = open_workspace(Path(folder) if folder is not None else None)
    return Workspace(Asker(found, Reader(name) if name else NOBODY))
