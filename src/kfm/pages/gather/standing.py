"""How a dataset stands, in a state, a word and a note: the same on every page."""

import datetime as dt

import msgspec

from kfm.access.denied import reason_in_words
from kfm.access.status import FRESH_S, DatasetStatus
from kfm.model import DatasetEntry
from kfm.model.window import seconds
from kfm.pages.parts import State
from kfm.pages.words import lasting, parsed
from kfm.world.world import World

__all__ = ["Told", "standing_of", "told_at"]

_OPERATOR: dict[str, tuple[State, str]] = {
    "denied": ("denied", "Denied"),
    "failed": ("failed", "Failed"),
    "running": ("run", "Running"),
    "proposed": ("wait", "Waits for approval"),
    "waiting": ("wait", "Waiting"),
    "none": ("none", "Nothing yet"),
}


class Told(msgspec.Struct, frozen=True, kw_only=True):
    """A state, its word, what is said beside it, and how old the last look is."""

    state: State
    word: str
    note: str
    age_s: float | None
    target_s: float


def standing_of(
    world: World, status: DatasetStatus, entry: DatasetEntry | None, *, operator: bool
) -> Told:
    """What keeps the newest from being published is told to who runs things; everybody is told how
    fresh what is published is.
    """
    status = msgspec.structs.replace(status, reason=reason_in_words(world, status))
    check = world.store.read(lambda tx: tx.index.latest_check(status.dataset_id))
    checked = check.checked_at if check is not None else None
    return told_at(world.clock.now(), status, entry, checked, operator=operator)


def told_at(
    now: dt.datetime,
    status: DatasetStatus,
    entry: DatasetEntry | None,
    checked: str | None,
    *,
    operator: bool,
) -> Told:
    """The same, where it is known when its source was last looked at."""
    at = parsed(checked) if checked is not None else None
    age = (now.astimezone(dt.UTC) - at).total_seconds() if at is not None else None
    target = float(seconds(entry.freshness) if entry is not None else FRESH_S)
    kind, word, note = _told(status, operator, age, target)
    return Told(state=kind, word=word, note=note, age_s=age, target_s=target)


def _told(
    status: DatasetStatus, operator: bool, age: float | None, target: float
) -> tuple[State, str, str]:
    if operator and status.state in _OPERATOR:
        return (*_OPERATOR[status.state], status.reason)
    if status.state in ("retired", "withdrawn"):
        return "noop", status.state.capitalize(), status.reason
    if status.version_id is None:
        return "none", "Nothing yet", ""
    note = f"{lasting(age)} old, target {lasting(target)}" if age is not None else ""
    return ("new", "On time", note) if status.fresh else ("late", "Late", note)
