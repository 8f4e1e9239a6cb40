"""append_times: when the generations of a channel were appended, and whether this machine's clock
has got that far.
"""

import datetime as dt

from kfm.channel.generations import EMPTY
from kfm.evidence.run_files import started_at
from kfm.model import Clock, Generation, IntegrityError, UsageError, rfc3339
from kfm.store.base import Tx
from kfm.world.world import World

__all__ = ["appended_at", "check_clock", "clock_warning", "keep_moment"]

REFUSED = dt.timedelta(days=1)
NOTICED = dt.timedelta(minutes=1)  # the clocks of two machines need not agree better than this


def keep_moment(tx: Tx, dataset_id: str, generation: int, at: str) -> None:
    """Remember when a generation was appended that no run made: a run's own row tells."""
    tx.index.put_meta(f"appended/{dataset_id}/{generation}", at)


def appended_at(world: World, made: Generation) -> str | None:
    """When a generation was appended; None when nothing here tells."""
    return world.store.read(lambda tx: _moment(tx, made))


def _moment(tx: Tx, made: Generation) -> str | None:
    if not made.run_id:
        told: str | None = tx.index.meta(f"appended/{made.dataset_id}/{made.generation}")
        return told
    try:
        row = tx.runs.get(made.run_id)
    except IntegrityError:
        # a damaged row is for the doctor; the name of the run tells when it began
        row = None
    if row is not None:
        return str(row.ended_at or row.timestamp)
    begun = started_at(made.run_id)
    return rfc3339(begun) if begun.timestamp() else None


def _newest(tx: Tx, head: Generation) -> tuple[int, dt.datetime] | None:
    """The newest generation that tells when it was appended, and when."""
    found: Generation | None = head
    while found is not None and found.generation:
        told = _moment(tx, found)
        if told is not None:
            return found.generation, dt.datetime.fromisoformat(told)
        found = tx.index.generation(head.dataset_id, found.generation - 1)
    return None


def _behind(tx: Tx, clock: Clock, head: Generation) -> tuple[dt.timedelta, str] | None:
    """By how much the clock is behind the newest generation, and that in words."""
    newest = _newest(tx, head)
    behind = newest[1] - clock.now() if newest is not None else dt.timedelta()
    if newest is None or behind <= NOTICED:
        return None
    days, hours, minutes = behind.days, behind.seconds // 3600, behind.seconds // 60
    if days > 1:
        by = f"{days:,} days"
    elif days or hours > 1:
        by = f"{days * 24 + hours} hours"
    else:
        by = f"{minutes} minutes"
    now = rfc3339(clock.now())[:19]
    return (
        behind,
        (
            f"The clock says {now}Z, {by} before generation {newest[0]} of {head.dataset_id} was"
            f" made ({rfc3339(newest[1])[:19]}Z)."
        ),
    )


def check_clock(tx: Tx, world: World, head: Generation) -> None:
    """Refuse to append a generation more than a day before the one it follows, unless a person said
    that the clock is right.
    """
    found = _behind(tx, world.clock, head)
    if found is not None and found[0] > REFUSED and not world.clock_ok:
        raise UsageError(
            found[1],
            expected=(
                "a clock that does not go back: what is published would be dated before what it"
                " follows"
            ),
            remedy=(
                "Set the clock. If it is right and was wrong before, say so: `kfm run"
                f" {head.dataset_id} --clock-ok`, or --clock-ok with what you did."
            ),
        )


def clock_warning(world: World, dataset_id: str) -> str:
    """What to say to a person before a generation is appended; empty: nothing."""
    found = world.store.read(
        lambda tx: _behind(
            tx, world.clock, tx.index.last_generation(dataset_id) or EMPTY(dataset_id)
        )
    )
    return "" if found is None else f"{found[1]} What is published now is dated by it."
