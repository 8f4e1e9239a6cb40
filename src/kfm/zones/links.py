"""Names that lead to a folder of a zone, each from one to the next in a single step."""

import os
from pathlib import Path

from kfm.zones.durable import sync_folder
from kfm.zones.local import LocalZone

__all__ = ["Links"]


class Links:
    """Links in a zone. They are shown to others and hold nothing: no zone follows one, lists one or
    keeps one.
    """

    def __init__(self, zone: LocalZone) -> None:
        self._zone = zone

    def point(self, path: str, folder: str) -> None:
        """Let `path` lead to a folder; a reader sees where it led before or where it leads now,
        and never nothing. Whatever else stood there goes.
        """
        target = self._zone.local(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        if target.is_dir() and not target.is_symlink():
            self.clear(path)  # a copy of the workspace that followed the link
        self._put(target, self._way(target, folder))
        sync_folder(target.parent)

    def point_for_now(self, path: str, place: Path) -> None:
        """Let `path` lead to a folder wherever it lies, in one step. A power cut may forget it, and
        what is no link stays.
        """
        target = self._zone.local(path)
        if target.is_symlink() or not os.path.lexists(target):
            self._put(target, os.path.relpath(place, target.parent))

    def _put(self, target: Path, way: str) -> None:
        temp = self._zone.temp()
        os.symlink(way, temp)
        os.replace(temp, target)

    def clear(self, path: str) -> None:
        """Let `path` lead to nothing."""
        target = self._zone.local(path)
        if not os.path.lexists(target):
            return
        temp = self._zone.temp()
        os.replace(target, temp)
        sync_folder(target.parent)
        if temp.is_dir() and not temp.is_symlink():
            from shutil import rmtree  # hardly ever needed

            rmtree(temp)
        else:
            temp.unlink()

    def leads(self, path: str, folder: str | None) -> bool:
        """Whether that is what `path` leads to; None: nothing is there."""
        target = self._zone.local(path)
        try:
            told = os.readlink(target)
        except FileNotFoundError:
            return folder is None
        except OSError:  # no link
            return False
        return folder is not None and told == self._way(target, folder)

    def _way(self, target: Path, folder: str) -> str:
        """From beside `target` to a folder: it holds where the whole zone is moved, or mounted
        elsewhere.
        """
        return os.path.relpath(self._zone.local(folder).resolve(), target.parent.resolve())
