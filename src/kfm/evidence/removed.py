"""What retention planned to remove, and so what is rightly missing."""

import msgspec

from kfm.model.paths import gc_folder, version_path
from kfm.zones.base import Zone

__all__ = ["Doomed", "Plan", "plans", "removed_files", "removed_versions"]


class Doomed(msgspec.Struct, frozen=True, kw_only=True):
    """Something nobody needs any more."""

    kind: str  # version, capture, part, quarantine, tiles, index, run, proposal
    name: str
    why: str
    paths: tuple[str, ...]  # below data/, in the order they are removed


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """`work/<id>/gc/<run_id>.json`: what a sweep is about to remove, durable before the first
    removal.
    """

    run_id: str
    dataset_id: str
    at: str
    versions: tuple[str, ...]
    files: dict[str, str]  # path below data/ -> digest; of a private dataset a commitment to it


def plans(zone: Zone, dataset_id: str) -> list[Plan]:
    names = [path for path in zone.names(gc_folder(dataset_id)) if path.endswith(".json")]
    return [msgspec.json.decode(zone.read(path), type=Plan) for path in names]


def removed_versions(zone: Zone, dataset_id: str) -> set[str]:
    """Versions that retention removed: missing, and rightly so."""
    named = {version for plan in plans(zone, dataset_id) for version in plan.versions}
    return {
        version
        for version in named
        if not zone.exists(version_path(dataset_id, version, "checksums.sha256"))
    }


def removed_files(zone: Zone, dataset_id: str) -> set[str]:
    """Every file that a sweep had on its plan."""
    return {path for plan in plans(zone, dataset_id) for path in plan.files}
