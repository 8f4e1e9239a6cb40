"""What tests share: a workspace, the sample upstream, and the command line called as a person would."""

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from kfm.cli import main
from kfm.cli.init import make_workspace
from kfm.sample_upstream import SampleUpstream

SHARED = Path(__file__).parents[2] / "shared"


@dataclass
class Said:
    """What a command answered."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


def tree(folder: Path, *, without: tuple[str, ...] = ()) -> dict[str, str]:
    """Every file below `folder` with its digest; names starting with one of `without` are left out."""
    found = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if path.is_file() and not name.startswith(without):
            found[name] = hashlib.sha256(path.read_bytes()).hexdigest()
    return found


def need_tool(name: str) -> None:
    """A tool a test cannot do without: missing it is a failure in CI and `not run` elsewhere."""
    if shutil.which(name) is None:
        reason = f"not run: {name} is not installed"
        if os.environ.get("KFM_REQUIRE_SERVICES") == "1":
            pytest.fail(reason)
        pytest.skip(reason)


@pytest.fixture
def sample() -> Iterator[SampleUpstream]:
    with SampleUpstream() as server:
        yield server


@pytest.fixture
def ws(tmp_path: Path) -> Path:
    """A workspace with the sample datasets registered."""
    folder = tmp_path / "ws"
    make_workspace(folder, sample=True, allow_loopback=True)
    return folder


@pytest.fixture
def kfm(ws: Path, sample: SampleUpstream, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Said]:
    """Call the command line in this process, against the sample upstream, with few and short retries."""
    monkeypatch.setenv("KFM_SAMPLE_UPSTREAM", sample.url)
    monkeypatch.setenv("KFM_FETCH_ATTEMPTS", "2")

    def call(*args: str) -> Said:
        capsys.readouterr()
        code = main(["-w", str(ws), *args])
        said = capsys.readouterr()
        return Said(code, said.out, said.err)

    return call
