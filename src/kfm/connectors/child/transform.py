"""The transform itself: read, type, judge each row, write one table."""

import gc
from pathlib import Path

import msgspec

from kfm.connectors.base import TransformResult
from kfm.connectors.child.feed import AskParent, Context, Emit, Feed, Watch, load_connector
from kfm.connectors.child.hooks import judge_table
from kfm.connectors.loading import Loaded, load
from kfm.connectors.operations import Read
from kfm.connectors.read.next_page import told_of_more
from kfm.connectors.read.packed import unpacked
from kfm.connectors.table.infer import Inferred, Widen
from kfm.connectors.table.names import check_names
from kfm.connectors.table.one_pass import Pass
from kfm.connectors.table.sanity import Sane

__all__ = ["transform"]

_SAMPLE = 10_000  # records looked at before the first pass when no schema is given


def transform(
    job: Read, scratch: Path, *, emit: Emit, ask: AskParent, watch: Watch | None = None
) -> TransformResult:
    """Turn the job's inputs into `scratch/<artifact>`. Raises `Refused` when the whole capture
    cannot be taken. `watch`: only the first records, and it sees them.
    """
    with unpacked(job.inputs, job.packed, job.format, scratch) as inputs:
        return _read(msgspec.structs.replace(job, inputs=inputs), scratch, emit, watch)


def _read(job: Read, scratch: Path, emit: Emit, watch: Watch | None) -> TransformResult:
    kind = load(job.source_kind)
    own = load_connector(job.connector) if job.connector else None
    hook, parse = (own.hook("transform"), own.hook("parse")) if own else (None, None)
    stated = bool(job.schema)
    rules: tuple[Sane, ...] = ()
    # connector code makes columns of its own
    if kind is not None and hook is None and parse is None:
        job = _of_kind(job, kind)
        rules = kind.sanity(job)
    collecting = gc.isenabled()
    if hook is None and parse is None:
        # our own rows hold no cycles, and collections over millions of them take a third of the
        # time
        gc.disable()
    context = Context(job, scratch, emit)
    readers = kind.readers(job) if kind and parse is None else None
    feed = Feed(job, hook, context, readers, parse, watch)
    try:
        result = _transform(job, scratch, feed, emit, rules, stated=stated)
        judge_table(own, context, scratch / result.artifact)
        files = (
            kind.companions(job, scratch)
            if kind is not None and kind.companions is not None and parse is None
            else ()
        )
        more = () if own and own.hook("acquire") else told_of_more(job)
        return msgspec.structs.replace(
            result, files=files, key=job.business_key, warnings=(*result.warnings, *more)
        )
    finally:
        feed.remove()
        if collecting:
            gc.enable()


def _of_kind(job: Read, kind: Loaded) -> Read:
    """The job with the columns and the key of its kind, where the registry names none."""
    schema = job.schema or kind.columns(job)
    key = job.business_key or tuple(
        k for k in kind.key(job) if not schema or k in {c.name for c in schema}
    )
    return msgspec.structs.replace(job, schema=schema, business_key=key)


def _transform(
    job: Read,
    scratch: Path,
    feed: Feed,
    emit: Emit,
    rules: tuple[Sane, ...],
    *,
    stated: bool,
) -> TransformResult:
    if job.schema:
        return Pass(job, scratch, job.schema, emit, rules, stated=stated).run(feed)
    # One pass suffices when the first records show every column and its type. When all of them
    # together say otherwise,
    # all are looked at and the work starts over: types never depend on where the sample ended.
    if not job.only:
        inferred = _infer(job, feed, _SAMPLE)
        try:
            return Pass(
                job, scratch, inferred.columns(), emit, rules, provisional=True, inferred=inferred
            ).run(feed)
        except Widen:
            pass
    inferred = _infer(job, feed, None)
    return Pass(job, scratch, inferred.columns(), emit, rules, inferred=inferred).run(feed)


def _infer(job: Read, feed: Feed, limit: int | None) -> Inferred:
    """Columns in order of first appearance with the types of their values."""
    found = Inferred(job, feed.geometry, cells=feed.cells)
    seen = 0
    for rows in feed.loose():
        values: dict[str, list[object]] = {}
        for record in rows[: None if limit is None else limit - seen]:
            for name, value in (record.row or {}).items():
                held = values.setdefault(name, [])
                if value is not None:
                    held.append(value)
        for name, held in values.items():
            found.add(name, held)
        seen += len(rows)
        check_names(found.sample)
        if limit is not None and seen >= limit:
            break
    return found
