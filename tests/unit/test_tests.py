"""The tests keep their own house: where they lie, and what they may share."""

import re
from pathlib import Path

TESTS = Path(__file__).parents[1]
# what a folder of tests says about them; `given` is what they share, the rest is no code of tests
KINDS = {"unit", "integration", "cases", "model", "conformance", "journeys"}
OTHERS = {"given", "fixtures", "go", "neo4j", "schemathesis", "spdx"}


def test_every_test_lies_in_the_folder_of_its_kind() -> None:
    assert {p.relative_to(TESTS).parts[0] for p in TESTS.rglob("test_*.py")} <= KINDS
    folders = {p.name for p in TESTS.iterdir() if p.is_dir() and p.name != "__pycache__"}
    assert folders <= KINDS | OTHERS


def test_what_is_left_to_the_drill_is_said_at_the_test() -> None:
    """By its mark, never by a list elsewhere or by its place among the cases."""
    for path in TESTS.rglob("conftest.py"):
        assert not re.search(r"add_marker|deselect|mark\.drill", path.read_text()), path


def test_no_test_imports_another_test() -> None:
    """Nor a conftest: what two tests need is in `tests/given`. Scripts inside of strings count."""
    found = [
        f"{path.relative_to(TESTS)}: {line.strip()}"
        for path in sorted(TESTS.rglob("*.py"))
        for line in path.read_text().splitlines()
        if re.match(r"\s*(from|import) (tests\.)?[\w.]*\b(test_\w+|conftest)\b", line)
        or re.match(r"\s*from tests[\w.]* import \(?.*\b(test_\w+|conftest)\b", line)
    ]
    assert found == []
