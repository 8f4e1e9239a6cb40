"""What people are told is so: status, explain, run, get and their kin against what is on disk."""

import datetime as dt
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kfm.clock import SystemClock
from kfm.config import change_entry
from kfm.sample_upstream import SampleUpstream
from kfm.wiring import open_world
from kfm.workspace import open_workspace
from tests.conftest import Said

QUAKES, GAUGES = "ks_earthquakes", "ks_stream_gauges"
Kfm = Callable[..., Said]


def state(kfm: Kfm, name: str = QUAKES) -> dict[str, Any]:
    found: dict[str, Any] = kfm("status", name, "--json").json["datasets"][0]
    return found


def ran(kfm: Kfm, *more: str, name: str = QUAKES) -> str:
    return str(kfm("run", name, "--json", *more).json["runs"][-1]["state"])


def set_back(monkeypatch: pytest.MonkeyPatch, **by: float) -> None:
    monkeypatch.setattr(SystemClock, "now", lambda self: dt.datetime.now(dt.UTC) - dt.timedelta(**by))


# ---- the newest look decides ---------------------------------------------------------------------------------------------
def test_an_outage_is_shown_until_the_next_look_that_ends_well(kfm: Kfm, ws: Path, sample: SampleUpstream) -> None:
    assert ran(kfm) == "COMMITTED"
    sample.control(QUAKES, mode="503")
    assert ran(kfm) == "FAILED"
    assert state(kfm)["state"] == "failed" and "503" in state(kfm)["reason"]
    sample.control(QUAKES, mode="ok")
    assert ran(kfm) == "NOOP"
    shown = state(kfm)
    assert (shown["state"], shown["reason"], shown["next"], shown["fresh"]) == ("official", "", None, True)
    assert kfm("status", "--json").json["attention"] == []
    assert kfm("explain", QUAKES, "--json").json["what"].endswith("COMMITTED."), "what is official is explained, not an outage that is over"
    assert kfm("reindex").code == 0
    assert state(kfm)["state"] == "official", "the evidence tells of the later look"
    sample.control(QUAKES, mode="503")
    assert ran(kfm) == "FAILED" and state(kfm)["state"] == "failed"
    assert kfm("reindex").code == 0
    assert state(kfm)["state"] == "failed", "and of the outage after it"


def test_the_newest_look_is_the_last_to_come_not_the_latest_by_the_clock(
    kfm: Kfm, ws: Path, sample: SampleUpstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert (ran(kfm), ran(kfm)) == ("COMMITTED", "NOOP")
    set_back(monkeypatch, hours=1)
    sample.control(QUAKES, mode="503")
    assert ran(kfm) == "FAILED" and state(kfm)["state"] == "failed"
    sample.control(QUAKES, mode="ok")
    set_back(monkeypatch, hours=2)
    assert ran(kfm) == "NOOP" and state(kfm)["state"] == "official"


def test_an_outage_hides_neither_a_proposal_that_waits_nor_a_denial(kfm: Kfm, ws: Path, sample: SampleUpstream) -> None:
    change_entry(ws, QUAKES, {"approvals": 1})
    change_entry(ws, GAUGES, {"licence": ""})
    assert (ran(kfm), ran(kfm, name=GAUGES)) == ("PROPOSED", "REJECTED")
    for name, said, following in ((QUAKES, "proposed", "kfm review 1"), (GAUGES, "denied", f"kfm explain deny {GAUGES}")):
        sample.control(name, mode="503")
        assert ran(kfm, name=name) == "FAILED"
        shown = state(kfm, name)
        assert (shown["state"], shown["next"]) == (said, following), shown
        assert "503" in shown["reason"], "that upstream is away is said beside it"
        assert kfm(*following.split()[1:]).code in (0, 3, 7)
        sample.control(name, mode="ok")
        assert ran(kfm, name=name) == "NOOP"
        shown = state(kfm, name)
        assert (shown["state"], "503" in shown["reason"]) == (said, False), shown


def test_a_denial_is_over_when_upstream_goes_back_to_what_is_official(kfm: Kfm, ws: Path, sample: SampleUpstream) -> None:
    assert ran(kfm) == "COMMITTED"
    entry = (ws / "data" / "registry" / f"{QUAKES}.yml").read_text()
    change_entry(ws, QUAKES, {"licence": ""})
    sample.control(QUAKES, revision=1)
    assert ran(kfm) == "REJECTED" and state(kfm)["state"] == "denied"
    (ws / "data" / "registry" / f"{QUAKES}.yml").write_text(entry)
    sample.control(QUAKES, revision=0)
    assert ran(kfm) == "NOOP" and state(kfm)["state"] == "official"


def test_a_look_at_one_partition_says_nothing_about_another(kfm: Kfm, ws: Path, tmp_path: Path) -> None:
    inbox = ws / "inbox"
    inbox.mkdir(exist_ok=True)
    for part in ("east", "west"):
        (inbox / f"{part}.csv").write_text("id,value\n1,2\n")
    entry = {
        "dataset_id": "halves", "title": "Halves", "licence": "CC0-1.0", "sensitivity": "public", "policy_label": "public",
        "partitions": ["east", "west"], "merge": "partition", "source": {"url": "file:///inbox/{partition}.csv", "format": "csv"}, "business_key": ["id"],
    }  # fmt: skip
    (ws / "data" / "registry" / "halves.yml").write_text(json.dumps(entry))
    assert kfm("run", "halves").code == 0
    (inbox / "east.csv").write_text("")
    assert [r["state"] for r in kfm("run", "halves", "--json").json["runs"]] == ["FAILED", "NOOP"]
    assert state(kfm, "halves")["state"] == "failed" and state(kfm, "halves")["reason"].startswith("east: ")
    (inbox / "east.csv").write_text("id,value\n1,2\n")
    assert kfm("run", "halves").code == 0
    assert state(kfm, "halves")["state"] == "official"


# ---- retired, and a clock that is behind --------------------------------------------------------------------------------------
def test_a_retired_dataset_is_left_out_with_a_word_and_shown_as_retired(kfm: Kfm, ws: Path, sample: SampleUpstream) -> None:
    assert kfm("run", "--all").code == 0
    assert kfm("dataset", "retire", QUAKES, "--reason", "its agency is gone").code == 0
    sample.control(QUAKES, mode="503")
    said = kfm("run", "--all", "--json")
    assert (said.code, QUAKES in [r["dataset_id"] for r in said.json["runs"]]) == (0, False)
    assert f"{QUAKES}" in said.err and "retired: its agency is gone" in said.err
    shown, attention = state(kfm), kfm("status", "--json").json["attention"]
    assert (shown["state"], shown["reason"], shown["next"]) == ("retired", "retired: its agency is gone", None)
    assert shown["version_id"] and [a for a in attention if a["what"] == QUAKES] == []
    assert kfm("run", QUAKES).code in (3, 4), "asked for by name it is looked at, and denied"
    assert state(kfm)["state"] == "retired" and "retired" in kfm("status").out
    change_entry(ws, GAUGES, {"retired": "too"})
    change_entry(ws, "ks_weather_stations", {"retired": "too"})
    assert kfm("run", "--all", "--json").json == {"runs": []}, "and when none is left, nothing is wrong"


def test_a_clock_behind_what_is_official_is_named_and_beyond_a_day_refused(
    kfm: Kfm, ws: Path, sample: SampleUpstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert ran(kfm) == "COMMITTED"
    sample.control(QUAKES, revision=1)
    set_back(monkeypatch, hours=3)
    said = kfm("run", QUAKES, "--json")
    assert said.json["runs"][0]["state"] == "COMMITTED" and "The clock says" in said.err and "hours before generation 1" in said.err
    monkeypatch.undo()
    monkeypatch.setenv("KFM_SAMPLE_UPSTREAM", sample.url)
    assert ran(kfm, "--force", "--reason", "dated by the right clock") in ("COMMITTED", "NOOP")
    sample.control(QUAKES, revision=2)
    assert ran(kfm) == "COMMITTED" and "clock" not in kfm("run", QUAKES).err
    made, sample_was = sorted((ws / "data" / "catalog" / "channels" / QUAKES).iterdir()), state(kfm)["version_id"]
    set_back(monkeypatch, days=2000)
    sample.control(QUAKES, revision=3)
    change_entry(ws, QUAKES, {"approvals": 0})
    for command in (
        ("run", QUAKES), ("rollback", QUAKES, "--reason", "try"), ("withdraw", QUAKES, "--reason", "try"),
        ("withdraw", QUAKES, "--record", "id=x", "--reason", "try"),
    ):  # fmt: skip
        said = kfm(*command)
        assert said.code == 2 and "1,999 days" in said.out + said.err and "--clock-ok" in said.out + said.err, command
    assert sorted((ws / "data" / "catalog" / "channels" / QUAKES).iterdir()) == made and state(kfm)["version_id"] == sample_was
    assert kfm("rollback", QUAKES, "--reason", "the clock is right", "--clock-ok").code == 0
    assert ran(kfm) == "COMMITTED", "the newest generation is dated by this clock now"


def test_a_proposal_is_not_promoted_and_nothing_resumed_by_a_clock_that_is_behind(
    kfm: Kfm, ws: Path, sample: SampleUpstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert ran(kfm) == "COMMITTED"
    sample.control(QUAKES, revision=1)
    assert kfm("propose", QUAKES).code == 7
    set_back(monkeypatch, days=30)
    said = kfm("promote", QUAKES)
    assert said.code == 2 and "--clock-ok" in said.err and state(kfm)["state"] == "proposed"
    assert kfm("promote", QUAKES, "--clock-ok").code == 0 and state(kfm)["generation"] == 2
