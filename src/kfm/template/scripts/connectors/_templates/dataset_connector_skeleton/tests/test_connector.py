"""The contract every connector keeps; tests of your own go beside it."""

from pathlib import Path

from kfm.testing import check_connector

FOLDER = Path(__file__).resolve().parents[1]


def test_the_connector_keeps_its_contract() -> None:
    found = check_connector(FOLDER.parents[2], FOLDER.name)
    assert not found, "\n".join(f"{f.rule}: {f.what} {f.remedy}" for f in found)
