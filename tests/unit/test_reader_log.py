"""Lines of the reader's logs are in the file that lies under the name of the day."""

import contextlib
import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from kfm.model import IntegrityError
from kfm.reader.log import Logs
from kfm.zones.local import LocalZone

DAY, NEXT = "2026-11-18", "2026-11-19"


@pytest.fixture
def logs(tmp_path: Path) -> Iterator[Logs]:
    zone = LocalZone(tmp_path)
    found = Logs(zone)
    yield found
    found.close()
    zone.close()


def lines(folder: Path, day: str = DAY) -> str:
    return (folder / "ledger" / "logs" / f"decisions-{day}.jsonl").read_text()


def test_lines_follow_each_other_and_a_day_has_its_own_file(tmp_path: Path, logs: Logs) -> None:
    for day, line in ((DAY, b"1\n"), (DAY, b"2\n"), (NEXT, b"3\n"), (DAY, b"4\n"), (NEXT, b"5\n")):
        logs.append("decisions", day, line)
    assert (lines(tmp_path), lines(tmp_path, NEXT)) == ("1\n2\n4\n", "3\n5\n")


@pytest.mark.parametrize("how", [os.unlink, lambda at: os.rename(at, f"{at}.1")])
def test_a_log_that_was_moved_away_begins_anew(tmp_path: Path, logs: Logs, how: object) -> None:
    for line in (b"1\n", b"2\n"):
        logs.append("decisions", DAY, line)
    how(tmp_path / "ledger" / "logs" / f"decisions-{DAY}.jsonl")  # type: ignore[operator]
    for line in (b"3\n", b"4\n"):
        logs.append("decisions", DAY, line)
    assert lines(tmp_path) == "3\n4\n"


def test_a_link_under_the_name_is_not_written_through(tmp_path: Path, logs: Logs) -> None:
    logs.append("decisions", DAY, b"1\n")
    folder = tmp_path / "ledger" / "logs"
    folder.rename(tmp_path / "elsewhere")
    (tmp_path / "elsewhere" / f"decisions-{DAY}.jsonl").unlink()
    folder.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(IntegrityError):
        logs.append("decisions", DAY, b"2\n")


def test_what_could_only_be_written_in_part_is_written_to_its_end(
    tmp_path: Path, logs: Logs, monkeypatch: pytest.MonkeyPatch
) -> None:
    logs.append("decisions", DAY, b"1\n")
    write, short = os.write, [True]

    def some(descriptor: int, line: bytes) -> int:
        return write(descriptor, line[:3] if short and short.pop() else line)

    monkeypatch.setattr(os, "write", some)
    logs.append("decisions", DAY, b"a long line\n")
    assert lines(tmp_path) == "1\na long line\n"


@pytest.mark.parametrize(("took", "left"), [(3, "a l\n"), (0, "")])
@pytest.mark.parametrize("again", [False, True])
def test_half_a_line_is_no_part_of_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, again: bool, took: int, left: str
) -> None:
    """What a full disk took of one, by who goes on or by who comes after a kill."""
    with contextlib.ExitStack() as stack:
        zone = stack.enter_context(contextlib.closing(LocalZone(tmp_path)))
        logs = stack.enter_context(contextlib.closing(Logs(zone)))
        logs.append("decisions", DAY, b"1\n")
        write = os.write

        def full(path: str, line: bytes) -> None:
            raise OSError(errno.ENOSPC, "no room")

        with monkeypatch.context() as on:
            on.setattr(os, "write", lambda descriptor, line: write(descriptor, line[:took]))
            on.setattr(zone, "append", full)
            with pytest.raises(OSError):
                logs.append("decisions", DAY, b"a long line\n")
        if again:
            logs = stack.enter_context(contextlib.closing(Logs(zone)))
        for line in (b"2\n", b"3\n"):
            logs.append("decisions", DAY, line)
    assert lines(tmp_path) == f"1\n{left}2\n3\n"
