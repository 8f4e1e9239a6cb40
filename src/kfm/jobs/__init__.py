"""The job catalog: one module per type of job, loaded when one of that type is worked."""

__all__ = ["JOB_MODULES", "LIGHT_POOL", "module_of"]

# jobs of this pool run inside the worker, many to a transaction; every other job gets a process of
# its own
LIGHT_POOL = "light"
JOB_MODULES = {  # type -> the module that defines it
    "ingest.pull_source": "kfm.jobs.ingest",
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


def module_of(job_type: str) -> str | None:
    """The module of a type: one of ours, or what an installed package offers under the entry point
    group `kfm.jobs`.
    """
    if job_type in JOB_MODULES:
        return JOB_MODULES[job_type]
    from importlib.metadata import entry_points

    return next((point.module for point in entry_points(group="kfm.jobs", name=job_type)), None)
