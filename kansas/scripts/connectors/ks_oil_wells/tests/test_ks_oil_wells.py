"""ks_oil_wells on its fixtures."""

from pathlib import Path

from kfm.testing import read_fixtures


def test_all_pages_are_read_and_places_keep_their_own_system() -> None:
    found = read_fixtures(Path(__file__).parents[1])
    assert [row["objectid"] for row in found.rows] == list(range(1, 131))
    assert {row["source_crs"] for row in found.rows} == {"EPSG:4267"}
