"""Quarantine: what was refused is kept, with the reasons, and never reaches a version."""

from typing import Any

import msgspec

from kfm.commitments import SEALED
from kfm.world import Target, World
from kfm.zones.base import note

__all__ = ["keep_capture", "keep_rows"]


def _pretty(value: Any) -> bytes:
    return msgspec.json.format(msgspec.json.encode(value), indent=2) + b"\n"


def keep_capture(world: World, target: Target, run_id: str, capture_id: str, error: Exception) -> str:
    """Write the report on a capture that was refused whole; its bytes lie in raw, untouched."""
    path = f"work/{target.dataset_id}/quarantine/{run_id}/report.json"
    report = {
        "run_id": run_id,
        "dataset_id": target.dataset_id,
        "capture": f"raw/{target.dataset_id}/captures/{capture_id}",
        "code": getattr(error, "code", "refused"),
        "happened": getattr(error, "happened", str(error)),
        "expected": getattr(error, "expected", ""),
        "remedy": getattr(error, "remedy", ""),
        "detail": getattr(error, "detail", {}),
        **world.marks,
    }
    stack = getattr(error, "stack", "")
    return _keep(world, target, path, _pretty(report | ({"stack": stack} if stack else {})))


def _keep(world: World, target: Target, path: str, content: bytes) -> str:
    """Write a file of the quarantine; of a private dataset sealed."""
    if world.vaults is None or not world.is_private(target.dataset_id):
        world.data.create(path, content)
        return path
    with world.data.scratch() as scratch:
        world.vaults.seal(target.dataset_id, note(scratch / "plain", content), scratch / "sealed")
        world.data.create(path + SEALED, scratch / "sealed")
    return path + SEALED


def keep_rows(world: World, target: Target, run_id: str, rows: bytes) -> str:
    """Keep the refused rows of a capture that was good enough as a whole."""
    return _keep(world, target, f"work/{target.dataset_id}/quarantine/{run_id}/rows.jsonl", rows)
