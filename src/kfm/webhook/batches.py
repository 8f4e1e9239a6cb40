"""What waits is done all at once, and whoever asked is told when it is done."""

import asyncio
import contextlib
import queue
import threading
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

__all__ = ["Batches"]

T = TypeVar("T")
R = TypeVar("R")
_GATHER_S = 0.002
_Done = Callable[[R | Exception], None]
_Asked = tuple[T, _Done[R]]


class Batches(Generic[T, R]):
    """`work` gets everything that came in one round of the loop, and has an answer for each.

    In a thread, which takes all that came meanwhile, so that nobody else waits for a disk or a
    server; or in the loop, for what takes no longer than a thread would to begin with.
    """

    def __init__(
        self,
        work: Callable[[Sequence[T]], Sequence[R]],
        *,
        thread: str = "",  # its name; none: in the loop
        most: int = 256,
    ) -> None:
        self._work, self._most = work, most
        self._served = 0  # how many went together the last time
        self._waiting: list[_Asked[T, R]] = []  # of this round of the loop
        self._queue: queue.SimpleQueue[_Round[T, R] | None] = queue.SimpleQueue()
        self._thread = (
            threading.Thread(target=self._run, name=thread, daemon=True) if thread else None
        )
        if self._thread is not None:
            self._thread.start()

    def ask(self, item: T, done: _Done[R]) -> None:
        """`done` is told in the loop what became of `item`, or what went wrong. Called in the loop;
        everything of one round goes together.
        """
        if not self._waiting:
            loop = asyncio.get_running_loop()
            # who is alone waits for nobody; where many come, one commit of all costs less than some
            loop.call_later(_GATHER_S if self._served > 1 else 0, self._hand_over, loop)
        self._waiting.append((item, done))

    def close(self) -> None:
        """End when what waits is done."""
        if self._thread is not None:
            self._queue.put(None)
            self._thread.join()

    def _hand_over(self, loop: asyncio.AbstractEventLoop) -> None:
        waiting, self._waiting = self._waiting, []
        self._served = len(waiting)
        if self._thread is not None:
            self._queue.put((loop, waiting))
            return
        for first in range(0, len(waiting), self._most):
            batch = waiting[first : first + self._most]
            _answer(batch, self._done(batch))

    def _run(self) -> None:
        while (found := self._queue.get()) is not None:
            loop, batch = found
            ending = False
            while not ending and len(batch) < self._most:
                try:
                    more = self._queue.get_nowait()
                except queue.Empty:
                    break
                if more is None:
                    ending = True
                else:
                    batch += more[1]
            answers = self._done(batch)
            with contextlib.suppress(RuntimeError):  # the loop has ended: nobody waits any more
                loop.call_soon_threadsafe(_answer, batch, answers)
            if ending:
                return

    def _done(self, batch: list[_Asked[T, R]]) -> Sequence[R] | Exception:
        """What became of each, or what went wrong with all: whoever asked is told."""
        try:
            return self._work([item for item, _ in batch])
        except Exception as error:
            return error


_Round = tuple[asyncio.AbstractEventLoop, list[_Asked[T, R]]]


def _answer(batch: list[_Asked[T, R]], answers: Sequence[R] | Exception) -> None:
    for number, (_, done) in enumerate(batch):
        done(answers if isinstance(answers, Exception) else answers[number])
