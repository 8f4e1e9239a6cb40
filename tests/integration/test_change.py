"""So much changes at once that something may be wrong: the version waits for a person, with the
numbers and the command.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.given.stand import Stand, answer


@pytest.fixture
def stand(tmp_path: Path) -> Iterator[Stand]:
    with Stand(tmp_path) as found:
        yield found


def csv(rows: Any, **changed: int) -> bytes:
    return answer("id,value\n" + "".join(f"{i},{changed.get(f'r{i}', i * 10)}\n" for i in rows))


def waits(stand: Stand, name: str, *words: str) -> dict[str, Any]:
    """Run it and see the version wait; what is official stays, and the numbers and the command are
    told.
    """
    before = stand.official()
    outcome = stand.run(name)
    assert (outcome["state"], outcome["exit_code"]) == ("PROPOSED", 7), outcome
    assert stand.official() == before
    told = f"{outcome['reason']} {outcome['remedy']}"
    assert all(word in told for word in words), told
    return outcome


def test_half_the_rows_wait_with_the_numbers_and_the_command(stand: Stand) -> None:
    stand.register("feed", {"format": "csv"}, business_key=["id"])
    stand.publish("feed", csv(range(1000)))
    stand.speaker.says["/feed"] = csv(range(531))
    outcome = waits(stand, "feed", "1,000 → 531 rows, −47 %", "--accept-change")
    assert outcome["change"].startswith("1,000 → 531 rows, −47 %, 469 removed")
    looked = stand("review", str(outcome["proposal"])).out
    kfm = f"kfm -w {stand.ws}"
    assert f"`{kfm} diff feed proposal/2` shows it" in looked, looked
    assert f"`{kfm} reject 2` does not" in looked, looked
    assert "proposal/N" not in looked
    status = stand("status", "feed", "--json").json["datasets"][0]
    assert status["state"] == "proposed"
    again = stand.run("feed")
    assert (again["state"], again["exit_code"]) == ("NOOP", 7)


def test_the_operators_word_suffices_where_nobody_has_to_approve(stand: Stand) -> None:
    stand.register("feed", {"format": "csv"}, business_key=["id"])
    stand.publish("feed", csv(range(100)))
    stand.speaker.says["/feed"] = csv(range(50))
    outcome = waits(stand, "feed")
    assert stand("run", "feed", "--accept-change").code == 2, "it wants a reason"
    said = stand("run", "feed", "--accept-change", "--reason", "half were sold", "--json")
    made = said.json["runs"][-1]
    assert (said.code, made["state"], made["generation"]) == (0, "COMMITTED", 2), made
    signed = list(
        (stand.ws / "data/work/feed/proposals" / outcome["run_id"] / "acceptances").iterdir()
    )
    assert len(signed) == 1 and json.loads(signed[0].read_bytes())["signatures"]
    assert stand("verify", "feed").code == 0


def test_a_word_is_about_the_change_that_was_seen(stand: Stand) -> None:
    stand.register("feed", {"format": "csv"}, business_key=["id"])
    stand.publish("feed", csv(range(100)))
    stand.speaker.says["/feed"] = csv(range(70))
    waits(stand, "feed")
    stand.speaker.says["/feed"] = csv(range(2))
    said = stand("run", "feed", "--accept-change", "--reason", "70 is right", "--json")
    assert (
        said.code == 7
        and "more changes now than in what waited, 100 → 70 rows" in said.json["runs"][-1]["reason"]
    )
    assert stand("run", "feed", "--accept-change", "--reason", " ").code == 2
    assert stand("run", "--all", "--accept-change", "--reason", "all of it").code == 2
    stand.speaker.says["/feed"] = csv(range(3))
    said = stand("run", "feed", "--accept-change", "--reason", "one more came", "--json")
    assert (said.code, said.json["runs"][-1]["change"]) == (0, "100 → 3 rows, −97 %, 97 removed")


def test_it_does_not_suffice_where_people_must_approve(stand: Stand) -> None:
    stand.register("feed", {"format": "csv"}, business_key=["id"])
    stand.publish("feed", csv(range(100)))
    stand.register("feed", {"format": "csv"}, business_key=["id"], approvals=1)
    stand.speaker.says["/feed"] = csv(range(50))
    said = stand("run", "feed", "--accept-change", "--reason", "because")
    assert said.code == 7 and "--accept-change does not suffice" in said.out
    assert stand("status", "feed", "--json").json["datasets"][0]["generation"] == 1


def test_an_acceptance_of_other_bytes_does_not_count(stand: Stand) -> None:
    stand.register("feed", {"format": "csv"}, business_key=["id"])
    stand.publish("feed", csv(range(100)))
    stand.speaker.says["/feed"] = csv(range(50))
    first = waits(stand, "feed")
    folder = stand.ws / "data/work/feed/proposals"
    stand.speaker.says["/feed"] = csv(range(40))
    second = waits(stand, "feed")
    assert (second["proposal"], second["run_id"]) == (first["proposal"], second["run_id"])
    stand.speaker.says["/feed"] = csv(range(50))
    third = waits(stand, "feed")
    assert stand("run", "feed", "--accept-change", "--reason", "right").code == 0
    kept = next((folder / third["run_id"] / "acceptances").iterdir()).read_bytes()
    stand.speaker.says["/feed"] = csv(range(20))
    fourth = waits(stand, "feed")
    (folder / fourth["run_id"] / "acceptances").mkdir()
    (folder / fourth["run_id"] / "acceptances" / "planted.json").write_bytes(kept)
    assert stand("promote", str(fourth["proposal"])).code == 7
    assert stand("status", "feed", "--json").json["datasets"][0]["generation"] == 2


def test_a_newer_capture_with_the_same_change_keeps_the_place(stand: Stand) -> None:
    stand.register("feed", {"format": "csv"}, business_key=["id"])
    stand.publish("feed", csv(range(100)))
    stand.speaker.says["/feed"] = csv(range(50))
    first = waits(stand, "feed")
    stand.speaker.says["/feed"] = csv(range(51))
    second = waits(stand, "feed", "100 → 51 rows")
    assert second["proposal"] == first["proposal"]
    waiting = stand("review", "--json").json["proposals"]
    assert [(p["proposal"], p["version_id"]) for p in waiting] == [
        (first["proposal"], second["version_id"])
    ]


def test_most_rows_with_other_values_wait(stand: Stand) -> None:
    stand.register("feed", {"format": "csv"}, business_key=["id"])
    stand.publish("feed", csv(range(100)))
    stand.speaker.says["/feed"] = csv(range(100), **{f"r{i}": -i for i in range(1, 60)})
    waits(stand, "feed", "59 of 100 rows hold other values")


def test_other_keys_in_the_place_of_the_old_ones_wait(stand: Stand) -> None:
    stand.register("feed", {"format": "csv"}, business_key=["id"])
    stand.publish("feed", csv(range(100)))
    stand.speaker.says["/feed"] = csv(range(30, 130))
    waits(stand, "feed", "30 of 100 rows would be deleted")


def test_a_table_without_a_key_is_guarded_too(stand: Stand) -> None:
    stand.register("feed", {"format": "csv"})
    stand.publish("feed", csv(range(100)))
    stand.speaker.says["/feed"] = csv(range(100), **{f"r{i}": -i for i in range(1, 60)})
    waits(stand, "feed", "59 of 100 rows hold other values")
    stand.speaker.says["/feed"] = csv(range(70))
    waits(stand, "feed", "100 → 70 rows, −30 %")


@pytest.mark.parametrize(
    ("first", "then", "more"),
    [
        pytest.param(range(100), range(85), {}, id="a few"),
        pytest.param(range(12), range(2), {}, id="ten rows or fewer"),
        pytest.param(
            range(100), range(5), {"cadence": "real-time", "interval": "1m"}, id="of now alone"
        ),
        pytest.param(
            range(100), range(5), {"change": {"rows": None, "deletions": None}}, id="as registered"
        ),
        pytest.param(range(100), range(300), {}, id="growth"),
    ],
)
def test_what_may_change_is_published_and_told(
    stand: Stand, first: range, then: range, more: dict[str, Any]
) -> None:
    stand.register("feed", {"format": "csv"}, business_key=["id"], **more)
    stand.publish("feed", csv(first))
    stand.speaker.says["/feed"] = csv(then)
    printed = stand("run", "feed")
    share = f"{abs(len(then) - len(first)) / len(first):.0%}".replace("%", " %")
    change = f"{len(first)} → {len(then)} rows, {'+' if len(then) > len(first) else '−'}{share}"
    assert printed.code == 0 and f"generation 2  {change}" in printed.out, printed


def test_what_the_registry_or_the_updater_changes_does_not_count(stand: Stand) -> None:
    """Every cell of a column by another unit, then half of the rows under another updater; what
    changes under the same rules counts again.
    """

    def given(version: str = "1.0.0", **value: str) -> None:
        columns = [
            {"from": "id", "to": "id", "type": "integer"},
            {"from": "value", "to": "value", "type": "number", "unit": "m", **value},
        ]
        (folder / "mapping.yml").write_text(json.dumps({"columns": columns}))
        stand.register("feed", {"kind": "delimited"}, business_key=["id"], pipeline_version=version)

    folder = stand.ws / "scripts/connectors/feed"
    folder.mkdir(parents=True)
    given()
    stand.publish("feed", csv(range(100)))
    given(source_unit="ft")
    assert stand.publish("feed")["change"] == "100 → 100 rows"
    given("1.1.0", source_unit="ft")
    assert stand.publish("feed", csv(range(50)))["change"] == "100 → 50 rows, −50 %"
    stand.speaker.says["/feed"] = csv(range(20))
    waits(stand, "feed", "50 → 20 rows, −60 %")


def test_what_is_withdrawn_does_not_count(stand: Stand) -> None:
    stand.register("feed", {"format": "csv"}, business_key=["id"])
    some = {f"r{n}": -7 for n in range(40)}
    stand.publish("feed", csv(range(100), **some))
    said = stand("withdraw", "feed", "--record", "value=-7", "--reason", "asked for", "--yes")
    assert said.code == 0
    stand.register("feed", {"format": "csv"}, business_key=["id"])  # a withdrawal leaves a salt
    outcome = stand.publish("feed", csv(range(101), **some))
    assert (outcome["change"], outcome["generation"]) == ("60 → 61 rows, +1.67 %, 1 added", 3)


def test_an_answer_that_stands_for_now_alone_may_shrink(stand: Stand) -> None:
    """Alerts that are over; the list of stations, by the same kind, accumulates."""

    def features(count: int, **said: Any) -> bytes:
        found = [
            {
                "type": "Feature",
                "id": f"https://api.weather.gov/x/a{n}",
                "geometry": {"type": "Point", "coordinates": [-97.0, 38.0 + n / 100]},
                "properties": {
                    "id": f"a{n}",
                    "stationIdentifier": f"K{n:03}",
                    "name": f"Station {n}",
                    "geocode": {"SAME": [], "UGC": []},
                    "references": [],
                    "expires": "2019-09-03T06:15:00-05:00",
                    "event": "Flood Warning",
                },
            }
            for n in range(count)
        ]
        return answer({"type": "FeatureCollection", "features": found} | said)

    for name in ("alerts", "stations"):
        stand.register(name, {"kind": "nws", "options": {"resource": name}})
        stand.publish(name, features(100))
        stand.speaker.says[f"/{name}"] = features(5)
    assert stand.publish("alerts")["change"].startswith("100 → 5 rows, −95 %")
    waits(stand, "stations", "100 → 5 rows, −95 %")


def test_the_old_key_is_read_as_the_share_of_rows(stand: Stand) -> None:
    stand.register("feed", {"format": "csv"}, business_key=["id"], quality={"max_row_change": 0.6})
    stand.publish("feed", csv(range(100)))
    stand.speaker.says["/feed"] = csv(range(45))
    outcome = waits(stand, "feed", "55 of 100 rows would be deleted")
    assert "fewer rows that pass alone" not in outcome["reason"]


DAY = 86_400_000
NOW = 1_780_000_000_000  # 2026-05-28


def quakes(days: Any, made: int = NOW, mag: float = 1.0, **updated: int) -> bytes:
    features = [
        {
            "type": "Feature",
            "id": f"e{d}",
            "properties": {
                "mag": mag,
                "time": NOW - d * DAY // 20,
                "updated": updated.get(f"e{d}", NOW - d * DAY // 20),
                "type": "earthquake",
                "ids": f",e{d},",
            },
            "geometry": {"type": "Point", "coordinates": [-98.0, 38.0, 5.0]},
        }
        for d in days
    ]
    metadata = {
        "generated": made,
        "url": "https://example.org/summary/all_month.geojson",
        "count": len(features),
    }
    return answer({"type": "FeatureCollection", "metadata": metadata, "features": features})


QUAKES = {"kind": "usgs_quakes", "format": "geojson"}


@pytest.mark.parametrize(
    "cadence", [{}, {"cadence": "real-time", "interval": "1m"}], ids=["daily", "real-time"]
)
def test_a_thin_answer_retracts_nothing_by_itself(stand: Stand, cadence: dict[str, Any]) -> None:
    stand.register("feed", QUAKES, merge="upsert", **cadence)
    stand.publish("feed", quakes(range(400)))
    stand.speaker.says["/feed"] = quakes([0, 399], made=NOW + DAY)
    outcome = waits(stand, "feed", "398", "--accept-change")
    assert any("398 deleted upstream" in w for w in outcome["warnings"]), outcome
    stand.speaker.says["/feed"] = quakes(range(3, 400), made=NOW + DAY)
    outcome = stand.publish("feed")
    assert (
        "3 marked as deleted" in outcome["change"]
        and "3 deleted upstream" in outcome["warnings"][0]
    )


def test_a_stale_mirror_is_not_taken_and_both_stamps_are_named(stand: Stand) -> None:
    stand.register("feed", QUAKES)
    stand.publish("feed", quakes(range(50)))
    stand.speaker.says["/feed"] = quakes(range(48), made=NOW - DAY, mag=2.0)
    before = stand.official()
    outcome = stand.run("feed")
    assert (outcome["state"], outcome["exit_code"]) == ("NOOP", 0)
    assert "2026-05-27T" in outcome["reason"] and "2026-05-28T" in outcome["reason"]
    assert stand.official() == before
    assert stand("status", "feed", "--json").json["datasets"][0]["state"] == "official"
    said = stand("run", "feed", "--force", "--reason", "upstream restored it", "--json")
    assert (said.code, said.json["runs"][-1]["state"]) == (7, "PROPOSED")
    assert "before the official one" in said.json["runs"][-1]["reason"]
    assert stand("run", "feed", "--accept-change", "--reason", "upstream restored it").code == 0


def test_an_older_release_of_ghcn_is_not_taken_and_both_stamps_are_named(stand: Stand) -> None:
    station = "USC00144530"

    def release(day: int, months: int) -> None:
        tree = {
            "ghcnd-version.txt": (
                f"The current version of GHCN Daily is 3.32-upd-202611{day:02}18 (i.e, an update)\n"
                "that started at 18:00 and was created from 3.32-por-2026110100 (i.e, built)\n"
            ),
            "ghcnd-stations.txt": f"{station}  38.1822  -99.0992  611.1 KS LARNED\n",
            f"all/{station}.dly": "".join(
                f"{station}2019{month:02}TMAX" + f"{200 + months:5}   " * 28 + "-9999   " * 3 + "\n"
                for month in range(1, months + 1)
            ),
        }
        stand.speaker.says |= {f"/daily/{path}": answer(text) for path, text in tree.items()}

    url = f"{stand.speaker.url}/daily/"
    stand.register("daily", {"kind": "ghcnd", "url": url, "options": {"stations": [station]}})
    release(9, 12)
    stand.publish("daily")
    before = stand.official()
    release(8, 6)
    outcome = stand.run("daily")
    assert (outcome["state"], outcome["exit_code"]) == ("NOOP", 0), outcome
    assert all(f"2026-11-0{day}T18:00:00Z" in outcome["reason"] for day in (8, 9)), outcome
    assert stand.official() == before
    said = stand("run", "daily", "--force", "--reason", "upstream restored it", "--json")
    proposed = said.json["runs"][-1]
    assert (said.code, proposed["state"]) == (7, "PROPOSED"), proposed
    assert "at 2026-11-08T18:00:00Z, before the official one of 2026-11-09" in proposed["reason"]
    assert stand.official() == before


def test_a_table_of_nwis_that_was_retrieved_before_the_official_one_is_not_taken(
    stand: Stand,
) -> None:
    def table(retrieved: str, value: float) -> bytes:
        head = "agency_cd\tsite_no\tdatetime\t7_00060_00003\t7_00060_00003_cd\n5s\t15s\t20d\t14n\t10s\n"
        rows = "".join(
            f"USGS\t07141220\t2020-01-{day:02d}\t{value + day}\tA\n" for day in range(1, 20)
        )
        return answer(
            f"# retrieved: {retrieved} EST\n#  7   00060   00003   Discharge, cubic feet per second (Mean)\n{head}{rows}"
        )

    stand.register("gauge", {"kind": "nwis", "format": "rdb"})
    stand.publish("gauge", table("2020-02-20 16:35:50", 1.0))
    before, stand.speaker.says["/gauge"] = stand.official(), table("2020-02-19 16:35:50", 2.0)
    outcome = stand.run("gauge")
    assert (outcome["state"], outcome["exit_code"]) == ("NOOP", 0) and stand.official() == before
    assert (
        "2020-02-19T21:35:50Z" in outcome["reason"] and "2020-02-20T21:35:50Z" in outcome["reason"]
    )


def test_an_answer_from_the_future_keeps_nothing_out(stand: Stand) -> None:
    stand.register("feed", QUAKES)
    stand.publish("feed", quakes(range(50)))
    stand.speaker.says["/feed"] = quakes(range(51), made=4_000_000_000_000)
    assert any("not believed" in w for w in stand.publish("feed")["warnings"])
    assert stand.publish("feed", quakes(range(52), made=NOW + 1000))["generation"] == 3
    stand.speaker.says["/feed"] = quakes(range(40), made=NOW - DAY)
    assert stand.run("feed")["state"] == "NOOP", "the last believable stamp stands"


def test_what_comes_back_without_a_stamp_is_what_upstream_says_now(stand: Stand) -> None:
    stand.register("feed", {"format": "csv"}, business_key=["id"])
    stand.publish("feed", csv(range(50)))
    stand.publish("feed", csv(range(51)))
    assert stand.publish("feed", csv(range(50)))["generation"] == 3


def test_the_next_honest_feed_corrects_a_poisoned_revision(stand: Stand) -> None:
    stand.register("feed", QUAKES, merge="upsert", max_quarantined=0.05)
    stand.publish("feed", quakes(range(100)))
    stand.speaker.says["/feed"] = quakes(
        range(100), made=NOW + 1000, mag=1.0, e7=253_370_764_800_000
    )
    stand.run("feed")
    stand.speaker.says["/feed"] = quakes(range(100), made=NOW + 2000, e7=NOW, e8=NOW)
    stand.publish("feed")
    import pyarrow.parquet as pq

    table = next(
        (stand.ws / "data/processed/feed" / stand.good["feed"]["version_id"]).glob("*.parquet")
    )
    rows = {r["event_id"]: r for r in pq.read_table(table).to_pylist()}
    assert rows["e7"]["updated_at"].year == 2026 and len(rows) == 100
