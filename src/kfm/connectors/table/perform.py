"""What is made of tables that are there already, each loaded for itself alone."""

from pathlib import Path

from kfm.connectors.base import TransformResult
from kfm.connectors.operations import Collect, Join, Measure, Merge, Recheck

__all__ = ["of_tables"]


def of_tables(job: Recheck | Merge | Collect | Join | Measure, scratch: Path) -> TransformResult:
    """Do what the job asks for."""
    match job:
        case Recheck():
            from kfm.connectors.table.recheck import recheck

            return recheck(job, scratch)
        case Merge(business_key=()):
            from kfm.connectors.table.append import append

            return append(job, scratch)
        case Merge():
            from kfm.connectors.table.merge import merge

            return merge(job, scratch)
        case Collect():
            from kfm.connectors.table.collect import collect

            return collect(job, scratch)
        case Join():
            from kfm.connectors.table.join import join

            return join(job, scratch)
        case Measure():
            from kfm.connectors.table.measure import measure

            return measure(job, scratch)
