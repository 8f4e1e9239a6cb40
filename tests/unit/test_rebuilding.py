"""A store in a file that is made anew: it takes the place of the old one, whole or not at all."""

import os
from contextlib import closing
from pathlib import Path

import pytest

from kfm.model.clock import SystemClock
from kfm.store.base import Rebuild
from kfm.store.sqlite import SqliteStore
from kfm.workspace.rebuilding import rebuilding

CLOCK = SystemClock()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A store of the third epoch that has seen a root."""
    path = tmp_path / "ledger" / "idempotency.sqlite"
    path.parent.mkdir()
    with closing(SqliteStore(path, CLOCK)) as store:
        store.transaction(
            lambda tx: (tx.index.put_meta("epoch", "3"), tx.index.put_meta("root", '{"version":1}'))
        )
        store.transaction(lambda tx: tx.switches.off("wells", "why", "ada"))
    return path


def meta(path: Path, key: str) -> str | None:
    with closing(SqliteStore(path, CLOCK)) as store:
        return store.read(lambda tx: tx.index.meta(key))


def test_one_that_is_left_before_it_is_finished_changes_nothing(path: Path, tmp_path: Path) -> None:
    before = sorted(p.name for p in path.parent.iterdir())
    with pytest.raises(ZeroDivisionError), rebuilding(path, CLOCK, tmp_path / "aside") as new:
        1 / new.store.transaction(lambda tx: (tx.index.put_meta("epoch", "4"), 0)[1])
    assert meta(path, "epoch") == "3" and not (tmp_path / "aside").exists()
    assert {p.name for p in path.parent.iterdir()} - set(before) <= {
        "turnstile.lock",
        f"{path.name}-wal",
        f"{path.name}-shm",
    }


def test_one_that_is_finished_is_the_store_and_keeps_what_no_evidence_tells(
    path: Path, tmp_path: Path
) -> None:
    with rebuilding(path, CLOCK, tmp_path / "aside") as new:
        told: Rebuild = new
        assert (told.old_epoch, told.old_root, told.has_work) == (3, '{"version":1}', False)
        told.store.transaction(lambda tx: tx.index.put_meta("epoch", "4"))
        assert told.finish(lambda tx: tx.index.put_meta("last", "done"))
    assert (meta(path, "epoch"), meta(path, "last"), meta(path, "root")) == ("4", "done", None)
    assert meta(tmp_path / "aside" / path.name, "epoch") == "3", "the old one is kept"
    with closing(SqliteStore(path, CLOCK)) as store:
        assert [s.name for s in store.read(lambda tx: tx.switches.listing())] == ["wells"]


@pytest.mark.parametrize("there", [b"", b"no store at all", None])
def test_of_an_old_one_that_cannot_be_read_nothing_is_known(
    tmp_path: Path, there: bytes | None
) -> None:
    path = tmp_path / "idempotency.sqlite"
    if there is not None:
        path.write_bytes(there)
    with rebuilding(path, CLOCK, tmp_path / "aside") as new:
        assert (new.old_epoch, new.old_root) == (0, None)
        new.store.transaction(lambda tx: tx.index.put_meta("epoch", "1"))
        assert not new.finish(lambda tx: None)
    assert meta(path, "epoch") == "1" and (tmp_path / "aside").exists() == (there is not None)


@pytest.mark.parametrize("in_use", [False, True])
def test_one_that_is_killed_before_it_takes_the_place_leaves_the_old_one_there(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, in_use: bool
) -> None:
    replace = os.replace

    def dies(old: Path, new: Path) -> None:
        if new == path:
            raise KeyboardInterrupt
        replace(old, new)

    with closing(SqliteStore(path, CLOCK)) as other:
        other.transaction(lambda tx: tx.index.put_meta("said", "last"))
        if not in_use:
            other.close()
        monkeypatch.setattr("kfm.workspace.rebuilding.os.replace", dies)
        with rebuilding(path, CLOCK, tmp_path / "aside") as new:
            new.store.transaction(lambda tx: tx.index.put_meta("epoch", "4"))
            with pytest.raises(KeyboardInterrupt):
                new.finish(lambda tx: None)
        monkeypatch.undo()
    assert (meta(path, "epoch"), meta(path, "said")) == ("3", "last")
