"""Plain Kubernetes: a CronJob that ticks, and workers that stay where the store is a server."""

from collections.abc import Mapping, Sequence

import yaml

from kfm.model import Json
from kfm.runners import pods
from kfm.runners.lines import REST, STAY, TICK, Line, Values, joined
from kfm.runners.settings import Settings
from kfm.runners.yaml_text import Tree, Value, yaml_text

__all__ = ["FOLDER", "files", "lines", "tick", "workers"]

FOLDER = "pipelines/orchestration/runners/cronjob"
_GRACE: Tree = {"# SIGTERM finishes what runs": None, "terminationGracePeriodSeconds": 600}


def files(settings: Settings) -> dict[str, str]:
    """A store that is a file serves one machine: there the tick does all the work."""
    found = {"cronjob.yaml": yaml_text(tick(settings))}
    if settings.store:
        found["workers.yaml"] = yaml_text(workers(settings))
    found["kustomization.yaml"] = yaml_text(_kustomization(settings, sorted(found)))
    return {f"{FOLDER}/{name}": text for name, text in found.items()}


def lines(found: Mapping[str, str], values: Values) -> list[Line]:
    return [
        Line(
            file=path,
            name=document["metadata"]["name"],
            words=tuple(each["command"]),
            environment={e["name"]: e["value"] for e in each["env"] if "value" in e},
            stays=document["kind"] == "Deployment",
        )
        for path, text in found.items()
        for document in yaml.safe_load_all(text)
        if document["kind"] in ("CronJob", "Deployment")
        for each in _pod_of(document)["containers"]
    ]


def _pod_of(document: Json) -> Json:
    spec: Json = document["spec"]
    spec = spec["jobTemplate"]["spec"] if document["kind"] == "CronJob" else spec
    found: Json = spec["template"]["spec"]
    return found


def _pod(settings: Settings, command: Sequence[str], **more: Value) -> Tree:
    return {
        **more,
        **_GRACE,
        "automountServiceAccountToken": False,
        "securityContext": pods.POD,
        "containers": [{"name": "kfm", **pods.container(settings, command)}],
        "volumes": pods.volumes(),
    }


def tick(settings: Settings) -> Tree:
    """What looks for work, and does what nobody else does."""
    pod: Tree = {
        "metadata": {"labels": pods.labels("scheduler")},
        "spec": _pod(settings, joined(TICK, REST), restartPolicy="Never"),
    }
    return {
        "apiVersion": "batch/v1",
        "kind": "CronJob",
        "metadata": {"name": "kfm-tick", "labels": pods.labels("scheduler")},
        "spec": {
            "schedule": settings.tick,
            "timeZone": "Etc/UTC",
            "# two ticks at once do no harm: one leads, and a lease keeps each dataset to one run": None,
            "concurrencyPolicy": "Allow",
            "successfulJobsHistoryLimit": 1,
            "failedJobsHistoryLimit": 3,
            "jobTemplate": {
                "spec": {
                    "# the job table tries again, with a pause and a limit": None,
                    "backoffLimit": 0,
                    "template": pod,
                }
            },
        },
    }


def workers(settings: Settings, replicas: Value = 2) -> Tree:
    """What stays and works the table, where that is a server's."""
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "kfm-workers", "labels": pods.labels("workers")},
        "spec": {
            "# as many as you like: the job table decides who does what": None,
            "replicas": replicas,
            "selector": {"matchLabels": pods.labels("workers")},
            "template": {
                "metadata": {"labels": pods.labels("workers")},
                "spec": _pod(settings, STAY),
            },
        },
    }


def _kustomization(settings: Settings, names: Sequence[str]) -> Tree:
    return {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "namespace": settings.runners.namespace,
        "resources": list(names),
    }
