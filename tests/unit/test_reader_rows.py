"""Pages of sorted rows are those that sorting everything would give."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kfm.reader import rows
from kfm.reading.memory import mark_of

VALUES = [3.0, None, 1.0, float("nan"), 2.0, 2.0, None, 9.0, 1.0, 4.0, float("nan"), 0.5] * 9


@pytest.fixture
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> "rows._Table":
    """Of two files, read in small pieces."""
    monkeypatch.setattr(rows, "_BATCH", 2)
    monkeypatch.setattr(rows, "_SCANNED", 5)
    for name, values in (("a", VALUES[:50]), ("b", VALUES[50:])):
        made = pa.table({"v": values, "word": [None if v is None else f"w{v}" for v in values]})
        pq.write_table(made, tmp_path / f"{name}.parquet", row_group_size=7)
    return rows._table(tuple((p, mark_of(p)) for p in sorted(tmp_path.iterdir())))


@pytest.mark.parametrize("sort", ["v", "-v", "word", "-word", "word,-v", "-word,v"])
@pytest.mark.parametrize("offset", [0, 5, 60, 100])
def test_a_page_of_sorted_rows_is_what_sorting_all_of_them_gives(
    table: "rows._Table", sort: str, offset: int
) -> None:
    asked = rows._asked(table.schema, None, None, sort, 10, str(offset))
    found, more = rows._sorted(table, asked)
    whole = pa.concat_tables([pq.read_table(path) for path in table.paths])
    whole = whole.append_column("at", pa.array(range(whole.num_rows)))
    wanted = whole.sort_by([*asked.sort, ("at", "ascending")]).slice(offset, 10)
    assert str(found.to_pylist()) == str(wanted.drop_columns("at").to_pylist())
    assert more == (offset + 10 < len(VALUES))


@pytest.mark.parametrize("offset", [0, 6, 7, 48, 57, 105, 200])
def test_a_page_is_found_by_counting(table: "rows._Table", offset: int) -> None:
    found, more = rows._page(table, rows._asked(table.schema, "v", None, None, 8, str(offset)))
    assert str(found.column("v").to_pylist()) == str(VALUES[offset : offset + 8])
    assert more == (offset + 8 < len(VALUES)) and table.rows == len(VALUES)
