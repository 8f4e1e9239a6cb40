"""What is rendered for clusters is taken by a real API server, strictly, and a CronJob really makes
the Jobs that update a dataset.
"""

import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.brought import NotHad
from tests.given.cluster import Cluster, Refused, cluster
from tests.given.verbs import QUAKES, Kfm, had, until

ROOT = Path(__file__).parents[2]
IMAGE = "registry.example.org/kfm@sha256:" + "0" * 64
KINDS = {
    "argo": ("CronWorkflow", "WorkflowTemplate"),
    "tekton": ("Task", "Pipeline", "PipelineRun"),
    "cronjob": (),
}
pytestmark = pytest.mark.drill


@pytest.fixture(scope="module")
def kube(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("cluster")

    def started() -> Any:
        found = cluster(folder)
        try:
            return found, found.__enter__()
        except NotHad:
            found.__exit__(None, None, None)
            raise

    holder, found = had(started)
    try:
        for maker, kinds in KINDS.items():
            if kinds:
                found.define(maker, *kinds)
        yield found
    finally:
        holder.__exit__(None, None, None)


def shown(runner: str) -> list[dict[str, Any]]:
    return [
        document
        for path in sorted((ROOT / "deploy" / runner).glob("*.yaml"))
        for document in yaml.safe_load_all(path.read_text())
        if document["kind"] != "Kustomization"  # read by a program, not by a server
    ]


def take(kube: Cluster, document: dict[str, Any]) -> None:
    if "name" in document["metadata"]:
        kube.apply(document)
    else:
        kube.create(document)


@pytest.mark.parametrize("runner", KINDS)
def test_a_server_takes_everything_that_is_rendered_and_nothing_it_does_not_know(
    kube: Cluster, runner: str
) -> None:
    documents = shown(runner)
    assert documents
    for document in documents:
        take(kube, document)
        if document["kind"] in ("ServiceAccount", "Role", "RoleBinding"):
            continue
        strange = copy.deepcopy(document)
        strange["spec"]["nobodyKnowsThis"] = 1
        with pytest.raises(Refused, match="nobodyKnowsThis"):
            take(kube, strange)


def test_a_cronjob_makes_jobs_that_update_datasets_and_a_bad_one_fails(
    kube: Cluster, ws: Path, kfm: Kfm
) -> None:
    assert kfm("runner", "render", "cronjob", "--image", IMAGE).code == 0
    (path,) = ws.rglob("cronjob/cronjob.yaml")
    tick = yaml.safe_load(path.read_text())
    tick["spec"]["schedule"] = "* * * * *"  # else the next hour would have to come
    tick["metadata"]["name"] = "kfm-tick-soon"
    with kube.machine(ws) as ran:
        kube.apply(tick)
        job = until(lambda: ended(kube, "kfm-tick-soon"))
        kube.apply({**tick, "spec": {**tick["spec"], "suspend": True}})
        assert conditions(job)["Complete"] == "True", (ran, job["status"])
        bad = broken(tick)
        kube.apply(bad)
        job = until(lambda: ended(kube, "kfm-broken"))
        kube.apply({**bad, "spec": {**bad["spec"], "suspend": True}})
        assert conditions(job)["Failed"] == "True"
    assert ran
    official = {
        row["dataset_id"]: row["generation"] for row in kfm("status", "--json").json["datasets"]
    }
    assert official[QUAKES] == 1


def broken(tick: dict[str, Any]) -> dict[str, Any]:
    """A tick whose command ends with 3."""
    found = copy.deepcopy(tick)
    found["metadata"]["name"] = "kfm-broken"
    pod = found["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    pod["containers"][0]["command"] = ["/bin/sh", "-c", "exit 3"]
    return found


def ended(kube: Cluster, name: str) -> dict[str, Any] | None:
    for job in kube.all("batch/v1", "jobs"):
        if (
            job["metadata"]["name"].startswith(f"{name}-")
            and {"Complete", "Failed"} & conditions(job).keys()
        ):
            return job
    return None


def conditions(job: dict[str, Any]) -> dict[str, str]:
    return {each["type"]: each["status"] for each in job["status"].get("conditions", ())}
