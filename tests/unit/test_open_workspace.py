"""A workspace that is kept open between requests is the workspace as it is now."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from kfm.access.memory import Mark, NotAtHand, at_hand, mark_of
from kfm.cli.init import make_workspace
from kfm.reader.open_workspace import Kept


@pytest.fixture
def ws(tmp_path: Path) -> Path:
    make_workspace(tmp_path / "ws", sample=False, allow_loopback=True)
    return tmp_path / "ws"


@pytest.fixture
def kept(ws: Path) -> Iterator[Kept]:
    found = Kept(ws)
    yield found
    found.close()


def at_a_moment(monkeypatch: pytest.MonkeyPatch, moment_ns: int) -> None:
    """The clock of the file system does not tick any more."""

    def marked(path: str | Path | int) -> Mark:
        found = mark_of(path)
        return found and (*found[:2], moment_ns)

    monkeypatch.setattr("kfm.reader.open_workspace.mark_of", marked)


@pytest.mark.parametrize("name", ["kfm.yml", "policy/mine.rego"])
def test_what_changes_within_one_tick_of_the_clock_is_read_again(
    ws: Path, kept: Kept, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    file = ws / name
    file.write_text(file.read_text() + "# one\n" if file.exists() else "package mine\n# one\n")
    at_a_moment(monkeypatch, time.time_ns() + 10**10)
    with kept.opened():
        pass  # the store is made
    with kept.opened() as (_, before):
        pass
    file.write_text(file.read_text().replace("# one", "# two"))
    with kept.opened() as (_, after):
        assert after is not before


@pytest.mark.parametrize("before", [True, False])
def test_a_rule_that_comes_or_goes_is_heeded(
    ws: Path, kept: Kept, monkeypatch: pytest.MonkeyPatch, before: bool
) -> None:
    rule = ws / "policy" / "mine.rego"
    if before:
        rule.write_text("package mine\n")
    monkeypatch.setattr("kfm.reader.open_workspace.is_settled", lambda *_: True)
    with kept.opened():
        pass  # the store is made
    with kept.opened() as (_, first):
        pass
    with kept.opened() as (_, second):
        assert second is first
    time.sleep(0.02)  # the clock of the file system ticks
    if before:
        rule.unlink()
    else:
        rule.write_text("package mine\n")
    with kept.opened() as (_, after):
        assert after is not first


def test_who_does_not_wait_is_told_that_it_is_not_open_yet(ws: Path, kept: Kept) -> None:
    with at_hand(), pytest.raises(NotAtHand), kept.opened():
        pass
    with kept._lock, at_hand(), pytest.raises(NotAtHand), kept.opened():
        pass  # another is at it
    with kept.opened():
        pass


def test_what_was_long_as_it_is_stays_open(kept: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    at_a_moment(monkeypatch, 1)
    with kept.opened():
        pass  # the store is made
    with kept.opened() as (_, before):
        pass
    with kept.opened() as (_, after):
        assert after is before
