"""ks_temperature_analysis on its fixtures."""

from pathlib import Path

from kfm.testing import read_fixtures


def test_a_message_becomes_one_image_in_kelvin() -> None:
    found = read_fixtures(Path(__file__).parents[1])
    (row,) = found.rows
    assert (row["variable"], row["unit"], row["asset"]) == (
        "TMP",
        "K",
        "ks_temperature_analysis-TMP-2-HTGL.tif",
    )
