"""Backfills: one run per partition, one version at the end, killed anywhere and gone on with; what
is done is never done twice.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from kfm.cli import main
from kfm.cli.init import TEMPLATE
from kfm.jobs import backfill_batch, backfill_progress
from kfm.jobs import backfill_windows as backfill
from kfm.jobs.backfill_assembly import assemble
from kfm.model.dataset import DatasetEntry, Past
from kfm.model.job import INGEST, Request
from kfm.workspace.config import change_entry, load_dataset
from kfm.workspace.folder import open_workspace
from kfm.workspace.targets import targets_of
from kfm.workspace.wiring import open_world
from tests.given.levels import ENTRY, ID, ledger, lines, made, plan_of, told
from tests.given.replay_server import Answer, ReplayServer
from tests.given.verbs import Said, caller, tree, until

Kfm = Callable[..., Said]


@pytest.fixture
def here(tmp_path: Path) -> Path:
    return made(tmp_path / "ws")


@pytest.fixture
def kfm(here: Path, capsys: pytest.CaptureFixture[str]) -> Kfm:
    return caller(here, capsys)


def version(here: Path) -> tuple[str, dict[str, str]]:
    (folder,) = (here / "data" / "processed" / ID).iterdir()
    return folder.name, {n: d for n, d in tree(folder).items() if n.endswith(".parquet")}


def test_one_version_equal_to_a_straight_run_and_a_ledger_row_for_every_partition(
    here: Path, kfm: Kfm, tmp_path: Path
) -> None:
    dead = here / "data" / ".tmp" / "1-999999-left"  # of one that was killed
    dead.mkdir(parents=True)
    said = kfm("backfill", "start", "history", "--inline", "--json")
    assert said.code == 0 and not dead.exists(), said
    assert (
        said.json["status"] == "started"
        and said.json["backfill"]["state"] == "done"
        and said.json["backfill"]["counts"] == {"COMMITTED": 4}
    )
    rows = ledger(here)
    assert Counter(r.win for r in rows if r.win) == {
        f"2026-01-{d:02}T00:00:00Z/2026-01-{d + 1:02}T00:00:00Z": 1 for d in range(1, 5)
    }
    assert {r.state for r in rows} == {"COMMITTED"} and len(rows) == 5, (
        "four parts and the run that assembled them"
    )
    assert {r.trigger_type for r in rows if r.win} == {"backfill"}
    summary, trail = told(here), told(here, "audit.jsonl")
    assert summary["generation"] == 1 and set(summary["gates"].values()) == {"pass"}
    assert [e["event"] for e in trail] == [
        "backfill.started",
        "batch.ended",
        "batch.ended",
        "backfill.assembled",
    ]
    assert told(here, "plan.json")["since"] == "2026-01-01T00:00:00Z"
    straight = made(tmp_path / "straight")
    assert (
        main(["-w", str(straight), "run", ID, "--since", "2026-01-01", "--until", "2026-01-05"])
        == 0
    )
    assert version(straight) == version(here)
    before = tree(here / "data")
    again = kfm("backfill", "start", "history", "--inline", "--json")
    assert again.json["status"] == "already_done" and tree(here / "data") == before
    assert kfm("backfill", "resume", "history", "--json").json["status"] == "already_done"


def test_a_backfill_and_windows_that_change_nothing_are_done_and_make_no_generation(
    here: Path, kfm: Kfm
) -> None:
    assert kfm("run", ID).code == 0
    said = kfm("backfill", "start", "history", "--inline", "--json")
    assert said.code == 0 and (said.json["backfill"]["state"], said.json["backfill"]["counts"]) == (
        "done",
        {"NOOP": 4},
    ), said
    assert kfm("backfill", "resume", "history", "--json").json["status"] == "already_done"
    assert told(here)["counts"] == {"NOOP": 4}
    windows = [
        ("2026-01-01", "2026-01-03"),
        ("2026-01-02", "2026-01-05"),
        ("2026-01-01", "2026-02-01"),
    ]
    for _ in range(2):
        for since, end in windows:
            (outcome,) = kfm("run", ID, "--since", since, "--until", end, "--json").json["runs"]
            assert (outcome["state"], outcome["exit_code"]) == ("NOOP", 0)
    channel = here / "data" / "catalog" / "channels" / ID
    assert [p.name for p in channel.iterdir()] == ["00000001.json"], "identical bytes"
    entry = here / "data" / "registry" / f"{ID}.yml"
    entry.write_text(ENTRY.replace("title: Levels", "title: Levels of wells") + "approvals: 1\n")
    (outcome,) = kfm("run", ID, "--json").json["runs"]
    assert outcome["state"] == "PROPOSED", "other rules, and a person who is to have a say in them"
    entry.write_text(ENTRY.replace("title: Levels", "title: Levels of wells"))
    assert (
        kfm("run", ID, "--json").json["runs"][0]["state"] == "NOOP"
        and len(list(channel.iterdir())) == 1
    )
    assert (
        kfm("run", ID, "--force", "--reason", "asked").code == 0
        and len(list(channel.iterdir())) == 2
    ), "unless it is asked for"


def test_a_rollback_holds_what_windows_brought_without_a_generation(here: Path, kfm: Kfm) -> None:
    days = ("--since", "2026-01-01", "--until", "2026-01-03")
    source = here / "inbox" / "levels.csv"
    assert kfm("run", ID).code == 0
    source.write_text(
        lines(4)
        .replace("2026-01-01,1.0", "2026-01-01,9.0")
        .replace("2026-01-04,4.0", "2026-01-04,9.0")
    )
    assert kfm("run", ID).code == 0
    assert kfm("run", ID, *days, "--json").json["runs"][0]["reason"] == "0 rows changed"
    assert kfm("rollback", ID, "--reason", "wrong values").code == 0
    (outcome,) = kfm("run", ID, *days, "--json").json["runs"]
    assert outcome["state"] == "NOOP" and "rolled back by generation 3" in outcome["reason"]
    source.write_text(lines(4).replace("2026-01-01,1.0", "2026-01-01,7.0"))
    assert kfm("run", ID, *days, "--json").json["runs"][0]["state"] == "COMMITTED", (
        "other content is not held"
    )


def test_a_repeat_on_a_clean_store_gives_the_same_digests(
    here: Path, kfm: Kfm, tmp_path: Path
) -> None:
    other = made(tmp_path / "other")
    for ws in (here, other):
        assert main(["-w", str(ws), "backfill", "start", "history", "--inline"]) == 0
    mine, theirs = told(here), told(other)
    same = ("backfill_id", "plan_digest", "parts_digest", "version_id", "version_digest", "counts")
    assert {k: mine[k] for k in same} == {k: theirs[k] for k in same}
    assert mine["run_id"] != theirs["run_id"]


def test_a_plan_says_what_it_takes_and_writes_nothing(here: Path, kfm: Kfm) -> None:
    kfm("status")  # opens the store
    before = tree(here, without=("ledger/",))
    said = kfm("backfill", "plan", "history", "--json")
    assert said.code == 0 and said.json["estimate"] == {
        "partitions": 4, "jobs": 2, "requests": 4, "bytes": None, "seconds": 61, "measured": 0,
    }  # fmt: skip
    assert (
        tree(here, without=("ledger/",)) == before
        and not kfm("backfill", "list", "--json").json["backfills"]
    )
    kfm("run", ID, "--since", "2026-01-01", "--until", "2026-01-02")
    measured = kfm(
        "backfill", "plan", ID, "--since", "2026-01-01", "--until", "2026-01-05", "--json"
    ).json["estimate"]
    assert (
        measured["measured"] == 1
        and measured["bytes"] == 4 * len(lines(4))
        and measured["seconds"] > 0
    )


def state(here: Path, said: str) -> None:
    """Let the registry entry say this of its past."""
    entry = here / "data" / "registry" / f"{ID}.yml"
    entry.write_text(f"{ENTRY}backfill: {said}\n")


def strategy(kfm: Kfm) -> tuple[bool, str]:
    (point,) = (
        p for p in kfm("done", ID, "--json").json["connector"] if p["point"] == "backfill strategy"
    )
    return point["done"], point["evidence"]


STATED = "{ranges: [2026-01-01/2026-01-05], window: 2d, expected_runtime: 3m}"


def test_a_plan_agrees_with_what_the_registry_states(here: Path, kfm: Kfm) -> None:
    """Ranges, batching and runtime, or that there is no past; `kfm done` shows which."""
    assert strategy(kfm) == (False, f"state `backfill` in data/registry/{ID}.yml")
    state(here, STATED)
    said = kfm("backfill", "plan", ID, "--json").json
    assert (said["plan"]["since"], said["plan"]["until"]) == (
        "2026-01-01T00:00:00Z",
        "2026-01-05T00:00:00Z",
    )
    assert said["plan"]["partitioning"]["window"] == "2d" and said["estimate"]["partitions"] == 2
    assert said["plan"]["expected_runtime"] == "3m" and said["stated"] == []
    assert strategy(kfm) == (
        True,
        f"kfm backfill plan {ID}: 2026-01-01/2026-01-05, 2 windows of 2d, 3m",
    )
    # a plan of its own may go another way through the same past, and it is told
    told_apart = kfm("backfill", "plan", "history", "--json").json["stated"]
    assert told_apart == ["windows of 2d", "expected 3m"]
    assert "the registry says windows of 2d" in kfm("backfill", "plan", "history").out
    outside = kfm("backfill", "plan", ID, "--since", "2025-12-31", "--until", "2026-01-05")
    assert outside.code == 2 and "2026-01-01 to 2026-01-05" in outside.err
    state(here, STATED.replace("01-01/2026-01-05", "01-02/.."))
    assert kfm("backfill", "start", "history").code == 2
    assert kfm("backfill", "plan", ID, "--json").code == 0
    state(here, STATED.replace("01-05]", "01-02, 2026-01-04/2026-01-05]"))
    assert "2026-01-04 to 2026-01-05" in kfm("backfill", "plan", ID).err, "one of two is not chosen"
    state(here, "every answer holds all levels")
    assert strategy(kfm) == (True, "no past: every answer holds all levels")
    none = kfm("backfill", "plan", "history")
    assert none.code == 2 and "every answer holds all levels" in none.err


def test_what_is_stated_and_cannot_be_done_is_no_strategy(here: Path, kfm: Kfm) -> None:
    state(here, STATED)
    entry = here / "data" / "registry" / f"{ID}.yml"
    entry.write_text(entry.read_text().replace("merge: upsert\n", ""))
    assert strategy(kfm)[0] is False and "replaced by every run" in strategy(kfm)[1]
    state(here, STATED)
    entry.write_text(entry.read_text().replace(", time_column: day", ""))
    assert strategy(kfm)[0] is False and "time_column" in strategy(kfm)[1]


def test_what_is_said_of_the_past_runs_nothing_again(here: Path, kfm: Kfm) -> None:
    first = kfm("run", ID, "--json").json["runs"][0]
    state(here, STATED)
    again = kfm("run", ID, "--json").json["runs"][0]
    assert (first["state"], again["state"]) == ("COMMITTED", "NOOP")


def test_every_shipped_dataset_states_its_past(tmp_path: Path, capsys: Any) -> None:
    """And every shipped plan agrees with what is stated."""
    assert main(["init", str(tmp_path / "k"), "--kansas", "--sample"]) == 0
    kansas, kfm = open_workspace(tmp_path / "k"), caller(tmp_path / "k", capsys)
    shipped = [load_dataset(tmp_path / "k", name) for name in kansas.registered()]
    for file in TEMPLATE.glob("*-registry/*.yml"):
        shipped.append(msgspec.convert(yaml.safe_load(file.read_text()), DatasetEntry))
    assert len(shipped) == 17 and [e.dataset_id for e in shipped if not e.backfill] == []
    stated = {e.dataset_id for e in shipped if isinstance(e.backfill, Past)}
    assert stated == {"ks_aerial_images", "ks_stream_gauges"}
    for name in stated:
        assert kfm("backfill", "plan", name).code == 0, name
        assert kfm("backfill", "plan", f"{name}_history", "--json").json["stated"] == []


def test_a_plan_says_when_nothing_limits_its_pool(here: Path, kfm: Kfm) -> None:
    flags = ("backfill", "plan", ID, "--since", "2026-01-01", "--until", "2026-01-05")
    assert (
        "nothing limits it" in kfm(*flags, "--pool", "narow").out
        and "nothing limits it" not in kfm(*flags).out
    )
    with (here / "kfm.yml").open("a") as file:
        file.write("pools: {narrow: {slots: 1}}\n")
    assert "nothing limits it" not in kfm(*flags, "--pool", "narrow").out


@pytest.mark.parametrize(
    "args",
    [
        ("plan", "nothing"),
        ("plan", ID),
        ("plan", ID, "--since", "7d", "--until", "2026-01-05"),
        ("plan", ID, "--since", "2026-01-01", "--until", "2026-01-05", "--per-second", "0"),
        ("start",),
        ("resume", "nothing"),
        ("cancel", "history"),
        ("status", "nothing"),
    ],
)
def test_what_cannot_be_done_is_refused(kfm: Kfm, args: tuple[str, ...]) -> None:
    assert kfm("backfill", *args).code == 2


def test_a_gate_that_does_not_exist_is_refused(here: Path, kfm: Kfm) -> None:
    plan = here / "pipelines" / "orchestration" / "backfills" / "history.yml"
    plan.write_text(plan.read_text().replace("gates: all", "gates: [licence, vibes]"))
    said = kfm("backfill", "start", "history")
    assert said.code == 2 and "vibes" in said.err


def test_a_backfill_has_a_window_leaves_its_audit_and_heeds_a_host_that_is_busy(
    here: Path, kfm: Kfm, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert kfm("backfill", "start", ID).code == 2, "no window, no plan"
    config = here / "kfm.yml"
    config.write_text(
        config.read_text().replace("allow_loopback: false", "allow_loopback: true")
        + "polite: {hosts: {levels.example.org: {}}}\n"
    )
    change_entry(here, ID, {"source": {"format": "csv", "url": "https://levels.example.org/levels.csv", "time_column": "day"}})  # fmt: skip
    busy = Answer(429, headers={"Retry-After": "600"})
    with ReplayServer(instead=lambda asked: busy) as server:
        monkeypatch.setenv("KFM_REROUTE", server.where)
        said = kfm("backfill", "start", "history", "--inline", "--json").json["backfill"]
        asked = len(server.asked)
        assert (said["state"], said["counts"]) == ("incomplete", {"FAILED": 4})
        assert all("429, asked to wait 600 s" in f["reason"] for f in said["failing"])
        assert asked == 1, "what it asked of the first, the others heed"
        server.instead = lambda asked: Answer(200, lines(4).encode())
        (here / "ledger" / "hosts" / "levels.example.org.json").unlink()  # the time has passed
        assert kfm("backfill", "resume", "history", "--inline").code == 0
    assert told(here)["counts"] == {"COMMITTED": 4} and told(here)["generation"] == 1
    assert told(here, "plan.json")["expected_runtime"] == "1m" and told(here, "audit.jsonl")
    assert len(list((here / "receipts").rglob("*.json"))) >= 4, "and a receipt of each run"


def test_a_failing_partition_stops_no_other_and_a_resume_does_only_that_one(
    here: Path, kfm: Kfm
) -> None:
    source = here / "inbox" / "levels.csv"
    source.write_text(lines(4) + "S0,2026-01-02,99.5\n")  # two readings of one day
    said = kfm("backfill", "start", "history", "--inline", "--json").json["backfill"]
    assert (said["state"], said["counts"]) == ("incomplete", {"STAGED": 3, "FAILED": 1})
    assert (
        [f["n"] for f in said["failing"]] == [1]
        and said["failing"][0]["reason"]
        and said["next"] == "kfm backfill resume history"
    )
    assert not (here / "data" / "processed" / ID).exists(), (
        "nothing is official while a partition is missing"
    )
    text = kfm("backfill", "status", "history")
    assert " 1 try  " in text.out
    assert [
        j["outcome"] for j in kfm("jobs", "list", "--json").json["jobs"] if j["job_type"] == INGEST
    ].count("failed") == 1
    assert (
        "2026-01-02T00:00:00Z/2026-01-03T00:00:00Z" in text.out
        and "backfill resume history" in text.out
    )
    with open_world(open_workspace(here)) as world:
        assert world.store.read(lambda tx: tx.jobs.waiting(ID)) == [], (
            "no worker tries the failed one by itself"
        )
    source.write_text(lines(4))
    before = {r.run_id for r in ledger(here)}
    assert kfm("backfill", "resume", "history", "--inline").code == 0
    new = [r for r in ledger(here) if r.run_id not in before]
    assert sorted(r.win for r in new) == ["", "2026-01-02T00:00:00Z/2026-01-03T00:00:00Z"]
    assert told(here)["counts"] == {"COMMITTED": 4}


def test_too_many_failures_stop_it_and_a_resume_goes_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ws = made(tmp_path / "ws", days=4, batch=4, more="stop_after: 2")
    (ws / "inbox" / "levels.csv").unlink()
    assert main(["-w", str(ws), "backfill", "start", "history", "--inline"]) == 1
    capsys.readouterr()
    main(["-w", str(ws), "backfill", "status", "history", "--json"])
    (status,) = json.loads(capsys.readouterr().out)["backfills"]
    assert (status["state"], status["counts"], status["missing"]) == ("stopped", {"FAILED": 2}, 2)
    (ws / "inbox" / "levels.csv").write_text(lines(4))
    assert main(["-w", str(ws), "backfill", "resume", "history", "--inline"]) == 0
    assert told(ws)["counts"] == {"COMMITTED": 4}


def test_a_batch_that_is_told_to_stop_half_way_is_handed_out_again(
    here: Path, kfm: Kfm, monkeypatch: pytest.MonkeyPatch
) -> None:
    flush = backfill_batch._flush

    def stopping(world: Any, *args: Any) -> Any:
        row = flush(world, *args)
        # because of what another batch met
        return world.store.transaction(lambda tx: tx.backfill.save(row, state="stopped"))

    with monkeypatch.context() as patched:
        patched.setattr("kfm.jobs.backfill_batch.FLUSH_S", 0)
        patched.setattr("kfm.jobs.backfill_batch._flush", stopping)
        said = kfm("backfill", "start", "history", "--inline", "--json").json["backfill"]
    assert (said["state"], said["counts"], said["missing"], said["handed_out"]) == (
        "stopped",
        {"STAGED": 1},
        3,
        2,
    )
    assert kfm("backfill", "resume", "history", "--inline").code == 0
    assert told(here)["counts"] == {"COMMITTED": 4}


def test_a_denied_version_leaves_the_parts_staged_and_they_are_judged_again(
    here: Path, kfm: Kfm
) -> None:
    change_entry(here, ID, {"licence": None})
    said = kfm("backfill", "start", "history", "--inline", "--json")
    assert (
        said.code == 3
        and said.json["backfill"]["state"] == "denied"
        and said.json["backfill"]["counts"] == {"STAGED": 4}
    )
    assert told(here)["state"] == "denied" and told(here)["gates"]["licence"] == "deny"
    assert not (here / "data" / "processed" / ID).exists()
    text = kfm("backfill", "status", "history").out
    assert f"explain deny {ID}" in text and "backfill resume history" in text
    change_entry(here, ID, {"licence": "CC0-1.0"})
    (here / "inbox" / "levels.csv").unlink()  # nobody is asked again
    assert kfm("backfill", "resume", "history", "--inline").code == 0
    assert told(here)["state"] == "done" and told(here)["counts"] == {"COMMITTED": 4}


def test_what_waits_for_people_goes_on_once_they_have_approved(here: Path, kfm: Kfm) -> None:
    change_entry(here, ID, {"approvals": 1})
    assert kfm("backfill", "start", "history", "--inline").code == 7
    assert kfm("keys", "new", "--name", "Ada").code == 0
    assert kfm("approve", "1", "--key", "Ada", "--reason", "read").code == 0
    kfm("promote", "1")
    assert kfm("backfill", "resume", "history", "--inline").code == 0
    assert told(here)["state"] == "done" and told(here)["generation"] == 1


def test_a_version_after_every_so_many_parts(tmp_path: Path) -> None:
    ws = made(tmp_path / "ws", days=5, batch=1, more="assemble: every 2")
    assert main(["-w", str(ws), "backfill", "start", "history", "--inline"]) == 0
    rows = ledger(ws)
    assert (
        sum(not r.win for r in rows) == 3
        and told(ws)["generation"] == 3
        and told(ws)["counts"] == {"COMMITTED": 5}
    )
    straight = made(tmp_path / "straight", days=5)
    assert (
        main(["-w", str(straight), "run", ID, "--since", "2026-01-01", "--until", "2026-01-06"])
        == 0
    )
    name, files = version(straight)
    assert {
        n: d
        for n, d in tree(ws / "data" / "processed" / ID / name).items()
        if n.endswith(".parquet")
    } == files


def test_a_part_that_another_run_has_overtaken_is_made_again(here: Path, kfm: Kfm) -> None:
    change_entry(here, ID, {"licence": None})
    kfm("backfill", "start", "history", "--inline")
    (here / "inbox" / "levels.csv").write_text(lines(4).replace("1.0", "1.7"))
    # denied too, and its input is the newer one
    kfm("run", ID, "--since", "2026-01-01", "--until", "2026-01-02")
    change_entry(here, ID, {"licence": "CC0-1.0"})
    assert kfm("backfill", "resume", "history", "--inline").code == 0
    assert (
        Counter(r.state for r in ledger(here) if r.win.startswith("2026-01-01"))["SUPERSEDED"] == 1
    )
    assert told(here)["counts"] == {"COMMITTED": 4}


def test_cancelling_changes_nothing_official_and_a_new_start_is_a_new_backfill(
    here: Path, kfm: Kfm
) -> None:
    first = kfm("backfill", "start", "history", "--json").json["backfill"]
    assert first["handed_out"] == 4 and len(kfm("jobs", "list", "--json").json["jobs"]) == 2
    assert kfm("backfill", "start", "history", "--json").json["status"] == "already_started"
    assert kfm("backfill", "cancel", "history", "--reason", "asked for").code == 0
    assert {j["state"] for j in kfm("jobs", "list", "--json").json["jobs"]} == {"ended"}
    assert kfm("backfill", "resume", "history").code == 2
    assert not (here / "data" / "processed").exists() and told(here)["state"] == "cancelled"
    second = kfm("backfill", "start", "history", "--json").json["backfill"]
    assert second["backfill_id"] != first["backfill_id"]


def test_a_cancelled_backfill_says_what_became_of_its_parts(here: Path, kfm: Kfm) -> None:
    change_entry(here, ID, {"licence": None})
    first = kfm("backfill", "start", "history", "--inline", "--json").json["backfill"][
        "backfill_id"
    ]
    change_entry(here, ID, {"licence": "CC0-1.0"})
    assert (
        "4 parts stay staged" in kfm("backfill", "cancel", "history", "--reason", "asked for").out
    )
    assert kfm("backfill", "start", "history", "--inline").code == 0
    (status,) = kfm("backfill", "status", first, "--json").json["backfills"]
    assert (status["state"], status["counts"]) == ("cancelled", {"FAILED": 4})


def test_parts_of_a_cancelled_backfill_wait_for_nothing(here: Path, kfm: Kfm) -> None:
    plan = here / "pipelines" / "orchestration" / "backfills" / "history.yml"
    plan.write_text(plan.read_text() + "stop_after: 1\n")
    (here / "inbox" / "levels.csv").write_text(lines(4) + "S0,2026-01-03,99.5\n")
    kfm("backfill", "start", "history", "--inline")
    said = kfm("status", ID, "--json").json["datasets"][0]
    assert staged(here) == 2
    # the newest run failed, which is told before parts that wait
    with open_world(open_workspace(here)) as world:
        world.store.transaction(
            lambda tx: tx.runs.move(said["last_run_id"], "FAILED", state="SUPERSEDED")
        )
    assert (
        kfm("status", ID, "--json").json["datasets"][0]["reason"] == "2 parts wait to be assembled"
    )
    kfm("backfill", "cancel", "history", "--reason", "asked for")
    found = kfm("status", ID, "--json").json["datasets"][0]
    assert (found["state"], found["reason"]) == ("none", "")


def test_an_assemble_that_was_killed_then_cancelled_is_no_obstacle_to_a_new_start(
    here: Path, kfm: Kfm, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(
            "kfm.run.assemble_parts.assemble", lambda *a: (_ for _ in ()).throw(KeyboardInterrupt)
        )
        with contextlib.suppress(KeyboardInterrupt):
            kfm("backfill", "start", "history", "--inline")
    assert [r.state for r in ledger(here) if not r.win] == ["CLAIMED"]
    assert kfm("backfill", "cancel", "history", "--reason", "the machine died").code == 0
    said = kfm("backfill", "start", "history", "--inline", "--json")
    assert said.code == 0 and said.json["backfill"]["counts"] == {"COMMITTED": 4}, said


def test_partitions_that_come_and_go_in_the_registry_leave_a_backfill_as_it_began(
    tmp_path: Path,
) -> None:
    ws = made(tmp_path / "ws", days=1)
    entry = ws / "data" / "registry" / f"{ID}.yml"
    entry.write_text(
        ENTRY.replace("levels.csv", "{partition}.csv").replace(
            "merge: upsert", "merge: partition\npartitions: [b, c, d]"
        )
    )
    for name in "abc":
        (ws / "inbox" / f"{name}.csv").write_text(lines(1))
    assert main(["-w", str(ws), "backfill", "start", "history", "--inline"]) == 1, (
        "d is not there yet"
    )
    (ws / "inbox" / "d.csv").write_text(lines(1))
    change_entry(ws, ID, {"partitions": ["b", "c"]})
    assert main(["-w", str(ws), "backfill", "resume", "history", "--inline"]) == 2, (
        "d is gone from the registry"
    )
    change_entry(ws, ID, {"partitions": ["a", "b", "c", "d"]})
    assert main(["-w", str(ws), "backfill", "resume", "history", "--inline"]) == 0
    assert sorted(r.partition for r in ledger(ws) if r.win and r.state == "COMMITTED") == [
        "b",
        "c",
        "d",
    ]


def test_another_time_zone_in_the_registry_moves_no_window_of_a_backfill(
    here: Path, kfm: Kfm
) -> None:
    change_entry(here, ID, {"time_zone": "America/Chicago"})
    days = ("2025-11-01", "2025-11-02", "2025-11-03", "2025-11-04")
    (here / "inbox" / "levels.csv").write_text(
        "site,day,level\n" + "".join(f"S0,{day},1\n" for day in days)
    )
    # the clocks go back on the 2nd
    kfm("backfill", "start", ID, "--since", "2025-10-31", "--until", "2025-11-04")
    change_entry(here, ID, {"time_zone": "UTC"})
    assert kfm("backfill", "resume", ID, "--inline").code == 0
    wins = sorted(r.win for r in ledger(here) if r.win)
    assert [w[11:13] for w in wins] == ["05", "05", "05", "06"] and wins[-1].endswith(
        "/2025-11-04T06:00:00Z"
    )


def test_a_dataset_that_is_gone_can_be_looked_at_and_cancelled_but_not_resumed(
    here: Path, kfm: Kfm
) -> None:
    kfm("backfill", "start", "history")
    (here / "data" / "registry" / f"{ID}.yml").unlink()
    said = kfm("backfill", "resume", "history")
    assert said.code == 2 and "registry" in said.err
    assert kfm("backfill", "status", "history").code == 0
    assert (
        kfm("backfill", "cancel", "history", "--reason", "it is gone").code == 0
        and told(here)["state"] == "cancelled"
    )


def test_the_future_is_not_filled(kfm: Kfm) -> None:
    said = kfm(
        "backfill",
        "start",
        ID,
        "--since",
        "2026-01-01",
        "--until",
        "9999-12-31",
        "--window",
        "9999999w",
    )
    assert said.code == 2 and "not come yet" in said.err


def test_what_failed_of_a_backfill_that_is_done_can_be_tried_again(here: Path, kfm: Kfm) -> None:
    plan, source = (
        here / "pipelines" / "orchestration" / "backfills" / "history.yml",
        here / "inbox" / "levels.csv",
    )
    plan.write_text(plan.read_text().replace("gates: all", "gates: all, max_failed: 0.5"))
    source.write_text(lines(4) + "S0,2026-01-01,99.5\n")
    said = kfm("backfill", "start", "history", "--inline", "--json").json["backfill"]
    assert (said["state"], said["counts"], said["next"]) == (
        "done",
        {"COMMITTED": 3, "FAILED": 1},
        "kfm backfill resume history",
    )
    source.write_text(lines(4))
    again = kfm("backfill", "resume", "history", "--inline", "--json").json
    assert (
        again["status"] == "resumed"
        and again["backfill"]["counts"] == {"COMMITTED": 4}
        and told(here)["generation"] == 2
    )


def test_a_run_of_a_longer_window_wins_over_parts_that_are_older(here: Path, kfm: Kfm) -> None:
    change_entry(here, ID, {"licence": None})
    kfm("backfill", "start", "history", "--inline")
    change_entry(here, ID, {"licence": "CC0-1.0"})
    (here / "inbox" / "levels.csv").write_text(lines(4).replace("1.0\n", "99\n"))
    assert kfm("run", ID, "--since", "2025-12-31", "--until", "2026-01-02").code == 0
    said = kfm("backfill", "resume", "history", "--inline", "--json")
    assert (said.code, said.json["backfill"]["counts"]) == (1, {"STAGED": 3, "FAILED": 1}), (
        "only the part it overlaps"
    )
    assert kfm("backfill", "resume", "history", "--inline").code == 0
    import pyarrow.parquet as pq

    table = pq.read_table(
        here / "data" / "processed" / ID / told(here)["version_id"] / f"{ID}.parquet"
    ).to_pylist()
    assert len(table) == 8 and [
        r["level"] for r in table if (r["site"], str(r["day"])) == ("S0", "2026-01-01")
    ] == [99]


def test_a_lost_and_a_damaged_part_are_made_again(here: Path, kfm: Kfm) -> None:
    change_entry(here, ID, {"licence": None})
    kfm("backfill", "start", "history", "--inline")
    change_entry(here, ID, {"licence": "CC0-1.0"})
    files = {
        p.parent.name: p for p in (here / "data" / "work" / ID / "parts").glob(f"*/{ID}.parquet")
    }
    damaged, lost, *_ = [files.pop(str(r.part)[7:39]) for r in ledger(here) if r.state == "STAGED"]
    (merged,) = files.values()  # that of the denied run, which the next one makes again
    for path in (damaged, merged):
        path.chmod(0o644)
        path.write_bytes(b"rust")
    lost.unlink()
    said = kfm("backfill", "resume", "history", "--inline", "--json")
    assert (said.code, said.json["backfill"]["counts"]) == (1, {"STAGED": 2, "FAILED": 2}), said
    assert not (here / "data" / "processed").exists(), "two of four are too few"
    assert kfm("backfill", "resume", "history", "--inline").code == 0
    assert [p.read_bytes() for p in (here / "ledger" / "quarantine").glob("*.parquet")] == [
        b"rust"
    ] * 2
    assert told(here)["counts"] == {"COMMITTED": 4}


def test_damaged_bytes_where_a_part_goes_are_set_aside_and_the_part_is_written(
    here: Path, kfm: Kfm
) -> None:
    change_entry(here, ID, {"licence": None})
    kfm("backfill", "start", "history", "--inline")
    change_entry(here, ID, {"licence": "CC0-1.0"})
    staged_part = next(r.part for r in ledger(here) if r.state == "STAGED")
    path = here / "data" / "work" / ID / "parts" / staged_part[7:39] / f"{ID}.parquet"
    good = path.read_bytes()
    path.chmod(0o644)
    path.write_bytes(b"rust")
    assert kfm("backfill", "cancel", "history", "--reason", "to begin anew").code == 0
    assert kfm("backfill", "start", "history", "--inline").code == 0, "it makes the same part"
    assert path.read_bytes() == good
    assert [p.read_bytes() for p in (here / "ledger" / "quarantine").glob("*.parquet")] == [b"rust"]


def test_damaged_bytes_where_a_merged_table_goes_are_set_aside_too(here: Path, kfm: Kfm) -> None:
    parts = here / "data" / "work" / ID / "parts"
    assert kfm("run", ID, "--since", "2026-01-01", "--until", "2026-01-02").code == 0
    before = set(parts.rglob("*.parquet"))
    assert kfm("run", ID, "--since", "2026-01-02", "--until", "2026-01-03").code == 0
    good = {path: path.read_bytes() for path in set(parts.rglob("*.parquet")) - before}
    assert len(good) == 2, "the window's own and the merged one"
    assert kfm("rollback", ID, "--reason", "again").code == 0
    for path in good:
        path.unlink()
        path.write_bytes(b"rust")
    assert (
        kfm(
            "run",
            ID,
            "--since",
            "2026-01-02",
            "--until",
            "2026-01-03",
            "--force",
            "--reason",
            "again",
        ).code
        == 0
    )
    assert {path: path.read_bytes() for path in good} == good
    assert [p.read_bytes() for p in (here / "ledger" / "quarantine").glob("*.parquet")] == [
        b"rust"
    ] * 2


def _interrupted(*args: Any) -> Any:
    raise KeyboardInterrupt


def test_parts_that_became_official_are_not_assembled_for_ever_after_a_kill(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ws = made(tmp_path / "ws", days=6, batch=2, more="assemble: every 2")
    workspace = open_workspace(ws)
    with open_world(workspace) as world:
        row, _ = backfill.start(
            world, "history", plan_of(ws), targets_of(workspace, ID)[0], "system", put=False
        )

        def targets(name: str, **more: Any) -> Any:
            return targets_of(workspace, name, **more)

        backfill_batch.work_batch(world, row.backfill_id, targets, 0, 2, put=False)
        # two are official, three staged, and neither is written down
        with monkeypatch.context() as patched:
            patched.setattr("kfm.jobs.backfill_batch.FLUSH_S", 1e9)
            patched.setattr("kfm.jobs.backfill_assembly._conclude", _interrupted)
            patched.setattr("kfm.jobs.backfill_batch.go_on", _interrupted)
            with pytest.raises(KeyboardInterrupt):
                assemble(world, row.backfill_id, targets)
            with pytest.raises(KeyboardInterrupt):
                backfill_batch.work_batch(world, row.backfill_id, targets, 2, 3, put=False)
        world.store.transaction(lambda tx: tx.backfill.follow_ledger(row))
        assert backfill_progress.status(world, row).counts == {"COMMITTED": 2}
        real, calls = assemble, []

        def idle(world: Any, name: str, targets: Any) -> Any:
            now = world.store.read(lambda tx: tx.backfill.get(name))
            calls.append(now.state)
            assert len(calls) < 20, "it asks again and again"
            return real(world, name, targets) if now.state == "assembling" else (now, None)

        monkeypatch.setattr("kfm.jobs.backfill_windows.assemble", idle)
        found, _ = backfill.work_here(world, row.backfill_id, targets)
    assert found.state == "done" and told(ws)["counts"] == {"COMMITTED": 6} and "running" in calls


def test_only_so_many_jobs_are_put_ahead(tmp_path: Path) -> None:
    ws = made(tmp_path / "ws", days=20, batch=1)
    assert main(["-w", str(ws), "backfill", "start", "history"]) == 0
    with open_world(open_workspace(ws)) as world:
        assert len(world.store.read(lambda tx: tx.jobs.listing(state="queued"))) == 2


def test_other_code_does_not_go_on_with_what_it_did_not_begin(here: Path, kfm: Kfm) -> None:
    kfm("backfill", "start", "history")
    change_entry(here, ID, {"pipeline_version": "2.0.0"})
    with open_world(open_workspace(here)) as world:  # a worker gave them up
        world.store.transaction(lambda tx: [tx.jobs.cancel(j.job_id) for j in tx.jobs.waiting(ID)])
    (status,) = kfm("backfill", "status", "history", "--json").json["backfills"]
    assert (status["lost"], status["next"]) == (2, "kfm backfill resume history")
    for where in ((), ("--inline",)):
        said = kfm("backfill", "resume", "history", *where)
        assert said.code == 2 and "backfill cancel" in said.err
    assert {j["state"] for j in kfm("jobs", "list", "--json").json["jobs"]} == {"ended"}, (
        "nothing was handed out"
    )


def test_a_scheduled_run_does_not_take_a_part_from_its_backfill(here: Path, kfm: Kfm) -> None:
    """The ingest of a part is driven by its batch alone, also when it was left behind by a
    crash.
    """
    with open_world(open_workspace(here)) as world:
        row, _ = backfill.start(
            world,
            "history",
            plan_of(here),
            targets_of(open_workspace(here), ID)[0],
            "system",
            put=False,
        )
        request = Request(
            job_type=INGEST,
            dataset_id=ID,
            win="2026-01-01T00:00:00Z/2026-01-02T00:00:00Z",
            not_before=backfill_batch.NEVER_MS,
        )
        world.store.transaction(lambda tx: tx.jobs.submit(request))
        token = world.store.transaction(lambda tx: tx.leases.take("worker/w", "w", 60))
        assert world.store.transaction(lambda tx: tx.queue.claim(token, 9)) == []
    assert kfm("backfill", "resume", row.backfill_id, "--inline").code == 0


def test_a_server_keeps_it_as_a_file_does(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from tests.given.services import schema_url, shared_server

    ws, straight = made(tmp_path / "ws"), made(tmp_path / "straight")
    plain = [
        line for line in (ws / "kfm.yml").read_text().splitlines() if not line.startswith("store:")
    ]
    (ws / "kfm.yml").write_text("\n".join([*plain, f'store: "{schema_url(shared_server())}"', ""]))
    source = ws / "inbox" / "levels.csv"
    source.write_text(lines(4) + "S0,2026-01-02,99.5\n")
    assert main(["-w", str(ws), "backfill", "start", "history"]) == 0
    capsys.readouterr()
    assert main(["-w", str(ws), "backfill", "resume", "history", "--inline", "--json"]) == 1
    found = json.loads(capsys.readouterr().out)["backfill"]
    assert (found["state"], found["counts"]) == ("incomplete", {"STAGED": 3, "FAILED": 1})
    source.write_text(lines(4))
    assert main(["-w", str(ws), "backfill", "resume", "history", "--inline"]) == 0
    assert told(ws)["counts"] == {"COMMITTED": 4}
    assert (
        main(["-w", str(straight), "run", ID, "--since", "2026-01-01", "--until", "2026-01-05"])
        == 0
    )
    assert version(straight) == version(ws)


# ---- killed --------------------------------------------------------------------------------------
@contextlib.contextmanager
def process(*args: str) -> Iterator["subprocess.Popen[bytes]"]:
    child = subprocess.Popen(
        [sys.executable, "-m", *args],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        yield child
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        child.wait()


def staged(ws: Path) -> int:
    return sum(r.state in ("STAGED", "COMMITTED") for r in ledger(ws))


def test_killed_at_partition_seven_of_twenty_a_resume_does_the_rest_only(tmp_path: Path) -> None:
    ws = made(tmp_path / "ws", days=20, batch=20)
    with process("kfm", "-w", str(ws), "backfill", "start", "history", "--inline"):
        until(lambda: (ws / "ledger" / "idempotency.sqlite").exists() and staged(ws) >= 7)
    before = {r.run_id: r.win for r in ledger(ws) if r.state == "STAGED"}
    assert main(["-w", str(ws), "backfill", "resume", "history", "--inline"]) == 0
    rows = ledger(ws)
    assert {r.run_id: r.win for r in rows if r.run_id in before} == before and all(
        r.state == "COMMITTED" for r in rows if r.run_id in before
    )
    done = Counter(r.win for r in rows if r.state == "COMMITTED" and r.win)
    assert len(done) == 20 and set(done.values()) == {1}, "each partition exactly once"
    assert told(ws)["counts"] == {"COMMITTED": 20} and told(ws)["generation"] == 1


def _rounds(tmp_path: Path, days: int, batch: int, kills: int) -> None:
    ws, straight = (
        made(tmp_path / "ws", days=days, batch=batch),
        made(tmp_path / "straight", days=days),
    )
    assert main(["-w", str(ws), "backfill", "start", "history"]) == 0
    for kill in range(1, kills + 1):
        with (
            process("workers", "run", "-w", str(ws), "--concurrency=1"),
            process("workers", "run", "-w", str(ws), "--concurrency=1"),
        ):
            until(lambda kill=kill: staged(ws) >= kill * days // (kills + 2))  # type: ignore[misc]
    assert main(["-w", str(ws), "backfill", "resume", "history"]) == 0
    with process("workers", "run", "-w", str(ws), "--concurrency=2") as worker:
        until(
            lambda: (
                worker.poll() is not None
                or (bool(list((ws / "data").glob("work/*/backfills/*/summary.json"))))
            )
        )
        assert worker.poll() is None
    done = Counter(r.win for r in ledger(ws) if r.state == "COMMITTED" and r.win)
    assert len(done) == days and set(done.values()) == {1}
    assert (
        told(ws)["state"] == "done"
        and told(ws)["counts"] == {"COMMITTED": days}
        and told(ws)["generation"] == 1
    )
    assert (
        main(
            [
                "-w",
                str(straight),
                "run",
                ID,
                "--since",
                "2026-01-01",
                "--until",
                f"2026-01-{days + 1:02}",
            ]
        )
        == 0
    )
    assert version(straight) == version(ws)


def test_all_workers_killed_half_way_and_each_partition_is_committed_once(tmp_path: Path) -> None:
    _rounds(tmp_path, days=6, batch=2, kills=1)


@pytest.mark.drill
def test_all_workers_killed_again_and_again_and_each_partition_is_committed_once(
    tmp_path: Path,
) -> None:
    _rounds(tmp_path, days=28, batch=3, kills=5)
