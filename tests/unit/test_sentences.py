"""No decision compares a sentence: what people are told may be worded anew at any time, and
people's own words decide nothing.
"""

import ast
import re
from pathlib import Path

import pytest

from kfm.evidence.folder_check import Verified, verify_folder, verify_in_zone
from kfm.model.ledger import denial_codes
from kfm.zones.local import LocalZone

SRC = Path(__file__).parents[2] / "src" / "kfm"
# members that hold sentences; `code` and types are what is decided by
TOLD = {"happened", "remedy", "reason", "message"}
READERS = {
    "startswith",
    "endswith",
    "partition",
    "rpartition",
    "split",
    "removeprefix",
    "find",
    "index",
    "count",
}
STORED = {  # the one place each where nothing but the sentence was kept
    "model/ledger.py: denial_codes",
    "jobs/backfill_spans.py: is_of",
    "upkeep/reindex.py: _noop_code",
}
SHOWN = {
    "cli/run.py: tell",
    "cli/scheduler.py: _problem",
    "extras/search/base.py: find",
    "fetch/http.py: _pause",
    "reader/app.py: _which",
    "reader/feeds.py: in_words",
}  # shortened or joined to be shown, nothing follows


def is_told(node: ast.AST) -> bool:
    if (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id == "str"
        and node.args
    ):
        return is_told(node.args[0])
    if (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "get"
        and node.args
    ):
        return isinstance(node.args[0], ast.Constant) and node.args[0].value in TOLD
    if isinstance(node, ast.Subscript):
        return isinstance(node.slice, ast.Constant) and node.slice.value in TOLD
    return isinstance(node, ast.Attribute) and node.attr in TOLD


def decides(node: ast.AST) -> bool:
    """Whether this compares, or takes apart, a sentence."""
    if isinstance(node, ast.Compare):
        sides = [node.left, *node.comparators]
        nothing = any(isinstance(s, ast.Constant) and s.value in ("", None) for s in sides)
        return any(is_told(s) for s in sides) and not nothing
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in READERS
        and is_told(node.func.value)
    )


def found_in(text: str) -> list[str]:
    tree, found = ast.parse(text), []
    for outer in ast.walk(tree):
        if isinstance(outer, ast.FunctionDef):
            found += [outer.name for node in ast.walk(outer) if decides(node)]
    return found


def test_nothing_decides_by_a_sentence() -> None:
    found = {
        f"{p.relative_to(SRC)}: {name}"
        for p in SRC.rglob("*.py")
        if "template" not in p.parts
        for name in found_in(p.read_text())
    }
    assert found <= STORED | SHOWN, "decide by a code or a type kept beside the sentence"


@pytest.mark.parametrize(
    "line",
    [
        "row.reason == 'unchanged'",
        "'x' in error.happened",
        "row['reason'].startswith('a')",
        "str(d.get('message')).split(':')",
    ],
)
def test_the_look_for_sentences_finds_them(line: str) -> None:
    assert found_in(f"def f():\n    return {line}") == ["f"]


def test_what_a_person_says_with_a_no_is_no_code() -> None:
    assert denial_codes("approval.rejected: ann: wrong county; policy.error, as they say") == (
        "approval.rejected",
    )
    assert denial_codes("labels.obligation; labels.sealed") == (
        "labels.obligation",
        "labels.sealed",
    )
    assert denial_codes("approval.void or registry.changed") == (
        "approval.void",
        "registry.changed",
    )


def test_a_finding_says_beside_its_sentence_what_befell_the_file(tmp_path: Path) -> None:
    (tmp_path / "checksums.sha256").write_text(f"{'0' * 64}  gone.txt\n{'0' * 64}  other.txt\n")
    for name in ("other.txt", "unlisted.txt"):
        (tmp_path / name).write_text("missing, and not listed")
    for check in (
        verify_folder,
        lambda folder, found: verify_in_zone(LocalZone(folder.parent), folder.name, found),
    ):
        found = Verified()
        check(tmp_path, found)
        assert (found.kinds, len(found.problems)) == (["missing", "damaged", "extra"], 3)


EMPTY = re.compile(r"\b(Correct|Fix) (it|them|that|this|the \w+)\b")


def test_a_remedy_says_what_to_do_and_where() -> None:
    """ "Correct it." leaves the reader where the error did."""
    found = [
        f"{path.relative_to(SRC)}:{node.value.lineno}: {said}"
        for path in SRC.rglob("*.py")
        if "remedy=" in (text := path.read_text())
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.keyword) and node.arg == "remedy"
        if EMPTY.search(said := _words(node.value))
    ]
    assert not found, "\n".join(found)


def _words(value: ast.expr) -> str:
    """Everything of a sentence that is not filled in."""
    return "".join(
        part.value
        for part in ast.walk(value)
        if isinstance(part, ast.Constant) and isinstance(part.value, str)
    )
