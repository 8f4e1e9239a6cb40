"""Tekton: tasks that find what is due, work one dataset and work what is left; a pipeline of them;
a run of it. Tekton has no clock of its own: a trigger or the CronJob of `cronjob` ticks.
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

FOLDER = "pipelines/orchestration/runners/tekton"
_API = "tekton.dev/v1"
_DATASET: Tree = {"name": "dataset", "type": "string"}
_FOUND = "results.datasets.path"


def files(settings: Settings) -> dict[str, str]:
    tasks = yaml_text(
        _task(settings, "kfm-due", _script(DUE), results=[{"name": "datasets", "type": "array"}]),
        _task(settings, "kfm-queued", queued("$(params.dataset)"), params=[_DATASET]),
        _task(
            settings,
            "kfm-dataset",
            asked("$(params.dataset)", "$(params.window)"),
            params=[_DATASET, {"name": "window", "type": "string", "default": ""}],
        ),
        _task(settings, "kfm-rest", REST),
    )
    return {
        f"{FOLDER}/tasks.yaml": tasks,
        f"{FOLDER}/pipeline.yaml": yaml_text(_pipeline()),
        f"{FOLDER}/pipeline-run.yaml": yaml_text(_run(settings)),
    }


def lines(found: Mapping[str, str], values: Values) -> list[Line]:
    """In the order of the pipeline; then what no pipeline calls, which is asked for by hand."""
    documents = [(path, each) for path, text in found.items() for each in yaml.safe_load_all(text)]
    tasks = {each["metadata"]["name"]: (p, each) for p, each in documents if each["kind"] == "Task"}
    called = [
        task["taskRef"]["name"]
        for _, each in documents
        if each["kind"] == "Pipeline"
        for task in (*each["spec"]["tasks"], *each["spec"].get("finally", ()))
    ]
    by_hand = [name for name in tasks if name not in called]
    return [_line(*tasks[name], values) for name in called + by_hand]


def _line(path: str, task: Json, values: Values) -> Line:
    spec: Json = task["spec"]
    known = {
        "params.dataset": values.dataset,
        "params.window": values.window,
        _FOUND: str(values.output),
    }
    (step,) = spec["steps"]
    return Line(
        file=path,
        name=task["metadata"]["name"],
        words=tuple(
            re.sub(r"\$\((.*?)\)", lambda m: known[m[1]], word) for word in step["command"]
        ),
        environment={e["name"]: e["value"] for e in spec["stepTemplate"]["env"] if "value" in e},
        finds=str(values.output) if "results" in spec else "",
    )


def _script(words: Sequence[str]) -> tuple[str, ...]:
    """What it prints becomes the result."""
    return ("/bin/sh", "-c", f'{" ".join(words)} > "$0"', f"$({_FOUND})")


def _task(settings: Settings, name: str, command: Sequence[str], **more: Value) -> Tree:
    return {
        "apiVersion": _API,
        "kind": "Task",
        "metadata": {"name": name, "labels": pods.labels("dataset")},
        "spec": {
            **more,
            "workspaces": [{"name": "kfm", "mountPath": pods.WORKSPACE}],
            "volumes": [{"name": "scratch", "emptyDir": {}}],
            "stepTemplate": {
                "image": settings.image,
                "env": pods.environment(settings),
                "securityContext": pods.SAFE,
                "volumeMounts": [{"name": "scratch", "mountPath": "/tmp"}],
            },
            "steps": [
                {"name": "kfm", "command": list(command), "computeResources": pods.resources()}
            ],
        },
    }


def _call(name: str, task: str, **more: Value) -> Tree:
    bound: Value = [{"name": "kfm", "workspace": "kfm"}]
    return {"name": name, "taskRef": {"name": task}, **more, "workspaces": bound}


def _pipeline() -> Tree:
    each: Tree = {"params": [{"name": "dataset", "value": "$(tasks.due.results.datasets[*])"}]}
    return {
        "apiVersion": _API,
        "kind": "Pipeline",
        "metadata": {"name": "kfm-tick", "labels": pods.labels("scheduler")},
        "spec": {
            "workspaces": [{"name": "kfm"}],
            "tasks": [
                _call("due", "kfm-due"),
                _call("update", "kfm-queued", matrix=each, onError="continue"),
            ],
            "finally": [_call("rest", "kfm-rest")],
        },
    }


def _run(settings: Settings) -> Tree:
    return {
        "# `kubectl create -f` starts one; a trigger or a CronJob may do the same": None,
        "apiVersion": _API,
        "kind": "PipelineRun",
        "metadata": {"generateName": "kfm-tick-", "labels": pods.labels("scheduler")},
        "spec": {
            "pipelineRef": {"name": "kfm-tick"},
            "taskRunTemplate": {
                "podTemplate": {
                    "automountServiceAccountToken": False,
                    "securityContext": pods.POD,
                }
            },
            "workspaces": [
                {"name": "kfm", "persistentVolumeClaim": {"claimName": "kfm-workspace"}}
            ],
        },
    }
