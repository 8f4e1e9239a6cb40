"""Words of the glossary are used exactly, in documents and in what kfm prints."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from kfm.cli.spec import COMMANDS, NOUNS

ROOT = Path(__file__).parents[2]
SRC = ROOT / "src" / "kfm"
GLOSSARY = SRC / "template" / "docs" / "glossary.md"
# word -> other ways to say it, which nobody may read; the glossary itself explains with other words
OTHERWISE = {
    "Run": r"\b(re-runs?|pipeline runs?|pipeline executions?|run instances?)\b",
    "DatasetVersion": r"\b(data ?sets?[ -]versions?|dataset_versions?|versions? of data sets?)\b",
    "Backfill": r"\b(back-fill|back fill|backload|bulk reload|historical load)",
    "Promotion": r"\b(publishing step|go-live|going live|promoting step|release to production)\b",
    "Fail-closed": r"\b(fail-close|failclosed|fail[ -]?safe|fail[ -]secure|fail[ -]?open)\b",
}
PAGES = [
    *sorted((ROOT / "docs").glob("*.md")),
    *sorted((SRC / "template").rglob("*.md")),
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "kansas/README.md")),
]
CODE = [p for p in sorted(SRC.rglob("*.py")) if "template" not in p.parts]


def printed(path: Path) -> Iterator[str]:
    """Every text of a module but its docstrings and the patterns it looks for."""
    tree = ast.parse(path.read_text())
    silent = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef)
        and node.body
        and isinstance(node.body[0], ast.Expr)
    }
    for node in ast.walk(tree):
        text = node.value if isinstance(node, ast.Constant) else None
        if isinstance(text, str) and id(node) not in silent:
            yield text


def said_otherwise(text: str) -> list[str]:
    return [
        found[0] for pattern in OTHERWISE.values() for found in re.finditer(pattern, text, re.I)
    ]


def test_the_glossary_has_every_word_once() -> None:
    defined = re.findall(r"^- \*\*([\w-]+)\*\*: ", GLOSSARY.read_text(), re.M)
    assert defined == [*OTHERWISE]


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_page_says_it_as_the_glossary_does(path: Path) -> None:
    if path != GLOSSARY and path.name != "requirements.md":  # that one quotes
        assert said_otherwise(path.read_text()) == []


def test_what_kfm_prints_says_it_as_the_glossary_does() -> None:
    found = [
        f"{path.relative_to(SRC)}: {words}"
        for path in CODE
        for text in printed(path)
        for words in said_otherwise(text)
    ]
    assert found == []
    spoken = " ".join(
        [c.name + " " + c.what + c.about for c in COMMANDS.values()]
        + [n.what for n in NOUNS.values()]
    )
    assert said_otherwise(spoken) == []
    for word in ("run", "backfill", "promote"):
        assert word in {c.noun for c in COMMANDS.values()}, "a command is called by its word"


@pytest.mark.parametrize(
    "text", ["Back-fill the past", "a dataset version", "it is fail-safe", "re-run it", "go-live"]
)
def test_other_words_would_be_noticed(text: str) -> None:
    assert said_otherwise(text)
