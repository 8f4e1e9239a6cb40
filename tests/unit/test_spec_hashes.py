"""Entries that were registered before a key existed keep their hashes: a key that nobody states
enters none of them.
"""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from kfm.model.dataset import Change, DatasetEntry
from kfm.world.target import Target, specify

# Entries with the hashes that the version before `change`, `conflicts` and the checks of columns
# gave them.
VECTORS: list[dict[str, Any]] = json.loads(
    (Path(__file__).parent / "spec_hashes.json").read_bytes()
)
STATED: dict[str, Any] = {
    "change": Change(),
    "conflicts": "refuse",
    "isolation": "best_effort",
}


def hashes(entry: DatasetEntry) -> dict[str, str]:
    target = specify(
        Target(entry=entry, sources=({"source_id": "source", "url": entry.source.url},)),
        "sha256:" + "0" * 64,
    )
    return {"spec_hash": target.spec_hash, "transform_hash": target.transform_hash}


@pytest.mark.parametrize("vector", VECTORS, ids=[v["entry"]["dataset_id"] for v in VECTORS])
def test_an_entry_keeps_its_hashes(vector: dict[str, Any]) -> None:
    entry = msgspec.convert(vector["entry"], DatasetEntry)
    assert hashes(entry) == vector["hashes"]


@pytest.mark.parametrize("key", STATED)
def test_a_key_that_is_stated_is_part_of_the_spec(key: str) -> None:
    entry = msgspec.convert(VECTORS[0]["entry"], DatasetEntry)
    assert (
        hashes(msgspec.structs.replace(entry, **{key: STATED[key]}))["spec_hash"]
        != VECTORS[0]["hashes"]["spec_hash"]
    )


def test_what_the_files_are_packed_in_is_part_of_the_spec() -> None:
    entry = msgspec.convert(VECTORS[0]["entry"], DatasetEntry)
    source = msgspec.structs.replace(entry.source, packed="gzip")
    stated = msgspec.structs.replace(entry, source=source)
    assert hashes(stated)["spec_hash"] != VECTORS[0]["hashes"]["spec_hash"]
