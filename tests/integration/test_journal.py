"""Intent before effect, read after write, lineage before commit; plans do not change unnoticed."""

import contextlib
import json
import re
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import kfm.jobs.drive
from kfm.evidence.receipts import archive_key, finish
from kfm.jobs.drive import run_target
from kfm.jobs.stepping import Stopped, drive
from kfm.model.errors import StepFailed
from kfm.model.ids import digest
from kfm.model.ledger import Token
from kfm.model.paths import aside_path, run_path
from kfm.run.promote import promote
from kfm.run.update import update
from kfm.run.work import Reached
from kfm.samples.upstream import SampleUpstream
from kfm.store.base import Tx
from kfm.upkeep.doctor import examine
from kfm.workspace.folder import open_workspace
from kfm.workspace.targets import targets_of
from kfm.workspace.wiring import open_world
from kfm.world.target import Target
from kfm.world.world import World
from tests.given.verbs import Said

Kfm = Callable[..., Said]
QUAKES = "ks_earthquakes"


@pytest.fixture
def world(ws: Path, sample: SampleUpstream, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    monkeypatch.setenv("KFM_SAMPLE_UPSTREAM", sample.url)
    with open_world(open_workspace(ws)) as found:
        yield found


def test_no_effect_without_a_record_that_states_the_intention(
    world: World, ws: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Zone writes and journal appends in one log: whatever is written was announced, durably,
    before.
    """
    story: list[tuple[str, str]] = []
    real_create, real_append = type(world.data)._create_all, type(world.store._tx.journals).append

    def create_all(self: Any, files: Any) -> Any:
        story.extend(("write", path) for path in files)
        return real_create(self, files)

    def append(self: Any, records: Any) -> None:
        story.extend(
            ("intent", r.step_id) for r in records if r.status in ("IN_PROGRESS", "PENDING")
        )
        real_append(self, records)

    monkeypatch.setattr(type(world.data), "_create_all", create_all)
    monkeypatch.setattr(type(world.store._tx.journals), "append", append)
    assert run_target(world, targets_of(open_workspace(ws), QUAKES)[0]).state == "COMMITTED"
    needed = {
        "raw/": "capture",
        "work/ks_earthquakes/parts": "transform",
        "processed/": "version",
        "work/ks_earthquakes/runs": "lineage",
    }
    writes = [path for kind, path in story if kind == "write"]
    assert len(writes) >= 6
    for number, (kind, path) in enumerate(story):
        if kind == "write":
            step = next(s for start, s in needed.items() if path.startswith(start))
            assert ("intent", step) in story[:number], (
                f"{path} was written before the journal spoke of {step}"
            )


def test_a_sink_that_loses_a_write_is_caught_before_done(
    world: World, ws: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from kfm.zones.local import LocalZone

    real = LocalZone._link

    def lose(self: Any, temp: Path, target: Path) -> bool:
        if "/parts/" not in str(target):
            return real(self, temp, target)
        target.parent.mkdir(parents=True, exist_ok=True)
        return True

    monkeypatch.setattr(LocalZone, "_link", lose)
    outcome = run_target(world, targets_of(open_workspace(ws), QUAKES)[0])
    assert (outcome.state, outcome.exit_code) == ("FAILED", 6)
    states = {(r["step_id"], r["status"]) for r in _journal(ws)}
    assert ("transform", "DONE") not in states and ("transform", "FAILED") in states


def _journal(ws: Path) -> list[dict[str, Any]]:
    archived = next((ws / "data/work" / QUAKES / "runs").rglob("wal.jsonl"), None)
    assert archived is not None
    return [json.loads(line) for line in archived.read_text().splitlines()]


def test_without_lineage_nothing_is_committed(
    kfm: Kfm, ws: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from kfm.store.lineage import LineageView

    def refuse(*_: Any, **__: Any) -> None:
        raise StepFailed("the lineage sink is down")

    with monkeypatch.context() as patched:
        patched.setattr(LineageView, "put", refuse)
        said = kfm("run", QUAKES, "--json")
    assert said.code == 1 and said.json["runs"][0]["state"] == "FAILED"
    assert not (ws / "data/catalog/channels" / QUAKES).exists()
    assert kfm("get", QUAKES, "-o", str(ws.parent / "x")).code == 2, "the version is not visible"
    assert kfm("resume", "--json").json["runs"][0]["state"] == "COMMITTED"


def test_a_plan_that_changes_without_a_version_bump_is_refused(
    kfm: Kfm, monkeypatch: pytest.MonkeyPatch
) -> None:
    import msgspec

    from kfm.run import plan as planning

    kfm("run", QUAKES)
    kfm("run", QUAKES, "--force", "--reason", "once more")
    real = planning.make_plan

    def other(target: Any, inputs: Any) -> Any:
        plan = real(target, inputs)
        return msgspec.structs.replace(plan, steps=plan.steps[:-1])

    monkeypatch.setattr(planning, "make_plan", other)
    said = kfm("run", QUAKES, "--force", "--reason", "with another plan", "--json")
    assert (
        said.code == 1
        and "version bump" in said.json["runs"][0]["reason"]
        and "steps" in said.json["runs"][0]["reason"]
    )


def test_changed_content_is_a_new_version_with_its_own_lineage(
    kfm: Kfm, ws: Path, sample: SampleUpstream
) -> None:
    kfm("run", QUAKES)
    raw = ws / "data/raw" / QUAKES
    first = {p.name: set(p.read_text().splitlines()) for p in raw.iterdir() if p.is_file()}
    sample.control(QUAKES, revision=1)
    kfm("run", QUAKES)
    for name, lines in first.items():  # both indexes go on: what was captured first is still listed
        assert lines < set((raw / name).read_text().splitlines()), name
    versions = {p.name for p in (ws / "data/processed" / QUAKES).iterdir() if p.is_dir()}
    captures = {p.name for p in (raw / "captures").iterdir()}
    assert len(versions) == len(captures) == 2
    assert captures <= set(re.findall(r"capture_id: (\S+)", (raw / "manifest.yml").read_text()))
    db = sqlite3.connect(ws / "ledger/idempotency.sqlite")
    edges = list(
        db.execute(
            "select s.name, kind, t.name from lineage_edge join lineage_node as s on s.id = source"
            " join lineage_node as t on t.id = target order by kind"
        )
    )
    made = {target: source for source, kind, target in edges if kind == "GENERATED"}
    both = {target for target in made if target.startswith("version:")}
    assert both == {f"version:{QUAKES}@{v}" for v in versions}
    assert len({made[target] for target in both}) == 2, "two runs"
    ((newer, older),) = [(s, t) for s, kind, t in edges if kind == "SUPERSEDES"]
    assert {newer, older} == both and sum(kind == "USED_IN" for _, kind, _ in edges) == 2
    told = "".join(p.read_text() for p in (ws / "data/work").rglob("lineage.cypher"))
    hashes = re.findall(r'\(n:DatasetVersion \{key: "(\S+)"\}\) WHERE .* n.hash = "(\S+)"', told)
    assert {key for key, _ in hashes} == {f"{QUAKES}@{v}" for v in versions}
    assert len({digest for _, digest in hashes}) == 2, "the hash of the first stays with it"
    rows = kfm("ledger", QUAKES, "--json").json["rows"]
    assert all(
        r["latency_ms"] is not None
        and r["freshness_minutes"] > 0
        and r["ended_at"]
        and r["rows_read"]
        for r in rows
    )


def test_an_archived_journal_explains_as_the_live_one_did(kfm: Kfm, ws: Path) -> None:
    run_id = kfm("run", QUAKES, "--json").json["runs"][0]["run_id"]
    before = (kfm("explain", run_id, "--json").json, kfm("wal", run_id, "--json").json)
    assert {(r["phase"], r["step_id"]) for r in before[1]["records"]} == {
        ("PLAN", "plan"),
        ("EXECUTE", "capture"),
        ("EXECUTE", "check"),
        ("EXECUTE", "transform"),
        ("PLAN", "pin"),
        ("EXECUTE", "assemble"),
        ("UPSERT", "version"),
        ("LINEAGE", "lineage"),
        ("LINEAGE", "channel"),
    }
    db = sqlite3.connect(ws / "ledger/idempotency.sqlite")
    db.execute("delete from journal")
    db.commit()
    db.close()
    assert (kfm("explain", run_id, "--json").json, kfm("wal", run_id, "--json").json) == before
    file = next((ws / "data/work" / QUAKES / "runs").rglob("wal.jsonl"))
    file.chmod(0o644)
    file.write_text(file.read_text().replace("capture", "Capture", 1))
    assert kfm("wal", run_id).code == 6


def test_other_bytes_in_the_place_of_an_archived_journal_are_set_aside(
    kfm: Kfm, world: World, ws: Path
) -> None:
    world.store.transaction(lambda tx: tx.jobs.put(QUAKES, "", ""))
    drive(update(world, targets_of(open_workspace(ws), QUAKES)[0]), lambda: None)
    with pytest.raises(Stopped):
        drive(promote(world, QUAKES), lambda: None, [Reached.COMMITTED])
    (row,) = [
        r for r in world.store.read(lambda tx: tx.runs.recent(QUAKES, 10)) if r.state == "COMMITTED"
    ]
    assert not row.archived
    archive = run_path(QUAKES, row.run_id, "wal.jsonl")
    world.data.create(archive, b"half a line")
    finish(world, row.run_id)
    raw = world.data.read(archive)
    assert world.store.read(lambda tx: tx.effects.digest(archive_key(archive))) == digest(raw)
    assert row.wal_id.encode() in raw
    assert world.root.read(aside_path(f"{row.run_id}-wal.jsonl")) == b"half a line"
    assert kfm("verify", QUAKES).code == 0


def test_a_recorded_input_replayed_gives_the_same_version(kfm: Kfm, sample: SampleUpstream) -> None:
    first = kfm("run", QUAKES, "--json").json["runs"][0]
    sample.control(QUAKES, mode="503")
    again = kfm(
        "run", QUAKES, "--upstream", "replay", "--force", "--reason", "replay", "--json"
    ).json["runs"][0]
    assert again["state"] == "COMMITTED" and again["version_id"] == first["version_id"]


def test_a_run_spec_is_hashed_and_recorded(kfm: Kfm, ws: Path) -> None:
    from kfm.model.ids import spec_hash

    (ws / "spec.json").write_text('{"b": 1.0,  "a": [1e2]}')
    run_id = kfm("run", QUAKES, "--spec", str(ws / "spec.json"), "--json").json["runs"][0]["run_id"]
    record = json.loads(
        (ws / "data/work" / QUAKES / "runs" / run_id / "run_record.json").read_text()
    )
    assert record["spec_file_hash"] == spec_hash({"a": [100], "b": 1})
    assert record["spec_hash"] == spec_hash(record["spec"]), (
        "the expanded spec is stored beside its hash"
    )


def test_receipts_are_written_once(kfm: Kfm, ws: Path) -> None:
    run_id = kfm("run", QUAKES, "--json").json["runs"][0]["run_id"]
    path = next((ws / "receipts").rglob(f"{run_id}.json"))
    with open_world(open_workspace(ws)) as world:
        assert not world.root.create(str(path.relative_to(ws)), b"{}")
    assert path.parent.relative_to(ws).parts[:2] == ("receipts", "ingest.pull_source")


def test_old_noops_are_packed_and_keep_their_addresses(
    kfm: Kfm, ws: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import datetime as dt

    from kfm.evidence.run_files import read_run_file, run_ids
    from kfm.model import clock
    from kfm.zones.local import LocalZone

    kfm("run", QUAKES)
    noop = kfm("run", QUAKES, "--json").json["runs"][0]["run_id"]
    zone = LocalZone(ws / "data")
    before = read_run_file(zone, QUAKES, noop, "artifacts/run.jsonl")
    real = clock.SystemClock.now
    monkeypatch.setattr(clock.SystemClock, "now", lambda self: real(self) + dt.timedelta(days=1))
    kfm("run", QUAKES)
    assert not (ws / "data/work" / QUAKES / "runs" / noop).exists()
    assert len(list((ws / "data/work" / QUAKES / "noops").iterdir())) == 1
    assert read_run_file(zone, QUAKES, noop, "artifacts/run.jsonl") == before
    assert noop in run_ids(zone, QUAKES)


def _refuse_once(world: World, monkeypatch: pytest.MonkeyPatch, step: str, status: str) -> None:
    """The store fails once, in the commit that carries this record."""
    runs = type(world.store._tx.journals)
    real, left = runs.append, [StepFailed("The store could not be written: the disk is full.")]

    def append(self: Any, records: Any) -> None:
        real(self, records)
        if left and any((r.step_id, r.status) == (step, status) for r in records):
            raise left.pop()

    monkeypatch.setattr(runs, "append", append)


@pytest.mark.parametrize(
    "record",
    [
        ("plan", "DONE"),
        ("pin", "DONE"),
        ("assemble", "DONE"),
        ("version", "IN_PROGRESS"),
        ("channel", "DONE"),
    ],
)
def test_a_commit_that_fails_leaves_no_hole_in_the_journal(
    world: World, ws: Path, monkeypatch: pytest.MonkeyPatch, record: tuple[str, str]
) -> None:
    _refuse_once(world, monkeypatch, *record)
    target = targets_of(open_workspace(ws), QUAKES)[0]
    with contextlib.suppress(StepFailed):
        run_target(world, target)
    run_target(world, target)
    assert examine(world, [QUAKES], fix=False) == []
    rows = world.store.read(lambda tx: tx.runs.recent(QUAKES, 10))
    assert [r.state for r in rows if r.state not in ("FAILED", "NOOP")] == ["COMMITTED"]
    for row in rows:
        assert len(list((ws / "receipts").rglob(f"{row.run_id}.json"))) == 1


def test_doctor_mends_a_journal_with_a_hole_whose_run_has_ended(
    kfm: Kfm, world: World, ws: Path, sample: SampleUpstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kfm.evidence.receipts.finish", lambda world, run_id: None)
    _refuse_once(world, monkeypatch, "pin", "DONE")
    assert run_target(world, targets_of(open_workspace(ws), QUAKES)[0]).state == "FAILED"
    with sqlite3.connect(ws / "ledger/idempotency.sqlite") as db:
        assert db.execute("delete from journal where seq = 2").rowcount == 1
    monkeypatch.undo()
    monkeypatch.setenv("KFM_SAMPLE_UPSTREAM", sample.url)
    assert "journal.damaged" in {f["code"] for f in kfm("doctor", "--json").json["findings"]}
    mended = kfm("doctor", "--fix", "--json").json["findings"]
    assert {f["code"]: f["fixed"] for f in mended} == {
        "journal.damaged": True,
        "journal.unarchived": True,
    }
    assert kfm("run", QUAKES).code == 0
    assert kfm("doctor", "--json").json["findings"] == []
    assert len(list((ws / "ledger/quarantine").glob("journal-*.jsonl"))) == 1


def test_who_loses_the_dataset_while_settling_another_run_is_fenced_and_does_not_look_again(
    world: World, ws: Path
) -> None:
    target = targets_of(open_workspace(ws), QUAKES)[0]
    world.store.transaction(lambda tx: tx.jobs.put(QUAKES, "", ""))
    drive(update(world, target), lambda: None)
    with pytest.raises(Stopped):
        drive(promote(world, QUAKES), lambda: None, [Reached.DECIDED])
    world.store.transaction(lambda tx: tx.jobs.put(QUAKES, "", ""))
    steps = update(world, target)
    while next(steps) is not Reached.PROMOTE_TAKEN:
        pass

    def steal(tx: Tx) -> None:
        held = next(h for h in tx.leases.held() if h.name == QUAKES)
        tx.leases.release(Token(held.name, held.epoch, held.token))
        token = tx.leases.take(QUAKES, "another", 60)
        assert token is not None
        tx.leases.release(token)

    world.store.transaction(steal)
    outcome = drive(steps, lambda: None)
    assert outcome is not None and (outcome.state, outcome.exit_code) == ("FENCED", 5)
    assert world.store.read(lambda tx: tx.leases.held()) == [], "nothing of it stays behind"


def test_what_another_process_promoted_is_told_as_what_became_of_it(
    world: World, ws: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = kfm.jobs.drive.promote_pending

    def by_another(world: World, target: Target, patience: Callable[[], None]) -> None:
        with open_world(open_workspace(ws)) as other:
            real(other, target, patience)

    monkeypatch.setattr(kfm.jobs.drive, "promote_pending", by_another)
    outcome = run_target(world, targets_of(open_workspace(ws), QUAKES)[0])
    assert (outcome.state, outcome.generation, outcome.remedy) == ("COMMITTED", 1, "")
