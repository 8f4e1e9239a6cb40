"""Invented counties, and tiles made of what is official."""

import random
from pathlib import Path
from typing import Any

import msgspec

from kfm.extras.tiles.base import Tiles
from kfm.jobs.base import JobResult, parameters_of, work
from kfm.jobs.tiles import JOB
from kfm.model.job import Request
from kfm.model.receipt import Receipt
from kfm.testing import Upstream
from kfm.workspace.folder import open_workspace
from kfm.workspace.job_process import context_of
from kfm.workspace.wiring import open_world
from tests.given.verbs import Kfm

COUNTIES = "counties"


def counties() -> list[dict[str, Any]]:
    """Invented counties: a grid of 7 by 15 whose inner corners were pushed about, so that
    neighbours share crooked borders.
    """
    chance = random.Random(105)
    corner = {
        (i, j): [
            round(-102 + i * 0.5 + (chance.uniform(-0.1, 0.1) if 0 < i < 15 else 0), 6),
            round(37 + j * 0.43 + (chance.uniform(-0.1, 0.1) if 0 < j < 7 else 0), 6),
        ]
        for i in range(16)
        for j in range(8)
    }
    rings = [
        [corner[i, j], corner[i + 1, j], corner[i + 1, j + 1], corner[i, j + 1], corner[i, j]]
        for i in range(15)
        for j in range(7)
    ]
    return [
        {
            "type": "Feature",
            "properties": {"geoid": f"99{n:03d}"},
            "geometry": {"type": "Polygon", "coordinates": [ring]},
        }
        for n, ring in enumerate(rings)
    ]


def make(
    kfm: Kfm,
    ws: Path,
    up: Upstream,
    name: str,
    features: bytes = b"",
    more: str = "business_key: [geoid]",
) -> None:
    """An official version of a dataset, from `features` where it is none of the samples."""
    if features:
        up.files[f"/{name}.geojson"] = features
        (ws / "data" / "registry" / f"{name}.yml").write_text(
            f"dataset_id: {name}\ntitle: {name}\nlicence: CC0-1.0\nsensitivity: public\npolicy_label: public\n"
            f"source: {{url: '{up.url}/{name}.geojson', format: geojson}}\n{more}\n"
        )
    assert kfm("run", name).code == 0


def tiles(ws: Path, name: str, **parameters: Any) -> tuple[JobResult, Receipt]:
    """Work one job as a worker does; its result, and the receipt as it is on the disk."""
    workspace = open_workspace(ws)
    with open_world(workspace) as world:
        job = world.store.transaction(
            lambda tx: tx.jobs.submit(
                Request(job_type=JOB.name, dataset_id=name, parameters=parameters)
            )
        )
        result = work(
            JOB,
            context_of(
                workspace, world, job, world.new_run_id(), parameters_of(JOB, parameters), "live"
            ),
        )
    return result, msgspec.json.decode((ws / result.receipt).read_bytes(), type=Receipt)


def made(ws: Path, result: JobResult) -> tuple[Tiles, Path]:
    file, about = (ws / output.id for output in result.outputs)
    return msgspec.json.decode(about.read_bytes(), type=Tiles), file
