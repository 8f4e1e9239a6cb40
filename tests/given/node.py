"""The updater in JavaScript, on the Nodes and the ledgers there are."""

import contextlib
import io
import os
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from unittest.mock import patch

from kfm.cli.updater import main
from tests.brought import machines, node_with_sqlite
from tests.given.verbs import Said, had

ROOT = Path(__file__).parents[2]
UPDATER = ROOT / "node" / "updater.mjs"
NODES: dict[str, Callable[[], Path]] = {
    "machine": lambda: machines("node"),
    "22": node_with_sqlite,
}
# which Node on which ledger does a NOOP itself
OWN = ("22-sqlite", "22-jsonl", "machine-jsonl")


def in_lines(ws: Path) -> None:
    """Let the workspace keep its ledger in lines."""
    config = ws / "kfm.yml"
    text = re.sub(r"(?m)^store:.*\n", "", config.read_text())
    config.write_text(text + "store: jsonl:///ledger/ledger.jsonl\n")


@dataclass
class Twins:
    """Both updaters on one configuration."""

    config: Path
    node: Path
    env: dict[str, str] = field(default_factory=dict)

    def command(self, which: str, *args: str) -> list[str]:
        program = [str(self.node), str(UPDATER)] if which == "node" else [sys.executable, "-m", "updater"]  # fmt: skip
        return [*program, "run", "--config", str(self.config), *args]

    def call(self, which: str, *args: str, **env: str) -> Said:
        """Node in a process of its own; Python in this one, which has loaded what it needs."""
        if which == "node":
            return self.started(which, *args, **env)
        out, err = io.StringIO(), io.StringIO()
        with (
            contextlib.chdir(self.config.parent),
            patch.dict(os.environ, {**self.env, **env}),
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(err),
        ):
            code = main(self.command(which, *args)[3:])
        return Said(code, out.getvalue(), err.getvalue())

    def started(self, which: str, *args: str, **env: str) -> Said:
        done = subprocess.run(
            self.command(which, *args),
            cwd=self.config.parent,
            env={**os.environ, **self.env, **env},
            capture_output=True,
            text=True,
            check=False,
        )
        return Said(done.returncode, done.stdout, done.stderr)


def twins(config: Path, node: str, upstream: str) -> Twins:
    env = {"KFM_SAMPLE_UPSTREAM": upstream, "KFM_PYTHON": sys.executable}
    return Twins(config, had(NODES[node]), env | {"KFM_FETCH_ATTEMPTS": "2"})
