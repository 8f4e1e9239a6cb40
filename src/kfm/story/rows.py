"""One row of a Parquet file by its key: only the row groups that can hold it are read."""

from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from kfm.diff.cells import rows_of
from kfm.diff.side import Side
from kfm.model import IntegrityError, UsageError

__all__ = ["row_of"]


def row_of(path: Path, key: Mapping[str, str]) -> dict[str, object] | None:
    """The row whose columns say this, as JSON has it; None when there is none. Raises `UsageError`
    when there are several.
    """
    try:
        with pq.ParquetFile(path) as file:
            return _row(file, key, Side({path.name: path}).geometry)
    except pa.ArrowException as error:
        raise IntegrityError(
            f"{path.name} cannot be read.",
            expected="a whole Parquet file",
            remedy="Run `kfm verify`.",
        ) from error


def _row(file: "pq.ParquetFile", key: Mapping[str, str], geometry: str) -> dict[str, object] | None:
    schema = file.schema_arrow
    if not set(key) <= set(schema.names):
        return None
    wanted = {name: _scalar(text, schema.field(name).type) for name, text in key.items()}
    if any(value is None for value in wanted.values()):
        return None
    found: list[tuple[int, int]] = []
    for group in range(file.num_row_groups):
        if not _may_hold(file, group, wanted):
            continue
        table = file.read_row_group(group, columns=list(key))
        hit = None
        for name, value in wanted.items():
            same = pc.equal(table.column(name), value)
            hit = same if hit is None else pc.and_(hit, same)
        found += [(group, i) for i in pc.indices_nonzero(pc.fill_null(hit, False)).to_pylist()]
    if len(found) > 1:
        raise UsageError(
            f"{len(found):,} rows hold {' and '.join(f'{k}={v}' for k, v in key.items())}.",
            expected="the key of one row",
            remedy="Give more columns: --key COLUMN=VALUE for each.",
        )
    if not found:
        return None
    group, at = found[0]
    row = file.read_row_group(group).slice(at, 1)
    picked = {name: row.column(name).combine_chunks() for name in row.column_names}
    return dict(rows_of(picked, 1, geometry)[0][0])


def _scalar(text: str, kind: "pa.DataType") -> "pa.Scalar | None":
    """A text as a value of a column; None where it cannot be one, so that no row holds it."""
    try:
        return pa.scalar(text, pa.string()).cast(kind)
    except pa.ArrowException:
        return None


def _may_hold(file: "pq.ParquetFile", group: int, wanted: Mapping[str, "pa.Scalar"]) -> bool:
    """Whether the ends that a row group states leave room for the key."""
    about = file.metadata.row_group(group)
    for at in range(about.num_columns):
        column = about.column(at)
        ends = column.statistics
        if column.path_in_schema not in wanted or ends is None or not ends.has_min_max:
            continue
        try:
            value = wanted[column.path_in_schema].as_py()
            if not ends.min <= value <= ends.max:
                return False
        # ends of another kind, or a moment that Python has no word for: they say nothing
        except (TypeError, ValueError, OverflowError):
            continue
    return True
