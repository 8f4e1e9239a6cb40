"""How long is waited: for an answer, before the next attempt, and when no attempt will help."""

import datetime as dt
import re
from collections.abc import Callable

import msgspec

from kfm.model import UpstreamUnavailable

__all__ = [
    "LONGEST_WAIT_S",
    "Backoff",
    "Pace",
    "Transient",
    "any_share",
    "retry_after_seconds",
]


class Transient(Exception):
    """An attempt failed in a way that may pass; `reason` is fit for logs."""

    def __init__(
        self, reason: str, *, retry_after: float | None = None, pause: bool = True
    ) -> None:
        super().__init__(reason)
        self.reason, self.retry_after, self.pause = reason, retry_after, pause


class Pace:
    """Counts what arrives: a total deadline for the whole fetch, a least rate for each stretch of
    an exchange.

    The rate is looked at per window, not on the whole average: a fast start would otherwise pay for
    hours of dripping.
    """

    def __init__(
        self,
        *,
        deadline_s: float,
        window_s: float,
        least_rate: float,
        monotonic: Callable[[], float],
    ) -> None:
        self.deadline_s, self.window_s, self.least_rate, self.monotonic = (
            deadline_s,
            window_s,
            least_rate,
            monotonic,
        )
        self._end = monotonic() + deadline_s
        self._since: float | None = None
        self._got = 0

    def restart(self) -> None:
        """A new exchange begins; its rate counts from its first byte."""
        self._since, self._got = None, 0

    def left(self) -> float:
        """Seconds until the deadline. Raises `UpstreamUnavailable` when it has passed."""
        left = self._end - self.monotonic()
        if left <= 0:
            raise UpstreamUnavailable(
                f"The fetch was not done after {self.deadline_s:g} seconds.",
                expected="a whole capture within `source.max_step` (1h unless stated)",
                remedy=(
                    "Try again when upstream is faster, ask for a smaller window, or raise"
                    " `source.max_step` in the registry entry."
                ),
            )
        return left

    def count(self, received: int) -> None:
        """Note `received` bytes. Raises `UpstreamUnavailable` when a window brought too few."""
        now = self.monotonic()
        if self._since is None:
            self._since = now
        self._got += received
        lasted = now - self._since
        if lasted < self.window_s:
            return
        if self._got < self.least_rate * lasted:
            raise UpstreamUnavailable(
                f"Upstream sent {self._got} bytes in {lasted:.0f} seconds; the fetch was given up.",
                expected=f"at least {self.least_rate:g} bytes per second",
                remedy="Try again when upstream is faster.",
            )
        self._since, self._got = now, 0


# what is heeded of an absurd Retry-After: it must not close a host, or put off a job, for ever
LONGEST_WAIT_S = 86400.0


class Backoff(msgspec.Struct, frozen=True, kw_only=True):
    """Exponential growth with full jitter, so that many clients do not come back together."""

    base: float = 0.5
    cap: float = 60.0
    jitter: Callable[[], float]

    def delay(self, failed: int, asked: float | None) -> float:
        """Seconds to wait after the `failed`-th failure; never less than upstream `asked` for."""
        ceiling = min(self.cap, self.base * 2.0 ** min(failed - 1, 32))
        return max(ceiling * self.jitter(), asked or 0.0)


def any_share() -> float:
    """From 0 to 1, so that those who wait do not come back together."""
    import random  # who need not wait starts faster without it

    return random.random()


def retry_after_seconds(value: str | None, now: float) -> float | None:
    """The header `Retry-After`, seconds or HTTP date, as seconds from `now`; None when missing or
    malformed.
    """
    if value is None:
        return None
    if re.fullmatch(r"[0-9]{1,400}", value):
        return float(value[:18])  # no number of seconds that anybody means is longer
    # Only a throttled fetch gets here; the import costs more than the rest of this package.
    from email.utils import parsedate_to_datetime

    try:
        moment = parsedate_to_datetime(value)
    except (ValueError, TypeError, IndexError, OverflowError):
        return None
    # RFC 9110, 5.6.7: every HTTP date is in GMT, also where the old forms do not say so
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=dt.UTC)
    return max(0.0, moment.timestamp() - now)
