"""Folders in the temporary place that everybody on the machine shares."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from kfm.zones.scratch_places import aside, sweep_aside

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
