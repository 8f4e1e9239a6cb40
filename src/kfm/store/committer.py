"""One committer shared by all runs of a process: whoever comes first commits for everybody who is
waiting.

No thread is handed a lone commit: a run that is alone leads its own batch and pays no switch. While
a leader waits for the disk the others queue up, and the next leader takes them all in one commit.
Leading is holding a lock and nothing else, so that whatever ends a leader, a signal too, lets the
next one lead. Nobody queues for that lock: threads that wake one by one, each to find its work
done, cost more than the work. They rest, each at a bell of its own, until there is an answer or the
lead is free.
"""

import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

from kfm.model import StepFailed, finishing
from kfm.store.base import Tx

__all__ = ["Committer", "Ticket"]

_LOOK_S = 0.05  # a leader that was cut off may have rung nobody
_GATHER_S = 0.00005


T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class Ticket(Generic[T_co]):
    """One piece of work waiting to be committed."""

    __slots__ = ("bell", "done", "durable", "error", "result", "work")
    result: T_co  # there once the work was done

    def __init__(self, work: Callable[[Tx], T_co], durable: bool) -> None:
        self.work, self.durable = work, durable
        self.error: BaseException | None = None
        self.done = False
        # held until it is rung; only one who has to wait gets one
        self.bell: threading.Lock | None = None

    def ring(self) -> None:
        """Let whoever waits for this look again."""
        if self.bell is not None:
            with contextlib.suppress(RuntimeError):  # rung already
                self.bell.release()


class Committer:
    """Runs `commit(batch)` for batches of tickets, one batch at a time."""

    def __init__(self, commit: Callable[[list[Ticket[object]]], None], most: int = 256) -> None:
        self._commit = commit
        self._most = most
        self._queue: deque[Ticket[object]] = deque()
        self._served = 0  # how many the last batch had
        self._lead = threading.Lock()

    def submit(self, work: Callable[[Tx], T], durable: bool = True) -> T:
        """Return what `work` returned once it is committed, or raise what it raised."""
        ticket = Ticket(work, durable)
        with finishing:
            try:
                self._queue.append(ticket)
                while not ticket.done:
                    if self._lead.locked():
                        self._wait(ticket)
                        continue
                    with self._lead:
                        if not ticket.done:
                            self._lead_on(ticket)
                    self._ring_next()
            finally:
                if not ticket.done:  # interrupted while waiting: nobody is to do this any more
                    with contextlib.suppress(ValueError):
                        self._queue.remove(ticket)
        if ticket.error is not None:
            raise ticket.error
        return ticket.result

    def _wait(self, ticket: Ticket[object]) -> None:
        """Rest until this is done or the lead is free."""
        if ticket.bell is None:
            ticket.bell = threading.Lock()
            ticket.bell.acquire()
        # asked again now that there is a bell: it is rung after `done`, and after the lead is free
        if not ticket.done and self._lead.locked():
            ticket.bell.acquire(timeout=_LOOK_S)

    def _ring_next(self) -> None:
        if self._queue:
            with contextlib.suppress(IndexError):  # another leader took it
                self._queue[0].ring()

    def _gather(self) -> None:
        """Wait while those come back whom the last batch served: one commit of all costs less than
        two of some. A run that is alone waits for nobody.
        """
        seen = 0
        while seen < len(self._queue) < self._served:
            seen = len(self._queue)
            time.sleep(_GATHER_S)

    def _lead_on(self, ticket: Ticket[object]) -> None:
        batch: list[Ticket[object]] = []
        self._gather()
        try:
            while self._queue and len(batch) < self._most:
                batch.append(self._queue.popleft())
            # a leader took this ticket along and was cut off before it could say how that ended
            if not batch:
                ticket.error, ticket.done = _cut_off(), True
                return
            self._served = len(batch)
            self._commit(batch)
        except BaseException as error:
            for each in batch:
                each.error = each.error or error
        finally:
            for each in batch:
                each.done = True
                each.ring()


def _cut_off() -> StepFailed:
    return StepFailed(
        "A commit was interrupted, and whether it reached the store is not known here.",
        expected="a commit that ends",
        remedy="Run the command again: it finds what is there.",
    )
