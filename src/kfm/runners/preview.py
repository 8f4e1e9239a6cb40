"""A preview of what a proposed change would publish: a throw-away copy of the workspace with a key
of its own, in which what changed is really run.

It has the workspace's registry, connectors and policy, and nothing else of it: no data, no key, no
store, no secret.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from kfm.cli.init import make_workspace
from kfm.model import Json, UsageError
from kfm.workspace.folder import Workspace, open_workspace

__all__ = ["Preview", "called", "changed", "preview"]

_APART = (
    ".git",
    ".venv",
    "ledger",
    "keys",
    "receipts",
    "releases",
    ".tmp",
    "__pycache__",
    "node_modules",
)
_EVERYTHING = ("policy/", "kfm.yml", "grants/")  # what every dataset follows from


class Preview(msgspec.Struct, frozen=True):
    """A copy in which the datasets that changed were run, and how each ended."""

    workspace: Workspace
    datasets: tuple[str, ...]
    runs: tuple[Json, ...] = ()


@contextmanager
def preview(workspace: Workspace, base: str, *, run: bool = True) -> Iterator[Preview]:
    """What changed since `base`, run in a copy; an empty `base`: everything."""
    names = changed(workspace, base)
    with tempfile.TemporaryDirectory(prefix="kfm-preview-") as folder:
        copy = _copy(workspace, Path(folder) / "workspace")
        runs = _run(copy, names) if run and names else []
        yield Preview(open_workspace(copy), tuple(names), tuple(runs))


def changed(workspace: Workspace, base: str) -> list[str]:
    """The datasets that a change is about, and those they are made from."""
    known = [name for name in workspace.registered() if _is_kept(workspace, name)]
    paths = _paths(workspace.path, base) if base else list(_EVERYTHING)
    if any(path.startswith(_EVERYTHING) for path in paths):
        return known
    about = re.compile(r"(?:data/registry|scripts/connectors)/([a-z][a-z0-9_]*)[./].*")
    named = {found[1] for path in paths if (found := about.fullmatch(path))}
    wanted = {name for name in known if name in named}
    while more := {n for name in wanted for n in workspace.require(name).source.datasets} - wanted:
        wanted |= more
    return [name for name in known if name in wanted]


def _is_kept(workspace: Workspace, name: str) -> bool:
    entry = workspace.readable(name)  # one that cannot be read is run, and says why
    return entry is None or entry.retired is None


def _paths(folder: Path, base: str) -> list[str]:
    said = subprocess.run(
        [
            "git",
            "-C",
            str(folder),
            "diff",
            "--name-only",
            "--relative",
            "-z",
            "--end-of-options",
            base,
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    if said.returncode:
        raise UsageError(
            f"What changed since {base!r} cannot be told: {said.stderr.strip()[-200:]}",
            expected="a commit of this repository",
            remedy="Fetch it (`fetch-depth: 0`), or leave --base out to look at everything.",
        )
    return [name for name in said.stdout.split("\0") if name]


def _copy(workspace: Workspace, target: Path) -> Path:
    """The copy, with a store that is a file, and a key that exists only there."""

    def apart(folder: str, names: list[str]) -> set[str]:
        own = {name for name in names if name in _APART}
        data = Path(folder) == workspace.path / "data"
        return own | ({name for name in names if name != "registry"} if data else set())

    shutil.copytree(workspace.path, target, ignore=apart, symlinks=True)
    settings = target / "kfm.yml"
    settings.write_text(
        re.sub(
            r"(?m)^store:.*$", "store: sqlite:///ledger/idempotency.sqlite", settings.read_text()
        )
    )
    make_workspace(target, sample=False)
    return target


def called(copy: Path, *words: str) -> "subprocess.CompletedProcess[str]":
    """A command of kfm in the copy, without a secret of whoever calls."""
    plain = {
        name: value
        for name, value in os.environ.items()
        if not re.match(r"KFM_|GITHUB_|ACTIONS_|.*(TOKEN|SECRET|PASSWORD)", name)
    }
    return subprocess.run(
        [sys.executable, "-m", *words],
        cwd=copy,
        env={**plain, "KFM_WORKSPACE": str(copy)},
        capture_output=True,
        text=True,
        check=False,
    )


def _run(copy: Path, names: list[str]) -> list[Json]:
    said = called(copy, "kfm", "run", *names, "--json")
    try:
        found: list[Json] = json.loads(said.stdout)["runs"]
    except (ValueError, KeyError) as error:
        raise UsageError(
            f"What changed cannot be run: {(said.stderr or said.stdout).strip()[-400:]}",
            expected="datasets that can be read",
            remedy="Run `kfm dataset check` in the workspace and do what it says, then ask again.",
        ) from error
    return found
