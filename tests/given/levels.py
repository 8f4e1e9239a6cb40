"""A dataset of levels with a plan to backfill it."""

import json
from pathlib import Path
from typing import Any

from kfm.cli.init import make_workspace
from kfm.workspace.folder import open_workspace
from kfm.workspace.wiring import open_world

ID = "levels"


ENTRY = """dataset_id: levels
title: Levels
licence: CC0-1.0
sensitivity: public
policy_label: public
source: {kind: http_file, format: csv, url: "file:///inbox/levels.csv", time_column: day}
schema: [{name: site, type: string, nullable: false}, {name: day, type: date, nullable: false}, {name: level, type: number}]
business_key: [site, day]
merge: upsert
"""


PLAN = """dataset: levels
since: 2026-01-01
until: 2026-01-{until:02}
partitioning: {{window: 1d}}
expected_runtime: 1m
pool: default
acceptance: {{gates: all}}
batch: {batch}
concurrency: 2
{more}
"""


def lines(days: int) -> str:
    return "site,day,level\n" + "".join(
        f"S{s},2026-01-{d:02},{d}.{s}\n" for d in range(1, days + 1) for s in range(2)
    )


def made(folder: Path, days: int = 4, batch: int = 2, more: str = "") -> Path:
    make_workspace(folder, sample=False)
    (folder / "data" / "registry" / f"{ID}.yml").write_text(ENTRY)
    (folder / "inbox").mkdir()
    (folder / "inbox" / "levels.csv").write_text(lines(days))
    plan = folder / "pipelines" / "orchestration" / "backfills" / "history.yml"
    plan.parent.mkdir(parents=True, exist_ok=True)
    plan.write_text(PLAN.format(until=days + 1, batch=batch, more=more))
    return folder


def ledger(here: Path) -> list[Any]:
    with open_world(open_workspace(here)) as world:
        found: list[Any] = world.store.read(lambda tx: tx.runs.recent(ID, 1000))
    return found


def told(here: Path, name: str = "summary.json") -> Any:
    (path,) = (here / "data" / "work" / ID / "backfills").glob(f"*/{name}")
    return (
        json.loads(path.read_text())
        if name.endswith(".json")
        else [json.loads(line) for line in path.read_text().splitlines()]
    )


def plan_of(here: Path) -> Any:
    from kfm.jobs.backfill_plan import plan_from
    from kfm.workspace.config import parse

    path = here / "pipelines" / "orchestration" / "backfills" / "history.yml"
    return plan_from(parse(path.read_bytes(), path.name), path.name)
