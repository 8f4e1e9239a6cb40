"""One pass over all records: each typed, judged and written, the books settled at the end."""

import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
from msgspec import UNSET, UnsetType

from kfm.connectors.arrays import Mask
from kfm.connectors.base import LINES, Books, Refused, TransformResult, ends_open
from kfm.connectors.operations import Read
from kfm.connectors.read.geometry import Problem, invalid_count
from kfm.connectors.read.rows import Batch, Emit, Fed, Reader
from kfm.connectors.table.conflicts import Clashes, Place, settle
from kfm.connectors.table.duplicates import CONFLICT, conflict, of_twins, without_duplicates
from kfm.connectors.table.infer import Inferred
from kfm.connectors.table.keys import MOST, Duplicates, KeyFile
from kfm.connectors.table.rejects import Rejects, mend
from kfm.connectors.table.row_check import Judging
from kfm.connectors.table.sanity import Sane
from kfm.connectors.table.table import Table
from kfm.connectors.table.typed import Typing
from kfm.model import Column

__all__ = ["Pass"]

# what a line that was cut looks like; CSV and JSON are known by their structure
_SHORT = ("ghcnd.width", "ghcnd.line", "rdb.columns", "fixed_width.line")


class Pass:
    """One pass over the records with fixed columns."""

    def __init__(
        self,
        job: Read,
        scratch: Path,
        columns: tuple[Column, ...],
        emit: Emit,
        rules: tuple[Sane, ...],
        *,
        stated: bool = False,  # the registry names the columns
        provisional: bool = False,
        inferred: Inferred | None = None,  # nobody names them
        clashes: Clashes | None = None,  # rows that a pass before this one found in conflict
    ) -> None:
        self._once_more: Callable[[Clashes], Pass] = lambda found: Pass(
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
        self._names = tuple(c.name for c in columns)
        self._typing = Typing(
            job, columns, stated=stated, provisional=provisional, inferred=inferred
        )
        self._judging = Judging(job, columns, rules)
        self._rejects = Rejects(scratch / (job.artifact.rsplit(".", 1)[0] + ".quarantine.jsonl"))
        # rows as people corrected them; they come last, wherever the reader cut its blocks
        self._mended: list[Batch] = []
        self._dropped = self._judging.dropped
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

    def run(self, feed: Fed) -> TransformResult:
        """Read everything, write the table, settle the books."""
        self._check_keys(feed)
        self._typing.begin()
        path = self.scratch / self.job.artifact
        table = Table(path, self.columns, self.job.business_key)
        keys = KeyFile(self.scratch) if self.job.business_key else None
        try:
            for batch in feed.batches(self._names):
                self._take(batch, table, keys)
                self._progress(batch.source_id, feed.tally.read)
                del batch  # it may be long, and the reader is about to make another
            self._typing.check()
            for batch in self._mended:
                self._take(batch, table, keys, corrected=True)
            self._rejects.close()
            self._judge_whole(feed)
            table.finish()
            found = keys.resolve(path, self.job.business_key) if keys else None
            table.verify()
            if found and not found.conflicting:
                for told in of_twins(path, found, self.job.business_key):
                    self._typing.warnings[told] = None
                table = without_duplicates(table, found, self.job.business_key)
                self._dropped["duplicate"] += int(found.drop.sum())
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
            stamp=_stamp(feed.readers),
            answered=_answered(feed.readers),
            quarantine=self._rejects.path.name if self._rejects.total else None,
            warnings=(
                *self._typing.warnings,
                *self._typing.inferred,
                *(lines := self._typing.lines),
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
            self._typing.refuse_unknown(batch)
        left_out = np.zeros(batch.size, np.bool_)
        left_out[list(batch.bad)] = True
        arrays, geo, misfits = self._typing.typed(batch, count=not corrected)
        bad = batch.bad
        outside = self._judging.judge(batch, arrays, geo)
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
        self._typing.count_misfits(
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
            batch._replace(bad={i: p for i, p in bad.items() if p[0] == CONFLICT})
            if listed
            else batch
        )
        if table is None:
            return
        if not keep.all():
            mask = pa.array(keep)
            arrays = [a.filter(mask) for a in arrays]
            geo = geo.kept(keep) if geo else None
        rows = pa.RecordBatch.from_arrays(arrays, schema=table.schema)
        table.add(rows, geo)
        if geo is not None and table.geometry is not None:
            self._invalid += invalid_count(geo, rows.column(table.geometry))
        if keys is not None and rows.num_rows:
            keys.add([rows.column(k) for k in self.job.business_key])

    def _judge_clashes(
        self, batch: Batch, keep: Mask, clashes: Clashes, *, corrected: bool
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
                batch._replace(bad=dict.fromkeys(torn, (CONFLICT, ""))),
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
                    CONFLICT,
                    self._rejects.explain_later(partial(clashes.reason, number)),
                )
                keep[i] = False
        return mended

    def _books(self, feed: Fed, written: int) -> Books:
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

    def _judge_whole(self, feed: Fed) -> None:
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
            if column.name not in self._typing.filled and not feed.headed:
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
            self._typing.missing(column, source_id, everywhere=True)

    def _check_keys(self, feed: Fed) -> None:
        # no record could be read, so none could show its columns; the reasons are told at the end
        if not self.columns:
            return
        for name in self.job.business_key:
            if name not in self._names:
                self._typing.missing(
                    Column(name=name, type="string", nullable=False),
                    feed.readers[0].source_id,
                    there=tuple(c.name for c in self.columns),
                )

    def _settled(self, feed: Fed, path: Path, found: Duplicates) -> TransformResult:
        """Everything once more, now that it is known which records share a key and differ: only
        then are their lines at hand.
        """
        before = self._clashes
        # connector code that makes other rows each time
        if before is not None and before.mode != "mend":
            raise conflict(self.job, path, found)
        rows = np.sort(found.clashes["row"])
        if self.job.fixes and before is None:  # what people corrected may be in conflict no more
            return self._once_more(Clashes(corrected=rows, mode="mend")).run(feed)
        if len(rows) > MOST:
            raise conflict(self.job, path, found)
        clashes = settle(
            self.job, self.columns, path, found, before.corrected if before is not None else None
        )
        if clashes.mode != "list":
            return self._once_more(clashes).run(feed)
        told = conflict(self.job, path, found)
        again = self._once_more(clashes)
        again.list_conflicts(feed)
        for pair, (a, b) in zip(told.refusal.detail["conflicts"], found.conflicts):
            pair["lines"] = [clashes.places[r]._asdict() for r in (a, b) if r in clashes.places]
        told.refusal.detail["quarantine"] = again._rejects.path.name
        raise told

    def list_conflicts(self, feed: Fed) -> None:
        """Write down the rows in conflict, and nothing else."""
        self._typing.begin()
        for batch in feed.batches(self._names):
            self._take(batch, None, None)
        for batch in self._mended:
            self._take(batch, None, None, corrected=True)
        self._rejects.close()


def _stamp(readers: Sequence[Reader]) -> str | UnsetType:
    """When the sources say their answers were made; of several the oldest counts."""
    return min((s for r in readers if (s := getattr(r, "stamp", ""))), default=UNSET)


def _answered(readers: Sequence[Reader]) -> tuple[str, str] | UnsetType:
    """What the source says it answered for; of several nobody says what lies between them."""
    return (getattr(readers[0], "answered", None) if len(readers) == 1 else None) or UNSET
