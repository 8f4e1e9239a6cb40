"""Pages of rows are those that reading everything would give, however little of it is read."""

from collections.abc import Sequence
from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kfm.access.memory import mark_of
from kfm.diff.cells import values
from kfm.reader import row_groups, rows

VALUES: list[float | None] = [
    3.0,
    None,
    1.0,
    float("nan"),
    2.0,
    2.0,
    None,
    9.0,
    1.0,
    4.0,
    float("nan"),
    0.5,
] * 9
WORDS = [None if v is None else f"w{v}" for v in VALUES]


@pytest.fixture
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> "rows._Table":
    """Of two files, read in small pieces."""
    monkeypatch.setattr(row_groups, "_BATCH", 2)
    monkeypatch.setattr(rows, "_HELD", 8)
    monkeypatch.setattr(rows, "_SCANNED", 5)
    for name, part in (("a", slice(50)), ("b", slice(50, None))):
        made = pa.table({"v": VALUES[part], "word": WORDS[part]})
        pq.write_table(made, tmp_path / f"{name}.parquet", row_group_size=7)
    return rows._table(tuple((p, mark_of(p)) for p in sorted(tmp_path.iterdir())), is_kept=False)


@pytest.mark.parametrize("sort", ["v", "-v", "word", "-word", "word,-v", "-word,v"])
@pytest.mark.parametrize("offset", [0, 5, 60, 100])
def test_a_page_of_sorted_rows_is_what_sorting_all_of_them_gives(
    table: "rows._Table", sort: str, offset: int
) -> None:
    asked = rows._asked(table.schema, None, None, sort, 10, str(offset))
    found, more = rows._sorted(table, asked)
    whole = pa.concat_tables([pq.read_table(file.path) for file in table.files])
    whole = whole.append_column("at", pa.array(range(whole.num_rows)))
    wanted = whole.sort_by([*asked.sort, ("at", "ascending")]).slice(offset, 10)
    assert str(found.to_pylist()) == str(wanted.drop_columns("at").to_pylist())
    assert more == (offset + 10 < len(VALUES))


@pytest.mark.parametrize("kept", [False, True])
@pytest.mark.parametrize("offset", [0, 6, 7, 48, 57, 105, 200])
def test_a_page_is_found_by_counting(table: "rows._Table", offset: int, kept: bool) -> None:
    table = rows._table(tuple((file.path, file.mark) for file in table.files), is_kept=kept)
    for columns in ("v", "word,v", "v,word"):
        asked = rows._asked(table.schema, columns, None, None, 8, str(offset))
        found, more = rows._page(table, asked)
        assert found.schema.names == columns.split(",")
        assert str(found.column("v").to_pylist()) == str(VALUES[offset : offset + 8])
        assert more == (offset + 8 < len(VALUES)) and table.rows == len(VALUES)
        if "word" in columns:
            words = rows._decoded(found.column("word"))
            assert words.type == pa.string()
            assert words.to_pylist() == WORDS[offset : offset + 8]


TOLD = {
    "n": [1, -(2**63), 2**63 - 1, 0],
    "gaps": [1, None, 3, None],
    "x": [0.1, -0.0, 1e300, 5.0],
    "odd": [1.5, float("nan"), float("inf"), None],
    "wild": [1.5, float("nan"), float("inf"), 2.0],
    "few": ["a", None, "ü", "a"],
    "is": [True, None, False, True],
    'a "name"': ["1", "2", "3", "4"],
    "at": pa.array([0, 1, None, 86_400_000_000], pa.timestamp("us", tz="UTC")),
    "small": pa.array([1.5, 0.1, None, 2], pa.float32()),
    "raw": [b"\x00\xff", b"", None, b"a"],
}


@pytest.mark.parametrize("kept", [False, True])
@pytest.mark.parametrize("columns", [",".join(TOLD), ",".join(n for n in TOLD if '"' not in n)])
def test_cells_that_are_told_many_at_a_time_are_told_as_each_of_them_is(
    tmp_path: Path, columns: str, kept: bool
) -> None:
    at = tmp_path / "a.parquet"
    pq.write_table(pa.table(TOLD), at)
    table = rows._table(((at, mark_of(at)),), is_kept=kept)
    asked = rows._asked(table.schema, columns, None, None, 10, None)
    found, _ = rows._page(table, asked)
    each = {name: values(pa.chunked_array([pa.table(TOLD)[name].chunk(0)])) for name in TOLD}
    wanted = [dict(zip(each, row)) for row in zip(*each.values())]
    wanted = [{name: row[name] for name in columns.split(",")} for row in wanted]
    for told in (rows._plain(found, ""), rows._told_rows(found, "")):
        assert msgspec.json.encode(told) == msgspec.json.encode(wanted)


def test_what_is_kept_of_tables_has_a_bound_and_is_of_the_very_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shelf, at = row_groups._Shelf(), tmp_path / "a.parquet"
    monkeypatch.setattr(row_groups, "_SHELF", shelf)

    def shown(group: int) -> list[object]:
        table = rows._table(((at, mark_of(at)),), is_kept=True)
        asked = rows._asked(table.schema, "n", None, None, 1, str(group * 100))
        return rows._page(table, asked)[0].column("n").to_pylist()

    def write(first: int) -> None:
        pq.write_table(pa.table({"n": range(first, first + 1000)}), at, row_group_size=100)

    write(0)
    monkeypatch.setattr(row_groups, "_MOST", 3 * (row_groups._EACH + 900))
    reads, read = list[int](), row_groups._read

    def noted(file: row_groups.TableFile, group: int, names: Sequence[str]) -> pa.Table:
        reads.append(group)
        return read(file, group, names)

    monkeypatch.setattr(row_groups, "_read", noted)
    assert [shown(group) for group in (0, 1, 0, 2, 0, 3, 0, 1)] == [
        [0], [100], [0], [200], [0], [300], [0], [100],
    ]  # fmt: skip
    assert reads == [0, 1, 2, 3, 1], "what was asked for last stays"
    assert shelf._size <= row_groups._MOST and len(shelf._kept) == 3
    at.unlink()
    write(5000)
    assert shown(0) == [5000]


def test_a_column_that_takes_much_is_never_held_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(row_groups, "_read", lambda *_: pytest.fail("it was read whole"))
    at = tmp_path / "a.parquet"
    many = row_groups._MANY + 1
    wide = [f"{n}" + "x" * 50_000 for n in range(100)]
    for made in (pa.table({"n": pa.nulls(many, pa.int64())}), pa.table({"n": wide})):
        pq.write_table(made, at, row_group_size=many)
        table = rows._table(((at, mark_of(at)),), is_kept=True)
        asked = rows._asked(table.schema, None, None, None, 3, "90")
        assert rows._page(table, asked)[0].equals(made.slice(90, 3))
        at.unlink()
