"""ks_treaties on its fixtures."""

from pathlib import Path

from kfm.testing import read_fixtures


def test_every_paragraph_has_an_anchor_of_its_own_and_its_place_in_the_text() -> None:
    found = read_fixtures(Path(__file__).parents[1])
    assert len({row["anchor"] for row in found.rows}) == len(found.rows) == 14
    assert {row["document_id"] for row in found.rows} == {"apa0891", "ara0807"}
    assert all(row["char_end"] > row["char_start"] for row in found.rows)
