"""derived: what a registry entry wants made of the official version, and nobody has made yet."""

from kfm.evidence.append_times import appended_at
from kfm.evidence.run_end import DERIVED
from kfm.model.paths import search_path, version_tiles_folder
from kfm.world.world import World

__all__ = ["derivation", "owed"]


def owed(world: World, dataset_id: str) -> list[str]:
    """The types of job that would make what the registry entry wants made of the official version,
    and nobody has made or asked for yet.
    """
    entry, head = (
        world.registry(dataset_id),
        world.store.read(lambda tx: tx.index.last_generation(dataset_id)),
    )
    if entry is None or not entry.derive or head is None or head.version_id is None:
        return []
    made = {
        "tiles": f"{version_tiles_folder(dataset_id, head.version_id)}/tiles.json",
        "search": search_path(dataset_id, head.version_id, "search.json"),
    }
    since = appended_at(world, head) or ""
    tried = {
        kind: world.store.read(
            lambda tx: tx.jobs.listing(dataset_id=dataset_id, job_type=kind, limit=1)
        )
        for kind in DERIVED.values()
    }
    asked = {
        kind
        for kind, jobs in tried.items()
        if jobs and (jobs[0].state != "ended" or str(jobs[0].ended_at) >= since)
    }
    return [
        DERIVED[name]
        for name in entry.derive
        if DERIVED[name] not in asked and not world.data.exists(made[name])
    ]


def derivation(job_type: str, dataset_id: str) -> str:
    """The command that works such a job now, without a worker."""
    return f"kfm worker run-job {job_type} --dataset kfm://dataset/{dataset_id}"
