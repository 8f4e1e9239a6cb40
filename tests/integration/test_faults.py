"""What is promised when things break: kills, signals, two at once, frozen holders, damaged state,
full disks.
"""

import errno
import json
import os
import signal
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kfm.samples.upstream import SampleUpstream
from kfm.workspace.folder import open_workspace
from kfm.workspace.targets import targets_of
from kfm.workspace.wiring import open_world
from tests.given.processes import held_connector, start, transforming
from tests.given.verbs import Said, run_out, tree, until

Kfm = Callable[..., Said]
QUAKES = "ks_earthquakes"


def states(ws: Path) -> list[str]:
    file = ws / "ledger" / "idempotency.sqlite"
    if not file.exists():
        return []
    db = sqlite3.connect(file)
    try:
        return [r[0] for r in db.execute("select state from ledger order by run_id")]
    except sqlite3.OperationalError:
        return []
    finally:
        db.close()


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_an_interrupted_run_is_resumed(
    kfm: Kfm, ws: Path, sample: SampleUpstream, number: signal.Signals, code: int
) -> None:
    held_connector(ws)
    process = start(ws, sample, "run", QUAKES)
    until(lambda: transforming(ws))
    os.kill(process.pid, number)
    assert process.wait() == code
    assert f"kfm -w {ws} resume" in process.err
    assert states(ws) == ["CLAIMED"]
    code = ws / "scripts" / "connectors" / QUAKES / "connector.py"
    # another spec: it starts over, nothing is lost or doubled
    code.write_text("def transform(ctx, rows):\n    yield from rows\n")
    assert kfm("run", QUAKES).code == 0
    assert states(ws) == ["SUPERSEDED", "COMMITTED"]
    assert kfm("doctor", "--fix").code == 0
    assert kfm("doctor").code == 0


def test_a_killed_run_is_resumed_as_the_same_run(
    kfm: Kfm, ws: Path, sample: SampleUpstream
) -> None:
    hold = held_connector(ws)
    process = start(ws, sample, "run", QUAKES)
    until(lambda: transforming(ws))
    process.kill()
    hold.unlink()
    sample.control(QUAKES, mode="503")  # resuming needs no network: the capture is there
    assert kfm("status", "--json").json["datasets"][0]["state"] == "waiting"
    assert kfm("resume").code == 0
    assert states(ws) == ["COMMITTED"]
    assert kfm("doctor", "--fix").code == 0
    assert not list((ws / "data" / ".tmp").glob("*")) if (ws / "data" / ".tmp").exists() else True
    assert not list((ws / "ledger" / "locks").glob("*"))


def test_two_runs_at_once_make_one_version(kfm: Kfm, ws: Path, sample: SampleUpstream) -> None:
    hold = held_connector(ws)
    both = [start(ws, sample, "run", QUAKES, "--json") for _ in range(2)]
    until(lambda: transforming(ws))
    hold.unlink()
    assert [p.wait() for p in both] == [0, 0]
    runs = [json.loads(p.out)["runs"][0] for p in both]
    assert sorted({r["state"] for r in runs}) in (["COMMITTED"], ["COMMITTED", "NOOP"])
    # one may propose what the other makes official
    assert len({r["run_id"] for r in runs if r["state"] == "COMMITTED"}) == 1
    assert states(ws) == ["COMMITTED"]


def test_what_the_system_refuses_before_a_run_begins_is_its_outcome_too(kfm: Kfm, ws: Path) -> None:
    """One dataset answers as many do: with its run, whatever it was that failed."""
    (ws / "ledger" / "turnstile.lock").mkdir(parents=True)
    for names in ([QUAKES], ["--all"]):
        said = kfm("run", *names, "--json")
        assert said.code == 1, said
        (run,) = (r for r in said.json["runs"] if r["dataset_id"] == QUAKES)
        assert (run["state"], run["exit_code"]) == ("FAILED", 1)
        assert "The system refused an operation" in run["reason"]


def test_a_run_that_may_not_wait_is_fenced_at_once(
    kfm: Kfm, ws: Path, sample: SampleUpstream
) -> None:
    held_connector(ws)
    process = start(ws, sample, "run", QUAKES)
    until(lambda: transforming(ws))
    assert kfm("run", QUAKES, "--wait", "0").code == 5
    process.kill()


def test_a_frozen_holder_that_wakes_up_cannot_write(
    kfm: Kfm, ws: Path, sample: SampleUpstream
) -> None:
    hold = held_connector(ws)
    frozen = start(ws, sample, "run", QUAKES, "--json")
    until(lambda: transforming(ws))
    os.kill(frozen.pid, signal.SIGSTOP)
    run_out(ws, f"{QUAKES}/-")
    hold.unlink()
    assert kfm("run", QUAKES, "--json").json["runs"][0]["state"] == "COMMITTED"
    before = tree(ws / "data", without=("work/", ".tmp"))
    os.kill(frozen.pid, signal.SIGCONT)
    assert frozen.wait() == 5
    assert json.loads(frozen.out)["runs"][0]["state"] == "FENCED"
    assert tree(ws / "data", without=("work/", ".tmp")) == before
    assert states(ws) == ["COMMITTED"]


def test_a_damaged_ledger_row_is_set_aside_and_nothing_is_published_twice(
    kfm: Kfm, ws: Path
) -> None:
    kfm("run", QUAKES)
    db = sqlite3.connect(ws / "ledger" / "idempotency.sqlite")
    db.execute("update ledger set input_hash = 'x' || substr(input_hash, 2)")
    db.commit()
    db.close()
    said = kfm("doctor", "--json")
    assert said.code == 6 and said.json["findings"][0]["code"] == "ledger.damaged"
    assert kfm("run", QUAKES, "--json").json["runs"][0]["state"] == "NOOP"
    assert list((ws / "ledger" / "quarantine").glob("row-*.json"))
    assert kfm("status", "--json").json["datasets"][0]["generation"] == 1
    assert kfm("doctor").code == 0


def test_a_damaged_journal_is_named_and_set_aside(
    kfm: Kfm, ws: Path, sample: SampleUpstream
) -> None:
    held_connector(ws)
    process = start(ws, sample, "run", QUAKES)
    until(lambda: transforming(ws))
    process.kill()
    db = sqlite3.connect(ws / "ledger" / "idempotency.sqlite")
    db.execute("update journal set payload = replace(payload, 'capture', 'Capture') where seq = 1")
    db.commit()
    db.close()
    said = kfm("run", QUAKES)
    assert said.code == 6 and "doctor --fix" in said.err
    said = kfm("doctor", "--fix", "--json")
    assert "journal.damaged" in [f["code"] for f in said.json["findings"]]
    assert list((ws / "ledger" / "quarantine").glob("journal-*.jsonl"))
    (ws / "scripts" / "connectors" / QUAKES / "connector.py").unlink()
    assert kfm("run", QUAKES).code == 0


def test_a_torn_tail_of_the_store_is_recovered(kfm: Kfm, ws: Path, sample: SampleUpstream) -> None:
    held_connector(ws)
    process = start(ws, sample, "run", QUAKES)
    until(lambda: transforming(ws))
    process.kill()
    wal = ws / "ledger" / "idempotency.sqlite-wal"
    assert wal.stat().st_size > 1000
    os.truncate(wal, wal.stat().st_size - 777)
    (ws / "scripts" / "connectors" / QUAKES / "connector.py").unlink()
    assert kfm("run", QUAKES).code == 0
    assert kfm("verify").code == 0


def test_a_damaged_database_is_set_aside_by_reindex(kfm: Kfm, ws: Path) -> None:
    kfm("run", QUAKES)
    store = ws / "ledger" / "idempotency.sqlite"
    raw = bytearray(store.read_bytes())
    raw[:200] = b"\xff" * 200
    store.write_bytes(bytes(raw))
    for suffix in ("-wal", "-shm"):
        Path(f"{store}{suffix}").unlink(missing_ok=True)
    said = kfm("run", QUAKES)
    assert said.code == 6 and "kfm reindex" in said.err
    assert kfm("reindex").code == 0
    assert list((ws / "ledger" / "quarantine").glob("store-*/idempotency.sqlite"))
    assert kfm("run", QUAKES, "--json").json["runs"][0]["state"] == "NOOP"


def test_an_edited_generation_is_an_integrity_error(kfm: Kfm, ws: Path) -> None:
    kfm("run", QUAKES)
    head = next((ws / "data" / "catalog" / "channels" / QUAKES).iterdir())
    head.chmod(0o644)
    head.write_bytes(head.read_bytes().replace(b'"sig":"', b'"sig":"A'))
    assert kfm("run", QUAKES).code == 6
    assert kfm("verify").code == 6


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO, errno.EROFS])
@pytest.mark.parametrize("where", ["raw/", "work/", "processed/", "catalog/channels/"])
def test_a_disk_that_fails_leaves_the_official_state(
    kfm: Kfm,
    ws: Path,
    sample: SampleUpstream,
    number: int,
    where: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from kfm.zones import local

    kfm("run", QUAKES)
    official = kfm("status", "--json").json["datasets"][0]["version_id"]
    before = tree(ws / "data" / "catalog")
    sample.control(QUAKES, revision=1)
    real = os.link

    def link(source: Any, target: Any, **more: Any) -> None:
        if f"/data/{where}" in str(target) and "artifacts" not in str(target):
            raise OSError(number, os.strerror(number))
        real(source, target, **more)

    with monkeypatch.context() as patched:
        patched.setattr(local.os, "link", link)
        said = kfm("run", QUAKES, "--json")
    assert said.code == 1 and said.json["runs"][0]["state"] == "FAILED"
    assert tree(ws / "data" / "catalog") == before
    assert (
        next(d for d in kfm("status", "--json").json["datasets"] if d["dataset_id"] == QUAKES)[
            "version_id"
        ]
        == official
    )
    assert kfm("run", QUAKES).code == 0, "once the disk is mended, the run is finished"
    assert kfm("doctor", "--fix").code == 0


def test_a_clock_set_back_a_day_changes_no_lease_and_no_answer(
    kfm: Kfm, ws: Path, sample: SampleUpstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    import datetime as dt

    from kfm.model import clock

    kfm("run", QUAKES)
    real = clock.SystemClock.now
    monkeypatch.setattr(clock.SystemClock, "now", lambda self: real(self) - dt.timedelta(days=1))
    assert kfm("run", QUAKES, "--json").json["runs"][0]["state"] == "NOOP"
    assert [s for _, _, s in sample.requests][-1] == 200, (
        "a clock that went back is no reason to trust a validator longer"
    )
    sample.control(QUAKES, revision=1)
    assert kfm("run", QUAKES, "--json").json["runs"][0]["state"] == "COMMITTED"


def test_a_rollback_survives_a_resumed_promote(
    kfm: Kfm, ws: Path, sample: SampleUpstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run stands before ★ when the operator goes back; resumed, it finds its number taken."""
    from kfm.jobs.stepping import drive
    from kfm.run.promote import promote
    from kfm.run.update import update

    monkeypatch.setenv("KFM_SAMPLE_UPSTREAM", sample.url)
    first = kfm("run", QUAKES, "--json").json["runs"][0]
    sample.control(QUAKES, revision=1)
    kfm("run", QUAKES)
    sample.control(QUAKES, revision=2)
    workspace = open_workspace(ws)
    target = targets_of(workspace, QUAKES)[0]
    with open_world(workspace) as world:
        world.store.transaction(lambda tx: tx.jobs.put(QUAKES, "", ""))
        assert drive(update(world, target), lambda: None).state == "PROPOSED"  # type: ignore[union-attr]
        steps = promote(world, QUAKES)
        while next(steps) != "receipts sealed":
            pass
        world.store.abandon()  # killed here
    assert kfm("rollback", QUAKES, "--to", f"{QUAKES}@1", "--reason", "wrong").code == 0
    assert kfm("resume").code == 0
    found = kfm("status", "--json").json["datasets"][0]
    assert found["version_id"] == first["version_id"] or found["generation"] > 3
    kinds = [g["kind"] for g in _channel(ws)]
    assert kinds[2] == "rollback", "the number the run had named is the rollback's"
    assert kfm("verify").code == 0


def _channel(ws: Path) -> list[dict[str, Any]]:
    from kfm.keys.trust import unwrap

    return [
        unwrap(p.read_bytes())["predicate"]
        for p in sorted((ws / "data" / "catalog" / "channels" / QUAKES).iterdir())
    ]


def test_a_disk_that_cannot_take_the_report_of_a_refusal_does_not_keep_the_run_open(
    kfm: Kfm, ws: Path, sample: SampleUpstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    from kfm.zones import local

    kfm("run", QUAKES)
    sample.control(QUAKES, mode="lying")
    real = os.link

    def link(source: Any, target: Any, **more: Any) -> None:
        if "/quarantine/" in str(target):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        real(source, target, **more)

    with monkeypatch.context() as patched:
        patched.setattr(local.os, "link", link)
        said = kfm("run", QUAKES, "--json").json["runs"][0]
    assert (said["state"], said["exit_code"]) == ("FAILED", 1)
    assert "report could not be written" in said["remedy"]
    assert "the disk is full" in said["remedy"]
    with open_world(open_workspace(ws)) as world:
        assert world.store.read(lambda tx: tx.runs.open_runs(QUAKES)) == []
        assert world.store.read(lambda tx: tx.leases.held()) == []
