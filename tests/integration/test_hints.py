"""Every command that is printed as the next one can be called where it is printed, and does
something.
"""

import re
import shlex
import shutil
from pathlib import Path

import pytest

from kfm.cli import main
from kfm.cli.init import make_workspace
from kfm.cli.spec import HEADS
from tests.given.verbs import Said, caller, tree

QUAKES, SITES, WELLS = "ks_earthquakes", "ks_sites", "ks_wells"
# what people type, right and wrong, in a workspace that has something of everything
TYPED = [
    "status",
    f"status {WELLS}",
    "review",
    "review 1",
    "jobs list",
    "jobs dead",
    "switch list",
    "quarantine list",
    "runs",
    "du",
    "doctor",
    "keys list",
    f"history {QUAKES}",
    f"gates {WELLS}",
    f"gates {SITES}",
    f"explain deny {WELLS}",
    f"explain {QUAKES}",
    f"plan {QUAKES}",
    f"run {QUAKES}",
    f"run {WELLS}",
    f"run {SITES}",
    f"propose {QUAKES}",
    f"diff {QUAKES}",
    f"done {WELLS}",
    "verify",
    "schedule list",
    "backfill list",
    "resume",
    "gc",
    f"get {WELLS}",
    f"get {QUAKES}@9",
    f"show {QUAKES}",
    f"cite {QUAKES}",
    f"search {QUAKES}",
    "run nothing",
    "show nothing",
    "history nothing",
    "runs nothing",
    "jobs show ffffffff",
    "wal ffffffff",
    "promote 99",
    "approve 99",
    f"rollback {QUAKES}",
    f"withdraw {QUAKES}",
    f"licence set {WELLS}",
    f"dataset check {WELLS}",
    "policy check",
]
_SAID = re.compile(rf"(?<![\w./-])kfm (?:-w \S+ )?(?:{'|'.join(HEADS)})(?![\w-])[^`;,|\n]*")


def printed(said: Said) -> set[str]:
    """The commands that a text names as the next ones, those to be filled in left out."""
    found = set()
    for text in _SAID.findall(said.out + "\n" + said.err):
        words = text.split("  ")[0].strip().rstrip(".:)")
        filled = not re.search(r"…|\.\.\.|\b[A-Z]{2,}\b|<\w+>", words)
        if filled:
            found.add(words)
    return found


def hinted(said: Said) -> set[str]:
    """Of those, the ones in backquotes, on a line of their own, or behind `Next`: others are
    sentences that speak of a command.
    """
    lines = {line.strip() for line in (said.out + "\n" + said.err).splitlines()}
    return {
        words
        for words in printed(said)
        if f"`{words}`" in said.out + said.err
        or any(
            line == words or (re.match(r"(?i)next:?\s", line) and words in line) for line in lines
        )
    }


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "here"
    monkeypatch.setenv("KFM_FETCH_ATTEMPTS", "1")
    monkeypatch.chdir(tmp_path)  # some of the commands write a file where one stands
    make_workspace(folder, sample=True, demo=True, allow_loopback=True)
    assert main(["-w", str(folder), "run", QUAKES, SITES, WELLS]) in (3, 7)
    return folder


def test_every_next_command_can_be_called_and_ends_as_it_should(
    place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = {text: hinted(caller(place, capsys)(*shlex.split(text))) for text in TYPED}
    every = {command: text for text, commands in asked.items() for command in commands}
    assert len(every) >= 12, sorted(every)
    wrong = {}
    copy = tmp_path / "copy"
    shutil.copytree(place, copy)
    before = tree(copy)
    for command, text in sorted(every.items()):
        words = [w for w in shlex.split(command)[1:] if w not in ("-f", "--follow")]
        if words[0] in ("up", "scheduler", "worker", "sample-upstream"):
            continue  # they go on until they are stopped
        if tree(copy) != before:
            shutil.rmtree(copy)
            shutil.copytree(place, copy)
        said = caller(copy, capsys)(*words)
        if said.code not in (0, 3, 7):
            wrong[command] = f"said by `kfm {text}`: exit {said.code}: {said.err[:200]}"
    assert wrong == {}
