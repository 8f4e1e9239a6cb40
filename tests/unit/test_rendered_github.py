"""Workflows of GitHub Actions: what its own tools and others' accept, with nothing of a stranger in a
shell and no more rights than needed.
"""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
import yaml
from tests.brought import go_tool
from tests.given.verbs import SHARED, had

from kfm.cli.spec.operate import CHECKS as SPELT
from kfm.runners.checks import CHECKS
from kfm.runners.github_checks import GATES, WORKERS
from kfm.runners.owners import GUARDED, owners_of, uncovered

ROOT = Path(__file__).parents[2]
SHOWN = ROOT / "deploy" / "github"
WORKFLOWS = sorted((SHOWN / "workflows").glob("*.yml"))
CRITICAL = {  # what the documents ask for -> the job that asks it
    "receipts validate": "receipts",
    "catalog validation": "catalogs",
    "checksums verified": "checksums",
    "policy regression suite": "policy",
    "docs updated and link-check clean": "documents",
}


def read(name: str) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((SHOWN / "workflows" / name).read_text())
    return found


def steps(workflow: dict[str, Any]) -> list[dict[str, Any]]:
    return [step for job in workflow["jobs"].values() for step in job["steps"]]


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    shutil.copytree(SHOWN, tmp_path / ".github")
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    return tmp_path


# ---- tools ---------------------------------------------------------------------------------------
def linted(repository: Path) -> str:
    program = had(lambda: go_tool("actionlint"))
    said = subprocess.run(
        [program, "-no-color", "-oneline"],
        cwd=repository,
        capture_output=True,
        text=True,
        check=False,
    )
    return said.stdout


def test_actionlint_has_nothing_to_say_and_would(repository: Path) -> None:
    assert linted(repository) == ""
    path = repository / ".github/workflows/pipelines-updater.yml"
    path.write_text(path.read_text().replace("matrix.dataset }}", "matrix.datasets }}"))
    assert "matrix" in linted(repository) or "datasets" in linted(repository)


def findings(repository: Path) -> list[tuple[str, str]]:
    program = Path(sys.executable).with_name("zizmor")
    said = subprocess.run(
        [program, "--offline", "--no-progress", "--format", "json", "--no-exit-codes", ".github"],
        cwd=repository,
        capture_output=True,
        text=True,
        check=True,
    )
    return [(f["ident"], f["determinations"]["severity"]) for f in json.loads(said.stdout)]


def test_zizmor_finds_nothing_above_low_and_would(repository: Path) -> None:
    assert [f for f in findings(repository) if f[1] not in ("Low", "Informational")] == []
    path = repository / ".github/workflows/pipelines-updater.yml"
    path.write_text(
        path.read_text().replace('--event="$EVENT"', '"${{ toJSON(github.event.client_payload) }}"')
    )
    assert ("template-injection", "High") in findings(repository)


@pytest.mark.needs_shared
@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda p: p.name)
def test_a_workflow_fits_the_published_schema(path: Path) -> None:
    schema = json.loads((SHARED / "schemas/runners/github/github-workflow.json").read_text())
    jsonschema_rs.validator_for(schema).validate(yaml.safe_load(path.read_text()))


# ---- what they say -------------------------------------------------------------------------------
def test_the_updater_ticks_hourly_listens_and_can_be_asked() -> None:
    triggers = read("pipelines-updater.yml")["on"]
    assert triggers["schedule"] == [{"cron": "0 * * * *"}]
    assert triggers["repository_dispatch"]["types"] == ["kfm-event"]
    inputs = triggers["workflow_dispatch"]["inputs"]
    assert {name: spec["type"] for name, spec in inputs.items()} == {
        "dataset": "choice",
        "window": "string",
        "dry-run": "boolean",
    }
    assert "ks_counties" in inputs["dataset"]["options"]


def test_runs_of_one_dataset_are_kept_apart_and_those_of_two_are_not() -> None:
    workflow = read("pipelines-updater.yml")
    assert "concurrency" not in workflow, "the matrix is not known there"
    update = workflow["jobs"]["update"]
    assert update["concurrency"] == {
        "group": "pipelines-updater-${{ matrix.dataset }}",
        "cancel-in-progress": False,
    }
    assert update["strategy"]["matrix"] == {
        "dataset": "${{ fromJSON(needs.due.outputs.datasets) }}"
    }


def test_runs_of_one_dataset_wait_for_their_turn_and_lose_nothing() -> None:
    """The group is a convenience: what is not done waits in the job table, under the lease."""
    update = read("pipelines-updater.yml")["jobs"]["update"]
    assert update["concurrency"]["cancel-in-progress"] is False
    (work,) = (step["run"] for step in update["steps"] if step["name"] == "update")
    assert work.startswith("python -m workers run-job") and work.endswith("--queued")


def test_artifacts_are_uploaded_after_success_and_after_failure() -> None:
    (*_, last) = read("pipelines-updater.yml")["jobs"]["update"]["steps"]
    assert last["if"] == "${{ always() }}" and last["uses"].endswith("/kfm-upload")
    assert (SHOWN / "actions/kfm-upload/action.yml").is_file()


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda p: p.name)
def test_nothing_of_a_stranger_stands_in_a_shell_and_no_job_may_more_than_it_needs(
    path: Path,
) -> None:
    workflow = yaml.safe_load(path.read_text())
    assert workflow["permissions"] == {}
    assert not {"pull_request_target", "workflow_run"} & set(workflow["on"])
    for job in workflow["jobs"].values():
        tells = path.name == "promotion.yml"
        more = {"checks": "write", "pull-requests": "write"} if tells else {}
        assert job["permissions"] == {"contents": "read", **more} and job["timeout-minutes"]
    for step in steps(workflow):
        assert "${{" not in step.get("run", ""), step
        used = step.get("uses", "")
        assert (
            not used
            or used.startswith("./.github/")
            or re.fullmatch(r"actions/checkout@[0-9a-f]{40}", used)
        )


@pytest.mark.parametrize("name", ["gates.yml", "workers.yml"])
def test_a_pull_request_of_a_fork_meets_no_secret_no_key_and_no_data(name: str) -> None:
    text = (SHOWN / "workflows" / name).read_text()
    assert set(yaml.safe_load(text)["on"]) == {"pull_request", "merge_group"}
    assert not re.search(r"secrets\.|vars\.|self-hosted|KFM_STORE|KFM_WORKSPACE", text)
    assert all(
        step["with"]["persist-credentials"] is False for step in steps(read(name)) if "with" in step
    )


def test_a_merge_promotes_and_no_pull_request_reaches_that_job() -> None:
    workflow = read("promotion.yml")
    assert set(workflow["on"]) == {"push", "schedule", "workflow_dispatch"}
    (job,) = workflow["jobs"].values()
    assert "default_branch" in job["if"] and "kfm github promote" in job["steps"][-1]["run"]
    assert workflow["concurrency"]["cancel-in-progress"] is False


def test_every_gate_is_a_job_and_every_job_is_required() -> None:
    gates, workers = read("gates.yml")["jobs"], read("workers.yml")["jobs"]
    assert set(CRITICAL.values()) <= set(gates) == set(GATES) and set(workers) == {WORKERS}
    for name, job in {**gates, **workers}.items():
        assert job["steps"][-1]["run"] == f'kfm runner check {name} --base="$BASE"'
    rules = json.loads((SHOWN / "rulesets/main.json").read_text())
    kinds = {rule["type"]: rule.get("parameters", {}) for rule in rules["rules"]}
    required = [c["context"] for c in kinds["required_status_checks"]["required_status_checks"]]
    assert required == [*gates, *workers]
    assert kinds["pull_request"]["require_code_owner_review"] is True


def test_the_five_questions_that_block_a_merge_are_jobs_of_their_own() -> None:
    jobs = read("gates.yml")["jobs"]
    assert len({*CRITICAL.values()} & set(jobs)) == 5
    assert all("if" not in job and "needs" not in job for job in jobs.values()), "none is left out"


def test_the_table_of_commands_names_every_check() -> None:
    assert set(SPELT) == set(CHECKS) == {*GATES, WORKERS}


# ---- owners --------------------------------------------------------------------------------------
def test_owners_cover_what_needs_review(tmp_path: Path) -> None:
    assert uncovered(tmp_path) == [
        "there is no .github/CODEOWNERS: nobody has to agree to a change"
    ]
    (tmp_path / ".github").mkdir()
    file = tmp_path / ".github" / "CODEOWNERS"
    file.write_text((SHOWN / "CODEOWNERS").read_text())
    assert uncovered(tmp_path) == []
    for about, paths in GUARDED.items():
        file.write_text(f"{(SHOWN / 'CODEOWNERS').read_text()}/{paths[0]}\n")
        assert uncovered(tmp_path) == [f"{paths[0]} has no owner ({about})"]


def test_this_repository_names_owners_of_what_decides_what_is_published() -> None:
    text = (ROOT / ".github" / "CODEOWNERS").read_text()
    named = [line.split()[0] for line in text.splitlines() if line.startswith("/")]
    assert all((ROOT / name.strip("/")).exists() for name in named), "a pattern that fits nothing"
    for path in (
        "kansas/scripts/connectors/ks_counties/fixtures/source.zip",
        "kansas/data/registry/ks_counties.yml",
        "src/kfm/zones/durable.py",
        "src/kfm/run/promote.py",
        "src/kfm/evidence/receipts.py",
        "src/kfm/catalog/dcat.py",
        "src/kfm/template/policy/redaction.rego",
        "src/kfm/release/by_rule.py",
        "src/kfm/model/ids.py",
    ):
        owned = [pattern for pattern in named if owners_of(f"{pattern} @a\n", path)]
        assert (ROOT / path).is_file() and owned and owners_of(text, path), path


@pytest.mark.parametrize(
    ("pattern", "fits", "does_not"),
    [
        ("*", "a/b.py", None),
        ("*.rego", "policy/a.rego", "policy/a.rego.txt"),
        ("/policy/", "policy/a/b.rego", "kansas/policy/a.rego"),
        ("policy/", "kansas/policy/a.rego", "policy"),
        ("/policy", "policy/a.rego", "policy2/a.rego"),
        ("docs/*", "docs/a.md", "docs/a/b.md"),
        ("/scripts/**/promote.py", "scripts/connectors/x/promote.py", "scripts/promote.pyc"),
        ("/kfm.yml", "kfm.yml", "kansas/kfm.yml"),
    ],
)
def test_a_pattern_owns_what_github_says_it_owns(
    pattern: str, fits: str, does_not: str | None
) -> None:
    assert owners_of(f"{pattern} @a  # why\n", fits) == ("@a",)
    assert does_not is None or owners_of(f"{pattern} @a\n", does_not) == ()


def test_the_last_pattern_decides() -> None:
    assert owners_of("* @all\n/policy/ @stewards @law\n", "policy/a.rego") == ("@stewards", "@law")
    assert owners_of("* @all\n/policy/\n", "policy/a.rego") == (), "nobody"
