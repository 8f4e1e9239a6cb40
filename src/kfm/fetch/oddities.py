"""What the head of an answer says that cannot be right: taken all the same, but not without a word."""

import datetime as dt
import re

from kfm.fetch.wire import Head
from kfm.model.media_types import shown

__all__ = ["head_oddities"]

_TOLERANCE_S = 86400.0  # how far a clock upstream may be ahead of ours
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
# The form every server should use; `email.utils` knows more of them, and costs more to load than the rest of this package.
_DATE = re.compile(r"\w{3}, (\d{1,2}) (\w{3}) (\d{4}) (\d\d):(\d\d):(\d\d) (?:GMT|UTC|\+0000)")
_OLD_DATE = re.compile(r"\w{6,9}, \d\d-\w{3}-\d\d \d\d:\d\d:\d\d GMT|\w{3} \w{3} [ \d]\d \d\d:\d\d:\d\d \d{4}")


def head_oddities(head: Head, now: float) -> list[str]:
    """Sentences on a head whose length or date is odd."""
    found = []
    if "," in (head.get("content-length") or ""):
        found.append("Upstream states the length of its answer more than once.")
    if (changed := head.get("last-modified")) is not None:
        at = _seconds(changed)
        if at is None and not _OLD_DATE.fullmatch(changed):
            found.append(f"Upstream's Last-Modified is no date: {shown(changed)}.")
        elif at is not None and at > now + _TOLERANCE_S:
            found.append(f"Upstream says that its answer was last changed in the future: {shown(changed)}.")
    return found


def _seconds(date: str) -> float | None:
    match = _DATE.fullmatch(date)
    if match is None or match[2] not in _MONTHS:
        return None
    day, year, hour, minute, second = (int(match[n]) for n in (1, 3, 4, 5, 6))
    try:
        return dt.datetime(year, _MONTHS.index(match[2]) + 1, day, hour, minute, second, tzinfo=dt.UTC).timestamp()
    except ValueError:  # the 31st of February
        return None
