"""A clock, an event and a person put work into the job table; whoever runs a dataset works what
waits there.
"""

import datetime as dt
import json
from pathlib import Path

import pytest

from kfm.model.clock import SystemClock
from kfm.runners.due import at_tick
from kfm.samples.upstream import SampleUpstream
from kfm.workspace.folder import open_workspace
from kfm.workspace.wiring import open_world
from tests.given.verbs import QUAKES, Kfm

JOB = ("worker", "run-job", "ingest.pull_source", "--dataset")
EVENT = json.dumps(
    {"source_id": "ks-earthquakes", "trigger": "etag-change", "event_type": "update"}
)


def queued(kfm: Kfm, dataset: str = QUAKES) -> list[dict[str, str]]:
    said = kfm(*JOB, f"kfm://dataset/{dataset}", "--queued", "--no-follow", "--json")
    assert said.code == 0, said.err
    found: list[dict[str, str]] = said.json["jobs"]
    return found


def due(kfm: Kfm, *words: str) -> list[str]:
    said = kfm("runner", "due", *words)
    assert said.code == 0, said.err
    found: list[str] = json.loads(said.out)
    return found


@pytest.fixture
def tuesday_noon(monkeypatch: pytest.MonkeyPatch) -> None:
    """No midnight and no Monday is near, whenever the test is run."""
    now = dt.datetime.now(dt.UTC)
    noon = now.replace(hour=12, minute=0) + dt.timedelta(days=7 + (1 - now.weekday()) % 7)
    ahead = noon - now
    monkeypatch.setattr(SystemClock, "now", lambda self: dt.datetime.now(dt.UTC) + ahead)


@pytest.mark.usefixtures("tuesday_noon")
def test_every_tick_finds_what_the_cadence_of_each_dataset_says_however_often_it_comes(
    kfm: Kfm, ws: Path
) -> None:
    every = ["ks_earthquakes", "ks_stream_gauges", "ks_weather_stations"]
    assert due(kfm) == every
    for name in every:
        assert [job["status"] for job in queued(kfm, name)] == ["succeeded"]
        assert queued(kfm, name) == []
    cadences = {name: open_workspace(ws).require(name).cadence for name in every}
    assert cadences == dict(zip(every, ("real-time", "daily", "weekly"), strict=True))
    assert ticked_in(ws, hours=1) == ["ks_earthquakes"], "the hour is the tick's, not theirs"
    assert ticked_in(ws, hours=25) == ["ks_earthquakes", "ks_stream_gauges"]
    assert ticked_in(ws, hours=7 * 24 + 1) == every


def ticked_in(ws: Path, hours: int) -> list[str]:
    """What a tick finds in so many hours."""
    with open_world(open_workspace(ws)) as world:
        then = world.clock.now() + dt.timedelta(hours=hours)
        world.clock.now = lambda: then  # type: ignore[method-assign]
        return at_tick(open_workspace(ws), world)[0]


def test_a_person_a_clock_and_an_event_start_the_same_run(
    kfm: Kfm, ws: Path, sample: SampleUpstream
) -> None:
    versions = []
    for revision, words in enumerate(([], ["--dataset", QUAKES], ["--event", EVENT]), 1):
        sample.control(QUAKES, revision=revision)
        assert QUAKES in due(kfm, *words)
        assert [job["status"] for job in queued(kfm)] == ["succeeded"]
        versions.append(kfm("status", QUAKES, "--json").json["datasets"][0]["version_id"])
    assert len({*versions}) == 3


def test_an_event_that_was_heard_before_asks_for_nothing(kfm: Kfm) -> None:
    assert due(kfm, "--event", EVENT) == [QUAKES]
    assert len(queued(kfm)) == 1
    assert due(kfm, "--event", EVENT) == [] and queued(kfm) == []
    assert due(kfm, "--event", EVENT.replace("update", "create")) == [QUAKES]


def test_an_event_of_a_dataset_without_cadence_is_heard_once_too(kfm: Kfm, ws: Path) -> None:
    entry = ws / "data" / "registry" / f"{QUAKES}.yml"
    lines = entry.read_text().splitlines(keepends=True)
    entry.write_text(
        "".join(line for line in lines if not line.startswith(("cadence:", "interval:")))
    )
    assert QUAKES not in due(kfm)
    assert due(kfm, "--event", EVENT) == [QUAKES]
    assert len(queued(kfm)) == 1
    assert due(kfm, "--event", EVENT) == []


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--event", "{}"], "source_id"),
        (["--event", "not json"], "no event"),
        (["--event", '{"source_id": "../../etc"}'], "not a dataset id"),
        (["--event", '{"source_id": "$(reboot)"}'], "not a dataset id"),
        (["--dataset", "ks_nothing"], "There is no dataset"),
        (["--dataset", QUAKES, "--event", EVENT], "or an event does"),
        (["--window", "7d"], "or an event does"),
    ],
)
def test_what_names_no_dataset_is_refused_and_puts_nothing(
    kfm: Kfm, words: list[str], said: str
) -> None:
    answer = kfm("runner", "due", *words)
    assert answer.code == 2 and said in answer.err
    assert kfm("jobs", "list", "--json").json["jobs"] == []


def test_a_dry_run_is_one_of_a_dataset(kfm: Kfm) -> None:
    answer = kfm("runner", "due", "--dry-run")
    assert answer.code == 2 and "A dry run is one of a dataset." in answer.err


def test_a_dry_run_puts_nothing(kfm: Kfm) -> None:
    assert due(kfm, "--dataset", QUAKES, "--dry-run") == [QUAKES]
    assert kfm("jobs", "list", "--json").json["jobs"] == []


def test_what_waits_is_worked_oldest_first_and_what_fails_is_tried_again_later(
    kfm: Kfm, sample: SampleUpstream
) -> None:
    sample.control(QUAKES, mode="503")
    due(kfm, "--dataset", QUAKES)
    said = kfm(*JOB, f"kfm://dataset/{QUAKES}", "--queued", "--json")
    assert said.code == 4 and [job["status"] for job in said.json["jobs"]] == ["failed"]
    (job,) = kfm("jobs", "list", "--json").json["jobs"]
    assert job["state"] == "queued" and job["attempts"] == 1, "as a worker would, later"


def test_one_job_takes_a_window_as_people_write_it(kfm: Kfm) -> None:
    kfm(*JOB, f"kfm://dataset/{QUAKES}", "--window", "2026-01-01", "--no-follow")
    jobs = kfm("jobs", "list", "--json").json["jobs"]
    assert "2026-01-01T00:00:00Z/2026-01-02T00:00:00Z" in {job["win"] for job in jobs}
