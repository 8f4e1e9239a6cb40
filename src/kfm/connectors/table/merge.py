"""Upsert: the rows of a part into the rows of a base version, by business key, in place."""

import datetime as dt
from collections.abc import Iterator
from pathlib import Path

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from msgspec import UNSET

from kfm.connectors.arrays import Mask, Whole
from kfm.connectors.base import Books, Refused, TransformResult
from kfm.connectors.loading import module_of
from kfm.connectors.operations import Collect, Measure, Merge
from kfm.connectors.read.characters import composed
from kfm.connectors.table.table import Table
from kfm.connectors.table.values import ARROW
from kfm.connectors.table.writer import arrow_schema
from kfm.model import Column, Measured, kind_of

__all__ = ["cast", "columns_after", "keys_of", "merge", "telling", "tombstones_of", "within"]

# an Arrow type's plainest column type
_TYPES = {str(kind): name for name, kind in reversed(ARROW.items())}
_SEPARATOR = "\x1f"
FUTURE = dt.timedelta(days=1)  # so far may a clock upstream be ahead of ours


def merge(job: Merge, scratch: Path) -> TransformResult:
    """`inputs` are base and part. A row of the part takes the place of the base's row with its key;
    new keys come last.

    Rows of the base inside the window that the part does not have any more are gone upstream, so
    they go here too; where the kind of source says which columns tell, they stay as tombstones, and
    a row that is older than the base's does not take its place, unless the source says that its
    answer is newer as a whole: its own order of revisions counts, so that a correction wins.
    `books` speaks of the part's rows: written = new or changed, unchanged = equal to the base's,
    dropped "stale" = older.
    """
    base, part = (pq.ParquetFile(i.path) for i in job.inputs)
    columns = columns_after(base.schema_arrow, job.schema)
    schema = arrow_schema(columns)
    fresh = cast(part.read(), schema)
    work = _Merge(job, fresh, schema, base)
    naming = kind.names if (kind := kind_of(job.source_kind)) is not None else ""
    with Table(scratch / job.artifact, columns, job.business_key, naming=naming) as table:
        for batch in work.rows():
            table.add(batch)
        table.finish()
        return table.result(
            work.books(),
            warnings=work.warnings(),
            change=work.absence(table.rows),
            crossed=work.crossed or UNSET,
        )


def within(times: "pa.ChunkedArray", since: str, until: str) -> Mask:
    """Which times lie inside a half-open window."""
    start, end = (pa.scalar(t, pa.string()).cast(times.type) for t in (since, until))
    inside = pc.and_(pc.greater_equal(times, start), pc.less(times, end))
    return np.asarray(inside.fill_null(False).combine_chunks())


def columns_after(base: "pa.Schema", schema: tuple[Column, ...]) -> tuple[Column, ...]:
    """The base's columns in their order, then new ones of the part: adding passes, another type
    does not.
    """
    new = {c.name: c for c in schema}
    found = []
    for field in base:
        column = new.pop(field.name, None) or Column(
            name=field.name,
            type=_TYPES.get(str(field.type), "string"),  # type: ignore[arg-type]
        )
        if ARROW[column.type] != field.type:
            raise Refused(
                "schema.type",
                f"The column {field.name} is {column.type} now and was"
                f" {_TYPES.get(str(field.type), str(field.type))}.",
                expected="the type it has in the official version",
                remedy=(
                    "State the type in `schema` of the registry entry, or run the dataset without a"
                    " window."
                ),
            )
        found.append(column)
    return (*found, *(Column(name=c.name, type=c.type, unit=c.unit) for c in new.values()))


def cast(table: "pa.Table", schema: "pa.Schema") -> "pa.Table":
    have = set(table.schema.names)
    arrays = [
        table.column(f.name) if f.name in have else pa.nulls(table.num_rows, f.type) for f in schema
    ]
    return pa.table(arrays, schema=schema).combine_chunks()


def keys_of(table: "pa.Table", names: tuple[str, ...]) -> "pa.Array":
    """One text per row, in one spelling; the separator is escaped inside a part, so no two keys
    become one.
    """
    parts = [composed(pc.cast(table.column(n), pa.string())) for n in names]
    parts = [
        pc.replace_substring(pc.replace_substring(p, "\\", "\\\\"), _SEPARATOR, "\\u")
        for p in parts
    ]
    joined = pc.binary_join_element_wise(*parts, _SEPARATOR)
    return joined.combine_chunks() if isinstance(joined, pa.ChunkedArray) else joined


def tombstones_of(job: Merge | Collect | Measure, schema: "pa.Schema") -> dict[str, str]:
    """Which columns tell what became of a row, as the job or its kind of source says; those that
    are there.
    """
    rules = job.tombstones if isinstance(job, Merge) else {}
    if not rules:
        rules = getattr(module_of(job.source_kind), "TOMBSTONES", {})
    return {rule: column for rule, column in rules.items() if column in schema.names}


def telling(job: Merge | Collect, schema: "pa.Schema") -> dict[str, str]:
    """The same, for a table in which rows that are gone stay: they are found by a key of one
    column.
    """
    rules = tombstones_of(job, schema)
    if "state" in rules and len(job.business_key) != 1:
        raise Refused(
            "merge.key",
            f"{job.dataset_id} keeps rows that were merged or deleted upstream, which needs a key"
            " of one column.",
            expected="one column in `business_key`",
            remedy="Name the id alone as `business_key` in the registry entry.",
        )
    return rules


class _Merge:
    """One pass over the base with the part at hand."""

    def __init__(
        self, job: Merge, fresh: "pa.Table", schema: "pa.Schema", base: "pq.ParquetFile"
    ) -> None:
        self._job, self._fresh, self._schema, self._base = job, fresh, schema, base
        self._keys = keys_of(fresh, job.business_key)
        self._used = np.zeros(fresh.num_rows, bool)
        self.unchanged = self.removed = self.twins = self.covered = self.crossed = 0
        rules = telling(job, schema)
        self._stale = self._older(
            rules.get("revision"),
            [n for rule, n in rules.items() if rule == "state" and n in base.schema_arrow.names],
        )
        self._tombs = _Tombstones(job, rules, fresh, self._stale) if "state" in rules else None

    def rows(self) -> "Iterator[pa.RecordBatch]":
        for raw in self._base.iter_batches(batch_size=65_536):
            table = cast(pa.Table.from_batches([raw]), self._schema)
            hit, where = self._find(keys_of(table, self._job.business_key))
            twin = self._twins(hit, where)
            self._used[where[hit]] = True
            newer = hit & ~twin & ~self._stale[where] if len(self._stale) else hit
            same = self._equal(table, where, newer)
            self.unchanged += int(same.sum())
            source = np.where(newer, where + table.num_rows, np.arange(table.num_rows))
            inside = self._inside(table)
            asked = inside & (not self._job.incomplete)
            if self._job.overtaken:
                self.crossed += int((newer & ~same & ~inside).sum())
            keep = hit | ~asked
            if self._tombs is None:
                self.covered += int(asked.sum())
                self.removed += int((~keep).sum())
            else:
                table, keep = self._tombs.mark(table, ~hit), np.ones(table.num_rows, bool)
            keep &= ~twin
            both = pa.concat_tables([table, self._fresh])
            yield from both.take(pa.array(source[keep])).combine_chunks().to_batches()
        yield from self._fresh.filter(pa.array(~self._used)).combine_chunks().to_batches()

    def books(self) -> Books:
        stale = int(self._stale.sum())
        written = self._fresh.num_rows - self.unchanged - stale
        return Books(
            read=self._fresh.num_rows,
            written=written,
            unchanged=self.unchanged,
            dropped={"stale": stale} if stale else {},
        )

    def absence(self, rows: int) -> Measured:
        """How many rows of the base lie in the time that was answered for, and how many of them the
        answer lacks.
        """
        covered, absent = (
            (self.covered, self.removed)
            if self._tombs is None
            else (self._tombs.covered, self._tombs.deleted)
        )
        return Measured(
            before=self._base.metadata.num_rows, after=rows, covered=covered, absent=absent
        )

    def warnings(self) -> tuple[str, ...]:
        said = [f"{self.removed} rows are gone upstream inside the window"] if self.removed else []
        if self._tombs is not None and (self._tombs.merged or self._tombs.deleted):
            said.append(
                f"{self._tombs.merged} rows were merged into others and {self._tombs.deleted}"
                " deleted upstream; they stay, marked so"
            )
        if self.twins:
            said.append(
                f"{self.twins} rows had the key of another in another spelling (NFC, white space)"
                " and are left out"
            )
        if self._stale.any():
            said.append(
                f"{int(self._stale.sum())} rows are older than the ones held and are left out;"
                " nothing is taken to be deleted"
            )
        return tuple(said)

    def _twins(self, hit: Mask, where: Whole) -> Mask:
        """Which rows of the base have the key of an earlier one in another spelling: they were
        official before spellings were compared.
        """
        twin = hit & self._used[where] if len(self._used) else np.zeros(len(hit), bool)
        rows = np.flatnonzero(hit)
        first = np.unique(where[rows], return_index=True)[1]
        if len(first) < len(rows):
            twin[np.delete(rows, first)] = True
        self.twins += int(twin.sum())
        return twin

    def _find(self, keys: "pa.Array") -> tuple[Mask, Whole]:
        """(whether the part has a row, where)."""
        at = pc.index_in(keys, value_set=self._keys)
        return np.asarray(at.is_valid()), at.fill_null(0).to_numpy()

    def _older(self, revision: str | None, state: list[str]) -> Mask:
        """Which rows of the part are older than the base's row of that key: a stale answer, which
        must not undo a newer one.

        When some are, the answer is old as a whole: what it still has of merged and deleted rows
        does not bring them back either.
        """
        stale = np.zeros(self._fresh.num_rows, bool)
        if (
            self._job.newer
            or revision is None
            or revision not in self._base.schema_arrow.names
            or not len(stale)
        ):
            return stale
        # rows that are back although the base has them as merged or deleted, by no newer word
        buried = stale.copy()
        for raw in self._base.iter_batches(
            batch_size=65_536, columns=list({*self._job.business_key, revision, *state})
        ):
            table = pa.Table.from_batches([raw])
            hit, where = self._find(keys_of(table, self._job.business_key))
            held, given = (
                self._believed(table.column(revision)),
                self._fresh.column(revision).take(pa.array(where)),
            )
            stale[where[hit & np.asarray(pc.greater(held, given).fill_null(False))]] = True
            gone = [
                np.asarray(pc.not_equal(table.column(n), "active").fill_null(False)) for n in state
            ]
            buried[
                where[
                    hit & np.asarray(pc.equal(held, given).fill_null(False)) & np.any(gone, axis=0)
                ]
            ] = True
        return stale | buried if stale.any() else stale

    def _believed(self, held: "pa.ChunkedArray") -> "pa.ChunkedArray":
        """Revisions of the base; one that lies in the future of this capture was never true and
        keeps nothing out.
        """
        if self._job.captured_at is None or not pa.types.is_timestamp(held.type):
            return held
        latest = pa.scalar(dt.datetime.fromisoformat(self._job.captured_at) + FUTURE).cast(
            held.type
        )
        return pc.if_else(pc.greater(held, latest), pa.scalar(None, held.type), held)

    def _equal(self, table: "pa.Table", where: Whole, hit: Mask) -> Mask:
        """Which rows of the base that are `hit` are as those of the part."""
        found = np.zeros(table.num_rows, bool)
        if not hit.any():
            return found
        mine, theirs = table.filter(pa.array(hit)), self._fresh.take(pa.array(where[hit]))
        same = np.ones(mine.num_rows, bool)
        for name in self._schema.names:
            a, b = mine.column(name).combine_chunks(), theirs.column(name).combine_chunks()
            nulls = np.asarray(pc.and_(a.is_null(), b.is_null()))
            same &= np.asarray(pc.equal(a, b).fill_null(False)) | nulls
        found[hit] = same
        return found

    def _inside(self, table: "pa.Table") -> Mask:
        """Which rows of the base lie inside the window; those among them that a complete part lacks
        were removed upstream.
        """
        job = self._job
        gone = np.zeros(table.num_rows, bool)
        times = (
            table.column(job.time_column)
            if job.time_column is not None and job.time_column in self._schema.names
            else None
        )
        if times is None or not pa.types.is_timestamp(times.type):
            return gone
        for since, until in job.windows:
            gone |= within(times, since, until)
        if job.since is None or job.until is None:
            return gone
        return within(times, job.since, job.until)


class _Tombstones:
    """Marks rows of the base that the part does not have: merged into a row that names them, or
    deleted inside the time it covers.
    """

    def __init__(self, job: Merge, rules: dict[str, str], fresh: "pa.Table", stale: Mask) -> None:
        self._job, self._rules = job, rules
        aliases = self._aliases(fresh, stale)
        self._names, self._into = (
            pa.array(list(aliases), pa.string()),
            pa.array([*aliases.values(), None], pa.string()),
        )
        self._span = None if stale.any() else self._covered(fresh)
        self.merged = self.deleted = self.covered = 0

    def _aliases(self, fresh: "pa.Table", stale: Mask) -> dict[str, str]:
        """Every id the rows of the part go by, and the key of the first row that says so."""
        found: dict[str, str] = {}
        if "aliases" in self._rules:
            texts, keys = (
                fresh.column(n).to_pylist()
                for n in (self._rules["aliases"], self._job.business_key[0])
            )
            for text, key, old in zip(texts, keys, stale.tolist()):
                for alias in msgspec.json.decode(text) if text and not old else ():
                    found.setdefault(alias, key)
        return found

    def _covered(self, fresh: "pa.Table") -> "tuple[pa.Scalar, pa.Scalar] | None":
        """First and last moment the part answers for: the window that was asked for, or what the
        source says; nothing is guessed.
        """
        column = self._rules.get("time")
        if column is None or self._job.incomplete:
            return None
        times = fresh.column(column)
        if self._job.since is not None and self._job.until is not None:
            since, until = (
                pa.scalar(t, pa.string()).cast(times.type)
                for t in (self._job.since, self._job.until)
            )
            return since, pa.scalar(until.value - 1, pa.int64()).cast(times.type)
        if self._job.answered is None:
            return None
        first, last = (pa.scalar(t, pa.string()).cast(times.type) for t in self._job.answered)
        return first, last

    def mark(self, table: "pa.Table", free: Mask) -> "pa.Table":
        """The table with its `free` rows, those the part does not have, marked."""
        at = pc.index_in(
            table.column(self._job.business_key[0]).combine_chunks(), value_set=self._names
        )
        named = np.asarray(at.is_valid()) & free
        state = table.column(self._rules["state"]).combine_chunks()
        alive = np.asarray(pc.fill_null(pc.equal(state, "active"), True))
        inside = alive & self._inside(table)
        gone = free & ~named & inside
        self.covered += int(inside.sum())
        self.deleted += int(gone.sum())
        self.merged += int(
            (named & np.asarray(pc.fill_null(pc.not_equal(state, "merged"), True))).sum()
        )
        state = pc.if_else(pa.array(named), "merged", pc.if_else(pa.array(gone), "deleted", state))
        table = _with(table, self._rules["state"], state)
        if "into" not in self._rules:
            return table
        into = self._into.take(at.fill_null(len(self._names)))
        return _with(
            table,
            self._rules["into"],
            pc.if_else(pa.array(named), into, table.column(self._rules["into"]).combine_chunks()),
        )

    def _inside(self, table: "pa.Table") -> Mask:
        if self._span is None:
            return np.zeros(table.num_rows, bool)
        times = table.column(self._rules["time"])
        inside = pc.and_(
            pc.greater_equal(times, self._span[0]), pc.less_equal(times, self._span[1])
        )
        return np.asarray(inside.fill_null(False).combine_chunks())


def _with(table: "pa.Table", name: str, column: "pa.Array") -> "pa.Table":
    at = table.schema.get_field_index(name)
    return table.set_column(at, table.schema.field(at), column)
