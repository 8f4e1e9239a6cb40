"""GitHub Actions: the updater that ticks, listens and is asked; its steps, and the way back to what
they call.

What a stranger may have written (an event, an input) reaches a shell through `env` alone. One action
is used, by its commit; every other step is a command.
"""

import re
from collections.abc import Mapping

import yaml

from kfm.extras.github.dispatch import EVENT
from kfm.extras.github.step import FILES, USES
from kfm.model import Json, UsageError
from kfm.runners.github_checks import WORKFLOWS, checkout, checks, installed
from kfm.runners.lines import REST, Line, Values, queued
from kfm.runners.owners import codeowners
from kfm.runners.settings import Settings
from kfm.runners.yaml_text import Tree, Value, yaml_text

__all__ = ["FOLDER", "PROMOTION", "UPDATER", "files", "lines"]

FOLDER = WORKFLOWS
UPDATER = f"{WORKFLOWS}/pipelines-updater.yml"
PROMOTION = f"{WORKFLOWS}/promotion.yml"
_DATASETS = "needs.due.outputs.datasets"


def files(settings: Settings) -> dict[str, str]:
    return {
        UPDATER: yaml_text(_updater(settings)),
        PROMOTION: yaml_text(_promotion(settings)),
        **checks(settings),
        ".github/CODEOWNERS": codeowners(settings),
        **FILES,
    }


# ---- what is rendered ----------------------------------------------------------------------------
def _updater(settings: Settings) -> Tree:
    return {
        "name": "pipelines-updater",
        "# an event is found again by its key": None,
        "run-name": "${{ github.event.client_payload.key || github.event_name }}",
        "on": _triggers(settings),
        "permissions": {},
        "jobs": {"due": _due(settings), "update": _update(settings), "rest": _rest(settings)},
    }


def _triggers(settings: Settings) -> Tree:
    chosen: Tree = {"type": "choice", "options": list(settings.datasets)}
    dataset: Tree = {
        "description": "the dataset to bring up to date",
        "required": True,
        **(chosen if settings.datasets else {"type": "string"}),
    }
    window: Tree = {
        "description": "only this window: 7d, a day, or SINCE/UNTIL",
        "required": False,
        "type": "string",
        "default": "",
    }
    dry: Tree = {
        "description": "do everything in a throw-away copy; change nothing",
        "required": False,
        "type": "boolean",
        "default": False,
    }
    return {
        "# the tick: what is due then follows from the cadence of each dataset": None,
        "schedule": [{"cron": settings.tick}],
        "repository_dispatch": {"types": [EVENT]},
        "workflow_dispatch": {"inputs": {"dataset": dataset, "window": window, "dry-run": dry}},
    }


def _job(settings: Settings, minutes: int, **more: Value) -> Tree:
    """A job on a machine that reaches the data, which lies outside the checkout."""
    variables: dict[str, Value] = {
        "KFM_WORKSPACE": "${{ vars.KFM_WORKSPACE }}",
        "KFM_PUBLISHER": "github_actions",
    }
    if settings.store:
        variables[settings.store] = f"${{{{ secrets.{settings.store} }}}}"
    return {
        "runs-on": settings.runners.runs_on,
        "timeout-minutes": minutes,
        "permissions": {"contents": "read"},
        **more,
        "env": variables,
    }


_SYNC: Tree = {
    "name": "bring the workspace to this commit",
    "run": (
        'git -C "${KFM_WORKSPACE:?set the variable KFM_WORKSPACE of the repository}"'
        ' fetch --quiet "$GITHUB_WORKSPACE" HEAD\n'
        'git -C "$KFM_WORKSPACE" merge --quiet --ff-only FETCH_HEAD\n'
    ),
}


def _due(settings: Settings) -> Tree:
    put = (
        'datasets=$(kfm runner due --dataset="$DATASET" --window="$WINDOW" --event="$EVENT"'
        " ${DRY_RUN:+--dry-run})\n"
        'echo "datasets=$datasets" >> "$GITHUB_OUTPUT"\n'
    )
    event = "toJSON(github.event.client_payload.event)"
    variables: Tree = {
        "DATASET": "${{ inputs.dataset }}",
        "WINDOW": "${{ inputs.window }}",
        "DRY_RUN": "${{ inputs.dry-run && 'yes' || '' }}",
        "EVENT": f"${{{{ github.event_name == 'repository_dispatch' && {event} || '' }}}}",
    }
    return {
        **_job(settings, 15, outputs={"datasets": "${{ steps.due.outputs.datasets }}"}),
        "steps": [
            checkout(history=True),
            installed(settings),
            _SYNC,
            {"name": "put what is due", "id": "due", "env": variables, "run": put},
        ],
    }


def _update(settings: Settings) -> Tree:
    work = " ".join(queued("$DATASET")).replace(
        "kfm://dataset/$DATASET", '"kfm://dataset/$DATASET"'
    )
    named: Tree = {"DATASET": "${{ matrix.dataset }}"}
    trial: Tree = {**named, "WINDOW": "${{ inputs.window }}"}
    fan: Tree = {
        "needs": "due",
        "if": f"${{{{ {_DATASETS} != '[]' }}}}",
        "strategy": {
            "# one that fails keeps no other from its work": None,
            "fail-fast": False,
            "matrix": {"dataset": f"${{{{ fromJSON({_DATASETS}) }}}}"},
        },
        "concurrency": {
            "group": "pipelines-updater-${{ matrix.dataset }}",
            "# one that never gets its turn loses nothing: its job waits in the table": None,
            "cancel-in-progress": False,
        },
    }
    job = _job(settings, 360, **fan)
    return {
        **job,
        "steps": [
            checkout(history=False),
            installed(settings),
            {
                "name": "update",
                "if": "${{ !inputs.dry-run }}",
                "env": named,
                "run": work,
            },
            {
                "name": "dry run",
                "if": "${{ inputs.dry-run }}",
                "env": trial,
                "run": 'kfm run "$DATASET" --dry-run ${WINDOW:+--window "$WINDOW"}',
            },
            {
                "name": "artifacts",
                "if": "${{ always() }}",
                "uses": USES,
                "with": {
                    "datasets": "${{ matrix.dataset }}",
                    "workspace": "${{ vars.KFM_WORKSPACE }}",
                },
            },
        ],
    }


def _rest(settings: Settings) -> Tree:
    wanted = "!cancelled() && !inputs.dry-run && needs.due.result == 'success'"
    job = _job(settings, 360, needs=["due", "update"], **{"if": f"${{{{ {wanted} }}}}"})
    return {
        **job,
        "steps": [
            checkout(history=False),
            installed(settings),
            {"name": "promotions and housekeeping", "run": " ".join(REST)},
        ],
    }


def _promotion(settings: Settings) -> Tree:
    """A merge is a push to the default branch, which no fork can make."""
    ours = (
        "github.event_name != 'push' || github.ref_name == github.event.repository.default_branch"
    )
    job = _job(settings, 60, **{"if": f"${{{{ {ours} }}}}"})
    promote = (
        "code=0\n"
        "kfm github promote || code=$?\n"
        "# 7: it was merged, and people have still to sign\n"
        'if [ "$code" -ne 7 ]; then exit "$code"; fi\n'
    )
    return {
        "name": "promotion",
        "on": {
            "# a proposal's pull request was merged": None,
            "push": {"paths": ["proposals/**"]},
            "# what was merged before enough people had signed": None,
            "schedule": [{"cron": settings.tick}],
            "workflow_dispatch": None,
        },
        "permissions": {},
        "concurrency": {"group": "promotion", "cancel-in-progress": False},
        "jobs": {
            "promote": {
                **job,
                "permissions": {"contents": "read", "checks": "write", "pull-requests": "write"},
                "steps": [
                    checkout(history=True),
                    installed(settings),
                    _SYNC,
                    {
                        "name": "what was merged becomes official, or is refused with the reason",
                        "env": {"GITHUB_TOKEN": "${{ github.token }}"},
                        "run": promote,
                    },
                ],
            }
        },
    }


# ---- and the way back ----------------------------------------------------------------------------
def lines(found: Mapping[str, str], values: Values) -> list[Line]:
    """The commands of the updater's jobs as an event that names no dataset starts them."""
    path, text = next((p, t) for p, t in found.items() if p.endswith("pipelines-updater.yml"))
    return [
        Line(
            file=path,
            name=f"{name}: {step['name']}",
            words=("bash", "-e", "-c", step["run"]),
            environment=_filled({**job["env"], **step.get("env", {})}, values),
            finds=f"{values.output}:datasets=" if step.get("id") == "due" else "",
        )
        for name, job in yaml.safe_load(text)["jobs"].items()
        for step in job["steps"]
        if "run" in step and _is_called(step) and step["name"] not in _MACHINE
    ]


# what makes the machine ready, and the workspace the one of this commit
_MACHINE = ("kfm", "bring the workspace to this commit")
_KNOWN = {
    "inputs.dataset": "",
    "inputs.window": "",
    "inputs.dry-run && 'yes' || ''": "",
    "!inputs.dry-run": "true",
    "inputs.dry-run": "",
}


def _is_called(step: Json) -> bool:
    return "if" not in step or bool(_value(step["if"], {}))


def _filled(variables: Mapping[str, str], values: Values) -> dict[str, str]:
    known = {"matrix.dataset": values.dataset}
    plain = {
        name: _value(said, known)
        for name, said in variables.items()
        if not re.search(r"\$\{\{ (vars|secrets)\.", said)  # of one machine alone
    }
    return plain | {"GITHUB_OUTPUT": str(values.output)}


def _value(said: str, known: Mapping[str, str]) -> str:
    """A text with its expressions filled in; one that nobody here can answer is refused."""

    def fill(found: re.Match[str]) -> str:
        asked = found[1].strip()
        if asked.startswith("github.event_name == 'repository_dispatch' && "):
            return ""
        if asked not in {**_KNOWN, **known}:
            raise UsageError(
                f"The expression {asked!r} cannot be answered here.",
                expected="one that `kfm runner render github` writes",
                remedy="Render the workflow again.",
            )
        return {**_KNOWN, **known}[asked]

    return re.sub(r"\$\{\{(.*?)\}\}", fill, said)
