"""ks_weather_daily on its fixtures."""

from pathlib import Path

from kfm.testing import read_fixtures


def test_tenths_become_degrees_and_a_day_has_each_element_once() -> None:
    found = read_fixtures(Path(__file__).parents[1])
    first = found.rows[0]
    assert (first["element"], first["value"], first["unit"]) == ("TMAX", 5.6, "Cel")
    days = [(row["station_id"], row["observed_on"], row["element"]) for row in found.rows]
    assert len(days) == len(set(days)) == 1088
