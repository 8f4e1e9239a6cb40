"""The page that shows the house is true: every room, every file it names, and the picture."""

import re
import sys
from pathlib import Path

from tests.given.house import rooms

ROOT = Path(__file__).parents[2]
SRC = ROOT / "src" / "kfm"


def test_every_room_has_its_row() -> None:
    told = set(re.findall(r"`([a-z]+)/`", (ROOT / "docs/architecture.md").read_text()))
    assert told == rooms()


def test_every_file_that_is_named_is_there() -> None:
    text = (ROOT / "docs/architecture.md").read_text()
    for name in re.findall(r"`((?:[a-z_]+/)+[a-z_]+\.py)`", text):
        assert (SRC / name).is_file() or (ROOT / name).is_file(), name
    for name in re.findall(r"`(src/kfm/[^`]+)`", (ROOT / "docs/where.md").read_text()):
        assert (ROOT / name).is_file(), name


def test_the_picture_is_that_of_the_imports() -> None:
    sys.path.insert(0, str(ROOT / "tools"))
    try:
        import draw_rooms
    finally:
        sys.path.pop(0)
    assert (ROOT / "docs/rooms.svg").read_text() == draw_rooms.drawn(), "make schemas"
