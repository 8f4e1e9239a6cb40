"""What commands about jobs share: the store alone, the dataset a word names, a request, a job
worked here.
"""

import re
from argparse import Namespace
from typing import Any

import msgspec

from kfm.cli.call import login
from kfm.model.clock import SystemClock
from kfm.model.errors import UsageError
from kfm.model.job import DATASET_URI, Request
from kfm.model.ledger import JobRow
from kfm.workspace.folder import Workspace
from kfm.workspace.job_process import perform

__all__ = ["dataset_id_of", "request_of", "run_here", "store_of"]


def store_of(workspace: Workspace) -> Any:
    """The store alone, without the rest of a world."""
    from contextlib import contextmanager

    from kfm.workspace.wiring import open_store

    @contextmanager
    def opened() -> Any:
        store = open_store(workspace, SystemClock())
        try:
            yield store
        finally:
            store.close()

    return opened()


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


def request_of(args: Namespace, **more: Any) -> Request:
    """What run-job was asked for, as a request."""
    parameters = dict(pair.partition("=")[::2] for pair in args.set)
    if any(not name for name in parameters):
        raise UsageError(
            "--set wants NAME=VALUE.", expected="a name before the =", remedy="Correct it."
        )
    return Request(job_type=args.type, parameters=parameters, requested_by=login(), **more)


def run_here(workspace: Workspace, job: JobRow, run_id: str, upstream: str | None) -> Any:
    """Work a job in this process."""
    return perform(
        {
            "job": msgspec.to_builtins(job),
            "run_id": run_id,
            "workspace": str(workspace.path),
            "upstream": upstream,
        }
    )
