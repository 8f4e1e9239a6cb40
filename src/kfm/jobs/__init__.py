"""The job catalog: one module per type of job, loaded when one of that type is worked."""

from kfm.model import UsageError

__all__ = ["JOB_MODULES", "LIGHT_POOL", "place_of"]

# jobs of this pool run inside the worker, many to a transaction; every other job gets a process of
# its own
LIGHT_POOL = "light"
JOB_MODULES = {  # type -> the module that defines it
    "ingest.pull_source": "kfm.jobs.ingest",
    "quarantine.replay": "kfm.jobs.replay",
    "validate.qa_dataset": "kfm.jobs.qa",
    "transform.build_tiles": "kfm.jobs.tiles",
    "index.build_embeddings": "kfm.jobs.embeddings",
    "notify": "kfm.jobs.notify",
    "promote": "kfm.jobs.promote",
    "repair": "kfm.jobs.repair",
    "maintenance.compact": "kfm.jobs.compact",
    "maintenance.gc": "kfm.jobs.gc",
    "backfill.run_parts": "kfm.jobs.backfill",
}


def place_of(job_type: str) -> tuple[str, str] | None:
    """The module of a type and its name there: one of ours, or what an installed package offers
    under the entry point group `kfm.jobs`.
    """
    if job_type in JOB_MODULES:
        return JOB_MODULES[job_type], "JOB"
    from importlib.metadata import entry_points

    points = tuple(entry_points(group="kfm.jobs", name=job_type))
    if len({p.value for p in points}) > 1:
        packages = sorted(f"{p.dist.name} {p.dist.version}" if p.dist else p.value for p in points)
        raise UsageError(
            f"The job type {job_type} is offered by {' and by '.join(packages)}.",
            expected="one package for a type",
            remedy="Uninstall all but one.",
        )
    return (points[0].module, points[0].attr or "JOB") if points else None
