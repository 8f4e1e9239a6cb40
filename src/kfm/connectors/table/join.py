"""Joins tables on the columns they share, as one table ordered by its values."""

from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from kfm.connectors.base import Books, InputFile, Refused, TransformResult
from kfm.connectors.operations import Join
from kfm.connectors.read.characters import composed
from kfm.connectors.release.govern import columns_of, in_order, write_table
from kfm.model import Column

__all__ = ["join"]


def join(job: Join, scratch: Path) -> TransformResult:
    """Every combination of records, one of each input, that agree in the columns `on`; a record
    without a value there has no match.

    A join reads pairs, not records: `books` counts the rows that came out as read and as written.
    Of several geometries the first stays.
    """
    if len(job.inputs) < 2 or not job.on:
        raise _refusal(
            job,
            f"The join of {job.dataset_id} names {len(job.inputs)} table(s) and {len(job.on)}"
            " column(s).",
        )
    columns: tuple[Column, ...] = ()
    table: pa.Table = None
    warnings: list[str] = []
    for source in job.inputs:
        theirs, other = _read(job, source, columns)
        shapes = [c.name for c in (*columns, *theirs) if c.type == "geometry"][1:]
        if shapes:
            warnings.append(f"A geometry of {source.source_id} is left out: a table has one.")
        columns = (
            *columns,
            *(c for c in theirs if c.name not in shapes and not (columns and c.name in job.on)),
        )
        other = other.drop_columns(shapes)
        table = (
            other
            if table is None
            else table.join(other, list(job.on), join_type="inner", use_threads=False)
        )
    columns = tuple(
        sorted(columns, key=lambda c: job.on.index(c.name) if c.name in job.on else len(job.on))
    )
    batches = in_order(table.select([c.name for c in columns]))
    books = Books(read=table.num_rows, written=table.num_rows)
    return write_table(job, scratch, columns, batches, books=books, warnings=tuple(warnings))


def _read(
    job: Join, source: InputFile, before: tuple[Column, ...]
) -> tuple[tuple[Column, ...], "pa.Table"]:
    """One table; a column whose name an earlier table has gets the source's id as a prefix."""
    with pq.ParquetFile(source.path) as file:
        table = file.read()
    taken = {c.name for c in before} - set(job.on)
    names = [f"{source.source_id}_{n}" if n in taken else n for n in table.schema.names]
    if twice := sorted(n for n in names if n in taken or names.count(n) > 1):
        raise _refusal(
            job,
            f"Source {source.source_id} has a column {twice[0]!r}, a name that is taken even with"
            " its prefix.",
        )
    # a hash join tells -0.0 from 0.0
    table = pa.table(
        [pc.add(c, 0.0) if pa.types.is_floating(c.type) else c for c in table.columns], table.schema
    ).rename_columns(names)
    for at, name in enumerate(names):  # nor does it know that one text has several spellings
        if name in job.on:
            table = table.set_column(at, table.schema.field(at), composed(table.column(at)))
    columns = columns_of(table.schema, job.schema)
    types = {c.name: c.type for c in columns}
    for name in job.on:
        if types.get(name, "geometry") == "geometry":
            raise _refusal(
                job, f"Source {source.source_id} has no plain column {name!r} to join on."
            )
        first = next((c.type for c in before if c.name == name), types[name])
        if first != types[name]:
            raise _refusal(
                job,
                f"Column {name!r} is {types[name]} in source {source.source_id} and {first} in"
                f" {job.inputs[0].source_id}.",
            )
    return columns, table


def _refusal(job: Join, happened: str) -> Refused:
    return Refused(
        "join.columns",
        happened,
        expected=(
            "two tables or more, and `source.on` to name columns that all of them have with the"
            " same type"
        ),
        remedy=(
            "Correct `source.on` in the registry entry, or the schema of the datasets that are"
            " joined."
        ),
        on=list(job.on),
    )
