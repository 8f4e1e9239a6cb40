"""What tests share: a workspace, the sample upstream, and the command line called as a person
would.
"""

import contextlib
import hashlib
import json
import os
import socket
import subprocess
import time
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import pytest
from hypothesis import HealthCheck, settings

from kfm.cli import main
from kfm.cli.init import make_workspace
from kfm.connectors.child.process import kept_cold, kept_warm
from kfm.samples.upstream import SampleUpstream
from tests.brought import NotHad, go_tool, machines

SHARED = Path(__file__).parents[2] / "shared"
# every test that runs every time, also one that is not selected, without its parameters
COLLECTED = pytest.StashKey[set[str]]()

# a busy machine proves nothing
settings.register_profile("kfm", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("kfm")

_EVERY_RUN = {  # file -> test -> how many of its cases run every time; the drill runs all of them
    "test_malformed.py": {"": 2},
    "test_leak.py": {
        "test_a_leaking_connector_is_caught": 2,
        "test_hidden_keys_that_meet_official_rows_are_no_leak": 1,
    },
    "test_restricted.py": {
        "test_a_planted_leak_is_caught_by_name": 2,
        "test_damaged_seals_are_noticed": 1,
    },
    "test_drill.py": {
        "test_a_step_that_is_only_unsafe_when_resumed_is_named": 0,
    },
    "test_recordings.py": {"test_replay_without_http_gives_the_same_version": 0},
    "test_policy_conformance.py": {"test_we_pass_what_the_bare_engine_passes": 0},
    "test_scheduler.py": {
        "test_two_days_over_a_clock_change_visit_every_window_and_double_none": 1
    },
    "test_raster.py": {"test_memory_does_not_grow_with_the_image": 0},
    "test_queue_kill.py": {"test_no_job_is_lost_and_no_effect_doubled": 3},
    "test_contract_suite.py": {"test_every_rule_can_be_broken": 8},
    "test_connector_new.py": {"test_options_may_stand_before_the_names": 1},
    "test_protocol_model.py": {"test_every_invariant_holds_in_every_reachable_state": 3},
    "test_engine_model.py": {
        "test_every_invariant_holds_with_the_store_on_a_server": 1,
        "test_a_seeded_mistake_is_noticed": 0,
    },
    "test_policy_agreement.py": {
        "test_ten_thousand_generated_questions_get_the_same_answer_from_the_server": 0
    },
}


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Some cases of each slow family in every run, all of them in the drill, and there alone what
    needs a tool that only root can install.
    """
    seen: Counter[tuple[str, str]] = Counter()
    for item in items:
        name = getattr(item, "originalname", item.name)
        kept = _EVERY_RUN.get(item.path.name, {})
        most = kept.get(name, kept.get(""))
        seen[item.path.name, name] += 1
        often = most is None or seen[item.path.name, name] <= most
        if not often or item.get_closest_marker("needs_strace"):
            item.add_marker(pytest.mark.drill)
    every_time = (item for item in items if item.get_closest_marker("drill") is None)
    config.stash[COLLECTED] = {item.nodeid.split("[")[0] for item in every_time}


@pytest.fixture(scope="session", autouse=True)
def forked_children() -> Iterator[None]:
    """Children that run no connector code are forked, as a backfill's are: the same bytes in the
    same cage, without loading everything anew.

    That both kinds of child are alike is shown in test_staged.py; tests of how a child is started
    use `started_children`.
    """
    with kept_warm():
        yield


@pytest.fixture(scope="module")
def started_children() -> Iterator[None]:
    with kept_cold():
        yield


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
    """Every file below `folder` with its digest; names starting with one of `without` are left
    out.
    """
    found = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if path.is_file() and not name.startswith(without):
            found[name] = hashlib.sha256(path.read_bytes()).hexdigest()
    return found


@pytest.fixture
def sample() -> Iterator[SampleUpstream]:
    with SampleUpstream() as server:
        yield server


def for_recordings(workspace: Path, replay: str = "true") -> None:
    """Let recordings answer in this workspace, which invented data then may not."""
    config = workspace / "kfm.yml"
    kept = [
        line
        for line in config.read_text().splitlines()
        if not line.startswith(("sample:", "replay:"))
    ]
    config.write_text("\n".join([*kept, f"replay: {replay}", ""]))


@pytest.fixture
def ws(tmp_path: Path) -> Path:
    """A workspace with the sample datasets registered."""
    folder = tmp_path / "ws"
    make_workspace(folder, sample=True, allow_loopback=True)
    return folder


def caller(folder: Path, capsys: pytest.CaptureFixture[str]) -> Callable[..., Said]:
    """The command line for one workspace, called in this process."""

    def call(*args: str) -> Said:
        capsys.readouterr()
        code = main(["-w", str(folder), *args])
        said = capsys.readouterr()
        return Said(code, said.out, said.err)

    return call


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


T = TypeVar("T")


def until(ready: Callable[[], Any], seconds: float = 120.0) -> Any:
    """Wait for a fact, not for a time."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if found := ready():
            return found
        time.sleep(0.02)
    raise AssertionError("it never happened")


def had(bring: Callable[[], T]) -> T:
    """What the tests bring with them; what cannot be had is a failure in CI and `not run`
    elsewhere.
    """
    try:
        return bring()
    except NotHad as error:
        reason = f"not run: {error}"
        if os.environ.get("KFM_REQUIRE_SERVICES") == "1":
            pytest.fail(reason)
        pytest.skip(reason)


def need_tool(name: str) -> None:
    """A program of the machine's that a test cannot do without."""
    had(lambda: machines(name))


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
    with socket.create_server(("127.0.0.1", 0)) as free:
        url = f"http://127.0.0.1:{free.getsockname()[1]}"
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
