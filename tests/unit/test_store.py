"""The store contract: leases fence, journals chain, jobs remember, one committer serves many, every older state migrates."""

import datetime as dt
import multiprocessing
import sqlite3
import threading
from pathlib import Path
from typing import Any

import pytest

from kfm.clock import SystemClock
from kfm.errors import Fenced, IntegrityError, UsageError
from kfm.model.ledger import LedgerRow, WalRecord
from kfm.store.sqlite import SqliteStore
from kfm.wal import Wal, check_chain, record_hash

MIGRATIONS = sorted((Path(__file__).parents[2] / "src/kfm/store/migrations").glob("*.sql"))


class Clock(SystemClock):
    def __init__(self) -> None:
        super().__init__()
        self.ns = 10**9

    def boot_ns(self) -> int:
        return self.ns

    def now(self) -> dt.datetime:
        return dt.datetime(2026, 1, 1, tzinfo=dt.UTC)


def row(run_id: str = "r1", state: str = "CLAIMED", **more: Any) -> LedgerRow:
    plain = dict.fromkeys(
        ("wal_id", "dataset_id", "partition", "win", "key", "timestamp", "source_metadata", "pipeline_version", "updater_id",
         "updater_version", "spec_hash", "transform_hash", "input_hash", "toolchain_digest", "trigger_type"), "x"
    )  # fmt: skip
    return LedgerRow(
        **(plain | {"run_id": run_id, "state": state, "attempt": 0, "forced": 0, "base_version": None, "base_generation": 0} | more)
    )


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def store(tmp_path: Path, clock: Clock) -> Any:
    found = SqliteStore(tmp_path / "ledger" / "s.sqlite", clock)
    yield found
    found.abandon()


def other(store: SqliteStore) -> SqliteStore:
    """Another process's view of the same file."""
    return SqliteStore(store.path, store.clock)


def test_of_two_racing_runs_exactly_one_gets_the_lease(store: SqliteStore) -> None:
    second = other(store)
    answers = [s.transaction(lambda tx: tx.leases.take("d", "me", 15)) for s in (store, second)]
    assert [a is None for a in answers] == [False, True]
    second.abandon()


def test_the_lease_of_a_dead_holder_is_free_at_once(store: SqliteStore) -> None:
    dead = other(store)
    first = dead.transaction(lambda tx: tx.leases.take("d", "dead", 1000))
    dead.abandon()  # its locks are gone, its row is not
    second = store.transaction(lambda tx: tx.leases.take("d", "me", 15))
    assert second.number == first.number + 1


def test_a_frozen_holder_keeps_its_lease_until_it_runs_out_and_is_fenced_after(store: SqliteStore, clock: Clock) -> None:
    frozen = other(store)
    old = frozen.transaction(lambda tx: tx.leases.take("d", "frozen", 15))
    clock.ns += 14_000_000_000
    assert store.transaction(lambda tx: tx.leases.take("d", "me", 15)) is None
    clock.ns += 2_000_000_000
    new = store.transaction(lambda tx: tx.leases.take("d", "me", 15))
    assert new is not None
    with pytest.raises(Fenced):
        frozen.transaction(lambda tx: tx.leases.check(old))
    frozen.transaction(lambda tx: tx.leases.release(old))  # a stale token releases nothing
    store.transaction(lambda tx: tx.leases.check(new))
    frozen.abandon()


def test_a_lease_of_another_boot_is_free(store: SqliteStore, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    before = other(store)
    before.transaction(lambda tx: tx.leases.take("d", "before the power cut", 1000))
    monkeypatch.setattr(clock, "boot_id", lambda: "another boot")
    assert store.transaction(lambda tx: tx.leases.take("d", "me", 15)) is not None
    before.abandon()


def test_renewing_keeps_a_lease(store: SqliteStore, clock: Clock) -> None:
    token = store.transaction(lambda tx: tx.leases.take("d", "me", 15))
    clock.ns += 10_000_000_000
    store.transaction(lambda tx: tx.leases.renew([token], 15))
    clock.ns += 10_000_000_000
    second = other(store)
    assert second.transaction(lambda tx: tx.leases.take("d", "you", 15)) is None
    second.abandon()


def test_a_transition_names_the_state_it_leaves(store: SqliteStore) -> None:
    store.transaction(lambda tx: tx.runs.insert(row()))
    store.transaction(lambda tx: tx.runs.move("r1", "CLAIMED", state="PROPOSED"))
    with pytest.raises(Fenced, match="PROPOSED"):
        store.transaction(lambda tx: tx.runs.move("r1", "CLAIMED", state="COMMITTED"))


@pytest.mark.parametrize("column", ["state", "key", "rows_read", "version_id"])
def test_a_flipped_value_in_a_ledger_row_is_noticed(store: SqliteStore, column: str) -> None:
    store.transaction(lambda tx: tx.runs.insert(row(version_id="v1")))
    db = sqlite3.connect(store.path)
    db.execute(f"update ledger set {column} = 7")
    db.commit()
    db.close()
    with pytest.raises(IntegrityError, match="r1"):
        store.read(lambda tx: tx.runs.get("r1"))


def test_a_failing_transaction_leaves_no_trace_and_does_not_disturb_the_batch(store: SqliteStore) -> None:
    """In a shared commit a fenced run is dropped, the others commit."""
    gate = threading.Barrier(9)
    errors: list[BaseException] = []

    def work(number: int) -> None:
        gate.wait()

        def transact(tx: Any) -> None:
            tx.runs.insert(row(f"r{number}", wal_id=f"w{number}"))
            if number % 3 == 0:
                raise Fenced("dropped")

        try:
            store.transaction(transact)
        except Fenced as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(9)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert len(errors) == 3
    assert sorted(r.run_id for r in store.read(lambda tx: tx.runs.recent())) == [f"r{n}" for n in range(9) if n % 3]


def test_a_taken_lease_is_given_back_when_its_transaction_fails(store: SqliteStore) -> None:
    def transact(tx: Any) -> None:
        tx.leases.take("d", "me", 15)
        raise ValueError

    with pytest.raises(ValueError):
        store.transaction(transact)
    assert store.locks.held() == []
    assert store.transaction(lambda tx: tx.leases.take("d", "me", 15)) is not None


def _append_many(path: Path, name: str, count: int) -> None:
    store = SqliteStore(path, SystemClock())
    wal = Wal(store, SystemClock(), row(name, wal_id=name))
    for number in range(count):
        wal.intend("EXECUTE", f"s{number}")
    store.close()


def test_many_processes_write_at_once(tmp_path: Path) -> None:
    path = tmp_path / "ledger" / "s.sqlite"
    SqliteStore(path, SystemClock()).close()
    context = multiprocessing.get_context("spawn")
    workers = [context.Process(target=_append_many, args=(path, f"w{n}", 25)) for n in range(6)]
    for w in workers:
        w.start()
    for w in workers:
        w.join()
    store = SqliteStore(path, SystemClock())
    for n in range(6):
        records = store.read(lambda tx, n=n: tx.runs.journal(f"w{n}"))
        check_chain(records)
        assert len(records) == 25
    store.close()


def test_the_same_record_twice_is_fine_and_another_is_not(store: SqliteStore) -> None:
    wal = Wal(store, store.clock, row(wal_id="w"))
    wal.intend("PLAN", "plan", {"a": 1})
    first = wal.records[0]
    later = WalRecord(**{f: getattr(first, f) for f in first.__struct_fields__} | {"ts": "2027-01-01T00:00:00Z"})
    store.transaction(lambda tx: tx.runs.append([later]))
    other_payload = WalRecord(**{f: getattr(first, f) for f in first.__struct_fields__} | {"payload": "{}"})
    with pytest.raises(IntegrityError):
        store.transaction(lambda tx: tx.runs.append([other_payload]))


def test_an_altered_lost_or_reordered_record_breaks_the_chain(store: SqliteStore) -> None:
    wal = Wal(store, store.clock, row(wal_id="w"))
    for number in range(4):
        wal.intend("EXECUTE", f"s{number}")
    records = store.read(lambda tx: tx.runs.journal("w"))
    check_chain(records)
    altered = WalRecord(**{f: getattr(records[1], f) for f in records[1].__struct_fields__} | {"payload": '{"x":1}'})
    for broken in ([records[0], altered, *records[2:]], [records[0], *records[2:]], [records[1], records[0], *records[2:]]):
        with pytest.raises(IntegrityError):
            check_chain(broken)
    assert record_hash(records[0]) == records[0].hash


def test_a_done_rides_in_the_next_commit(store: SqliteStore) -> None:
    wal = Wal(store, store.clock, row(wal_id="w"))
    wal.intend("EXECUTE", "a")
    wal.done("EXECUTE", "a")
    assert len(store.read(lambda tx: tx.runs.journal("w"))) == 1
    wal.intend("EXECUTE", "b")
    assert [r.status for r in store.read(lambda tx: tx.runs.journal("w"))] == ["IN_PROGRESS", "DONE", "IN_PROGRESS"]


def test_a_put_on_a_running_job_is_remembered(store: SqliteStore) -> None:
    job = store.transaction(lambda tx: tx.jobs.put("d", "", ""))
    assert store.transaction(lambda tx: tx.jobs.put("d", "", "")).job_id == job.job_id
    store.transaction(lambda tx: tx.leases.take("d/-", "me", 15))
    store.transaction(lambda tx: tx.jobs.start(tx.jobs.get("d", "", "")))
    store.transaction(lambda tx: tx.jobs.put("d", "", ""))
    store.transaction(lambda tx: tx.jobs.ack("d", "", ""))
    assert store.read(lambda tx: tx.jobs.get("d", "", "")).state == "queued"
    store.transaction(lambda tx: tx.jobs.ack("d", "", ""))
    assert store.read(lambda tx: tx.jobs.get("d", "", "")).state == "ended"
    assert store.transaction(lambda tx: tx.jobs.put("d", "", "")).generation == job.generation + 1


@pytest.mark.parametrize("have", range(1, len(MIGRATIONS)))
def test_every_older_state_is_migrated_and_keeps_its_rows(tmp_path: Path, have: int) -> None:
    path = tmp_path / "ledger" / "old.sqlite"
    path.parent.mkdir()
    db = sqlite3.connect(path)
    for file in MIGRATIONS[:have]:
        db.executescript(file.read_text())
    db.execute("insert into meta values ('epoch', '3')")
    db.execute(f"pragma user_version = {have}")
    db.commit()
    db.close()
    store = SqliteStore(path, SystemClock())
    assert store.epoch == 3
    store.transaction(lambda tx: tx.runs.insert(row()))
    assert store.read(lambda tx: tx.runs.noops()) == []
    store.close()


def test_a_newer_format_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "ledger" / "new.sqlite"
    path.parent.mkdir()
    db = sqlite3.connect(path)
    db.execute("pragma user_version = 99")
    db.close()
    with pytest.raises(UsageError, match="99"):
        SqliteStore(path, SystemClock())
