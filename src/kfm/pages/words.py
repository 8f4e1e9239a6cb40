"""Numbers, sizes and moments as people read them."""

import datetime as dt
from typing import Literal

from kfm.judge.candidate import SAID_ABOVE
from kfm.model import Verdict
from kfm.pages.html import Html, el

__all__ = [
    "ago",
    "count",
    "days_of",
    "lasting",
    "moment",
    "number",
    "plural",
    "size",
    "verdict_word",
    "when",
]

_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")


def count(number: int | None) -> str:
    """14,203,118; nothing where it is not known."""
    return "" if number is None else f"{number:,}"


def plural(number: int, one: str, many: str = "") -> str:
    """1 dataset, 2 datasets."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def number(value: float) -> str:
    """As many digits as are worth reading."""
    return f"{value:,.0f}" if abs(value) >= 1000 or value == int(value) else f"{value:.4g}"


def size(many: int | None) -> str:
    """184 MB."""
    if many is None:
        return ""
    left, units = float(many), ("bytes", "kB", "MB", "GB", "TB")
    for unit in units[:-1]:
        if left < 1000:
            return f"{left:,.0f} {unit}" if unit == "bytes" or left >= 100 else f"{left:.1f} {unit}"
        left /= 1000
    return f"{left:,.1f} {units[-1]}"


def lasting(seconds: float) -> str:
    """7 h, 3 days, 1.9 s."""
    for length, unit in ((86_400, "day"), (3600, "h"), (60, "min")):
        if seconds >= 2 * length or (unit != "day" and seconds >= length):
            many = round(seconds / length)
            return f"{many} {unit}{'s' if unit == 'day' else ''}"
    return f"{seconds:.0f} s" if seconds >= 10 else f"{seconds:.1f} s"


def verdict_word(verdict: Verdict) -> Literal["pass", "review", "deny"]:
    """What a gate says. The policy that says no for what other gates found gives no reason of its
    own, and yet it does not let pass.
    """
    return "deny" if verdict.note.startswith(SAID_ABOVE) else verdict.word


def parsed(text: str) -> dt.datetime | None:
    """The moment that a text of ours names."""
    try:
        found = dt.datetime.fromisoformat(text)
    except ValueError:
        return None
    return found.astimezone(dt.UTC) if found.tzinfo else found.replace(tzinfo=dt.UTC)


def when(text: str) -> str:
    """13 Nov 2026, 02:41 UTC."""
    at = parsed(text)
    if at is None:
        return text
    return f"{at.day} {_MONTHS[at.month - 1]} {at.year}, {at:%H:%M} UTC"


def moment(text: str | None, nothing: str = "") -> Html | str:
    """A moment that `times.mjs` tells in the viewer's zone; without it, in UTC."""
    if not text:
        return nothing
    return el("time", when(text), datetime=text)


def ago(text: str | None, now: dt.datetime) -> str:
    """How long ago, in words; nothing where it is not known."""
    at = parsed(text) if text else None
    if at is None:
        return ""
    seconds = (now - at).total_seconds()
    return "just now" if seconds < 10 else f"{lasting(seconds)} ago"


def days_of(now: dt.datetime, many: int) -> list[dt.date]:
    """The last `many` days, today last, in UTC."""
    today = now.astimezone(dt.UTC).date()
    return [today - dt.timedelta(days=n) for n in reversed(range(many))]
