"""What CI asks of a change is answered by the engine, in a copy that has nothing of the workspace but
what is proposed; each question can be answered with no.
"""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from kfm.cli.init import make_workspace
from kfm.runners.checks import bad_receipts, damage, denials
from kfm.runners.preview import Preview, changed, preview
from kfm.workspace.folder import open_workspace
from tests.given.verbs import QUAKES, Kfm, tree

WITH = "licence: CC0-1.0"


def git(ws: Path, *words: str) -> str:
    named = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
    said = subprocess.run(
        ["git", "-C", str(ws), *named, *words], capture_output=True, text=True, check=True
    )
    return said.stdout.strip()


@pytest.fixture
def base(ws: Path, kfm: Kfm) -> str:
    """The workspace as a repository with one commit."""
    with (ws / "kfm.yml").open("a") as file:
        file.write("runners: {owners: ['@agency/stewards']}\n")
    assert kfm("runner", "render", "github").code == 0
    git(ws, "init", "-q", "-b", "main")
    git(ws, "add", "-A")
    git(ws, "commit", "-q", "-m", "one")
    return git(ws, "rev-parse", "HEAD")


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Preview]:
    """A preview of one dataset."""
    folder = tmp_path_factory.mktemp("seen") / "ws"
    make_workspace(folder, sample=True)
    for path in (folder / "data" / "registry").glob("*.yml"):
        if path.stem != QUAKES:
            path.unlink()
    with preview(open_workspace(folder), "") as found:
        yield found


def answer(kfm: Kfm, question: str, base: str = "") -> tuple[int, list[str]]:
    said = kfm("runner", "check", question, "--base", base, "--json")
    return said.code, said.json["problems"]


# ---- a change ------------------------------------------------------------------------------------
def test_only_what_changes_is_looked_at_and_policy_changes_everything(ws: Path, base: str) -> None:
    workspace = open_workspace(ws)
    assert changed(workspace, base) == []
    entry = ws / "data/registry" / f"{QUAKES}.yml"
    entry.write_text(entry.read_text() + "# looked at\n")
    assert changed(workspace, base) == [QUAKES]
    (ws / "policy/labels.rego").write_text((ws / "policy/labels.rego").read_text() + "# more\n")
    assert changed(workspace, base) == workspace.registered() == changed(workspace, "")


def test_a_preview_has_no_data_no_key_and_no_store_of_the_workspace(
    ws: Path, kfm: Kfm, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert kfm("run", QUAKES).code == 0
    monkeypatch.setenv("GITHUB_TOKEN", "x")
    (ws / "kfm.yml").write_text(
        (ws / "kfm.yml")
        .read_text()
        .replace("store: sqlite:///ledger/idempotency.sqlite", "store: env:KFM_STORE")
    )
    before = tree(ws)
    with preview(open_workspace(ws), "", run=False) as found:
        copy = found.workspace.path
        assert found.workspace.store_file.parent == copy / "ledger"
        assert {p.name for p in (copy / "data").iterdir()} == {"registry"}
        keys = {p.name for p in (ws / "keys").glob("*.key")}
        assert not keys & {p.name for p in (copy / "keys").glob("*.key")}
    assert tree(ws) == before and not copy.exists()


def test_a_change_that_a_gate_denies_is_not_merged(ws: Path, kfm: Kfm, base: str) -> None:
    assert answer(kfm, "gates", base) == (0, [])
    entry = ws / "data/registry" / f"{QUAKES}.yml"
    lines = entry.read_text().splitlines(keepends=True)
    entry.write_text("".join(line for line in lines if not line.startswith("licence:")))
    assert answer(kfm, "gates", base) == (1, [f"{QUAKES}: licence.missing"])
    entry.write_text("dataset_id: [")
    code = kfm("runner", "check", "gates", "--base", base).code
    assert code != 0


def test_a_worker_that_puts_a_job_aside_is_no_green_worker(ws: Path, kfm: Kfm, base: str) -> None:
    entry = ws / "data/registry" / f"{QUAKES}.yml"
    entry.write_text(entry.read_text() + "# looked at\n")
    assert answer(kfm, "workers", base) == (0, [])
    lines = entry.read_text().splitlines(keepends=True)
    entry.write_text("".join(line for line in lines if not line.startswith("licence:")))
    code, problems = answer(kfm, "workers", base)
    assert code == 1 and "licence" in problems[0]


def test_a_commit_that_is_not_there_is_refused(ws: Path, kfm: Kfm, base: str) -> None:
    for name in ("0" * 40, "--output=x"):
        said = kfm("runner", "check", "gates", f"--base={name}")
        assert said.code == 2 and "cannot be told" in said.err
    assert not (ws / "x").exists()


# ---- what a run leaves ---------------------------------------------------------------------------
def test_receipts_catalogs_and_checksums_of_a_sound_run_pass(seen: Preview) -> None:
    assert [run["state"] for run in seen.runs] == ["COMMITTED"]
    assert list(bad_receipts(seen)) == list(denials(seen, "schema", "graph")) == damage(seen) == []


def test_a_receipt_that_lacks_a_member_or_is_missing_is_noticed(seen: Preview) -> None:
    (path,) = (seen.workspace.path / "receipts").rglob(f"{seen.runs[0]['run_id']}.json")
    content = path.read_bytes()
    told = json.loads(content)
    del told["run_id"]
    path.write_text(json.dumps(told))
    assert any("run_id" in problem for problem in bad_receipts(seen))
    path.unlink()
    assert any("left no receipt" in problem for problem in bad_receipts(seen))
    path.write_bytes(content)
    assert list(bad_receipts(seen)) == []


def test_a_catalog_that_says_something_else_is_noticed(seen: Preview) -> None:
    path = seen.workspace.path / "data/catalog/dcat" / f"{QUAKES}.json"
    content = path.read_bytes()
    path.write_bytes(content.replace(b'"@type"', b'"@typo"'))
    assert any(problem.startswith(f"{QUAKES}: ") for problem in denials(seen, "schema", "graph"))
    path.write_bytes(content)


def test_a_flipped_byte_is_noticed(seen: Preview) -> None:
    (path,) = (seen.workspace.path / "data/processed").rglob("*.parquet")
    content = path.read_bytes()
    path.chmod(0o644)
    path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    assert any(path.name in problem for problem in damage(seen))
    path.write_bytes(content)


# ---- files ---------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("file", "before", "after"),
    [
        ("promotion.rego", "default allow := false", "default allow := true"),
        ("serve.rego", "default allow := false", "default allow := true"),
        ("redaction.rego", "input.released_resolution", "0"),
        (
            "redaction_test.rego",
            "test_finer_than_registered_is_denied if",
            "test_finer_than_registered_is_denied if not",
        ),
    ],
)
def test_rules_that_allow_more_are_noticed_whatever_their_own_tests_say(
    ws: Path, kfm: Kfm, file: str, before: str, after: str
) -> None:
    assert answer(kfm, "policy") == (0, [])
    path = ws / "policy" / file
    assert before in path.read_text()
    path.write_text(path.read_text().replace(before, after))
    if not file.endswith("_test.rego"):
        for test in (ws / "policy").glob("*_test.rego"):
            test.write_text(f"package {test.stem}\nimport rego.v1\ntest_nothing if true\n")
    assert answer(kfm, "policy")[0] == 1


def test_a_link_that_leads_nowhere_is_noticed(ws: Path, kfm: Kfm, base: str) -> None:
    assert answer(kfm, "documents") == (0, [])
    page = ws / "README.md"
    page.write_text(
        "# Wells\n\n[a](kfm.yml) [b](#wells) ![c](none.png) `[d](none)`\n\n[e]: gone.md#x\n"
    )
    _, problems = answer(kfm, "documents")
    assert problems == ["README.md: none.png leads nowhere", "README.md: gone.md#x leads nowhere"]
    page.write_text(
        "# Wells\n\n[a](../../etc/passwd) [b](README.md#well) [c](https://example.org/x)\n"
    )
    code, problems = answer(kfm, "documents")
    assert code == 1 and len(problems) == 2


def test_a_rendered_file_that_is_out_of_date_is_noticed(ws: Path, kfm: Kfm, base: str) -> None:
    kfm("dataset", "new", "ks_trees", "--url", "https://example.org/trees.csv")
    _, problems = answer(kfm, "documents")
    assert problems == [
        ".github/workflows/pipelines-updater.yml: differs; `kfm runner render github`"
    ]


OUT_OF_PLACE = {
    "src/rows.parquet": ("PAR1", "data; data lies below data/"),
    "src/notes.txt": ("x" * 300_000, "300,000 bytes of data"),
    "src/page.html": ("<p>", "part of a page"),
    "deploy/worker.env": (
        "TOKEN=q7Zr2-Lw9Xv4Tb8K\n",  # kfm: not a secret
        "line 1 looks like a credential",
    ),
    "src/direct.py": ("import sqlite3\n", "line 1 imports sqlite3, past the boundary"),
    "src/inside.py": ("from kfm.store import sqlite\n", "imports kfm.store, past the boundary"),
    "src/routes.py": ("from fastapi import FastAPI\n", "workers answer no requests"),
    "scripts/once.py": ("print(1)\n", "no test names it"),
}


def test_what_does_not_belong_among_workers_is_noticed(ws: Path, kfm: Kfm, base: str) -> None:
    home = ws / "apps" / "workers"
    tried = [Path(name).stem for name in OUT_OF_PLACE if "once" not in name]
    (home / "tests").mkdir(parents=True)
    (home / "tests" / "test_all.py").write_text(f"import kfm.connect\n\nNAMES = {tried}\n")
    (home / "src").mkdir()
    (home / "src" / "direct.py").write_text("from kfm.connect import source\n")
    assert answer(kfm, "workers", base) == (0, [])
    for name, (content, said) in OUT_OF_PLACE.items():
        path = home / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(content)
        code, problems = answer(kfm, "workers", base)
        assert code == 1 and len(problems) == 1, (name, problems)
        assert problems[0].startswith(f"apps/workers/{name}: ") and said in problems[0], problems
        path.unlink()


def test_a_workspace_without_owners_is_a_gap(ws: Path, kfm: Kfm, base: str) -> None:
    assert answer(kfm, "owners") == (0, [])
    (ws / ".github/CODEOWNERS").unlink()
    assert answer(kfm, "owners")[0] == 1
