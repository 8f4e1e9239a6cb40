"""Configuration is loaded from YAML and from JSON alike, and the log of a run is lines of JSON."""

import json
from pathlib import Path

import pytest

from kfm.model import SystemClock, UsageError
from kfm.workspace.config import load_updater
from kfm.world.run_log import RunLog
from kfm.zones.local import LocalZone

CONFIG = {
    "dataset_id": "trees",
    "pipeline_version": "1.0.0",
    "sources": [{"source_id": "a", "source_url": "https://example.org/a.csv", "format": "csv"}],
}


def test_configuration_is_the_same_as_yaml_and_as_json(tmp_path: Path) -> None:
    plain, yaml = tmp_path / "c.json", tmp_path / "c.yml"
    plain.write_text(json.dumps(CONFIG))
    source = "{source_id: a, source_url: 'https://example.org/a.csv', format: csv}"
    yaml.write_text(f"dataset_id: trees\npipeline_version: 1.0.0\nsources:\n- {source}\n")
    assert load_updater(plain) == load_updater(yaml)
    assert [s.source_id for s in load_updater(yaml).sources] == ["a"]


@pytest.mark.parametrize("change", [{"colour": "red"}, {"sources": []}, {"sources": "a"}])
def test_configuration_that_says_something_else_is_refused(
    tmp_path: Path, change: dict[str, object]
) -> None:
    path = tmp_path / "c.json"
    path.write_text(json.dumps({**CONFIG, **change}))
    with pytest.raises((UsageError, ValueError)):
        load_updater(path)


def test_the_log_of_a_run_is_json_line_by_line_and_says_no_path_of_this_machine(
    tmp_path: Path,
) -> None:
    zone = LocalZone(tmp_path)
    log = RunLog(zone, SystemClock(), "trees", marks={}, private={"/home/me": "~"})
    log.say("run.started", stage="watch", trigger="manual")
    log.bind("r1")
    log.say("run.done", stage="ledger", level="warning", file="/home/me/x")
    lines = [json.loads(n) for n in zone.read(f"{log.folder}/artifacts/run.jsonl").splitlines()]
    assert [(n["event"], n["run_id"]) for n in lines] == [("run.started", "r1"), ("run.done", "r1")]
    assert lines[1]["file"] == "~/x" and lines[1]["level"] == "warning"
    zone.close()
