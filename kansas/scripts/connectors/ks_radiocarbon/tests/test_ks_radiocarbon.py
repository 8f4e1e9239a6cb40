"""ks_radiocarbon on its fixtures."""

from pathlib import Path

from kfm.testing import read_fixtures


def test_a_date_has_an_age_an_error_and_the_laboratory_that_made_it() -> None:
    found = read_fixtures(Path(__file__).parents[1])
    assert len({row["LabID"] for row in found.rows}) == 60
    assert all(row["Age"] > 0 and row["Error"] > 0 for row in found.rows)
