"""A workspace: a folder marked by kfm.yml, and what its files say."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from kfm import config
from kfm.errors import UsageError
from kfm.model import ids
from kfm.model.dataset import DatasetEntry, WorkspaceConfig
from kfm.policy.base import policy_digest, sources_of
from kfm.zones.local import LocalZone

if TYPE_CHECKING:
    pass


__all__ = ["Workspace", "open_workspace"]

GATES_MARK = "kfm gates 2"  # raised when a gate judges differently, so that everything is judged again


@dataclass(frozen=True)
class Workspace:
    """A folder marked by kfm.yml."""

    path: Path
    config: WorkspaceConfig

    @property
    def data(self) -> Path:
        return self._under(self.config.zones, "file", "zones")

    @property
    def store_file(self) -> Path:
        return self._under(self.config.store, "sqlite", "store")

    @property
    def keys(self) -> Path:
        """The folder of what signs and seals here."""
        return self.path / "keys"

    def zones(self) -> tuple[LocalZone, LocalZone]:
        """The data zones, and the folder that receipts and ledger lie in."""
        return LocalZone(self.data), LocalZone(self.path)

    def _under(self, url: str, scheme: str, key: str) -> Path:
        """`file:///data` is relative to the workspace; back ends are URLs."""
        inside = (self.path / url.removeprefix(f"{scheme}:///")).resolve().is_relative_to(self.path.resolve())
        if not url.startswith(f"{scheme}:///") or not inside:
            raise UsageError(
                f"kfm.yml: {key} names no place in this workspace.",
                expected=f"{scheme}:///<path inside the workspace>",
                remedy="Other back ends are not part of this profile.",
            )
        return self.path / url.removeprefix(f"{scheme}:///")

    def entry(self, dataset_id: str) -> DatasetEntry | None:
        return config.load_dataset(self.path, dataset_id)

    def registered(self) -> list[str]:
        return config.registered(self.path)

    @property
    def policy_digest(self) -> str:
        """The gates and the rules of this workspace, as one digest."""
        return ids.digest(f"{GATES_MARK} {policy_digest(sources_of(self.path / 'policy'))}".encode())

    def has_evidence(self) -> bool:
        """Whether something was captured or published here."""
        return any((self.data / "catalog" / "channels").glob("*/*.json")) or any((self.data / "work").glob("*/runs/*/run_record.json"))

    def readable(self, dataset_id: str) -> DatasetEntry | None:
        """The entry of a dataset; None when it is not registered, or not properly."""
        try:
            return self.entry(dataset_id)
        except UsageError:
            return None

    def require(self, dataset_id: str) -> DatasetEntry:
        """The entry of a registered dataset; an unregistered one is refused with the nearest name."""
        entry = self.entry(dataset_id)
        if entry is None:
            import difflib

            renamed = [n for n in self.registered() if dataset_id in getattr(self.readable(n), "aliases", ())]
            near = renamed or difflib.get_close_matches(dataset_id, self.registered(), 1)
            hint = (
                f"It is called `{renamed[0]}` now."
                if renamed
                else f"Did you mean `{near[0]}`?"
                if near
                else "Register it with `kfm dataset new`; `kfm dataset list` shows what there is."
            )
            raise UsageError(f"There is no dataset {dataset_id}.", expected=f"data/registry/{dataset_id}.yml", remedy=hint)
        return entry


def open_workspace(path: Path | None) -> Workspace:
    named = path or (Path(os.environ["KFM_WORKSPACE"]) if os.environ.get("KFM_WORKSPACE") else None)
    found = named.absolute() if named is not None else config.find_workspace(Path.cwd())
    if found is None or not (found / "kfm.yml").is_file():
        raise UsageError(
            f"{named or 'This folder'} is not a kfm workspace.",
            expected="a folder with kfm.yml",
            remedy="Make one with `kfm init DIR`, or name one with -w.",
        )
    return Workspace(found, config.load_workspace(found))
