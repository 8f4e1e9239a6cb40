"""A question in SQL sees the tables of one version, and nothing else of this machine."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kfm.data.sql import ask
from kfm.model import Denied, KfmError, UsageError


@pytest.fixture(scope="module")
def trees(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("sql") / "trees.parquet"
    columns = {"n": [1, 2, None], "kind": ["oak", "elm", "oak"], "raw": [b"\x01", None, b""]}
    when = pa.array([0, 1, 2], pa.timestamp("us", "UTC"))
    pq.write_table(pa.table(columns).append_column("when", when), path)
    return path


def test_a_question_is_answered_exactly(trees: Path) -> None:
    names = ("trees", "data")
    found = ask([trees], names, "select kind, count(*), sum(n) from trees group by 1", rows=9)
    assert sorted(found.rows) == [["elm", 1, 2], ["oak", 2, 1]] and not found.more
    found = ask([trees], names, 'select raw, "when", [n], 1.5 as d from data order by 2', rows=2)
    assert found.rows == [
        ["01", "1970-01-01T00:00:00Z", [1], "1.5"],
        [None, "1970-01-01T00:00:00.000001Z", [2], "1.5"],
    ]
    assert found.more and [name for name, _ in found.columns][:2] == ["raw", "when"]


@pytest.mark.parametrize(
    ("sql", "error"),
    [
        ("select * from read_csv('/etc/passwd')", Denied),
        ("select * from read_parquet('{file}')", Denied),
        ("copy data to '{folder}/x.csv'", UsageError),
        ("set memory_limit = '9GB'", UsageError),
        ("select 1; drop view data", UsageError),
        ("select * from names", UsageError),  # a variable of ours
        ("", UsageError),
    ],
)
def test_nothing_else_can_be_reached_or_changed(sql: str, error: type, trees: Path) -> None:
    with pytest.raises(error):
        ask([trees], ("data",), sql.format(file=trees, folder=trees.parent), rows=1)
    assert [p.name for p in trees.parent.iterdir()] == ["trees.parquet"]


def test_a_question_that_takes_too_much_is_ended(trees: Path) -> None:
    with pytest.raises(KfmError, match="more memory"):
        ask([trees], ("data",), "select repeat('x', 4000000000)", rows=1, most_bytes=1 << 28)
    with pytest.raises(KfmError, match="not answered in"):
        ask([trees], ("data",), "select count(*) from range(1000000000000)", rows=1, seconds=1.5)
