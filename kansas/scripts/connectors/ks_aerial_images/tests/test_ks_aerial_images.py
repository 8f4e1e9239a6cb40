"""ks_aerial_images on its fixtures."""

from pathlib import Path

from kfm.testing import read_fixtures


def test_every_item_is_an_image_with_its_place_and_its_time() -> None:
    found = read_fixtures(Path(__file__).parents[1])
    assert len(found.rows) == 12
    assert all(row["geometry"] and row["datetime"] for row in found.rows)
