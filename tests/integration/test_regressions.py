"""Ways in which it was once broken."""

import json
import os
import signal
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from kfm.acts.withdraw import withdraw
from kfm.run.update import update
from kfm.samples.upstream import SampleUpstream
from kfm.workspace.folder import open_workspace
from kfm.workspace.targets import targets_of
from kfm.workspace.wiring import open_world
from tests.given.processes import (
    Started,
    apart,
    held_connector,
    transforming,
)
from tests.given.verbs import Said, tree, until

Kfm = Callable[..., Said]
QUAKES = "ks_earthquakes"
YEAR = ("--since", "2025-01-01T00:00:00Z", "--until", "2026-01-01T00:00:00Z")


def state(kfm: Kfm, *args: str) -> dict[str, Any]:
    found: dict[str, Any] = kfm("run", QUAKES, "--json", *args).json["runs"][0]
    return found


def head(kfm: Kfm) -> dict[str, Any]:
    found: dict[str, Any] = next(
        d for d in kfm("status", "--json").json["datasets"] if d["dataset_id"] == QUAKES
    )
    return found


@contextmanager
def stopped_at(ws: Path, label: str) -> Iterator[None]:
    """A run killed right after `label`."""
    workspace = open_workspace(ws)
    with open_world(workspace) as world:
        world.store.transaction(lambda tx: tx.jobs.put(QUAKES, "", ""))
        steps = update(world, targets_of(workspace, QUAKES)[0])
        said = ""
        try:
            while not said.startswith(label):
                said = next(steps)
        except StopIteration:
            from kfm.run.promote import promote

            steps = promote(world, QUAKES)
            while not said.startswith(label):
                said = next(steps)
        world.store.abandon()
        yield
        del steps


def test_a_window_in_between_does_not_make_the_whole_unchanged(
    kfm: Kfm, sample: SampleUpstream
) -> None:
    first = state(kfm)
    sample.control(QUAKES, revision=1)
    assert state(kfm, *YEAR)["state"] == "COMMITTED"
    sample.control(QUAKES, revision=0)
    back = state(kfm)
    assert back["state"] == "COMMITTED"
    assert head(kfm)["version_id"] == first["version_id"]


def test_overlapping_windows_do_not_hide_one_another(kfm: Kfm, sample: SampleUpstream) -> None:
    state(kfm)
    wide, part = YEAR, ("--since", "2025-01-01T00:00:00Z", "--until", "2025-12-01T00:00:00Z")
    sample.control(QUAKES, revision=1)
    state(kfm, *wide)
    sample.control(QUAKES, revision=2)
    state(kfm, *part)
    sample.control(QUAKES, revision=1)
    assert state(kfm, *wide)["state"] == "COMMITTED"


def test_a_run_that_lives_through_a_reindex_is_fenced(
    kfm: Kfm, ws: Path, sample: SampleUpstream
) -> None:
    state(kfm)
    sample.control(QUAKES, revision=1)
    hold = held_connector(ws)
    frozen = Started(ws, sample, "run", QUAKES, "--json")
    until(lambda: transforming(ws))
    os.kill(frozen.pid, signal.SIGSTOP)
    assert kfm("reindex").code == 0
    before = tree(ws / "data" / "catalog")
    hold.unlink()
    os.kill(frozen.pid, signal.SIGCONT)
    assert frozen.wait() == 5
    assert tree(ws / "data" / "catalog") == before


def test_a_damaged_row_of_an_unfinished_run_does_not_block_the_dataset(
    kfm: Kfm, ws: Path, sample: SampleUpstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KFM_SAMPLE_UPSTREAM", sample.url)
    with stopped_at(ws, "part DONE"):
        pass
    db = sqlite3.connect(ws / "ledger/idempotency.sqlite")
    db.execute("update ledger set key = key || 'x'")
    db.commit()
    db.close()
    assert state(kfm)["state"] == "COMMITTED"
    assert kfm("doctor", "--fix").code == 0


@pytest.mark.parametrize("damage", ["flip", "remove"])
@pytest.mark.parametrize("label", ["promote: dataset lease", "receipts sealed"])
def test_a_damaged_candidate_starts_over(
    kfm: Kfm,
    ws: Path,
    sample: SampleUpstream,
    monkeypatch: pytest.MonkeyPatch,
    damage: str,
    label: str,
) -> None:
    monkeypatch.setenv("KFM_SAMPLE_UPSTREAM", sample.url)
    with stopped_at(ws, label):
        pass
    candidate = next((ws / "data/work" / QUAKES / "proposals").rglob("candidate.json"))
    candidate.chmod(0o644)
    candidate.write_bytes(
        b"x" + candidate.read_bytes()[1:]
    ) if damage == "flip" else candidate.unlink()
    assert state(kfm)["state"] == "COMMITTED"
    assert kfm("verify").code == 0


def test_damage_of_the_official_version_does_not_close_the_candidate_after_it(
    kfm: Kfm, ws: Path, sample: SampleUpstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KFM_SAMPLE_UPSTREAM", sample.url)
    state(kfm)
    sample.control(QUAKES, revision=1)
    with stopped_at(ws, "promote: dataset lease"):
        pass
    (facts,) = (ws / "data/processed" / QUAKES).glob("*/version.json")
    before = facts.read_bytes()
    facts.chmod(0o644)
    facts.write_bytes(b"{}")
    with open_world(open_workspace(ws)) as world:
        (waits,) = world.store.read(lambda tx: tx.runs.promotable(QUAKES))
    said = kfm("resume")
    assert said.code == 6 and "lists what is damaged" in said.err
    facts.write_bytes(before)
    assert kfm("resume").code == 0
    with open_world(open_workspace(ws)) as world:
        row = world.store.read(lambda tx: tx.runs.get(waits.run_id))
    assert row is not None and row.state == "COMMITTED"
    assert kfm("verify").code == 0


def test_resume_does_not_publish_a_capture_that_was_overtaken(
    kfm: Kfm, ws: Path, sample: SampleUpstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KFM_SAMPLE_UPSTREAM", sample.url)
    with stopped_at(ws, "part DONE"):
        pass
    registry = ws / "data/registry" / f"{QUAKES}.yml"
    registry.write_text(registry.read_text().replace("title: ", "title: New "))
    sample.control(QUAKES, revision=1)
    newest = state(kfm)
    registry.write_text(registry.read_text().replace("title: New ", "title: "))
    db = sqlite3.connect(ws / "ledger/idempotency.sqlite")
    assert [r[0] for r in db.execute("select state from ledger order by rowid")] == [
        "SUPERSEDED",
        "COMMITTED",
    ]
    assert kfm("resume").out.strip() == "Nothing to resume."
    assert head(kfm)["version_id"] == newest["version_id"]


def test_resume_keeps_the_spec_of_an_updater_run_or_refuses(
    kfm: Kfm, ws: Path, sample: SampleUpstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KFM_SAMPLE_UPSTREAM", sample.url)
    from kfm.model.clock import SystemClock
    from kfm.workspace.config import load_updater
    from kfm.workspace.targets import updater_target

    config = {
        "dataset_id": QUAKES,
        "pipeline_version": "7.0.0",
        "sources": [
            {
                "source_id": "other",
                "source_url": "https://quakes.sample.kfm.example/earthquakes.geojson",
                "format": "geojson",
            }
        ],
    }
    (ws / "c.json").write_text(json.dumps(config))
    workspace = open_workspace(ws)
    with open_world(workspace) as world:
        world.store.transaction(lambda tx: tx.jobs.put(QUAKES, "", ""))
        steps = update(
            world, updater_target(workspace, load_updater(ws / "c.json"), None, SystemClock())
        )
        while next(steps) != "part DONE":
            pass
        world.store.abandon()
    outcome = kfm("resume", "--json").json["runs"][0]
    assert outcome["state"] == "COMMITTED", outcome
    assert kfm("ledger", QUAKES, "--json").json["rows"][0]["pipeline_version"] == "7.0.0"


def test_a_failure_after_the_commit_is_not_a_failed_run(kfm: Kfm, ws: Path) -> None:
    (ws / "releases").write_text("a file stands where a folder is needed")
    outcome = state(kfm)
    assert (outcome["state"], outcome["exit_code"]) == ("COMMITTED", 0)
    (ws / "releases").unlink()
    assert kfm("doctor", "--fix").code == 0
    assert (ws / "releases" / QUAKES / "00000001.json").exists()


def test_withdrawn_content_comes_back_by_no_way(kfm: Kfm, ws: Path, sample: SampleUpstream) -> None:
    first = state(kfm)
    with open_world(open_workspace(ws)) as world:
        withdraw(world, QUAKES, "", "asked by the community")
    assert head(kfm)["state"] == "withdrawn"
    assert state(kfm)["state"] == "NOOP"
    registry = ws / "data/registry" / f"{QUAKES}.yml"
    registry.write_text(registry.read_text() + "pipeline_version: 2.0.0\n")
    assert state(kfm)["state"] == "NOOP", "another transform of the same input is the same content"
    assert state(kfm, "--force", "--reason", "try")["state"] == "REJECTED"
    assert kfm("rollback", QUAKES, "--to", f"{QUAKES}@1", "--reason", "try").code == 3
    sample.control(QUAKES, revision=1)
    assert state(kfm)["version_id"] != first["version_id"]


def test_damaged_bytes_are_no_denial_to_be_remembered(
    kfm: Kfm, ws: Path, sample: SampleUpstream
) -> None:
    state(kfm)
    base = next((ws / "data/processed" / QUAKES).rglob("*.parquet"))
    whole = base.read_bytes()
    sample.control(QUAKES, revision=1)
    base.chmod(0o644)
    base.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    outcome = state(kfm, *YEAR)
    assert outcome["state"] == "FAILED"
    base.write_bytes(whole)
    assert state(kfm, *YEAR)["state"] == "COMMITTED"


def test_reindex_names_damaged_records_and_goes_on(
    kfm: Kfm, ws: Path, sample: SampleUpstream
) -> None:
    state(kfm)
    sample.control(QUAKES, revision=1)
    second = state(kfm)
    record = ws / "data/work" / QUAKES / "runs" / second["run_id"] / "run_record.json"
    record.chmod(0o644)
    record.write_bytes(b"x" + record.read_bytes()[1:])
    assert kfm("verify").code == 6
    said = kfm("reindex", "--json")
    assert said.code == 6 and said.json["damaged"] == [
        f"work/{QUAKES}/runs/{second['run_id']}/run_record.json"
    ]
    sample.control(QUAKES, revision=0)
    assert state(kfm)["state"] == "COMMITTED", (
        "what the head holds is unknown, so nothing is unchanged"
    )


def test_an_emptied_store_is_no_new_beginning(kfm: Kfm, ws: Path) -> None:
    state(kfm)
    for file in (ws / "ledger").glob("idempotency.sqlite*"):
        file.unlink()
    (ws / "ledger/idempotency.sqlite").touch()
    assert kfm("status").code == 6
    assert kfm("run", QUAKES).code == 6
    assert kfm("reindex").code == 0
    assert state(kfm)["state"] == "NOOP"


def test_a_damaged_page_is_an_integrity_error(kfm: Kfm, ws: Path) -> None:
    state(kfm)
    store = ws / "ledger/idempotency.sqlite"
    raw = bytearray(store.read_bytes())
    raw[4096 : len(raw)] = b"\xa5" * (len(raw) - 4096)
    store.write_bytes(bytes(raw))
    for command in (("run", QUAKES), ("status",), ("doctor",), ("runs",)):
        assert kfm(*command).code == 6, command


def test_a_dry_run_after_a_crash_starts_fresh_and_touches_no_store(
    kfm: Kfm, ws: Path, sample: SampleUpstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KFM_SAMPLE_UPSTREAM", sample.url)
    with stopped_at(ws, "part DONE"):
        pass
    before = tree(ws / "ledger")
    outcome = state(kfm, "--dry-run")
    assert outcome["state"] == "COMMITTED" and outcome["dry_run"]
    assert tree(ws / "ledger") == before
    assert kfm("reindex", "--json").json["runs"] == 0


def test_a_damaged_key_signs_nothing(kfm: Kfm, ws: Path, sample: SampleUpstream) -> None:
    state(kfm)
    key = next((ws / "keys").glob("*.key"))
    whole = key.read_bytes()
    raw = bytearray(whole)
    raw[70] = ord("A") if raw[70] != ord("A") else ord("B")
    key.write_bytes(bytes(raw))
    assert kfm("doctor").code == 6
    sample.control(QUAKES, revision=1)
    before = tree(ws / "data/catalog")
    assert kfm("run", QUAKES).code == 6
    assert tree(ws / "data/catalog") == before
    key.write_bytes(whole)
    assert state(kfm)["state"] == "COMMITTED"


def test_a_flipped_byte_in_an_archived_journal_or_part_is_found(kfm: Kfm, ws: Path) -> None:
    outcome = state(kfm)
    journal = ws / "data/work" / QUAKES / "runs" / outcome["run_id"] / "wal.jsonl"
    journal.chmod(0o644)
    whole = journal.read_text()
    journal.write_text(whole.replace("DONE", "XONE", 1))
    assert kfm("verify").code == 6
    assert kfm("wal", outcome["run_id"]).code == 6
    journal.write_text(whole)
    assert kfm("verify").code == 0


def test_a_lost_tail_of_a_journal_is_noticed(
    kfm: Kfm, ws: Path, sample: SampleUpstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KFM_SAMPLE_UPSTREAM", sample.url)
    with stopped_at(ws, "promote: dataset lease"):
        pass
    db = sqlite3.connect(ws / "ledger/idempotency.sqlite")
    db.execute("delete from journal where seq = (select max(seq) from journal)")
    db.commit()
    db.close()
    assert kfm("run", QUAKES).code == 6
    assert "journal.damaged" in kfm("doctor", "--fix").out
    assert state(kfm)["state"] == "COMMITTED"


def test_one_unusable_entry_does_not_hide_the_others(kfm: Kfm, ws: Path) -> None:
    (ws / "data/registry/bad.yml").write_text("bad: [")
    said = kfm("status", "--json")
    assert said.code == 2 and len(said.json["datasets"]) == 4
    said = kfm("run", "--all", "--json")
    assert said.code == 2
    assert sorted(r["state"] for r in said.json["runs"]) == [
        "COMMITTED",
        "COMMITTED",
        "COMMITTED",
        "FAILED",
    ]


def test_the_newest_run_is_the_last_to_come_not_the_latest_by_the_clock(
    kfm: Kfm, ws: Path, sample: SampleUpstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    import time

    state(kfm)
    real = time.time_ns
    monkeypatch.setattr(time, "time_ns", lambda: real() - 86_400 * 10**9)
    sample.control(QUAKES, mode="lying")
    state(kfm)
    assert head(kfm)["state"] == "failed"


@pytest.mark.parametrize(
    "line",
    [
        "  headers: {X-Foo: ghp_abcdefghijklmnopqrstuvwxyz0123456789}\n",
        "  headers: {Authorization: abc}\n",
        "  hosts: [AKIAIOSFODNN7EXAMPLE]\n",
    ],
)
def test_a_secret_in_the_registry_is_refused_and_not_repeated(
    kfm: Kfm, ws: Path, line: str
) -> None:
    registry = ws / "data/registry" / f"{QUAKES}.yml"
    registry.write_text(
        registry.read_text().replace("  time_column: time\n", "  time_column: time\n" + line)
    )
    said = kfm("run", QUAKES)
    assert said.code == 2 and "secret" in said.err
    assert "ghp_" not in said.err and "AKIA" not in said.err


@pytest.mark.parametrize(
    "args",
    [
        ("status", "--bogus", "--json"),
        ("bogus", "--json"),
        ("explain", "--json"),
        ("run", "--json"),
    ],
)
def test_errors_are_json_when_json_was_asked_for(
    kfm: Kfm,
    args: tuple[str, ...],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    import sys

    monkeypatch.setattr(sys, "argv", ["kfm", *args])
    try:
        said = kfm(*args)
        out, code = said.out, said.code
    except SystemExit as end:
        out, code = capsys.readouterr().out, end.code
    assert code == 2 and json.loads(out)["exit_code"] == 2


def test_a_temp_folder_is_never_swept_while_it_is_made(tmp_path: Path) -> None:
    from tests.given.sweeping import sweep_and_create

    context = apart()
    workers = [
        context.Process(target=sweep_and_create, args=(tmp_path / "zone", 40)) for _ in range(3)
    ]
    for w in workers:
        w.start()
    for w in workers:
        w.join()
    assert [w.exitcode for w in workers] == [0, 0, 0]
