"""CODEOWNERS: who must agree to a change of what decides what is published, and whether the file
says so.
"""

import re
from collections.abc import Iterator
from pathlib import Path

from kfm.model import UsageError
from kfm.runners.settings import Settings

__all__ = ["GUARDED", "PLACES", "codeowners", "owners_of", "uncovered"]

PLACES = (".github/CODEOWNERS", "CODEOWNERS", "docs/CODEOWNERS")  # the first that is there counts
GUARDED = {  # what a path is about -> paths that must have an owner
    "zone writes and promotion": (
        "scripts/connectors/any_dataset/promote.py",
        "scripts/connectors/any_dataset/connector.py",
        "scripts/connectors/README.md",
    ),
    "receipts and catalogs": ("src/pipelines/updater/publisher/base.py", "schemas/any.json"),
    "policy and sensitivity": (
        "policy/any.rego",
        "data/registry/any_dataset.yml",
        "grants/any.json",
    ),
    "spec hashing and settings": (
        "src/pipelines/updater/idempotency/keygen.py",
        "kfm.yml",
        "pipelines/orchestration/schedules/any.yml",
    ),
    "who may do what": (".github/CODEOWNERS", ".github/workflows/any.yml"),
}
_PATTERNS = (  # pattern -> why
    ("*", "whatever is new"),
    ("/scripts/connectors/", "zone writes, promotion"),
    ("/src/", "receipts, publishers, identities"),
    ("/schemas/", "what receipts and catalogs must hold"),
    ("/policy/", "rules, sensitivity"),
    ("/grants/", "who may use what"),
    ("/data/registry/", "licence, labels, release"),
    ("/pipelines/", "schedules, runners"),
    ("/kfm.yml", "settings"),
    ("/.github/", "checks, and this file"),
)


def codeowners(settings: Settings) -> str:
    named = " ".join(settings.runners.owners)
    if not named:
        raise UsageError(
            "Nobody is named who must agree to changes.",
            expected="a person or a team, as CODEOWNERS spells them",
            remedy="Say `runners: {owners: ['@agency/stewards']}` in kfm.yml, or --owner.",
        )
    return "".join(f"{pattern:<24} {named}  # {why}\n" for pattern, why in _PATTERNS)


def owners_of(text: str, path: str) -> tuple[str, ...]:
    """Who owns a path: the last pattern that fits decides, as GitHub reads it."""
    found: tuple[str, ...] = ()
    for pattern, owners in _rows(text):
        if _fits(pattern, path):
            found = owners
    return found


def _rows(text: str) -> Iterator[tuple[str, tuple[str, ...]]]:
    for line in text.splitlines():
        words = line.partition("#")[0].split()
        if words:
            yield words[0], tuple(words[1:])


def _fits(pattern: str, path: str) -> bool:
    body = pattern.strip("/")
    anchored = pattern.startswith("/") or "/" in body
    spelt = "".join(
        {"**": ".*", "*": "[^/]*", "?": "[^/]"}.get(part, re.escape(part))
        for part in re.split(r"(\*\*|\*|\?)", body)
    )
    # a folder owns all that is in it; `docs/*` owns its files alone
    below = "/.+" if pattern.endswith("/") else "" if body.endswith("/*") else "(/.+)?"
    return re.fullmatch(f"{'' if anchored else '(.*/)?'}{spelt}{below}", path) is not None


def uncovered(root: Path) -> list[str]:
    """What is missing, in words; nothing: every guarded path has an owner."""
    file = next((root / name for name in PLACES if (root / name).is_file()), None)
    if file is None:
        return ["there is no .github/CODEOWNERS: nobody has to agree to a change"]
    text = file.read_text()
    return [
        f"{path} has no owner ({about})"
        for about, paths in GUARDED.items()
        for path in paths
        if not owners_of(text, path)
    ]
