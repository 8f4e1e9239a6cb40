"""ks_earthquakes on its fixtures."""

from pathlib import Path

from kfm.testing import read_fixtures


def test_what_shook_outside_of_kansas_is_left_out_by_rule() -> None:
    found = read_fixtures(Path(__file__).parents[1])
    assert found.result.books.dropped == {"outside-area": 15}
    assert {row["event_type"] for row in found.rows} == {"earthquake", "quarry blast"}
