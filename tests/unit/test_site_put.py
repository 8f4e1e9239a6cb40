"""A folder of a static copy takes the place of an earlier one, or leaves it as it was."""

import contextlib
from pathlib import Path

import msgspec
import pytest

from kfm.pages.site.put import MANIFEST, Manifest, listed, putting


def _copy(folder: Path, text: str) -> None:
    """Make a copy that holds one file."""
    with putting(folder) as partial:
        (partial / "index.html").write_text(text)
        manifest = Manifest(datasets={}, files=listed(partial))
        (partial / MANIFEST).write_bytes(msgspec.json.encode(manifest))


def test_a_copy_takes_the_place_of_an_earlier_one_and_leaves_nothing_beside(tmp_path: Path) -> None:
    _copy(tmp_path / "site", "first")
    _copy(tmp_path / "site", "second")
    assert (tmp_path / "site" / "index.html").read_text() == "second"
    assert [path.name for path in tmp_path.iterdir()] == ["site"]


@pytest.mark.parametrize("why", [KeyboardInterrupt, OSError])
def test_whoever_stops_it_between_the_two_renames_keeps_the_earlier_copy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, why: type[BaseException]
) -> None:
    _copy(tmp_path / "site", "first")
    rename = Path.rename

    def stopped(path: Path, to: Path) -> Path:
        if path.suffix == ".tmp":  # the earlier copy is aside by now
            raise why
        return rename(path, to)

    monkeypatch.setattr(Path, "rename", stopped)
    with pytest.raises(why):
        _copy(tmp_path / "site", "second")
    assert (tmp_path / "site" / "index.html").read_text() == "first"
    assert [path.name for path in tmp_path.iterdir()] == ["site"]


def test_after_one_that_was_killed_the_earlier_copy_comes_back_and_the_rest_goes(
    tmp_path: Path,
) -> None:
    """Killed between the two renames; nobody was left to put it back."""
    site = tmp_path / "site"
    _copy(site, "first")
    site.rename(tmp_path / ".site.0123abcd.old")
    (tmp_path / ".site.0123abcd.tmp").mkdir()
    mine = tmp_path / ".site.draft.old"
    mine.mkdir()
    with contextlib.suppress(OSError), putting(site):
        assert (site / "index.html").read_text() == "first"
        raise OSError
    assert (site / "index.html").read_text() == "first"
    (tmp_path / ".site.4567abcd.old").mkdir()  # killed after its place was taken
    _copy(site, "second")
    assert (site / "index.html").read_text() == "second"
    assert sorted(path.name for path in tmp_path.iterdir()) == [mine.name, "site"]


def test_what_another_fills_at_the_moment_is_left_to_it(tmp_path: Path) -> None:
    with putting(tmp_path / "site") as partial:
        (partial / "index.html").write_text("mine")
        (partial / MANIFEST).write_bytes(
            msgspec.json.encode(Manifest(datasets={}, files=listed(partial)))
        )
        _copy(tmp_path / "site", "another's")
        assert (partial / "index.html").read_text() == "mine"
    assert (tmp_path / "site" / "index.html").read_text() == "mine"
