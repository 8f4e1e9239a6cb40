"""Argo Workflows: a tick that finds what is due and works the datasets side by side, and a template
for one dataset.
"""

import re
from collections.abc import Mapping, Sequence

import yaml

from kfm.model import Json
from kfm.runners import pods
from kfm.runners.lines import DUE, REST, Line, Values, asked, queued
from kfm.runners.settings import Settings
from kfm.runners.yaml_text import Tree, Value, yaml_text

__all__ = ["FOLDER", "files", "lines"]

FOLDER = "pipelines/orchestration/runners/argo"
_ACCOUNT = "kfm-argo"
_DATASET, _WINDOW = "{{inputs.parameters.dataset}}", "{{inputs.parameters.window}}"


def files(settings: Settings) -> dict[str, str]:
    return {
        f"{FOLDER}/account.yaml": yaml_text(*_account()),
        f"{FOLDER}/dataset.yaml": yaml_text(_dataset(settings)),
        f"{FOLDER}/tick.yaml": yaml_text(_tick(settings)),
    }


def lines(found: Mapping[str, str], values: Values) -> list[Line]:
    """In the order of the tick's steps; then what is asked for by hand."""
    documents = {
        path: document
        for path, text in found.items()
        for document in yaml.safe_load_all(text)
        if document["kind"] in ("CronWorkflow", "WorkflowTemplate")
    }
    templates = {
        (document["metadata"]["name"], template["name"]): (path, template)
        for path, document in documents.items()
        for template in _spec(document)["templates"]
    }
    wanted = [
        (document["metadata"]["name"], step)
        for document in documents.values()
        for template in _spec(document)["templates"]
        for group in template.get("steps", ())
        for step in group
    ]
    called = [
        templates[(step["templateRef"]["name"], step["templateRef"]["template"])]
        if "templateRef" in step
        else templates[(name, step["template"])]
        for name, step in wanted
    ]
    by_hand = [
        templates[(document["metadata"]["name"], document["spec"]["entrypoint"])]
        for document in documents.values()
        if document["kind"] == "WorkflowTemplate"
    ]
    return [_line(path, template, values) for path, template in called + by_hand]


def _line(path: str, template: Json, values: Values) -> Line:
    known = {"inputs.parameters.dataset": values.dataset, "inputs.parameters.window": values.window}
    inside = template["container"]
    return Line(
        file=path,
        name=template["name"],
        words=tuple(
            re.sub(r"\{\{(.*?)\}\}", lambda m: known[m[1].strip()], word)
            for word in inside["command"]
        ),
        environment={e["name"]: e["value"] for e in inside["env"] if "value" in e},
        finds="stdout" if template["name"] == "due" else "",
    )


def _spec(document: Json) -> Json:
    found: Json = document["spec"]
    return found.get("workflowSpec", found)  # type: ignore[no-any-return]


def _account() -> tuple[Tree, ...]:
    """All that Argo's part of a pod may do: say how its step ended."""
    about: Tree = {"name": _ACCOUNT, "labels": pods.labels("dataset")}
    rule: Tree = {
        "apiGroups": ["argoproj.io"],
        "resources": ["workflowtaskresults"],
        "verbs": ["create", "patch"],
    }
    api = "rbac.authorization.k8s.io"
    return (
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": about},
        {"apiVersion": f"{api}/v1", "kind": "Role", "metadata": about, "rules": [rule]},
        {
            "apiVersion": f"{api}/v1",
            "kind": "RoleBinding",
            "metadata": about,
            "roleRef": {"apiGroup": api, "kind": "Role", "name": _ACCOUNT},
            "subjects": [{"kind": "ServiceAccount", "name": _ACCOUNT}],
        },
    )


def _metadata(name: str, component: str) -> Tree:
    return {"name": name, "labels": pods.labels(component)}


def _shared() -> Tree:
    return {
        "serviceAccountName": _ACCOUNT,
        "securityContext": pods.POD,
        "podMetadata": {"labels": pods.labels("dataset")},
        "volumes": pods.volumes(),
        "ttlStrategy": {"secondsAfterCompletion": 86400},
    }


def _parameters(*names: str) -> Tree:
    return {"parameters": [{"name": name} for name in names]}


def _template(settings: Settings, name: str, command: Sequence[str], *inputs: str) -> Tree:
    more: dict[str, Value] = {}
    if inputs:
        more["inputs"] = _parameters(*inputs)
        more["synchronization"] = {"mutexes": [{"name": f"pipelines-updater-{_DATASET}"}]}
    return {"name": name, **more, "container": pods.container(settings, command)}


def _dataset(settings: Settings) -> Tree:
    return {
        "apiVersion": "argoproj.io/v1alpha1",
        "kind": "WorkflowTemplate",
        "metadata": _metadata("kfm-dataset", "dataset"),
        "spec": {
            "entrypoint": "asked",
            "arguments": {
                "parameters": [
                    {"name": "dataset", "enum": list(settings.datasets)},
                    {"name": "window", "value": ""},
                ]
            },
            **_shared(),
            "templates": [
                _template(settings, "asked", asked(_DATASET, _WINDOW), "dataset", "window"),
                _template(settings, "queued", queued(_DATASET), "dataset"),
            ],
        },
    }


def _tick(settings: Settings) -> Tree:
    fan: Tree = {
        "name": "update",
        "templateRef": {"name": "kfm-dataset", "template": "queued"},
        "arguments": {"parameters": [{"name": "dataset", "value": "{{item}}"}]},
        "withParam": "{{steps.due.outputs.result}}",
        "# one that fails keeps no other from its work": None,
        "continueOn": {"failed": True},
    }
    return {
        "apiVersion": "argoproj.io/v1alpha1",
        "kind": "CronWorkflow",
        "metadata": _metadata("kfm-tick", "scheduler"),
        "spec": {
            "schedules": [settings.tick],
            "timezone": "Etc/UTC",
            "# two ticks at once do no harm: one leads, and a lease keeps each dataset to one run": None,
            "concurrencyPolicy": "Allow",
            "workflowSpec": {
                "entrypoint": "tick",
                **_shared(),
                "templates": [
                    {
                        "name": "tick",
                        "steps": [
                            [{"name": "due", "template": "due"}],
                            [fan],
                            [{"name": "rest", "template": "rest"}],
                        ],
                    },
                    _template(settings, "due", DUE),
                    _template(settings, "rest", REST),
                ],
            },
        },
    }
