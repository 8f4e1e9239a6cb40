"""Asking for the files of a capture, as the kind of source or connector code says."""

from pathlib import Path

from msgspec import UNSET

from kfm.connectors.base import Books, TransformResult
from kfm.connectors.child.feed import AskParent, Context, Emit, load_connector
from kfm.connectors.kind import Ask, NotFetched
from kfm.connectors.loading import load
from kfm.connectors.operations import Acquire

__all__ = ["acquire"]


def acquire(job: Acquire, scratch: Path, *, emit: Emit, ask: AskParent) -> TransformResult:
    """Ask for every file of a capture, unless the change token says that the last one is still what
    upstream has.
    """
    own = load_connector(job.connector) if job.connector else None
    kind = load(job.source_kind)
    token = (own.hook("change_token") if own else None) or (kind.change_token if kind else None)
    hook = (own.hook("acquire") if own else None) or (kind.acquire if kind else None)
    if hook is None:
        raise TypeError("neither the connector nor this kind of source defines acquire()")
    asking = Ask(job, ask, Context(job, scratch, emit).log)
    try:
        found = token(asking) if token else None
    except NotFetched:
        found = None  # nobody can say whether it changed: everything is asked for
    unchanged = found is not None and found == job.known_token
    if not unchanged:
        hook(asking)
    stamp = kind.stamp(found) if kind and kind.stamp and found else None
    return TransformResult(
        artifact=job.artifact,
        books=Books(),
        schema=(),
        content_id="",
        profile={},
        token=found,
        unchanged=unchanged,
        stamp=stamp or UNSET,
    )
