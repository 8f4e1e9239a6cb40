"""What is shipped for clusters is valid, and calls the same entry points as a person."""

import shlex
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from kfm.cli import COMMANDS

DEPLOY = Path(__file__).parents[2] / "deploy" / "kubernetes"


def documents() -> list[tuple[str, dict[str, Any]]]:
    return [
        (path.name, document)
        for path in sorted(DEPLOY.glob("*.yaml"))
        for document in yaml.safe_load_all(path.read_text())
    ]


def pod(document: dict[str, Any]) -> dict[str, Any]:
    spec = document["spec"]
    return (spec["jobTemplate"]["spec"] if document["kind"] == "CronJob" else spec)["template"][
        "spec"
    ]  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("name", "document"), documents(), ids=lambda value: value if isinstance(value, str) else ""
)
def test_manifests_are_valid(name: str, document: dict[str, Any]) -> None:
    kubernetes_validate.validate(document, "1.30", strict=True)
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(
            {**document, "spec": {**document["spec"], "schedules": "x"}}, "1.30", strict=True
        )


@pytest.mark.parametrize(
    ("name", "document"), documents(), ids=lambda value: value if isinstance(value, str) else ""
)
def test_containers_call_commands_that_exist_and_hold_no_secret(
    name: str, document: dict[str, Any]
) -> None:
    for container in pod(document)["containers"]:
        said = " ".join(container["command"]).replace("&& exec ", "&& ")
        for part in said.removeprefix("/bin/sh -c ").split("&&"):
            words = shlex.split(part)
            assert words[:3] == ["python", "-m", "workers"] or (words[0], words[1] in COMMANDS) == (
                "kfm",
                True,
            )
        assert all("valueFrom" in e or e["name"] == "KFM_WORKSPACE" for e in container["env"])


def test_there_is_a_cronjob() -> None:
    assert [d["kind"] for _, d in documents()].count("CronJob") == 1
