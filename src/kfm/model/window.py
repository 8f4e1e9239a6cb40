"""Windows: half-open UTC intervals; a relative one is turned into bounds once and only the bounds
are recorded.
"""

import datetime as dt
import re

from kfm.model.clock import rfc3339
from kfm.model.errors import UsageError

__all__ = ["bounds", "overlap", "seconds", "window"]

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}


def seconds(text: str) -> int:
    """`90s`, `15m`, `24h`, `7d`, `2w` or a bare 0."""
    match = re.fullmatch(r"([0-9]{1,9})([smhdw]?)", text.strip())
    if match is None or (not match[2] and match[1].strip("0")):
        raise UsageError(
            f"{text!r} is not a length of time.",
            expected="a number and s, m, h, d or w, such as 24h",
            remedy="Write it so: `24h` for a day, `60s` for a minute.",
        )
    return int(match[1]) * _UNITS.get(match[2], 1)


def _moment(text: str) -> dt.datetime:
    try:
        found = dt.datetime.fromisoformat(text.strip())
    except ValueError as error:
        raise UsageError(
            f"{text!r} is not a time.",
            expected="RFC 3339, such as 2026-11-01T00:00:00Z",
            remedy="Write it so, with Z or the offset of its zone; a whole day is 2026-11-01.",
        ) from error
    if found.tzinfo is None:
        if "T" in text or ":" in text:
            raise UsageError(
                f"{text!r} has no time zone.",
                expected="an offset or Z",
                remedy="Write 2026-11-01T00:00:00Z.",
            )
        found = found.replace(tzinfo=dt.UTC)  # a bare date is midnight UTC
    return found.astimezone(dt.UTC)


def bounds(since: str, until: str) -> str:
    """`<since>/<until>` in canonical spelling."""
    start, end = _moment(since), _moment(until)
    if start >= end:
        raise UsageError(
            f"The window {since}/{until} is empty.",
            expected="since before until",
            remedy="Swap or correct them.",
        )
    return f"{rfc3339(start)}/{rfc3339(end)}"


def overlap(one: str, other: str) -> bool:
    """Whether two windows share a moment; none at all is all of time."""
    # without Z fractions sort rightly
    (begin, _, end), (since, _, until) = (w.replace("Z", "").partition("/") for w in (one, other))
    return not one or not other or (begin < until and since < end)


def window(text: str, now: dt.datetime) -> str:
    """`7d` (looking back from now, to the second), a date, or `<since>/<until>`, as absolute
    bounds.
    """
    if "/" in text:
        since, _, until = text.partition("/")
        return bounds(since, until)
    if re.fullmatch(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", text):
        day = _moment(text)
        return bounds(rfc3339(day), rfc3339(day + dt.timedelta(days=1)))
    until_moment = now.astimezone(dt.UTC).replace(microsecond=0)
    length = seconds(text)
    if not length:
        raise UsageError(
            "A window of no length holds nothing.",
            expected="a length such as 7d",
            remedy="Give at least one second.",
        )
    return bounds(rfc3339(until_moment - dt.timedelta(seconds=length)), rfc3339(until_moment))
