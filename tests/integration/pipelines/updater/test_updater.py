"""`python -m updater run`: configuration in, artifacts and ledger out; dry runs leave nothing."""

import datetime as dt
import hashlib
import json
import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import jsonschema_rs
import msgspec
import pytest
from tests.given.updater import ARTIFACTS, ROOT, TEMPLATES, write
from tests.given.verbs import Said, tree

from kfm.model import SystemClock
from kfm.model.ids import digest
from kfm.samples.upstream import SampleUpstream
from kfm.upkeep.pack import pack_noops
from kfm.workspace.folder import open_workspace
from kfm.workspace.wiring import open_world

Kfm = Callable[..., Said]


@pytest.mark.parametrize("name", ["config.example.yml", "sources.example.json"])
def test_the_shipped_examples_run_dry_from_a_clean_install(name: str, tmp_path: Path) -> None:
    env = {k: v for k, v in os.environ.items() if not k.startswith("KFM_")}
    command = [
        sys.executable,
        "-m",
        "updater",
        "run",
        "--config",
        str(TEMPLATES / name),
        "--dry-run",
    ]
    done = subprocess.run(
        command, cwd=tmp_path, env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "dry run" in done.stdout
    assert not list(tmp_path.iterdir())


def test_an_update_leaves_its_artifacts_and_a_ledger_row(
    updater: Kfm, ws: Path, sample: SampleUpstream
) -> None:
    outcome = updater(write(ws.parent)).json
    assert outcome["state"] == "COMMITTED"
    folder = ws / "data/work/ks_earthquakes/runs" / outcome["run_id"] / "artifacts"
    assert sorted(p.name for p in folder.iterdir()) == sorted(ARTIFACTS)
    state = json.loads((folder / "idempotency.json").read_text())
    told = [state[name] for name in ("source_url", "etag", "window", "pipeline_version")]
    assert not [value for value in told if "|" in value or "\\" in value]
    assert state["key"] == hashlib.sha256("|".join(told).encode()).hexdigest()
    db = sqlite3.connect(ws / "ledger/idempotency.sqlite")
    row = db.execute(
        "select run_id, dataset_id, key, timestamp, source_metadata, pipeline_version, state from ledger"
    ).fetchone()
    assert row[0] == outcome["run_id"] and row[2] == state["key"] and row[5] == "2.0.0" and all(row)
    assert row[6] == state["state"] == "COMMITTED"


def test_yaml_and_json_give_the_same_key(updater: Kfm, ws: Path, sample: SampleUpstream) -> None:
    first = updater(write(ws.parent)).json
    yaml = ws.parent / "config.yml"
    yaml.write_bytes(msgspec.yaml.encode(json.loads((ws.parent / "config.json").read_text())))
    assert not yaml.read_text().startswith("{")
    second = updater(yaml).json
    assert second["state"] == "NOOP"
    keys = [
        json.loads(
            (
                ws / "data/work/ks_earthquakes/runs" / r["run_id"] / "artifacts/idempotency.json"
            ).read_text()
        )["key"]
        for r in (first, second)
    ]
    assert keys[0] == keys[1]


@pytest.mark.parametrize("kind", ["COMMITTED", "NOOP", "FAILED", "dry"])
def test_every_kind_of_run_leaves_four_valid_artifacts(
    updater: Kfm, ws: Path, sample: SampleUpstream, kind: str
) -> None:
    file = write(ws.parent)
    if kind == "NOOP":
        updater(file)
    if kind == "FAILED":
        sample.control("ks_earthquakes", mode="lying")
    outcome = updater(file, *(["--dry-run"] if kind == "dry" else [])).json
    assert outcome["state"] == {"dry": "COMMITTED"}.get(kind, kind)
    folder = ws / "data/work/ks_earthquakes/runs" / outcome["run_id"] / "artifacts"
    schemas = {
        "run.jsonl": "artifacts/run-line.json",
        "event_log.jsonl": "telemetry/pipelines-updater-v1.json",
        "publisher_trace.jsonl": "artifacts/publisher-trace-line.json",
    }
    for name, schema in schemas.items():
        judge = jsonschema_rs.validator_for(json.loads((ROOT / "schemas" / schema).read_text()))
        lines = [json.loads(line) for line in (folder / name).read_text().splitlines()]
        assert lines, name
        for line in lines:
            judge.validate(line)
            assert line.get("dry_run", False) == (kind == "dry")
    judge = jsonschema_rs.validator_for(
        json.loads((ROOT / "schemas/artifacts/idempotency.json").read_text())
    )
    judge.validate(json.loads((folder / "idempotency.json").read_text()))
    trace = [
        json.loads(line) for line in (folder / "publisher_trace.jsonl").read_text().splitlines()
    ]
    assert [t["seq"] for t in trace] == list(range(1, len(trace) + 1))
    events = [json.loads(line) for line in (folder / "event_log.jsonl").read_text().splitlines()]
    emitted = {t["event_id"] for t in trace if t["call"] == "emit_event"}
    assert {e["event_id"] for e in events} == emitted, "the event and its trace are joined by id"


class Tomorrow(SystemClock):
    def now(self) -> dt.datetime:
        return super().now() + dt.timedelta(days=1)


def told(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_artifacts_leads_to_those_of_the_newest_run(
    updater: Kfm, kfm: Kfm, ws: Path, sample: SampleUpstream
) -> None:
    """Whatever became of it; a dry run shows nothing, and what is gone is made anew from the
    runs.
    """
    view, file = ws / "artifacts", write(ws.parent)
    runs = ws / "data/work/ks_earthquakes/runs"

    def shows(run_id: str) -> bool:
        return sorted(told(view)) == sorted(ARTIFACTS) and told(view) == told(
            runs / run_id / "artifacts"
        )

    first = updater(file).json["run_id"]
    assert shows(first)
    again = updater(file).json
    assert again["state"] == "NOOP" and shows(again["run_id"]) and again["run_id"] != first
    assert updater(file, "--dry-run").code == 0 and shows(again["run_id"])
    sample.control("ks_earthquakes", mode="lying")
    failed = updater(file, "--force").json
    assert failed["state"] == "FAILED" and shows(failed["run_id"])
    view.unlink()
    assert kfm("doctor", "--fix").code == 0 and shows(failed["run_id"])
    assert kfm("verify").code == 0
    view.unlink()
    view.mkdir()
    (view / "mine").touch()
    sample.control("ks_earthquakes", mode="ok")
    assert updater(file, "--force").code == 0 and [*told(view)] == ["mine"], "it is not ours"


def test_what_artifacts_leads_to_is_not_packed_away(
    updater: Kfm, kfm: Kfm, ws: Path, sample: SampleUpstream
) -> None:
    file, runs = write(ws.parent), ws / "data/work/ks_earthquakes/runs"
    made = [updater(file).json for _ in range(3)]
    assert [one["state"] for one in made] == ["COMMITTED", "NOOP", "NOOP"]
    with open_world(open_workspace(ws), clock=Tomorrow()) as world:
        assert pack_noops(world, "ks_earthquakes") == 1
    kept = {path.name for path in runs.iterdir()}
    assert kept == {made[0]["run_id"], made[2]["run_id"]}
    assert sorted(told(ws / "artifacts")) == sorted(ARTIFACTS)


def test_verbose_adds_readable_lines_and_changes_no_event(
    updater: Kfm, ws: Path, sample: SampleUpstream
) -> None:
    quiet = updater(write(ws.parent))
    sample.control("ks_earthquakes", revision=1)
    loud = updater(write(ws.parent), "--verbose")
    assert "run.claimed" in loud.err and "run.claimed" not in quiet.err

    def events(said: Said) -> list[str]:
        lines = (
            (ws / "data/work/ks_earthquakes/runs" / said.json["run_id"] / "artifacts/run.jsonl")
            .read_text()
            .splitlines()
        )
        return [json.loads(line)["event"] for line in lines]

    assert events(quiet) == events(loud)


def test_a_window_enters_the_key_and_the_request(
    updater: Kfm, ws: Path, sample: SampleUpstream
) -> None:
    whole = updater(write(ws.parent)).json
    days = (dt.datetime.now(dt.UTC) - dt.datetime(2025, 3, 15, tzinfo=dt.UTC)).days
    outcome = updater(write(ws.parent), "--window", f"{days}d").json
    since, until = (dt.datetime.fromisoformat(moment) for moment in outcome["window"].split("/"))
    assert until - since == dt.timedelta(days=days)
    assert all(part[:10] in sample.requests[-1][1] for part in outcome["window"].split("/"))
    assert 0 < outcome["rows_read"] < whole["rows_read"], "what came before is not fetched"
    keys = [
        json.loads(
            (
                ws / "data/work/ks_earthquakes/runs" / r["run_id"] / "artifacts/idempotency.json"
            ).read_text()
        )
        for r in (whole, outcome)
    ]
    assert [k["window"] for k in keys] == ["", outcome["window"]]
    assert keys[0]["key"] != keys[1]["key"]


def test_several_sources_are_one_input(updater: Kfm, ws: Path, sample: SampleUpstream) -> None:
    config = json.loads((TEMPLATES / "sources.example.json").read_text()) | {"workspace": "ws"}
    file = ws.parent / "many.json"
    file.write_text(json.dumps(config))
    outcome = updater(file).json
    assert outcome["state"] == "COMMITTED" and outcome["rows_read"] == 400
    state = json.loads(
        (
            ws
            / "data/work/ks_stream_gauges/runs"
            / outcome["run_id"]
            / "artifacts/idempotency.json"
        ).read_text()
    )
    assert [s["source_id"] for s in state["sources"]] == ["upstream", "downstream"]


def test_a_dry_run_mutates_no_protected_place(
    updater: Kfm, ws: Path, sample: SampleUpstream
) -> None:
    before = tree(ws)
    outcome = updater(write(ws.parent), "--dry-run").json
    own = f"data/work/ks_earthquakes/runs/{outcome['run_id']}/"
    made = {k: v for k, v in tree(ws).items() if k not in before}
    assert made
    assert all(k.startswith(own) for k in made)
    assert not (ws / "ledger").exists(), "not even an empty store"


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("{", 2),
        ("[]", 2),
        ('{"dataset_id": "x"}', 2),
        (
            '{"dataset_id": "nope", "pipeline_version": "1", "sources": [{"source_id": "s", "source_url": "https://e.org/x", "format": "csv"}], "workspace": "ws"}',
            2,
        ),
    ],
)
def test_an_invalid_configuration_is_named(updater: Kfm, ws: Path, text: str, code: int) -> None:
    file = ws.parent / "bad.json"
    file.write_text(text)
    assert updater(file).code == code


def test_artifacts_hold_no_person_path_or_token(
    updater: Kfm, ws: Path, sample: SampleUpstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They stand in the configuration, in the address that every artifact names, and in what code
    says.
    """
    monkeypatch.setenv("SECRET_FOR_TEST", "s3cr3t-token-value")
    monkeypatch.setenv("HOME", str(ws.parent))
    registry = ws / "data/registry/ks_earthquakes.yml"
    registry.write_text(
        registry.read_text()
        .replace("description: ", "description: by jane.doe@example.org, ")
        .replace(
            "  time_column: time\n",
            "  time_column: time\n  headers: {Authorization: 'env:SECRET_FOR_TEST'}\n",
        )
    )
    config = write(ws.parent)
    asked = f"contact=jane.doe@example.org&from={ws.parent}/x&to={ws}/y"
    config.write_text(config.read_text().replace("&until={until}", "&until={until}&" + asked))
    outcome = updater(config).json
    assert asked in sample.requests[-1][1]
    sample.control("ks_earthquakes", mode="lying")
    failed = updater(config).json
    assert (outcome["state"], failed["state"]) == ("COMMITTED", "FAILED")
    private = (str(ws), str(ws.parent), "s3cr3t-token-value", "jane.doe@")
    for run_id in (outcome["run_id"], failed["run_id"]):
        for file in (ws / "data/work/ks_earthquakes/runs" / run_id / "artifacts").iterdir():
            assert not [word for word in private if word in file.read_text()], file.name
        assert "<e-mail>" in file.with_name("idempotency.json").read_text(), "it was there to say"


def test_a_publisher_that_cannot_write_is_a_recorded_failure(
    updater: Kfm, ws: Path, sample: SampleUpstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    from kfm.model.errors import StepFailed
    from kfm.world.publisher.local import LocalPublisher

    def refuse(self: object, path: str, content: object) -> str:
        raise StepFailed(f"{path} could not be written: the folder is not writable.")

    with monkeypatch.context() as patched:
        patched.setattr(LocalPublisher, "write_file", refuse)
        said = updater(write(ws.parent))
    assert said.code == 1 and said.json["state"] == "FAILED"
    log = (
        ws / "data/work/ks_earthquakes/runs" / said.json["run_id"] / "artifacts/run.jsonl"
    ).read_text()
    assert '"level":"error"' in log
    states = (
        sqlite3.connect(ws / "ledger/idempotency.sqlite")
        .execute("select state from ledger")
        .fetchall()
    )
    assert states == [("FAILED",)]
    assert not (ws / "data/processed").exists()


def test_two_datasets_run_side_by_side(ws: Path, sample: SampleUpstream) -> None:
    env = {**os.environ, "KFM_SAMPLE_UPSTREAM": sample.url}
    names = ("ks_earthquakes", "ks_stream_gauges", "ks_weather_stations")
    started = [
        subprocess.Popen(
            [sys.executable, "-m", "kfm", "-w", str(ws), "run", n],
            env=env,
            stdout=subprocess.DEVNULL,
        )
        for n in names
    ]
    assert [p.wait(180) for p in started] == [0, 0, 0]


def test_receipts_and_records_satisfy_their_schemas(
    updater: Kfm, ws: Path, sample: SampleUpstream
) -> None:
    outcome = updater(write(ws.parent)).json
    folder = ws / "data/work/ks_earthquakes/runs" / outcome["run_id"]
    files = {
        "receipt": next((ws / "receipts").rglob("*.json")),
        "run-record": folder / "run_record.json",
        "run-manifest": folder / "run_manifest.json",
        "validation-report": folder / "validation_report.json",
    }
    for name, file in files.items():
        jsonschema_rs.validator_for(
            json.loads((ROOT / f"schemas/receipts/{name}.json").read_text())
        ).validate(json.loads(file.read_text()))
    receipt = json.loads(files["receipt"].read_text())
    assert {"python", "kfm", "pyarrow", "worker_image"} <= set(
        receipt["provenance"]["tool_versions"]
    )
    sealed = receipt["provenance"]["files"]  # one record, told in two places that name each other
    for name, file in files.items():
        if name != "receipt":
            assert sealed[file.name] == digest(file.read_bytes()), name
            assert json.loads(file.read_text())["run_id"] == receipt["run_id"]
    record = json.loads(files["run-record"].read_text())
    assert (receipt["run_key"], receipt["spec_hash"]) == (record["run_key"], record["spec_hash"])
    assert receipt["output_keys"] == json.loads(files["run-manifest"].read_text())["output_keys"]
    three = {receipt["run_key"], receipt["spec_hash"], *receipt["output_keys"]}
    assert len(three) == 3 and all(three), "each question has an answer of its own"
    wal = jsonschema_rs.validator_for(
        json.loads((ROOT / "schemas/model/wal-record.json").read_text())
    )
    for line in (folder / "wal.jsonl").read_text().splitlines():
        wal.validate(json.loads(line))
