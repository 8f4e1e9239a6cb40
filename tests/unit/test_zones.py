"""The zone contract: a name appears whole or not at all, and what is written once stays as it was."""

import errno
import multiprocessing
import os
from pathlib import Path

import pytest

from kfm.model.errors import IntegrityError, StepFailed, UsageError
from kfm.model.ids import digest
from kfm.zones.base import hash_file
from kfm.zones.local import CHUNK, LocalZone
from kfm.zones.overlay import OverlayZone


@pytest.fixture
def zone(tmp_path: Path) -> LocalZone:
    return LocalZone(tmp_path / "zone")


def test_what_exists_is_never_replaced(zone: LocalZone) -> None:
    assert zone.create("a/b.txt", b"one")
    assert not zone.create("a/b.txt", b"two")
    assert zone.read("a/b.txt") == b"one"
    assert os.stat(zone.local("a/b.txt")).st_mode & 0o222 == 0


def test_many_names_are_created_with_their_digests(zone: LocalZone, tmp_path: Path) -> None:
    files = {f"m/{n:03}": f"content {n}".encode() for n in range(60)}
    stored = zone.create_all(files)
    assert {p: s.digest for p, s in stored.items()} == {p: digest(c) for p, c in files.items()}
    assert sorted(zone.names("m")) == sorted(files)
    zone.create_all(files)  # the same again is fine
    with pytest.raises(IntegrityError, match="m/003"):
        zone.create_all({"m/003": b"other bytes"})


def test_a_large_file_is_hashed_while_it_is_copied(zone: LocalZone, tmp_path: Path) -> None:
    source = tmp_path / "big"
    source.write_bytes(os.urandom(CHUNK * 2 + 12345))
    stored = zone.create_all({"big": source})["big"]
    assert stored == hash_file(source) == hash_file(zone.local("big"))
    source.write_bytes(b"changed")
    assert zone.stat("big") == stored, "it was copied, not shared with a file outside"


def test_a_file_of_the_zone_is_shared(zone: LocalZone) -> None:
    zone.create("a", b"x" * 1000)
    zone.create_all({"b": zone.local("a")})
    assert os.path.samefile(zone.local("a"), zone.local("b"))


@pytest.mark.parametrize("path", ["../x", "/etc/x", "a/../../x", "", "a//b", "a/./b", "a\\b", "c:/x", "a\x00b"])
def test_a_path_stays_in_its_zone(zone: LocalZone, path: str) -> None:
    with pytest.raises(UsageError):
        zone.create(path, b"")


def test_a_link_does_not_lead_out(zone: LocalZone, tmp_path: Path) -> None:
    zone.create("a/x", b"")
    (tmp_path / "outside").mkdir()
    os.symlink(tmp_path / "outside", zone.root / "link")
    with pytest.raises(IntegrityError):
        zone.create("link/y", b"")


@pytest.mark.parametrize("inside", [True, False])
def test_nothing_is_made_behind_a_link(zone: LocalZone, tmp_path: Path, inside: bool) -> None:
    elsewhere = (zone.root if inside else tmp_path) / "elsewhere"
    zone.root.mkdir(exist_ok=True)
    elsewhere.mkdir()
    os.symlink(elsewhere, zone.root / "catalog")
    with pytest.raises(IntegrityError, match="leads through a link: catalog"):
        zone.create("catalog/channels/trees/00000001.json", b"")
    with pytest.raises(IntegrityError, match="leads through a link"):
        zone.exists("catalog/channels/trees/00000001.json")
    assert list(elsewhere.iterdir()) == []


@pytest.mark.parametrize("kind", ["folder", "link to nowhere"])
def test_what_is_no_file_is_named_and_not_taken_for_one(zone: LocalZone, kind: str) -> None:
    zone.create("a/1", b"one")
    place = zone.root / "a" / "2"
    place.mkdir() if kind == "folder" else place.symlink_to("nothing")
    for ask in (lambda: zone.exists("a/2"), lambda: zone.create("a/2", b"two")):
        with pytest.raises(IntegrityError, match=r"a/2 is no file"):
            ask()


def test_a_projection_is_replaced_whole(zone: LocalZone) -> None:
    zone.replace("p", b"one")
    zone.replace("p", b"two")
    assert zone.read("p") == b"two"


def test_a_folder_that_another_process_swept_is_made_again(zone: LocalZone) -> None:
    zone.create("work/toy/runs/1/a.json", b"a")
    LocalZone(zone.root).remove_all(["work/toy/runs/1/a.json"])
    assert not (zone.root / "work" / "toy").exists()
    assert zone.create("work/toy/runs/1/a.json", b"b")
    LocalZone(zone.root).remove_all(["work/toy/runs/1/a.json"])
    zone.replace("work/toy/runs/1/b.json", b"c")
    LocalZone(zone.root).remove_all(["work/toy/runs/1/b.json"])
    zone.append("work/toy/runs/1/c.jsonl", b"d\n")
    LocalZone(zone.root).remove_all(["work/toy/runs/1/c.jsonl"])
    zone.create_all({"work/toy/runs/2/d": b"d", "work/toy/runs/1/d": b"d"})
    assert sorted(zone.names("work")) == ["work/toy/runs/1/d", "work/toy/runs/2/d"]


def test_what_a_dead_process_left_is_swept_and_a_living_one_keeps_its_own(zone: LocalZone) -> None:
    dead, living = LocalZone(zone.root), LocalZone(zone.root)
    left, kept = dead.temp(), living.temp()
    left.write_bytes(b"half")
    kept.write_bytes(b"half")
    os.close(dead._tmp_lock)  # as its death would
    assert len(zone.sweep()) == 1
    assert not left.exists()
    assert kept.exists()
    living.close()


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO, errno.EROFS])
def test_a_failing_disk_is_a_failed_step_with_a_name(zone: LocalZone, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    def fsync(fd: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr("kfm.zones.local.os.fsync", fsync)
    with pytest.raises(StepFailed, match="a/b"):
        zone.create("a/b", b"")
    assert not (zone.root / "a" / "b").exists()


def _create_fifty(root: Path) -> None:
    zone = LocalZone(root)
    for _ in range(50):
        zone.create_all({"same/object": b"the same content"})
    zone.close()


def test_fifty_writes_from_eight_processes_make_one_object(zone: LocalZone) -> None:
    zone.root.mkdir()
    context = multiprocessing.get_context("spawn")
    workers = [context.Process(target=_create_fifty, args=(zone.root,)) for _ in range(8)]
    for w in workers:
        w.start()
    for w in workers:
        w.join()
        assert w.exitcode == 0
    assert list(zone.names("same")) == ["same/object"]
    assert not [p for p in (zone.root / ".tmp").rglob("*") if p.is_file()] if (zone.root / ".tmp").exists() else True


def test_an_overlay_keeps_writes_to_itself(zone: LocalZone, tmp_path: Path) -> None:
    zone.create("kept/a", b"base")
    over = OverlayZone(zone, LocalZone(tmp_path / "upper"), "own/run")
    assert not over.create("kept/a", b"other")
    assert over.create("new/b", b"dry")
    over.replace("kept/p", b"dry")
    over.append("own/run/log", b"line\n")
    assert over.read("new/b") == b"dry" and over.read("kept/a") == b"base"
    assert sorted(zone.names("")) == ["kept/a", "own/run/log"]
