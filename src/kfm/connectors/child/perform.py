"""What the child is asked for, and who does it."""

from pathlib import Path
from typing import assert_never

import msgspec

from kfm import connect
from kfm.connectors.base import Refused, TransformResult
from kfm.connectors.child.acquire import acquire
from kfm.connectors.child.feed import AskParent, Context, Emit, Watch
from kfm.connectors.child.hooks import discover
from kfm.connectors.child.transform import transform
from kfm.connectors.kind import Ask
from kfm.connectors.operations import (
    Acquire,
    Catalogue,
    Chain,
    Collect,
    Discover,
    Govern,
    Join,
    Measure,
    Merge,
    Read,
    Recheck,
    Search,
    Trace,
    TransformJob,
    Try,
    Twin,
)

__all__ = ["perform"]


def perform(job: TransformJob, scratch: Path, *, emit: Emit, ask: AskParent) -> TransformResult:
    """Do what the job asks for. Raises `Refused` when the whole capture cannot be taken."""
    try:
        return _perform(job, scratch, emit=emit, ask=ask)
    except connect.Refused as said:  # in the words of connector code
        raise Refused(
            said.code, said.happened, expected=said.expected, remedy=said.remedy
        ) from said


def _perform(job: TransformJob, scratch: Path, *, emit: Emit, ask: AskParent) -> TransformResult:
    """What only one operation needs is loaded for it alone."""
    match job:
        case Try():
            watch = Watch(job.rows)
            try:
                return transform(job, scratch, emit=emit, ask=ask, watch=watch)
            finally:
                watch.tell(emit)
        case Trace():
            from kfm.connectors.child.trace import trace

            return trace(job, scratch, emit=emit)
        case Read():
            return transform(job, scratch, emit=emit, ask=ask)
        case Acquire():
            return acquire(job, scratch, emit=emit, ask=ask)
        case Catalogue():
            from kfm.connectors.read.catalogs import offers

            asked = Acquire(
                dataset_id=job.dataset_id, urls=(job.url,), format="json", artifact=job.artifact
            )
            return offers(job, scratch, Ask(asked, ask, Context(asked, scratch, emit).log))
        case Discover():
            return discover(job, Context(job, scratch, emit), emit)
        case Recheck() | Merge() | Collect() | Join() | Measure():
            from kfm.connectors.table.perform import of_tables

            return of_tables(job, scratch)
        case Govern() | Search() | Twin():
            from kfm.connectors.release.perform import of_private

            return of_private(job, scratch)
        case Chain():
            return chain(job, scratch, emit=emit, ask=ask)
    assert_never(job)


def chain(job: Chain, scratch: Path, *, emit: Emit, ask: AskParent) -> TransformResult:
    """Step after step in folders `0`, `1`, … of `scratch`: each takes the files, or the table, that
    the one before made, in place of its first inputs.
    """
    made = list[TransformResult]()
    for number, step in enumerate(job.steps):
        folder = scratch / str(number)
        folder.mkdir()
        if made:
            last, before = made[-1], scratch / str(number - 1)
            names = last.files if isinstance(job.steps[number - 1], Twin) else (last.artifact,)
            given = [
                msgspec.structs.replace(i, path=str(before / name))
                for i, name in zip(step.inputs, names)
            ]
            step = msgspec.structs.replace(step, inputs=(*given, *step.inputs[len(given) :]))
            if isinstance(step, Govern) and last.schema:
                step = msgspec.structs.replace(step, schema=last.schema)
        made.append(perform(step, folder, emit=emit, ask=ask))
    return msgspec.structs.replace(made[-1], steps_made=tuple(made[:-1]))
