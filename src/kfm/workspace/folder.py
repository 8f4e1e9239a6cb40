"""A workspace: a folder marked by kfm.yml, and what its files say."""

import importlib
import os
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from kfm.model import DatasetEntry, StepFailed, UsageError, WorkspaceConfig, ids, keep_secret
from kfm.policy.base import policy_digest, sources_of
from kfm.store.address import KEEPER, LINES, is_lines, is_server, password_in
from kfm.workspace import config
from kfm.zones.local import LocalZone

if TYPE_CHECKING:
    from kfm.store.base import FileKeeper


__all__ = ["Unregistered", "Workspace", "open_workspace"]

# raised when a gate judges differently, so that everything is judged again
GATES_MARK = "kfm gates 2"


class Unregistered(UsageError):
    """Nobody registered a dataset of this name; which one was probably meant, or is what it is
    called now.
    """

    def __init__(
        self, happened: str, *, expected: str, remedy: str, named: str, meant: str, renamed: bool
    ) -> None:
        super().__init__(happened, expected=expected, remedy=remedy)
        self.named, self.meant = named, meant
        self.renamed = renamed  # it was called so before, which is worth saying


class Workspace(msgspec.Struct, frozen=True):
    """A folder marked by kfm.yml."""

    path: Path
    config: WorkspaceConfig

    @property
    def data(self) -> Path:
        return self._under(self.config.zones, "file", "zones")

    @property
    def ledger(self) -> Path:
        """The folder of what belongs to this machine: the store file, its locks, when which host
        was asked.
        """
        file = None if self.server else self.lines_file or self.store_file
        return self.path / "ledger" if file is None else file.parent

    @property
    def server(self) -> str | None:
        """The address of the PostgreSQL that keeps the store; None when it is a file here."""
        url = self._store_url()
        return url if is_server(url) else None

    @property
    def lines_file(self) -> Path | None:
        """The file of a store in lines of JSON; None when it is another."""
        url = self._store_url()
        return self._under(url, LINES, "store") if is_lines(url) else None

    @property
    def lines(self) -> "FileKeeper":
        """Who keeps a store in lines."""
        keeper: FileKeeper = importlib.import_module(KEEPER)
        return keeper

    @property
    def store_file(self) -> Path:
        """The file of a store in SQLite."""
        url = self._store_url()
        if is_server(url) or is_lines(url):
            kept = "in lines of JSON" if is_lines(url) else "on a PostgreSQL server"
            raise UsageError(
                f"The store of this workspace is {kept}.",
                expected="an SQLite file, which can be copied",
                remedy=(
                    "Try it in a copy of the workspace: say `store:"
                    " sqlite:///ledger/idempotency.sqlite` there, then `kfm reindex`."
                ),
            )
        return self._under(url, "sqlite", "store")

    def _store_url(self) -> str:
        """What kfm.yml says, or what the variable holds that it names."""
        url = self.config.store
        if url.startswith("env:"):
            url = os.environ.get(url.removeprefix("env:"), "")
            if not url:
                raise UsageError(
                    f"kfm.yml takes the store from {self.config.store}, which is not set.",
                    expected="postgresql://USER@HOST/DATABASE in that variable",
                    remedy=f"export {self.config.store.removeprefix('env:')}=…",
                )
            if is_server(url):
                keep_secret(password_in(url))
        elif is_server(url) and password_in(url):
            raise UsageError(
                "kfm.yml: store holds a password.",
                expected="an address without one, or the name of a variable that holds it all",
                remedy=(
                    "Say `store: env:KFM_STORE`, or let libpq find it (PGPASSWORD, ~/.pgpass); then"
                    " change the password."
                ),
            )
        return url

    @property
    def keys(self) -> Path:
        """The folder of what signs and seals here."""
        return self.path / "keys"

    def identity(self) -> str:
        """What tells this workspace from others: made once, in the data zone, so that every machine
        and every backup has the same.
        """
        file = self.data / "workspace.id"
        if not file.exists():
            zone = LocalZone(self.data)
            try:
                zone.create(file.name, f"{ids.new_run_id()}\n".encode())
            except StepFailed:
                return ""  # who may only read here does no work that could be another's
            finally:
                zone.close()
        return file.read_text().strip()

    def zones(self) -> tuple[LocalZone, LocalZone]:
        """The data zones, and the folder that receipts and ledger lie in."""
        return LocalZone(self.data), LocalZone(self.path)

    def _under(self, url: str, scheme: str, key: str) -> Path:
        """`file:///data` is relative to the workspace; back ends are URLs."""
        inside = (
            (self.path / url.removeprefix(f"{scheme}:///"))
            .resolve()
            .is_relative_to(self.path.resolve())
        )
        if not url.startswith(f"{scheme}:///") or not inside:
            raise UsageError(
                f"kfm.yml: {key} names no place in this workspace.",
                expected=f"{scheme}:///<path inside the workspace>",
                remedy=(
                    "A store may also be lines of JSON, jsonl:///ledger/ledger.jsonl, or a server:"
                    " postgresql://USER@HOST/DATABASE, or env:NAME for one."
                    if key == "store"
                    else "Other back ends are not part of this profile."
                ),
            )
        return self.path / url.removeprefix(f"{scheme}:///")

    def entry(self, dataset_id: str) -> DatasetEntry | None:
        return config.load_dataset(self.path, dataset_id)

    def registered(self) -> list[str]:
        return config.registered(self.path)

    @property
    def policy_digest(self) -> str:
        """The gates and the rules of this workspace, as one digest."""
        return ids.digest(
            f"{GATES_MARK} {policy_digest(sources_of(self.path / 'policy'))}".encode()
        )

    def has_evidence(self) -> bool:
        """Whether something was captured or published here."""
        return any((self.data / "catalog" / "channels").glob("*/*.json")) or any(
            (self.data / "work").glob("*/runs/*/run_record.json")
        )

    def readable(self, dataset_id: str) -> DatasetEntry | None:
        """The entry of a dataset; None when it is not registered, or not properly."""
        try:
            return self.entry(dataset_id)
        except UsageError:
            return None

    def require(self, dataset_id: str) -> DatasetEntry:
        """The entry of a registered dataset; an unregistered one is refused with the nearest
        name.
        """
        entry = self.entry(dataset_id)
        if entry is None:
            import difflib

            renamed = [
                n
                for n in self.registered()
                if dataset_id in getattr(self.readable(n), "aliases", ())
            ]
            near = renamed or difflib.get_close_matches(dataset_id, self.registered(), 1)
            hint = (
                f"It is called `{renamed[0]}` now."
                if renamed
                else (
                    f"Did you mean `{near[0]}`?"
                    if near
                    else (
                        f"Register it with `kfm dataset new {dataset_id} --url URL`; `kfm dataset"
                        " list` shows what there is."
                    )
                )
            )
            raise Unregistered(
                f"There is no dataset {dataset_id}.",
                expected=f"data/registry/{dataset_id}.yml",
                remedy=hint,
                named=dataset_id,
                meant="".join(near),
                renamed=bool(renamed),
            )
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
