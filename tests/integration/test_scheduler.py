"""Schedulers at work: two of them, killed and frozen, over both clock changes; and the commands
people use.
"""

import contextlib
import datetime as dt
import os
import random
import re
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import msgspec
import pytest

from kfm.jobs.schedule.cadence import Timetable, resolve, to_ms
from kfm.jobs.schedule.scheduler import LEASE, Scheduler, on_event, pause
from kfm.model.clock import SystemClock, rfc3339
from kfm.model.dataset import DatasetEntry
from kfm.model.schedule import Schedule
from kfm.world.world import Nobody, Receivers
from tests.given.services import schema_url, shared_server
from tests.given.verbs import Said, each, until

ENTRY = msgspec.convert(
    {
        "dataset_id": "d",
        "title": "D",
        "source": {"url": "https://example.org/t.csv", "format": "csv"},
    },
    DatasetEntry,
)
HOURS = 50  # 48, and the hours by which a day is longer where clocks change
HOUR, DAY = dt.timedelta(hours=1), dt.timedelta(days=1)


def at(text: str) -> dt.datetime:
    return dt.datetime.fromisoformat(text)


def table(name: str, **more: Any) -> Timetable:
    return resolve(
        name,
        Schedule(dataset=name, **{"time_zone": "America/Chicago", **more}),
        msgspec.structs.replace(ENTRY, dataset_id=name),
    )


class Clock(SystemClock):
    """Wall and boot time that a test moves."""

    def __init__(self, now: str) -> None:
        super().__init__()
        self.moment = at(now)
        self.ns = 10**12

    def now(self) -> dt.datetime:
        return self.moment

    def boot_ns(self) -> int:
        return self.ns

    def step(self, by: dt.timedelta) -> None:
        self.moment += by
        self.ns += int(by.total_seconds() * 1e9)


@dataclass
class Place:
    """One store, opened as often as there are processes."""

    kind: str
    where: Any
    clock: Clock
    opened: list[Any] = field(default_factory=list)

    def store(self) -> Any:
        if self.kind == "sqlite":
            from kfm.store.sqlite import SqliteStore

            self.opened.append(SqliteStore(self.where, self.clock))
        else:
            from kfm.extras.postgres.store import PostgresStore

            self.opened.append(PostgresStore(self.where, self.clock))
        return self.opened[-1]

    def world(self, name: str) -> Any:
        return World(self.clock, self.store(), name, 15.0)

    def lapse(self) -> None:
        """The lease of a leader that died or froze runs out. No lock file tells a server that its
        holder is dead.
        """
        if self.kind == "postgres":
            import psycopg

            with psycopg.connect(self.where, autocommit=True) as server:
                server.execute("update lease set expires_ns = 0 where name = %s", (LEASE,))


@dataclass
class World:
    """As much of the world as a scheduler looks at."""

    clock: Clock
    store: Any
    holder: str
    lease_seconds: float
    receivers: Receivers = field(default_factory=Nobody)

    def hold(self, token: Any) -> Any:
        return token

    def let_go(self, *tokens: Any) -> None:
        return


@pytest.fixture(params=["sqlite", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    where = (
        tmp_path / "ledger" / "s.sqlite"
        if request.param == "sqlite"
        else schema_url(shared_server())
    )
    found = Place(request.param, where, Clock("2026-03-07T06:00:00Z"))
    yield found
    for store in found.opened:
        with contextlib.suppress(Exception):
            store.abandon()


class Killed(Exception):
    """A process died in the middle of a transaction."""


class Worker:
    """Works every job at once; jobs of one window always fail."""

    def __init__(self, store: Any, bad: str) -> None:
        self._store, self._bad = store, bad
        self.worked: list[tuple[str, str]] = []
        self.reasons: list[str] = []
        self._token = store.transaction(lambda tx: tx.leases.take("worker/1", "w", 10**9))

    def work(self) -> None:
        for job in self._store.transaction(lambda tx: tx.queue.claim(self._token, 1000)):
            self.worked.append((job.dataset_id, job.win))
            self.reasons.append(job.reason)
            if job.win == self._bad:
                self._store.transaction(
                    lambda tx, j=job: tx.queue.fail(self._token, j, "it always fails", retry=False)
                )
            else:
                self._store.transaction(
                    lambda tx, j=job: tx.queue.finish(self._token, j, "succeeded")
                )


@pytest.mark.parametrize(
    ("zone", "change", "length"),
    [
        ("America/Chicago", "2026-03-08", 23),
        *(pytest.param(*case, marks=pytest.mark.drill) for case in (
            ("America/Chicago", "2026-11-01", 25),
            ("Australia/Lord_Howe", "2026-04-05", 24.5), ("Australia/Lord_Howe", "2026-10-04", 23.5), ("Africa/Casablanca", "2026-02-15", 25),
            ("Pacific/Apia", "2011-12-31", 24),
        )),
    ],
)  # fmt: skip
@pytest.mark.parametrize("place", each(["sqlite", "postgres"], "sqlite"), indirect=True)
def test_two_days_over_a_clock_change_visit_every_window_and_double_none(
    place: Place, zone: str, change: str, length: float
) -> None:
    """Two schedulers, ticks dropped at random, leaders killed in and between transactions, one
    window that always fails.
    """
    chance = random.Random(change)
    begins = (
        dt.datetime.fromisoformat(change).replace(tzinfo=ZoneInfo(zone)).astimezone(dt.UTC) - DAY
    )
    place.clock.moment = begins
    start = rfc3339(begins)
    tables = [
        table(
            "hours",
            time_zone=zone,
            cadence="0 * * * *" if length % 1 == 0 else "*/30 * * * *",
            windows="1h",
            start=start,
        ),
        table(
            "days",
            time_zone=zone,
            cadence="daily",
            windows="1d",
            start=rfc3339(begins - DAY),
            revisit=("6h",),
        ),
        table(
            "nights",
            time_zone=zone,
            cadence="30 2 * * *",
            windows="1d",
            start=rfc3339(begins - DAY),
            jitter="40m",
        ),
        table("quarters", time_zone=zone, cadence="15m", windows="15m", start=start, jitter="40m"),
    ]
    bad = f"{rfc3339(begins + 20 * HOUR)}/{rfc3339(begins + 21 * HOUR)}"
    worker = Worker(place.store(), bad)
    deadly = {"on": False}

    def held(dataset: str) -> None:
        if deadly["on"] and chance.random() < 0.3:
            raise Killed

    names = iter(range(10**6))
    schedulers = [
        Scheduler(place.world(f"s{next(names)}"), lambda: tables, held=held) for _ in range(2)
    ]
    kills = 0
    for _ in range(HOURS * 12):
        place.clock.step(dt.timedelta(minutes=5))
        for number in chance.sample((0, 1), 2):
            if chance.random() < 0.4:
                continue  # a tick is dropped
            deadly["on"] = chance.random() < 0.08
            killed = False
            try:
                led = schedulers[number].tick().leads
            except Killed:
                killed, led = True, True
            if killed or (led and chance.random() < 0.02):
                kills += 1
                schedulers[number]._world.store.abandon()
                place.lapse()
                schedulers[number] = Scheduler(
                    place.world(f"s{next(names)}"), lambda: tables, held=held
                )
        deadly["on"] = False
        if chance.random() < 0.7:
            worker.work()
    _until_led(schedulers)
    worker.work()
    _until_led(schedulers)
    seen = Counter(worker.worked)
    ends = place.clock.moment
    assert kills > 5
    for number in range(HOURS):
        window = f"{rfc3339(begins + number * HOUR)}/{rfc3339(begins + (number + 1) * HOUR)}"
        assert window == bad or seen.pop(("hours", window)) == 1, window
    assert seen.pop(("hours", bad)) > 2, "it is tried again"
    days = sorted(win for name, win in seen if name == "days")
    hours = [(at(w[21:]) - at(w[:20])).total_seconds() / 3600 for w in days]
    assert hours == [24, 24, length]
    for win in days:
        assert seen.pop(("days", win)) == 1 + (at(win[21:]) + 6 * HOUR <= ends), (
            f"{win}: once, and once more six hours after its end"
        )
    assert {seen.pop((n, w)) for n, w in list(seen) if n == "nights"} == {1}
    quarters = [seen.pop((n, w)) for n, w in list(seen) if n == "quarters"]
    assert set(quarters) == {1} and HOURS * 4 - 4 <= len(quarters) <= HOURS * 4
    assert not seen
    store = worker._store
    (failing,) = store.read(lambda tx: tx.schedule.failing("hours"))
    assert (failing.slot, failing.error) == (
        bad,
        "it always fails",
    ) and failing.fails == failing.puts > 2
    assert store.read(lambda tx: tx.schedule.counts("hours")) == {"done": HOURS - 1, "failed": 1}
    assert all(re.match(r"cron:scheduler@s\d+ ", reason) for reason in worker.reasons)


def _until_led(schedulers: list[Scheduler]) -> None:
    """Tick until one of them leads: a killed leader's lease may have to run out first."""
    until(lambda: any(s.tick().leads for s in schedulers))


def test_one_leads_and_the_other_takes_over_when_it_dies(place: Place) -> None:
    one, two = (
        Scheduler(place.world(n), lambda: [table("d", cadence="daily")]) for n in ("one", "two")
    )
    assert one.tick().leads and not two.tick().leads
    one._world.store.abandon()
    place.lapse()
    assert two.tick().leads


def test_a_frozen_leader_that_wakes_up_writes_nothing(place: Place) -> None:
    one, two = place.world("one"), place.world("two")
    other = Scheduler(two, list)
    tables = [table("d", cadence="daily")]

    def frozen() -> list[Timetable]:  # between taking the lease and the first transaction
        place.clock.ns += 20 * 10**9
        place.lapse()
        assert other.tick().leads
        return tables

    scheduler = Scheduler(one, frozen)
    assert scheduler.tick().leads is False
    assert (
        one.store.read(lambda tx: tx.jobs.listing()) == []
        and one.store.read(lambda tx: tx.schedule.get("d")) is None
    )


def test_a_clock_that_jumps_forward_catches_up_and_one_that_goes_back_doubles_nothing(
    place: Place,
) -> None:
    tables = [
        table("all", cadence="daily", windows="1d", start="2026-03-01"),
        table("latest", cadence="daily", windows="1d", start="2026-03-01", catch_up="latest"),
    ]
    world = place.world("one")
    scheduler = Scheduler(world, lambda: tables)
    assert scheduler.tick().puts == 6 + 1
    place.clock.moment += 3 * DAY
    assert (done := scheduler.tick()).puts == 3 + 1 and done.skips == 2
    for hours in (20, -10, -5, -5):  # back, and then again through what was
        place.clock.moment -= hours * HOUR
        assert scheduler.tick().puts == 0


@pytest.mark.parametrize("policy", ["latest", "none"])
def test_after_a_tick_ten_years_ahead_the_coming_windows_are_put(place: Place, policy: str) -> None:
    scheduler = Scheduler(
        place.world("one"),
        lambda: [table("d", cadence="daily", windows="1d", start="2026-03-01", catch_up=policy)],
    )
    assert scheduler.tick().puts == 1
    now, place.clock.moment = place.clock.moment, at("2036-03-07T06:00:00Z")
    assert scheduler.tick().skips > 3600
    place.clock.moment = now
    assert scheduler.tick().puts == 0
    for _ in range(3):
        place.clock.moment += dt.timedelta(hours=24)
        if place.clock.moment == at("2026-03-09T06:00:00Z"):
            place.clock.moment -= HOUR  # midnight of summer time
        assert scheduler.tick().puts == 1


def test_a_long_past_that_is_left_out_keeps_no_other_schedule_waiting(place: Place) -> None:
    tables = [
        table("a", cadence="1h", windows="1m", start="1976-01-01", catch_up="latest"),
        table("b", cadence="daily"),
    ]
    world = place.world("one")
    done = Scheduler(world, lambda: tables).tick()
    assert (done.puts, done.more) == (60 + 1, False) and done.skips > 26_000_000
    assert world.store.read(lambda tx: tx.schedule.counts("a")) == {
        "open": 60,
        "skipped": done.skips,
    }
    assert len(world.store.read(lambda tx: tx.schedule.since("a", 0))) == 61


def test_a_job_and_its_row_are_one_transaction(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = place.world("one")
    scheduler = Scheduler(world, lambda: [table("d", cadence="daily")])
    from kfm.store.schedule import ScheduleView

    def dies(self: Any, row: Any) -> None:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(ScheduleView, "put", dies)
        with pytest.raises(Killed):
            scheduler.tick()
    assert world.store.read(lambda tx: tx.jobs.listing()) == []
    assert scheduler.tick().puts == 1 and len(world.store.read(lambda tx: tx.jobs.listing())) == 1


def test_windows_cut_anew_are_looked_at_from_their_start(place: Place) -> None:
    world, tables = (
        place.world("one"),
        [table("d", cadence="daily", windows="1d", start="2026-03-05")],
    )
    scheduler = Scheduler(world, lambda: tables)
    assert scheduler.tick().puts == 2
    tables[0] = table("d", cadence="daily", windows="1d", start="2026-03-01")
    assert scheduler.tick().puts == 4, "the earlier ones, and not those that were visited"
    tables[0] = replace(tables[0], partitions=("", "west"))
    assert scheduler.tick().puts == 6, "all of the new partition, none of the old one"


def test_a_host_that_asks_to_be_left_alone_lengthens_the_wait(place: Place) -> None:
    until: list[dt.datetime | None] = [None]
    scheduler = Scheduler(
        place.world("one"),
        lambda: [table("d", cadence="real-time", interval="1m")],
        held=lambda dataset: until[0],
    )
    assert scheduler.tick().puts == 1
    until[0] = place.clock.moment + dt.timedelta(minutes=30)
    place.clock.step(dt.timedelta(minutes=5))
    assert (done := scheduler.tick()).puts == 0 and done.next_at == until[0]
    place.clock.step(dt.timedelta(minutes=25))
    assert scheduler.tick().puts == 1


def test_the_same_event_twice_is_one_and_postpones_the_poll(place: Place) -> None:
    world, found = place.world("one"), table("d", cadence="6h", event="6h")
    scheduler = Scheduler(world, lambda: [found])
    assert scheduler.tick().puts == 1
    place.clock.step(5 * HOUR)

    def heard() -> bool:
        answer: bool = world.store.transaction(
            lambda tx: on_event(tx, found, "abc", place.clock.now(), "hook")
        )
        return answer

    assert heard() and not heard()
    (job,) = world.store.read(lambda tx: tx.jobs.listing())
    assert job.reason == "event:hook d"
    place.clock.step(5 * HOUR)
    assert scheduler.tick().puts == 0, "it was heard of five hours ago"
    place.clock.step(HOUR)
    assert scheduler.tick().puts == 1


def test_what_was_heard_while_paused_is_asked_for_afterwards(place: Place) -> None:
    world, found = place.world("one"), table("d", cadence="annual")
    scheduler = Scheduler(world, lambda: [found])
    assert scheduler.tick().puts == 1
    world.store.transaction(lambda tx: pause(tx, found, "not now"))
    place.clock.step(HOUR)
    world.store.transaction(lambda tx: on_event(tx, found, "abc", place.clock.now(), "hook"))
    assert scheduler.tick().puts == 0
    world.store.transaction(lambda tx: pause(tx, found, None))
    assert scheduler.tick().puts == 1


def test_checkpoints_are_kept_in_the_store(place: Place) -> None:
    world = place.world("one")
    world.store.transaction(lambda tx: tx.schedule.set_checkpoint("cursor/d", "17"))
    assert place.store().read(lambda tx: tx.schedule.checkpoint("cursor/d")) == "17"
    world.store.transaction(lambda tx: tx.schedule.set_checkpoint("cursor/d", None))
    assert world.store.read(lambda tx: tx.schedule.checkpoint("cursor/d")) is None


def test_pool_and_priority_of_a_schedule_are_those_of_its_jobs(place: Place) -> None:
    world = place.world("one")
    maintenance = resolve(
        "tidy",
        Schedule(job_type="maintenance.gc", parameters={"apply": True}, cadence="daily"),
        None,
    )
    Scheduler(
        world, lambda: [table("d", cadence="daily", pool="slow", priority=7), maintenance]
    ).tick()
    jobs = {j.job_type: j for j in world.store.read(lambda tx: tx.jobs.listing())}
    assert (jobs["ingest.pull_source"].pool, jobs["ingest.pull_source"].priority) == ("slow", 7)
    assert msgspec.json.decode(jobs["maintenance.gc"].envelope)["parameters"] == {"apply": True}


def test_what_lies_below_the_checkpoint_is_not_looked_at_again(tmp_path: Path) -> None:
    place = Place("sqlite", tmp_path / "s.sqlite", Clock("2026-03-07T06:00:00Z"))
    found = table("d", cadence="5m", windows="5m", start="2025-03-25")
    world = place.world("one")
    scheduler = Scheduler(world, lambda: [found])
    floor = to_ms(place.clock.moment)
    world.store.transaction(
        lambda tx: tx.schedule.set_checkpoint(
            "floor/d", f"{floor} {to_ms(found.start)}/300/{found.zone}/"
        )
    )
    assert scheduler.tick().puts == 0, "a hundred thousand windows without a row"
    place.clock.step(dt.timedelta(minutes=5))
    assert scheduler.tick().puts == 1
    world.store.abandon()


# ---- the commands --------------------------------------------------------------------------------
def test_a_registered_cadence_is_enough_to_be_scheduled(kfm: Callable[..., Said], ws: Path) -> None:
    assert kfm("dataset", "new", "trees", "--url", "https://example.org/trees.csv").code == 0
    entry = ws / "data/registry/trees.yml"
    assert "cadence: daily" in entry.read_text()
    entry.write_text(entry.read_text().replace("cadence: daily\n", ""))
    said = kfm("doctor", "--json")
    assert said.code == 1 and [
        (f["code"], f["where"]) for f in said.json["findings"] if "schedule" in f["code"]
    ] == [("schedule.missing", "data/registry/trees.yml")]
    with (ws / "data/registry/trees.yml").open("a") as file:
        file.write("cadence: daily\n")
    assert not [f for f in kfm("doctor", "--json").json["findings"] if "schedule" in f["code"]]
    assert [s["cadence"] for s in kfm("schedule", "list", "trees", "--json").json["schedules"]] == [
        "daily"
    ]


def test_a_backfill_plan_is_enough_for_the_doctor_and_a_retired_dataset_needs_none(
    kfm: Callable[..., Said], ws: Path
) -> None:
    for name in ("trees", "stumps"):
        assert kfm("dataset", "new", name, "--url", "https://example.org/trees.csv").code == 0
        entry = ws / f"data/registry/{name}.yml"
        entry.write_text(entry.read_text().replace("cadence: daily\n", ""))
    plans = ws / "pipelines/orchestration/backfills"
    plans.mkdir(parents=True, exist_ok=True)
    (plans / "old_trees.yml").write_text("dataset: trees\n")
    assert kfm("dataset", "retire", "stumps", "--reason", "gone").code == 0
    assert not [
        f for f in kfm("doctor", "--json").json["findings"] if f["code"] == "schedule.missing"
    ]
    (bad,) = [
        f for f in kfm("doctor", "--json").json["findings"] if f["code"] == "backfill.invalid"
    ]
    assert bad["where"] == "backfills/old_trees.yml" and "`since`" in bad["what"]
    (plans / "old_trees.yml").write_text(
        "dataset: trees\nsince: 2020-01-01\nuntil: 2021-01-01\npartitioning: {window: 366d}\nexpected_runtime: 1h\n"
        "pool: default\nacceptance: {gates: all}\n"
    )
    assert not [f for f in kfm("doctor", "--json").json["findings"] if "backfill" in f["code"]]


def test_a_schedule_that_cannot_be_read_stops_its_dataset_and_no_other(
    kfm: Callable[..., Said], ws: Path
) -> None:
    path = ws / "pipelines/orchestration/schedules/ks_earthquakes.yml"
    path.write_text("dataset: ks_earthquakes\ncadence: 0 0 6 * * *\n")
    said = kfm("scheduler", "--once", "--json")
    assert (
        said.code == 1 and "seconds" in said.json["problems"][0]["what"] and said.json["puts"] == 3
    )
    assert "ks_earthquakes" not in [
        s["dataset"] for s in kfm("schedule", "list", "--json").json["schedules"]
    ]
    assert "schedule.invalid" in [f["code"] for f in kfm("doctor", "--json").json["findings"]]


def test_every_file_that_says_something_wrong_is_told_with_its_line_and_stops_no_other(
    kfm: Callable[..., Said], ws: Path
) -> None:
    folder = ws / "pipelines/orchestration/schedules"
    wrong = {
        "a": ("dataset: ks_sand\n", "line 1: there is no dataset"), "b": ("job_type: repair\ncadence: daily\n", "line 1: job_type is 'repair'"),
        "c": ("job_type: no.such\ncadence: daily\n", "line 1: There is no job type"), "d": ("cadance: daily\n", "line 1: there is no key `cadance`."),
        "e": ("job_type: maintenance.gc\ncadence: 0 6 30 2 *\n", "line 2: The cron line"),
        "f": ("job_type: maintenance.gc\ncadence: 1d\nstart: 0001-01-01\n", "line 3: start is"),
        "g": ("job_type: maintenance.gc\ncadence: daily\nparameters: {x: 1}\n", "maintenance.gc: Object contains unknown field `x`"),
    }  # fmt: skip
    for name, (text, _) in wrong.items():
        (folder / f"{name}.yml").write_text(text)
    (folder / "h.yml").symlink_to("nowhere")
    said = kfm("scheduler", "--once", "--json")
    assert (said.code, said.json["puts"]) == (1, 4)
    told = {p["file"]: p for p in said.json["problems"]}
    for name, (_, what) in wrong.items():
        assert told[f"schedules/{name}.yml"]["what"].startswith(what) and told[
            f"schedules/{name}.yml"
        ]["remedy"].startswith("Expected ")
    assert "does not exist" in told["schedules/h.yml"]["what"]
    assert (
        sum(f["code"] == "schedule.invalid" for f in kfm("doctor", "--json").json["findings"]) == 8
    )


def test_people_list_run_pause_and_resume(kfm: Callable[..., Said]) -> None:
    assert len(kfm("schedule", "next", "ks_stream_gauges", "-n", "3", "--json").json["next"]) == 3
    assert kfm("schedule", "pause", "ks_stream_gauges", "--reason", "river is dry").code == 0
    assert kfm("scheduler", "--once", "--json").json["puts"] == 3
    (row,) = kfm("schedule", "list", "ks_stream_gauges", "--json").json["schedules"]
    assert row["paused"].startswith("river is dry") and row["next_at"] is None
    assert kfm("schedule", "resume", "ks_stream_gauges").code == 0
    assert kfm("scheduler", "--once", "--json").json["puts"] == 1
    assert kfm("scheduler", "--once", "--json").json["puts"] == 0
    assert len(kfm("schedule", "run", "ks_stream_gauges", "--json").json["jobs"]) == 1
    assert (
        kfm("schedule", "event", "ks_stream_gauges", "--digest", "x", "--json").json["status"]
        == "heard"
    )
    assert (
        kfm("schedule", "event", "ks_stream_gauges", "--digest", "x", "--json").json["status"]
        == "heard_before"
    )
    assert "ks_stream_gauges" in kfm("schedule", "run", "ks_stream_gauge").err, "the nearest name"


def test_a_window_that_people_run_before_its_end_is_visited_after_it(
    kfm: Callable[..., Said], ws: Path
) -> None:
    from kfm.cli.scheduler import Tables
    from kfm.workspace.folder import open_workspace
    from kfm.workspace.wiring import open_world

    assert kfm("dataset", "new", "trees", "--url", "file:///inbox/trees.csv").code == 0
    entry = ws / "data/registry/trees.yml"
    source = re.sub(r"(?m)^(\s+)url:", r"\1time_column: day\n\1url:", entry.read_text(), count=1)
    entry.write_text(source)
    now = dt.datetime.now(dt.UTC)
    (ws / "pipelines/orchestration/schedules/trees.yml").write_text(
        f"dataset: trees\nwindows: 1d\nstart: {now.date()}\n"
    )
    said = kfm("schedule", "run", "trees", "--window", str(now.date()), "--json")
    assert said.code == 0 and said.json["window"].startswith(str(now.date()))
    workspace = open_workspace(ws)
    with open_world(workspace) as world:
        tables = Tables(workspace, world.toolchain_digest)
        scheduler = Scheduler(world, lambda: [tables.named("trees")])
        assert [scheduler.tick(now + hours).puts for hours in (0 * HOUR, DAY, DAY)] == [0, 1, 0]
        scheduler.release()


def test_the_host_of_a_dataset_that_asked_to_be_left_alone_is_left_alone(
    kfm: Callable[..., Said], ws: Path
) -> None:
    from kfm.fetch.host_limits import Manners
    from kfm.model.dataset import Polite

    assert kfm("dataset", "new", "trees", "--url", "https://trees.example:8443/trees.csv").code == 0
    (ws / "ledger/hosts").mkdir(parents=True, exist_ok=True)
    Manners(ws / "ledger/hosts", Polite()).answered("trees.example", 429, 3600)
    assert kfm("scheduler", "--once", "--json").json["puts"] == 4
    assert [
        j["dataset_id"] for j in kfm("jobs", "list", "--dataset", "trees", "--json").json["jobs"]
    ] == []
    (ws / "ledger/hosts/trees.example.json").write_text("{")
    assert kfm("scheduler", "--once", "--json").json["puts"] == 1, (
        "what cannot be read holds nobody"
    )


def test_polling_leaves_the_files_of_the_workspace_alone(
    kfm: Callable[..., Said], ws: Path
) -> None:
    subprocess.run(
        "git init -q . && git add -A && git -c user.name=t -c user.email=t@example.org commit -qm t",
        shell=True,
        cwd=ws,
        check=True,
    )
    assert kfm("scheduler", "--once").code == 0
    assert (
        subprocess.run(
            ["git", "status", "--short"], cwd=ws, capture_output=True, text=True, check=True
        ).stdout
        == ""
    )


def test_a_second_process_takes_over_within_a_lease_when_the_first_is_killed(ws: Path) -> None:
    (ws / "kfm.yml").write_text(
        re.sub(r"lease_seconds: \d+", "lease_seconds: 2", (ws / "kfm.yml").read_text())
    )
    command = [sys.executable, "-m", "kfm", "-w", str(ws), "scheduler"]
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    processes = []
    try:
        for _ in range(2):
            processes.append(
                subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment)
            )
            if len(processes) == 1:
                assert "scheduler.leads" in str(
                    processes[0].stderr and processes[0].stderr.readline()
                )
        processes[0].send_signal(signal.SIGKILL)
        processes[0].wait()
        assert "scheduler.leads" in str(processes[1].stderr and processes[1].stderr.readline())
        processes[1].send_signal(signal.SIGTERM)
        assert processes[1].wait(180) == 143
    finally:
        for process in processes:
            if process.poll() is None:
                process.kill()
            process.communicate()
