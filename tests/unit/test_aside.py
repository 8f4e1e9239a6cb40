"""Folders in the temporary place that everybody on the machine shares."""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from kfm.zones.scratch_places import aside, sweep_aside
from kfm.zones.temps import remove_folder

NOBODY = 65534


@pytest.fixture
def shared(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o1777)
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    yield folder
    shutil.rmtree(folder)


def test_what_a_dead_process_left_goes_and_what_is_in_use_stays(shared: Path) -> None:
    left = shared / "kfm-aside-x-left"
    left.mkdir()
    (left / "lock").touch()
    (shared / "kfm-aside-x-young").mkdir()
    with aside("x") as ours:
        sweep_aside()
        assert ours.is_dir() and not left.exists()
    assert [p.name for p in shared.iterdir()] == ["kfm-aside-x-young"]


def test_what_cannot_be_looked_into_stops_nobody(shared: Path) -> None:
    theirs = shared / "kfm-aside-x-theirs"
    theirs.mkdir()
    (theirs / "lock").touch()
    theirs.chmod(0)
    we = os.geteuid()
    os.seteuid(NOBODY if we == 0 else we)  # root may look into everything
    try:
        with pytest.raises(PermissionError):
            (theirs / "lock").stat()
        sweep_aside()
    finally:
        os.seteuid(we)
        theirs.chmod(0o700)
    assert (theirs / "lock").exists()


def test_a_folder_goes_with_all_that_is_in_it_and_nothing_behind_a_link(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    kept.mkdir()
    (kept / "file").touch()
    for folders in ((), ("deep", "deeper")):
        folder = tmp_path / "ours"
        folder.joinpath(*folders).mkdir(parents=True)
        (folder / "file").touch()
        (folder / "link").symlink_to(kept)
        remove_folder(folder)
        assert not folder.exists()
    (tmp_path / "ours").symlink_to(kept)
    remove_folder(tmp_path / "ours")
    remove_folder(tmp_path / "gone")
    assert (kept / "file").exists()


def test_what_is_left_is_found_in_a_process_that_has_made_none(shared: Path) -> None:
    left = shared / "kfm-aside-x-left"
    left.mkdir()
    (left / "lock").touch()
    code = "import sys\nfrom kfm.zones.scratch_places import sweep_aside\nsweep_aside()\nassert 'tempfile' not in sys.modules"
    subprocess.run(
        [sys.executable, "-c", code], check=True, env={**os.environ, "TMPDIR": str(shared)}
    )
    assert not left.exists()
