"""A signal at any line of a transaction: the next one works, and the one that was cut is whole or
never was.
"""

import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import kfm.store.committer
import kfm.store.sqlite
from kfm.model.clock import SystemClock
from kfm.model.interrupts import finishing, stop_on_signals
from kfm.store.committer import Committer
from kfm.store.sqlite import SqliteStore

FILES = {kfm.store.committer.__file__, kfm.store.sqlite.__file__}
LINES = 90  # more than one transaction or look has


class Cut:
    """Sends a signal to ourselves when the n-th line of the store is reached."""

    def __init__(self, number: int, at: int) -> None:
        self._number, self._left = number, at

    def __call__(self, frame: FrameType, event: str, arg: Any) -> Any:
        if frame.f_code.co_filename not in FILES:
            return None
        if event == "line":
            self._left -= 1
            if self._left == 0:
                sys.settrace(None)
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


def cut(work: Any, number: int, at: int) -> BaseException | None:
    before = sys.gettrace()
    sys.settrace(Cut(number, at))
    try:
        work()
    except (SystemExit, KeyboardInterrupt) as end:
        return end
    finally:
        sys.settrace(before)
    return None


def in_time(work: Any) -> Any:
    """What `work` gives in another thread, which is not waited for when it hangs."""
    answer: list[Any] = []
    thread = threading.Thread(target=lambda: answer.append(work()), daemon=True)
    thread.start()
    thread.join(60)
    assert not thread.is_alive(), "the next one waits for ever"
    return answer[0]


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

    committer = Committer(commit)
    with pytest.raises(KeyboardInterrupt):
        committer.submit(lambda tx: None)
    in_time(lambda: committer.submit(lambda tx: None))
