"""A configuration of the updater, and what its runs leave."""

import json
from pathlib import Path
from typing import Any

from tests.given.verbs import QUAKES

ROOT = Path(__file__).parents[2]
TEMPLATES = ROOT / "src/kfm/template/src/pipelines/updater/config_templates"
ARTIFACTS = ("run.jsonl", "event_log.jsonl", "idempotency.json", "publisher_trace.jsonl")


def write(folder: Path, **more: Any) -> Path:
    """The configuration of one source, in a file beside the workspace `ws`."""
    plain = {
        "workspace": "ws",
        "dataset_id": QUAKES,
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


def artifacts(ws: Path, run_id: str) -> Path:
    """The folder of a run's artifacts."""
    return ws / "data" / "work" / QUAKES / "runs" / run_id / "artifacts"
