"""How long to wait before the next attempt."""

import datetime as dt
import re
from collections.abc import Callable

import msgspec

__all__ = ["LONGEST_WAIT_S", "Backoff", "retry_after_seconds"]

LONGEST_WAIT_S = 86400.0  # what is heeded of an absurd Retry-After: it must not close a host, or put off a job, for ever


class Backoff(msgspec.Struct, frozen=True, kw_only=True):
    """Exponential growth with full jitter, so that many clients do not come back together."""

    base: float = 0.5
    cap: float = 60.0
    jitter: Callable[[], float]

    def delay(self, failed: int, asked: float | None) -> float:
        """Seconds to wait after the `failed`-th failure; never less than upstream `asked` for."""
        ceiling = min(self.cap, self.base * 2.0 ** min(failed - 1, 32))
        return max(ceiling * self.jitter(), asked or 0.0)


def retry_after_seconds(value: str | None, now: float) -> float | None:
    """The header `Retry-After`, seconds or HTTP date, as seconds from `now`; None when missing or malformed."""
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
    if moment.tzinfo is None:  # RFC 9110, 5.6.7: every HTTP date is in GMT, also where the old forms do not say so
        moment = moment.replace(tzinfo=dt.UTC)
    return max(0.0, moment.timestamp() - now)
