"""The specifications of updaters say what is so: their snippets are run in a workspace as they
stand.
"""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import kuzu
import pytest

from kfm.cli import main
from kfm.upkeep.documents import problems
from tests.given.graph_tables import TABLES

SPECS = "docs/pipelines/reliability/updaters/specs"
NAMES = ("updater-interface", "wal-record-schema", "lineage-cypher-templates", "telemetry-schema")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A workspace with every documented layer where something ran."""
    folder = tmp_path_factory.mktemp("specs") / "ws"
    assert main(["init", str(folder), "--full", "--sample"]) == 0
    assert main(["-w", str(folder), "run", "ks_earthquakes"]) == 0
    return folder


def snippets(whole: Path, name: str, kind: str) -> list[str]:
    text = (whole / SPECS / f"{name}.md").read_text()
    return re.findall(rf"^```{kind}\n(.*?)^```$", text, re.M | re.S)


def ran(*words: str) -> None:
    said = subprocess.run(words, capture_output=True, text=True, check=False)
    assert said.returncode == 0, said.stderr


def asked(whole: Path, queries: list[str], place: Path) -> None:
    """Each answers with something, once the batches of all runs are loaded."""
    graph = kuzu.Connection(kuzu.Database(str(place)))
    batches = [p.read_text().split(";\n") for p in (whole / "data/work").rglob("lineage.cypher")]
    for statement in (*TABLES, *(line for batch in batches for line in batch if line.strip())):
        graph.execute(statement)
    for query in queries:
        assert graph.execute(query).get_num_tuples() > 0, query


@pytest.mark.parametrize("name", NAMES)
def test_what_a_specification_shows_is_so(
    whole: Path, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(whole)
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent), prepend=os.pathsep)
    code, lines = snippets(whole, name, "python"), snippets(whole, name, "sh")
    queries = snippets(whole, name, "cypher")
    assert code or queries
    exec(compile("\n".join(code), name, "exec"), {})
    for line in "".join(lines).splitlines():
        ran(*shlex.split(line))
    if queries:
        asked(whole, queries, tmp_path / "graph")


def test_the_specifications_are_good_documents(whole: Path) -> None:
    assert sorted(p.stem for p in (whole / SPECS).glob("*.md")) == sorted(NAMES)
    assert problems(whole) == []
