"""What runs told of themselves, as the files of a release hold it."""

import contextlib
from collections.abc import Sequence

import msgspec

from kfm.model import RunTelemetry
from kfm.model.paths import log_path, run_path
from kfm.model.receipt import TelemetryEvent
from kfm.telemetry.runs import NAME
from kfm.world.world import World

__all__ = ["of_release"]

_MOST = 100  # runs


def of_release(world: World | None, version: str) -> dict[str, bytes]:
    """The newest runs and their events; of what is not public nothing. None: nothing ran yet."""
    runs = _runs(world) if world is not None else []
    events = _events(world, runs) if world is not None else []
    return {
        "reliability-updaters-telemetry.json": _file("reliability/updaters-v1", version, runs=runs),
        "focus-telemetry.json": _file("pipelines-updater-v1", version, events=events),
    }


def _file(schema: str, version: str, **more: Sequence[msgspec.Struct]) -> bytes:
    told = {"schema": f"kfm://schemas/telemetry/{schema}.json", "release": version, **more}
    return msgspec.json.format(msgspec.json.encode(told), indent=2) + b"\n"


def _runs(world: World) -> list[RunTelemetry]:
    found: list[RunTelemetry] = []
    files = [p for p in world.root.names(log_path("")) if p.startswith(log_path(f"{NAME}-"))]
    for path in sorted(files, reverse=True):
        for line in reversed(world.root.read(path).splitlines()):
            with contextlib.suppress(msgspec.MsgspecError):  # a torn tail
                told = msgspec.json.decode(line, type=RunTelemetry)
                if not told.withheld and not world.is_withheld(told.dataset_id):
                    found.append(told)
        if len(found) >= _MOST:
            break
    return found[:_MOST]


def _events(world: World, runs: Sequence[RunTelemetry]) -> list[TelemetryEvent]:
    found = []
    for run in runs:
        path = run_path(run.dataset_id, run.run_id, "artifacts/event_log.jsonl")
        if world.data.exists(path):
            lines = world.data.read(path).splitlines()
            found += [msgspec.json.decode(line, type=TelemetryEvent) for line in lines]
    return found
