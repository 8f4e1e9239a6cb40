"""One line at the foot of a terminal that tells how far long work is: what, how much, how fast, how
long it will take. Gone when there is something else to say.
"""

import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple, TextIO

from kfm.cli.terminal import FOOT, at_foot, sign
from kfm.model import Json, masked
from kfm.model.ticks import Tick, watch

__all__ = ["Far", "Meter", "attended", "told"]

_SILENT = 1.0  # seconds without a word until the line is drawn, or drawn anew
_SETTLED = 0.5  # seconds after which a rate means something
_LOOK = 0.25


class Far(NamedTuple):
    """How far one stage of one dataset is."""

    stage: str
    subject: str = ""
    done: int | None = None
    of: int | None = None
    unit: str = ""
    about: bool = False  # `of` is what it was last time
    seconds: float = 0.0  # since the stage began
    rate: float = 0.0  # a second


def told(far: Far) -> str:
    """`download  ks_wells  48.2 MB of 120 MB  40 %  3.1 MB/s  25 s left`."""
    parts = [f"{far.stage:<12}", *([f"{far.subject:<20}"] if far.subject else [])]
    if far.done is None:
        return "  ".join([*parts, *([_time(far.seconds)] if far.seconds >= 1 else [])]).rstrip()
    of = far.of if far.of is not None and far.of >= far.done else None
    much = _size(far.done, far.unit) if of is None else _of(far.done, of, far.unit, far.about)
    parts += [much, *([f"{100 * far.done // of} %"] if of else [])]
    if far.rate:
        parts.append(f"{_size(round(far.rate), far.unit)}/s")
        if of and of > far.done:
            parts.append(f"{_time((of - far.done) / far.rate)} left")
    elif far.seconds >= 1:
        parts.append(_time(far.seconds))
    return "  ".join(parts)


def _of(done: int, of: int, unit: str, about: bool) -> str:
    amount = "about " if about else ""
    if unit == "bytes":
        return f"{_size(done, unit)} of {amount}{_size(of, unit)}"
    return f"{done:,} of {amount}{of:,} {unit}"


def _size(count: int, unit: str) -> str:
    if unit != "bytes":
        return f"{count:,} {unit}"
    for size, word in ((10**9, "GB"), (10**6, "MB"), (10**3, "KB")):
        if count >= size:
            return f"{count / size:.3g} {word}"
    return f"{count} B"


def _time(seconds: float) -> str:
    whole = max(0, round(seconds))
    if whole < 100:
        return f"{whole} s"
    return f"{whole // 60} min" if whole < 6000 else f"{whole // 3600} h {whole % 3600 // 60} min"


class Meter:
    """Draws the line; a thread draws it anew, so that nothing is silent for long.

    It writes to the terminal itself and holds no lock: a process may be forked at any moment.
    """

    def __init__(self, what: str, fd: int = 2) -> None:
        self._what, self._fd, self._pid = what, fd, os.getpid()
        self._far: Far | None = None
        self._whole: Far | None = None  # of all datasets and partitions together
        # stage and dataset -> since when, from which count, and the last count
        self._begins: dict[tuple[str, str], tuple[float, int, int]] = {}
        self._subject, self._withheld = "", True  # until a word about a dataset has come
        self._began = self._spoke = time.monotonic()
        self.drawn = self.inside = False  # inside: a line was begun and not ended, as a question is
        self._stop = threading.Event()
        threading.Thread(target=self._watch, name=FOOT, daemon=True).start()

    def _watch(self) -> None:
        while not self._stop.wait(_LOOK):
            if time.monotonic() - self._spoke >= _SILENT:
                self.draw()

    def event(self, event: Json) -> None:
        """A word of the engine."""
        subject = str(event.get("dataset_id") or self._subject)
        self._subject, self._withheld = subject, bool(event.get("withheld", self._withheld))
        stage, done = str(event.get("stage", "")), event.get("done", event.get("read"))
        counted = isinstance(done, int) and not self._withheld
        of = event.get("of")
        self._far = self._measured(
            Far(
                stage,
                subject,
                done if counted and isinstance(done, int) else None,
                of if counted and isinstance(of, int) else None,
                str(event.get("unit", "rows")),
                bool(event.get("about")),
            )
        )
        self.draw()

    def tick(self, tick: Tick) -> None:
        """A word from further down."""
        hidden = tick.tells and self._withheld
        far = Far(
            tick.stage,
            self._subject,
            None if hidden else tick.done,
            None if hidden else tick.of,
            tick.unit,
        )
        if tick.unit == "partitions":
            self._whole = self._measured(far)
        else:
            self._far = self._measured(far)
        self.draw()

    def _measured(self, far: Far) -> Far:
        now, done = time.monotonic(), far.done or 0
        since, start, last = self._begins.get((far.stage, far.subject), (now, done, done))
        if done < last and far.done is not None:  # another file, or the same once more
            since, start = now, done
        self._begins[far.stage, far.subject] = since, start, done if far.done is not None else last
        took = now - since
        rate = (done - start) / took if took >= _SETTLED else 0.0
        return far._replace(seconds=took, rate=rate)

    def draw(self) -> None:
        """Draw the line, unless somebody is in the middle of one of their own."""
        if self.inside or os.getpid() != self._pid:
            return
        far = self._whole or self._far
        if far is None:
            far = Far(self._what, seconds=time.monotonic() - self._began)
        else:
            since = self._begins.get((far.stage, far.subject))
            if since is not None:  # else it was forgotten this very moment
                far = far._replace(seconds=time.monotonic() - since[0])
        try:
            wide = (
                os.get_terminal_size(self._fd).columns or 80
            )  # some do not know how wide they are
        except OSError:
            wide = 80
        text = masked(told(far))[: max(10, wide - 3)]
        self._put(f"\r\x1b[K{sign('RUNNING', sys.stderr)} {text}")
        self.drawn, self._spoke = True, time.monotonic()

    def clear(self) -> None:
        """Take the line away."""
        if self.drawn and os.getpid() == self._pid:
            self.drawn = False
            self._put("\r\x1b[K")

    def rest(self) -> None:
        """A dataset is done: nothing is known of the next one until a word about it comes."""
        self.clear()
        self._far, self._subject, self._withheld = None, "", True
        self._begins.clear()

    def spoke(self, text: str) -> None:
        """Somebody else writes to the terminal."""
        if text:
            self.clear()
            self.inside, self._spoke = not text.endswith("\n"), time.monotonic()

    def _put(self, text: str) -> None:
        try:
            os.write(self._fd, text.encode(errors="replace"))
        except OSError:  # the terminal is gone: there is nobody to tell
            self._stop.set()

    def end(self) -> None:
        self._stop.set()
        self.clear()


class _Over:
    """A stream that takes the line away before it writes."""

    def __init__(self, stream: TextIO, over: Meter) -> None:
        self._stream, self._meter = stream, over

    def write(self, text: str) -> int:
        self._meter.spoke(text)
        return self._stream.write(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextmanager
def attended(what: str) -> Iterator[None]:
    """Draw the line while something is done, if people watch: both streams are a terminal."""
    seen = sys.stderr.isatty() and sys.stdout.isatty()
    if not seen or isinstance(sys.stdout, _Over):  # one line is enough
        yield
        return
    before = sys.stdout, sys.stderr
    line = Meter(what)
    watch(line.tick)
    at_foot(line)
    sys.stdout, sys.stderr = (_Over(stream, line) for stream in before)
    try:
        yield
    finally:
        watch(None)
        at_foot(None)
        for stream in before:
            stream.flush()
        line.end()
        sys.stdout, sys.stderr = before
