"""The documents of a whole workspace: links lead somewhere, heads are filled in, and what they name
is there and does what they say.
"""

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
import yaml

from kfm.cli import main
from kfm.cli.spec import find
from kfm.jobs.backfill_plan import plan_from
from kfm.model.dataset import DatasetEntry
from kfm.model.schedule import Schedule
from kfm.upkeep.documents import documents, problems

ROOT = Path(__file__).parents[2]
LAYERS = ("README.md", "scripts/README.md", "data/README.md", "pipelines/README.md", "policy/README.md")  # fmt: skip
GOVERNANCE = (
    "docs/pipelines/reliability/README.md",
    "docs/standards/kfm_markdown_protocol_v11.2.2.md",
    "docs/standards/governance/ROOT-GOVERNANCE.md",
    "docs/standards/faircare/FAIRCARE-GUIDE.md",
    "docs/standards/sovereignty/INDIGENOUS-DATA-PROTECTION.md",
)
PATTERNS = (
    "docs/patterns/orchestration/pr-previews.md",
    "docs/patterns/discovery-to-draft-pr.md",
    "docs/patterns/replay_safe_outbox_idempotency.md",
    "docs/patterns/provenance_attestations.md",
    "docs/runbooks/reliability/trigger-retry-matrix.md",
    "docs/runbooks/reliability/trigger-mechanisms/README.md",
)
UPDATERS = "docs/pipelines/reliability/updaters"
OF_UPDATERS = {
    "patterns": ("wal-replay-strategies", "idempotent-upserts", "concurrency-locks", "focus-mode-integration"),
    "checklists": ("rollout-readiness", "canary-playbook", "governance-review"),
}  # fmt: skip


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A workspace with every documented layer and something official in it."""
    folder = tmp_path_factory.mktemp("documents") / "ws"
    assert main(["init", str(folder), "--full", "--sample"]) == 0
    assert main(["-w", str(folder), "run", "ks_earthquakes"]) == 0
    return folder


def commands(path: Path) -> list[str]:
    """What a document tells people to type."""
    return re.findall(r"`kfm ([^`]+)`", path.read_text())


def known(command: str) -> bool:
    words = command.split()
    while words and words[0].startswith("-"):
        words = words[1:]
    try:
        return find(words)[0] is not None
    except KeyError:
        return False


def test_every_link_and_head_of_a_whole_workspace_is_good(whole: Path) -> None:
    assert problems(whole) == []
    for name in (*LAYERS, *GOVERNANCE, *PATTERNS, "docs/glossary.md"):
        assert (whole / name).is_file(), name
    assert "## Registry" in (whole / "data" / "README.md").read_text()


def test_every_command_that_a_document_names_is_there(whole: Path) -> None:
    named = {(path, command) for path in documents(whole) for command in commands(path)}
    assert len(named) > 60
    assert [f"{path.name}: kfm {command}" for path, command in named if not known(command)] == []


def test_every_file_says_its_licence(whole: Path) -> None:
    """Documents and code are licensed apart."""
    for path in documents(whole):
        if "dataset_connector_skeleton" not in path.parts:
            head = yaml.safe_load(path.read_text().split("---\n")[1])
            assert head["license"] == "CC-BY-4.0", path
    assert 'license = "MIT"' in (ROOT / "pyproject.toml").read_text()


def test_every_item_of_a_checklist_names_a_command(whole: Path) -> None:
    for folder, names in OF_UPDATERS.items():
        for name in names:
            path = whole / UPDATERS / folder / f"{name}.md"
            items = [line for line in path.read_text().splitlines() if line.startswith("- [ ]")]
            assert all("`kfm " in item for item in items), path
            assert bool(items) == (folder == "checklists"), path


def test_orchestration_has_its_folders_and_none_is_empty(whole: Path) -> None:
    here = whole / "pipelines" / "orchestration"
    for name in ("schedules", "backfills", "runners", "policies", "templates", "examples"):
        assert any(path.is_file() for path in (here / name).rglob("*")), name
    assert (here / "README.md").is_file()


def test_templates_are_what_they_are_copied_to(whole: Path) -> None:
    here = whole / "pipelines" / "orchestration" / "templates"
    told = {path.stem: yaml.safe_load(path.read_text()) for path in here.glob("*.yml")}
    assert sorted(told) == ["backfill", "promotion", "schedule"]
    told["schedule"]["start"] = str(told["schedule"]["start"])
    assert msgspec.convert(told["schedule"], Schedule).dataset == "city_trees"
    assert plan_from(told["backfill"], "backfill.yml").partitioning.window == "28d"
    entry = yaml.safe_load((whole / "data/registry/ks_earthquakes.yml").read_text())
    assert msgspec.convert({**entry, **told["promotion"]}, DatasetEntry).approvals == 1


def test_both_glossaries_are_in_the_documents(whole: Path) -> None:
    words = set(re.findall(r"\*\*([\w -]+)\*\*", (whole / "docs" / "glossary.md").read_text()))
    assert {"Run", "DatasetVersion", "Backfill", "Promotion", "Fail-closed"} <= words
    assert {"Connector", "Receipt", "Promotion Contract", "spec_hash", "Fail closed"} <= words


def ended(whole: Path, script: str) -> int:
    return subprocess.run(
        [sys.executable, script], cwd=whole, capture_output=True, check=False
    ).returncode


def broken_rule(whole: Path) -> Path:
    path = whole / "policy" / "mine.rego"
    path.write_text("package kfm.serve\n\nbroken := \n")
    return path


def broken_entry(whole: Path) -> Path:
    path = whole / "data" / "registry" / "broken.yml"
    path.write_text("dataset_id: broken\nnothing: 1\n")
    return path


def broken_link(whole: Path) -> Path:
    path = whole / "docs" / "mine.md"
    path.write_text("# Mine\n\n[there](nothing.md)\n")
    return path


@pytest.mark.parametrize(
    ("script", "breaks"),
    [
        ("tools/check_documents.py", broken_link),
        ("tools/check_registry.py", broken_entry),
        ("tools/check_policy.py", broken_rule),
        ("tools/check_all.py", broken_rule),
    ],
)
def test_a_tool_says_when_something_is_wrong(
    whole: Path, script: str, breaks: Callable[[Path], Path]
) -> None:
    assert ended(whole, script) == 0
    path = breaks(whole)
    try:
        assert ended(whole, script) != 0
    finally:
        path.unlink()


def test_the_tool_for_catalogs_finds_a_changed_byte(whole: Path) -> None:
    assert ended(whole, "tools/check_catalogs.py") == 0
    (path,) = (whole / "data" / "processed" / "ks_earthquakes").glob("*/dcat.json")
    was = path.read_bytes()
    path.write_bytes(was + b" ")
    try:
        assert ended(whole, "tools/check_catalogs.py") == 6
    finally:
        path.write_bytes(was)


@pytest.mark.parametrize("place", ["docs", "kansas", "benchmarks", "src/kfm/template"])
def test_the_documents_of_this_repository_are_good(place: str) -> None:
    assert problems(ROOT / place) == []


def test_what_a_program_left_in_a_hidden_folder_is_nobodys_document(tmp_path: Path) -> None:
    for folder in (".peers/lib", ".github", "docs"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "a.md").write_text("# A\n\n[gone](gone.md)\n")
    told = problems(tmp_path)
    assert [line.partition(":")[0] for line in told] == [".github/a.md", "docs/a.md"]


GOOD = "---\ntitle: T\npath: a.md\nlicense: MIT\n---\n# T\n"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[x](b.md)", "leads nowhere"),
        ("[x](../b.md)", "leads out of the workspace"),
        ("# Here\n\n[x](#there)", "names a heading that is not there"),
        ("[a `b` c](b.md)", "leads nowhere"),
        ("![x](b.png 'a title')", "leads nowhere"),
        ('[x][y]\n\n[y]: b.md "a title"', "leads nowhere"),
        (GOOD.replace("a.md", "b.md"), "says it lies at b.md"),
        (GOOD.replace("license: MIT\n", ""), "no license"),
        (GOOD.replace("title: T", "[: T"), "no list of keys"),
        ("<!-- [KFM_META_BLOCK_V2]\ntitle: TODO\n[/KFM_META_BLOCK_V2] -->", "TODO"),
        ("<!-- [KFM_META_BLOCK_V2]\ntitle: x\n[/KFM_META_BLOCK_V2] -->", "no doc_id"),
        ("## Governance header\n\n| Status | Governed |\n", "no Owners"),
    ],
)
def test_what_is_wrong_is_said(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "a.md").write_text(text)
    assert any(said in line for line in problems(tmp_path)), problems(tmp_path)


def test_what_is_good_and_what_is_code_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "a.md").write_text(
        GOOD
        + "## It `is` [here](/a.md)\n\n[x](#it-is-here) [y](/a.md) [w](//example.org) [z](https://example.org/no)\n"
        "`[n](no.md)`\n\n```\n[n](no.md)\n```\n"
    )
    (tmp_path / "data" / "work").mkdir(parents=True)
    (tmp_path / "data" / "work" / "b.md").write_text("[x](no.md)")
    assert problems(tmp_path) == []


def test_the_tests_of_the_workers_are_green(whole: Path) -> None:
    """`pytest apps/workers`, as their document has it."""
    said = subprocess.run(
        [sys.executable, "-m", "pytest", "apps/workers", "-q", "-p", "no:cacheprovider"],
        cwd=whole,
        capture_output=True,
        text=True,
        check=False,
    )
    assert said.returncode == 0 and "3 passed" in said.stdout, said.stdout[-2000:]
