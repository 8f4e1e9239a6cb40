"""Tables joined on what they share."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import shapely

from kfm.connectors.base import CaptureRefused, InputFile, TransformResult
from kfm.connectors.child.process import run_inline, run_transform
from kfm.connectors.operations import Join
from kfm.model.dataset import Column

SITES = pa.table(
    {"kind": ["well", "kiln", "well", "mound"], "county": ["B", "A", "A", None], "n": [1, 2, 3, 4]}
)
COUNTIES = pa.table({"county": ["A", "B", "C", None], "n": [10.5, 20.0, -0.0, 40.0]})


def joined(
    folder: Path,
    *tables: pa.Table,
    on: tuple[str, ...] = ("county",),
    run: Any = run_inline,
    **more: Any,
) -> TransformResult:
    folder.mkdir(exist_ok=True)
    inputs = []
    for name, table in zip(("sites", "counties", "more"), tables):
        pq.write_table(table, folder / f"{name}.parquet")
        inputs.append(
            InputFile(source_id=name, path=str(folder / f"{name}.parquet"), digest="sha256:0")
        )
    job = Join(dataset_id="ks_joined", inputs=tuple(inputs), on=on, artifact="out.parquet", **more)
    result: TransformResult = run(job, folder)
    assert (
        result.books.balanced
        and result.books.read
        == result.books.written
        == result.rows
        == pq.read_metadata(folder / "out.parquet").num_rows
    )
    assert [c.name for c in result.schema] == pq.read_schema(folder / "out.parquet").names
    return result


def rows(folder: Path) -> list[tuple[Any, ...]]:
    return [tuple(r.values()) for r in pq.read_table(folder / "out.parquet").to_pylist()]


def refused(folder: Path, *tables: pa.Table, **more: Any) -> CaptureRefused:
    with pytest.raises(CaptureRefused) as caught:
        joined(folder, *tables, **more)
    assert caught.value.code == "join.columns" and caught.value.expected and caught.value.remedy
    return caught.value


def test_records_meet_on_what_they_share_and_come_in_order(tmp_path: Path) -> None:
    result = joined(tmp_path, SITES, COUNTIES)
    assert [c.name for c in result.schema] == ["county", "kind", "n", "counties_n"]
    assert rows(tmp_path) == [
        ("A", "kiln", 2, 10.5),
        ("A", "well", 3, 10.5),
        ("B", "well", 1, 20.0),
    ], "no value matches no value"
    assert result.bbox is None and result.warnings == ()


def test_every_pair_counts(tmp_path: Path) -> None:
    twice = pa.concat_tables([COUNTIES, COUNTIES.slice(0, 1)])
    assert joined(tmp_path, SITES, twice).books.read == 5


def test_three_tables_on_two_columns_of_any_order(tmp_path: Path) -> None:
    first = pa.table({"year": [1, 1, 2], "place": ["a", "b", "a"], "v": ["x", "y", "z"]})
    second = pa.table({"v": [True, False, True], "place": ["a", "a", "b"], "year": [1, 2, 9]})
    third = pa.table({"w": [0.5, 0.25], "year": [2, 1], "place": ["a", "a"]})
    result = joined(tmp_path, first, second, third, on=("place", "year"))
    assert [c.name for c in result.schema] == ["place", "year", "v", "counties_v", "w"]
    assert rows(tmp_path) == [("a", 1, "x", True, 0.25), ("a", 2, "z", False, 0.5)]


def test_the_order_of_the_rows_leaves_no_trace(tmp_path: Path) -> None:
    joined(tmp_path / "one", SITES, COUNTIES)
    joined(tmp_path / "two", SITES.take([3, 1, 2, 0]), COUNTIES.take([2, 3, 1, 0]))
    assert (tmp_path / "one" / "out.parquet").read_bytes() == (
        tmp_path / "two" / "out.parquet"
    ).read_bytes()


def test_numbers_meet_whatever_the_sign_of_zero(tmp_path: Path) -> None:
    joined(
        tmp_path,
        pa.table({"k": [0.0, 1.5]}),
        pa.table({"k": [-0.0, 2.5], "v": ["zero", "more"]}),
        on=("k",),
    )
    assert rows(tmp_path) == [(0.0, "zero")]


def test_the_first_geometry_stays(tmp_path: Path) -> None:
    here, there = (
        pa.array(shapely.to_wkb([shapely.Point(x, x), shapely.Point(x + 1, x)]), pa.binary())
        for x in (1, 50)
    )
    first = pa.table({"k": ["a", "b"], "where": here, "also": there})
    second = pa.table({"k": ["a", "b"], "where": there})
    result = joined(tmp_path, first, second, pa.table({"k": ["a"], "v": [1]}), on=("k",))
    assert [c.name for c in result.schema] == ["k", "where", "v"]
    assert result.bbox == (1.0, 1.0, 1.0, 1.0) and result.geometry_types == ("Point",)
    assert len(result.warnings) == 2 and "counties" in result.warnings[1]
    later = joined(tmp_path / "later", pa.table({"k": ["a"], "v": [1]}), second, on=("k",))
    assert [c.name for c in later.schema] == ["k", "v", "where"] and later.warnings == ()


def test_nothing_in_common_is_an_empty_table(tmp_path: Path) -> None:
    result = joined(tmp_path, SITES, COUNTIES.slice(2, 1))
    assert result.rows == 0 and [c.name for c in result.schema] == [
        "county",
        "kind",
        "n",
        "counties_n",
    ]


def test_a_declared_schema_is_kept(tmp_path: Path) -> None:
    schema = (
        Column(name="counties_n", type="number", unit="km2"),
        Column(name="kind", type="json"),
    )
    by_name = {c.name: c for c in joined(tmp_path, SITES, COUNTIES, schema=schema).schema}
    assert (
        by_name["counties_n"].unit == "km2"
        and by_name["kind"].type == "json"
        and by_name["n"].type == "integer"
    )


@pytest.mark.parametrize(
    ("tables", "on", "said"),
    [
        ((SITES, COUNTIES), ("state",), "state"),
        ((SITES, COUNTIES), ("kind",), "counties"),
        ((SITES, COUNTIES), ("n",), "number in source counties and integer in sites"),
        ((SITES, COUNTIES), (), "0 column"),
        ((SITES,), ("county",), "1 table"),
        ((SITES.append_column("counties_n", SITES["n"]), COUNTIES), ("county",), "counties_n"),
        ((SITES, COUNTIES.append_column("counties_n", COUNTIES["n"])), ("county",), "counties_n"),
    ],
)
def test_what_cannot_be_joined_is_refused(
    tmp_path: Path, tables: Any, on: tuple[str, ...], said: str
) -> None:
    assert said in refused(tmp_path, *tables, on=on).happened


def test_no_two_columns_ever_share_a_name(tmp_path: Path) -> None:
    first = pa.table({"k": ["a"], "n": [1], "more_n": [2]})
    assert (
        "more_n"
        in refused(
            tmp_path,
            first,
            pa.table({"k": ["a"], "v": [1]}),
            pa.table({"k": ["a"], "n": [3]}),
            on=("k",),
        ).happened
    )
    twice = pa.table([pa.array(["a"]), pa.array([1]), pa.array([2])], names=["k", "v", "v"])
    assert "'v'" in refused(tmp_path, first, twice, on=("k",)).happened
    result = joined(
        tmp_path,
        first.drop_columns("more_n"),
        pa.table({"k": ["a"], "n": [2]}),
        pa.table({"k": ["a"], "n": [3]}),
        on=("k",),
    )
    assert [c.name for c in result.schema] == ["k", "n", "counties_n", "more_n"] and rows(
        tmp_path
    ) == [("a", 1, 2, 3)]


def test_the_child_gives_the_same_bytes(tmp_path: Path) -> None:
    results = [
        joined(tmp_path / name, SITES, COUNTIES, run=run)
        for name, run in (("inline", run_inline), ("child", run_transform))
    ]
    assert results[0] == results[1]
    assert (tmp_path / "inline" / "out.parquet").read_bytes() == (
        tmp_path / "child" / "out.parquet"
    ).read_bytes()
