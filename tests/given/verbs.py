"""Verbs of a test: call the command line, look at what it left, wait for a fact."""

import contextlib
import datetime as dt
import functools
import hashlib
import json
import os
import shlex
import sqlite3
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import jsonschema_rs
import pytest

from kfm.cli import main
from kfm.cli.old_spellings import present
from kfm.cli.spec import find, verbs
from kfm.jobs.base import JobResult, job_type, parameters_of, work
from kfm.model import ids
from kfm.model.job import Request
from kfm.samples.upstream import SampleUpstream
from kfm.workspace.folder import open_workspace
from kfm.workspace.job_process import context_of
from kfm.workspace.wiring import open_world
from tests.brought import NotHad, machines

SHARED = Path(__file__).parents[3] / "shared"
# every test that runs every time, also one that is not selected, without its parameters
COLLECTED = pytest.StashKey[set[str]]()


@dataclass
class Said:
    """What a command answered."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


Kfm = Callable[..., Said]


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


def for_recordings(workspace: Path, replay: str = "true") -> None:
    """Let recordings answer in this workspace, which invented data then may not."""
    config = workspace / "kfm.yml"
    kept = [
        line
        for line in config.read_text().splitlines()
        if not line.startswith(("sample:", "replay:"))
    ]
    config.write_text("\n".join([*kept, f"replay: {replay}", ""]))


@functools.cache
def _schema(name: str) -> Any:
    """What judges the answer of a command; none where it says all as it goes."""
    file = Path(__file__).parents[2] / "schemas" / "cli" / f"{name}.json"
    return jsonschema_rs.validator_for(json.loads(file.read_text())) if file.exists() else None


def check_answer(args: tuple[str, ...], out: str) -> None:
    """What a command answers as JSON is what `schemas/cli` says of it, or an error."""
    words = [word for word in args if word != "--json"]
    noun, rest = words[0], words[1:]
    if verbs(noun) and (not rest or rest[0] not in verbs(noun)):
        rest = present(noun, rest)
    command, _ = find([noun, *rest])
    schema = _schema(command.name.replace(" ", "-")) if command else None
    if schema is not None:
        answer = json.loads(out)
        if not _schema("error").is_valid(answer):
            schema.validate(answer)


def caller(folder: Path, capsys: pytest.CaptureFixture[str]) -> Callable[..., Said]:
    """The command line for one workspace, called in this process."""

    def call(*args: str) -> Said:
        capsys.readouterr()
        code = main(["-w", str(folder), *args])
        said = capsys.readouterr()
        if "--json" in args:
            check_answer(args, said.out)
        # tests look for `kfm run …`; that hints name the workspace has a test of its own
        named = f" -w {shlex.quote(str(folder))}"
        return Said(code, said.out.replace(named, ""), said.err.replace(named, ""))

    return call


def each(cases: Iterable[Any], *often: str) -> list[Any]:
    """Every case in the drill, those that are named in every run too."""
    params = [pytest.param(c, id=c or "none") if isinstance(c, str) else c for c in cases]
    assert {*often} <= {p.id for p in params}, {*often} - {p.id for p in params}
    rare = pytest.mark.drill
    return [p if p.id in often else pytest.param(*p.values, id=p.id, marks=rare) for p in params]


T = TypeVar("T")


def until(ready: Callable[[], Any], seconds: float = 300.0) -> Any:
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


QUAKES = "ks_earthquakes"


def worked(
    ws: Path,
    name: str,
    dataset_id: str = QUAKES,
    prepare: Callable[[Any], None] = lambda world: None,
    **given: Any,
) -> JobResult:
    """Work a job in this process, as a worker's child would."""
    workspace = open_workspace(ws)
    with open_world(workspace) as world:
        request = Request(
            job_type=name, dataset_id=dataset_id, parameters=given, event=str(ids.new_run_id())
        )
        job = world.store.transaction(lambda tx: tx.jobs.submit(request))
        prepare(world)
        kind = job_type(name)
        return work(
            kind,
            context_of(
                workspace, world, job, str(ids.new_run_id()), parameters_of(kind, given), "live"
            ),
        )


def receipt(ws: Path, result: JobResult) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((ws / result.receipt).read_text())
    return found


def retain(ws: Path, dataset_id: str, text: str) -> None:
    path = ws / "data" / "registry" / f"{dataset_id}.yml"
    path.write_text(
        "".join(
            f"{line}\n"
            for line in path.read_text().splitlines()
            if not line.startswith("retention:")
        )
        + f"retention: {text}\n"
    )


def revisions(
    kfm: Kfm, sample: SampleUpstream, *numbers: int, dataset_id: str = QUAKES
) -> list[str]:
    """Make these revisions official one after the other; their versions."""
    made = []
    for number in numbers:
        sample.control(dataset_id, revision=number)
        made.append(kfm("run", dataset_id, "--json").json["runs"][0]["version_id"])
    return made


def run_out(ws: Path, lease: str) -> None:
    """The time of a lease whose holder does not renew it is over, however busy the machine is."""
    with contextlib.closing(
        sqlite3.connect(ws / "ledger" / "idempotency.sqlite", timeout=60)
    ) as db:
        changed = db.execute("update lease set expires_ns = 0 where name = ?", (lease,))
        db.commit()
    assert changed.rowcount == 1, f"nobody holds {lease}"


def versions(ws: Path) -> set[str]:
    return {p.name for p in (ws / "data" / "processed" / QUAKES).iterdir()}


def later(days: int) -> Callable[[Any], None]:
    """Let the world's clock go ahead."""

    def shift(world: Any) -> None:
        now = world.clock.now
        world.clock.now = lambda: now() + dt.timedelta(days=days)

    return shift
