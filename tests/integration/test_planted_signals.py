"""An e-mail, a token, a path of home, the digest of a restricted source and a place that is withheld
are planted; nothing that machines or people are told of runs spells one.
"""

import contextlib
import hashlib
import json
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from kfm.model import RunTelemetry
from kfm.telemetry.otlp import requests
from kfm.testing import Upstream
from tests.given.sites import SITES, body, register, sites
from tests.given.verbs import Said

Kfm = Callable[..., Said]
EMAIL, TOKEN, FILE = "jane.planted@example.org", "tok-Qz71planted93", "planted/notes.txt"
STORY = ("--format", "markdown"), ("--format", "html"), ("--json",)


def broken(ws: Path, up: Upstream, home: Path) -> None:
    """A dataset whose connector says everything it should not when it fails."""
    (ws / "data" / "registry" / "broken.yml").write_text(
        "dataset_id: broken\ntitle: Broken\nlicence: CC-BY-4.0\nsensitivity: public\npolicy_label: public\n"
        f"source: {{url: '{up.url}/broken.csv', format: csv, headers: {{X-Key: 'env:KFM_PLANTED'}}}}\n"
        "business_key: [k]\ncadence: daily\n"
    )
    up.files["/broken.csv"] = b"k,v\na,1\n"
    folder = ws / "scripts" / "connectors" / "broken"
    folder.mkdir(parents=True)
    told = f"ask {EMAIL} about {home}/{FILE}, token={TOKEN}"
    (folder / "connector.py").write_text(
        f"def transform(ctx, rows):\n    raise ValueError({told!r})\n    yield\n"
    )


def told_of(kfm: Kfm, ws: Path, name: str) -> dict[str, bytes]:
    """Everything that is told of runs, by where."""
    logs = sorted((ws / "ledger" / "logs").glob("*.jsonl"))
    artifacts = sorted((ws / "data" / "work").rglob("artifacts/*"))
    lineage = [
        p
        for p in (ws / "data").rglob("*")
        if p.is_file() and ("lineage" in str(p) or "cypher" in p.name or "prov" in str(p))
    ]
    found = {
        str(p.relative_to(ws)): p.read_bytes() for p in [*logs, *artifacts, *lineage] if p.is_file()
    }
    assert lineage and artifacts and len(logs) >= 2
    raw = b"".join(p.read_bytes() for p in logs if p.name.startswith("telemetry-"))
    lines = [msgspec.json.decode(line, type=RunTelemetry) for line in raw.splitlines()]
    assert {line.dataset_id for line in lines} == {SITES, "broken"}
    found |= {path: msgspec.json.encode(body) for path, body in requests(lines, "ws").items()}
    found["metrics"] = kfm("worker", "metrics").out.encode()
    for how in STORY:
        said = kfm("story", name, *how)
        assert said.code == 0
        found[f"story {how}"] = said.out.encode()
    for form in ("cypher", "dot"):
        with contextlib.suppress(FileNotFoundError):
            assert kfm("lineage", "export", name, "--format", form).code in (0, 2)
    found["lineage export"] = kfm("lineage", "show", name, "--json").out.encode()
    return found


def test_what_is_planted_is_in_nothing_that_is_told_of_runs(
    kfm: Kfm, ws: Path, up: Upstream, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("KFM_PLANTED", TOKEN)
    for path in (ws / "data" / "registry").glob("*.yml"):
        path.unlink()
    features = sites()
    up.files[f"/{SITES}.geojson"] = raw = body(features)
    register(ws, up)
    broken(ws, up, home)
    alarm = tmp_path / "alarm"
    config = ws / "kfm.yml"
    config.write_text(
        f"{config.read_text()}alerts: {{channels: {{desk: {{command: [/bin/sh, -c, 'cat >> {alarm}']}}}}}}\n"
    )
    assert kfm("run", SITES).code == 0 and kfm("run", "broken").code == 1
    assert kfm("schedule", "run", "broken").code == 0
    kfm("worker", "run", "--until-idle")
    assert kfm("alerts", "check").code == 0
    found = told_of(kfm, ws, SITES) | {"alarm": alarm.read_bytes()}
    assert b"broken" in found["alarm"]
    place = features[0]["geometry"]["coordinates"]
    planted = {
        "e-mail": EMAIL.encode(),
        "token": TOKEN.encode(),
        "home": str(home).encode(),
        "digest": hashlib.sha256(raw).hexdigest().encode(),
        "longitude": str(abs(place[0])).encode(),
        "latitude": str(place[1]).encode(),
        "site": features[0]["properties"]["name"].encode(),
    }
    spelt = {
        (where, what) for where, text in found.items() for what, v in planted.items() if v in text
    }
    assert not spelt
    failed = [json.loads(x) for x in found[_workers(found)].splitlines() if b'"failed"' in x]
    assert failed and "<e-mail>" in failed[-1]["error"]["message"], (
        "it says what went wrong all the same"
    )


def _workers(found: dict[str, bytes]) -> str:
    return next(name for name in found if "/workers-" in name)
