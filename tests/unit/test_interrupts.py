"""A signal at any line of a transaction: the next one works, and the one that was cut is whole or
never was.
"""

import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from tests.model.explore import DATASET, PARTS, Explorer, Files

import kfm.run.assemble_parts
import kfm.run.promote
import kfm.run.update
import kfm.run.work
import kfm.store.committer
import kfm.store.sqlite
from kfm.model.clock import SystemClock
from kfm.model.interrupts import finishing, stop_on_signals
from kfm.run.work import Reached, Steps
from kfm.store.committer import Committer, Ticket
from kfm.store.sqlite import SqliteStore
from kfm.world.world import World

FILES = {kfm.store.committer.__file__, kfm.store.sqlite.__file__}
TAKING = FILES | {
    module.__file__
    for module in (kfm.run.assemble_parts, kfm.run.promote, kfm.run.update, kfm.run.work)
}
LINES = 90  # more than one transaction or look has


class Cut:
    """Sends a signal to ourselves, or several, when the n-th line of these files is reached."""

    def __init__(self, number: int, at: int, files: set[str], times: int) -> None:
        self._number, self._left, self._files, self._times = number, at, files, times

    def __call__(self, frame: FrameType, event: str, arg: Any) -> Any:
        if frame.f_code.co_filename not in self._files:
            return None
        if event == "line":
            self._left -= 1
            if self._left == 0:
                sys.settrace(None)
                for _ in range(self._times):
                    signal.raise_signal(self._number)
        return self


@pytest.fixture
def handlers() -> Iterator[None]:
    # whoever runs this in the background has it ignored
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    set_before = stop_on_signals(signal.SIGTERM, signal.SIGINT)
    yield
    for number, old in set_before:
        signal.signal(number, old)
    signal.signal(signal.SIGINT, before)


def cut(
    work: Any, number: int, at: int, files: set[str] = FILES, times: int = 1
) -> BaseException | None:
    before = sys.gettrace()
    sys.settrace(Cut(number, at, files, times))
    try:
        work()
    except (SystemExit, KeyboardInterrupt) as end:
        return end
    finally:
        sys.settrace(before)
    return None


def in_time(work: Any) -> Any:
    """What `work` gives in another thread, which is not waited for when it hangs."""
    answer: Future[Any] = Future()

    def give() -> None:
        try:
            answer.set_result(work())
        except BaseException as error:
            answer.set_exception(error)

    thread = threading.Thread(target=give, daemon=True)
    thread.start()
    thread.join(60)
    assert not thread.is_alive(), "the next one waits for ever"
    return answer.result(0)


def work_off(batch: list[Any]) -> None:
    for ticket in batch:
        ticket.result = ticket.work(None)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_at_any_line_of_a_transaction_leaves_a_store_that_goes_on(
    tmp_path: Path, handlers: None, number: int
) -> None:
    store = SqliteStore(tmp_path / "ledger/idempotency.sqlite", SystemClock())
    ended = 0
    for at in range(1, LINES):
        ended += (
            cut(
                lambda at=at: store.transaction(
                    lambda tx: tx.schedule.set_checkpoint(f"a/{at}", "x")
                ),
                number,
                at,
            )
            is not None
        )
        in_time(
            lambda at=at: store.transaction(lambda tx: tx.schedule.set_checkpoint(f"b/{at}", "x"))
        )
        assert store.read(lambda tx: tx.schedule.checkpoint(f"b/{at}")) == "x"
    assert 10 < ended < LINES - 1, "some lines were hit, and the last ones come after its end"
    store.close()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_at_any_line_of_a_look_leaves_a_store_that_goes_on(
    tmp_path: Path, handlers: None, number: int
) -> None:
    store = SqliteStore(tmp_path / "ledger/idempotency.sqlite", SystemClock())
    for at in range(1, LINES):
        cut(lambda: store.read(lambda tx: tx.schedule.checkpoint("a")), number, at)
        assert in_time(lambda: store.read(lambda tx: tx.schedule.checkpoint("a"))) is None
    store.close()


def test_a_signal_waits_for_the_transaction_and_a_second_one_does_not(handlers: None) -> None:
    done: list[str] = []

    def commit(batch: list[Any]) -> None:
        signal.raise_signal(signal.SIGTERM)
        done.append("committed")

    with pytest.raises(SystemExit):
        Committer(commit).submit(lambda tx: None)
    assert done == ["committed"]
    with pytest.raises(SystemExit):
        _twice(done)
    with finishing:
        pass  # what was heard is forgotten with the raise that ended the wait
    assert done == ["committed"]


def _twice(done: list[str]) -> None:
    with finishing:
        signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGTERM)
        done.append("never")


def test_a_leader_that_is_ended_lets_the_next_one_lead() -> None:
    ends: list[BaseException] = [KeyboardInterrupt()]

    def commit(batch: list[Any]) -> None:
        if ends:
            raise ends.pop()
        work_off(batch)

    committer = Committer(commit)
    with pytest.raises(KeyboardInterrupt):
        committer.submit(lambda tx: None)
    in_time(lambda: committer.submit(lambda tx: None))


class Renewing(list[Any]):
    """The leases somebody renews."""

    add = list.append

    def drop(self, *tokens: Any) -> None:
        self[:] = [held for held in self if held not in tokens]


def _update(world: World, explorer: Explorer) -> Steps:
    return kfm.run.update.update(world, explorer.target(PARTS[0]))


def _assembly(world: World, explorer: Explorer) -> Steps:
    return kfm.run.assemble_parts.assemble_staged(world, explorer.target(PARTS[0]), "bf")


def _promotion(world: World, explorer: Explorer) -> Steps:
    if not world.store.read(lambda tx: tx.runs.promotable(DATASET)):
        explorer.upstream.words[PARTS[0]] = "b"
        assert Reached.PROPOSAL_WRITTEN in list(_update(world, explorer))
    return kfm.run.promote.promote(world, DATASET)


@pytest.mark.parametrize(
    ("begin", "lease", "taken"),
    [
        (_update, f"{DATASET}/{PARTS[0]}", Reached.JOB_TAKEN),
        (_assembly, DATASET, Reached.ASSEMBLE_TAKEN),
        (_promotion, DATASET, Reached.PROMOTE_TAKEN),
    ],
)
def test_a_signal_at_any_line_of_taking_a_lease_leaves_it_free(
    tmp_path: Path, handlers: None, begin: Any, lease: str, taken: Reached
) -> None:
    explorer = Explorer(tmp_path, {}, 0, Files())
    world, hit, at = explorer.open_world(), 0, 0
    world.heart = Renewing()
    while True:
        explorer.put(PARTS[0])
        steps, at, reached = begin(world, explorer), at + 1, list[Any]()
        ended = cut(lambda: reached.append(next(steps)), signal.SIGTERM, at, TAKING)
        if ended is None:
            break
        hit += 1
        assert world.store.read(lambda tx: tx.leases.is_free(lease)), f"line {at}"
        assert world.heart == [], f"line {at}"
    assert reached == [taken] and hit > 30, "it was cut at every line until it had its lease"
    with pytest.raises(KeyboardInterrupt):
        steps.throw(KeyboardInterrupt())
    assert world.store.read(lambda tx: tx.leases.is_free(lease)) and world.heart == []


def test_whoever_waits_for_an_answer_does_not_take_the_lead_to_read_it() -> None:
    leading, held, taken, waiting = threading.Event(), threading.Event(), [], 20

    class Lead:
        """A lock that knows how often it was taken."""

        def __init__(self) -> None:
            self._lock = threading.Lock()
            self.locked = self._lock.locked

        def __enter__(self) -> None:
            self._lock.acquire()
            taken.append(threading.get_ident())

        def __exit__(self, *error: object) -> None:
            self._lock.release()

    def commit(batch: list[Any]) -> None:
        leading.set()
        held.wait(60)
        work_off(batch)

    committer = Committer(commit)
    committer._lead = Lead()  # type: ignore[assignment]
    threads = [
        threading.Thread(target=committer.submit, args=(lambda tx: None,), daemon=True)
        for _ in range(1 + waiting)
    ]
    threads[0].start()
    leading.wait(60)
    for thread in threads[1:]:
        thread.start()
    while len(committer._queue) < waiting:
        time.sleep(0.001)
    held.set()
    for thread in threads:
        thread.join(60)
    assert not any(thread.is_alive() for thread in threads)
    assert 2 <= len(taken) < waiting / 2


def test_whoever_was_never_rung_looks_for_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Ticket, "ring", lambda self: None)
    leading, held = threading.Event(), threading.Event()

    def commit(batch: list[Any]) -> None:
        leading.set()
        held.wait(60)
        work_off(batch)

    committer = Committer(commit)
    first = threading.Thread(target=committer.submit, args=(lambda tx: None,), daemon=True)
    first.start()
    leading.wait(60)
    threading.Timer(0.02, held.set).start()
    in_time(lambda: committer.submit(lambda tx: None))


@pytest.mark.parametrize("at", range(8, 39))  # it stands in the queue, waits, and then leads
def test_two_signals_at_any_line_of_one_who_waits_leave_a_committer_that_goes_on(
    handlers: None, at: int
) -> None:
    leading, left = threading.Event(), threading.Event()

    def commit(batch: list[Any]) -> None:
        if not leading.is_set():
            leading.set()
            while not left.is_set() and all(t.bell is None for t in tuple(committer._queue)):
                time.sleep(0.001)
        work_off(batch)

    committer = Committer(commit)
    first = threading.Thread(target=committer.submit, args=(lambda tx: None,), daemon=True)
    first.start()
    leading.wait(60)
    assert cut(lambda: committer.submit(lambda tx: None), signal.SIGTERM, at, times=2) is not None
    left.set()
    in_time(lambda: committer.submit(lambda tx: None))
    first.join(60)
    assert not first.is_alive()
    assert not committer._queue


@pytest.mark.parametrize(("thread", "said"), [(False, "last\n"), (True, "back\nlast\n")])
def test_a_command_ends_as_python_ends_without_taking_apart_what_it_loaded(
    thread: bool, said: str
) -> None:
    """What is registered for the end runs, and a thread that is at work is waited for."""
    code = f"""
import atexit, sys, threading
from kfm.cli import main
atexit.register(print, "last")
if {thread}:
    threading.Timer(0.3, lambda: None).start()
sys.argv = ["kfm", "nothing_of_the_kind"]
code = main()
print("back")
sys.exit(code)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, said)
    assert "nothing_of_the_kind" in done.stderr
