"""What a webhook told starts workflows of a repository: once, after it is kept, and nothing private."""

import json
import os
import re
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
import yaml

from kfm.model import Event
from kfm.webhook.fan_out import fan_out, tell_events
from kfm.webhook.verify import sign
from kfm.workspace.folder import open_workspace
from kfm.workspace.wiring import open_world
from kfm.world.world import World
from tests.given.github import TOKEN, github, named
from tests.given.github_server import GithubServer
from tests.given.hooks import SECRET, Told, body_of, source_file, telling, workspace_with
from tests.given.verbs import Kfm, until


@pytest.fixture
def ws(tmp_path: Path) -> Path:
    return workspace_with(tmp_path / "ws", "d")


@pytest.fixture
def hub(ws: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[GithubServer]:
    monkeypatch.setenv("KFM_TEST_TOKEN", TOKEN)
    monkeypatch.setenv("KFM_TEST_HOOK", SECRET)
    monkeypatch.delenv("GITHUB_ACTIONS", raising=False)
    with github() as server:
        named(ws, server)
        whole = yaml.safe_load((ws / "kfm.yml").read_text())
        whole["receivers"] = {"workflows": f"github+dispatch://{server.repo.name}"}
        (ws / "kfm.yml").write_text(yaml.safe_dump({**whole, "allow_loopback": True}))
        source_file(ws, "s")
        yield server


@pytest.fixture
def world(ws: Path, hub: GithubServer) -> Iterator[World]:
    with open_world(open_workspace(ws)) as found:
        yield found


@pytest.fixture
def told(ws: Path, world: World) -> Iterator[Told]:
    with telling(ws, also=fan_out(world)) as found:
        yield found


def test_a_valid_webhook_is_one_dispatch_with_the_event(
    world: World, told: Told, hub: GithubServer
) -> None:
    body = body_of(metadata={"n": 1})
    assert [told.post("s", body).status for _ in range(3)] == [202] * 3
    assert hub.repo.dispatches == [], "nothing goes out before it is kept"
    assert [tell_events(world) for _ in range(2)] == [1, 0]
    (kept,), (sent,) = told.events(), hub.repo.dispatches
    assert sent["event_type"] == "kfm-event"
    assert sent["client_payload"]["key"] == kept.event_id
    event = sent["client_payload"]["event"]
    assert (event.pop("event_id"), event.pop("datasets")) == (kept.event_id, ["d"])
    normalised = msgspec.to_builtins(msgspec.json.decode(kept.event, type=Event))
    del normalised["integrity"]["signature"]
    assert event == normalised


def test_the_workflow_it_starts_learns_what_has_work_and_asks_for_nothing_anew(
    kfm: Kfm, world: World, told: Told, hub: GithubServer
) -> None:
    assert told.post("s", body_of()).status == 202
    assert tell_events(world) == 1
    event = json.dumps(hub.repo.dispatches[0]["client_payload"]["event"])
    before = told.jobs()
    due = [kfm("runner", "due", f"--event={event}", "--json").json["datasets"] for _ in range(2)]
    assert due == [["d"], ["d"]] and told.jobs() == before


def test_what_starts_nothing_or_is_not_for_everybody_is_told_to_nobody(
    ws: Path, world: World, told: Told, hub: GithubServer
) -> None:
    entry = ws / "data" / "registry" / "d.yml"
    assert told.post("s", body_of(event_type="check")).status == 202
    assert told.post("s", body_of(trigger="before")).status == 202
    entry.write_text(
        entry.read_text()
        .replace("sensitivity: public", "sensitivity: restricted")
        .replace("policy_label: public", "policy_label: restricted")
    )
    with open_world(open_workspace(ws)) as now:
        assert tell_events(now) == 1, "it is public no more"
        with telling(ws, also=fan_out(now)) as later:
            assert later.post("s", body_of(trigger="after")).status == 202
        assert tell_events(now) == 0
        assert now.store.read(lambda tx: tx.deliveries.left()) == []
    assert len(told.events()) == 3 and hub.calls == []


def test_a_forge_that_does_not_answer_is_told_later(
    kfm: Kfm, world: World, told: Told, hub: GithubServer
) -> None:
    assert told.post("s", body_of()).status == 202
    for number in range(1, 5):
        hub.fault(number, "fail")
    assert tell_events(world) == 0
    (row,) = world.store.read(lambda tx: tx.deliveries.left())
    assert (row.state, row.tries) == ("waiting", 1) and row.not_before_ms > 0 and row.error
    waits = kfm("doctor").out
    assert f"of event {told.events()[0].event_id}" in waits


@pytest.mark.parametrize("after", [False, True])
def test_killed_between_putting_and_sending_it_is_sent_once(
    ws: Path, hub: GithubServer, after: bool
) -> None:
    def serve() -> tuple[subprocess.Popen[bytes], int]:
        said = ws.parent / "said"
        with said.open("w") as err:
            command = [sys.executable, "-m", "kfm", "-w", str(ws), "webhook", "serve"]
            process = subprocess.Popen(
                [*command, "--listen", "127.0.0.1:0"], stderr=err, start_new_session=True
            )
        found = until(lambda: process.poll() or re.search(r":(\d+)/hooks", said.read_text()))
        assert not isinstance(found, int), said.read_text()
        return process, int(found[1])

    process, port = serve()
    hub.victim = process.pid
    hub.fault(2 if after else 1, "kill", after=after)  # it looks, then sends
    body = body_of()
    url = f"http://127.0.0.1:{port}/hooks/s"
    asked = urllib.request.Request(url, body, sign("kfm", SECRET.encode(), body))
    with urllib.request.urlopen(asked, timeout=60) as answer:
        assert answer.status == 202
    assert process.wait(60) == -signal.SIGKILL
    hub.victim = None
    hub.mend()
    assert len(hub.repo.dispatches) == after
    process, port = serve()
    try:
        with open_world(open_workspace(ws)) as world:
            until(lambda: not world.store.read(lambda tx: tx.deliveries.left()))
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait(60)
    assert len(hub.repo.dispatches) == 1
