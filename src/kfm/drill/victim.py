"""A run that ends itself: `kfm run` with a store that counts commits, and dies right before or
after one of them.
"""

import argparse
import os
import shutil
import signal
import stat
import sys
import threading
from argparse import Namespace
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn, TypeVar

import msgspec

from kfm.connectors.child.process import kept_cold
from kfm.drill.passes import Commit, Noted
from kfm.jobs.drive import run_target
from kfm.jobs.heartbeat import Heartbeat
from kfm.store.base import Store, Tx, WalRecord
from kfm.store.journals import JournalView
from kfm.workspace.folder import Workspace, open_workspace
from kfm.workspace.targets import targets_of
from kfm.workspace.wiring import open_world

if TYPE_CHECKING:
    from _typeshed import FileDescriptorLike

__all__ = ["CountingStore", "main"]

# "before" or "after", the number of the commit, its journal records
OnCommit = Callable[[str, int, list[WalRecord]], None]
T = TypeVar("T")


class _Journals(JournalView):
    """The same view, which also remembers what was appended."""

    def __init__(self, inner: JournalView, records: list[WalRecord]) -> None:
        self.__dict__.update(inner.__dict__)
        self._records = records

    def append(self, records: Sequence[WalRecord]) -> None:
        super().append(records)
        self._records.extend(records)


class _Tx(Tx):
    def __init__(self, inner: Tx, records: list[WalRecord]) -> None:
        self.__dict__.update(inner.__dict__)
        self.journals = _Journals(inner.journals, records)


class CountingStore:
    """Passes everything on; tells `on_commit` about each commit of the thread that runs the
    pipeline.
    """

    def __init__(self, inner: Store, on_commit: OnCommit, first: int = 0) -> None:
        self._inner, self._on_commit, self.count = inner, on_commit, first
        self.epoch = inner.epoch
        self.now_ms, self.read, self.close = inner.now_ms, inner.read, inner.close
        self.abandon, self.check, self.bell = inner.abandon, inner.check, inner.bell
        self.changes, self.tidy, self.vacuum = inner.changes, inner.tidy, inner.vacuum
        # a heartbeat must not commit between a commit and what is done about it
        self._mutex = threading.RLock()

    def transaction(self, work: Callable[[Tx], T], *, durable: bool = True) -> T:
        if threading.current_thread() is not threading.main_thread():
            with self._mutex:
                return self._inner.transaction(work, durable=durable)
        with self._mutex:
            self.count += 1
            self._on_commit("before", self.count, [])
            records: list[WalRecord] = []
            result = self._inner.transaction(lambda tx: work(_Tx(tx, records)), durable=durable)
            self._on_commit("after", self.count, records)
            return result


def _die(mark: Path) -> NoReturn:
    mark.touch()
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("still alive")


def _killing(order: str, mark: Path) -> OnCommit:
    side, _, number = order.partition(":")

    def on_commit(when: str, count: int, records: list[WalRecord]) -> None:
        if when == side and count == int(number):
            _die(mark)

    return on_commit


def _listing(file: Path) -> OnCommit:
    def on_commit(when: str, count: int, records: list[WalRecord]) -> None:
        if when == "after":
            with file.open("ab") as lines:
                said = [Noted(r.seq, r.step_id, r.status) for r in records]
                lines.write(msgspec.json.encode(Commit(count, said)) + b"\n")

    return on_commit


def _recording(workspace: Workspace, folder: Path) -> OnCommit:
    """Keep the store as it is after every commit, and every file as it is when it is synced."""
    store, kept = workspace.store_file, folder / "kept"
    kept.mkdir()
    root, real = os.open("/", os.O_RDONLY | os.O_DIRECTORY), os.fsync

    def fsync(fd: "FileDescriptorLike") -> None:
        if isinstance(fd, int) and stat.S_ISREG(os.fstat(fd).st_mode):
            # With a directory descriptor this is linkat and follows the link to the open file.
            os.link(
                f"/proc/self/fd/{fd}",
                kept / f"{len(os.listdir(kept)):06}",
                src_dir_fd=root,
                follow_symlinks=True,
            )
        real(fd)

    os.fsync = fsync

    def on_commit(when: str, count: int, records: list[WalRecord]) -> None:
        if when == "after":
            target = folder / f"{count:06}"
            target.mkdir()
            for file in (store, store.with_name(store.name + "-wal")):
                if file.is_file():
                    shutil.copyfile(file, target / file.name)
            (folder / f"{count:06}.done").mkdir()  # what the trace is cut at

    on_commit("after", 0, [])
    return on_commit


def main(argv: Sequence[str] | None = None) -> int:
    """Run one dataset of a copy; the options say how it is watched or ended."""
    parser = argparse.ArgumentParser()
    parser.add_argument("workspace", type=Path)
    parser.add_argument("dataset")
    parser.add_argument("--window", default="")
    parser.add_argument("--kill", default="")
    parser.add_argument("--mark", type=Path, default=Path(os.devnull))
    parser.add_argument("--list", type=Path)
    parser.add_argument("--record", type=Path)
    parser.add_argument("--child", default="")
    args = parser.parse_args(argv)
    if args.child:
        sys.executable = args.child  # what the connector's process is started with
    workspace, code, count = open_workspace(args.workspace), 0, 0
    on_commit: OnCommit | None = None
    for target in targets_of(workspace, args.dataset, win=args.window):
        # a child of its own can be met at its calls
        with kept_cold(), open_world(workspace, upstream="replay") as world:
            if on_commit is None:
                on_commit = _on_commit(args, workspace)
            store = CountingStore(world.store, on_commit, count)
            world.store = store
            world.heart = heart = Heartbeat(world.store, world.lease_seconds)
            try:
                code = max(code, run_target(world, target).exit_code)
            finally:
                heart.stop()
            count = store.count
    return code


def _on_commit(args: Namespace, workspace: Workspace) -> OnCommit:
    if args.kill:
        return _killing(args.kill, args.mark)
    if args.list:
        return _listing(args.list)
    if args.record:
        return _recording(workspace, args.record)
    return lambda when, count, records: None


if __name__ == "__main__":
    sys.exit(main())
