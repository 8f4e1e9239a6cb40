"""How stale data is against what was promised: from the newest moment it speaks of, else from the
last successful look.
"""

import datetime as dt

from kfm.model import DatasetEntry
from kfm.model.window import seconds

__all__ = ["delta_minutes", "staleness_minutes"]


def _moment(text: str | None) -> dt.datetime | None:
    try:
        found = dt.datetime.fromisoformat(text) if text else None
    except ValueError:
        return None
    # a bare date is midnight UTC
    return found if found is None or found.tzinfo is not None else found.replace(tzinfo=dt.UTC)


def staleness_minutes(now: dt.datetime, newest: str | None, looked_at: str | None) -> int | None:
    """Minutes since `newest` (the last event in the official data), else since `looked_at`; None:
    nothing is known.
    """
    since = _moment(newest) or _moment(looked_at)
    return None if since is None else max(0, int((now - since).total_seconds() // 60))


def delta_minutes(
    entry: DatasetEntry, now: dt.datetime, newest: str | None, looked_at: str | None
) -> int | None:
    """`freshness.delta_minutes`: observed staleness less the registry's target; above 0 it is
    late.
    """
    stale = staleness_minutes(now, newest, looked_at)
    return None if stale is None else stale - seconds(entry.freshness) // 60
