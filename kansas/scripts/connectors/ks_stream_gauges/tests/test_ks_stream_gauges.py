"""ks_stream_gauges on its fixtures."""

from pathlib import Path

from kfm.testing import read_fixtures


def test_flows_come_in_one_unit_and_a_gauge_has_one_a_day() -> None:
    found = read_fixtures(Path(__file__).parents[1])
    assert {row["unit"] for row in found.rows} == {"ft3/s"}
    days = [(row["time_series_id"], row["observed_on"]) for row in found.rows]
    assert len(days) == len(set(days)) == 120
