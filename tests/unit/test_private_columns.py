"""Columns that look like what is private are told from those that do not, and a release shows what
it names.
"""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kfm.channel.generations import EMPTY
from kfm.gates.mandatory import labels
from kfm.model.clock import SystemClock
from kfm.model.dataset import DatasetEntry, Release, Source
from kfm.model.ledger import Generation
from kfm.model.personal_columns import looks_of, looks_of_values
from kfm.model.transform import GONE
from kfm.model.verdict import Evidence
from kfm.release.by_rule import release_mark, release_marks, shown_last
from kfm.store.base import Tx
from kfm.store.sqlite import SqliteStore


@pytest.mark.parametrize(
    ("column", "look"),
    [
        ("name", "name"), ("SiteName", "name"), ("owner_id", "name"), ("E-Mail", "name"), ("Street", "address"), ("home_address", "address"),
        ("lat", "coordinates"), ("LATITUDE_DD", "coordinates"), ("utm_e", "coordinates"), ("geohash7", "coordinates"), ("x", "coordinates"),
        ("h3", "coordinates"), ("site location", "coordinates"), ("remarks", "free text"), ("Notes_2", "free text"),
        ("period", ""), ("Material", ""), ("kind", ""), ("road_type", ""), ("long_term", ""), ("elevation_m", ""), ("count", ""), ("flat", ""),
    ],
)  # fmt: skip
def test_a_column_looks_like_what_its_name_says(column: str, look: str) -> None:
    assert looks_of(column) == ((look,) if look else ())


def test_values_tell_an_address_and_free_text() -> None:
    assert looks_of_values(["1204 W Elm Street", "7 Main St."]) == ("address",)
    assert looks_of_values(
        ["a low mound above the second bend of the creek, seen from the road"]
    ) == ("free text",)
    assert looks_of_values(["Late Ceramic", "Woodland"]) == () == looks_of_values([])


def test_such_a_column_is_shown_with_the_word_of_a_steward_only() -> None:
    source = Source(url="https://example.org/x", format="csv")
    entry = DatasetEntry(
        dataset_id="a",
        title="A",
        source=source,
        sensitivity="public",
        policy_label="public",
        release=Release(show=("name",)),
    )
    evidence = Evidence(
        entry=entry, expected={}, found={}, schema=(), books=GONE, private=True, obligations=()
    )
    (no,) = labels(evidence).reasons
    assert no.code == "labels.look" and "name --despite name" in no.remedy
    permitted = Evidence(
        entry=entry,
        expected={},
        found={},
        schema=(),
        books=GONE,
        private=True,
        obligations=(),
        permits=("column\nname\nname",),
    )
    assert labels(permitted).reasons == ()
    old = Evidence(
        entry=DatasetEntry(dataset_id="a", title="A", source=source, sensitivity="public", policy_label="public", release=Release()),
        expected={}, found={}, schema=(), books=GONE, private=True, obligations=(),
    )  # fmt: skip
    assert [r.code for r in labels(old).reasons] == ["labels.show"]


def test_what_was_released_before_stays_released_when_its_columns_are_shown() -> None:
    source = Source(url="https://example.org/x", format="csv")
    old = Release(withhold=("name",), h3_resolution=5)
    before = release_mark(DatasetEntry(dataset_id="a", title="A", source=source, release=old))
    entry = DatasetEntry(
        dataset_id="a",
        title="A",
        source=source,
        release=Release(withhold=("name",), show=("kind",), h3_resolution=5),
    )
    assert release_mark(entry) != before and before in release_marks(
        entry, ("h3_cell", "kind", "geometry")
    )
    assert before not in release_marks(entry, ("h3_cell", "kind", "year", "geometry")), (
        "one of its columns is not shown now"
    )
    finer = DatasetEntry(
        dataset_id="a",
        title="A",
        source=source,
        release=Release(withhold=("name",), show=("kind",), h3_resolution=6),
    )
    assert before not in release_marks(finer, ("h3_cell", "kind", "geometry"))


def test_what_was_shown_last_is_asked_in_a_transaction_since_a_head_may_have_to_be_indexed(
    tmp_path: Path,
) -> None:
    class Unindexed:
        def head(self, tx: Tx) -> Generation:
            tx.effects.set("indexed", "1")  # as `Channel.head` writes what it finds
            return EMPTY("d")

    store = SqliteStore(tmp_path / "ledger" / "s.sqlite", SystemClock())
    world: Any = SimpleNamespace(registry={}.get, store=store, channel=lambda name: Unindexed())
    assert shown_last(world, "d") == ()
    assert store.read(lambda tx: tx.effects.digest("indexed")) == "1"
    store.abandon()
