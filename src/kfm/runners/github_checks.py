"""GitHub Actions on a pull request: the gates, the workers, and the rules that make them required.

They see the code of whoever proposes it, and no secret, key or data.
"""

import json
from collections.abc import Sequence

from kfm.runners.settings import Settings
from kfm.runners.yaml_text import Noted, Tree, yaml_text

__all__ = ["GATES", "WORKERS", "WORKFLOWS", "checkout", "checks", "installed"]

WORKFLOWS = ".github/workflows"
HOSTED = "ubuntu-latest"
GATES = {  # job -> what it asks
    "gates": "every gate says yes to what changes",
    "receipts": "every run leaves receipts, and they are what the schemas say",
    "catalogs": "catalogs are valid, and consistent with what they describe",
    "checksums": "every byte is the one that was signed for",
    "policy": "rules deny by default, and keep sensitive places coarse",
    "documents": "documents are up to date, and every link leads somewhere",
    "owners": "CODEOWNERS covers what needs review",
}
WORKERS = "workers"


def checkout(*, history: bool) -> Tree:
    """The repository without a way to write to it; `history`: with all that came before."""
    more: Tree = {"fetch-depth": 0} if history else {}
    return {
        "name": "checkout",
        "uses": Noted("actions/checkout@de0fac2e4500dabe0009e67214ff5f5447ce83dd", "v6.0.2"),
        "with": {"persist-credentials": False, **more},
    }


def installed(settings: Settings) -> Tree:
    """kfm as the machine has it, else by the hashes of a file of the repository."""
    return {
        "name": "kfm",
        "env": {"LOCK": settings.runners.install},
        "run": (
            "if ! command -v kfm; then\n"
            '  python3 -m venv "$RUNNER_TEMP/kfm"\n'
            '  "$RUNNER_TEMP/kfm/bin/python" -m pip install --quiet --require-hashes'
            ' --requirement "$LOCK"\n'
            '  echo "$RUNNER_TEMP/kfm/bin" >> "$GITHUB_PATH"\n'
            "fi\n"
        ),
    }


def checks(settings: Settings) -> dict[str, str]:
    """Path -> text: both workflows, and the rules of the branch."""
    return {
        f"{WORKFLOWS}/gates.yml": yaml_text(_gates(settings)),
        f"{WORKFLOWS}/workers.yml": yaml_text(_workers(settings)),
        ".github/rulesets/main.json": _rules([*GATES, WORKERS]),
    }


def _asked(settings: Settings, what: str, check: str) -> Tree:
    base = "github.event.pull_request.base.sha || github.event.merge_group.base_sha"
    return {
        "runs-on": HOSTED,
        "timeout-minutes": 60,
        "permissions": {"contents": "read"},
        "steps": [
            checkout(history=True),
            installed(settings),
            {
                "name": what,
                "env": {"BASE": f"${{{{ {base} }}}}"},
                "run": f'kfm runner check {check} --base="$BASE"',
            },
        ],
    }


def _workflow(name: str, jobs: Tree) -> Tree:
    return {
        "name": name,
        "on": {"pull_request": None, "merge_group": None},
        "permissions": {},
        "concurrency": {"group": f"{name}-${{{{ github.ref }}}}", "cancel-in-progress": True},
        "jobs": jobs,
    }


def _gates(settings: Settings) -> Tree:
    return _workflow("gates", {job: _asked(settings, what, job) for job, what in GATES.items()})


def _workers(settings: Settings) -> Tree:
    what = "workers do what changes, and nothing is put aside"
    return _workflow(WORKERS, {WORKERS: _asked(settings, what, WORKERS)})


def _rules(required: Sequence[str]) -> str:
    """As Settings, Rules, Import takes it: nothing reaches the branch without review by an owner and
    every check.
    """
    review = {
        "required_approving_review_count": 1,
        "dismiss_stale_reviews_on_push": True,
        "require_code_owner_review": True,
        "require_last_push_approval": True,
        "required_review_thread_resolution": True,
    }
    passed = {
        "strict_required_status_checks_policy": True,
        "required_status_checks": [{"context": name} for name in required],
    }
    rules = {
        "name": "what is official is reviewed",
        "target": "branch",
        "enforcement": "active",
        "conditions": {"ref_name": {"include": ["~DEFAULT_BRANCH"], "exclude": []}},
        "rules": [
            {"type": "deletion"},
            {"type": "non_fast_forward"},
            {"type": "pull_request", "parameters": review},
            {"type": "required_status_checks", "parameters": passed},
        ],
        "bypass_actors": [],
    }
    return json.dumps(rules, indent=2) + "\n"
