"""docs/requirements.md is honest: every id stands in it once, and every test it names is
collected.
"""

import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from tests.given.verbs import COLLECTED, SHARED

ROOT = Path(__file__).parents[2]
COUNTS = {"U": 62, "D": 55, "O": 51, "W": 44, "C": 62, "X": 30, "S": 24}
ROWS = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in (ROOT / "docs" / "requirements.md").read_text().splitlines()
    if re.match(r"\| [UDOWCXS]-\d+ ", line)
]


def test_every_id_stands_once() -> None:
    expected = [
        f"{prefix}-{number:02}"
        for prefix, count in COUNTS.items()
        for number in range(1, count + 1)
    ]
    assert sorted(row[0] for row in ROWS) == sorted(expected)


@pytest.mark.needs_shared
def test_the_ids_are_those_of_the_list() -> None:
    listed = SHARED / "REQUIREMENTS.md"
    if not listed.is_file():
        pytest.skip("not run: the requirements list is not beside the repository")
    assert sorted(row[0] for row in ROWS) == sorted(
        re.findall(r"^- \*\*([UDOWCXS]-\d+)\*\*", listed.read_text(), re.M)
    )


def test_a_state_is_one_of_three_and_met_names_a_test() -> None:
    for name, state, where, test in ROWS:
        assert state in ("met", "not yet", "not applicable"), name
        assert (state == "met") == bool(test), f"{name}: met names a test, nothing else does"
        assert state != "met" or where, f"{name}: where?"


def test_what_is_met_is_where_it_is_said_to_be() -> None:
    for name, state, where, _ in ROWS:
        for path, told in re.findall(r"`([\w./]+(?:/|\.py))`(?: \(`([\w.]+)`\))?", where):
            found = [at for at in (ROOT / path, ROOT / "src" / "kfm" / path) if at.exists()]
            assert state != "met" or found, f"{name}: there is no {path}"
            if told.isidentifier() and found and found[0].is_file():
                assert re.search(rf"\b{told}\b", found[0].read_text()), f"{name}: {told}"


def test_every_named_test_runs_every_time(request: pytest.FixtureRequest) -> None:
    named = {test for _, state, _, test in ROWS if state == "met"}
    assert named
    # so it is when everything runs; a run of some files has not looked at the others
    if named <= request.config.stash[COLLECTED]:
        return
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "--collect-only",
            "-q",
            "-m",
            "not drill",
            "-o",
            "addopts=",
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-2000:]
    collected = {line.split("[")[0] for line in done.stdout.splitlines() if "::" in line}
    assert not named - collected


def test_what_is_met_has_a_change_that_would_be_noticed_or_waits_for_one() -> None:
    """`make mutants` shows that each is noticed; here, that each still has its one place."""
    listed = yaml.safe_load((ROOT / "tests" / "mutants.yml").read_text())
    come, met = listed.pop("to come", []), {name for name, state, *_ in ROWS if state == "met"}
    assert {*listed, *come} == met and not {*listed} & {*come}
    for name, change in listed.items():
        path = ROOT / change["file"]
        assert path.is_file(), f"{name}: `tools/mutants.py --where` finds what moved"
        assert path.read_text().count(change["before"]) == 1, f"{name}: {change['before']}"
        assert change["before"] != change["after"], name
