"""The chart for Helm is the manifests of `cronjob` with three values left open."""

import json
import subprocess
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
import yaml
from tests.brought import go_tool
from tests.given.manifests import judge
from tests.given.verbs import Kfm, had

from kfm.runners.helm import filled

DEPLOY = Path(__file__).parents[2] / "deploy"
CHART = DEPLOY / "helm"
IMAGE = "registry.example.org/kfm@sha256:" + "0" * 64


def chart(folder: Path) -> dict[str, str]:
    return {
        f"helm/{p.relative_to(folder)}": p.read_text() for p in folder.rglob("*") if p.is_file()
    }


def read(texts: dict[str, str]) -> dict[str, Any]:
    return {name: yaml.safe_load(text) for name, text in texts.items()}


def test_filled_with_its_values_it_is_what_cronjob_renders() -> None:
    plain = {
        name: (DEPLOY / "cronjob" / name).read_text() for name in ("cronjob.yaml", "workers.yaml")
    }
    made = filled(chart(CHART))
    assert read(made) == read(plain)
    assert "{{" not in "".join(made.values()), "the templates use nothing else of Helm's language"
    for document in read(made).values():
        had(lambda: judge(document))


def test_another_value_shows_where_it_belongs_and_nowhere_else() -> None:
    other = chart(CHART)
    other["helm/values.yaml"] = (
        other["helm/values.yaml"]
        .replace("0" * 64, "1" * 64)
        .replace("replicas: 2", "replicas: 5")
        .replace("0 * * * *", "*/10 * * * *")
    )
    made = read(filled(other))
    assert made["workers.yaml"]["spec"]["replicas"] == 5
    assert made["cronjob.yaml"]["spec"]["schedule"] == "*/10 * * * *"
    assert "0" * 64 not in json.dumps(made) and "kfm@sha256:" + "1" * 64 in json.dumps(made)


@pytest.mark.parametrize(
    ("change", "fits"),
    [
        ({}, True),
        ({"workers": {"replicas": 0}}, True),
        ({"global": {"team": "water"}}, True),
        ({"image": {"repository": "kfm", "digest": "latest"}}, False),
        ({"image": {"repository": "kfm", "digest": ""}}, False),
        ({"image": {"repository": "kfm@sha256:1", "digest": "sha256:" + "0" * 64}}, False),
        ({"image": {"repository": "kfm", "tag": "1"}}, False),
        ({"tick": "hourly"}, False),
        ({"workers": {"replicas": "2"}}, False),
        ({"replicas": 2}, False),
    ],
)
def test_values_that_cannot_be_meant_are_refused_by_its_schema(
    change: dict[str, Any], fits: bool
) -> None:
    schema = json.loads((CHART / "values.schema.json").read_text())
    values = yaml.safe_load((CHART / "values.yaml").read_text()) | change
    assert jsonschema_rs.validator_for(schema).is_valid(values) is fits


def test_a_whole_workspace_has_the_folders_of_workers_and_a_current_chart(
    tmp_path: Path, kfm: Kfm
) -> None:
    ws = tmp_path / "whole"
    assert kfm("init", str(ws), "--full").code == 0
    home = ws / "apps" / "workers"
    assert {p.name for p in home.iterdir()} == {"README.md", "src", "deploy", "tests", "scripts"}
    assert {p.name for p in (home / "deploy").iterdir()} == {"k8s", "helm"}
    assert kfm("-w", str(ws), "runner", "render", "helm", "--check").code == 0
    assert kfm("-w", str(ws), "runner", "render", "helm", "--image", "kfm:1").code == 2
    assert kfm("-w", str(ws), "runner", "render", "helm", "--image", IMAGE).code == 0
    values = yaml.safe_load((home / "deploy/helm/values.yaml").read_text())
    assert values["image"] == {"repository": IMAGE[:24], "digest": IMAGE[25:]}
    assert kfm("-w", str(ws), "runner", "render", "cronjob", "--image", IMAGE).code == 0
    above = yaml.safe_load((home / "deploy/k8s/kustomization.yaml").read_text())
    (rendered,) = above["resources"]
    assert (home / "deploy/k8s" / rendered / "kustomization.yaml").is_file()


def helm(*words: str) -> subprocess.CompletedProcess[str]:
    program = had(lambda: go_tool("helm"))
    return subprocess.run([program, *words], capture_output=True, text=True, check=False)


@pytest.mark.drill
def test_helm_finds_nothing_to_say_and_makes_what_we_make() -> None:
    linted = helm("lint", "--strict", str(CHART))
    assert linted.returncode == 0, linted.stdout
    made = helm("template", "kfm", str(CHART), "--kube-version", "1.30.0")
    assert made.returncode == 0, made.stderr
    ours = read(filled(chart(CHART))).values()

    def by_kind(documents: Any) -> dict[str, Any]:
        return {document["kind"]: document for document in documents}

    assert by_kind(yaml.safe_load_all(made.stdout)) == by_kind(ours)
    tagged = helm("template", "kfm", str(CHART), "--set", "image.digest=latest")
    assert tagged.returncode != 0 and "digest" in tagged.stderr
