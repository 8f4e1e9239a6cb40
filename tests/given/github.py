"""The loopback GitHub: `with github() as hub:`; `hub.url` is its API, `hub.repo` what it keeps."""

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import yaml

from kfm.extras.github.base import repository_of
from kfm.extras.github.client import Hub
from kfm.extras.github.wire import Carrier
from kfm.fetch.connect import Dialer, lookup
from tests.given import github_publish, github_review  # noqa: F401  # their calls
from tests.given.github_repo import Repo
from tests.given.github_server import GithubServer


def github(name: str = "kansas/open-data") -> GithubServer:
    """A server with one repository."""
    server = GithubServer(repo := Repo(name))
    repo.server = server
    return server


TOKEN = "t0ken-of-the-tests"


def client(server: GithubServer, slept: list[float] | None = None, **more: Any) -> Hub:
    """A client of the server that does not really wait; KFM_TEST_TOKEN holds its token."""
    waits = slept if slept is not None else []
    dialer = Dialer(allow_loopback=True, reroute=None, timeout=5.0, resolve=lookup)
    place = repository_of(server.repo.name, server.url)
    told = {"sleep": waits.append, "jitter": lambda: 0.0, **more}
    return Hub(place, Carrier(dialer, "kfm/test"), "env:KFM_TEST_TOKEN", **told)


def named(ws: Path, server: GithubServer, receiver: bool = False, **said: Any) -> None:
    """Let kfm.yml name the repository; `receiver`: its releases are told of what becomes official."""
    file = ws / "kfm.yml"
    whole = yaml.safe_load(file.read_text())
    asked = {"repository": server.repo.name, "api": server.url, "token": "env:KFM_TEST_TOKEN"}
    whole["github"] = {**asked, **said}
    if receiver:
        whole["receivers"] = {"releases": f"github://{server.repo.name}"}
    file.write_text(yaml.safe_dump(whole))


def killed_at(server: GithubServer, number: int, after: bool, *command: str, **env: str) -> bool:
    """Start a command that dies at its n-th call; whether it got that far."""
    with tempfile.TemporaryFile() as out:
        process = subprocess.Popen(
            [sys.executable, "-m", "kfm", *command],
            env={**os.environ, **env},
            stdout=out,
            stderr=out,
        )
        server.victim = process.pid
        server.fault(number, "kill", after=after)
        code = process.wait(300)
    server.victim = None
    server.mend()
    assert code in (-signal.SIGKILL, 0, 3, 6, 7), code
    return code == -signal.SIGKILL
