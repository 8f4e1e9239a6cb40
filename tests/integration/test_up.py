"""One command keeps everything fresh, on a file and on a server, and makes the same versions on
both.
"""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.given.services import schema_url, shared_server


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
