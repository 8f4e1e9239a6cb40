"""When is it due: cron lines over clock changes, windows of 23 and 25 hours, and a decision that
depends on nothing but its arguments.
"""

import datetime as dt
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kfm.jobs.schedule.cadence import Timetable, resolve, to_ms
from kfm.jobs.schedule.cron import check_cron, next_after
from kfm.jobs.schedule.due import BATCH, decide, settled, visited
from kfm.model.clock import rfc3339
from kfm.model.dataset import DatasetEntry
from kfm.model.errors import UsageError
from kfm.model.schedule import CADENCES, Schedule, VisitRow, trigger_of
from kfm.upkeep.freshness import delta_minutes
from kfm.workspace import config

CHICAGO = ZoneInfo("America/Chicago")
ROOT = Path(__file__).parents[2]
ENTRY = msgspec.convert(
    {
        "dataset_id": "trees",
        "title": "Trees",
        "cadence": "daily",
        "source": {"url": "https://example.org/t.csv", "format": "csv"},
    },
    DatasetEntry,
)


def at(text: str) -> dt.datetime:
    return dt.datetime.fromisoformat(text)


def table(**more: Any) -> Timetable:
    return resolve("trees", Schedule(dataset="trees", **more), ENTRY, mark=more.pop("mark", ""))


def nexts(line: str, after: str, count: int) -> list[str]:
    found = [at(after)]
    while len(found) <= count:
        found.append(next_after(line, found[-1], CHICAGO))
    return [m.astimezone(CHICAGO).strftime("%d %H:%M %Z") for m in found[1:]]


# ---- cron ----------------------------------------------------------------------------------------
def test_a_time_that_the_change_to_summer_time_leaves_out_runs_once_at_the_first_moment_after() -> (
    None
):
    assert nexts("30 2 * * *", "2026-03-07T12:00:00-06:00", 2) == ["08 03:00 CDT", "09 02:30 CDT"]
    assert nexts("0,30 2,3 * * *", "2026-03-08T00:00:00-06:00", 3) == [
        "08 03:00 CDT",
        "08 03:30 CDT",
        "09 02:00 CDT",
    ], "one moment is one"


def test_a_time_that_comes_twice_runs_the_first_time_only() -> None:
    assert nexts("30 1 * * *", "2026-10-31T12:00:00-05:00", 2) == ["01 01:30 CDT", "02 01:30 CST"]
    assert nexts("45 1 * * *", "2026-11-01T01:30:00-06:00", 1) == ["02 01:45 CST"], (
        "asked in the second of the two hours"
    )


def test_a_line_by_elapsed_time_runs_in_both_hours_of_a_pair_and_in_none_of_a_gap() -> None:
    assert nexts("0 * * * *", "2026-11-01T00:30:00-05:00", 3) == [
        "01 01:00 CDT",
        "01 01:00 CST",
        "01 02:00 CST",
    ]
    assert nexts("0 * * * *", "2026-03-08T01:30:00-06:00", 1) == ["08 03:00 CDT"]


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("0 0 6 * * *", "seconds"), ("0 0 6 * * * 2026", "years"), ("* * * *", "4 fields"), ("@daily", "macros"), ("@reboot", "@reboot"),
        ("@every 5m", "macros"), ("0 6 ? * *", "Quartz"), ("0 6 L * *", "`L` and `W`"), ("0 6 15W * *", "`L` and `W`"), ("0 6 * * 5L", "`L` and `W`"),
        ("0 6 LW * *", "`L` and `W`"), ("0 6 * * 1#2", "`#`"), ("5/15 * * * *", "step after a single number"), ("0 6 * * MON-FRI/2", "step after a name"),
        ("0 6 * * 7", "Saturday to Quartz"), ("0 6 1 * MON", "day of the week"), ("0 6 */2 * 1-5", "day of the week"), ("H 6 * * *", "Jenkins"),
        ("~ 6 * * *", "random"), ("60 6 * * *", "bad minute"), ("0 6 30 2 *", "never run"), ("0 6 31 4,6 *", "never run"), ("*/61 * * * *", "longer than its range"), ("0 */24 * * *", "longer than its range"), ("*/0 * * * *", "bad minute"), ("0 6 * * ABC", "bad day-of-week"),
    ],
)  # fmt: skip
def test_what_crons_read_differently_is_refused_with_what_to_write_instead(
    line: str, why: str
) -> None:
    with pytest.raises(UsageError) as refused:
        check_cron(line)
    assert why in refused.value.happened and refused.value.remedy


@pytest.mark.parametrize(
    "line",
    [
        "*/15 * * * *",
        "0 6 * * 1-5",
        "0  6 1,15 * *",
        "30 4 * JUL *",
        "0-30/10 1-5 * * *",
        "0 6 * * SUN",
    ],
)
def test_what_every_cron_reads_alike_is_accepted(line: str) -> None:
    assert check_cron(line) == " ".join(line.split())


# ---- cadences ------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("cadence", "expected"),
    [
        ("daily", "2026-03-09T05:00:00Z"), ("weekly", "2026-03-09T05:00:00Z"), ("annual", "2027-01-01T06:00:00Z"), ("6h", "2026-03-08T18:00:00Z"),
        ("0 6 * * *", "2026-03-09T11:00:00Z"), ("1d", "2026-03-09T05:00:00Z"),
    ],
)  # fmt: skip
def test_a_cadence_goes_by_the_clock_of_its_time_zone(cadence: str, expected: str) -> None:
    found = table(cadence=cadence, time_zone="America/Chicago")
    assert rfc3339(found.next_tick(at("2026-03-08T12:00:00Z"))) == expected


@pytest.mark.parametrize(
    ("more", "fault"),
    [
        ({"cadence": "real-time", "interval": "30s"}, "every 30s"), ({"cadence": "real-time", "interval": "6m"}, "every 6m"),
        ({"cadence": "20s"}, "every 20s"), ({"cadence": "sometimes"}, "cadence is"), ({"interval": "2m"}, "belongs to"),
        ({"windows": "1d"}, "begin nowhere"), ({"windows": "1d", "start": "yesterday"}, "is not a time"), ({"windows": "10s", "start": "2026-01-01"}, "windows is"),
        ({"event": "1s"}, "event is"), ({"jitter": "some"}, "jitter is"), ({"time_zone": "Kansas"}, "time_zone"), ({"job_type": "repair"}, "no work, or two"),
        ({"parameters": {"a": 1}}, "belong to"), ({"cadence": "static", "windows": "1d", "start": "2026-01-01"}, "static"),
        ({"revisit": ("soon",)}, "revisit is"), ({"cadence": "99999999w"}, "cadence is"), ({"jitter": "99999999w"}, "jitter is"),
        ({"cadence": "1d", "start": "0001-01-01", "time_zone": "Asia/Tokyo"}, "start is"), ({"windows": "1d", "start": "9998-12-31"}, "start is"),
        ({"windows": "1d", "start": "0001-01-01T00:00:00+14:00"}, "start is"),
    ],
)  # fmt: skip
def test_a_schedule_that_cannot_work_is_refused(more: dict[str, Any], fault: str) -> None:
    with pytest.raises(UsageError) as refused:
        table(**more)
    assert fault in refused.value.happened and refused.value.expected


def test_a_dataset_without_a_cadence_anywhere_is_refused() -> None:
    with pytest.raises(UsageError, match="no cadence"):
        resolve("x", Schedule(dataset="trees"), msgspec.structs.replace(ENTRY, cadence=None))


def test_an_unknown_key_is_refused_with_its_nearest_name(tmp_path: Path) -> None:
    (tmp_path / "x.yml").write_text("dataset: trees\ncadance: daily\n")
    with pytest.raises(UsageError) as refused:
        config.load_schedule(tmp_path, tmp_path / "x.yml")
    assert "`cadance`" in refused.value.happened and "`cadence`" in refused.value.remedy


def test_every_cadence_has_an_example_that_can_be_read(tmp_path: Path) -> None:
    orchestration = ROOT / "src/kfm/template/pipelines/orchestration"
    (tmp_path / "data/registry").mkdir(parents=True)
    seen = set()
    for path in sorted((orchestration / "examples").glob("*.yml")):
        name = config.parse(path.read_bytes(), path.name)["dataset"]
        (tmp_path / "data/registry" / f"{name}.yml").write_text(
            f"dataset_id: {name}\ntitle: T\nsource: {{url: 'https://example.org/t.csv', format: csv}}\n"
        )
        seen.add(config.load_schedule(tmp_path, path).cadence)
    assert set(CADENCES) < seen and any(" " in c for c in seen), "and a cron line"
    assert [
        config.load_schedule(tmp_path, p).job_type
        for p in sorted((orchestration / "schedules").glob("*.yml"))
    ] == ["maintenance.compact"]


def test_every_kansas_dataset_has_its_schedule() -> None:
    tables = [
        config.load_schedule(ROOT / "kansas", path)
        for path in config.schedule_files(ROOT / "kansas")
    ]
    assert [t.dataset for t in tables] == config.registered(ROOT / "kansas")
    assert {"real-time", "weekly", "annual", "static"} < {t.cadence for t in tables} and any(
        t.window_s for t in tables
    )


# ---- windows -------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("zone", "start"), [("Pacific/Apia", "2011-12-28"), ("Pacific/Kwajalein", "1993-08-19")]
)
def test_a_day_that_a_zone_left_out_is_no_window(zone: str, start: str) -> None:
    found = table(cadence="daily", time_zone=zone, windows="1d", start=start)
    days = list(islice(found.windows(found.start), 4))
    assert [day.until - day.since for day in days] == [dt.timedelta(days=1)] * 4
    assert [found.window_by(day.until) for day in days] == days
    assert {row.slot for row in decide(found, days[-1].until, 0, ()).puts} == {
        day.text for day in days
    }


DAYS = table(
    cadence="daily",
    time_zone="America/Chicago",
    windows="1d",
    start="2026-03-07",
    revisit=("1d", "7d"),
)


def test_days_have_23_or_25_hours_when_clocks_change() -> None:
    def hours(start: str) -> list[float]:
        found = table(time_zone="America/Chicago", windows="1d", start=start)
        return [
            (w.until - w.since).total_seconds() / 3600
            for w in islice(found.windows(found.start), 3)
        ]

    assert hours("2026-03-07") == [24, 23, 24] and hours("2026-10-31") == [24, 25, 24]


def test_a_day_begins_at_the_first_moment_where_midnight_is_left_out() -> None:
    found = table(time_zone="America/Santiago", windows="1d", start="2026-09-05")
    assert [w.text for w in islice(found.windows(found.start), 2)] == [
        "2026-09-05T04:00:00Z/2026-09-06T04:00:00Z", "2026-09-06T04:00:00Z/2026-09-07T03:00:00Z",
    ]  # fmt: skip
    half_past = table(time_zone="America/Chicago", windows="1d", start="2026-03-07T02:30:00-06:00")
    assert next(half_past.windows(half_past.start)).until == at("2026-03-08T03:00:00-05:00")


@given(
    st.datetimes(dt.datetime(2026, 1, 1), dt.datetime(2027, 12, 1), timezones=st.just(dt.UTC)),
    st.sampled_from(["1d", "2d", "1w", "6h", "1h", "7m"]),
    st.sampled_from(["America/Chicago", "UTC", "America/Santiago", "Australia/Lord_Howe"]),
)
def test_windows_meet_and_none_is_left_out(moment: dt.datetime, length: str, zone: str) -> None:
    found = table(time_zone=zone, windows=length, start="2026-01-01")
    first, second = islice(found.windows(moment), 2)
    assert first.since <= max(moment, found.start) < first.until == second.since < second.until


@given(
    st.datetimes(dt.datetime(2026, 1, 1), dt.datetime(2027, 12, 1), timezones=st.just(dt.UTC)),
    st.sampled_from(["daily", "1d", "6h", "0 2 * * *", "real-time", "90d"]),
)
def test_the_last_tick_and_the_next_one_have_nothing_between_them(
    now: dt.datetime, cadence: str
) -> None:
    found = table(cadence=cadence, time_zone="America/Chicago")
    assert (
        found.last_tick(now) <= now < found.next_tick(now) == found.next_tick(found.last_tick(now))
    )


# ---- the decision --------------------------------------------------------------------------------
def put_all(
    found: Timetable, now: str, rows: list[VisitRow], floor: int | None = None
) -> tuple[list[VisitRow], list[VisitRow]]:
    """(what is put at `now`, all rows afterwards); the jobs of before have succeeded."""
    done = [msgspec.structs.replace(r, outcome=r.outcome or "done") for r in rows]
    decision = decide(found, at(now), to_ms(found.start) if floor is None else floor, done)
    written = {(r.slot, r.partition): r for r in (*done, *decision.puts, *decision.skips)}
    return list(decision.puts), list(written.values())


def test_a_window_is_put_once_it_has_ended_and_not_again() -> None:
    puts, rows = put_all(DAYS, "2026-03-08T05:59:59Z", [])
    assert puts == []
    puts, rows = put_all(DAYS, "2026-03-08T06:00:00Z", rows)
    assert [p.slot for p in puts] == ["2026-03-07T06:00:00Z/2026-03-08T06:00:00Z"]
    assert put_all(DAYS, "2026-03-08T06:05:00Z", rows)[0] == []


def test_revisits_come_a_day_and_a_week_after_the_end_and_no_more() -> None:
    one = replace(DAYS, catch_up="latest")
    _, rows = put_all(one, "2026-03-08T06:00:00Z", [])
    seen = []
    for hour in range(1, 24 * 12):
        moment = rfc3339(at("2026-03-08T06:00:00Z") + dt.timedelta(hours=hour))
        puts, rows = put_all(one, moment, rows)
        seen += [(moment, p.n) for p in puts if p.slot.startswith("2026-03-07T06")]
    assert seen == [("2026-03-09T06:00:00Z", 1), ("2026-03-15T06:00:00Z", 2)]


def test_a_first_visit_after_months_stands_for_the_revisits_that_lie_behind_it() -> None:
    puts, _ = put_all(DAYS, "2026-06-01T05:00:00Z", [])
    assert len(puts) == 86 and (puts[0].n, puts[0].due_at) == (2, None), (
        "all of them are behind the oldest"
    )
    assert (puts[-1].n, puts[-1].due_at) == (0, to_ms(at("2026-06-02T05:00:00Z")))


def test_what_was_missed_is_made_up_for_by_the_policy() -> None:
    now = "2026-03-20T05:00:10Z"
    newest = "2026-03-19T05:00:00Z/2026-03-20T05:00:00Z"
    assert len(put_all(DAYS, now, [])[0]) == 13
    assert len(put_all(replace(DAYS, max_windows=3), now, [])[0]) == 4, (
        "three that were missed, and the one of this moment"
    )
    _, known = put_all(replace(DAYS, max_windows=3), now, [])
    earlier = replace(DAYS, start=at("2026-03-05T06:00:00Z"), max_windows=3)
    assert [p.slot[:10] for p in put_all(earlier, now, known)[0]] == ["2026-03-05", "2026-03-06"], (
        "what was visited does not count"
    )
    puts, rows = put_all(replace(DAYS, catch_up="latest"), now, [])
    assert [p.slot for p in puts] == [newest] and sum(
        r.n for r in rows if r.outcome == "skipped"
    ) == 12
    assert [p.slot for p in put_all(replace(DAYS, catch_up="none"), now, [])[0]] == [newest]
    assert put_all(replace(DAYS, catch_up="none"), "2026-03-20T06:00:00Z", [])[0] == [], (
        "an hour late is missed"
    )


def test_more_than_one_transaction_should_hold_goes_into_the_next() -> None:
    hours = replace(DAYS, window_s=3600, cron="0 * * * *")
    decision = decide(hours, at("2026-05-01T00:00:00Z"), to_ms(hours.start), [])
    assert decision.more and len(decision.puts) == BATCH
    rest = decide(hours, at("2026-05-01T00:00:00Z"), decision.floor, decision.puts)
    assert not {p.slot for p in rest.puts} & {p.slot for p in decision.puts} and rest.puts[
        0
    ].slot.startswith(decision.puts[-1].slot[21:])
    capped = replace(hours, max_windows=2)
    first = decide(capped, at("2026-05-01T00:00:00Z"), to_ms(hours.start), [])
    assert not first.more and [p.slot[11:13] for p in first.puts] == ["21", "22", "23"], (
        "what is left out takes no transaction of its own"
    )


@pytest.mark.parametrize(
    ("more", "puts"),
    [({"catch_up": "latest"}, 60), ({"catch_up": "none"}, 60), ({"max_windows": 3}, 63)],
)
def test_fifty_years_of_minutes_are_left_out_at_once_by_one_row(
    more: dict[str, Any], puts: int
) -> None:
    found = table(cadence="1h", windows="1m", start="1976-01-01", **more)
    decision = decide(found, at("2026-11-10T01:00:00Z"), to_ms(found.start), [])
    (skipped,) = decision.skips
    assert (len(decision.puts), decision.more, decision.floor) == (
        puts,
        False,
        to_ms(at("2026-11-10T01:00:00Z")),
    )
    first = at(decision.puts[0].slot[:20])
    assert (
        skipped.slot == f"1976-01-01T00:00:00Z/{rfc3339(first)}"
        and skipped.n == (first - found.start).total_seconds() // 60
    )
    anew = decide(found, at("2026-11-10T01:00:00Z"), to_ms(found.start), [*decision.puts, skipped])
    assert (anew.puts, anew.skips) == ([], []), (
        "looked at from the start, it is known what was left out"
    )


def test_a_new_partition_is_made_up_for_where_others_were_left_out() -> None:
    capped = replace(DAYS, max_windows=3)
    _, known = put_all(capped, "2026-03-20T05:00:10Z", [])
    puts, rows = put_all(replace(capped, partitions=("", "west")), "2026-03-20T05:00:10Z", known)
    assert [(p.partition, p.slot[:10]) for p in puts] == [
        ("west", f"2026-03-{day}") for day in (16, 17, 18, 19)
    ]
    assert [(r.partition, r.n) for r in rows if r.outcome == "skipped"] == [("", 9), ("west", 9)]


def test_known_windows_without_end_are_looked_at_by_the_batch() -> None:
    hours = replace(
        DAYS, window_s=3600, cron="0 * * * *", start=at("2020-01-01T00:00:00Z"), revisit_s=()
    )
    now, floor = at("2021-06-01T00:00:00Z"), to_ms(hours.start)
    rows = [
        VisitRow(
            subject="trees",
            partition="",
            slot=w.text,
            ends_at=to_ms(w.until),
            puts=1,
            put_ms=to_ms(now),
            outcome="done",
        )
        for w in islice(hours.windows(hours.start), 12_000)
    ]
    first = decide(hours, now, floor, rows)
    assert first.more and not first.puts and floor < first.floor < rows[-1].ends_at
    assert decide(hours, now, first.floor, rows).puts[0].ends_at == rows[-1].ends_at + 3_600_000


def test_a_window_that_was_put_before_its_end_is_visited_after_it() -> None:
    window = next(DAYS.windows(DAYS.start))
    early = VisitRow(subject="trees", partition="", slot=window.text, ends_at=to_ms(window.until))
    row = visited(DAYS, early, window.until - dt.timedelta(hours=1))
    assert [p.slot for p in put_all(DAYS, rfc3339(window.until), [row])[0]] == [window.text]
    failed = settled(row, "dead", "boom", window.until - dt.timedelta(hours=1))
    assert [p.fails for p in decide(DAYS, window.until, to_ms(DAYS.start), [failed]).puts] == [1], (
        "its retry is that visit, and not a second"
    )


def test_a_failed_window_stays_open_and_is_tried_again_after_a_pause_that_grows() -> None:
    (row,), _ = put_all(DAYS, "2026-03-08T06:00:00Z", [])
    pauses = []
    now = at("2026-03-08T06:00:00Z")
    for _ in range(7):
        row = settled(row, "dead", "boom", now)
        pauses.append((row.due_at or 0) - to_ms(now))
        assert (row.outcome, row.error) == ("failed", "boom")
        now = dt.datetime.fromtimestamp((row.due_at or 0) / 1000, dt.UTC)
        assert [
            p.slot for p in decide(DAYS, now, to_ms(at("2026-03-30T00:00:00Z")), [row]).puts
        ] == [row.slot]
        row = visited(DAYS, row, now)
    assert pauses == [h * 3_600_000 for h in (1, 2, 4, 8, 16, 24, 24)]
    assert settled(row, "succeeded", "", now).fails == 0
    assert settled(row, "cancelled", "", now).due_at == row.due_at, (
        "what a person cancelled is not tried again by itself"
    )


def test_moments_of_a_whole_dataset_that_were_missed_become_one() -> None:
    found = table(cadence="daily")
    puts, rows = put_all(found, "2026-03-08T12:00:00Z", [])
    assert len(puts) == 1, "the first look is at once"
    puts, rows = put_all(found, "2026-03-12T12:00:00Z", rows)
    assert len(puts) == 1 and put_all(found, "2026-03-12T23:59:00Z", rows)[0] == []
    assert len(put_all(found, "2026-03-13T00:00:00Z", rows)[0]) == 1


def test_static_runs_once_and_again_when_its_spec_changes() -> None:
    found = replace(table(cadence="static"), mark="one")
    puts, rows = put_all(found, "2026-03-08T12:00:00Z", [])
    assert len(puts) == 1 and put_all(found, "2036-03-08T12:00:00Z", rows)[0] == []
    puts, rows = put_all(replace(found, mark="two"), "2036-03-08T12:00:00Z", rows)
    assert (
        len(puts) == 1
        and put_all(replace(found, mark="two"), "2036-03-09T12:00:00Z", rows)[0] == []
    )


def test_what_is_told_about_asks_by_itself_only_when_it_has_heard_nothing() -> None:
    found = table(cadence="6h", event="6h")
    _, rows = put_all(found, "2026-03-08T11:00:00Z", [])
    assert (
        put_all(found, "2026-03-08T16:59:00Z", rows)[0] == []
        and len(put_all(found, "2026-03-08T17:00:00Z", rows)[0]) == 1
    )


def test_a_clock_that_goes_back_doubles_nothing() -> None:
    _, rows = put_all(DAYS, "2026-03-20T05:00:10Z", [])
    for hours in (1, 12, 23):
        assert (
            put_all(DAYS, rfc3339(at("2026-03-20T05:00:10Z") - dt.timedelta(hours=hours)), rows)[0]
            == []
        )
    whole = table(cadence="daily")
    _, rows = put_all(whole, "2026-03-20T00:05:00Z", [])
    assert (
        put_all(whole, "2026-03-19T23:00:00Z", rows)[0] == []
        and put_all(whole, "2026-03-20T00:00:00Z", rows)[0] == []
    )
    live = table(cadence="real-time", interval="5m")
    _, rows = put_all(live, "2026-03-20T00:05:00Z", [])
    assert (
        put_all(live, "2026-03-19T23:30:00Z", rows)[0] == []
        and len(put_all(live, "2026-03-19T20:00:00Z", rows)[0]) == 1
    ), "but is not silent"


def test_what_a_clock_that_was_a_year_ahead_has_visited_is_visited_again() -> None:
    _, rows = put_all(DAYS, "2027-03-20T05:00:10Z", [])
    assert len(put_all(DAYS, "2026-03-10T05:00:00Z", rows)[0]) == 3
    for policy in ("latest", "none"):
        _, rows = put_all(replace(DAYS, catch_up=policy), "2027-03-20T05:00:10Z", [])
        assert len(put_all(replace(DAYS, catch_up=policy), "2026-03-10T05:00:00Z", rows)[0]) == 1, (
            "nor is what it left out"
        )
    whole = table(cadence="daily")
    _, rows = put_all(whole, "2027-03-20T00:05:00Z", [])
    assert len(put_all(whole, "2026-03-20T01:00:00Z", rows)[0]) == 1


@given(st.integers(0, 10**6), st.integers(1, 10**5))
def test_jitter_is_the_same_every_time_and_below_its_bound(number: int, jitter: int) -> None:
    found = replace(DAYS, jitter_s=jitter)
    spread = found.spread(str(number))
    assert dt.timedelta() <= spread < dt.timedelta(seconds=jitter) and spread == replace(
        DAYS, jitter_s=jitter
    ).spread(str(number))


def test_jitter_spreads_and_loses_no_window() -> None:
    found = replace(
        DAYS, jitter_s=3 * 3600, revisit_s=(), window_s=3600, cron="0 * * * *"
    )  # a later window may be due before an earlier one
    rows: list[VisitRow] = []
    seen: list[str] = []
    floor = to_ms(found.start)
    for minute in range(0, 60 * 27, 7):
        now = found.start + dt.timedelta(minutes=minute)
        decision = decide(found, now, floor, [r for r in rows if r.ends_at >= floor])
        rows += decision.puts
        floor = decision.floor
        seen += [p.slot for p in decision.puts]
        assert all(now >= at(p.slot[21:]) for p in decision.puts)
    assert len(seen) == len(set(seen)) and {
        w.text for w in islice(found.windows(found.start), 24)
    } <= set(seen)
    assert seen != sorted(seen)


def test_jitter_beyond_the_cadence_leaves_nothing_out() -> None:
    found = replace(
        DAYS, jitter_s=3 * 3600, revisit_s=(), window_s=3600, cron="0 * * * *", catch_up="latest"
    )
    rows: list[VisitRow] = []
    for minute in range(0, 60 * 27, 7):
        decision = decide(
            found, found.start + dt.timedelta(minutes=minute), to_ms(found.start), rows
        )
        rows += decision.puts
        assert decision.skips == []
    assert {w.text for w in islice(found.windows(found.start), 24)} <= {r.slot for r in rows}


# ---- small things --------------------------------------------------------------------------------
def test_what_started_a_job_is_read_from_its_reason() -> None:
    assert trigger_of("cron:scheduler@box:12 trees, revisit 1 of 2") == "cron:scheduler@box:12"
    assert (
        trigger_of("event:user:ada trees") == "event:user:ada"
        and trigger_of("because I say so") == "manual"
    )


def test_freshness_is_told_from_source_event_time_against_the_target() -> None:
    entry = msgspec.structs.replace(ENTRY, freshness="2h")
    now = at("2026-03-08T12:00:00Z")
    assert delta_minutes(entry, now, "2026-03-08T11:00:00Z", "2026-03-08T11:59:00Z") == -60
    assert (
        delta_minutes(entry, now + dt.timedelta(minutes=90), "2026-03-08T11:00:00Z", None) == 30
    ), "the clock moved, the data did not"
    assert delta_minutes(entry, now, None, "2026-03-08T09:00:00Z") == 60, (
        "no event time: the last look"
    )
    assert (
        delta_minutes(entry, now, "2026-03-07", None) == 36 * 60 - 120
        and delta_minutes(entry, now, None, None) is None
    )
