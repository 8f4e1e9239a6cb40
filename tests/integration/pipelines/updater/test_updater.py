"""`python -m updater run`: configuration in, artifacts and ledger out; dry runs leave nothing."""

import json
import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
from tests.conftest import Said, tree

from kfm.cli.updater import main
from kfm.samples.upstream import SampleUpstream

ROOT = Path(__file__).parents[4]
TEMPLATES = ROOT / "src/kfm/template/src/pipelines/updater/config_templates"
ARTIFACTS = ("run.jsonl", "event_log.jsonl", "idempotency.json", "publisher_trace.jsonl")
Kfm = Callable[..., Said]


def write(folder: Path, sample: SampleUpstream, **more: Any) -> Path:
    plain = {
        "workspace": "ws",
        "dataset_id": "ks_earthquakes",
        "pipeline_version": "2.0.0",
        "sources": [
            {
                "source_id": "quakes",
                "source_url": "https://quakes.sample.kfm.example/earthquakes.geojson?since={since}&until={until}",
                "format": "geojson",
            }
        ],
    }
    file = folder / "config.json"
    file.write_text(json.dumps(plain | more))
    return file


@pytest.fixture
def updater(
    ws: Path,
    sample: SampleUpstream,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Callable[..., Said]:
    monkeypatch.setenv("KFM_SAMPLE_UPSTREAM", sample.url)
    monkeypatch.setenv("KFM_FETCH_ATTEMPTS", "2")

    def call(file: Path, *args: str) -> Said:
        capsys.readouterr()
        code = main(["run", "--config", str(file), "--json", *args])
        said = capsys.readouterr()
        return Said(code, said.out, said.err)

    return call


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
    outcome = updater(write(ws.parent, sample)).json
    assert outcome["state"] == "COMMITTED"
    folder = ws / "data/work/ks_earthquakes/runs" / outcome["run_id"] / "artifacts"
    assert sorted(p.name for p in folder.iterdir()) == sorted(ARTIFACTS)
    state = json.loads((folder / "idempotency.json").read_text())
    from kfm.model.ids import run_key

    assert state["key"] == run_key(
        state["source_url"], state["etag"], state["window"], state["pipeline_version"]
    )
    db = sqlite3.connect(ws / "ledger/idempotency.sqlite")
    row = db.execute(
        "select run_id, dataset_id, key, timestamp, source_metadata, pipeline_version from ledger"
    ).fetchone()
    assert row[0] == outcome["run_id"] and row[2] == state["key"] and row[5] == "2.0.0" and all(row)


def test_yaml_and_json_give_the_same_key(updater: Kfm, ws: Path, sample: SampleUpstream) -> None:
    first = updater(write(ws.parent, sample)).json
    yaml = ws.parent / "config.yml"
    yaml.write_text((ws.parent / "config.json").read_text())
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
    file = write(ws.parent, sample)
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


def test_verbose_adds_readable_lines_and_changes_no_event(
    updater: Kfm, ws: Path, sample: SampleUpstream
) -> None:
    quiet = updater(write(ws.parent, sample))
    sample.control("ks_earthquakes", revision=1)
    loud = updater(write(ws.parent, sample), "--verbose")
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
    updater(write(ws.parent, sample))
    outcome = updater(write(ws.parent, sample), "--window", "3650d").json
    since, until = outcome["window"].split("/")
    assert since[:10] in sample.requests[-1][1] and until[:10] in sample.requests[-1][1]


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
    outcome = updater(write(ws.parent, sample), "--dry-run").json
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
    monkeypatch.setenv("SECRET_FOR_TEST", "s3cr3t-token-value")
    registry = ws / "data/registry/ks_earthquakes.yml"
    registry.write_text(
        registry.read_text()
        .replace("description: ", "description: by jane.doe@example.org, ")
        .replace(
            "  time_column: time\n",
            "  time_column: time\n  headers: {Authorization: 'env:SECRET_FOR_TEST'}\n",
        )
    )
    outcome = updater(write(ws.parent, sample)).json
    sample.control("ks_earthquakes", mode="lying")
    failed = updater(write(ws.parent, sample)).json
    for run_id in (outcome["run_id"], failed["run_id"]):
        for file in (ws / "data/work/ks_earthquakes/runs" / run_id / "artifacts").iterdir():
            text = file.read_text()
            assert (
                str(ws) not in text and "s3cr3t-token-value" not in text and "jane.doe@" not in text
            ), file.name


def test_a_publisher_that_cannot_write_is_a_recorded_failure(
    updater: Kfm, ws: Path, sample: SampleUpstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    from kfm.model.errors import StepFailed
    from kfm.world.publisher.local import LocalPublisher

    def refuse(self: object, path: str, content: object) -> str:
        raise StepFailed(f"{path} could not be written: the folder is not writable.")

    with monkeypatch.context() as patched:
        patched.setattr(LocalPublisher, "write_file", refuse)
        said = updater(write(ws.parent, sample))
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
    outcome = updater(write(ws.parent, sample)).json
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
    record = json.loads(files["run-record"].read_text())
    assert "git_sha" in record or record.get("git_sha") is None
    wal = jsonschema_rs.validator_for(
        json.loads((ROOT / "schemas/model/wal-record.json").read_text())
    )
    for line in (folder / "wal.jsonl").read_text().splitlines():
        wal.validate(json.loads(line))
