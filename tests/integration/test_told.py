"""What people are told is so: status, explain, run, get and their kin against what is on disk."""

import datetime as dt
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kfm.cli import main
from kfm.model.clock import SystemClock
from kfm.samples.upstream import SampleUpstream
from kfm.upkeep.derived import owed
from kfm.workspace.config import change_entry
from kfm.workspace.folder import open_workspace
from kfm.workspace.wiring import open_world
from tests.given.services import schema_url, shared_server
from tests.given.verbs import Said, tree

QUAKES, GAUGES = "ks_earthquakes", "ks_stream_gauges"
Kfm = Callable[..., Said]


def state(kfm: Kfm, name: str = QUAKES) -> dict[str, Any]:
    found: dict[str, Any] = kfm("status", name, "--json").json["datasets"][0]
    return found


def ran(kfm: Kfm, *more: str, name: str = QUAKES) -> str:
    return str(kfm("run", name, "--json", *more).json["runs"][-1]["state"])


def set_back(monkeypatch: pytest.MonkeyPatch, **by: float) -> None:
    monkeypatch.setattr(
        SystemClock, "now", lambda self: dt.datetime.now(dt.UTC) - dt.timedelta(**by)
    )


# ---- the newest look decides ---------------------------------------------------------------------
@pytest.mark.parametrize("store", ["sqlite", "postgres"])
def test_an_outage_is_shown_until_the_next_look_that_ends_well(
    kfm: Kfm, ws: Path, sample: SampleUpstream, store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if store == "postgres":
        monkeypatch.setenv("KFM_TEST_STORE", schema_url(shared_server()))
        told = (ws / "kfm.yml").read_text()
        (ws / "kfm.yml").write_text(
            re.sub(r"(?m)^store:.*\n", "", told) + "store: env:KFM_TEST_STORE\n"
        )
    assert ran(kfm) == "COMMITTED"
    sample.control(QUAKES, mode="503")
    assert ran(kfm) == "FAILED"
    assert state(kfm)["state"] == "failed" and "503" in state(kfm)["reason"]
    sample.control(QUAKES, mode="ok")
    assert ran(kfm) == "NOOP"
    shown = state(kfm)
    assert (shown["state"], shown["reason"], shown["next"], shown["fresh"]) == (
        "official",
        "",
        None,
        True,
    )
    assert kfm("status", "--json").json["attention"] == []
    assert (
        kfm("explain", QUAKES, "--json")
        .json["what"]
        .partition(" Looked at again")[0]
        .endswith("COMMITTED.")
    ), "what is official is explained, not an outage that is over"
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


def test_an_outage_hides_neither_a_proposal_that_waits_nor_a_denial(
    kfm: Kfm, ws: Path, sample: SampleUpstream
) -> None:
    change_entry(ws, QUAKES, {"approvals": 1})
    change_entry(ws, GAUGES, {"licence": ""})
    assert (ran(kfm), ran(kfm, name=GAUGES)) == ("PROPOSED", "REJECTED")
    for name, said, following in (
        (QUAKES, "proposed", "kfm review 1"),
        (GAUGES, "denied", f"kfm explain deny {GAUGES}"),
    ):
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


def test_a_denial_is_over_when_upstream_goes_back_to_what_is_official(
    kfm: Kfm, ws: Path, sample: SampleUpstream
) -> None:
    assert ran(kfm) == "COMMITTED"
    entry = (ws / "data" / "registry" / f"{QUAKES}.yml").read_text()
    change_entry(ws, QUAKES, {"licence": ""})
    sample.control(QUAKES, revision=1)
    assert ran(kfm) == "REJECTED" and state(kfm)["state"] == "denied"
    (ws / "data" / "registry" / f"{QUAKES}.yml").write_text(entry)
    sample.control(QUAKES, revision=0)
    assert ran(kfm) == "NOOP" and state(kfm)["state"] == "official"


def test_a_look_at_one_partition_says_nothing_about_another(
    kfm: Kfm, ws: Path, tmp_path: Path
) -> None:
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
    assert state(kfm, "halves")["state"] == "failed" and state(kfm, "halves")["reason"].startswith(
        "east: "
    )
    (inbox / "east.csv").write_text("id,value\n1,2\n")
    assert kfm("run", "halves").code == 0
    assert state(kfm, "halves")["state"] == "official"


# ---- retired, and a clock that is behind ---------------------------------------------------------
def test_a_retired_dataset_is_left_out_with_a_word_and_shown_as_retired(
    kfm: Kfm, ws: Path, sample: SampleUpstream
) -> None:
    assert kfm("run", "--all").code == 0
    assert kfm("dataset", "retire", QUAKES, "--reason", "its agency is gone").code == 0
    sample.control(QUAKES, mode="503")
    said = kfm("run", "--all", "--json")
    assert (said.code, QUAKES in [r["dataset_id"] for r in said.json["runs"]]) == (0, False)
    assert f"{QUAKES}" in said.err and "retired: its agency is gone" in said.err
    shown, attention = state(kfm), kfm("status", "--json").json["attention"]
    assert (shown["state"], shown["reason"], shown["next"]) == (
        "retired",
        "retired: its agency is gone",
        None,
    )
    assert shown["version_id"] and [a for a in attention if a["what"] == QUAKES] == []
    assert kfm("run", QUAKES).code == 2, (
        "asked for by name it is refused before anything is fetched"
    )
    assert state(kfm)["state"] == "retired" and "retired" in kfm("status").out
    change_entry(ws, GAUGES, {"retired": "too"})
    change_entry(ws, "ks_weather_stations", {"retired": "too"})
    assert kfm("run", "--all", "--json").json == {"runs": []}, (
        "and when none is left, nothing is wrong"
    )


def test_a_clock_behind_what_is_official_is_named_and_beyond_a_day_refused(
    kfm: Kfm, ws: Path, sample: SampleUpstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert ran(kfm) == "COMMITTED"
    sample.control(QUAKES, revision=1)
    set_back(monkeypatch, hours=3)
    said = kfm("run", QUAKES, "--json")
    assert (
        said.json["runs"][0]["state"] == "COMMITTED"
        and "The clock says" in said.err
        and "hours before generation 1" in said.err
    )
    monkeypatch.undo()
    monkeypatch.setenv("KFM_SAMPLE_UPSTREAM", sample.url)
    assert ran(kfm, "--force", "--reason", "dated by the right clock") in ("COMMITTED", "NOOP")
    sample.control(QUAKES, revision=2)
    assert ran(kfm) == "COMMITTED" and "clock" not in kfm("run", QUAKES).err
    made, sample_was = (
        sorted((ws / "data" / "catalog" / "channels" / QUAKES).iterdir()),
        state(kfm)["version_id"],
    )
    set_back(monkeypatch, days=2000)
    sample.control(QUAKES, revision=3)
    change_entry(ws, QUAKES, {"approvals": 0})
    for command in (
        ("run", QUAKES), ("rollback", QUAKES, "--reason", "try"), ("withdraw", "--yes", QUAKES, "--reason", "try"),
        ("withdraw", "--yes", QUAKES, "--record", "id=x", "--reason", "try"),
    ):  # fmt: skip
        said = kfm(*command)
        assert (
            said.code == 2
            and "1,999 days" in said.out + said.err
            and "--clock-ok" in said.out + said.err
        ), command
    assert (
        sorted((ws / "data" / "catalog" / "channels" / QUAKES).iterdir()) == made
        and state(kfm)["version_id"] == sample_was
    )
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


# ---- what nobody asked for -----------------------------------------------------------------------
def test_a_plain_run_leaves_no_job_behind_and_offers_what_could_be_made(
    kfm: Kfm, ws: Path, sample: SampleUpstream
) -> None:
    change_entry(ws, QUAKES, {"derive": ["tiles", "search"]})
    said = kfm("run", "--all")
    assert said.code == 0 and kfm("jobs", "list", "--json", "--limit", "99").json["jobs"] != []
    assert [j for j in kfm("jobs", "list", "--json").json["jobs"] if j["state"] != "ended"] == []
    offered = [
        line.partition("no worker is there: kfm ")[2]
        for line in said.err.splitlines()
        if "no worker is there" in line
    ]
    assert [o.split("run-job ")[1] for o in offered] == [
        f"{kind} --dataset kfm://dataset/{QUAKES}"
        for kind in ("transform.build_tiles", "index.build_embeddings")
    ]
    status = kfm("status", "--json").json
    assert status["attention"] == [] and "✕" not in kfm("status").out
    assert kfm(*offered[1].split()).code == 0 and kfm("search", "kansas").code == 0
    with open_world(open_workspace(ws)) as world:  # a worker that looks later owes what is left
        token = world.store.transaction(lambda tx: tx.leases.take("worker/me", "me", 60))
        assert owed(world, QUAKES) == ["transform.build_tiles"]
        world.store.transaction(lambda tx: tx.leases.release(token))
    assert (
        kfm(
            "worker",
            "run-job",
            "ingest.pull_source",
            "--dataset",
            f"kfm://dataset/{QUAKES}",
            "--json",
        ).code
        == 0
    )
    with open_world(open_workspace(ws)) as world:
        assert owed(world, QUAKES) == []


def test_waiting_for_a_worker_is_a_hint_and_one_dataset_is_shown_alone(
    kfm: Kfm, ws: Path, sample: SampleUpstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert kfm("run", GAUGES).code == 0
    sample.control(QUAKES, mode="503")
    assert ran(kfm) == "FAILED"
    assert (
        kfm("jobs", "put", "validate.qa_dataset", "--dataset", f"kfm://dataset/{GAUGES}").code == 0
    )
    assert kfm("switch", "off", "ks_weather_stations", "--reason", "moved").code == 0
    set_back(monkeypatch, hours=-1)  # an hour later
    found = {a["kind"]: a for a in kfm("status", "--json").json["attention"]}
    assert set(found) == {"failed", "failing", "waiting", "off"}
    assert "no worker runs" in found["waiting"]["why"] and found["waiting"]["next"] == "kfm up"
    assert (
        "the next when a worker runs" in found["failing"]["why"]
        and " at " not in found["failing"]["why"].partition(":")[0]
    )
    assert found["failing"]["next"] == f"kfm run {QUAKES}"
    once = kfm("status", QUAKES).out.splitlines()
    assert len([line for line in once if QUAKES in line and "kfm " not in line]) == 1, once
    assert any("the next when a worker runs" in line for line in once), "it is told beside it"
    waiting = kfm("jobs", "list", "--state", "queued").out
    assert "not before" not in waiting and "failed" in waiting
    alone = kfm("status", GAUGES, "--json").json
    assert (alone["attention"], alone["pools"], list(alone["freshness"])) == ([], [], [GAUGES])
    shown = kfm("status", GAUGES).out
    assert (
        "✕" not in shown
        and QUAKES not in shown
        and "ks_weather_stations" not in shown
        and "pool" not in shown
    )
    assert {a["kind"] for a in kfm("status", QUAKES, "--json").json["attention"]} == {
        "failed",
        "failing",
    }
    sample.control(QUAKES, mode="ok")
    assert kfm(*found["failing"]["next"].split()[1:]).code == 0
    assert {a["kind"] for a in kfm("status", "--json").json["attention"]} == {"waiting", "off"}
    assert state(kfm, "ks_weather_stations")["next"] == "kfm switch on ks_weather_stations", (
        "what is off does not run"
    )


# ---- a message names what works in that very state -----------------------------------------------
def named(said: Said) -> list[str]:
    """The commands that a refusal names, without the program."""
    return re.findall(r"`kfm ([^`…]+)`", said.err)


def test_what_leads_to_an_official_version_is_named_from_where_a_dataset_is(
    kfm: Kfm, ws: Path, sample: SampleUpstream
) -> None:
    none = kfm("get", QUAKES)
    assert none.code == 2 and named(none) == [f"run {QUAKES}"]
    sample.control(QUAKES, mode="503")
    assert named(kfm("run", QUAKES)) == [f"run {QUAKES}"]
    assert named(kfm("get", QUAKES)) == [f"explain run {QUAKES}"]
    sample.control(QUAKES, mode="ok")
    change_entry(ws, QUAKES, {"approvals": 1})
    change_entry(ws, GAUGES, {"licence": ""})
    assert (ran(kfm), ran(kfm, name=GAUGES)) == ("PROPOSED", "REJECTED")
    for name, following in ((QUAKES, "review 1"), (GAUGES, f"explain deny {GAUGES}")):
        for command in (("get",), ("cite",), ("bundle", "-o", str(ws / "out.zip"))):
            said = kfm(*command, name)
            assert said.code == 2 and named(said) == [following], (command, said.err)
        assert kfm(*following.split()).code in (3, 7), "and that command speaks of it"


def test_a_proposal_is_shown_not_handed_out_and_a_misspelt_name_gets_the_nearest(
    kfm: Kfm, ws: Path, sample: SampleUpstream
) -> None:
    assert ran(kfm) == "COMMITTED"
    sample.control(QUAKES, revision=1)
    proposed = kfm("propose", QUAKES, "--json").json["runs"][0]
    number = str(proposed["proposal"])
    for command in (("get",), ("cite",), ("bundle", "-o", str(ws / "out.zip")), ("verify",)):
        assert named(kfm(*command, f"proposal/{number}")) == [f"review {number}"]
    assert named(kfm("get", f"{QUAKES}@{proposed['version_id'][:12]}")) == [f"review {number}"]
    assert named(kfm("get", f"{QUAKES}@v{'0' * 12}")) == [f"runs {QUAKES}"]
    assert proposed["run_id"] in kfm("explain", f"proposal/{number}").out
    for command in ("status", "explain", "get", "verify", "run"):
        said = kfm(command, "ks_earthquake")
        assert said.code == 2 and named(said) == [f"{command} {QUAKES}"], command
    assert "1 to 1" in kfm("explain", f"{QUAKES}@7").err
    assert state(kfm, f"kfm://dataset/{QUAKES}")["dataset_id"] == QUAKES


def test_a_file_that_is_not_there_is_said_to_be_missing(
    kfm: Kfm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path / "empty")
    for what in ("nofile.zip", "no file", "./nofile", "nofile", "Proof.ZIP"):
        assert main(["verify", what]) == 2
        said = capsys.readouterr().err
        assert (
            f"There is no file or folder {what}" in said and "is not a kfm workspace" not in said
        ), what
    assert "There is no file or folder nofile.zip" in kfm("verify", "nofile.zip").err
    assert main(["verify"]) == 2 and "is not a kfm workspace" in capsys.readouterr().err


def test_going_back_to_what_is_official_says_that_it_is(kfm: Kfm, sample: SampleUpstream) -> None:
    assert ran(kfm) == "COMMITTED"
    first = state(kfm)["version_id"]
    said = kfm("rollback", QUAKES, "--to", first, "--reason", "try")
    assert said.code == 2 and "already" in said.err and "There is no earlier one" in said.err
    sample.control(QUAKES, revision=1)
    assert ran(kfm) == "COMMITTED"
    for to in (state(kfm)["version_id"], "2", f"{QUAKES}@2"):
        said = kfm("rollback", QUAKES, "--to", to, "--reason", "try")
        assert (
            said.code == 2
            and "official of ks_earthquakes already, by generation 2" in said.err
            and f"kfm rollback {QUAKES}" in said.err
        )
    assert "no version of" in kfm("rollback", QUAKES, "--to", f"{GAUGES}@1", "--reason", "try").err


def test_a_receipt_leads_back_to_the_version_it_names(
    kfm: Kfm, ws: Path, sample: SampleUpstream
) -> None:
    assert ran(kfm) == "COMMITTED"
    first, (receipt,) = state(kfm)["version_id"], list((ws / "receipts").rglob("*.json"))
    for revision in (1, 2):  # so that it is not the one a rollback goes back to anyway
        sample.control(QUAKES, revision=revision)
        assert ran(kfm) == "COMMITTED" and state(kfm)["version_id"] != first
    assert kfm("rollback", GAUGES, "--receipt", str(receipt), "--reason", "try").code == 2
    assert kfm("rollback", "--receipt", str(receipt), "--to", first, "--reason", "try").code == 2
    (ws / "other.json").write_text("{}")
    assert (
        "is no receipt"
        in kfm("rollback", "--receipt", str(ws / "other.json"), "--reason", "try").err
    )
    assert (
        kfm("rollback", "--reason", "try").code == 2
        and kfm("rollback", "--receipt", "gone.json", "--reason", "try").code == 2
    )
    said = kfm("rollback", "--receipt", str(receipt), "--reason", "it was right", "--json")
    assert (said.code, said.json["version_id"], state(kfm)["version_id"]) == (0, first, first)


def test_an_error_in_a_log_is_one_line_for_each_sentence(kfm: Kfm, ws: Path) -> None:
    """Whoever searches a log finds a sentence, and whoever copies a path has all of it, however
    long it is.
    """
    path = ws / ("deep-" * 40) / "no receipt.json"
    path.parent.mkdir()
    path.write_text("{}")
    said = kfm("rollback", "--receipt", str(path), "--reason", "try")
    assert said.code == 2 and f"{path} is no receipt" in said.err.splitlines()[0]
    assert [line.split()[0] for line in said.err.splitlines()[1:]] == ["expected", "next"]


def test_an_act_of_a_person_is_explained_and_not_the_last_run(
    kfm: Kfm, ws: Path, sample: SampleUpstream
) -> None:
    assert ran(kfm) == "COMMITTED"
    sample.control(QUAKES, revision=1)
    assert ran(kfm) == "COMMITTED"
    made = [kfm("explain", f"{QUAKES}@{n}", "--json").json["facts"]["version"] for n in (1, 2)]
    assert made[1] == state(kfm)["version_id"] != made[0]
    assert kfm("rollback", QUAKES, "--reason", "a bad feed").code == 0
    back = kfm("explain", QUAKES, "--json").json
    assert (
        "Generation 3" in back["what"]
        and made[0] in back["what"]
        and back["facts"]["why"] == "a bad feed"
        and back["facts"]["when"]
    )
    said = kfm(
        "withdraw",
        "--yes",
        QUAKES,
        "--record",
        f"event_id={_first_id(ws)}",
        "--reason",
        "a private pond",
        "--authority",
        "R. Stone",
    )
    assert said.code == 0, said.err
    less = kfm("explain", QUAKES, "--json").json
    assert "Generation 4" in less["what"] and "withdrew records" in less["what"]
    assert (less["facts"]["why"], less["facts"]["authority"], less["facts"]["official"]) == (
        "a private pond",
        "R. Stone",
        state(kfm)["version_id"],
    )
    assert (
        kfm("explain", f"{QUAKES}@{state(kfm)['version_id']}", "--json").json["what"]
        == less["what"]
    ), "no run made what is left"
    assert kfm("withdraw", "--yes", QUAKES, "--reason", "all of it").code == 0
    gone = kfm("explain", QUAKES)
    assert (
        "withdrew the whole dataset" in gone.out
        and "all of it" in gone.out
        and "COMMITTED" not in gone.out
    )
    refused = kfm("get", QUAKES)
    assert refused.code == 3 and named(refused) == [f"explain {QUAKES}@5"]
    assert kfm("reindex").code == 0 and "withdrew the whole dataset" in kfm("explain", QUAKES).out


def _first_id(ws: Path) -> str:
    import pyarrow.parquet as pq

    return str(
        pq.read_table(next((ws / "data" / "processed" / QUAKES).rglob("*.parquet")))["event_id"][
            0
        ].as_py()
    )


@pytest.mark.parametrize(
    "options",
    [
        ("--url", "https://data.example/x", "--format", "toml"),
        ("--url", "https://data.example/x", "--format", "XML", "--kind", "delimited"),
        ("--url", "https://data.example/x.csv", "--format", "geojson", "--kind", "delimited"),
        ("--url", "https://data.example/x.csv", "--kind", "raster", "--format", "csv"),
        (
            "--url",
            "https://data.example/x.csv",
            "--kind",
            "delimited",
            "--sensitivity",
            "restricted",
        ),
        (
            "--url",
            "https://data.example/x.csv",
            "--title",
            "ghp_abcdefghijklmnopqrstuvwxyz0123456789",
        ),
    ],
)
def test_a_connector_that_could_not_run_is_refused_before_a_file_is_written(
    kfm: Kfm, ws: Path, options: tuple[str, ...]
) -> None:
    before = tree(ws)
    said = kfm("connector", "new", "made_up", *options)
    assert said.code == 2 and "went wrong that should not" not in said.err and "made_up" in said.err
    assert tree(ws) == before
    if "--kind" not in options and "--format" not in options:
        return
    said = kfm(
        "dataset",
        "new",
        "made_up",
        "--url",
        "https://data.example/x.csv",
        "--cadence",
        "now and then",
    )
    assert said.code == 2 and "went wrong that should not" not in said.err and tree(ws) == before


def test_the_overview_promises_no_number_of_sample_datasets(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["--help"]) == 0
    assert not re.search(r"demo .*\b(two|three|four|five)\b", capsys.readouterr().out)


def test_a_column_is_granted_with_a_reason_and_what_is_lacking_is_named(kfm: Kfm, ws: Path) -> None:
    (ws / "data/registry/sites.yml").write_text(
        "dataset_id: sites\ntitle: Sites\nlicence: CC-BY-4.0\nsensitivity: sensitive-location\npolicy_label: sensitive-location\n"
        "source: {url: 'https://a.example/s.csv', format: csv}\nbusiness_key: [id]\nrelease: {h3_resolution: 4, show: [period], min_records: 2}\n"
    )
    for more, told in (
        (("--show", "name"), "`release.show` of sites does not name name"),
        (("--show", "period"), "To show period takes --despite WHAT and --reason."),
        (("--show", "period", "--despite", "name"), "To show period takes --reason."),
    ):
        said = kfm("grant", "sites", *more)
        assert said.code == 2 and told in " ".join(said.err.split()), said.err


def test_a_look_that_found_nothing_new_is_told_with_what_is_official(
    kfm: Kfm, sample: SampleUpstream
) -> None:
    assert kfm("run", QUAKES).code == 0 and "Looked at again" not in kfm("explain", QUAKES).out
    assert kfm("run", QUAKES).code == 0
    assert (
        "Looked at again" in kfm("explain", QUAKES).out
        and "nothing had changed" in kfm("explain", QUAKES, "--json").json["what"]
    )
