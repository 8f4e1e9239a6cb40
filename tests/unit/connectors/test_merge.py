"""A window's rows find their places in the base by business key."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kfm.connectors.base import CaptureRefused, InputFile, TransformResult
from kfm.connectors.child.process import run_inline, run_transform
from kfm.connectors.operations import Merge
from kfm.model.dataset import Column
from kfm.model.ids import digest

COLUMNS = (
    Column(name="id", type="string"),
    Column(name="part", type="string"),
    Column(name="at", type="timestamp"),
    Column(name="value", type="number"),
)
SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("part", pa.string()),
        ("at", pa.timestamp("us", tz="UTC")),
        ("value", pa.float64()),
    ]
)
DAY = 86_400_000_000


def table(folder: Path, name: str, rows: list[tuple[str, str, int, float | None]]) -> InputFile:
    columns = [pa.array([r[i] for r in rows], SCHEMA.field(i).type) for i in range(4)]
    pq.write_table(pa.table(columns, schema=SCHEMA), folder / f"{name}.parquet")
    return InputFile(source_id=name, path=str(folder / f"{name}.parquet"), digest=digest(b""))


def merged(
    folder: Path,
    base: list[tuple[str, str, int, float | None]],
    part: list[tuple[str, str, int, float | None]],
    **more: object,
) -> TransformResult:
    inputs = (table(folder, "base", base), table(folder, "part", part))
    job = Merge(
        dataset_id="d",
        inputs=inputs,
        schema=COLUMNS,
        business_key=("id", "part"),
        artifact="d.parquet",
        **more,
    )
    return run_inline(job, folder)


def rows(folder: Path) -> list[tuple[object, ...]]:
    return [
        (r["id"], r["part"], r["value"]) for r in pq.read_table(folder / "d.parquet").to_pylist()
    ]


def test_a_row_takes_the_place_of_its_key_and_new_keys_come_last(tmp_path: Path) -> None:
    base = [("a", "x", 1 * DAY, 1.0), ("b", "x", 2 * DAY, 2.0), ("c", "x", 3 * DAY, None)]
    part = [("d", "x", 4 * DAY, 4.0), ("b", "x", 2 * DAY, 9.0), ("c", "x", 3 * DAY, None)]
    result = merged(tmp_path, base, part)
    assert rows(tmp_path) == [("a", "x", 1.0), ("b", "x", 9.0), ("c", "x", None), ("d", "x", 4.0)]
    assert (result.books.read, result.books.written, result.books.unchanged) == (3, 2, 1)


def test_what_is_gone_upstream_inside_the_window_goes(tmp_path: Path) -> None:
    base = [("a", "x", 1 * DAY, 1.0), ("b", "x", 2 * DAY, 2.0), ("c", "x", 3 * DAY, 3.0)]
    result = merged(
        tmp_path,
        base,
        [("b", "x", 2 * DAY, 2.0)],
        time_column="at",
        since="1970-01-03T00:00:00Z",
        until="1970-01-05T00:00:00Z",
    )
    assert [r[0] for r in rows(tmp_path)] == ["a", "b"], "c lay inside the window, a outside"
    assert "1 rows are gone" in result.warnings[0]


def test_keys_with_separators_inside_do_not_become_one(tmp_path: Path) -> None:
    base = [("a\x1fb", "c", DAY, 1.0)]
    merged(tmp_path, base, [("a", "b\x1fc", DAY, 2.0), ("a\\", "u", DAY, 3.0)])
    assert len(rows(tmp_path)) == 3


def test_the_same_window_twice_gives_the_same_bytes(tmp_path: Path) -> None:
    base = [("a", "x", DAY, 1.0), ("b", "x", DAY, 2.0)]
    merged(tmp_path, base, [("b", "x", DAY, 5.0)])
    once = (tmp_path / "d.parquet").read_bytes()
    (tmp_path / "base.parquet").write_bytes(once)
    job = Merge(
        dataset_id="d",
        inputs=(
            InputFile(source_id="base", path=str(tmp_path / "base.parquet"), digest=""),
            table(tmp_path, "part", [("b", "x", DAY, 5.0)]),
        ),
        schema=COLUMNS,
        business_key=("id", "part"),
        artifact="d.parquet",
    )
    (tmp_path / "out").mkdir()
    run_transform(job, tmp_path / "out")
    assert (tmp_path / "out" / "d.parquet").read_bytes() == once


def test_a_column_of_another_type_is_refused_by_name(tmp_path: Path) -> None:
    inputs = (
        table(tmp_path, "base", [("a", "x", DAY, 1.0)]),
        table(tmp_path, "part", [("a", "x", DAY, 1.0)]),
    )
    changed = (*COLUMNS[:3], Column(name="value", type="string"))
    job = Merge(
        dataset_id="d", inputs=inputs, schema=changed, business_key=("id",), artifact="d.parquet"
    )
    with pytest.raises(CaptureRefused, match="value"):
        run_inline(job, tmp_path)
