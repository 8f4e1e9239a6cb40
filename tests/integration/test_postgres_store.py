"""A workspace whose store is on a real PostgreSQL server, and what happens when that server goes
away.
"""

import contextlib
import gc
import os
import re
import select
import shutil
import signal
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kfm.cli import main
from kfm.cli.init import make_workspace
from kfm.evidence.journal import check_chain
from kfm.jobs.heartbeat import Heartbeat
from kfm.model.clock import SystemClock
from kfm.model.errors import Fenced, IntegrityError, StoreUnavailable, UsageError
from kfm.workspace.folder import open_workspace
from tests.given.ledger import journal, row
from tests.given.processes import apart
from tests.given.services import Server, private_server, schema_url, shared_server
from tests.given.verbs import Said, tree

DATASET = "ks_earthquakes"


OPENED: list[Any] = []


@pytest.fixture(autouse=True)
def _postgres() -> Iterator[None]:
    """Without a server these tests are named as not run. One that fails leaves no connection for
    the next to be blamed for.
    """
    shared_server()
    yield
    while OPENED:
        OPENED.pop().abandon()


@pytest.fixture
def url() -> Iterator[str]:
    import psycopg

    found = schema_url(shared_server())
    yield found
    with psycopg.connect(found, autocommit=True) as db:
        db.execute(f"drop schema if exists {found.rpartition('%3D')[2]} cascade")


def opened(url: str, **more: Any) -> Any:
    from kfm.extras.postgres.store import PostgresStore

    OPENED.append(PostgresStore(url, SystemClock(), **more))
    return OPENED[-1]


def sql(url: str, statement: str) -> None:
    import psycopg

    with psycopg.connect(url, autocommit=True) as db:
        db.execute(statement)


@pytest.fixture
def served(ws: Path, url: str, kfm: Callable[..., Said]) -> Callable[..., Said]:
    """The sample workspace, its store on the server."""
    file = ws / "kfm.yml"
    file.write_text(re.sub(r"(?m)^store:.*$", "", file.read_text()) + f"\nstore: {url}\n")
    return kfm


# ---- a workspace ---------------------------------------------------------------------------------
def test_a_dataset_is_run_found_unchanged_verified_and_examined(
    served: Callable[..., Said], ws: Path
) -> None:
    assert served("run", DATASET).code == 0
    again = served("run", DATASET, "--json")
    assert again.code == 0 and "NOOP" in again.out
    assert served("verify").code == 0
    assert served("status", "--json").json["datasets"][0]["state"] == "official"
    assert served("doctor", "--json").json["findings"] == []
    assert not list((ws / "ledger").glob("*.sqlite*"))


def test_a_dry_run_leaves_the_server_and_the_workspace_as_they_were(
    served: Callable[..., Said], ws: Path, url: str
) -> None:
    served("run", DATASET)
    store = opened(url)

    def all_rows() -> Any:
        return store.read(
            lambda tx: (
                tx.runs.recent(),
                tx.looks.noops(),
                tx.lineage.page(),
                tx.leases.held(),
                tx.jobs.listing(),
            )
        )

    before, files = all_rows(), tree(ws, without=("data/work", "receipts"))
    said = served("run", DATASET, "--dry-run", "--force", "--reason", "try", "--json")
    assert said.code == 0
    assert all_rows() == before and tree(ws, without=("data/work", "receipts")) == files
    store.abandon()


def test_a_lost_store_is_noticed_rebuilt_and_fences_whoever_knew_the_old_one(
    served: Callable[..., Said], url: str, ws: Path
) -> None:
    served("run", DATASET)
    old = opened(url)
    official = served("status", "--json").json["datasets"][0]["version_id"]
    assert served("reindex", "--json").json["epoch"] == old.epoch + 1
    with pytest.raises(Fenced, match="rebuilt"):
        old.transaction(lambda tx: tx.leases.take("d", "me", 15))
    old.abandon()
    assert list((ws / "ledger" / "quarantine").glob("store-*/idempotency.sqlite"))
    schema = url.rpartition("%3D")[2]
    sql(url, f"drop schema {schema} cascade")
    sql(url, f"create schema {schema}")
    lost = served("run", DATASET)
    assert lost.code == 6 and "kfm reindex" in lost.err
    assert served("reindex").code == 0
    assert served("status", "--json").json["datasets"][0]["version_id"] == official
    assert "NOOP" in served("run", DATASET, "--json").out
    sql(url, "drop table lease")
    assert served("run", DATASET).code == 6
    assert served("reindex").code == 0 and served("run", DATASET).code == 0


def test_reindex_leaves_other_tables_of_the_schema_alone(url: str, tmp_path: Path) -> None:
    sql(url, "create table theirs as select 1 as one")
    store = opened(url)
    with store.rebuilding(tmp_path) as new:
        new.store.transaction(lambda tx: tx.index.put_meta("epoch", "2"))
    sql(url, "select one from theirs")
    store.abandon()


def test_a_rebuild_that_fails_changes_nothing(url: str, tmp_path: Path) -> None:
    store = opened(url)
    store.transaction(lambda tx: tx.runs.insert(row()))
    with pytest.raises(ZeroDivisionError), store.rebuilding(tmp_path) as new:
        new.store.transaction(lambda tx: 1 / 0)
    assert store.read(lambda tx: tx.runs.get("r1")) is not None
    store.transaction(lambda tx: tx.runs.move("r1", "CLAIMED", state="PROPOSED"))
    store.abandon()


# ---- whose it is ---------------------------------------------------------------------------------
def test_a_schema_belongs_to_the_first_workspace_that_opens_it(
    served: Callable[..., Said],
    ws: Path,
    url: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert served("run", DATASET).code == 0
    other = tmp_path / "other"
    make_workspace(other, sample=True, allow_loopback=True)
    (other / "kfm.yml").write_text((ws / "kfm.yml").read_text())
    store = opened(url)
    before = store.read(
        lambda tx: (tx.runs.recent(), tx.jobs.listing(), tx.index.meta("workspace"))
    )
    for words in (
        ["run", DATASET],
        ["run", DATASET, "--dry-run"],
        ["status"],
        ["worker", "run", "--until-idle"],
        ["reindex"],
    ):
        capsys.readouterr()
        assert main(["-w", str(other), *words]) == 2, words
        said = "".join(capsys.readouterr())
        assert (
            "belongs to another workspace" in said
            and "backup restore" in said
            and "search_path" in said
        )
    assert (
        store.read(lambda tx: (tx.runs.recent(), tx.jobs.listing(), tx.index.meta("workspace")))
        == before
    )
    store.transaction(lambda tx: tx.leases.take("d", "me", 15))  # its epoch is the one it had
    store.abandon()
    assert served("reindex").code == 0
    assert main(["-w", str(other), "reindex"]) == 2, "a rebuilt one belongs to whom it did"
    assert served("run", DATASET).code == 0


def test_a_store_without_an_owner_takes_the_first_and_a_damaged_one_keeps_its_own(
    served: Callable[..., Said], ws: Path, url: str, tmp_path: Path
) -> None:
    served("run", DATASET)
    sql(url, "delete from meta where key = 'workspace'")
    assert served("status").code == 0
    store = opened(url)
    assert store.read(lambda tx: tx.index.meta("workspace")) == open_workspace(ws).identity()
    store.abandon()
    # damaged: opening it says so, mending it is the right of its workspace alone
    sql(url, "drop table store_format")
    theirs = opened(url, create=False, repair=True, workspace="theirs")
    with (
        pytest.raises(UsageError, match="another workspace"),
        theirs.rebuilding(tmp_path / "aside"),
    ):
        pass
    theirs.abandon()
    assert served("reindex").code == 0


def test_several_machines_and_a_restored_backup_have_the_id_of_their_workspace(
    served: Callable[..., Said], ws: Path, url: str, tmp_path: Path
) -> None:
    served("run", DATASET)
    found = open_workspace(ws).identity()
    shutil.rmtree(ws / "ledger")  # another machine has a folder of its own there
    assert served("status").code == 0 and open_workspace(ws).identity() == found
    assert served("backup", str(tmp_path / "bk"), "--with-keys").code == 0
    assert main(["backup", "--restore", str(tmp_path / "bk"), "-w", str(tmp_path / "new")]) == 0
    assert open_workspace(tmp_path / "new").identity() == found
    shutil.copy(ws / "kfm.yml", tmp_path / "new" / "kfm.yml")
    assert main(["-w", str(tmp_path / "new"), "status"]) == 0


# ---- the address ---------------------------------------------------------------------------------
def test_the_address_may_come_from_the_environment_and_its_password_is_never_said(
    served: Callable[..., Said], ws: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = ws / "kfm.yml"
    plain = re.sub(r"(?m)^store:.*$", "", file.read_text())
    file.write_text(plain + "\nstore: env:KFM_STORE\n")
    assert served("status").code == 2 and "KFM_STORE" in served("status").err
    monkeypatch.setenv("KFM_STORE", "postgresql://kfm:s3cr3t@127.0.0.1:1/none?connect_timeout=1")
    monkeypatch.setattr("kfm.extras.postgres.store.PATIENCE", 0.0)
    said = served("status")
    assert said.code == 1 and "127.0.0.1:1" in said.err and "nothing is lost" in said.err.lower()
    assert "s3cr3t" not in said.err + said.out
    found = served("doctor", "--json")
    assert (
        found.code == 1
        and "store.unreachable" in found.out
        and "s3cr3t" not in found.out + found.err
    )


@pytest.mark.parametrize(
    "address", ["postgresql://kfm:s3@db.test/kfm", "postgresql://db.test/kfm?password=s3"]
)
def test_a_password_in_kfm_yml_is_refused(ws: Path, kfm: Callable[..., Said], address: str) -> None:
    (ws / "kfm.yml").write_text(f"format: 1\nstore: {address}\n")
    said = kfm("status")
    assert said.code == 2 and "env:" in said.err


def test_commands_that_copy_the_store_file_say_what_to_do(served: Callable[..., Said]) -> None:
    served("run", DATASET)
    said = served("drill", DATASET)
    assert said.code == 2 and "sqlite:///" in said.err


# ---- the server's settings -----------------------------------------------------------------------
def test_a_server_that_does_not_wait_for_its_disk_is_refused(url: str) -> None:
    with pytest.raises(UsageError, match="synchronous_commit"):
        opened(url + "%20-csynchronous_commit%3Doff")


GOOD = {
    "fsync": "on", "synchronous_commit": "on", "full_page_writes": "on", "server_version_num": "180001", "server_version": "18.1",
    "max_connections": "100", "superuser_reserved_connections": "3",
}  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "used", "skew", "code"),
    [
        ({}, 5, 1.0, None),
        ({"fsync": "off"}, 5, 0.0, "store.fsync"),
        ({"synchronous_commit": "off"}, 5, 0.0, "store.synchronous_commit"),
        ({"full_page_writes": "off"}, 5, 0.0, "store.full_page_writes"),
        ({"server_version_num": "130010"}, 5, 0.0, "store.old"),
        ({"max_connections": "10"}, 5, 0.0, "store.connections"),
        ({}, 95, 0.0, "store.connections"),
        ({}, 5, 6.0, "store.clock"),
    ],
)
def test_doctor_finds_what_would_lose_data_or_time(
    changes: dict[str, str], used: int, skew: float, code: str | None
) -> None:
    from kfm.extras.postgres.store import judge_settings

    assert [f[0] for f in judge_settings({**GOOD, **changes}, used, skew)] == (
        [code] if code else []
    )


def test_doctor_tries_whether_a_notification_arrives(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = opened(url)
    assert store.examine_server() == []
    monkeypatch.setattr("kfm.extras.postgres.store.RING_S", 0.1)
    # as behind a pooler that hands connections out by transaction
    monkeypatch.setattr(store, "ring", lambda: None)
    assert [code for code, _, _ in store.examine_server()] == ["store.pooler"]
    store.abandon()


# ---- transactions at the same time ---------------------------------------------------------------
def test_who_looks_at_a_job_first_and_who_checks_its_lease_first_do_not_block_each_other(
    url: str,
) -> None:
    """A worker ends a job while a command tries to take it: one order of locks, so nobody is sent
    away.
    """
    store, other = opened(url), opened(url)
    store.transaction(lambda tx: tx.jobs.put("d", "", ""))
    token = store.transaction(
        lambda tx: (tx.leases.take("d/-", "me", 1500), tx.jobs.start(tx.jobs.get("d", "", "")))[0]
    )
    inside, seen = threading.Event(), []

    def end(tx: Any) -> None:
        tx.leases.check(token)
        inside.set()
        second.join(timeout=0.3)
        tx.jobs.ack("d", "", "")
        tx.leases.release(token)

    def take(tx: Any) -> None:
        seen.append(tx.jobs.get("d", "", "").state)
        seen.append(tx.leases.take("d/-", "you", 15) is not None)

    second = threading.Thread(target=lambda: (inside.wait(), other.transaction(take)))
    second.start()
    store.transaction(end)
    second.join()
    assert seen == ["ended", True]
    store.abandon()
    other.abandon()


def test_an_order_to_force_is_not_lost_when_two_ask_at_once(url: str) -> None:
    store, other = opened(url), opened(url)
    inside = threading.Event()

    def forced(tx: Any) -> None:
        tx.jobs.put("d", "", "", forced=1, reason="now")
        inside.set()
        second.join(timeout=0.3)

    second = threading.Thread(
        target=lambda: (inside.wait(), other.transaction(lambda tx: tx.jobs.put("d", "", "")))
    )
    second.start()
    store.transaction(forced)
    second.join()
    job = store.read(lambda tx: tx.jobs.get("d", "", ""))
    assert (job.forced, job.reason, job.generation) == (1, "now", 1)
    store.abandon()
    other.abandon()


def test_a_transaction_the_server_gave_up_is_never_taken_for_durable(url: str) -> None:
    store = opened(url)

    def swallow(tx: Any) -> None:
        tx.runs.insert(row())
        with contextlib.suppress(Exception):
            tx.runs.insert(row())

    with pytest.raises(StoreUnavailable):
        store.transaction(swallow)
    assert store.read(lambda tx: tx.runs.get("r1")) is None
    store.abandon()


# ---- the server goes away ------------------------------------------------------------------------
class Line:
    """A socket between a store and its server that can be cut, and can swallow the answer to a
    commit.
    """

    def __init__(self, server: Server) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="kfmln-"))
        self._to = str(next(server.folder.glob(".s.PGSQL.5432")))
        self._pairs: list[tuple[socket.socket, socket.socket]] = []
        self.swallow = False
        # what is asked -> what is answered, once, in the server's place
        self.instead: dict[bytes, Callable[[], bytes]] = {}
        self._listen()

    def _listen(self) -> None:
        self._door = socket.socket(socket.AF_UNIX)
        self._door.bind(str(self.folder / ".s.PGSQL.5432"))
        self._door.listen(64)
        threading.Thread(target=self._accept, args=(self._door,), daemon=True).start()

    def _accept(self, door: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = door.accept()
                far = socket.socket(socket.AF_UNIX)
                far.connect(self._to)
                self._pairs.append((near, far))
                threading.Thread(target=self._carry, args=(near, far, False), daemon=True).start()
                threading.Thread(target=self._carry, args=(far, near, True), daemon=True).start()

    def _carry(self, source: socket.socket, target: socket.socket, answers: bool) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                if answers and self.swallow and b"COMMIT" in data:
                    self.swallow = False
                    break
                asked = (
                    None if answers else next((word for word in self.instead if word in data), None)
                )
                if asked is None:
                    target.sendall(data)
                else:
                    source.sendall(self.instead.pop(asked)())
        for end in (source, target):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def cut(self) -> None:
        self._door.shutdown(socket.SHUT_RDWR)
        self._door.close()
        (self.folder / ".s.PGSQL.5432").unlink()
        for pair in self._pairs:
            for end in pair:
                with contextlib.suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)

    def mend(self) -> None:
        self._listen()

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self.cut()
        for pair in self._pairs:
            for end in pair:
                end.close()
        shutil.rmtree(self.folder)


@pytest.fixture
def line() -> Iterator[Line]:
    found = Line(shared_server())
    yield found
    found.close()


def through(line: Line, url: str) -> str:
    return url.replace(
        str(shared_server().folder).replace("/", "%2F"), str(line.folder).replace("/", "%2F")
    )


def test_an_unconfirmed_commit_is_said_and_may_be_repeated(line: Line, url: str) -> None:
    store = opened(through(line, url))
    wal = journal(store, "w")
    wal.intend("EXECUTE", "a")
    line.swallow = True
    with pytest.raises(StoreUnavailable, match="run again") as told:
        wal.intend("EXECUTE", "b")
    assert told.value.retryable and told.value.exit_code == 1
    wal.done("EXECUTE", "b")
    wal.intend("EXECUTE", "c")  # after what the store has
    records = store.read(lambda tx: tx.journals.get("w"))
    check_chain(records)
    assert [r.step_id for r in records] == ["a", "b", "b", "c"] == [r.step_id for r in wal.records]
    store.abandon()


def test_what_has_not_begun_waits_for_a_line_that_comes_back_and_a_transaction_that_began_does_not(
    line: Line, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = opened(through(line, url))
    token = store.transaction(lambda tx: tx.leases.take("d", "me", 1500))
    done = threading.Event()

    def cut_inside(tx: Any) -> None:
        tx.runs.insert(row("lost"))
        line.cut()
        tx.runs.insert(row("lost too"))

    with pytest.raises(StoreUnavailable):
        store.transaction(cut_inside)
    monkeypatch.setattr("kfm.extras.postgres.store.PATIENCE", 0.0)
    with pytest.raises(StoreUnavailable):
        store.read(lambda tx: tx.runs.get("lost"))
    with pytest.raises(StoreUnavailable):
        store.vacuum()
    monkeypatch.setattr("kfm.extras.postgres.store.PATIENCE", 60.0)
    threading.Timer(0.3, lambda: (done.set(), line.mend())).start()
    assert store.read(lambda tx: tx.runs.get("lost")) is None
    assert done.is_set()
    line.cut()
    threading.Timer(0.3, line.mend).start()
    # waits too: nothing was done yet. Nobody has taken the lease meanwhile
    store.transaction(lambda tx: tx.leases.check(token))
    store.close()


def test_a_heartbeat_goes_on_after_the_line_was_cut(
    line: Line, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kfm.extras.postgres.store.PATIENCE", 0.0)
    store, watcher = opened(through(line, url)), opened(url)
    token = store.transaction(lambda tx: tx.leases.take("d", "me", 1500))
    heart = Heartbeat(store, 0.3)
    heart.add(token)

    def ends() -> int:
        return int(watcher.read(lambda tx: tx.leases.held())[0].expires_ns)

    line.cut()
    time.sleep(0.5)
    line.mend()
    before = ends()
    while ends() == before:  # a heartbeat that died would let this go on until the test is stopped
        time.sleep(0.05)
    heart.stop()
    store.abandon()
    watcher.abandon()


def refused() -> bytes:
    """What a server says that did not do it, and waits for the next question."""
    said = b"SERROR\0C57014\0Mcanceling statement due to statement timeout\0\0"
    return b"E" + (4 + len(said)).to_bytes(4, "big") + said + b"Z\0\0\0\5I"


def told_to_stop() -> bytes:
    signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGUSR1)
    return refused()


@pytest.mark.parametrize("asked", [b"set_config", b"begin", b"listen"])
@pytest.mark.parametrize("happens", [refused, told_to_stop])
def test_a_connection_that_nobody_knows_yet_is_closed_when_its_first_question_fails(
    line: Line,
    url: str,
    monkeypatch: pytest.MonkeyPatch,
    recwarn: pytest.WarningsRecorder,
    asked: bytes,
    happens: Callable[[], bytes],
) -> None:
    def stop(*_: Any) -> None:
        raise SystemExit(143)

    gc.collect()
    recwarn.clear()  # of what other tests left behind
    monkeypatch.setattr("kfm.extras.postgres.store.PATIENCE", 0.0)
    store = opened(through(line, url))
    store.abandon()  # it keeps no connection: whatever asks gets a new one
    before = signal.signal(signal.SIGUSR1, stop)
    line.instead[asked] = happens
    with contextlib.suppress(StoreUnavailable, SystemExit):
        store.read(lambda tx: None) if asked == b"begin" else store.bell().close()
    assert not line.instead, "it was asked"
    signal.signal(signal.SIGUSR1, before)
    gc.collect()
    assert [str(w.message) for w in recwarn if w.category is ResourceWarning] == []


def test_a_bell_whose_line_was_cut_wakes_its_owner_and_rings_again(line: Line, url: str) -> None:
    store, other = opened(through(line, url)), opened(url)
    bell = store.bell()
    line.cut()
    assert select.select([bell], [], [], 60)[0]  # something may have been missed
    bell.drain()
    assert not select.select([bell], [], [], 0)[0]  # and no busy waiting while it is away
    line.mend()
    bell.drain()
    other.transaction(lambda tx: tx.jobs.put("d", "", ""))
    assert select.select([bell], [], [], 60)[0]
    bell.close()
    store.abandon()
    other.abandon()


def test_a_process_frozen_inside_a_transaction_does_not_keep_its_dataset(url: str) -> None:
    frozen, other = opened(url), opened(url)
    taken: list[Any] = []

    def freeze(tx: Any) -> None:
        tx.leases.take("d", "frozen", 15)
        given = tx._db.execute("show idle_in_transaction_session_timeout").fetchone()
        assert given == {"idle_in_transaction_session_timeout": "10s"}, "less than a lease"
        # nobody has the time to wait for more
        tx._db.execute("set local idle_in_transaction_session_timeout = '300ms'")
        # waits until the server gives up on us
        taken.append(other.transaction(lambda tx: tx.leases.take("d", "me", 15)))
        tx.runs.insert(row())

    with pytest.raises(StoreUnavailable):
        frozen.transaction(freeze)
    assert taken[0] is not None and other.read(lambda tx: tx.runs.get("r1")) is None


def _append(url: str, name: str, count: int) -> None:
    """A worker that does again what was not confirmed."""
    os.environ["PGCONNECT_TIMEOUT"] = "5"
    wal = None
    while wal is None:  # it may be away already when a slow worker comes
        try:
            store = opened(url)
            wal = journal(store, name)
        except StoreUnavailable:
            time.sleep(0.05)
    for number in range(count):
        wal.done("EXECUTE", f"s{number}")
        while True:
            try:
                wal.commit(lambda tx, page: None)
                break
            except StoreUnavailable:
                time.sleep(0.05)
    store.close()


def test_a_server_killed_under_load_loses_and_doubles_nothing() -> None:
    with private_server() as server:
        url = schema_url(server)
        opened(url).abandon()
        context = apart()
        workers = [context.Process(target=_append, args=(url, f"w{n}", 150)) for n in range(3)]
        for w in workers:
            w.start()
        store = opened(url)
        for reached in (20, 90):
            while not store.read(lambda tx, n=reached: tx.journals.raw("w0")[n:]):
                time.sleep(0.01)
            server.stop("immediate")  # as after a power cut: it recovers from its log
            server.start()
        for w in workers:
            w.join()
        assert [w.exitcode for w in workers] == [0, 0, 0]
        for n in range(3):
            records = store.read(lambda tx: tx.journals.get(f"w{n}"))
            check_chain(records)
            assert [r.step_id for r in records] == [f"s{i}" for i in range(150)]
        store.abandon()


def test_a_damaged_server_says_so(url: str) -> None:
    store = opened(url)
    sql(url, "drop table ledger")
    assert store.check() != "ok"
    with pytest.raises(IntegrityError, match="reindex"):
        store.read(lambda tx: tx.runs.recent())
    store.abandon()


def test_the_store_of_a_workspace_is_a_file_or_a_server(ws: Path) -> None:
    assert open_workspace(ws).server is None
    assert open_workspace(ws).ledger == ws / "ledger"
