"""ks_gauge_archive on its fixtures."""

from pathlib import Path

from kfm.testing import read_fixtures


def test_a_series_of_a_gauge_has_one_value_for_each_day() -> None:
    found = read_fixtures(Path(__file__).parents[1])
    days = [(row["ts_id"], row["parameter_code"], row["observed_on"]) for row in found.rows]
    assert len(days) == len(set(days)) == 240
    assert found.types["value"] == "number"
