"""What is done with private tables, each loaded for itself alone."""

from pathlib import Path

from kfm.connectors.base import TransformResult
from kfm.connectors.operations import Govern, Search, Twin

__all__ = ["of_private"]


def of_private(job: Govern | Search | Twin, scratch: Path) -> TransformResult:
    """Do what the job asks for."""
    match job:
        case Govern():
            from kfm.connectors.release.govern import govern

            return govern(job, scratch)
        case Search():
            from kfm.connectors.release.search import search

            return search(job, scratch)
        case Twin():
            from kfm.connectors.release.twin import twin

            return twin(job, scratch)
