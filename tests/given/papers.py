"""A workspace in which invented papers are official, and the job that indexes them."""

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from kfm.cli import main
from kfm.cli.init import make_workspace
from kfm.jobs.base import JobResult, parameters_of, work
from kfm.jobs.embeddings import JOB
from kfm.model import ids
from kfm.model.job import Request
from kfm.workspace.folder import open_workspace
from kfm.workspace.job_process import context_of
from kfm.workspace.wiring import open_world
from tests.given.verbs import for_recordings

TEXTS = {
    "letter": (
        'The ferryman asks for a new boat, for "Old Sally" leaks.\n\nHe wants oak planks — and forty dollars.\n\n'
        "The school by the river opens in May."
    ),
    "diary": "We crossed the prairie with eleven oxen.\n\nAt Zébulon's mill the miller gave us flour.\n\nSnow fell; the cattle froze.",
}


ENTRY = """
dataset_id: papers
title: Papers
description: Invented papers.
owners: [Somebody]
licence: CC0-1.0
sensitivity: public
policy_label: public
source:
  kind: documents
  url: https://papers.example/letter.txt
  urls: [https://papers.example/diary.txt]
cadence: daily
"""


def library(folder: Path, texts: dict[str, str] | None = None) -> Path:
    """A workspace in which invented papers are official."""
    workspace = folder / "ws"
    if not workspace.exists():
        make_workspace(workspace, sample=False)
        (workspace / "data/registry/papers.yml").write_text(ENTRY)
    publish(workspace, texts or TEXTS)
    return workspace


def publish(workspace: Path, texts: dict[str, str]) -> None:
    folder = workspace.parent / "upstream"
    folder.mkdir(exist_ok=True)
    entries = []
    for name, text in texts.items():
        (folder / name).write_text(text)
        url = f"https://papers.example/{name}.txt"
        entries.append(
            {
                "method": "GET",
                "url": url,
                "file": name,
                "sha256": hashlib.sha256(text.encode()).hexdigest(),
            }
        )
    (folder / "REPLAY.json").write_text(json.dumps({"entries": entries}))
    for_recordings(workspace)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KFM_REPLAY", str(folder))
        assert main(["-w", str(workspace), "run", "papers", "--upstream", "replay"]) == 0


def index(workspace: Path, dataset_id: str = "papers", **given: Any) -> JobResult:
    """Work the job, as a worker would."""
    opened = open_workspace(workspace)
    with open_world(opened) as world:
        job = world.store.transaction(
            lambda tx: tx.jobs.submit(
                Request(job_type=JOB.name, dataset_id=dataset_id, parameters=given)
            )
        )
        result = work(
            JOB, context_of(opened, world, job, ids.new_run_id(), parameters_of(JOB, given), "live")
        )
        world.store.transaction(lambda tx: tx.jobs.cancel(job.job_id))
    return result
