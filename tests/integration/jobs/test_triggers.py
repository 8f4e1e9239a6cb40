"""What started a run, and who, is in the ledger for every way in, and who is nowhere else."""

import base64
import json
import os
import platform

from kfm.model.schedule import without_emitter
from tests.given.workers import Workers

DATASET = "ks_earthquakes"


def work_at(workers: Workers, version: str) -> None:
    """Work the queue under a new pipeline version, so that the run has a row of its own."""
    entry = workers.ws / "data" / "registry" / f"{DATASET}.yml"
    kept = [
        line for line in entry.read_text().splitlines() if not line.startswith("pipeline_version")
    ]
    entry.write_text("\n".join([*kept, f"pipeline_version: {version}", ""]))
    said = workers.kfm("worker", "run", "--until-idle", "--upstream", "sample")
    assert said.returncode == 0, said.stderr


def test_the_ledger_names_what_started_each_run_and_who(workers: Workers) -> None:
    """Manual, cron and event: one run of each. Receipts, logs, telemetry, lineage and channel name
    the kind of trigger alone.
    """
    for other in (workers.ws / "data" / "registry").glob("*.yml"):
        if other.stem != DATASET:
            other.unlink()
    assert workers.kfm("run", DATASET, "--upstream", "sample").returncode == 0
    assert workers.kfm("scheduler", "--once").returncode == 0
    work_at(workers, "1.1.0")
    assert (
        workers.kfm("schedule", "event", DATASET, "--digest", "sha256:" + "e" * 64).returncode == 0
    )
    work_at(workers, "1.2.0")
    manual, cron, event = [
        row.trigger_type for row in reversed(workers.store.read(lambda tx: tx.runs.recent(DATASET)))
    ]
    assert manual.startswith("manual:user:")
    assert cron.startswith("cron:scheduler@")
    assert event.startswith("event:user:")
    told = {
        p: p.read_text()
        for p in workers.ws.rglob("*.json*")
        if p.is_file() and p.relative_to(workers.ws).parts[:2] != ("data", "registry")
    }
    told |= {p: p.read_text() for p in workers.ws.rglob("*.cypher")}
    told |= {
        p: base64.b64decode(json.loads(text)["payload"]).decode()
        for p, text in told.items()
        if "channels" in p.parts
    }
    assert len(told) > 40
    login = f"user:{os.environ.get('LOGNAME') or os.environ.get('USER') or 'root'}"
    assert [
        p for p, text in told.items() if login in text or f"scheduler@{platform.node()}" in text
    ] == []
    triggers = {
        json.loads(line)["trigger"]
        for p, text in told.items()
        if p.name == "event_log.jsonl"
        for line in text.splitlines()
    }
    assert triggers == {"manual", "cron", "event"}


def test_a_reason_a_person_gave_stays_as_it_is() -> None:
    assert (
        without_emitter("cron:scheduler@box:12 trees, revisit 1 of 2")
        == "cron trees, revisit 1 of 2"
    )
    assert without_emitter("manual: because I say so") == "manual: because I say so"
    assert without_emitter("runner:backfill") == "runner:backfill"
