"""Time is passed in, never looked up: wall time for receipts, boot time for leases."""

import datetime as dt
import time
from pathlib import Path
from typing import Protocol

__all__ = ["Clock", "SystemClock", "rfc3339"]


def rfc3339(moment: dt.datetime) -> str:
    """A UTC moment as RFC 3339 with `Z`, microseconds only when there are any."""
    return moment.astimezone(dt.UTC).isoformat().replace("+00:00", "Z")


class Clock(Protocol):
    """Where the engine gets time from.

    `now` may jump (NTP, an operator); nothing but receipts, envelopes and `recheck` looks at it.
    `boot_ns` never goes back within one boot and counts suspended time; `boot_id` names that boot.
    """

    def now(self) -> dt.datetime: ...

    def boot_ns(self) -> int: ...

    def boot_id(self) -> str: ...


class SystemClock:
    """The machine's clocks."""

    def __init__(self) -> None:
        self._boot_id = ""

    def now(self) -> dt.datetime:
        return dt.datetime.now(dt.UTC)

    def boot_ns(self) -> int:
        # macOS has no BOOTTIME; its MONOTONIC is close enough
        source = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
        return time.clock_gettime_ns(source)

    def boot_id(self) -> str:
        if not self._boot_id:
            try:
                self._boot_id = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
            except OSError:  # not Linux: the boot moment, to the minute, names the boot
                self._boot_id = f"boot-{(time.time_ns() - time.monotonic_ns()) // 60_000_000_000}"
        return self._boot_id
