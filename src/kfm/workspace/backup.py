"""backup: a workspace and its store as of one moment, every file with its digest; what is torn is
refused when it is restored.
"""

import errno
import fcntl
import hashlib
import os
import re
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Literal

import msgspec

from kfm import __version__
from kfm.acts.inbox import brought
from kfm.model import IntegrityError, SystemClock, UsageError, canonical, ids, rfc3339
from kfm.model.paths import latest_path
from kfm.model.ticks import tick, watched
from kfm.store.base import Served
from kfm.store.local import standing_still
from kfm.upkeep.erase import Mark, erase_again, left_in_inbox
from kfm.workspace.folder import Workspace, open_workspace
from kfm.workspace.wiring import open_store, open_world, reindex_workspace
from kfm.world.world import World
from kfm.zones.base import check_path, hash_file
from kfm.zones.durable import replace_durably, sync_folder
from kfm.zones.flock import is_unlocked

__all__ = [
    "UNFINISHED",
    "Manifest",
    "Restored",
    "check_backup",
    "make_backup",
    "plain_sources",
    "restore_backup",
]

ERASED = "ERASED-"  # the beginning of the names of files that say what was erased since
MANIFEST, STORE, FILES, UNFINISHED = "BACKUP.json", "store.sqlite", "workspace", ".kfm-unfinished"
_PASSING = {".tmp", "__pycache__", ".git", ".venv"}  # folders nobody restores
_OWN = {"policy", "data", "pipelines", "scripts", "src"} | {
    f"data/{zone}" for zone in ("registry", "raw", "work", "processed", "catalog")
}
_SYSTEM = (Path("/dev"), Path("/proc"), Path("/sys"), Path("/run"))
# below ledger/: of living processes only
_MACHINE = ("locks/", "bells/", "readers/", "turnstile.lock", "reindex.lock")


class Kept(msgspec.Struct, frozen=True):
    """One file of a backup."""

    digest: str
    size: int
    mode: int


class Restored(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a backup that was restored."""

    files: int
    erased: list[str]  # datasets from which something was erased since
    epoch: int
    reindexed: bool
    reindex_needed: bool
    needs: Literal["keys", "store", ""]  # what the backup could not bring


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """`BACKUP.json`, written last: without it, or when its sum is wrong, there is no backup."""

    format: int
    made_at: str
    kfm: str
    keys: bool  # whether private keys are inside
    epoch: int
    store: Kept
    files: dict[str, Kept]
    # links that were not followed, and why
    left_out: dict[str, str] | msgspec.UnsetType = msgspec.UNSET
    sum: str = ""  # of all the rest

    def summed(self) -> "Manifest":
        rest = msgspec.to_builtins(msgspec.structs.replace(self, sum=""))
        return msgspec.structs.replace(self, sum=ids.digest(canonical.dumps(rest)))

    @property
    def size(self) -> int:
        return self.store.size + sum(kept.size for kept in self.files.values())


# ---- making --------------------------------------------------------------------------------------
def make_backup(
    workspace: Workspace, folder: Path, *, link: bool = False, with_keys: bool = False
) -> Manifest:
    """Copy evidence, then the store as of one moment, then the evidence that came meanwhile; runs
    go on.

    Evidence is written before the store speaks of it, so what the store names is inside.
    """
    if folder.resolve().is_relative_to(workspace.path.resolve()):
        raise UsageError(
            "The backup would lie inside the workspace.",
            expected="another folder",
            remedy="Name one outside, best on another disk.",
        )
    _must_be_empty(folder, "a new or empty folder for each backup")
    with _all_or_nothing(folder), _unfinished(folder):
        return _made(workspace, folder, link, with_keys)


def _made(workspace: Workspace, folder: Path, link: bool, with_keys: bool) -> Manifest:
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    copy = _Copy(workspace, folder / FILES, link, with_keys)
    if watched():
        copy.measure()
    copy.walk()
    epoch = _snapshot(workspace, folder / STORE)
    copy.walk()
    store = hash_file(folder / STORE)
    made = Manifest(
        format=1,
        made_at=rfc3339(SystemClock().now()),
        kfm=__version__,
        keys=with_keys,
        epoch=epoch,
        store=Kept(store.digest, store.size, 0o600),
        files=dict(sorted(copy.files.items())),
        left_out=dict(sorted(copy.left_out.items())) or msgspec.UNSET,
    ).summed()
    os.sync()  # everything is on the disk before the manifest says so
    replace_durably(
        folder / MANIFEST, msgspec.json.format(msgspec.json.encode(made), indent=1) + b"\n"
    )
    known = [
        line
        for line in _known_backups(workspace)
        if msgspec.json.decode(line)["folder"] != str(folder.resolve())
    ]
    known.append(msgspec.json.encode({"folder": str(folder.resolve()), "made_at": made.made_at}))
    replace_durably(workspace.ledger / "backups.jsonl", b"".join(line + b"\n" for line in known))
    return made


def _known_backups(workspace: Workspace) -> list[bytes]:
    """A line for each backup of this workspace: an erasure marks those it reaches."""
    path = workspace.ledger / "backups.jsonl"
    return path.read_bytes().splitlines() if path.is_file() else []


def plain_sources(workspace: Workspace, made: Manifest) -> dict[str, str]:
    """Files that people brought and that lie in a backup as they are, though what was made from
    them is sealed or was erased; why.
    """
    found: dict[str, str] = {}
    with open_world(workspace) as world:
        for dataset_id in workspace.registered():
            try:
                found |= _plain_of(world, dataset_id)
            except UsageError as error:
                why = (
                    f"which files it is made from must be hidden nobody can tell ({error.happened})"
                )
                found[f"data/registry/{dataset_id}.yml"] = why
            found |= {path: why for path, (why, _) in left_in_inbox(world, dataset_id).items()}
    return {path: why for path, why in sorted(found.items()) if path in made.files}


def _plain_of(world: World, dataset_id: str) -> dict[str, str]:
    if not world.is_private(dataset_id):
        return {}
    paths = world.store.read(lambda tx: brought(world, tx, dataset_id))
    return dict.fromkeys(paths, f"{dataset_id}, which comes from it, is not public")


@contextmanager
def _all_or_nothing(folder: Path) -> Iterator[None]:
    """Where the disk is full, what was written to a folder that was empty goes again: the next try
    finds it as this one did.
    """
    try:
        yield
    except sqlite3.OperationalError as error:
        shutil.rmtree(folder, ignore_errors=True)
        raise OSError(errno.EIO, f"the copy of the store cannot be written: {error}") from error
    except OSError:
        shutil.rmtree(folder, ignore_errors=True)
        raise


@contextmanager
def _unfinished(folder: Path) -> Iterator[None]:
    """The folder says that it is not whole yet, and by a lock that somebody is at work on it: what
    a killed one left is begun anew.
    """
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    mark = folder / UNFINISHED
    lock = os.open(mark, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        sync_folder(folder)
        yield
        mark.unlink()
        sync_folder(folder)
    finally:
        os.close(lock)


def _must_be_empty(folder: Path, expected: str) -> None:
    if (folder / UNFINISHED).is_file() and is_unlocked(folder / UNFINISHED):
        for entry in [e for e in folder.iterdir() if e.name != UNFINISHED]:
            shutil.rmtree(entry) if entry.is_dir() and not entry.is_symlink() else entry.unlink()
        (folder / UNFINISHED).unlink()
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UsageError(
            f"{folder.name} is not empty.", expected=expected, remedy="Name another folder."
        )


class _Copy:
    """The files of a workspace, copied or linked; a second walk takes what changed and drops what
    is gone.
    """

    def __init__(self, workspace: Workspace, into: Path, link: bool, with_keys: bool) -> None:
        self._workspace, self._into, self._link, self._with_keys = workspace, into, link, with_keys
        self._seen: dict[str, tuple[int, int, int]] = {}
        self._repository = _repository(workspace.path.resolve())
        self.files: dict[str, Kept] = {}
        self.left_out: dict[str, str] = {}
        self._done = 0  # bytes
        self._of: int | None = None

    def _copied(self, size: int) -> None:
        self._done += size
        tick("backup", self._done, self._of)

    def measure(self) -> None:
        """Count the bytes there are, for who watches."""
        self._of = 0
        for name in self._names():
            with suppress(FileNotFoundError):
                self._of += (self._workspace.path / name).stat().st_size

    def walk(self) -> None:
        present = set()
        self.left_out = {}
        for name in self._names():
            try:
                if self._take(name):
                    present.add(name)
            except FileNotFoundError:
                continue  # packed or swept while we looked: its new place is walked too
        for gone in set(self.files) - present:
            del self.files[gone], self._seen[gone]
            (self._into / gone).unlink()

    def _names(self) -> Iterator[str]:
        base = self._workspace.path
        yield from self._inside(base, (_node(base.stat()),))

    def _inside(self, folder: Path, above: tuple[tuple[int, int], ...]) -> Iterator[str]:
        """The files below a folder; links are followed where they stay in the workspace or its
        repository, else they are named.
        """
        try:
            entries = sorted(os.scandir(folder), key=lambda e: e.name)
        except FileNotFoundError:
            return
        for entry in entries:
            path = Path(entry.path)
            name = str(path.relative_to(self._workspace.path))
            if path == self._workspace.data / Path(latest_path("x")).parents[1]:
                continue  # links to what is copied anyway; they are made anew
            if entry.is_symlink():
                why = self._why_not(name, path)
                if why is not None:
                    if why:
                        self.left_out[name] = why
                    continue
            if entry.is_dir():
                node = _node(path.stat())
                if node in above:
                    self.left_out[name] = "it leads back to a folder it lies in"
                elif entry.name not in _PASSING:
                    yield from self._inside(path, (*above, node))
            elif self._wanted(name):
                if (
                    path.suffix == ".key"
                    and not self._with_keys
                    and not path.resolve().is_relative_to(self._workspace.path.resolve())
                ):
                    self.left_out[name] = "it leads to private keys"
                else:
                    yield name

    def _why_not(self, name: str, link: Path) -> str | None:
        """Why a link is not followed, "" when nobody would miss it; None: it is."""
        try:
            target = link.resolve(strict=True)
        except (OSError, RuntimeError):
            return "it leads nowhere, or in a circle"
        home = self._workspace.path.resolve()
        if home.is_relative_to(target):
            return "it leads back to a folder it lies in"
        if not target.is_dir() and not target.is_file():
            return "it leads to no file or folder"
        if target.is_relative_to(home):
            wanted = target.is_dir() or self._wanted(str(target.relative_to(home)))
            keys = target.is_relative_to(home / "keys") and target.is_dir() and not self._with_keys
            return (
                "it leads to private keys"
                if keys or (not wanted and target.is_relative_to(home / "keys"))
                else None
                if wanted
                else ""
            )
        own = (
            target.is_dir() and name in _OWN and not any(target.is_relative_to(f) for f in _SYSTEM)
        )
        if not own and (self._repository is None or not target.is_relative_to(self._repository)):
            return "it leads out of the workspace and its repository"
        return (
            ""
            if not own
            and self._repository
            and _PASSING & set(target.relative_to(self._repository).parts)
            else None
        )

    def _wanted(self, name: str) -> bool:
        if name.startswith("keys/") and not self._with_keys:
            return name.endswith(".pub") or name.startswith("keys/root/")
        ledger = os.path.relpath(self._workspace.ledger, self._workspace.path) + "/"
        store = (
            None
            if self._workspace.server
            else os.path.relpath(
                self._workspace.lines_file or self._workspace.store_file, self._workspace.path
            )
        )
        machine = name.startswith(ledger) and name.removeprefix(ledger).startswith(_MACHINE)
        return not machine and (
            store is None or name not in (store, f"{store}-wal", f"{store}-shm")
        )

    def _take(self, name: str) -> bool:
        source, target = self._workspace.path / name, self._into / name
        found = source.stat()
        if not source.is_file():
            return False
        mark = (found.st_ino, found.st_mtime_ns, found.st_size)
        if self._seen.get(name) != mark:
            target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            target.unlink(missing_ok=True)
            written_once = not found.st_mode & 0o222
            self.files[name] = (
                _linked(source, target, self._copied)
                if self._link and written_once and not source.is_symlink()
                else _copied(source, target, found, self._copied)
            )
            self._seen[name] = mark
        return True


def _node(found: os.stat_result) -> tuple[int, int]:
    return found.st_dev, found.st_ino


def _repository(folder: Path) -> Path | None:
    """The repository a workspace lies in; None: it lies in none."""
    return next((above for above in (folder, *folder.parents) if (above / ".git").exists()), None)


def _linked(source: Path, target: Path, copied: Callable[[int], None]) -> Kept:
    try:
        os.link(source, target)
    except OSError:  # another file system
        return _copied(source, target, source.stat(), copied)
    stored = hash_file(target)
    copied(stored.size)
    return Kept(stored.digest, stored.size, source.stat().st_mode & 0o777)


def _copied(
    source: Path, target: Path, found: os.stat_result, copied: Callable[[int], None]
) -> Kept:
    """Copy and hash in one pass: of a log that grows meanwhile, exactly what was hashed is kept."""
    digest, size = hashlib.sha256(), 0
    with (
        source.open("rb") as read,
        os.fdopen(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as write,
    ):
        while piece := read.read(1 << 20):
            digest.update(piece)
            write.write(piece)
            size += len(piece)
            copied(len(piece))
    os.chmod(target, found.st_mode & 0o777)
    # retention counts from when a file was written
    os.utime(target, ns=(found.st_atime_ns, found.st_mtime_ns))
    return Kept(f"sha256:{digest.hexdigest()}", size, found.st_mode & 0o777)


def _snapshot(workspace: Workspace, into: Path) -> int:
    """The store as of one moment, whole in one SQLite file; returns its epoch."""
    if workspace.server is not None:
        aside = into.with_name(".copying")  # a store makes lock files beside itself
        with closing(open_store(workspace, SystemClock())) as store:
            assert isinstance(store, Served)
            store.copy_to(aside / into.name)
        with (
            closing(sqlite3.connect(aside / into.name)) as source,
            closing(sqlite3.connect(into)) as db,
        ):
            source.backup(db)
        shutil.rmtree(aside)
    elif (lines := workspace.lines_file) is not None and lines.exists():
        workspace.lines.copy_file(lines, into)
    elif lines is None and workspace.store_file.exists():
        with (
            standing_still(workspace.store_file),
            closing(sqlite3.connect(workspace.store_file)) as source,
            closing(sqlite3.connect(into)) as db,
        ):
            source.backup(db)
    else:
        raise UsageError(
            "This workspace has no store yet.",
            expected="one that has run",
            remedy="Run a dataset, then back up.",
        )
    with closing(sqlite3.connect(into, isolation_level=None)) as db:
        db.execute("pragma journal_mode = delete")
        damage = db.execute("pragma quick_check").fetchone()[0]
        if damage != "ok":
            raise IntegrityError(
                f"The store is damaged: {damage}.",
                expected="a whole store",
                remedy="Run `kfm doctor`, then back up again.",
            )
        row = db.execute("select value from meta where key = 'epoch'").fetchone()
    os.chmod(into, 0o600)
    return int(row[0]) if row else 1


# ---- checking ------------------------------------------------------------------------------------
def check_backup(folder: Path) -> Manifest:
    """The manifest, when every byte is there and no other; a torn or altered backup raises
    `IntegrityError`.
    """
    if not folder.is_dir():
        raise UsageError(
            f"There is no folder {folder}.",
            expected="a folder that `kfm backup make` wrote",
            remedy="Check the path.",
        )
    try:
        found = msgspec.json.decode((folder / MANIFEST).read_bytes(), type=Manifest)
    except FileNotFoundError as error:
        raise _torn(folder, f"{MANIFEST} is missing: it was never finished") from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise _torn(folder, f"{MANIFEST} is not readable") from error
    if found.format != 1:
        raise UsageError(
            f"The backup has format {found.format}.",
            expected="1",
            remedy="Use the kfm that made it, or a newer one.",
        )
    if found.summed() != found:
        raise _torn(folder, f"{MANIFEST} was altered")
    listed = {
        STORE: found.store,
        **{f"{FILES}/{check_path(name)}": kept for name, kept in found.files.items()},
    }
    whole, looked = sum(kept.size for kept in listed.values()), 0
    for name, kept in listed.items():
        path = folder / name
        tick("backup check", looked, whole)
        looked += kept.size
        if not path.is_file() or path.is_symlink():
            raise _torn(folder, f"{name} is missing")
        if hash_file(path) != (kept.digest, kept.size):
            raise _torn(folder, f"{name} has other bytes")
    present = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
    if extra := sorted(
        name for name in present - set(listed) - {MANIFEST} if not name.startswith(ERASED)
    ):
        raise _torn(folder, f"{extra[0]} is not listed")
    return found


def _torn(folder: Path, why: str) -> IntegrityError:
    return IntegrityError(
        f"{folder.name} is not a whole backup: {why}.",
        expected="every file as it was when the backup was made",
        remedy="Use another backup; nothing was restored from this one.",
    )


# ---- restoring -----------------------------------------------------------------------------------
def restore_backup(folder: Path, target: Path) -> Restored:
    """Make a workspace at `target`: leases are gone, jobs and unfinished runs go on, no token of
    the old one is valid here.
    """
    found = check_backup(folder)
    _must_be_empty(target, "a new or empty folder")
    with _all_or_nothing(target), _unfinished(target):
        return _restored(folder, target, found)


def _restored(folder: Path, target: Path, found: Manifest) -> Restored:
    for name, kept in found.files.items():
        into = target / name
        into.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(folder / FILES / name, into)
        os.chmod(into, kept.mode)
        times = (folder / FILES / name).stat()
        os.utime(into, ns=(times.st_atime_ns, times.st_mtime_ns))
    moved = _store_line(target / "kfm.yml")
    workspace = open_workspace(target)
    workspace.ledger.mkdir(parents=True, exist_ok=True)
    lines = workspace.lines_file
    file = workspace.store_file if lines is None else lines.with_name(f".{STORE}")
    shutil.copyfile(folder / STORE, file)
    _new_epoch(file, found.epoch + 1)
    if lines is not None:
        workspace.lines.fill_file(file, lines)
        file.unlink()
    marks = [
        msgspec.json.decode(path.read_bytes(), type=Mark)
        for path in sorted(folder.glob(f"{ERASED}*.json"))
    ]
    with open_world(workspace) as world:
        for mark in marks:
            erase_again(world, mark, folder)
    behind = _is_behind(workspace)
    if behind and found.keys:
        reindex_workspace(workspace, [])
    with open_world(workspace) as world:
        world.store.transaction(lambda tx: tx.queue.reap())
        for dataset_id in world.store.read(lambda tx: tx.index.datasets()):
            world.latest.show(world, dataset_id)
        epoch = int(world.store.epoch)
    os.sync()
    return Restored(
        files=len(found.files),
        erased=sorted({mark.act.predicate.dataset_id for mark in marks}),
        epoch=epoch,
        reindexed=behind and found.keys,
        reindex_needed=behind and not found.keys,
        needs="keys" if not found.keys else "store" if moved else "",
    )


def _store_line(path: Path) -> bool:
    """A store on a server stays as it is: what is restored has a file of its own. Whether the line
    was changed.
    """
    text = path.read_text()
    made = re.sub(
        r"(?m)^store:(?!\s*[\"']?(?:sqlite|jsonl):).*$",
        "store: sqlite:///ledger/idempotency.sqlite",
        text,
    )
    if made != text:
        path.write_text(made)
    return made != text


def _new_epoch(store: Path, epoch: int) -> None:
    with closing(sqlite3.connect(store, isolation_level=None)) as db:
        db.execute("begin immediate")
        db.execute("delete from lease")
        for key, value in (("epoch", str(epoch)), ("epoch_at", rfc3339(SystemClock().now()))):
            db.execute(
                "insert into meta (key, value) values (?, ?) on conflict (key) do update set"
                " value = excluded.value",
                (key, value),
            )
        db.execute("commit")


def _is_behind(workspace: Workspace) -> bool:
    """Whether a channel shows a generation of a run that the store does not expect there: it was
    made after the store was copied.
    """
    with open_world(workspace) as world:
        for dataset_id in sorted(
            p.name for p in (workspace.data / "catalog" / "channels").glob("*")
        ):
            channel = world.channel(dataset_id)
            last = world.store.read(lambda tx: tx.index.last_generation(dataset_id))
            number = last.generation + 1 if last is not None else 1
            while world.data.exists(channel.path(number)):
                told = channel.unverified(number)
                row = world.store.read(lambda tx: tx.runs.get(told.run_id)) if told.run_id else None
                if told.run_id and (row is None or row.intent != number):
                    return True
                number += 1
    return False
