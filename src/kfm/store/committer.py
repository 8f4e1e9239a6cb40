"""One committer shared by all runs of a process: whoever comes first commits for everybody who is waiting.

No thread is handed a lone commit: a run that is alone leads its own batch and pays no switch. While a leader waits for the
disk the others queue up, and the next leader takes them all in one commit.
"""

import threading
from collections import deque
from collections.abc import Callable
from typing import Any

__all__ = ["Committer", "Ticket"]


class Ticket:
    """One piece of work waiting to be committed."""

    __slots__ = ("durable", "error", "gate", "leads", "result", "work")

    def __init__(self, work: Callable[[Any], Any], durable: bool) -> None:
        self.work, self.durable = work, durable
        self.result: Any = None
        self.error: BaseException | None = None
        self.leads = False
        self.gate = threading.Lock()


class Committer:
    """Runs `commit(batch)` for batches of tickets, one batch at a time."""

    def __init__(self, commit: Callable[[list[Ticket]], None], most: int = 256) -> None:
        self._commit = commit
        self._most = most
        self._mutex = threading.Lock()
        self._queue: deque[Ticket] = deque()
        self._leading = False

    def submit(self, work: Callable[[Any], Any], durable: bool = True) -> Any:
        """Return what `work` returned once it is committed, or raise what it raised."""
        ticket = Ticket(work, durable)
        with self._mutex:
            self._queue.append(ticket)
            lead = not self._leading
            self._leading = True
            if not lead:
                ticket.gate.acquire()
        if not lead:
            ticket.gate.acquire()  # released when done, or when leadership is handed over
            lead = ticket.leads
        if lead:
            self._lead()
        if ticket.error is not None:
            raise ticket.error
        return ticket.result

    def _lead(self) -> None:
        with self._mutex:
            batch = [self._queue.popleft() for _ in range(min(self._most, len(self._queue)))]
        try:
            self._commit(batch)
        except BaseException as error:
            for ticket in batch:
                ticket.error = ticket.error or error
        finally:
            for ticket in batch:
                if ticket.gate.locked():
                    ticket.leads = False
                    ticket.gate.release()
            with self._mutex:
                if self._queue:
                    heir = self._queue[0]
                    heir.leads = True
                    heir.gate.release()
                else:
                    self._leading = False
