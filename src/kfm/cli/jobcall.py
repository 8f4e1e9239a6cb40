"""What commands about jobs share: the store alone, the dataset a word names, parameters, a job
worked here.
"""

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from kfm.jobs.worker import Ended
from kfm.model import DATASET_URI, JobRow, SystemClock, UsageError
from kfm.store.base import Store
from kfm.workspace.folder import Workspace
from kfm.workspace.job_process import Order, perform
from kfm.workspace.wiring import asked_at, open_store

__all__ = ["boundary_of", "dataset_id_of", "run_here", "settings_of", "store_of"]


@contextmanager
def store_of(workspace: Workspace) -> Iterator[Store]:
    """The store alone, without the rest of a world."""
    store = open_store(workspace, SystemClock())
    try:
        yield store
    finally:
        store.close()


def dataset_id_of(text: str) -> str:
    """The id in kfm://dataset/ID or kfm://dataset/ID@VERSION; a path is refused."""
    found = re.fullmatch(
        rf"(?:{DATASET_URI}|(?P<plain>[a-z][a-z0-9_]{{0,62}}))(?:@[A-Za-z0-9]+)?", text
    )
    if found is None:
        raise UsageError(
            f"{text!r} names no dataset.",
            expected="kfm://dataset/<id>, never a path",
            remedy="`kfm dataset list` shows what there is.",
        )
    return found["id"] or found["plain"]


def settings_of(pairs: Sequence[str]) -> dict[str, str]:
    """What --set was given, each as NAME=VALUE."""
    parameters = dict(pair.partition("=")[::2] for pair in pairs)
    if any(not name for name in parameters):
        raise UsageError(
            "--set wants NAME=VALUE.",
            expected="a name before the =",
            remedy="`kfm jobs types` lists the parameters of each type.",
        )
    return parameters


def run_here(
    workspace: Workspace, job: JobRow, run_id: str, upstream: str | None, boundary: str = ""
) -> Ended:
    """Work a job in this process."""
    return perform(
        Order(
            job=job,
            run_id=run_id,
            workspace=str(workspace.path),
            upstream=upstream,
            boundary=boundary,
        )
    )


def boundary_of(given: str) -> str:
    """Where the boundary is asked: as given, or by KFM_BOUNDARY; nothing: in this process. Raises
    `UsageError` before any job is taken.
    """
    found = given or os.environ.get("KFM_BOUNDARY", "")
    if found:
        asked_at(found).close()
    return found
