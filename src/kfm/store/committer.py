"""One committer shared by all runs of a process: whoever comes first commits for everybody who is
waiting.

No thread is handed a lone commit: a run that is alone leads its own batch and pays no switch. While
a leader waits for the disk the others queue up, and the next leader takes them all in one commit.
Leading is holding a lock and nothing else, so that whatever ends a leader, a signal too, lets the
next one lead.
"""

import contextlib
import threading
from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

from kfm.model.errors import StepFailed
from kfm.model.interrupts import finishing
from kfm.store.base import Tx

__all__ = ["Committer", "Ticket"]


T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class Ticket(Generic[T_co]):
    """One piece of work waiting to be committed."""

    __slots__ = ("done", "durable", "error", "result", "work")
    result: T_co  # there once the work was done

    def __init__(self, work: Callable[[Tx], T_co], durable: bool) -> None:
        self.work, self.durable = work, durable
        self.error: BaseException | None = None
        self.done = False


class Committer:
    """Runs `commit(batch)` for batches of tickets, one batch at a time."""

    def __init__(self, commit: Callable[[list[Ticket[object]]], None], most: int = 256) -> None:
        self._commit = commit
        self._most = most
        self._queue: deque[Ticket[object]] = deque()
        self._lead = threading.Lock()

    def submit(self, work: Callable[[Tx], T], durable: bool = True) -> T:
        """Return what `work` returned once it is committed, or raise what it raised."""
        ticket = Ticket(work, durable)
        with finishing:
            try:
                self._queue.append(ticket)
                while not ticket.done:
                    with self._lead:
                        if not ticket.done:
                            self._lead_on(ticket)
            finally:
                if not ticket.done:  # interrupted while waiting: nobody is to do this any more
                    with contextlib.suppress(ValueError):
                        self._queue.remove(ticket)
        if ticket.error is not None:
            raise ticket.error
        return ticket.result

    def _lead_on(self, ticket: Ticket[object]) -> None:
        batch: list[Ticket[object]] = []
        try:
            while self._queue and len(batch) < self._most:
                batch.append(self._queue.popleft())
            # a leader took this ticket along and was cut off before it could say how that ended
            if not batch:
                ticket.error, ticket.done = _cut_off(), True
                return
            self._commit(batch)
        except BaseException as error:
            for each in batch:
                each.error = each.error or error
        finally:
            for each in batch:
                each.done = True


def _cut_off() -> StepFailed:
    return StepFailed(
        "A commit was interrupted, and whether it reached the store is not known here.",
        expected="a commit that ends",
        remedy="Run the command again: it finds what is there.",
    )
