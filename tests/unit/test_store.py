"""The store contract, on a file and on a server: leases fence, journals chain, jobs remember, every
older state migrates.
"""

import contextlib
import datetime as dt
import multiprocessing
import select
import shutil
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.given.ledger import journal, row
from tests.given.processes import apart
from tests.given.services import schema_url, shared_server

from kfm.evidence.journal import Journal, check_chain, record_hash
from kfm.extras.jsonl.lines import Header, write_lines
from kfm.extras.jsonl.store import JsonlStore, Replica
from kfm.extras.postgres.dialect import migration, to_postgres
from kfm.model.clock import SystemClock
from kfm.model.errors import Fenced, IntegrityError, KfmError, StepFailed, UsageError
from kfm.model.job import Request, Trace
from kfm.model.journal import Captured
from kfm.model.ledger import EventRow, NoopRow, WalRecord
from kfm.store.committer import Ticket
from kfm.store.events import Claim
from kfm.store.lineage import Indexed
from kfm.store.sqlite import SqliteStore
from kfm.zones.local import LocalZone

MIGRATIONS = sorted((Path(__file__).parents[2] / "src/kfm/store/migrations").glob("*.sql"))


class Clock(SystemClock):
    def __init__(self) -> None:
        super().__init__()
        self.ns = 10**9

    def boot_ns(self) -> int:
        return self.ns

    def now(self) -> dt.datetime:
        return dt.datetime(2026, 1, 1, tzinfo=dt.UTC)


@pytest.fixture
def clock() -> Clock:
    return Clock()


class Place:
    """Where stores of one kind are opened, and how time passes there."""

    def __init__(self, kind: str, folder: Path, clock: Clock) -> None:
        self.kind, self.clock = kind, clock
        self.where: Path | str = (
            schema_url(shared_server()) if kind == "postgres" else folder / "ledger" / f"s.{kind}"
        )

    def open(self) -> Any:
        return open_at(self.where, self.clock)

    def sql(self, statement: str) -> None:
        """Another program's hand in the tables."""
        if self.kind == "jsonl":
            by_hand(Path(self.where), statement)
        elif isinstance(self.where, Path):
            with contextlib.closing(sqlite3.connect(self.where)) as db:
                db.execute(statement)
                db.commit()
        else:
            import psycopg

            with psycopg.connect(self.where, autocommit=True) as server:
                server.execute(statement)

    def pass_time(self, seconds: int) -> None:
        if self.kind != "postgres":
            self.clock.ns += seconds * 10**9
        else:  # the server's clock cannot be turned; that every lease ends earlier is the same
            self.sql(f"update lease set expires_ns = expires_ns - {seconds * 10**9}")


def by_hand(path: Path, statement: str) -> None:
    """A line whose sums are right, whatever it says."""
    with contextlib.closing(Replica(path)) as found:
        found.tables.follow()
        found.db.execute("begin")
        found.db.execute(statement)
        found.lines.append(found.tables.changed(), True)


def open_at(where: Path | str, clock: Any) -> Any:
    if isinstance(where, Path) and where.suffix == ".jsonl":
        return JsonlStore(where, clock)
    if isinstance(where, Path):
        return SqliteStore(where, clock)
    from kfm.extras.postgres.store import PostgresStore

    return PostgresStore(where, clock)


@pytest.fixture(params=["sqlite", "jsonl", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path, clock: Clock) -> Iterator[Place]:
    found = Place(request.param, tmp_path, clock)
    yield found
    if found.kind == "postgres":
        found.sql(f"drop schema {str(found.where).rpartition('%3D')[2]} cascade")


@pytest.fixture
def store(place: Place) -> Iterator[Any]:
    found = place.open()
    yield found
    found.abandon()


@pytest.fixture
def other(place: Place) -> Iterator[Any]:
    """Another process's view of the same store."""
    found = place.open()
    yield found
    found.abandon()


@pytest.mark.parametrize("name", ["d", "d/p0", "scheduler"])
def test_of_two_racing_runs_exactly_one_gets_the_lease(store: Any, other: Any, name: str) -> None:
    answers: list[Any] = []
    gate = threading.Barrier(2)

    def race(one: Any) -> None:
        gate.wait()
        answers.append(one.transaction(lambda tx: tx.leases.take(name, "me", 15)))

    threads = [threading.Thread(target=race, args=(s,)) for s in (store, other)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert sorted(a is None for a in answers) == [False, True]


@pytest.mark.parametrize("place", ["sqlite", "jsonl"], indirect=True)
def test_the_lease_of_a_dead_holder_is_free_at_once(store: Any, other: Any) -> None:
    first = other.transaction(lambda tx: tx.leases.take("d", "dead", 1000))
    other.abandon()  # its locks are gone, its row is not
    second = store.transaction(lambda tx: tx.leases.take("d", "me", 15))
    assert second.number == first.number + 1


@pytest.mark.parametrize("place", ["postgres"], indirect=True)
def test_on_a_server_the_lease_of_a_dead_holder_is_free_when_it_ran_out(
    store: Any, other: Any, place: Place
) -> None:
    first = other.transaction(lambda tx: tx.leases.take("d", "dead", 1500))
    other.abandon()
    assert store.transaction(lambda tx: tx.leases.take("d", "me", 1500)) is None
    place.pass_time(1501)
    assert store.transaction(lambda tx: tx.leases.take("d", "me", 15)).number == first.number + 1


def test_a_frozen_holder_keeps_its_lease_until_it_runs_out_and_is_fenced_after(
    store: Any, other: Any, place: Place
) -> None:
    old = other.transaction(lambda tx: tx.leases.take("d", "frozen", 1500))
    place.pass_time(1000)
    assert store.transaction(lambda tx: tx.leases.take("d", "me", 1500)) is None
    place.pass_time(501)
    new = store.transaction(lambda tx: tx.leases.take("d", "me", 1500))
    assert new is not None
    with pytest.raises(Fenced):
        other.transaction(lambda tx: tx.leases.check(old))
    other.transaction(lambda tx: tx.leases.renew([old], 1000))  # a stale token renews nothing
    other.transaction(lambda tx: tx.leases.release(old))  # and releases nothing
    store.transaction(lambda tx: tx.leases.check(new))
    place.pass_time(1501)
    assert other.read(lambda tx: tx.leases.is_free("d"))


JAN, FEB, BOTH = (
    f"d/p0/2026-{since}-01T00:00:00Z/2026-{until}-01T00:00:00Z"
    for since, until in (("01", "02"), ("02", "03"), ("01", "03"))
)


def test_windows_that_share_no_moment_are_leased_side_by_side(store: Any, other: Any) -> None:
    def take(tx: Any, name: str) -> Any:
        return tx.leases.take(name, "me", 15)

    first = store.transaction(lambda tx: take(tx, JAN))
    second = other.transaction(lambda tx: take(tx, FEB))
    for name in (JAN, FEB, BOTH, "d/p0"):
        assert other.transaction(lambda tx, name=name: take(tx, name)) is None
        assert not other.read(lambda tx, name=name: tx.leases.is_free(name))
    for name in ("d", "d/p", "d/p00", JAN.replace("p0", "p1")):  # nothing of theirs is held
        assert other.read(lambda tx, name=name: tx.leases.is_free(name))
    store.transaction(lambda tx: tx.leases.check(first))
    store.transaction(lambda tx: tx.leases.release(first))
    other.transaction(lambda tx: tx.leases.check(second))
    assert store.transaction(lambda tx: take(tx, BOTH)) is None, "the second is still held"
    other.transaction(lambda tx: tx.leases.release(second))
    third = store.transaction(lambda tx: take(tx, "d/p0"))
    assert third.number == second.number + 1 == first.number + 2, "no token comes twice"
    assert other.transaction(lambda tx: take(tx, JAN)) is None


@pytest.mark.parametrize(
    ("frozen", "taken"), [(JAN, "d/p0"), ("d/p0", JAN), (BOTH, FEB), (JAN, JAN)]
)
def test_who_is_given_a_moment_makes_every_token_stale_that_was_given_for_it(
    store: Any, other: Any, place: Place, frozen: str, taken: str
) -> None:
    old = other.transaction(lambda tx: tx.leases.take(frozen, "frozen", 15))
    place.pass_time(16)
    new = store.transaction(lambda tx: tx.leases.take(taken, "me", 15))
    with pytest.raises(Fenced):
        other.transaction(lambda tx: tx.leases.check(old))
    other.transaction(lambda tx: tx.leases.renew([old], 1000))
    other.transaction(lambda tx: tx.leases.release(old))
    store.transaction(lambda tx: tx.leases.check(new))
    store.transaction(lambda tx: tx.leases.release(new))
    again = other.transaction(lambda tx: tx.leases.take(frozen, "another", 15))
    assert again.number > new.number
    with pytest.raises(Fenced):
        other.transaction(lambda tx: tx.leases.check(old))


def test_that_somebody_was_killed_over_a_window_is_known_until_it_is_taken_again(
    store: Any, other: Any, place: Place
) -> None:
    other.transaction(lambda tx: tx.leases.take(JAN, "killed", 15))
    place.pass_time(16)
    token = store.transaction(lambda tx: tx.leases.take(BOTH, "me", 15))
    store.transaction(lambda tx: tx.leases.release(token))
    assert store.read(lambda tx: (tx.leases.is_left(JAN), tx.leases.is_left(BOTH))) == (True, False)
    token = store.transaction(lambda tx: tx.leases.take(JAN, "me", 15))
    store.transaction(lambda tx: tx.leases.release(token))
    assert not store.read(lambda tx: tx.leases.is_left(JAN))


@pytest.mark.parametrize("place", ["sqlite", "jsonl"], indirect=True)
def test_a_lease_of_another_boot_is_free(
    store: Any, other: Any, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    other.transaction(lambda tx: tx.leases.take("d", "before the power cut", 1000))
    monkeypatch.setattr(clock, "boot_id", lambda: "another boot")
    assert store.transaction(lambda tx: tx.leases.take("d", "me", 15)) is not None


@pytest.mark.parametrize("place", ["postgres"], indirect=True)
def test_on_a_server_no_other_clock_counts(
    store: Any, other: Any, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither another boot, nor a machine whose clocks are years ahead, frees a lease or makes it
    last.
    """
    other.transaction(lambda tx: tx.leases.take("d", "me", 1500))
    monkeypatch.setattr(clock, "boot_id", lambda: "another boot")
    clock.ns += 10**18
    assert store.transaction(lambda tx: tx.leases.take("d", "you", 1500)) is None
    assert not store.read(lambda tx: tx.leases.is_free("d"))


def test_renewing_keeps_a_lease(store: Any, other: Any, place: Place) -> None:
    token = store.transaction(lambda tx: tx.leases.take("d", "me", 1500))
    place.pass_time(1000)
    store.transaction(lambda tx: tx.leases.renew([token], 1500))
    place.pass_time(1000)
    assert other.transaction(lambda tx: tx.leases.take("d", "you", 1500)) is None


def test_what_a_store_holds_is_free_once_it_is_closed(place: Place, store: Any) -> None:
    first = place.open()
    assert first.transaction(lambda tx: tx.leases.take("d", "me", 1000)) is not None
    first.close()
    assert store.read(lambda tx: tx.leases.is_free("d"))


def test_transactions_of_one_dataset_come_one_after_the_other(store: Any, other: Any) -> None:
    """Who has checked a lease is not overtaken before it commits, whatever the other one reads
    first.
    """
    token = store.transaction(lambda tx: tx.leases.take("d/p0", "me", 15))
    store.transaction(lambda tx: tx.runs.insert(row()))
    inside, order = threading.Event(), []

    def slow(tx: Any) -> None:
        tx.leases.check(token)
        inside.set()
        second.join(timeout=0.3)  # it cannot end meanwhile
        tx.runs.move("r1", "CLAIMED", state="PROPOSED")
        order.append("first")

    def late() -> None:
        inside.wait()
        with pytest.raises(Fenced, match="PROPOSED"):
            other.transaction(
                lambda tx: (
                    tx.leases.take("d", "you", 15),
                    tx.runs.move("r1", "CLAIMED", state="FAILED"),
                )
            )
        order.append("second")

    second = threading.Thread(target=late)
    second.start()
    store.transaction(slow)
    second.join()
    assert order == ["first", "second"]


@pytest.mark.parametrize("place", ["postgres"], indirect=True)
def test_on_a_server_a_heartbeat_does_not_wait_for_a_running_transaction_of_its_dataset(
    store: Any, other: Any
) -> None:
    token = store.transaction(lambda tx: tx.leases.take("d", "me", 15))

    def work(tx: Any) -> None:
        tx.leases.check(token)
        other.transaction(lambda tx: tx.leases.renew([token], 15))  # would never end otherwise

    store.transaction(work)


def test_a_transition_names_the_state_it_leaves(store: Any) -> None:
    store.transaction(lambda tx: tx.runs.insert(row()))
    store.transaction(lambda tx: tx.runs.move("r1", "CLAIMED", state="PROPOSED"))
    with pytest.raises(Fenced, match="PROPOSED"):
        store.transaction(lambda tx: tx.runs.move("r1", "CLAIMED", state="COMMITTED"))


def test_runs_and_looks_are_counted_by_dataset_and_day(store: Any) -> None:
    """What was denied or is proposed counts as that, whenever it is looked at again."""

    def put(tx: Any) -> None:
        for number, (day, state) in enumerate(
            (("01", "COMMITTED"), ("02", "FAILED"), ("02", "FAILED"))
        ):
            made = row(run_id=f"r{number}", dataset_id="d")
            tx.runs.insert(
                msgspec.structs.replace(made, state=state, timestamp=f"2026-01-{day}T01:00:00Z")
            )
        for number, (day, code) in enumerate(
            (("03", "unchanged"), ("03", "unchanged"), ("03", "denied"), ("04", "unchanged"))
        ):
            tx.looks.put_noop(
                NoopRow(
                    run_id=f"s{number}",
                    dataset_id="d" if day == "03" else "another",
                    partition="",
                    win="",
                    key="",
                    reason="",
                    names="",
                    timestamp=f"2026-01-{day}T01:00:00Z",
                    code=code,
                )
            )

    store.transaction(put)
    found = [store.read(lambda tx, of=of: tx.runs.days("r1", of)) for of in ("", "d", "another")]
    assert [sorted((d.day[8:], d.state, d.runs, d.run_id) for d in days) for days in found] == [
        [
            ("02", "FAILED", 2, "r2"),
            ("03", "NOOP", 2, "s1"),
            ("03", "REJECTED", 1, "s2"),
            ("04", "NOOP", 1, "s3"),
        ],
        [("02", "FAILED", 2, "r2"), ("03", "NOOP", 2, "s1"), ("03", "REJECTED", 1, "s2")],
        [("04", "NOOP", 1, "s3")],
    ]


@pytest.mark.parametrize("column", ["state", "key", "rows_read", "version_id"])
def test_a_flipped_value_in_a_ledger_row_is_noticed(store: Any, place: Place, column: str) -> None:
    store.transaction(lambda tx: tx.runs.insert(row(version_id="v1")))
    place.sql(f"update ledger set {column} = 7")
    with pytest.raises(IntegrityError, match="r1"):
        store.read(lambda tx: tx.runs.get("r1"))


def test_a_failing_transaction_leaves_no_trace_and_does_not_disturb_the_batch(store: Any) -> None:
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
    assert sorted(r.run_id for r in store.read(lambda tx: tx.runs.recent())) == [
        f"r{n}" for n in range(9) if n % 3
    ]


def test_a_taken_lease_is_given_back_when_its_transaction_fails(store: Any) -> None:
    def transact(tx: Any) -> None:
        tx.leases.take("d", "me", 15)
        raise ValueError

    with pytest.raises(ValueError):
        store.transaction(transact)
    assert store.locks.held() == []
    assert store.transaction(lambda tx: tx.leases.take("d", "me", 15)) is not None


def _append_many(where: Path | str, name: str, count: int) -> None:
    store = open_at(where, SystemClock())
    wal = journal(store, name)
    for number in range(count):
        wal.intend("EXECUTE", f"s{number}")
    store.close()


def test_many_processes_write_at_once(store: Any, place: Place) -> None:
    context = apart()
    workers = [
        context.Process(target=_append_many, args=(place.where, f"w{n}", 25)) for n in range(6)
    ]
    for w in workers:
        w.start()
    for w in workers:
        w.join()
    for n in range(6):
        records = store.read(lambda tx: tx.journals.get(f"w{n}"))
        check_chain(records)
        assert len(records) == 25


def test_many_processes_open_a_new_store_at_once(place: Place) -> None:
    threads = [threading.Thread(target=lambda: place.open().abandon()) for _ in range(6)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    store = place.open()
    assert store.epoch == 1
    assert store.read(lambda tx: [p.name for p in tx.pools.listing()]) == ["default"]
    store.abandon()


def test_the_same_record_twice_is_fine_and_another_is_not(store: Any) -> None:
    """One that differs in its time alone has another hash: what follows it would not continue what
    is stored.
    """
    wal = journal(store, "w")
    wal.intend("PLAN", "plan", Captured(capture_id="a"))
    first = wal.records[0]
    store.transaction(lambda tx: tx.journals.append([first]))
    for change in (
        {"ts": "2027-01-01T00:00:00Z"},
        {"payload": "{}"},
        {"updater_version": "9"},
        {"prev": "0" * 64},
        {"hash": "0" * 64},
    ):
        other = msgspec.structs.replace(first, **change)
        with pytest.raises(IntegrityError):
            store.transaction(lambda tx: tx.journals.append([other]))
    assert store.read(lambda tx: tx.journals.get("w")) == [first]


@pytest.mark.parametrize("place", ["sqlite", "jsonl"], indirect=True)
def test_a_journal_opens_whole_wherever_its_writer_was_killed(place: Place) -> None:
    """A record is there or it is not; what was told to be there is. The drill does it 200 times
    with whole runs.
    """
    code = "import sys; from tests.unit.test_store import _append_told; _append_told(sys.argv[1])"
    for kept in (1, 7, 2):
        told = 0
        with subprocess.Popen(
            [sys.executable, "-c", code, str(place.where)],
            stdout=subprocess.PIPE,
            cwd=Path(__file__).parents[2],
        ) as child:
            assert child.stdout is not None
            while told < kept:
                told = int(child.stdout.readline())
            child.kill()
        store = place.open()
        records = store.read(lambda tx: tx.journals.get("told"))
        check_chain(records)
        assert len(records) >= told
        # delivered once more, it changes nothing
        store.transaction(lambda tx: tx.journals.append(records[-2:]))
        assert store.read(lambda tx: tx.journals.get("told")) == records
        store.transaction(lambda tx: tx.journals.drop("told"))
        store.abandon()


def _append_told(where: str) -> None:
    store = open_at(Path(where), SystemClock())
    wal = journal(store, "told")
    for number in range(1, 100_000):
        wal.intend("EXECUTE", f"s{number}")
        print(number, flush=True)


def _fifty_effects(where: Path | str) -> None:
    store = open_at(where, SystemClock())
    for _ in range(50):
        store.transaction(lambda tx: tx.effects.put("an output key", "job", "sha256:0"))
    store.close()


@pytest.mark.parametrize("place", ["sqlite"], indirect=True)
def test_fifty_upserts_from_eight_processes_make_one_object_and_one_row(
    place: Place, tmp_path: Path
) -> None:
    """No lease is held: what is written is keyed, and that suffices."""
    place.open().close()
    zone = LocalZone(tmp_path / "zone")
    context = multiprocessing.get_context("fork")

    def work() -> None:
        own = LocalZone(tmp_path / "zone")
        for _ in range(50):
            own.create_all({"same/object": b"the same content"})
        _fifty_effects(place.where)

    workers = [context.Process(target=work) for _ in range(8)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
        assert worker.exitcode == 0
    assert list(zone.names("same")) == ["same/object"]
    with contextlib.closing(sqlite3.connect(place.where)) as db:
        assert db.execute("select count(*), min(digest) from effect").fetchall() == [
            (1, "sha256:0")
        ]


def test_an_altered_lost_or_reordered_record_breaks_the_chain(store: Any) -> None:
    wal = journal(store, "w")
    for number in range(4):
        wal.intend("EXECUTE", f"s{number}")
    records = store.read(lambda tx: tx.journals.get("w"))
    check_chain(records)
    altered = WalRecord(
        **{f: getattr(records[1], f) for f in records[1].__struct_fields__} | {"payload": '{"x":1}'}
    )
    for broken in (
        [records[0], altered, *records[2:]],
        [records[0], *records[2:]],
        [records[1], records[0], *records[2:]],
    ):
        with pytest.raises(IntegrityError):
            check_chain(broken)
    assert record_hash(records[0]) == records[0].hash


def test_a_journal_without_a_lease_writes_nothing(store: Any) -> None:
    with pytest.raises(AssertionError, match="under a lease"):
        Journal(store, store.clock, row(wal_id="w")).intend("EXECUTE", "a")
    assert store.read(lambda tx: tx.journals.get("w")) == []


def test_what_a_failed_commit_wrote_is_not_remembered_and_what_rode_is_not_lost(store: Any) -> None:
    wal = journal(store, "w")
    wal.intend("EXECUTE", "a")
    wal.done("EXECUTE", "a")

    def refused(tx: Any, page: Any) -> None:
        page.make("PLAN", "pin", "DONE")
        raise StepFailed("the disk is full")

    with pytest.raises(StepFailed):
        wal.commit(refused)
    assert wal.state("pin") is None
    wal.intend("EXECUTE", "b")
    records = store.read(lambda tx: tx.journals.get("w"))
    check_chain(records)
    assert [r.step_id for r in records] == ["a", "a", "b"] == [r.step_id for r in wal.records]


def test_a_done_rides_in_the_next_commit(store: Any) -> None:
    wal = journal(store, "w")
    wal.intend("EXECUTE", "a")
    wal.done("EXECUTE", "a")
    assert len(store.read(lambda tx: tx.journals.get("w"))) == 1
    wal.intend("EXECUTE", "b")
    assert [r.status for r in store.read(lambda tx: tx.journals.get("w"))] == [
        "IN_PROGRESS",
        "DONE",
        "IN_PROGRESS",
    ]


def test_a_put_on_a_running_job_is_remembered(store: Any) -> None:
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


def test_the_newest_come_first_and_numbers_have_no_gaps(store: Any) -> None:
    """In the order of arrival, whatever their ids; -1 is everything."""
    for name in ("r2", "r1", "r3"):
        store.transaction(lambda tx: tx.runs.insert(row(name)))
    store.transaction(lambda tx: tx.runs.move("r2", "CLAIMED", state="PROPOSED"))
    for limit, expected in ((-1, ["r3", "r1", "r2"]), (2, ["r3", "r1"])):
        assert [
            r.run_id for r in store.read(lambda tx, n=limit: tx.runs.recent("x", n))
        ] == expected
    store.transaction(lambda tx: tx.runs.insert(row("r4")))
    for among, expected in ((10, ["r4", "r2"]), (1, ["r4"])):
        last = store.read(lambda tx, n=among: tx.runs.newest("x", n))
        assert [r.run_id for r in last] == expected, "one of each state"
    with contextlib.suppress(ValueError):
        store.transaction(lambda tx: (tx.proposals.new("gone"), int("x")))
    assert [store.transaction(lambda tx: tx.proposals.new(n)) for n in ("r2", "r1", "r2")] == [
        1,
        2,
        1,
    ]
    store.transaction(lambda tx: tx.proposals.put(7, "r3"))
    assert store.transaction(lambda tx: tx.proposals.new("r4")) == 8


def test_text_is_ordered_by_its_bytes(store: Any) -> None:
    """A server's language must not change what comes first."""
    for name in ("a_b", "aB", "a-b", "Ab"):
        store.transaction(lambda tx: tx.runs.insert(row(name)))
    assert [r.run_id for r in store.read(lambda tx: tx.runs.open_runs("x"))] == [
        "Ab",
        "a-b",
        "aB",
        "a_b",
    ]


def test_a_bell_rings_once_the_job_is_durable_and_not_before(store: Any, other: Any) -> None:
    bell = other.bell()

    def work(tx: Any) -> None:
        tx.jobs.put("d", "", "")
        assert not select.select([bell], [], [], 0.1)[0]

    store.transaction(work)
    assert select.select([bell], [], [], 60)[0]
    bell.drain()
    assert not select.select([bell], [], [], 0)[0]
    with contextlib.suppress(ValueError):
        store.transaction(lambda tx: (tx.jobs.put("e", "", ""), int("x")))
    assert not select.select([bell], [], [], 0.1)[0]
    bell.close()


@pytest.mark.parametrize("place", ["sqlite"], indirect=True)
@pytest.mark.parametrize("have", range(1, len(MIGRATIONS)))
def test_every_older_state_is_migrated_and_keeps_its_rows(place: Place, have: int) -> None:
    path = Path(place.where)
    path.parent.mkdir()
    db = sqlite3.connect(path)
    for file in MIGRATIONS[:have]:
        db.executescript(file.read_text())
    db.execute("insert into meta values ('epoch', '3')")
    db.execute(f"pragma user_version = {have}")
    db.commit()
    db.close()
    _is_usable(place)


@pytest.mark.parametrize("place", ["postgres"], indirect=True)
@pytest.mark.parametrize("have", range(1, len(MIGRATIONS)))
def test_every_older_state_of_a_server_is_migrated_and_keeps_its_rows(
    place: Place, have: int
) -> None:
    for statement in [s for file in MIGRATIONS[:have] for s in migration(file.read_text())]:
        place.sql(statement)
    place.sql("insert into meta values ('epoch', '3')")
    place.sql(f"create table store_format as select cast({have} as bigint) as version")
    _is_usable(place)


LINEAGE = [
    "insert into meta values ('epoch', '3')",
    "insert into lineage values ('r1', 'd', 1, '{}')",
    "insert into lineage_node (id, name) values (1, 'asset:u#h'), (2, 'run:r1'), (3, 'version:d@v1'), (4, 'file:d@v1/d.parquet')",
    "insert into lineage_edge values (1, 'USED_IN', 2, 5, 'r1'), (2, 'GENERATED', 3, 5, 'r1'), (2, 'GENERATED', 4, 5, 'r1'), (3, 'HAS_PART', 4, 5, 'r1')",
]


def _knows_its_lineage(place: Place) -> None:
    """What an older kfm indexed is walked, and told no second time by who puts it again."""
    store = place.open()
    edges = [("asset:u#h", "USED_IN", "run:r1"), ("run:r1", "GENERATED", "version:d@v1")]
    edges += [("run:r1", "GENERATED", "file:d@v1/d.parquet")]
    again = Indexed("r1", "d", 1, "{}", 5, edges)
    for _ in range(2):
        assert store.read(lambda tx: tx.lineage.page()) == [("r1", "{}")]
        assert store.read(lambda tx: tx.lineage.down(1, 9)) == {1: 0, 2: 1, 3: 2, 4: 2}
        assert store.read(lambda tx: tx.lineage.up(3, 9)) == {3: 0, 2: 1, 1: 2}
        found = store.read(lambda tx: tx.lineage.into([3, 4]))
        assert {(e.source, e.kind, e.target, e.at_ms, e.run_id) for e in found} == {
            (2, "GENERATED", 3, 5, "r1"),
            (2, "GENERATED", 4, 5, "r1"),
        }
        store.transaction(lambda tx: tx.lineage.put(again))
    store.transaction(lambda tx: tx.lineage.forget("d"))
    assert store.read(lambda tx: (tx.lineage.page(), tx.lineage.beginning(""))) == ([], [])
    store.close()


@pytest.mark.parametrize("place", ["sqlite"], indirect=True)
def test_lineage_of_an_older_store_is_kept(place: Place) -> None:
    path = Path(place.where)
    path.parent.mkdir()
    db = sqlite3.connect(path)
    for file in MIGRATIONS[:13]:
        db.executescript(file.read_text())
    for statement in LINEAGE:
        db.execute(statement)
    db.execute("pragma user_version = 13")
    db.commit()
    db.close()
    _knows_its_lineage(place)


@pytest.mark.parametrize("place", ["postgres"], indirect=True)
def test_lineage_of_an_older_server_is_kept(place: Place) -> None:
    for statement in [s for file in MIGRATIONS[:13] for s in migration(file.read_text())]:
        place.sql(statement)
    for statement in LINEAGE:
        place.sql(statement)
    place.sql("select setval(pg_get_serial_sequence('lineage_node', 'id'), 4)")
    place.sql("create table store_format as select cast(13 as bigint) as version")
    _knows_its_lineage(place)


def _is_usable(place: Place) -> None:
    store = place.open()
    assert store.epoch == 3
    store.transaction(lambda tx: tx.runs.insert(row()))
    assert store.read(lambda tx: tx.looks.noops()) == []
    store.close()


def test_a_query_says_the_same_to_a_server() -> None:
    said = to_postgres(
        "select 'a:b%?' from t where x = :x and y > :now_ms - ? limit :n /*for update*/ /*skip locked*/",
        writing=True,
    )
    assert said == (
        "select 'a:b%%?' from t where x = %(x)s and y > cast(extract(epoch from clock_timestamp()) * 1000 as bigint) - %s"
        " limit nullif(%(n)s, -1) for update skip locked"
    )
    assert to_postgres("select 1 /*for update*/", writing=False) == "select 1 "
    each = to_postgres("select value from json_each(:a) as texts, json_each(:b)", writing=False)
    assert each == (
        "select value from json_array_elements_text(cast(%(a)s as json)) as texts(value),"
        " json_array_elements(cast(%(b)s as json)) as each(value)"
    )


def test_a_table_is_the_same_on_a_server() -> None:
    """Text by its bytes, whatever language the server speaks; a place in the order of arrival where
    SQLite has one.
    """
    text = "create table a (b text primary key, c integer);\ncreate table d (e integer primary key);\ncreate table f (g text) without rowid;"
    assert migration(text) == [
        'create table a (b text collate "C" primary key, c bigint, rowid bigint generated always as identity)',
        "create table d (e bigint generated by default as identity primary key)",
        'create table f (g text collate "C")',
    ]


def test_a_newer_format_is_refused(place: Place) -> None:
    place.open().abandon()
    if place.kind == "jsonl":
        write_lines(Path(place.where), Header(format=99), [])
    else:
        place.sql(
            "pragma user_version = 99"
            if place.kind == "sqlite"
            else "update store_format set version = 99"
        )
    with pytest.raises(UsageError, match="99"):
        place.open()


def _waits_for_the_disk(tx: Any) -> bool:
    if hasattr(tx.jobs._db, "total_changes"):
        return bool(tx.jobs._db.execute("pragma synchronous").fetchone()[0] == 2)
    return bool(
        tx.jobs._db.execute("show synchronous_commit").fetchone()["synchronous_commit"] == "on"
    )


def _break(tx: Any) -> None:
    raise KeyError


@pytest.mark.parametrize("place", ["sqlite", "postgres"], indirect=True)
def test_only_what_a_power_cut_may_take_back_does_not_wait_for_the_disk(store: Any) -> None:
    assert store.transaction(_waits_for_the_disk)
    assert not store.transaction(_waits_for_the_disk, durable=False)
    with pytest.raises(KeyError):
        store.transaction(_break, durable=False)
    assert store.transaction(_waits_for_the_disk)


@pytest.mark.parametrize("place", ["sqlite"], indirect=True)
def test_a_hasty_transaction_that_could_not_begin_makes_no_other_one_hasty(
    store: Any, place: Place
) -> None:
    store._db.execute("pragma busy_timeout = 0")
    with contextlib.closing(sqlite3.connect(place.where, isolation_level=None)) as db:
        db.execute("begin immediate")
        with pytest.raises(KfmError):
            store.transaction(_waits_for_the_disk, durable=False)
    assert store.transaction(_waits_for_the_disk)


@pytest.mark.parametrize("place", ["sqlite"], indirect=True)
def test_a_batch_waits_for_the_disk_when_one_of_it_must(store: Any) -> None:
    batch = [Ticket(_waits_for_the_disk, durable) for durable in (False, True)]
    store._commit(batch)
    assert [ticket.result for ticket in batch] == [True, True]


@pytest.mark.parametrize("place", ["sqlite"], indirect=True)
@pytest.mark.parametrize("swallows", [False, True])
@pytest.mark.parametrize("before", [0, 1])
def test_what_was_to_follow_a_transaction_that_sqlite_took_back_never_happens(
    store: Any, before: int, swallows: bool
) -> None:
    """On some errors SQLite does not wait to be asked for a rollback, and takes the batch along."""
    ran: list[str] = []
    insert = "insert or rollback into meta (key, value) values ('k', 'v')"
    store.transaction(lambda tx: tx.runs._db.execute(insert))

    def good(tx: Any) -> None:
        tx.runs.insert(row("r1"))
        store.after_commit(lambda: ran.append("good"))
        store.on_rollback(lambda: ran.append("undone"))

    def bad(tx: Any) -> None:
        store.after_commit(lambda: ran.append("bad"))
        store.on_rollback(lambda: ran.append("undone"))
        with contextlib.suppress(sqlite3.IntegrityError if swallows else ()):
            tx.runs._db.execute(insert)

    batch = [Ticket(work, True) for work in (*[good] * before, bad)]
    with pytest.raises(KfmError, match="took a transaction back" if swallows else "UNIQUE"):
        store._commit(batch)
    assert ran == ["undone"] * len(batch)
    store.transaction(lambda tx: tx.jobs.put("d", "", ""))
    assert ran == ["undone"] * len(batch), "nor with the next one"
    assert store.read(lambda tx: tx.runs.recent()) == []


@pytest.mark.parametrize("place", ["sqlite"], indirect=True)
def test_after_tidying_up_the_file_alone_holds_everything(
    store: Any, place: Place, tmp_path: Path
) -> None:
    store.transaction(lambda tx: tx.jobs.put("d", "", ""))
    size = Path(place.where).stat().st_size
    store.tidy()
    assert Path(place.where).stat().st_size == size  # not worth it yet
    for n in range(300):
        store.transaction(lambda tx: tx.jobs.put("d", f"p{n}", ""), durable=False)
    store.tidy()
    shutil.copyfile(place.where, tmp_path / "alone")
    with contextlib.closing(sqlite3.connect(tmp_path / "alone")) as db:
        assert db.execute("select count(*) from job").fetchone() == (301,)


def test_a_disk_that_cannot_be_read_now_is_no_damage(tmp_path: Path, clock: Clock) -> None:
    store = SqliteStore(tmp_path / "ledger" / "s.sqlite", clock)

    def refused(tx: Any) -> None:
        raise sqlite3.OperationalError("disk I/O error")

    for ask in (store.read, store.transaction):
        with pytest.raises(StepFailed, match="disk I/O error"):
            ask(refused)
    store.abandon()


# ---- events --------------------------------------------------------------------------------------
def told(event_id: str, **changes: Any) -> EventRow:
    row = EventRow(
        event_id=event_id,
        source_id="s",
        received_at="2026-01-01T00:00:00Z",
        received_ms=1_767_225_600_000,
        key_id="env:KEY",
        body_digest="sha256:00",
        event='{"metadata":{"x":"\\u0000 \'\\"%?:now_ms"}}',
        started="[]",
    )
    return msgspec.structs.replace(row, **changes)


def test_the_first_delivery_of_a_name_is_new_and_every_other_a_replay(
    store: Any, other: Any
) -> None:
    claims = [Claim("s", "body:b", "e2", 60_000), Claim("s", "body:a", "e1", 60_000)]
    assert store.transaction(lambda tx: tx.events.claim(claims)) == {"e1", "e2"}
    again = [Claim("s", "body:a", "e3", 60_000), Claim("t", "body:a", "e4", 60_000)]
    assert other.transaction(lambda tx: tx.events.claim(again)) == {"e4"}, "one of another source"
    asked = [("s", "body:a"), ("s", "body:b"), ("s", "body:c"), ("t", "body:a")]
    assert store.read(lambda tx: tx.events.known(asked)) == {
        ("s", "body:a"): "e1",
        ("s", "body:b"): "e2",
        ("t", "body:a"): "e4",
    }


def test_a_replay_is_known_for_as_long_as_was_said(store: Any) -> None:
    store.transaction(lambda tx: tx.events.claim([Claim("s", "n", "e1", -1)]))
    assert store.read(lambda tx: tx.events.known([("s", "n")])) == {}
    assert store.transaction(lambda tx: tx.events.claim([Claim("s", "n", "e2", 60_000)])) == {"e2"}
    store.transaction(lambda tx: tx.events.claim([Claim("s", "m", "e3", -1)]))
    store.transaction(lambda tx: tx.events.forget(0))
    assert store.read(lambda tx: tx.events.known([("s", "n"), ("s", "m")])) == {("s", "n"): "e2"}


def test_a_claim_that_is_taken_back_is_nobodys(store: Any) -> None:
    def fails(tx: Any) -> None:
        tx.events.claim([Claim("s", "n", "e1", 60_000)])
        tx.events.put([told("e1")])
        raise StepFailed("no")

    with pytest.raises(StepFailed):
        store.transaction(fails)
    assert store.transaction(lambda tx: tx.events.claim([Claim("s", "n", "e2", 60_000)])) == {"e2"}
    assert store.read(lambda tx: tx.events.count()) == 0


def test_of_two_who_hear_the_same_at_once_one_is_first(store: Any, other: Any) -> None:
    gate, answers = threading.Barrier(2), list[set[str]]()

    def hear(one: Any, name: str, order: int) -> None:
        claims = [Claim("s", f"n{n}", f"{name}{n}", 60_000) for n in range(20)][::order]
        gate.wait()
        answers.append(one.transaction(lambda tx: tx.events.claim(claims)))

    threads = [threading.Thread(target=hear, args=a) for a in ((store, "a", 1), (other, "b", -1))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(int(e[1:]) for found in answers for e in found) == list(range(20))


def test_events_are_kept_as_they_were_told_newest_first(store: Any) -> None:
    rows = [told(f"e{n}", key_id=f"k{n % 2}", received_ms=n, note="ü") for n in range(5)]
    store.transaction(lambda tx: tx.events.put(rows[:3]))
    store.transaction(lambda tx: tx.events.put([*rows[3:], told("f0", source_id="t")]))

    def look(tx: Any) -> None:
        assert tx.events.listing("s") == rows[::-1]
        assert [row.event_id for row in tx.events.listing(limit=2)] == ["f0", "e4"]
        assert tx.events.like("e3") == [rows[3]] and len(tx.events.like("e")) == 2
        assert tx.events.keys("s")["k0"] == (3, rows[0].received_at) and tx.events.count() == 6

    store.read(look)
    store.transaction(lambda tx: tx.events.restarted("e3", '[["d","j",1]]'))
    assert store.read(lambda tx: tx.events.like("e3"))[0].started == '[["d","j",1]]'
    assert store.transaction(lambda tx: tx.events.forget(3, limit=2)) == 2
    assert store.transaction(lambda tx: tx.events.forget(3)) == 1
    assert [row.event_id for row in store.read(lambda tx: tx.events.listing("s"))] == ["e4", "e3"]


def test_a_job_that_runs_again_for_a_cause_of_its_own_carries_it(store: Any) -> None:
    trace = Trace(correlation_id="c2", traceparent="00-aa")

    def ask(tx: Any) -> Any:
        job = tx.jobs.submit(Request(job_type="notify", dataset_id="d"))
        tx.jobs.start(job)
        tx.jobs.submit(Request(job_type="notify", dataset_id="d"))
        before = msgspec.json.decode(tx.jobs.of(job.job_id).envelope)["trace"]
        tx.jobs.submit(Request(job_type="notify", dataset_id="d", trace=trace))
        return before, tx.jobs.of(job.job_id)

    before, job = store.transaction(ask)
    assert job.again == 1 and before["correlation_id"] not in ("", "c2")
    assert msgspec.json.decode(job.envelope)["trace"] == msgspec.to_builtins(trace)
