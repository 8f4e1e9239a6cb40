"""Events that are revised, merged, deleted and come back: the table keeps a trace of each."""

import datetime as dt
import json
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pyarrow.parquet as pq
import pytest
from msgspec import UNSET
from tests.given.verbs import SHARED

from kfm.connectors.base import CaptureRefused, InputFile, TransformResult
from kfm.connectors.child.process import run_inline
from kfm.connectors.operations import Merge, Read

RULES = {
    "aliases": "ids",
    "state": "state",
    "into": "merged_into",
    "time": "occurred_at",
    "revision": "updated_at",
}
DAY = 86_400_000
FIRST = 20_454  # days from 1970 to 2026: nobody had this catalogue in 1970


def event(
    event_id: str, day: int, *aliases: str, updated: int = 0, mag: float = 1.0
) -> dict[str, Any]:
    ids = ",".join(("", event_id, *aliases, ""))
    said = {
        "mag": mag,
        "time": (FIRST + day) * DAY,
        "updated": (FIRST + day + updated) * DAY,
        "type": "earthquake",
        "ids": ids,
    }
    return {
        "type": "Feature",
        "id": event_id,
        "properties": said,
        "geometry": {"type": "Point", "coordinates": [-98.0, 38.0, 5.0]},
    }


def said_range(*events: dict[str, Any]) -> str:
    """The address of a query for the time of these events."""
    times = [
        dt.datetime.fromtimestamp(e["properties"]["time"] / 1000, dt.UTC).isoformat()
        for e in events
    ]
    return (
        f"https://example.org/query?{urlencode({'starttime': min(times), 'endtime': max(times)})}"
    )


class World:
    """A dataset whose official table is merged with one capture after another."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.count, self.base = folder, 0, Path()

    def capture(self, *events: dict[str, Any], **more: Any) -> TransformResult:
        source = self.folder / "feed.geojson"
        metadata = {
            "url": more.pop("url", said_range(*events)),
            "generated": more.pop("made", None),
        }
        source.write_text(
            json.dumps({"type": "FeatureCollection", "metadata": metadata, "features": events})
        )
        return self.take(source, **more)

    def take(self, source: Path, **more: Any) -> TransformResult:
        self.count += 1
        scratch = self.folder / str(self.count)
        scratch.mkdir()
        common = {"dataset_id": "d", "source_kind": "usgs_quakes", "artifact": "d.parquet"}
        area = more.pop("area", ())
        part = run_inline(
            Read(**common, format="geojson", inputs=(_input("feed", source),), area=area), scratch
        )  # type: ignore[arg-type]
        result, made = part, scratch / "d.parquet"
        if self.base.name:
            made = scratch / "merged" / "d.parquet"
            made.parent.mkdir()
            inputs = (_input("base", self.base), _input("part", scratch / "d.parquet"))
            answered = None if part.answered is UNSET else part.answered
            merge = {
                "schema": part.schema,
                "business_key": ("event_id",),
                "inputs": inputs,
                "answered": answered,
            }
            asked = common | merge | more
            result = run_inline(Merge(**asked), made.parent)  # type: ignore[arg-type]
            assert result.books.balanced
            assert result.books.read == part.books.written
        self.base = made
        return result

    @property
    def rows(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = pq.read_table(self.base).to_pylist()
        return found

    @property
    def states(self) -> dict[str, tuple[str, str | None]]:
        return {r["event_id"]: (r["state"], r["merged_into"]) for r in self.rows}


def _input(name: str, path: Path) -> InputFile:
    return InputFile(source_id=name, path=str(path), digest="")


ACTIVE, DELETED = ("active", None), ("deleted", None)


@pytest.fixture
def world(tmp_path: Path) -> World:
    """One event a day, a on the first to d on the fourth."""
    made = World(tmp_path)
    made.capture(event("a", 1), event("b", 2), event("c", 3), event("d", 4))
    return made


def test_a_revised_event_changes_its_row(world: World) -> None:
    result = world.capture(event("b", 2, updated=1, mag=2.5), event("c", 3), event("d", 4))
    assert [(r["event_id"], r["magnitude"]) for r in world.rows] == [
        ("a", 1.0),
        ("b", 2.5),
        ("c", 1.0),
        ("d", 1.0),
    ]
    assert (result.books.written, result.books.unchanged, result.warnings) == (1, 2, ())


def test_an_id_that_another_event_goes_by_becomes_a_tombstone_that_names_it(world: World) -> None:
    result = world.capture(event("b", 2), event("us9", 3, "c", "zz", updated=1), event("d", 4))
    assert world.states == {
        "a": ACTIVE,
        "b": ACTIVE,
        "c": ("merged", "us9"),
        "d": ACTIVE,
        "us9": ACTIVE,
    }
    assert world.rows[2]["magnitude"] == 1.0, "its other values stay"
    assert result.warnings == (
        "1 rows were merged into others and 0 deleted upstream; they stay, marked so",
    )
    assert (result.books.written, result.books.unchanged) == (1, 2), "the books speak of the part"


def test_an_event_that_left_the_middle_of_the_feed_was_deleted_and_an_older_one_only_left_its_window(
    world: World,
) -> None:
    result = world.capture(event("b", 2), event("d", 4))
    assert world.states == {"a": ACTIVE, "b": ACTIVE, "c": DELETED, "d": ACTIVE}
    assert "0 rows were merged into others and 1 deleted" in result.warnings[0]


def test_nothing_is_deleted_by_a_feed_that_holds_nothing_of_that_time(world: World) -> None:
    world.capture(event("e", 9))
    assert world.states == {"a": ACTIVE, "b": ACTIVE, "c": ACTIVE, "d": ACTIVE, "e": ACTIVE}


def test_the_window_tells_what_is_covered_where_there_is_one(world: World) -> None:
    world.capture(
        event("c", 3),
        time_column="occurred_at",
        since="2026-01-03T00:00:00Z",
        until="2026-01-05T00:00:00Z",
    )
    assert world.states == {"a": ACTIVE, "b": DELETED, "c": ACTIVE, "d": ACTIVE}, (
        "d lies on the end, which is outside"
    )
    assert len(world.rows) == 4, "and nothing goes"


def test_a_tombstone_comes_back_to_life_when_its_id_does(world: World) -> None:
    world.capture(event("b", 2), event("us9", 3, "c"), event("d", 4))
    world.capture(event("b", 2), event("d", 4))
    assert world.states["c"] == ("merged", "us9"), "what was merged is not deleted as well"
    assert world.states["us9"] == DELETED
    result = world.capture(event("b", 2), event("c", 3), event("us9", 3), event("d", 4))
    assert world.states == {"a": ACTIVE, "b": ACTIVE, "c": ACTIVE, "d": ACTIVE, "us9": ACTIVE}
    assert (result.books.written, result.books.unchanged) == (2, 2)


def test_an_event_that_has_a_row_of_its_own_is_not_merged(world: World) -> None:
    world.capture(event("b", 2, "c"), event("c", 3, "b"), event("d", 4))
    assert world.states == {"a": ACTIVE, "b": ACTIVE, "c": ACTIVE, "d": ACTIVE}


def test_a_stale_answer_undoes_nothing(world: World) -> None:
    world.capture(event("b", 2, updated=2, mag=9.0), event("c", 3), event("d", 4))
    held = world.base.read_bytes()
    result = world.capture(event("b", 2, "c", updated=1, mag=5.0), event("d", 4))
    assert world.base.read_bytes() == held, (
        "an older revision, and what it says of c, is left out; and c is not deleted by it"
    )
    assert (result.books.written, result.books.unchanged, result.books.dropped) == (
        0,
        1,
        {"stale": 1},
    )
    assert "1 rows are older than the ones held" in result.warnings[0]


def test_the_same_capture_twice_gives_the_same_bytes(world: World) -> None:
    events = (event("b", 2, updated=1), event("us9", 3, "c"), event("e", 5))
    world.capture(*events)
    once = world.base.read_bytes()
    result = world.capture(*events)
    assert world.base.read_bytes() == once
    assert (result.books.written, result.books.unchanged, result.warnings) == (0, 3, ())


def test_other_columns_can_tell_by_the_job_itself(world: World) -> None:
    only = {k: v for k, v in RULES.items() if k in ("state", "time")}
    world.capture(
        event("b", 2),
        event("us9", 3, "c", updated=-9),
        event("d", 4),
        source_kind="http_file",
        tombstones=only,
    )
    assert world.states["c"] == DELETED, "no column of aliases was named"
    world.capture(
        event("b", 2, updated=-1, mag=7.0), event("d", 4), source_kind="http_file", tombstones=only
    )
    assert world.rows[1]["magnitude"] == 7.0, "nor one of revisions"


def test_a_key_of_two_columns_is_refused(world: World) -> None:
    with pytest.raises(CaptureRefused, match="one column"):
        world.capture(event("b", 2), business_key=("event_id", "network"))


@pytest.mark.needs_shared
@pytest.mark.skipif(
    not SHARED.exists(), reason="not run: the recordings are not beside this repository"
)
def test_a_recorded_week_with_a_revision_a_merger_and_a_deletion(tmp_path: Path) -> None:
    source = SHARED / "data/usgs-earthquakes/all_week.2018-06-14.geojson"
    document = json.loads(source.read_text())
    world = World(tmp_path)
    world.take(source)
    features = document["features"]
    revised, taken, deleted = features[10], features[20], features[30]
    revised["properties"] |= {"mag": 9.9, "updated": revised["properties"]["updated"] + 1}
    old = taken["id"]
    taken["id"], taken["properties"]["ids"] = "us77777777", f",us77777777,{old},"
    features.remove(deleted)
    document["metadata"]["count"] -= 1
    changed = tmp_path / "changed.geojson"
    changed.write_text(json.dumps(document))
    result = world.take(changed)
    assert (result.rows, result.books.read, result.books.written, result.books.unchanged) == (
        4712,
        4710,
        2,
        4708,
    )
    states = world.states
    assert {k: v for k, v in states.items() if v != ACTIVE} == {
        old: ("merged", "us77777777"),
        deleted["id"]: DELETED,
    }
    assert [r["magnitude"] for r in world.rows if r["event_id"] == revised["id"]] == [9.9]


def test_an_event_that_was_set_aside_is_not_taken_for_deleted(world: World) -> None:
    world.capture(event("a", 1), event("b", 2), event("d", 4), incomplete=True)
    assert world.states["c"] == ACTIVE


def test_the_feed_covers_the_time_it_says_it_answers_for(world: World) -> None:
    result = world.capture(
        event("a", 1), event("b", 2), event("c", 3), url=said_range(event("a", 1), event("z", 9))
    )
    assert world.states["d"] == DELETED
    assert (result.change.covered, result.change.absent) == (4, 1)


@pytest.mark.parametrize(
    "url",
    [
        pytest.param("", id="says nothing"),
        pytest.param("https://example.org/all.geojson", id="a name without a time"),
        pytest.param(
            said_range(event("a", 1), event("d", 4)) + "&limit=2", id="a limit may have cut it"
        ),
        pytest.param("https://example.org/query?starttime=soon&endtime=later", id="no times"),
    ],
)
def test_what_is_absent_is_not_deleted_where_the_source_does_not_say_what_it_answers_for(
    world: World, url: str
) -> None:
    world.capture(event("a", 1), event("d", 4), url=url)
    assert set(world.states.values()) == {ACTIVE}


def test_a_feed_of_the_past_week_answers_for_seven_days(world: World) -> None:
    world.capture(
        event("z", 9),
        url="https://example.org/summary/all_week.geojson",
        made=int((FIRST + 9.5) * DAY),
    )
    assert world.states == {"a": ACTIVE, "b": ACTIVE, "c": DELETED, "d": DELETED, "z": ACTIVE}


def test_a_correction_in_a_newer_answer_wins_over_a_later_revision(world: World) -> None:
    world.capture(event("b", 2, updated=300, mag=9.0), event("c", 3))
    world.capture(event("b", 2, updated=1, mag=2.0), event("c", 3))
    assert world.rows[1]["magnitude"] == 9.0, "without a word of its age it may be a stale answer"
    world.capture(event("b", 2, updated=1, mag=2.0), event("c", 3), newer=True)
    assert world.rows[1]["magnitude"] == 2.0


def test_a_revision_from_the_future_keeps_no_correction_out(world: World) -> None:
    world.capture(event("b", 2, updated=20_000, mag=9.0), event("c", 3))
    world.capture(
        event("b", 2, updated=1, mag=2.0), event("c", 3), captured_at="2026-02-01T00:00:00Z"
    )
    assert world.rows[1]["magnitude"] == 2.0
