"""What tests share: a workspace, the sample upstream, and the command line called as a person
would.
"""

import contextlib
import gc
import os
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from kfm.cli.init import make_workspace
from kfm.connectors.child.process import kept_cold, kept_warm
from kfm.samples.upstream import SampleUpstream
from tests.brought import go_tool
from tests.given.ports import free_port
from tests.given.rules import resting_rules
from tests.given.verbs import COLLECTED, Said, caller, had, until

# A busy machine proves nothing. The same commit is tried with the same examples every time; `make
# drill` looks for others.
_PROFILE = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("same", _PROFILE, derandomize=True)
settings.register_profile("other", _PROFILE, derandomize=False)
settings.load_profile("other" if os.environ.get("KFM_OTHER_EXAMPLES") else "same")


@pytest.hookimpl(tryfirst=True)  # before any is left out
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    every_time = (item for item in items if item.get_closest_marker("drill") is None)
    config.stash[COLLECTED] = {item.nodeid.split("[")[0] for item in every_time}


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Name what failed at once: a run that is cut off, or hangs later, has told of it."""
    if report.failed and not os.environ.get("PYTEST_XDIST_WORKER"):
        print(f"\nfailed ({report.when}): {report.nodeid}", file=sys.stderr, flush=True)


def pytest_collection_finish() -> None:
    """What is collected stays: nobody looks through it for garbage again and again."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session", autouse=True)
def forked_children() -> Iterator[None]:
    """Children are forked, as a backfill's are and those of `connector check`: the same bytes in the
    same cage, without loading everything anew. Connector code has a nursery of its own.

    That both kinds of child are alike is shown in test_staged.py; tests of how a child is started
    use `started_children`.
    """
    with kept_warm(), kept_warm(private=False, coded=True), resting_rules():
        yield


@pytest.fixture(scope="module")
def started_children() -> Iterator[None]:
    with kept_cold():
        yield


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
def kfm(
    ws: Path,
    sample: SampleUpstream,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Callable[..., Said]:
    """Call the command line in this process, against the sample upstream, with few and short
    retries.
    """
    monkeypatch.setenv("KFM_SAMPLE_UPSTREAM", sample.url)
    monkeypatch.setenv("KFM_FETCH_ATTEMPTS", "2")

    return caller(ws, capsys)


@pytest.fixture(scope="session")
def opa_binary() -> Path:
    return had(lambda: go_tool("opa"))


@pytest.fixture(scope="session")
def conftest_binary() -> Path:
    return had(lambda: go_tool("conftest"))


@pytest.fixture(scope="session")
def opa_server(opa_binary: Path) -> Iterator[str]:
    """The address of an OPA server on loopback that ends with the session."""
    with contextlib.ExitStack() as stack:
        # another may take a port that is free
        yield next(url for _ in range(5) if (url := _opa(opa_binary, stack)))


def _opa(program: Path, stack: contextlib.ExitStack) -> str:
    """The address of a server that answers; empty when it ended."""
    url = f"http://127.0.0.1:{free_port()}"
    command = [
        str(program),
        "run",
        "--server",
        "--disable-telemetry",
        "--log-level",
        "error",
        "--addr",
        url.removeprefix("http://"),
    ]
    server = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    stack.callback(server.wait)
    stack.callback(server.kill)

    def answers() -> bool:
        with contextlib.suppress(OSError), urllib.request.urlopen(f"{url}/health", timeout=60):
            return True
        return False

    until(lambda: answers() or server.poll() is not None)
    return url if server.poll() is None else ""
