"""Limits on time, so that a slow upstream cannot hold a run for ever."""

from collections.abc import Callable

from kfm.model.errors import UpstreamUnavailable

__all__ = ["Pace"]


class Pace:
    """Counts what arrives: a total deadline for the whole fetch, a least rate for each stretch of an exchange.

    The rate is looked at per window, not on the whole average: a fast start would otherwise pay for hours of dripping.
    """

    def __init__(self, *, deadline_s: float, window_s: float, least_rate: float, monotonic: Callable[[], float]) -> None:
        self.deadline_s, self.window_s, self.least_rate, self.monotonic = deadline_s, window_s, least_rate, monotonic
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
                remedy="Try again when upstream is faster, ask for a smaller window, or raise `source.max_step` in the registry entry.",
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
