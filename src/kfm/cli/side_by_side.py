"""Datasets worked side by side: a few processes forked from this one take the next that is ready,
and what they say is told in order.
"""

import contextlib
import io
import os
import selectors
import signal
import socket
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from types import FrameType
from typing import NamedTuple, NoReturn

import msgspec

from kfm.cli.terminal import FOOT, Progress
from kfm.model import Json, finishing
from kfm.model.ticks import Tick, watch
from kfm.world.outcome import Outcome

__all__ = ["Gone", "cores", "inputs_first", "side_by_side"]

Work = Callable[[str, Progress], list[Outcome]]  # one dataset, told as it ends


class Gone(NamedTuple):
    """A process that ended before the dataset it worked."""

    how: str  # in words
    stack: str = ""  # of an error nobody foresaw


Lost = Callable[[str, Gone], list[Outcome]]  # what is told of a dataset whose process is gone


# ---- what a process says, each a line of JSON ----------------------------------------------------
class _Event(msgspec.Struct, frozen=True, tag=True):
    event: Json  # of progress


class _Said(msgspec.Struct, frozen=True, tag=True):
    lines: list[tuple[str, str]]  # (out or err, text)


class _Done(msgspec.Struct, frozen=True, tag=True):
    outcomes: list[Outcome]


class _Fell(msgspec.Struct, frozen=True, tag=True):
    how: str
    stack: str


_Message = _Event | _Said | _Done | _Fell


# ---- in the process that was called --------------------------------------------------------------


def cores() -> int:
    """How many this process may use."""
    return len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1


def inputs_first(
    names: Sequence[str], made_from: Callable[[str], Sequence[str]]
) -> dict[str, list[str]]:
    """`names` in their order, but each after those of them it is made from; and which these are."""
    found: dict[str, list[str]] = {}
    begun: set[str] = set()

    def place(name: str) -> None:
        begun.add(name)
        wanted = set(made_from(name))
        inputs = [i for i in names if i in wanted]
        for i in inputs:
            if i not in begun:
                place(i)
        # in a circle nothing waits for itself; the run says what is wrong
        found[name] = [i for i in inputs if i in found]

    for name in names:
        if name not in begun:
            place(name)
    return found


def side_by_side(
    order: Mapping[str, Sequence[str]], work: Work, lost: Lost, at_once: int, shown: Progress
) -> dict[str, list[Outcome]]:
    """What became of every dataset of `order`, which says what each waits for; up to `at_once` are
    worked at the same time.

    Lines come out in that order, each dataset's when those before it have ended. Where a process
    dies the others go on.
    """
    if min(at_once, len(order)) < 2 or not _is_alone():
        return {name: work(name, shown) for name in order}
    crew = _Crew(order, work, lost, shown)
    try:
        crew.work_all(at_once)
    finally:
        crew.dismiss()
    return crew.done


def _is_alone() -> bool:
    """Whether a fork is safe: what other threads hold at that moment would stay locked in it, but
    the one that draws the line at the foot holds nothing.
    """
    return all(
        thread is threading.main_thread() or thread.name == FOOT for thread in threading.enumerate()
    )


class _Crew:
    """The processes, what each has said, and what of it is still to be told."""

    def __init__(
        self, order: Mapping[str, Sequence[str]], work: Work, lost: Lost, shown: Progress
    ) -> None:
        self.done: dict[str, list[Outcome]] = {}
        self._order, self._work, self._lost, self._shown = order, work, lost, shown
        self._left, self._untold = list(order), list(order)
        self._said: dict[str, list[tuple[str, str]]] = {name: [] for name in order}
        self._ended: dict[str, list[Outcome] | Gone] = {}
        self._hands: list[_Hand] = []
        self._selector = selectors.DefaultSelector()

    def work_all(self, at_once: int) -> None:
        while len(self._ended) < len(self._order):
            while (name := self._ready()) is not None and (hand := self._idle(at_once)) is not None:
                self._left.remove(name)
                hand.begin(name)
            self._listen()
            self._tell()

    def dismiss(self) -> None:
        """Let all go; those at work stop where they can be resumed, and asked a second time, none
        is waited for.
        """
        for number in (signal.SIGTERM, signal.SIGKILL):
            try:
                for hand in self._hands:
                    hand.stop(number)
                while self._hands:
                    self._listen()
                break
            except (KeyboardInterrupt, SystemExit):
                continue
        self._selector.close()
        self._tell(everything=True)

    def _ready(self) -> str | None:
        return next(
            (name for name in self._left if all(i in self._ended for i in self._order[name])), None
        )

    def _idle(self, at_once: int) -> "_Hand | None":
        free = next((hand for hand in self._hands if not hand.name), None)
        if free is None and len(self._hands) < at_once:
            free = _Hand(self._work, self._shown.wanted, self._hands)
            self._hands.append(free)
            self._selector.register(free.line, selectors.EVENT_READ, free)
        return free

    def _listen(self) -> None:
        for key, _ in self._selector.select():
            hand: _Hand = key.data
            with finishing:  # what was read is not lost
                heard = hand.heard()
                for message in heard or ():
                    self._take(hand, message)
                if heard is None:
                    self._selector.unregister(hand.line)
                    self._hands.remove(hand)
                    how = hand.reap()
                    if hand.name and not hand.stopped:
                        self._ended[hand.name] = hand.fell or Gone(how)

    def _take(self, hand: "_Hand", message: _Message) -> None:
        match message:
            case _Event(event):
                self._shown(event)
            case _Said(lines):
                self._said[hand.name] += lines
            case _Done(outcomes):
                self._ended[hand.name] = outcomes
                hand.name = ""
            case _Fell(how, stack):
                hand.fell = Gone(how, stack)

    def _tell(self, everything: bool = False) -> None:
        """Print what is next in the order; `everything`: also what others before it have not ended
        for.
        """
        while self._untold:
            name = self._untold[0]
            lines, self._said[name] = self._said[name], []
            if lines or everything or isinstance(self._ended.get(name), Gone):
                self._shown.clear()
            for stream, text in lines:
                print(text, end="", file=sys.stdout if stream == "out" else sys.stderr, flush=True)
            if name not in self._ended and not everything:
                return
            self._untold.pop(0)
            end = self._ended.get(name)
            if end is not None:
                self.done[name] = self._lost(name, end) if isinstance(end, Gone) else end


class _Hand:
    """A process that works one dataset after the other; it ends when its line does."""

    def __init__(self, work: Work, wanted: bool, others: "Sequence[_Hand]") -> None:
        self.name = ""  # of the dataset it works
        self.stopped = False
        self.fell: Gone | None = None
        self._rest = b""
        self.line, theirs = socket.socketpair()
        # heard here or there, not on the way
        before = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT, signal.SIGTERM))
        try:
            parent, self.pid = os.getpid(), os.fork()
            if self.pid == 0:
                _serve(theirs, [self.line, *(hand.line for hand in others)], work, wanted, parent)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        theirs.close()

    def begin(self, name: str) -> None:
        self.name = name
        with contextlib.suppress(OSError):  # it is gone, and its line says so
            self.line.sendall(msgspec.json.encode(name) + b"\n")

    def heard(self) -> list[_Message] | None:
        """What it said since; None when it has ended."""
        try:
            data = self.line.recv(1 << 16)
        except ConnectionError:
            data = b""
        *lines, self._rest = (self._rest + data).split(b"\n")
        return [msgspec.json.decode(line, type=_Message) for line in lines] if data else None

    def stop(self, number: signal.Signals) -> None:
        self.stopped = True
        if self.name:
            os.kill(self.pid, number)
        with contextlib.suppress(OSError):
            self.line.shutdown(socket.SHUT_WR)

    def reap(self) -> str:
        """How it ended, in words."""
        self.line.close()
        code = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        return (
            f"it was killed by {signal.Signals(-code).name}"
            if code < 0
            else f"it exited with status {code}"
        )


# ---- in the forked process -----------------------------------------------------------------------
def _serve(
    line: socket.socket, inherited: Sequence[socket.socket], work: Work, wanted: bool, parent: int
) -> NoReturn:
    # a NOOP of one dataset starts faster without it
    from kfm.connectors.child.guard import tie_to_parent

    code, wire = 1, _Wire(line)
    try:
        signal.signal(signal.SIGINT, _leave_to_parent)
        signal.signal(signal.SIGTERM, _stop_once)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGINT, signal.SIGTERM))
        tie_to_parent(parent)
        for end in inherited:
            end.close()
        sys.stdout, sys.stderr = (
            _Told(wire, "out", sys.stdout.isatty()),
            _Told(wire, "err", sys.stderr.isatty()),
        )
        shown = _Relayed(wire, wanted)
        for order in line.makefile("rb"):
            outcomes = work(msgspec.json.decode(order, type=str), shown)
            wire.send(_Done(outcomes))
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1
    except Exception as error:
        from kfm.jobs.base import stack_of  # rare, and heavy

        with contextlib.suppress(OSError):  # nobody is there any more
            wire.send(_Fell(f"it met {type(error).__name__}", stack_of(error)))
    finally:
        os._exit(code)  # nothing of the parent is tidied up here


def _leave_to_parent(number: int, frame: FrameType | None) -> None:
    """Ctrl-C reaches everyone in front of a terminal; the first of them hears it and tells the
    others.
    """


def _stop_once(number: int, frame: FrameType | None) -> None:
    # sent to all of a group it comes a second time, from the parent: that is no second word
    signal.signal(number, signal.SIG_IGN)
    finishing.hear(number, frame)


class _Wire:
    """One JSON line after the other to the parent."""

    def __init__(self, line: socket.socket) -> None:
        self._line, self._lock = line, threading.Lock()
        self.held: list[tuple[str, str]] = []  # said, but not to the end of a line

    def send(self, message: _Message) -> None:
        with finishing, self._lock:
            self._line.sendall(msgspec.json.encode(message) + b"\n")


class _Told(io.TextIOBase):
    """What stands for stdout or stderr: the parent prints it when it is its turn."""

    def __init__(self, wire: _Wire, stream: str, terminal: bool) -> None:
        self._wire, self._stream, self._terminal = wire, stream, terminal

    def isatty(self) -> bool:
        return self._terminal

    def write(self, text: str) -> int:
        self._wire.held.append((self._stream, text))
        if text.endswith("\n"):
            held, self._wire.held = self._wire.held, []
            self._wire.send(_Said(held))
        return len(text)


class _Relayed(Progress):
    """Progress that the parent shows, at once."""

    def __init__(self, wire: _Wire, wanted: bool) -> None:
        self._wire, self.wanted = wire, wanted
        self._about: Json = {"withheld": True}  # the dataset at hand, once a word about it has come
        if wanted:
            watch(self._tick)

    def __call__(self, event: Json) -> None:
        if self.wanted:
            if event.get("dataset_id"):
                known = self._about.get("withheld", True)
                self._about = {
                    "dataset_id": event["dataset_id"],
                    "withheld": event.get("withheld", known),
                }
            self._wire.send(_Event(event))

    def _tick(self, tick: Tick) -> None:
        told = tick._asdict() if not (tick.tells and self._about["withheld"]) else {}
        self({**told, **self._about, "event": "step.tick", "stage": tick.stage})

    def clear(self) -> None:
        """What is drawn is the parent's to clear."""
        self._about = {"withheld": True}
