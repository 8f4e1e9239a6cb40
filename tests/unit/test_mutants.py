"""tools/mutants.py: a change that no test notices, or that has no place any more, is told."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]
ROW = "| {id} | met | `src/sum.py` | tests/test_sum.py::test_{test} |"
TESTS = """
import pytest
from sum import add

def test_it_adds():
    assert add(1, 2) == 3

def test_it_is_there():
    assert add

def test_it_needs_a_service():
    pytest.skip("not run: no service")

@pytest.mark.parametrize("n", [0, 1])
def test_each(n):
    assert n == 0 or add(n, n) == 2
"""


@pytest.fixture
def mutants(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    spec = importlib.util.spec_from_file_location("mutants", ROOT / "tools" / "mutants.py")
    assert spec is not None and spec.loader is not None
    found = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "mutants", found)  # where its records look for their names
    spec.loader.exec_module(found)
    monkeypatch.delenv("KFM_REQUIRE_SERVICES", raising=False)
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # the small project needs none
    return found


@pytest.fixture
def project(tmp_path: Path) -> Path:
    for name in ("src", "tests", "docs"):
        (tmp_path / "project" / name).mkdir(parents=True)
    (tmp_path / "project" / "src" / "sum.py").write_text("def add(a, b):\n    return a + b\n")
    (tmp_path / "project" / "tests" / "test_sum.py").write_text(TESTS)
    return tmp_path / "project"


def write(project: Path, changes: str, **tests: str) -> None:
    rows = [ROW.format(id=name.replace("_", "-"), test=test) for name, test in tests.items()]
    (project / "docs" / "requirements.md").write_text("\n".join(rows) + "\n")
    (project / "tests" / "mutants.yml").write_text(changes)


MINUS = "{file: src/sum.py, before: a + b, after: a - b}"


def test_what_no_test_notices_and_what_has_no_place_is_told(
    mutants: ModuleType, project: Path
) -> None:
    """And what is noticed is not, whichever parameter notices; the tree itself stays as it was."""
    write(
        project,
        f"U-01: {MINUS}\nU-02: {MINUS}\nU-03: {MINUS}\n"
        "U-04: {file: src/sum.py, before: a * b, after: a}\n"
        "U-05: {file: src/sum.py, before: a, after: b}\n"
        "U-06: {file: src/sum.py, before: a + b, after: a - b, case: '[1]'}\n",
        U_01="it_adds",
        U_02="it_is_there",
        U_03="it_needs_a_service",
        U_04="it_adds",
        U_05="it_adds",
        U_06="each",
    )
    before = (project / "src" / "sum.py").read_text()
    found, _ = mutants.read(project)
    assert {v.mutant.id: v.word for v in mutants.tried(project, [*found.values()])} == {
        "U-01": mutants.KILLED,
        "U-02": mutants.SURVIVED,
        "U-03": mutants.NOT_RUN,
        "U-04": mutants.MOVED,
        "U-05": mutants.MOVED,
        "U-06": mutants.KILLED,
    }
    assert (project / "src" / "sum.py").read_text() == before
    assert [mutants.main([name], project) for name in ("U-01", "U-02", "U-04")] == [0, 1, 1]


def test_a_met_id_without_a_change_fails_and_a_few_do_not_ask_for_it(
    mutants: ModuleType, project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(project, f"to come: [U-02]\nU-01: {MINUS}\n", U_01="it_adds", U_02="it_is_there")
    assert mutants.main(["--few"], project) == 0
    assert mutants.main([], project) == 1
    assert "U-02  to come" in capsys.readouterr().out
    (project / "tests" / "test_sum.py").write_text("def test_it_adds(): assert 0\n")
    write(project, f"U-01: {MINUS}\n", U_01="it_adds")
    assert mutants.main([], project) == 1, "a test that always fails notices nothing"
    assert "fails without any change" in capsys.readouterr().out


def test_code_that_moved_is_found_again(mutants: ModuleType, project: Path) -> None:
    write(project, "U-01:\n  file: src/sum.py\n  before: a + b\n  after: a - b\n", U_01="it_adds")
    (project / "src" / "sum.py").rename(project / "src" / "plus.py")
    assert mutants.main(["--where"], project) == 0
    assert "file: src/plus.py" in (project / "tests" / "mutants.yml").read_text()
    (project / "src" / "plus.py").write_text("")
    assert mutants.main(["--where"], project) == 1


def test_every_commit_tries_others_first(mutants: ModuleType) -> None:
    found, _ = mutants.read(ROOT)
    orders = [[m.id for m in mutants.chosen(found, by)] for by in ("a", "b", "a")]
    assert orders[0] == orders[2] != orders[1] and sorted(orders[0]) == sorted(found)
