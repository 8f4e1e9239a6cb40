"""ks_weather_stations on its fixtures."""

from pathlib import Path

from kfm.testing import read_fixtures


def test_stations_lie_in_kansas() -> None:
    found = read_fixtures(Path(__file__).parents[1])
    assert {row["state"] for row in found.rows} == {"KS"}
    assert all(36.9 < row["latitude"] < 40.1 for row in found.rows)
