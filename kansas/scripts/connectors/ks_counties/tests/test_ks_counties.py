"""ks_counties on its fixtures."""

from pathlib import Path

from kfm.testing import read_fixtures


def test_there_are_105_counties_and_none_of_another_state() -> None:
    found = read_fixtures(Path(__file__).parents[1])
    assert len(found.rows) == 105
    assert {row["statefp"] for row in found.rows} == {"20"}
    assert found.result.books.dropped == {"where": 2}
