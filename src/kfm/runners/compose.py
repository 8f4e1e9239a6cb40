"""Compose, for one machine: scheduler and worker that stay, and one dataset on demand."""

import re
from collections.abc import Mapping, Sequence

import yaml

from kfm.runners import pods
from kfm.runners.lines import UP, Line, Values, asked
from kfm.runners.settings import Settings
from kfm.runners.yaml_text import Tree, Value, yaml_text

__all__ = ["FOLDER", "files", "lines"]

FOLDER = "pipelines/orchestration/runners/compose"
_HERE = "../../../.."  # the workspace, from where the file lies
_DATASET, _WINDOW = "${DATASET:?name one}", "${WINDOW:-}"


def files(settings: Settings) -> dict[str, str]:
    by_hand: Tree = {
        "# DATASET=ks_x docker compose run --rm dataset": None,
        **_service(settings, asked(_DATASET, _WINDOW)),
        "profiles": ["by-hand"],
    }
    up: Tree = {**_service(settings, UP), "restart": "unless-stopped"}
    return {
        f"{FOLDER}/compose.yaml": yaml_text(
            {"name": "kfm", "services": {"up": up, "dataset": by_hand}}
        )
    }


def lines(found: Mapping[str, str], values: Values) -> list[Line]:
    known = {"DATASET": values.dataset, "WINDOW": values.window}
    return [
        Line(
            file=path,
            name=name,
            words=tuple(
                re.sub(r"\$\{(\w+)[^}]*\}", lambda m: known[m[1]], word)
                for word in service["command"]
            ),
            environment={k: v for k, v in service["environment"].items() if v is not None},
            stays="restart" in service,
        )
        for path, text in found.items()
        for name, service in yaml.safe_load(text)["services"].items()
    ]


def _service(settings: Settings, command: Sequence[str]) -> Tree:
    variables: dict[str, Value] = {
        "KFM_WORKSPACE": pods.WORKSPACE,
        "KFM_IMAGE_DIGEST": settings.image_digest,
    }
    if settings.store:
        variables[settings.store] = None  # as it is where compose is called
    return {
        "image": settings.image,
        "command": list(command),
        "environment": variables,
        "volumes": [f"{_HERE}:{pods.WORKSPACE}"],
        "user": "10001:10001",
        "read_only": True,
        "tmpfs": ["/tmp"],
        "cap_drop": ["ALL"],
        "security_opt": ["no-new-privileges:true"],
        "# SIGTERM finishes what runs": None,
        "stop_grace_period": "10m",
    }
