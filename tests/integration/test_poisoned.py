"""One poisoned record in a feed that is honest otherwise, through whole runs: set aside by row, and
the next honest feed corrects everything.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from tests.given.feeds import AT, FEEDS, Record
from tests.given.stand import Stand, answer


@pytest.fixture
def stand(tmp_path: Path) -> Iterator[Stand]:
    with Stand(tmp_path) as found:
        yield found


def rows(stand: Stand, outcome: dict[str, Any]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = pq.read_table(
        stand.ws / "data/processed/feed" / outcome["version_id"] / "feed.parquet"
    ).to_pylist()
    return sorted(found, key=repr)


@pytest.mark.parametrize(
    ("name", "poison", "merge"),
    [
        ("quakes", "future stamp", "upsert"),
        ("rdb", "-9999", "replace"),
        pytest.param("quakes", "seconds", "upsert", marks=pytest.mark.drill),
        pytest.param("quakes", "year 33658", "upsert", marks=pytest.mark.drill),
        pytest.param("quakes csv", "swapped", "upsert", marks=pytest.mark.drill),
        pytest.param("shapefile", "swapped", "replace", marks=pytest.mark.drill),
        pytest.param("plain json", "year 0", "replace", marks=pytest.mark.drill),
    ],
)
def test_the_next_honest_feed_corrects_what_a_poisoned_one_left(
    stand: Stand, name: str, poison: str, merge: str
) -> None:
    feed = FEEDS[name]()
    change, rule = feed.poisons[poison]

    def said(records: list[Record]) -> bytes:
        (body,) = feed.render(records).values()
        return answer(body)

    more = {"business_key": ["id"]} if feed.kind == "http_file" else {}
    stand.register(
        "feed",
        {
            "kind": feed.kind,
            "format": feed.format,
            **{k: v for k, v in feed.more.items() if k == "options"},
        },
        merge=merge,
        **more,
    )
    first = stand.publish("feed", said(feed.records))
    honest = rows(stand, first)

    stand.speaker.says["/feed"] = said(
        [*feed.records[:AT], change(feed.records[AT]), *feed.records[AT + 1 :]]
    )
    poisoned = stand.run("feed")
    assert (poisoned["exit_code"], poisoned["quarantined"]) == (0, 1), poisoned
    shown = stand("quarantine", "show", poisoned["run_id"], "--json")
    text = shown.out + shown.err
    assert rule in text and str(feed.line(AT)) in text, text
    left = rows(stand, poisoned) if poisoned["version_id"] else honest
    assert [r for r in left if r not in honest] == [], "nothing of it is official"

    stand.speaker.says["/feed"] = said(feed.records)
    stand.run("feed")
    status = stand("status", "feed", "--json").json["datasets"][0]
    assert rows(stand, status) == honest
    assert stand("verify", "feed").code == 0


def test_limits_that_make_no_sense_are_refused_when_a_dataset_is_checked(stand: Stand) -> None:
    for limits, words in (
        ({"min": 5, "max": 1}, "greater than max"),
        ({"min": "2020-01-01"}, "a number"),
    ):
        stand.register(
            "feed", {"format": "csv"}, schema=[{"name": "v", "type": "number", **limits}]
        )
        said = stand("dataset", "check", "feed", "--json")
        assert said.code != 0 and words in json.dumps(said.out + said.err), said
