"""Signals that end a command. While a transaction is on its way they wait until it is over; asked
twice, nothing waits.
"""

import signal
import threading
from collections.abc import Callable
from types import FrameType, TracebackType

__all__ = ["STOPPED", "TERMINATED", "finishing", "stop_on_signals"]

STOPPED, TERMINATED = 130, 143  # how a command ends that was told to stop
_MAIN = threading.main_thread()
# what stands for a signal: a function, a word of the system, or None for what C code set
Handler = Callable[[int, FrameType | None], object] | int | None


class _Finishing:
    """What stands in `with finishing:` is not cut in two. Only the main thread hears signals, so
    only it counts.
    """

    def __init__(self) -> None:
        self._depth = 0
        self._heard: BaseException | None = None

    def __enter__(self) -> None:
        if threading.current_thread() is _MAIN:
            self._depth += 1

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if threading.current_thread() is not _MAIN:
            return
        self._depth -= 1
        if self._depth == 0 and self._heard is not None:
            heard, self._heard = self._heard, None
            raise heard

    def hear(self, number: int, frame: FrameType | None) -> None:
        end: BaseException = (
            KeyboardInterrupt() if number == signal.SIGINT else SystemExit(TERMINATED)
        )
        if self._depth and self._heard is None:
            self._heard = end
        else:
            raise end


finishing = _Finishing()


def stop_on_signals(*numbers: int) -> list[tuple[int, Handler]]:
    """Let these signals end the command, but those one was started to ignore; returns what was set
    before, to set it again.
    """
    return [
        (n, signal.signal(n, finishing.hear))
        for n in numbers
        if signal.getsignal(n) is not signal.SIG_IGN
    ]
