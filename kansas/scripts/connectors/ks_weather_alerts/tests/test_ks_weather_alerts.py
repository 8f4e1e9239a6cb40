"""ks_weather_alerts on its fixtures."""

from pathlib import Path

from kfm.testing import read_fixtures


def test_an_alert_for_another_state_is_left_out_by_rule() -> None:
    found = read_fixtures(Path(__file__).parents[1])
    assert len(found.rows) == 2
    assert found.result.books.dropped == {"other-state": 1}
