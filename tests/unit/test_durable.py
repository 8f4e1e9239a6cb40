"""Keys and registry entries appear whole, however many make them at once."""

import os
import threading
from pathlib import Path

import pytest

from kfm.keys.commitments import Vaults
from kfm.workspace.config import change_entry
from kfm.zones.durable import create_durably, replace_durably


def test_two_threads_that_make_one_data_key_get_the_same_whole_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    both, link = threading.Barrier(2), os.link

    def slow(*args: object, **more: object) -> None:
        try:
            link(*args, **more)  # type: ignore[arg-type]
        finally:
            both.wait(30)  # nobody is done before both have tried

    monkeypatch.setattr(os, "link", slow)
    monkeypatch.setattr(Path, "exists", lambda path: False)  # both looked before the other made it
    got: list[str] = []
    threads = [
        threading.Thread(target=lambda: got.append(Vaults(tmp_path / "data").commit("places", "x")))
        for _ in range(2)
    ]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert len(got) == 2 and len(set(got)) == 1
    assert [p.name for p in (tmp_path / "data").iterdir()] == ["places.salt"], (
        "nothing is left beside it"
    )
    assert len((tmp_path / "data" / "places.salt").read_text().strip()) == 64


def test_a_registry_entry_is_on_the_disk_before_it_takes_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "data" / "registry" / "trees.yml"
    entry = "dataset_id: trees\ntitle: Trees\nlicence: CC0-1.0\nsensitivity: public\npolicy_label: public\n"
    create_durably(
        path,
        (
            entry + 'source: {kind: http_file, format: csv, url: "file:///inbox/trees.csv"}\n'
        ).encode(),
    )
    story: list[str] = []
    fsync, rename = os.fsync, os.rename
    monkeypatch.setattr(
        os,
        "fsync",
        lambda fd: (story.append("sync " + os.readlink(f"/proc/self/fd/{fd}")), fsync(fd))[1],
    )
    monkeypatch.setattr(os, "replace", lambda a, b: (story.append(f"name {a}"), rename(a, b))[1])
    monkeypatch.setattr(Path, "replace", lambda a, b: (story.append(f"name {a}"), rename(a, b))[1])
    change_entry(tmp_path, "trees", {"title": "Old trees"})
    synced, named, *folders = story
    assert synced.removeprefix("sync ") == named.removeprefix("name ")
    assert folders[0] == f"sync {path.parent}"
    assert "Old trees" in path.read_text()


def test_two_writers_never_share_a_temporary_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names: list[str] = []
    monkeypatch.setattr(Path, "replace", lambda a, b: names.append(a.name))
    for _ in range(2):
        replace_durably(tmp_path / "entry.yml", b"x")
    assert len(set(names)) == 2 and not list(tmp_path.iterdir())
