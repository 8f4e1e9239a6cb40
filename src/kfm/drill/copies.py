"""Throw-away copies of a workspace: the registry entry, its connector and a new key; an empty
channel; the last capture as upstream.
"""

import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import msgspec

from kfm.keys.commitments import Vaults
from kfm.keys.key_folder import KeyFolder
from kfm.keys.private_key import new_private
from kfm.keys.trust import statement
from kfm.model import IntegrityError, Json, SystemClock, UsageError
from kfm.store.base import LedgerRow
from kfm.store.sqlite import SqliteStore
from kfm.workspace.folder import Workspace
from kfm.workspace.targets import targets_of
from kfm.workspace.upstreams import recorded_by

__all__ = ["Bench", "bench"]

_PLAIN = re.compile(r"[A-Za-z0-9 _./+=@-]+")  # traces show other characters escaped


@dataclass(frozen=True)
class Bench:
    """Where a drill works: `seed` is copied for every pass, `capture` is shared and only read."""

    folder: Path
    seed: Path
    dataset_id: str
    store_file: str  # inside a copy
    zones: str

    def copy(self, name: str) -> Path:
        """A fresh copy of the seed."""
        target = self.folder / "passes" / name
        shutil.copytree(self.seed, target)
        return target


def _place(workspace: Path) -> Path:
    """The same file system as the workspace, so that links, renames and syncs are the ones the user
    has.
    """
    chosen = os.environ.get("TMPDIR")
    if chosen and os.access(chosen, os.W_OK):
        return Path(chosen).absolute()
    beside = workspace.resolve().parent
    usable = os.access(beside, os.W_OK) and _PLAIN.fullmatch(str(beside)) is not None
    return beside if usable else Path(tempfile.gettempdir())


@contextmanager
def bench(workspace: Workspace, dataset_id: str) -> Iterator[Bench]:
    """Set up a drill of `dataset_id`; the user's workspace is only read. Raises `UsageError` when
    nothing was captured yet.
    """
    workspace.require(dataset_id)
    folder = Path(tempfile.mkdtemp(prefix=".kfm-drill-", dir=_place(workspace.path))).resolve()
    try:
        seed = folder / "seed"
        (seed / "data" / "registry").mkdir(parents=True)
        shutil.copyfile(workspace.path / "kfm.yml", seed / "kfm.yml")
        for file in (workspace.path / "data" / "registry").glob(f"{dataset_id}.*"):
            shutil.copyfile(file, seed / "data" / "registry" / file.name)
        connector = workspace.path / "scripts" / "connectors" / dataset_id
        if connector.is_dir():
            shutil.copytree(
                connector,
                seed / "scripts" / "connectors" / dataset_id,
                ignore=shutil.ignore_patterns("__pycache__"),
            )
        if (workspace.path / "policy").is_dir():
            shutil.copytree(workspace.path / "policy", seed / "policy")
        KeyFolder(seed / "keys").new()  # never the user's own
        _grant(workspace, seed, dataset_id)
        # one key for all copies, or they could not be compared
        Vaults(seed / "keys" / "data").prepare(dataset_id)
        (seed / "replay.json").write_bytes(
            msgspec.json.encode(_capture(workspace, dataset_id, folder / "capture"))
        )
        yield Bench(
            folder=folder,
            seed=seed,
            dataset_id=dataset_id,
            store_file=str(workspace.store_file.relative_to(workspace.path)),
            zones=str(workspace.data.relative_to(workspace.path)),
        )
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _grant(workspace: Workspace, seed: Path, dataset_id: str) -> None:
    """A dataset that was granted for publication is granted in the copies too, by a steward who
    exists only there.
    """
    if not any((workspace.path / "grants" / dataset_id).glob("*.json")):
        return
    keys = KeyFolder(seed / "keys")
    steward = new_private(seed / "keys" / "people" / "drill.key", "drill")
    custodian = workspace.require(dataset_id).custodian
    keys.enrol(
        steward.public,
        "drill",
        ["steward" if custodian else "approver"],
        [custodian] if custodian else (),
    )
    plain = {
        "dataset_id": dataset_id,
        "person": "drill",
        "purpose": "publish",
        "steward": "drill",
        "expires": "9999-01-01T00:00:00Z",
    }
    (seed / "grants" / dataset_id).mkdir(parents=True)
    signed = keys.person("drill").sign(
        statement("grant", f"kfm://dataset/{dataset_id}", "0" * 64, plain)
    )
    (seed / "grants" / dataset_id / "drill.json").write_bytes(signed)


def _capture(workspace: Workspace, dataset_id: str, into: Path) -> Json:
    """Copy the newest capture that has every partition: its window, and what was asked and
    answered.
    """
    into.mkdir()
    rows = [
        r
        for r in _rows(workspace, dataset_id, into.parent / "ledger")
        if '"refused"' not in r.source_metadata
    ]
    # whole captures first, then the newest
    rows.sort(key=lambda r: (not r.win, r.timestamp), reverse=True)
    targets = targets_of(workspace, dataset_id)
    missing = targets[0].partition
    for win in dict.fromkeys(r.win for r in rows):
        entries: list[dict[str, str | None]] = []
        for target in targets:
            same = [r for r in rows if (r.partition, r.win) == (target.partition, win)]
            answers = next(
                (
                    a
                    for r in same
                    if (a := recorded_by(workspace, r, target.entry.source.format, into))
                ),
                None,
            )
            if answers is None:
                missing = target.partition
                break
            for answer in answers:
                copy = into / f"{len(entries)}{Path(answer.file).suffix}"
                shutil.copyfile(answer.file, copy)
                asked = {
                    "method": answer.method,
                    "url": answer.url,
                    "request_body": answer.request_body,
                }
                entries.append({**asked, "file": f"../../capture/{copy.name}"})
        else:
            return {"window": win, "entries": entries}
    raise UsageError(
        f"There is no capture of {dataset_id}{missing and '/' + missing} to drill with.",
        expected="a dataset that was run at least once",
        remedy=f"Run `kfm run {dataset_id}` first.",
    )


def _rows(workspace: Workspace, dataset_id: str, aside: Path) -> list[LedgerRow]:
    """The ledger of the dataset, read from a copy: opening the store itself would write beside
    it.
    """
    if not workspace.store_file.is_file():
        return []
    for attempt in range(5):
        shutil.rmtree(aside, ignore_errors=True)
        aside.mkdir()
        copy = aside / workspace.store_file.name
        for end in ("", "-wal"):
            file = workspace.store_file.with_name(workspace.store_file.name + end)
            if file.is_file():
                shutil.copyfile(file, copy.with_name(copy.name + end))
        try:
            store = SqliteStore(copy, SystemClock())
            try:
                if store.check() == "ok":
                    return store.read(lambda tx: tx.runs.recent(dataset_id, 10_000))
            finally:
                store.close()
        except IntegrityError:
            if attempt == 4:
                raise  # not a commit that came in between: it is damaged
    raise IntegrityError(
        "The store could not be copied.", expected="a readable store", remedy="Run `kfm doctor`."
    )
