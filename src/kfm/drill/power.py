"""The folder as a power cut may leave it: rebuilt from the trace of an uninterrupted run.

What was written but not synced is gone; a name counts once the folder holding it was synced (or,
read the other way, at once). The store is the copy taken after its last commit: SQLite syncs before
a commit returns. Its files, and the folder they lie in, are SQLite's matter and are always there.
"""

import itertools
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from kfm.drill.trace import Call, masked, parse

__all__ = ["Cut", "cuts", "rebuild"]

_BOUNDARY = {"fsync", "fdatasync", "link", "linkat", "rename", "renameat", "renameat2", "syncfs"}


@dataclass(eq=False)
class Node:
    """A file or a folder. Of a file only the synced bytes count; `now` and `safe` are the names in
    a folder.
    """

    number: int
    folder: bool
    source: Path | None = None  # a file with the bytes as they were synced
    synced: bool = False
    now: "dict[str, Node]" = field(default_factory=dict)
    safe: "dict[str, Node]" = field(default_factory=dict)


@dataclass(frozen=True)
class Cut:
    """One state the folder may be in: path -> bytes (None: a folder; an empty path: an empty file),
    and the store.
    """

    after: str  # the call it comes after
    names_kept: bool
    store: Path
    files: dict[str, Path | str | None]

    def __str__(self) -> str:
        return f"after {self.after}, names {'kept' if self.names_kept else 'lost'}"


class _Disk:
    """Follows a run call by call."""

    def __init__(self, copy: Path, record: Path, skip: str) -> None:
        self._copy, self._record, self._skip = str(copy), str(record), skip
        self._numbers = itertools.count()
        self.root = Node(next(self._numbers), True)
        self._keep: dict[int, Path] = {}  # thread -> what it has kept and will sync next
        self.store: Path | None = None

    def seed(self, seed: Path) -> None:
        """What was there before the run is safe."""
        for path in sorted(seed.rglob("*")):
            relative = path.relative_to(seed).as_posix()
            node = Node(next(self._numbers), path.is_dir(), None if path.is_dir() else path, True)
            folder, name = self._folder(relative)
            if folder is not None:
                folder.now[name] = folder.safe[name] = node

    def _relative(self, path: str) -> str | None:
        if path == self._copy:
            return ""
        inside = path.removeprefix(self._copy + "/")
        return None if inside == path or inside.startswith(self._skip) else inside

    def _find(self, relative: str) -> Node | None:
        node: Node | None = self.root
        for part in relative.split("/") if relative else ():
            node = node.now.get(part) if node is not None else None
        return node

    def _folder(self, relative: str) -> tuple[Node | None, str]:
        head, _, name = relative.rpartition("/")
        return self._find(head), name

    def _place(self, relative: str | None, node: Node) -> None:
        folder, name = self._folder(relative) if relative else (None, "")
        if folder is not None:
            folder.now[name] = node

    def _take(self, relative: str | None) -> Node | None:
        folder, name = self._folder(relative) if relative else (None, "")
        return folder.now.pop(name, None) if folder is not None else None

    def apply(self, call: Call) -> bool:
        """Whether the call may matter to a cut after it."""
        if call.result is None or call.result < 0:
            return False
        paths = [self._relative(p) for p in call.paths]
        if call.name in ("open", "openat", "creat"):
            made = self._relative(call.made)
            if made and "O_CREAT" in call.flags and self._find(made) is None:
                self._place(made, Node(next(self._numbers), False))
        elif call.name in ("mkdir", "mkdirat"):
            return self._mkdir(call, paths)
        elif call.name in ("link", "linkat"):
            return self._link(call, paths)
        elif call.name.startswith("rename"):
            node = self._take(paths[0])
            if node is not None:
                self._place(paths[1], node)
        elif call.name in ("unlink", "unlinkat", "rmdir"):
            self._take(paths[0])
        elif call.name in ("fsync", "fdatasync"):
            self._sync(call.tid, paths[0])
        elif call.name == "syncfs":
            for node in self._all(self.root):
                node.synced, node.safe = True, dict(node.now)
        return call.name in _BOUNDARY and any(p is not None for p in paths)

    def _mkdir(self, call: Call, paths: Sequence[str | None]) -> bool:
        if call.paths[-1].startswith(self._record) and call.paths[-1].endswith(".done"):
            self.store = Path(call.paths[-1].removesuffix(".done"))
            return True
        if paths[-1]:
            self._place(paths[-1], Node(next(self._numbers), True))
        return False

    def _link(self, call: Call, paths: Sequence[str | None]) -> bool:
        if call.paths[-1].startswith(self._record):
            self._keep[call.tid] = Path(call.paths[-1])
            return False
        node = self._find(paths[0]) if paths[0] else None
        if node is not None:
            self._place(paths[-1], node)
        return paths[-1] is not None

    def _sync(self, tid: int, relative: str | None) -> None:
        kept = self._keep.pop(tid, None)
        node = self._find(relative) if relative is not None else None
        if node is None:
            return
        node.synced, node.source = True, kept or node.source
        node.safe = dict(node.now)

    def _all(self, node: Node) -> Iterator[Node]:
        yield node
        for below in node.now.values():
            yield from self._all(below)

    def state(self, names_kept: bool) -> dict[str, Node]:
        """Every path there is after a cut now."""
        found: dict[str, Node] = {}

        def walk(node: Node, at: str) -> None:
            for name, below in (node.now if names_kept else node.safe).items():
                found[f"{at}{name}"] = below
                if below.folder:
                    walk(below, f"{at}{name}/")

        walk(self.root, "")
        return found


def cuts(log: Path, copy: Path, record: Path, seed: Path, store_file: str) -> list[Cut]:
    """Every different state a cut between two calls of the run may leave, in order."""
    disk = _Disk(copy, record, store_file)
    disk.seed(seed)
    found: list[tuple[str, bool, Path, dict[str, Node], frozenset[int]]] = []
    seen: set[object] = set()
    for call in parse(log):
        if not disk.apply(call) or disk.store is None:
            continue
        said = (
            f"commit {int(disk.store.name)}"
            if call.name.startswith("mkdir")
            else f"{call.name} {masked(call.paths[-1], str(copy))}"
        )
        for kept in (False, True):
            state = disk.state(kept)
            synced = frozenset(n.number for n in state.values() if n.synced)
            sign = (
                disk.store,
                frozenset(
                    (p, n.number, n.number in synced) for p, n in state.items() if ".tmp/" not in p
                ),
            )
            if sign not in seen:
                seen.add(sign)
                found.append((said, kept, disk.store, state, synced))
    final = {node.number: copy / path for path, node in disk.state(True).items()}
    return [
        Cut(said, kept, store, {path: _bytes(node, synced, final) for path, node in state.items()})
        for said, kept, store, state, synced in found
    ]


def _bytes(node: Node, synced: frozenset[int], final: dict[int, Path]) -> Path | str | None:
    """The bytes of a node at the cut: a file that holds them, '' for none, None for a folder."""
    if node.folder:
        return None
    if node.number not in synced:
        return ""
    return node.source or final.get(node.number, "")


def rebuild(cut: Cut, into: Path, store_file: str) -> None:
    """Make the state of a cut real."""
    into.mkdir(parents=True)
    for path, source in cut.files.items():  # folders come before what is in them
        target = into / path
        if source is None:
            target.mkdir(exist_ok=True)
        elif isinstance(source, Path):
            shutil.copyfile(source, target)
            target.chmod(source.stat().st_mode & 0o777)
        else:
            target.touch()
    ledger = (into / store_file).parent
    ledger.mkdir(parents=True, exist_ok=True)
    for file in cut.store.iterdir():
        shutil.copyfile(file, ledger / file.name)
