"""How often and how many at once a host is asked, agreed by all processes of a
workspace through small locked files.
"""

import fcntl
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from kfm.fetch.base import Wait
from kfm.fetch.retry import LONGEST_WAIT_S, any_share
from kfm.model import HostLimits, Polite

__all__ = ["Manners"]

SPACING_S, LONGEST_SPACING_S = 1.0, 60.0
_POLL_S = 0.05
_MOST_BYTES = 1 << 16


class _State(msgspec.Struct, kw_only=True):
    """What all processes know of a host."""

    written: float = 0.0
    starts: list[float] = []  # the newest requests, oldest first
    until: float = 0.0  # nobody asks before
    why: str = ""
    asked: bool = False  # upstream named that time
    spacing: float = 0.0  # between two requests, after a 429 that did not say how long


class Manners:
    """One turn per request: within the limits of its host, and not while the host has asked
    everyone to wait.

    `<host>.json` holds the state, read and written under its `flock`; `<host>~0`, `<host>~1`, … are
    the places of the requests under way. The locks die with their process, so a kill frees its
    place. What cannot be written is not counted.
    """

    def __init__(
        self,
        folder: Path,
        polite: Polite,
        *,
        # hosts without limits of their own are left alone: loopback, and tests that play upstream
        only_named: bool = False,
        now: Callable[[], float] = time.time,
        jitter: Callable[[], float] = any_share,
    ) -> None:
        self._folder, self._polite, self._only_named, self._now, self._jitter = (
            folder,
            polite,
            only_named,
            now,
            jitter,
        )
        # hosts that were spaced when we last looked: only their successes are worth a write
        self._slowed: set[str] = set()

    @contextmanager
    def turn(self, host: str, pause: Callable[[Wait], None]) -> Iterator[None]:
        """A place with `host` for as long as the block lasts; `pause` is called with every wait
        before it and sleeps.
        """
        limits = self._limits(host)
        if limits is None:
            yield
            return
        while isinstance(place := self._try(host, limits), Wait):
            pause(place)
        try:
            yield
        finally:
            if place is not None:
                os.close(place)

    def answered(self, host: str, status: int, asked: float | None) -> None:
        """Tell everyone what `host` answered; `asked` are the seconds of its Retry-After."""
        if self._limits(host) is None:
            return
        if status in (429, 503) and asked is not None:
            self._change(
                host,
                lambda state: self._block(
                    state,
                    min(asked, LONGEST_WAIT_S),
                    f"http {status}, asked to wait {asked:g} s",
                    asked=True,
                ),
            )
        elif status == 429:
            self._slowed.add(host)
            self._change(host, self._lengthen)
        elif status < 400 and host in self._slowed:
            self._change(host, _shrink)

    def _limits(self, host: str) -> HostLimits | None:
        named = self._polite.hosts.get(host)
        local = self._only_named or host in ("localhost", "::1") or host.startswith("127.")
        return named if named is not None or local else self._polite.default

    def _try(self, host: str, limits: HostLimits) -> int | Wait | None:
        """A place, or how long to wait and why; None: nothing can be counted here."""
        try:
            with self._opened(host) as file:
                state, now = _read(file, self._now()), self._now()
                (self._slowed.add if state.spacing else self._slowed.discard)(host)
                if wait := _must_wait(state, limits, now):
                    return wait
                place = self._place(host, limits.concurrency)
                if place is None:
                    return Wait(
                        _POLL_S * (0.5 + self._jitter()),
                        f"polite: {_under_way(limits.concurrency)}",
                    )
                state.starts = [*state.starts, now][-_burst(limits) :]
                _write(file, state, now)
                return place
        except OSError:  # a read-only workspace, a full disk: that is said elsewhere
            return None

    def _place(self, host: str, concurrency: int) -> int | None:
        for number in range(concurrency):
            fd = os.open(
                self._folder / f"{_safe(host)}~{number}",
                os.O_RDWR | os.O_CREAT | os.O_CLOEXEC,
                0o644,
            )
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return fd
            except BlockingIOError:
                os.close(fd)
        return None

    def _change(self, host: str, change: Callable[[_State], None]) -> None:
        try:
            with self._opened(host) as file:
                state, now = _read(file, self._now()), self._now()
                change(state)
                _write(file, state, now)
        except OSError:
            return

    @contextmanager
    def _opened(self, host: str) -> Iterator[int]:
        path, flags = self._folder / f"{_safe(host)}.json", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
        try:
            fd = os.open(path, flags, 0o644)
        except FileNotFoundError:
            self._folder.mkdir(parents=True, exist_ok=True)
            fd = os.open(path, flags, 0o644)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
            yield fd
        finally:
            os.close(fd)

    def _block(self, state: _State, seconds: float, why: str, *, asked: bool = False) -> None:
        if self._now() + seconds > state.until:
            state.until, state.why, state.asked = self._now() + seconds, why, asked

    def _lengthen(self, state: _State) -> None:
        state.spacing = min(LONGEST_SPACING_S, max(SPACING_S, 2 * state.spacing))
        self._block(state, state.spacing * (0.5 + 0.5 * self._jitter()), "http 429")


def _shrink(state: _State) -> None:
    state.spacing = state.spacing / 2 if state.spacing > SPACING_S else 0.0


def _must_wait(state: _State, limits: HostLimits, now: float) -> Wait | None:
    if state.until > now:
        return Wait(state.until - now, state.why, state.asked)
    if state.spacing and state.starts and (left := state.starts[-1] + state.spacing - now) > 0:
        return Wait(
            left, f"polite: requests are {state.spacing:g} s apart since the host answered 429"
        )
    burst = _burst(limits)
    if (
        len(state.starts) >= burst
        and (left := state.starts[-burst] + burst / limits.per_second - now) > 0
    ):
        return Wait(
            left,
            f"polite: host allows {limits.per_second:g}"
            f" {'request' if limits.per_second == 1 else 'requests'} a second",
        )
    return None


def _under_way(number: int) -> str:
    return (
        f"{number} requests to this host are under way"
        if number > 1
        else "1 request to this host is under way"
    )


def _burst(limits: HostLimits) -> int:
    """How many requests the shortest whole stretch of the rate holds: 5 in a second, 1 in two
    seconds.
    """
    return max(1, int(limits.per_second))


def _safe(host: str) -> str:
    return host.replace(":", "_")  # IPv6


def _read(fd: int, now: float) -> _State:
    try:
        state = msgspec.json.decode(os.pread(fd, _MOST_BYTES, 0), type=_State)
    except msgspec.DecodeError:  # new, or damaged: the worst that follows is one request too early
        return _State()
    # the clock went back: moments of then mean nothing now
    return state if state.written <= now + 1 else _State()


def _write(fd: int, state: _State, now: float) -> None:
    """One write that covers the old text: a killed writer leaves the one or the other."""
    state.written = now
    os.pwrite(fd, msgspec.json.encode(state).ljust(os.fstat(fd).st_size), 0)
