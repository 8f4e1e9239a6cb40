"""The transform itself: read, type, judge each row, write one table. Runs in the child, or inline
in tests.
"""

import gc
import re
import time
import unicodedata
from collections.abc import Callable, Collection, Sequence, Set
from functools import partial
from pathlib import Path
from typing import Any, assert_never

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from msgspec import UNSET

from kfm.connectors.base import (
    LINES,
    MOST_COLUMNS,
    VALUE,
    Books,
    Refused,
    TransformResult,
    ends_open,
    refuse_record,
)
from kfm.connectors.child.code import hook_of
from kfm.connectors.child.feed import AskParent, Context, Feed, load_connector
from kfm.connectors.child.hooks import discover, judge_table
from kfm.connectors.kind import Ask, NotFetched
from kfm.connectors.loading import Loaded, load
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
    TransformJob,
    Twin,
)
from kfm.connectors.read.characters import TURNING, check_texts
from kfm.connectors.read.geometry import GeoColumn, Problem, encode, invalid_count
from kfm.connectors.read.rows import Batch
from kfm.connectors.table.conflicts import Clashes, Place, key_text, rows_at, settle, spelt_out
from kfm.connectors.table.infer import Inferred, Widen
from kfm.connectors.table.keys import MOST, Duplicates, KeyFile
from kfm.connectors.table.rejects import Rejects, mend
from kfm.connectors.table.sanity import Sane, Sanity
from kfm.connectors.table.table import Table
from kfm.connectors.table.values import ARROW, cells_text, plain_values, type_cells, type_values
from kfm.connectors.table.wanted import Wanted
from kfm.connectors.table.writer import Extent, arrow_schema
from kfm.model.dataset import Column

__all__ = ["perform", "transform"]

_SAMPLE = 10_000  # records looked at before the first pass when no schema is given
# what a line that was cut looks like; CSV and JSON are known by their structure
_SHORT = ("ghcnd.width", "ghcnd.line", "rdb.columns")
_CONFLICT = "key.conflict"
_UNNAMEABLE = re.compile(
    rf"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\u200b\u200e\u200f\ufeff{TURNING}]"
)


def perform(
    job: TransformJob, scratch: Path, *, emit: Callable[[dict[str, Any]], None], ask: AskParent
) -> TransformResult:
    """Do what the job asks for; what only one operation needs is loaded for it alone."""
    match job:
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
        case Govern():
            from kfm.connectors.release.govern import govern

            return govern(job, scratch)
        case Measure():
            from kfm.connectors.table.measure import measure

            return measure(job, scratch)
        case Search():
            from kfm.connectors.release.search import search

            return search(job, scratch)
        case Twin():
            from kfm.connectors.release.twin import twin

            return twin(job, scratch)
        case Chain():
            return chain(job, scratch, emit=emit, ask=ask)
    assert_never(job)


def chain(
    job: Chain, scratch: Path, *, emit: Callable[[dict[str, Any]], None], ask: AskParent
) -> TransformResult:
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


def acquire(
    job: Acquire, scratch: Path, *, emit: Callable[[dict[str, Any]], None], ask: AskParent
) -> TransformResult:
    """Ask for every file of a capture, unless the change token says that the last one is still what
    upstream has.
    """
    own = load_connector(job.connector) if job.connector else None
    kind = load(job.source_kind)
    token = hook_of(own, "change_token") or (kind.change_token if kind else None)
    hook = hook_of(own, "acquire") or (kind.acquire if kind else None)
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
    said: dict[str, Any] = {"stamp": stamp} if stamp else {}
    return TransformResult(
        artifact=job.artifact,
        books=Books(),
        schema=(),
        content_id="",
        profile={},
        token=found,
        unchanged=unchanged,
        **said,
    )


def transform(
    job: Read, scratch: Path, *, emit: Callable[[dict[str, Any]], None], ask: AskParent
) -> TransformResult:
    """Turn the job's inputs into `scratch/<artifact>`. Raises `Refused` when the whole capture
    cannot be taken.
    """
    kind = load(job.source_kind)
    own = load_connector(job.connector) if job.connector else None
    hook = hook_of(own, "transform")
    stated = bool(job.schema)
    rules: tuple[Sane, ...] = ()
    if kind is not None and hook is None:  # connector code makes columns of its own
        job = _of_kind(job, kind)
        rules = kind.sanity(job)
    collecting = gc.isenabled()
    if hook is None:
        # our own rows hold no cycles, and collections over millions of them take a third of the
        # time
        gc.disable()
    context = Context(job, scratch, emit)
    feed = Feed(job, hook, context, kind.readers(job) if kind else None)
    try:
        result = _transform(job, scratch, feed, emit, rules, stated=stated)
        judge_table(own, context, scratch / result.artifact)
        files = (
            kind.companions(job, scratch)
            if kind is not None and kind.companions is not None
            else ()
        )
        return msgspec.structs.replace(result, files=files, key=job.business_key)
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
    emit: Callable[[dict[str, Any]], None],
    rules: tuple[Sane, ...],
    *,
    stated: bool,
) -> TransformResult:
    if job.schema:
        return _Pass(job, scratch, job.schema, emit, rules, stated=stated).run(feed)
    # One pass suffices when the first records show every column and its type. When all of them
    # together say otherwise,
    # all are looked at and the work starts over: types never depend on where the sample ended.
    if not job.only:
        inferred = _infer(job, feed, _SAMPLE)
        try:
            return _Pass(
                job, scratch, inferred.columns(), emit, rules, provisional=True, inferred=inferred
            ).run(feed)
        except Widen:
            pass
    inferred = _infer(job, feed, None)
    return _Pass(job, scratch, inferred.columns(), emit, rules, inferred=inferred).run(feed)


def _infer(job: Read, feed: Feed, limit: int | None) -> Inferred:
    """Columns in order of first appearance with the types of their values."""
    found = Inferred(job, feed.geometry, cells=feed.cells)
    seen = 0
    for rows in feed.loose():
        values: dict[str, list[Any]] = {}
        for record in rows[: None if limit is None else limit - seen]:
            for name, value in (record.row or {}).items():
                held = values.setdefault(name, [])
                if value is not None:
                    held.append(value)
        for name, held in values.items():
            found.add(name, held)
        seen += len(rows)
        _check_names(found.sample)
        if limit is not None and seen >= limit:
            break
    return found


def _check_names(names: Collection[str]) -> None:
    odd = next((n for n in names if not n.strip() or len(n) > 255 or _UNNAMEABLE.search(n)), None)
    if odd is None and len(names) <= MOST_COLUMNS and not all(map(str.isascii, names)):
        _check_spellings(names)
    if odd is not None or len(names) > MOST_COLUMNS:
        raise Refused(
            "schema.names",
            (
                f"The records have {len(names):,} columns or more."
                if odd is None
                else f"A column is named {odd[:80]!r}."
            ),
            expected=(
                f"at most {MOST_COLUMNS:,} columns, each with a name of 1 to 255 characters that"
                " can be shown"
            ),
            remedy=(
                "Look at the captured bytes; name the columns that are wanted in the schema of the"
                " registry entry, or in a connector."
            ),
        )


def _check_spellings(names: Collection[str]) -> None:
    seen: dict[str, str] = {}
    for name in names:
        if (other := seen.setdefault(unicodedata.normalize("NFC", name), name)) != name:
            raise Refused(
                "schema.names",
                f"The columns {other!a} and {name!a} are one name in two spellings (equal in NFC).",
                expected="columns whose names can be told apart",
                remedy="Report it upstream, or rename one in a connector.",
            )


# -- judging and writing


class _Misfits:
    """The values of a column: how many there are, how many of them are not of its type, and where
    the first one is.
    """

    def __init__(self, column: Column) -> None:
        self._column, self.of, self.count, self.line = column, 0, 0, ""

    @property
    def told(self) -> str:
        are = "is not, and its row is" if self.count == 1 else "are not, and their rows are"
        return (
            f"Column {self._column.name!r} is {self._column.type}; {self.count:,} of {self.of:,}"
            f" values {are} set aside."
        )


class _Pass:
    """One pass over the records with fixed columns."""

    def __init__(
        self,
        job: Read,
        scratch: Path,
        columns: tuple[Column, ...],
        emit: Callable[[dict[str, Any]], None],
        rules: tuple[Sane, ...],
        *,
        stated: bool = False,  # the registry names the columns
        provisional: bool = False,
        inferred: Inferred | None = None,  # nobody names them
        clashes: Clashes | None = None,  # rows that a pass before this one found in conflict
    ) -> None:
        self._once_more: Callable[[Clashes], _Pass] = lambda found: _Pass(
            job,
            scratch,
            columns,
            emit,
            rules,
            stated=stated,
            provisional=provisional,
            inferred=inferred,
            clashes=found,
        )
        self._clashes, self._seen, self._numbered = clashes, 0, 0
        self.job, self.scratch, self.columns, self._emit = job, scratch, columns, emit
        self._stated, self._provisional, self._inferred = stated, provisional, inferred
        self._names = tuple(c.name for c in columns)
        self._arrow = arrow_schema(columns)
        self._wanted = Wanted(job, columns)
        self._sanity = Sanity(columns, rules, job.captured_at)
        self._geometry = next((c.name for c in columns if c.type == "geometry"), None)
        self._rejects = Rejects(scratch / (job.artifact.rsplit(".", 1)[0] + ".quarantine.jsonl"))
        # rows as people corrected them; they come last, wherever the reader cut its blocks
        self._mended: list[Batch] = []
        self._dropped = self._wanted.dropped
        self._filled: set[str] = set()  # columns that held a value somewhere
        self._warnings: dict[str, None] = {}
        self._misfits: dict[str, _Misfits] = {}
        self._next_progress = 0.0
        self._invalid = 0
        self._open = {
            i.source_id for i in job.inputs if job.format in LINES and ends_open(Path(i.path))
        }
        self._last: dict[
            str,
            tuple[int, Problem | None],
            # of each source with an open end: the line of its last record, and what is wrong with
            # it
        ] = {}

    def run(self, feed: Feed) -> TransformResult:
        """Read everything, write the table, settle the books."""
        self._check_keys(feed)
        if self._inferred is not None:
            self._inferred.begin()
        path = self.scratch / self.job.artifact
        table = Table(path, self.columns, self.job.business_key)
        keys = KeyFile(self.scratch) if self.job.business_key else None
        try:
            for batch in feed.batches(self._names):
                self._take(batch, table, keys)
                self._progress(batch.source_id, feed.tally.read)
                del batch  # it may be long, and the reader is about to make another
            if self._provisional and self._inferred is not None:
                self._inferred.check(self.columns)
            for batch in self._mended:
                self._take(batch, table, keys, corrected=True)
            self._rejects.close()
            self._judge_whole(feed)
            table.finish()
            found = keys.resolve(path, self.job.business_key) if keys else None
            table.verify()
            if found and not found.conflicting:
                table = self._without_duplicates(path, found, table.extent)
        finally:
            self._rejects.close()
            table.abandon()
            if keys:
                keys.remove()
        if found and found.conflicting:
            return self._settled(feed, path, found)
        return table.result(
            self._books(feed, table.rows),
            invalid_geometries=self._invalid,
            **_said(feed.readers),
            quarantine=self._rejects.path.name if self._rejects.total else None,
            warnings=(
                *self._warnings,
                *(self._inferred.told(self.columns) if self._inferred else ()),
                *(lines := {m.told: m.line for m in self._misfits.values() if m.count}),
                *sorted(w for r in feed.readers for w in r.warnings),
            ),
            lines=lines or UNSET,
        )

    def _progress(self, source_id: str, read: int) -> None:
        now = time.monotonic()
        if now >= self._next_progress:
            self._next_progress = now + 0.5
            self._emit(
                {
                    "op": "progress",
                    "source_id": source_id,
                    "read": read,
                    "quarantined": self._rejects.total,
                }
            )

    def _take(
        self, batch: Batch, table: Table | None, keys: KeyFile | None, *, corrected: bool = False
    ) -> None:
        if batch.unknown:
            self._refuse_unknown(batch)
        left_out = np.zeros(batch.size, np.bool_)
        left_out[list(batch.bad)] = True
        arrays, geo, misfits = self._typed(batch, count=not corrected)
        bad = batch.bad
        timeless = self._sanity.judge(arrays, bad).get(self.job.time_column or "", set())
        outside = self._wanted.judge(batch, arrays, geo, timeless)
        self._check_rows(batch, arrays)
        check_texts(self.columns, self.job.business_key, arrays, bad)
        if outside is not None:
            for i in np.flatnonzero(outside).tolist():
                bad.pop(i, None)  # not asked for, so its other faults do not matter
        mended = (
            mend(batch, self.job.fixes, self.columns) if self.job.fixes and not corrected else {}
        )
        keep = np.ones(batch.size, np.bool_) if outside is None else ~outside
        keep[[*bad, *mended]] = False
        if self._clashes is not None:
            mended |= self._judge_clashes(batch, keep, self._clashes, corrected=corrected)
        self._mended += mended.values()
        for i in mended:
            bad.pop(i, None)
        self._count_misfits(
            batch,
            arrays,
            misfits,
            left_out if outside is None else left_out | outside,
            corrected=corrected,
        )
        if batch.source_id in self._open and batch.size and not corrected:
            at = batch.size - 1
            self._last[batch.source_id] = (
                batch.line(at),
                None if outside is not None and outside[at] else bad.get(at),
            )
        listed = self._clashes is not None and self._clashes.mode == "list"
        self._rejects.take(
            batch._replace(bad={i: p for i, p in bad.items() if p[0] == _CONFLICT})
            if listed
            else batch
        )
        if table is None:
            return
        if not keep.all():
            mask = pa.array(keep)
            arrays = [a.filter(mask) for a in arrays]
            geo = geo.kept(keep) if geo else None
        rows = pa.RecordBatch.from_arrays(arrays, schema=self._arrow)
        table.add(rows, geo)
        if geo is not None and self._geometry is not None:
            self._invalid += invalid_count(geo, rows.column(self._geometry))
        if keys is not None and rows.num_rows:
            keys.add([rows.column(k) for k in self.job.business_key])

    def _judge_clashes(
        self, batch: Batch, keep: Any, clashes: Clashes, *, corrected: bool
    ) -> dict[int, Batch]:
        """Set aside what is in conflict, by the number a row has among those that are kept; returns
        what people corrected.
        """
        rows = np.flatnonzero(keep)
        seen, self._seen = self._seen + np.arange(len(rows)), self._seen + len(rows)
        mended: dict[int, Batch] = {}
        if len(clashes.corrected) and not corrected:
            torn = rows[np.isin(seen, clashes.corrected)].tolist()
            mended = mend(
                batch._replace(bad=dict.fromkeys(torn, (_CONFLICT, ""))),
                self.job.fixes,
                self.columns,
            )
            keep[list(mended)] = False
            rows = np.flatnonzero(keep)
        numbers, self._numbered = self._numbered + np.arange(len(rows)), self._numbered + len(rows)
        hit = np.isin(numbers, clashes.rows)
        for i, number in zip(rows[hit].tolist(), numbers[hit].tolist()):
            clashes.places[number] = Place(batch.source_id, batch.line(i))
            if number in clashes.stays:
                batch.bad[i] = (
                    _CONFLICT,
                    self._rejects.explain_later(partial(clashes.reason, number)),
                )
                keep[i] = False
        return mended

    def _count_misfits(
        self,
        batch: Batch,
        arrays: list["pa.Array"],
        odd: list[Set[int] | None],
        left_out: Any,
        *,
        corrected: bool,
    ) -> None:
        """Of each column, the values there are, and those among them whose rows are set aside for
        not being of its type.
        """
        mask = pa.array(~left_out) if left_out.any() else None
        for column, array, misfits in zip(self.columns, arrays, odd):
            if misfits is None:
                continue
            found = self._misfits.setdefault(column.name, _Misfits(column))
            if not corrected:  # else they were counted as they came
                held = array if mask is None else array.filter(mask)
                found.of += (
                    len(held)
                    - held.null_count
                    + sum(not left_out[i] and not array[i].is_valid for i in misfits)
                )
            for i in sorted(i for i in misfits if i in batch.bad and not left_out[i]):
                found.count += 1
                found.line = (
                    found.line
                    or f"line {batch.line(i):,}{f' of {batch.source_id}' if len(self.job.inputs) > 1 else ''}"
                )

    def _typed(
        self, batch: Batch, *, count: bool
    ) -> tuple[list["pa.Array"], GeoColumn | None, list[Set[int] | None]]:
        """The columns, their geometry, and of each column the rows whose value is not of its type;
        None: the reader typed it.
        """
        arrays: list[pa.Array] = []
        misfits: list[Set[int] | None] = []
        geo: GeoColumn | None = None
        before = set(batch.bad)
        for column in self.columns:
            values: Any = batch.columns.get(column.name)
            if values is None:
                self._missing(column, batch.source_id)
                arrays.append(pa.nulls(batch.size, ARROW[column.type]))
                misfits.append(None)
                continue
            if (
                isinstance(values, pa.Array)
                and values.type == ARROW[column.type]
                and column.type != "geometry"
            ):
                self._check_long(column, values, batch)
                arrays.append(values)  # the reader has typed it already
                misfits.append(None)
                self._filled.add(column.name)
                continue
            if batch.cells:
                values = cells_text(values)
            odd: list[int] = []
            own: dict[int, Problem] = {}
            plain = (
                None if batch.cells or column.type == "geometry" else plain_values(column, values)
            )
            if self._inferred is not None:
                known = plain is not None
                odd = self._inferred.odd_ones(
                    column, values, before, plain=known, count=count, provisional=self._provisional
                )
            if column.type == "geometry":
                shapes = values.to_pylist() if batch.cells else values
                column_geo = encode(shapes, column.name, batch.bad)
                geo = column_geo if column.name == self._geometry else geo
                array = column_geo.wkb
            else:
                array = (
                    plain
                    if plain is not None
                    else (type_cells if batch.cells else type_values)(column, values, own)
                )
            # what could be read as one all the same: 007 as the integer 7, "5" as the number 5
            for i in odd:
                shown = values[i].as_py() if batch.cells else values[i]
                own.setdefault(
                    i,
                    (
                        "type",
                        (
                            f"{column.name}: {shown!r:.80} is not written as the {column.type} the"
                            " others are"
                        ),
                    ),
                )
            for i, problem in own.items():
                batch.bad.setdefault(i, problem)  # the first one found in a row is told
            misfits.append(None if column.type == "geometry" else own.keys())
            if array.null_count < len(array):
                self._filled.add(column.name)
            self._check_long(column, array, batch)
            arrays.append(array)
        return arrays, geo, misfits

    def _check_long(self, column: Column, array: "pa.Array", batch: Batch) -> None:
        """Refuse a value that is so long that writing it would take many times as much memory."""
        if (
            column.type not in ("string", "json")
            or array.nbytes <= self.job.max_record_bytes // VALUE
        ):
            return
        lengths = pc.binary_length(array)
        if (pc.max(lengths).as_py() or 0) > self.job.max_record_bytes // VALUE:
            at = int(pc.index(lengths, pc.max(lengths)).as_py())
            refuse_record(
                batch.source_id, batch.line(at), self.job.max_record_bytes, value=column.name
            )

    def _check_rows(self, batch: Batch, arrays: list["pa.Array"]) -> None:
        bad = batch.bad
        for column, array in zip(self.columns, arrays):
            if array.null_count and (not column.nullable or column.name in self.job.business_key):
                is_key = column.name in self.job.business_key
                problem = ("key.missing" if is_key else "null", f"{column.name}: no value")
                for i in np.flatnonzero(array.is_null().to_numpy(zero_copy_only=False)).tolist():
                    bad.setdefault(i, problem)

    # -- the whole capture

    def _books(self, feed: Feed, written: int) -> Books:
        tally = feed.tally
        read = tally.read
        if feed.hooked:
            read += max(0, tally.returned - tally.passed)
            self._dropped["connector"] += max(0, tally.passed - tally.returned)
        dropped = {rule: n for rule, n in sorted(self._dropped.items()) if n}
        books = Books(read=read, written=written, quarantined=self._rejects.total, dropped=dropped)
        # a row lost without a rule is the one thing that must never pass
        assert books.balanced, books
        return books

    def _judge_whole(self, feed: Feed) -> None:
        read = feed.tally.read
        for source_id, (line, problem) in self._last.items() if not self.job.only else ():
            if problem is not None and problem[0] in _SHORT:
                raise Refused.cut(
                    source_id,
                    f"it ends without a line break inside line {line}: {problem[1]}",
                    line=line,
                )
        if not read and not feed.tally.returned and not self.job.may_be_empty:
            raise Refused(
                "empty",
                f"The capture of {self.job.dataset_id} holds no record.",
                expected="at least one record",
                remedy="Nothing is published from it; look at what upstream sends and run again.",
            )
        kept = read - self._rejects.total - sum(self._dropped.values())
        # else nothing says what columns there are
        shown = kept > 0 or self._rejects.counts["key.missing"] or self._rejects.counts["null"]
        for column in self.columns if shown and not self.job.only else ():
            if column.name not in self._filled and not feed.cells:
                self._absent(column, feed.readers[0].source_id)
        self._judge_share(read)

    def _judge_share(self, read: int) -> None:
        quarantined = self._rejects.total
        if quarantined and quarantined > self.job.max_quarantined * read:
            rules = ", ".join(f"{rule} {n}" for rule, n in self._rejects.counts.most_common())
            first = next(iter(self._rejects.examples.values()))[0]
            raise Refused(
                "quarantine.share",
                f"{quarantined} of {read} records of {self.job.dataset_id} were set aside"
                f" ({rules}); the first, at {first['source_id']} line {first['line']}:"
                f" {first['reason']}.",
                expected=f"at most {self.job.max_quarantined:g} of the records to be unusable",
                remedy=(
                    "Look at the quarantined rows; correct the schema in the registry, or raise"
                    " `max_quarantined` if they are expected."
                ),
                read=read,
                quarantined=quarantined,
                rules=dict(self._rejects.counts.most_common()),
                examples=self._rejects.examples,
                quarantine=self._rejects.path.name,
            )

    def _absent(self, column: Column, source_id: str) -> None:
        """JSON has no header: a column without a value in any record is what a missing one looks
        like.
        """
        rules = self._rejects.counts
        if column.nullable or rules["key.missing"] or rules["null"]:
            self._missing(column, source_id, everywhere=True)

    def _missing(self, column: Column, source_id: str, *, everywhere: bool = False) -> None:
        what = "has no value in any record" if everywhere else "is missing"
        if column.nullable and column.name not in self.job.business_key:
            if self._stated:
                self._warnings[
                    f"Column {column.name!r} {what} in {source_id}; it is written as null."
                ] = None
            return
        raise Refused(
            "schema.missing-column",
            f"Column {column.name!r} {what} in source {source_id}.",
            expected="every required column and every column of the business key",
            remedy=(
                "Upstream may have renamed it; correct the schema or the business key in the"
                " registry entry."
            ),
            column=column.name,
            source_id=source_id,
        )

    def _check_keys(self, feed: Feed) -> None:
        # no record could be read, so none could show its columns; the reasons are told at the end
        if not self.columns:
            return
        for name in self.job.business_key:
            if name not in self._names:
                self._missing(
                    Column(name=name, type="string", nullable=False), feed.readers[0].source_id
                )

    def _refuse_unknown(self, batch: Batch) -> None:
        if self._provisional:
            raise Widen
        names = ", ".join(repr(n) for n in batch.unknown[:10])
        raise Refused(
            "schema.unknown-column",
            f"Source {batch.source_id} has columns the schema does not know: {names}.",
            expected=f"only {', '.join(self._names[:20])}",
            remedy=(
                "Add the column to the schema in the registry entry if it is wanted; a changed"
                " schema needs review."
            ),
            columns=list(batch.unknown),
            source_id=batch.source_id,
        )

    # -- duplicates

    def _without_duplicates(self, path: Path, found: Duplicates, extent: Extent) -> Table:
        """Write the table once more without the rows that repeat an earlier one."""
        self._warn_of_twins(path, found)
        old = self.scratch / ".with-duplicates.parquet"
        path.rename(old)
        table = Table(path, self.columns, self.job.business_key, extent=extent)
        try:
            at = 0
            with pq.ParquetFile(old) as file:
                for batch in file.iter_batches(batch_size=16_384):
                    keep = ~found.drop[at : at + batch.num_rows]
                    at += batch.num_rows
                    kept = batch if keep.all() else batch.filter(pa.array(keep))
                    table.add(pa.RecordBatch.from_arrays(kept.columns, schema=self._arrow))
            table.finish()
        except BaseException:
            table.abandon()
            raise
        finally:
            old.unlink(missing_ok=True)
        self._dropped["duplicate"] += int(found.drop.sum())
        return table

    def _warn_of_twins(self, path: Path, found: Duplicates) -> None:
        """Name keys that were dropped because another one, equal but for its spelling, stands
        before them.
        """
        for pair in found.twins[:3]:
            first, other = (
                spelt_out(key_text(row, self.job.business_key)) for row in rows_at(path, list(pair))
            )
            self._warnings[
                f"The key {other} is {first} in another spelling (equal in NFC and white space) and"
                " the rest is equal: the first is kept, the other dropped as a duplicate."
            ] = None

    def _settled(self, feed: Feed, path: Path, found: Duplicates) -> TransformResult:
        """Everything once more, now that it is known which records share a key and differ: only
        then are their lines at hand.
        """
        before = self._clashes
        # connector code that makes other rows each time
        if before is not None and before.mode != "mend":
            raise self._conflict(path, found)
        rows = np.sort(found.clashes["row"])
        if self.job.fixes and before is None:  # what people corrected may be in conflict no more
            return self._once_more(Clashes(corrected=rows, mode="mend")).run(feed)
        if len(rows) > MOST:
            raise self._conflict(path, found)
        clashes = settle(
            self.job, self.columns, path, found, before.corrected if before is not None else None
        )
        if clashes.mode != "list":
            return self._once_more(clashes).run(feed)
        told = self._conflict(path, found)
        again = self._once_more(clashes)
        again.list_conflicts(feed)
        for pair, (a, b) in zip(told.refusal.detail["conflicts"], found.conflicts):
            pair["lines"] = [clashes.places[r]._asdict() for r in (a, b) if r in clashes.places]
        told.refusal.detail["quarantine"] = again._rejects.path.name
        raise told

    def list_conflicts(self, feed: Feed) -> None:
        """Write down the rows in conflict, and nothing else."""
        if self._inferred is not None:
            self._inferred.begin()
        for batch in feed.batches(self._names):
            self._take(batch, None, None)
        for batch in self._mended:
            self._take(batch, None, None, corrected=True)
        self._rejects.close()

    def _conflict(self, path: Path, found: Duplicates) -> Refused:
        key = self.job.business_key
        wanted = sorted({row for pair in found.conflicts for row in pair})
        rows = dict(zip(wanted, rows_at(path, wanted)))
        pairs = [
            {"key": {k: rows[a][k] for k in key}, "rows": [rows[a], rows[b]]}
            for a, b in found.conflicts
        ]
        first, other = (key_text(rows[i], key) for i in found.conflicts[0])
        if first != other:
            first = (
                f"{spelt_out(first)}, which is {spelt_out(other)} in another spelling (equal in NFC"
                " and white space)"
            )
        return Refused(
            _CONFLICT,
            f"{found.conflicting} records of {self.job.dataset_id} share a business key with a"
            f" different record; the first is {first}.",
            expected=f"one record per ({', '.join(key)}), or equal ones",
            remedy=(
                "Decide which one is right with upstream, widen `business_key` in the registry"
                " entry, or state there what becomes of such records: `conflicts: quarantine` or"
                " `newest`."
            ),
            conflicts=pairs,
            rules={_CONFLICT: len(found.clashes)},
        )


def _said(readers: Sequence[Any]) -> dict[str, Any]:
    """What the sources say of their own answers. Of several stamps the oldest counts; of several
    answers nobody says what lies between them.
    """
    stamps = [r.stamp for r in readers if getattr(r, "stamp", None)]
    found: dict[str, Any] = {"stamp": min(stamps)} if stamps else {}
    answered = getattr(readers[0], "answered", None) if len(readers) == 1 else None
    return found | ({"answered": answered} if answered else {})
