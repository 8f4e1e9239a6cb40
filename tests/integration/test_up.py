"""One command keeps everything fresh, on a file and on a server, makes the same versions on both, and
shows them meanwhile.
"""

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from kfm.model import UsageError
from kfm.reader.serve import reading
from kfm.reader.served_now import readers
from kfm.webhook.serve import Address
from kfm.workspace.folder import open_workspace
from kfm.workspace.wiring import open_world
from tests.given.services import schema_url, shared_server
from tests.given.verbs import Kfm, until


def run(ws: Path, *args: str, **env: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "kfm", *args, "-w", str(ws)]
    return subprocess.run(
        command, capture_output=True, text=True, env={**os.environ, **env}, timeout=300
    )


@pytest.mark.parametrize("store", ["sqlite", "postgres"])
def test_up_brings_a_new_workspace_up_to_date_and_stops_when_idle(ws: Path, store: str) -> None:
    env = {"KFM_TEST_STORE": schema_url(shared_server())} if store == "postgres" else {}
    if env:
        told = (ws / "kfm.yml").read_text()
        (ws / "kfm.yml").write_text(
            re.sub(r"(?m)^store:.*\n", "", told) + "store: env:KFM_TEST_STORE\n"
        )
    said = run(ws, "up", "--upstream", "sample", "--until-idle", **env)
    assert said.returncode == 0, said.stderr
    found = json.loads(run(ws, "status", "--json", **env).stdout)
    assert {d["dataset_id"]: d["version_id"][:9] for d in found["datasets"]} == {
        "ks_earthquakes": "vce7ef798",
        "ks_stream_gauges": "v2bf28491",
        "ks_weather_stations": "v65bdb9d2",
    }
    assert found["attention"] == []
    assert run(ws, "doctor", **env).returncode == 0
    assert len(list((ws / "receipts" / "validate.qa_dataset").rglob("*.json"))) == 3


def test_who_is_at_work_already_is_told_to_who_starts_another(ws: Path) -> None:
    with open_world(open_workspace(ws)) as world:
        world.store.transaction(lambda tx: tx.leases.take("worker/first", "a worker", 600))
        said = run(ws, "up", "--upstream", "sample", "--until-idle", "--no-serve")
    assert said.returncode == 0 and "a worker is at work here already" in said.stderr


# ---- what it shows meanwhile ---------------------------------------------------------------------
QUAKES = "ks_earthquakes"


@contextlib.contextmanager
def up(ws: Path, *args: str, **env: str) -> "Iterator[tuple[subprocess.Popen[bytes], Path]]":
    """`kfm up` of one dataset, and where it says what."""
    for path in (ws / "data" / "registry").glob("*.yml"):
        if path.stem != QUAKES:
            path.unlink()
    command = [sys.executable, "-m", "kfm", "-w", str(ws), "up", "--upstream", "sample", *args]
    said = ws.parent / "up.err"
    with said.open("w") as err:
        process = subprocess.Popen(
            command, stderr=err, start_new_session=True, env={**os.environ, **env}
        )
    try:
        yield process, said
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def test_up_also_serves_and_open_leads_to_the_page(
    ws: Path, kfm: Kfm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BROWSER", "true %s")  # whoever runs the tests sees no window
    told = tmp_path / "told"
    browser = tmp_path / "browser"
    browser.write_text(f'#!/bin/sh\necho "$1" >> {told}\n')
    browser.chmod(0o755)
    assert kfm("open").code == 2, "nothing serves yet"
    with up(ws) as (process, said):
        url = until(lambda: re.search(r"(http://127\.0\.0\.1:\d+)/ shows it", said.read_text()))[1]
        until(lambda: list((ws / "data" / "processed" / QUAKES).glob("v*")))
        until(lambda: kfm("status", "--json").json["datasets"][0]["version_id"])
        made = kfm("runs", "--json").json["runs"][0]["run_id"]
        pages = {
            (): "/",
            (QUAKES,): f"/datasets/{QUAKES}",
            (f"{QUAKES}@1",): f"/datasets/{QUAKES}/versions/1",
            (made,): f"/runs/{made}",
        }
        for words, path in pages.items():
            address = kfm("open", *words, "--json").json["address"]
            assert address == url + path
            asked = urllib.request.Request(address, headers={"accept": "text/html"})
            with urllib.request.urlopen(asked) as answer:
                assert answer.status == 200 and b"<h1>" in answer.read()
        assert kfm("open", "ks_quakes").code == 2 and kfm("open", "proposal/9").code == 2
        opened = run(ws, "open", BROWSER=f"{browser} %s")
        assert opened.stdout.strip() == url + "/" == told.read_text().strip()
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        assert list((ws / "ledger" / "readers").iterdir()), "it could not tidy up"
    shut = kfm("open", QUAKES)
    assert (
        shut.code == 2 and "kfm" in shut.err and "up`" in shut.err and "serve --console" in shut.err
    )


@pytest.mark.parametrize("lacks", ["port", "extra"])
def test_what_keeps_up_from_serving_keeps_it_from_nothing_else(
    ws: Path, lacks: str, tmp_path: Path
) -> None:
    (tmp_path / "uvicorn.py").write_text("raise ImportError('none', name='uvicorn')\n")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        args = ("--port", port) if lacks == "port" else ()
        env = {"PYTHONPATH": str(tmp_path)} if lacks == "extra" else {}
        with up(ws, *args, **env) as (process, said):
            until(lambda: "not shown in a browser" in said.read_text())
            until(lambda: list((ws / "data" / "processed" / QUAKES).glob("v*")))
            os.killpg(process.pid, signal.SIGTERM)
            assert process.wait(120) in (0, 143), said.read_text()
    assert ("in use" if lacks == "port" else "kfm[api]") in said.read_text()


def test_a_port_that_is_taken_gives_way_to_the_next_that_is_free(
    ws: Path, kfm: Kfm, tmp_path: Path
) -> None:
    assert kfm("run", QUAKES).code == 0
    with reading(open_workspace(ws), Address("127.0.0.1", 0)) as first:
        port = first.address.port
        with reading(open_workspace(ws), first.address, console=True, nearby=50) as second:
            assert port < second.address.port <= port + 50
            assert [r.url for r in readers(ws)] == [second.address.url, first.address.url]
            assert kfm("backup", "make", str(tmp_path / "kept")).code == 0
            assert not list((tmp_path / "kept").rglob("readers")), "they live here and now"
        with (
            pytest.raises(UsageError, match="in use"),
            reading(open_workspace(ws), first.address),
        ):
            pass
    assert readers(ws) == []
