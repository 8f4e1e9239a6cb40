"""Housekeeping: what there is, what may go, and a workspace that comes back from a backup."""

import json
import os
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kfm.cli import main
from kfm.model.job import Request
from kfm.samples.upstream import SampleUpstream
from kfm.upkeep.retention import doomed, removed_versions
from kfm.workspace import backup
from kfm.workspace.config import change_entry
from kfm.workspace.folder import open_workspace
from kfm.workspace.wiring import open_world
from kfm.zones.local import LocalZone
from tests.given.levels import ID as LEVELS
from tests.given.levels import ledger, made
from tests.given.processes import (
    Started,
    held_connector,
    transforming,
)
from tests.given.services import schema_url, shared_server
from tests.given.verbs import QUAKES, Said, retain, revisions, tree, until, versions, worked

Kfm = Callable[..., Said]


def names(ws: Path, kind: str, grace: str = "0s") -> list[str]:
    with open_world(open_workspace(ws)) as world:
        return [item.name for item in doomed(world, QUAKES, grace) if item.kind == kind]


# ---- du ------------------------------------------------------------------------------------------
def test_du_counts_every_file_once_and_says_what_gc_would_free(
    kfm: Kfm, ws: Path, sample: SampleUpstream
) -> None:
    revisions(kfm, sample, 0, 1, 2)
    retain(ws, QUAKES, "0s")
    os.utime(ws / "data", (0, 0))
    for path in (ws / "data").rglob("*"):
        os.utime(path, (path.stat().st_mtime - 7200,) * 2)
    said = kfm("du", QUAKES, "--json").json
    row = said["datasets"][0]
    files = [
        p
        for p in (ws / "data").rglob("*")
        if p.is_file() and QUAKES in str(p) and "registry" not in p.parts
    ]
    assert sum(zone["files"] for zone in row["zones"].values()) == len(files)
    once = {p.stat().st_ino: p.stat().st_size for p in files}
    assert row["bytes"] == sum(once.values())
    dry = kfm("gc", QUAKES, "--json").json
    assert row["freeable"]["bytes"] == dry["datasets"][0]["bytes"] > 0
    assert said["disk"]["free"] > 0 and said["workspace"]["receipts"]["files"] == 3
    before = sum({p.stat().st_ino: p.stat().st_size for p in files if p.exists()}.values())
    assert kfm("gc", QUAKES, "--apply").code == 0
    # rendered again
    catalog = {
        p for p in files if "catalog" in p.parts or p.name in ("manifest.yml", "checksums.sha256")
    }
    after = sum({p.stat().st_ino: p.stat().st_size for p in files if p.exists()}.values())
    changed = sum(p.stat().st_size for p in catalog if p.exists())
    assert abs(before - after - row["freeable"]["bytes"]) <= changed


def test_du_goes_on_when_a_file_goes_while_it_counts(
    kfm: Kfm, ws: Path, sample: SampleUpstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    revisions(kfm, sample, 0)
    names = LocalZone.names
    monkeypatch.setattr(
        LocalZone, "names", lambda zone, prefix: [*names(zone, prefix), f"{prefix}/gone"]
    )
    assert kfm("du", QUAKES).code == 0


def test_du_prints_a_table_and_the_next_command(kfm: Kfm, ws: Path, sample: SampleUpstream) -> None:
    revisions(kfm, sample, 0)
    said = kfm("du")
    assert said.code == 0 and QUAKES in said.out and "Disk" in said.out
    assert kfm("du", "nothing_like_it").code == 2


# ---- gc ------------------------------------------------------------------------------------------
def test_gc_without_apply_changes_no_byte(kfm: Kfm, ws: Path, sample: SampleUpstream) -> None:
    revisions(kfm, sample, 0, 1, 2)
    retain(ws, QUAKES, "0s")
    before = tree(ws, without=("ledger",))
    said = kfm("gc", "--grace", "0s")
    assert "--apply" in said.out and "version" in said.out
    assert tree(ws, without=("ledger",)) == before


def test_a_rollback_within_retention_works_after_gc(
    kfm: Kfm, ws: Path, sample: SampleUpstream
) -> None:
    made = revisions(kfm, sample, 0, 1, 2)
    retain(ws, QUAKES, "30d")
    assert kfm("gc", "--apply", "--grace", "0s").code == 0
    assert versions(ws) == set(made)
    assert kfm("rollback", QUAKES, "--to", made[0], "--reason", "a bad feed").code == 0
    assert kfm("verify").code == 0


def test_what_a_rollback_goes_back_to_by_default_stays_whatever_its_age(
    kfm: Kfm, ws: Path, sample: SampleUpstream
) -> None:
    made = revisions(kfm, sample, 0, 1, 2)
    retain(ws, QUAKES, "0s")
    assert kfm("gc", "--apply", "--grace", "0s").code == 0
    assert versions(ws) == {made[1], made[2]}
    assert kfm("rollback", QUAKES, "--reason", "a bad feed").code == 0
    assert kfm("status", "--json").json["datasets"][0]["version_id"] == made[1]
    with open_world(open_workspace(ws)) as world:
        assert removed_versions(world.data, QUAKES) == {made[0]}


def folders(ws: Path, kind: str) -> set[str]:
    return {p.name for p in (ws / "data" / "work" / QUAKES / kind).glob("*")}


def test_runs_nothing_came_of_go_with_their_proposals_and_all_evidence_stays(
    kfm: Kfm, ws: Path, sample: SampleUpstream
) -> None:
    revisions(kfm, sample, 0, 1)
    proof = folders(ws, "runs")
    assert kfm("run", QUAKES, "--dry-run", "--force", "--reason", "a try").code == 0
    (dry,) = folders(ws, "runs") - proof
    assert kfm("run", QUAKES, "--json").json["runs"][0]["state"] == "NOOP"
    (noop,) = folders(ws, "runs") - proof - {dry}
    entry = ws / "data" / "registry" / f"{QUAKES}.yml"
    whole = entry.read_text()
    entry.write_text(whole.replace("licence: CC0-1.0\n", ""))
    denied = []
    for number in (2, 3):
        sample.control(QUAKES, revision=number)
        denied.append(kfm("run", QUAKES, "--json").json["runs"][0]["run_id"])
    assert {*denied} <= folders(ws, "proposals")
    assert names(ws, "run") == names(ws, "proposal") == [], "retention is not set"
    retain(ws, QUAKES, "0s")
    assert (names(ws, "run"), names(ws, "proposal")) == ([denied[0], dry], [denied[0]])
    assert kfm("gc", "--apply", "--grace", "0s").code == 0
    assert folders(ws, "runs") == {*proof, noop, denied[1]} and denied[0] not in folders(
        ws, "proposals"
    )
    assert kfm("gates", QUAKES).code == 3, "what was denied last is judged again"
    assert kfm("explain", denied[0]).code == 0
    assert kfm("verify").code == 0
    entry.write_text(whole)
    assert kfm("doctor").code == kfm("reindex").code == kfm("verify").code == 0
    assert kfm("run", QUAKES, "--json").json["runs"][0]["state"] == "COMMITTED"


def test_a_proposal_that_a_person_signed_stays(kfm: Kfm, ws: Path, sample: SampleUpstream) -> None:
    revisions(kfm, sample, 0)
    ids = []
    for number in (1, 2):
        sample.control(QUAKES, revision=number)
        ids.append(kfm("propose", QUAKES, "--json").json["runs"][0]["run_id"])
        signed = ws / "data" / "work" / QUAKES / "proposals" / ids[0] / "approvals"
        signed.mkdir(exist_ok=True)
        (signed / "somebody.json").write_text("{}")
    revisions(kfm, sample, 3)
    retain(ws, QUAKES, "0s")
    assert names(ws, "proposal") == names(ws, "run") == [ids[1]]


def test_what_was_made_of_a_withdrawn_version_goes_whatever_retention_says(
    kfm: Kfm, ws: Path, sample: SampleUpstream
) -> None:
    made = revisions(kfm, sample, 0, 1)
    for kind in ("tiles", "index"):
        for version in made:
            (folder := ws / "data" / "work" / QUAKES / kind / version).mkdir(parents=True)
            (folder / "x").write_bytes(b"with every record")
    assert names(ws, "tiles") == names(ws, "index") == []
    assert kfm("withdraw", "--yes", QUAKES, "--reason", "asked for").code == 0
    assert sorted(names(ws, "tiles")) == sorted(names(ws, "index")) == sorted(made)


def test_a_rollback_never_ends_at_a_version_that_gc_removes_at_the_same_moment(
    kfm: Kfm, ws: Path, sample: SampleUpstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = revisions(kfm, sample, 0, 1, 2)
    retain(ws, QUAKES, "0s")
    swept = []

    def meanwhile(*_: Any) -> None:
        swept.append(worked(ws, "maintenance.gc", apply=True, grace="0s").status)

    monkeypatch.setattr("kfm.cli.rollback.check_version", meanwhile)
    assert kfm("rollback", QUAKES, "--to", made[0], "--reason", "a bad feed").code == 6
    assert swept == ["succeeded"] and versions(ws) == set(made[1:])
    assert kfm("status", "--json").json["datasets"][0]["version_id"] == made[2]
    assert kfm("verify").code == 0


def test_without_retention_everything_published_is_kept_for_ever(
    kfm: Kfm, ws: Path, sample: SampleUpstream
) -> None:
    made = revisions(kfm, sample, 0, 1, 2)
    (stray := ws / "data" / "work" / QUAKES / "parts" / ("0" * 32)).mkdir()
    (stray / "x.parquet").write_bytes(b"nobody's")
    (left := ws / "data" / "processed" / QUAKES / f"v{'0' * 32}").mkdir()
    (left / "x.parquet").write_bytes(b"of a promotion that never was")
    before = tree(ws / "data", without=("work/ks_earthquakes/gc", "work/ks_earthquakes/parts/0"))
    assert kfm("gc", "--apply", "--grace", "0s").code == 0
    assert tree(ws / "data", without=("work/ks_earthquakes/gc",)) == before
    assert versions(ws) == {*made, left.name} and not stray.exists()


def test_what_is_younger_than_the_grace_time_stays(
    kfm: Kfm, ws: Path, sample: SampleUpstream
) -> None:
    made = revisions(kfm, sample, 0, 1, 2)
    retain(ws, QUAKES, "0s")
    assert kfm("gc", "--apply").code == 0
    assert versions(ws) == set(made)


def test_a_held_version_stays_until_it_is_released(
    kfm: Kfm, ws: Path, sample: SampleUpstream
) -> None:
    made = revisions(kfm, sample, 0, 1, 2)
    retain(ws, QUAKES, "0s")
    assert kfm("gc", "--hold", f"{QUAKES}@{made[0]}").code == 2  # no reason
    assert kfm("gc", "--hold", f"{QUAKES}@{made[0]}", "--reason", "a court order").code == 0
    kfm("gc", "--apply", "--grace", "0s")
    assert versions(ws) == set(made)
    assert kfm("gc", "--release", f"{QUAKES}@{made[0]}", "--json").json["status"] == "released"
    kfm("gc", "--apply", "--grace", "0s")
    assert versions(ws) == set(made[1:])


def test_an_open_proposal_keeps_what_it_was_made_of(
    kfm: Kfm, ws: Path, sample: SampleUpstream
) -> None:
    revisions(kfm, sample, 0, 1)
    retain(ws, QUAKES, "0s")
    sample.control(QUAKES, revision=2)
    number = kfm("propose", QUAKES, "--json").json["runs"][0]["proposal"]
    assert kfm("gc", "--apply", "--grace", "0s").code == 0
    assert kfm("promote", str(number)).code == 0, "its part and its capture are still there"


def test_an_interrupted_run_keeps_its_capture_and_is_resumed_after_gc(
    kfm: Kfm, ws: Path, sample: SampleUpstream
) -> None:
    revisions(kfm, sample, 0)
    retain(ws, QUAKES, "0s")
    hold = held_connector(ws)
    sample.control(QUAKES, revision=1)
    run = Started(ws, sample, "run", QUAKES)
    until(lambda: transforming(ws))
    run.kill()
    hold.unlink()
    captures = ws / "data" / "raw" / QUAKES / "captures"
    before = {p.name for p in captures.iterdir()}
    assert kfm("gc", "--apply", "--grace", "0s").code == 0
    assert {p.name for p in captures.iterdir()} == before and len(before) == 2
    sample.control(QUAKES, mode="503")
    assert kfm("resume").code == 0  # from its own capture: upstream is not asked


def test_staged_parts_and_their_captures_stay_until_their_backfill_is_cancelled(
    tmp_path: Path,
) -> None:
    ws = made(tmp_path / "ws")
    change_entry(ws, LEVELS, {"licence": None, "retention": "0s"})
    assert main(["-w", str(ws), "backfill", "start", "history", "--inline"]) == 3
    parts, captures = (
        ws / "data" / "work" / LEVELS / "parts",
        ws / "data" / "raw" / LEVELS / "captures",
    )
    waiting, before = {str(r.part)[7:39] for r in ledger(ws) if r.state == "STAGED"}, tree(captures)
    assert main(["-w", str(ws), "gc", "--apply", "--grace", "0s"]) == 0
    assert {p.name for p in parts.iterdir()} == waiting and len(waiting) == 4
    assert tree(captures) == before != {}
    assert main(["-w", str(ws), "backfill", "cancel", "history", "--reason", "asked for"]) == 0
    assert main(["-w", str(ws), "gc", "--apply", "--grace", "0s"]) == 0
    assert not list(parts.glob("*")) and not list(captures.glob("*"))


def test_captures_and_catalog_records_of_a_version_that_is_gone_go_with_it(
    kfm: Kfm, ws: Path, sample: SampleUpstream
) -> None:
    made = revisions(kfm, sample, 0, 1, 2)
    retain(ws, QUAKES, "0s")
    tiles = ws / "data" / "work" / QUAKES / "tiles" / made[0]
    tiles.mkdir(parents=True)
    (tiles / "x.pmtiles").write_bytes(b"tiles")
    assert len(names(ws, "capture")) == 1 and names(ws, "tiles") == [made[0]]
    kfm("gc", "--apply", "--grace", "0s")
    assert len(list((ws / "data" / "raw" / QUAKES / "captures").iterdir())) == 2
    items = ws / "data" / "catalog" / "stac" / QUAKES / "items"
    assert {p.name for p in items.iterdir()} == set(made[1:])
    assert (
        made[0] not in (ws / "data" / "catalog" / "stac" / QUAKES / "collection.json").read_text()
    )
    assert not tiles.exists()
    assert kfm("gates", QUAKES).code == 0
    sample.control(QUAKES, revision=3)
    assert kfm("run", QUAKES, "--json").json["runs"][0]["state"] == "COMMITTED"


def test_a_version_that_comes_back_after_gc_is_whole_again(
    kfm: Kfm, ws: Path, sample: SampleUpstream
) -> None:
    made = revisions(kfm, sample, 0, 1, 2)
    retain(ws, QUAKES, "0s")
    kfm("gc", "--apply", "--grace", "0s")
    assert revisions(kfm, sample, 0) == [made[0]]
    assert kfm("verify").code == 0


def test_gc_waits_for_nobody_while_a_run_is_at_work(
    kfm: Kfm, ws: Path, sample: SampleUpstream
) -> None:
    made = revisions(kfm, sample, 0, 1, 2)
    retain(ws, QUAKES, "0s")
    held_connector(ws)
    sample.control(QUAKES, revision=3)
    run = Started(ws, sample, "run", QUAKES)
    until(lambda: transforming(ws))
    said = kfm("gc", QUAKES, "--apply", "--grace", "0s")
    assert said.code == 5 and "A run is at work" in said.out
    assert versions(ws) == set(made)
    run.kill()


def test_quarantine_goes_when_it_was_decided_on_and_not_before(
    kfm: Kfm, ws: Path, sample: SampleUpstream
) -> None:
    entry = ws / "data" / "registry" / f"{QUAKES}.yml"
    entry.write_text(entry.read_text() + "max_quarantined: 0.5\nretention: 0s\n")
    sample.control(QUAKES, mode="bad_rows")
    run = kfm("run", QUAKES, "--json").json["runs"][0]
    assert run["quarantined"] and names(ws, "quarantine") == []
    assert kfm("quarantine", "accept", run["run_id"], "--reason", "known and harmless").code == 0
    assert names(ws, "quarantine") == [run["run_id"]]
    kfm("gc", "--apply", "--grace", "0s")
    left = sorted(
        p.name
        for p in (ws / "data" / "work" / QUAKES / "quarantine" / run["run_id"]).rglob("*")
        if p.is_file()
    )
    assert left == ["0001.json"]  # the decision itself


def test_what_is_gone_is_neither_damage_nor_listed(
    kfm: Kfm, ws: Path, sample: SampleUpstream
) -> None:
    made = revisions(kfm, sample, 0, 1, 2)
    retain(ws, QUAKES, "0s")
    kfm("gc", "--apply", "--grace", "0s")
    assert kfm("verify").code == 0
    assert made[0] not in (ws / "data" / "catalog" / "dcat" / f"{QUAKES}.json").read_text()
    findings = kfm("doctor", "--json").json["findings"]
    assert [f for f in findings if f["code"] != "schedule.missing"] == []
    said = kfm("get", f"{QUAKES}@{made[0]}", "-o", str(ws / "out"))
    assert said.code == 3 and "retention" in said.err
    assert kfm("rollback", QUAKES, "--to", made[0], "--reason", "x").code == 3
    assert kfm("reindex").code == 0 and kfm("verify").code == 0


# ---- backup --------------------------------------------------------------------------------------
def restored(bk: Path, new: Path, capsys: Any) -> Any:
    capsys.readouterr()
    code = main(["backup", "--restore", str(bk), "-w", str(new), "--json"])
    return code, json.loads(capsys.readouterr().out)


@pytest.mark.parametrize(
    "full",
    [OSError(28, "No space left on device"), sqlite3.OperationalError("database or disk is full")],
)
def test_a_full_disk_leaves_nothing_half_made_and_the_same_command_works_later(
    full: Exception,
    kfm: Kfm,
    ws: Path,
    sample: SampleUpstream,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    revisions(kfm, sample, 0)

    def refuse(*_: Any) -> None:
        raise full

    for step, command in (
        ("_snapshot", ["backup", "b", "-w", str(ws)]),
        ("_new_epoch", ["backup", "--restore", "b", "-w", "new"]),
    ):
        monkeypatch.chdir(tmp_path)
        with monkeypatch.context() as patch:
            patch.setattr(backup, step, refuse)
            said = main(command)
        assert said == 1 and not Path(command[-1 if step == "_new_epoch" else 1]).exists()
        assert main(command) == 0


def test_a_restored_workspace_works_in_an_epoch_of_its_own(
    kfm: Kfm, ws: Path, tmp_path: Path, sample: SampleUpstream, capsys: pytest.CaptureFixture[str]
) -> None:
    made = revisions(kfm, sample, 0, 1)
    with open_world(open_workspace(ws)) as world:
        waiting = world.store.transaction(
            lambda tx: tx.jobs.submit(Request(job_type="repair", dataset_id=QUAKES))
        ).job_id
    bk, new = tmp_path / "bk", tmp_path / "new"
    assert kfm("backup", str(bk), "--with-keys").code == 0
    code, said = restored(bk, new, capsys)
    assert (code, said["epoch"], said["reindexed"]) == (0, 2, False)
    assert tree(new / "data") == tree(ws / "data")
    for key in (new / "keys").glob("*.key"):
        assert key.stat().st_mode & 0o777 == 0o600
    assert main(["-w", str(new), "verify"]) == 0
    findings = _json(capsys, main, ["-w", str(new), "doctor", "--json"])["findings"]
    assert [f for f in findings if f["code"] != "schedule.missing"] == []
    assert (
        _json(capsys, main, ["-w", str(new), "run", QUAKES, "--json"])["runs"][0]["state"] == "NOOP"
    )
    sample.control(QUAKES, revision=2)
    assert (
        _json(capsys, main, ["-w", str(new), "run", QUAKES, "--json"])["runs"][0]["state"]
        == "COMMITTED"
    )
    with open_world(open_workspace(new)) as world:
        assert world.store.read(lambda tx: tx.jobs.of(waiting)).state == "queued"
    # the original is untouched
    assert kfm("status", "--json").json["datasets"][0]["version_id"] == made[1]


def test_links_are_followed_or_named_and_a_restore_ends_with_a_doctor_and_a_dry_run(
    kfm: Kfm, ws: Path, tmp_path: Path, sample: SampleUpstream, capsys: pytest.CaptureFixture[str]
) -> None:
    revisions(kfm, sample, 0)
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git" / "HEAD").write_text("ref: refs/heads/main\n")
    (ws / "policy").rename(tmp_path / "rules")
    links = {
        "policy": tmp_path / "rules", "data/notes": tmp_path / "notes.txt", "hosts": Path("/etc/hosts"), "null": Path("/dev/null"),
        "lost": tmp_path / "nowhere", "up": tmp_path, "data/again": ws / "data", "mine": next((ws / "keys").glob("*.key")),
        "store": ws / "ledger" / "idempotency.sqlite", "round": ws / "round",
    }  # fmt: skip
    (tmp_path / "notes.txt").write_text("kept")
    for name, target in links.items():
        (ws / name).symlink_to(target)
    made = kfm("backup", str(tmp_path / "bk"), "--json").json
    assert made["left_out"].keys() == {"hosts", "null", "lost", "up", "data/again", "mine", "round"}
    inside = {
        str(p.relative_to(tmp_path / "bk/workspace"))
        for p in (tmp_path / "bk/workspace").rglob("*")
        if p.is_file()
    }
    assert {"policy/promotion.rego", "data/notes"} <= inside and not any(
        n.endswith((".key", "mine", "store")) for n in inside
    )
    said = kfm("backup", str(tmp_path / "bk2"), "--with-keys").out
    assert "hosts is a link and not inside: it leads out of the workspace" in said
    code, done = restored(tmp_path / "bk2", tmp_path / "new", capsys)
    assert (code, done["dry_run"]["state"], done["dry_run"]["dataset_id"]) == (
        0,
        "COMMITTED",
        QUAKES,
    ), done["dry_run"]["reason"]
    assert {f["code"] for f in done["findings"]} <= {"schedule.missing"} and not (
        tmp_path / "new" / "policy"
    ).is_symlink()
    assert tree(tmp_path / "new" / "data", without=("notes",)) == tree(
        ws / "data", without=("notes", "again")
    )
    (ws / "policy").unlink()
    assert kfm("backup", str(tmp_path / "bk3"), "--with-keys").code == 0
    _, done = restored(tmp_path / "bk3", tmp_path / "bare", capsys)
    assert (done["status"], done["dry_run"]["exit_code"]) == ("restored_with_findings", 3), (
        "it can publish nothing, and says so"
    )


def _json(capsys: Any, call: Callable[[list[str]], int], args: list[str]) -> Any:
    capsys.readouterr()
    call(args)
    return json.loads(capsys.readouterr().out)


def test_keys_stay_out_unless_they_are_asked_for(
    kfm: Kfm, ws: Path, tmp_path: Path, sample: SampleUpstream
) -> None:
    revisions(kfm, sample, 0)
    assert kfm("backup", str(tmp_path / "bk")).code == 0
    inside = {p.name for p in (tmp_path / "bk").rglob("*") if p.is_file()}
    assert not any(name.endswith(".key") for name in inside) and any(
        name.endswith(".pub") for name in inside
    )


@pytest.mark.parametrize(
    "how",
    [
        "no manifest",
        "a lost file",
        "a changed byte",
        "a changed manifest",
        "one more file",
        "a cut store",
    ],
)
def test_a_torn_backup_is_refused_and_nothing_is_restored(
    kfm: Kfm, ws: Path, tmp_path: Path, sample: SampleUpstream, how: str
) -> None:
    revisions(kfm, sample, 0)
    bk, new = tmp_path / "bk", tmp_path / "new"
    kfm("backup", str(bk))
    assert kfm("backup", str(bk), "--verify").code == 0
    table = next((bk / "workspace" / "data" / "processed").rglob("*.parquet"))
    table.chmod(0o644)
    if how == "no manifest":
        (bk / "BACKUP.json").unlink()
    elif how == "a lost file":
        table.unlink()
    elif how == "a changed byte":
        table.write_bytes(table.read_bytes()[:-1] + b"?")
    elif how == "a changed manifest":
        (bk / "BACKUP.json").write_text(
            (bk / "BACKUP.json").read_text().replace('"epoch": 1', '"epoch": 7')
        )
    elif how == "one more file":
        (bk / "workspace" / "extra").write_text("x")
    else:
        (bk / "store.sqlite").write_bytes((bk / "store.sqlite").read_bytes()[:-4096])
    assert kfm("backup", str(bk), "--verify").code == 6
    assert main(["backup", "--restore", str(bk), "-w", str(new)]) == 6
    assert not new.exists()


def test_a_backup_made_while_a_run_goes_on_is_resumed_elsewhere(
    kfm: Kfm, ws: Path, tmp_path: Path, sample: SampleUpstream, capsys: pytest.CaptureFixture[str]
) -> None:
    made = revisions(kfm, sample, 0)
    hold = held_connector(ws)
    sample.control(QUAKES, revision=1)
    run = Started(ws, sample, "run", QUAKES)
    until(lambda: transforming(ws))
    bk, new = tmp_path / "bk", tmp_path / "new"
    assert kfm("backup", str(bk), "--with-keys").code == 0
    hold.unlink()
    assert run.wait() == 0  # the backup did not disturb it
    code, said = restored(bk, new, capsys)
    assert code == 0 and said["reindexed"] is False
    assert (
        _json(capsys, main, ["-w", str(new), "status", "--json"])["datasets"][0]["version_id"]
        == made[0]
    )
    assert main(["-w", str(new), "resume"]) == 0
    theirs = _json(capsys, main, ["-w", str(new), "status", "--json"])["datasets"][0]
    ours = kfm("status", "--json").json["datasets"][0]
    assert (theirs["version_id"], theirs["generation"]) == (ours["version_id"], ours["generation"])
    assert main(["-w", str(new), "verify"]) == 0


def test_what_became_official_after_the_store_was_copied_is_not_lost(
    kfm: Kfm,
    ws: Path,
    tmp_path: Path,
    sample: SampleUpstream,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    revisions(kfm, sample, 0)
    with open_world(open_workspace(ws)) as world:
        waiting = world.store.transaction(
            lambda tx: tx.jobs.submit(Request(job_type="repair", dataset_id=QUAKES))
        ).job_id

    snapshot = backup._snapshot

    def slowly(workspace: Any, into: Path) -> int:
        epoch = snapshot(workspace, into)
        # a whole run between the store and the second look at the evidence
        revisions(kfm, sample, 1)
        return epoch

    monkeypatch.setattr(backup, "_snapshot", slowly)
    bk, new = tmp_path / "bk", tmp_path / "new"
    assert kfm("backup", str(bk), "--with-keys").code == 0
    code, said = restored(bk, new, capsys)
    assert (code, said["reindexed"]) == (0, True)
    theirs = _json(capsys, main, ["-w", str(new), "status", "--json"])["datasets"][0]
    ours = kfm("status", "--json").json["datasets"][0]
    assert (theirs["version_id"], theirs["last_run_id"]) == (
        ours["version_id"],
        ours["last_run_id"],
    )
    with open_world(open_workspace(new)) as world:
        assert world.store.read(lambda tx: tx.jobs.of(waiting)).state == "queued"
    assert (
        _json(capsys, main, ["-w", str(new), "run", QUAKES, "--json"])["runs"][0]["state"] == "NOOP"
    )
    assert main(["-w", str(new), "verify"]) == 0


def test_links_share_bytes_and_logs_are_copied(
    kfm: Kfm, ws: Path, tmp_path: Path, sample: SampleUpstream
) -> None:
    revisions(kfm, sample, 0)
    bk = tmp_path / "bk"
    assert kfm("backup", str(bk), "--link").code == 0
    table = next((ws / "data" / "processed").rglob("*.parquet"))
    assert (bk / "workspace" / table.relative_to(ws)).stat().st_ino == table.stat().st_ino
    log = next((ws / "data" / "work").rglob("run.jsonl"))
    assert (bk / "workspace" / log.relative_to(ws)).stat().st_ino != log.stat().st_ino
    revisions(kfm, sample, 1)
    assert kfm("backup", str(bk), "--verify").code == 0


def test_a_backup_does_not_overwrite_and_does_not_lie_in_its_workspace(
    kfm: Kfm, ws: Path, tmp_path: Path, sample: SampleUpstream
) -> None:
    revisions(kfm, sample, 0)
    assert kfm("backup", str(tmp_path / "bk")).code == 0
    assert kfm("backup", str(tmp_path / "bk")).code == 2
    assert kfm("backup", str(ws / "bk")).code == 2
    assert main(["backup", "--restore", str(tmp_path / "bk"), "-w", str(ws)]) == 2


def test_leases_are_not_restored(
    kfm: Kfm, ws: Path, tmp_path: Path, sample: SampleUpstream, capsys: pytest.CaptureFixture[str]
) -> None:
    revisions(kfm, sample, 0)
    bk, new = tmp_path / "bk", tmp_path / "new"
    with open_world(open_workspace(ws)) as world:
        token = world.store.transaction(lambda tx: tx.leases.take(QUAKES, "me", 3600))
        assert token is not None
        assert kfm("backup", str(bk)).code == 0
    restored(bk, new, capsys)
    db = sqlite3.connect(new / "ledger" / "idempotency.sqlite")
    try:
        assert db.execute("select count(*) from lease where holder is not null").fetchone() == (0,)
    finally:
        db.close()


def test_a_store_on_a_server_is_backed_up_too_and_restored_into_a_file(
    kfm: Kfm,
    ws: Path,
    tmp_path: Path,
    sample: SampleUpstream,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("KFM_TEST_STORE", schema_url(shared_server()))
    config = ws / "kfm.yml"
    config.write_text(
        config.read_text().replace("sqlite:///ledger/idempotency.sqlite", "env:KFM_TEST_STORE")
    )
    made = revisions(kfm, sample, 0, 1, 2)
    retain(ws, QUAKES, "0s")
    assert kfm("gc", "--apply", "--grace", "0s").code == 0 and versions(ws) == set(made[1:])
    bk, new = tmp_path / "bk", tmp_path / "new"
    assert kfm("backup", str(bk), "--with-keys").code == 0
    code, said = restored(bk, new, capsys)
    assert (code, said.get("needs")) == (0, "store"), said
    monkeypatch.delenv("KFM_TEST_STORE")
    theirs = _json(capsys, main, ["-w", str(new), "status", "--json"])["datasets"][0]
    assert (theirs["version_id"], theirs["generation"]) == (made[2], 3)
    assert main(["-w", str(new), "rollback", QUAKES, "--reason", "try it"]) == 0


def test_a_rollback_asks_for_what_is_made_from_a_version_where_a_worker_runs_and_offers_it_where_none_does(
    kfm: Kfm, ws: Path, sample: SampleUpstream
) -> None:
    entry = ws / "data" / "registry" / f"{QUAKES}.yml"
    entry.write_text(entry.read_text() + "\nderive: [tiles]\n")
    made = revisions(kfm, sample, 0, 1)
    queued = lambda: {  # noqa: E731
        j["job_type"] for j in kfm("jobs", "list", "--json").json["jobs"] if j["state"] == "queued"
    }
    said = kfm("rollback", QUAKES, "--to", made[0], "--reason", "a bad feed")
    assert (said.code, queued()) == (0, set()), "nobody is there to work what nobody asked for"
    assert f"worker run-job transform.build_tiles --dataset kfm://dataset/{QUAKES}" in said.err
    with open_world(open_workspace(ws)) as world:
        token = world.store.transaction(lambda tx: tx.leases.take("worker/me", "me", 60))
        assert kfm("rollback", QUAKES, "--to", made[1], "--reason", "it was right").code == 0
        assert queued() == {"validate.qa_dataset", "transform.build_tiles"}
        world.store.transaction(lambda tx: tx.leases.release(token))
    assert kfm("withdraw", "--yes", QUAKES, "--reason", "a worse feed").code == 0
    assert kfm("worker", "run", "--until-idle").code == 0
