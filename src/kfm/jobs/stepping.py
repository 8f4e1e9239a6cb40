"""Go through the durable operations of a run: to the end, with patience, or until one is done."""

import time
from collections.abc import Callable, Collection

from kfm.model import Fenced
from kfm.run.work import MustSettle, Reached, Steps
from kfm.world.outcome import Outcome

__all__ = ["Patience", "Stopped", "drive", "held"]

POLL_S = 0.02


def held(target_lease: str) -> Fenced:
    """What is raised when another run does not let go of a lease."""
    return Fenced(
        f"Another run holds {target_lease}.",
        expected="the lease to be free",
        remedy="Wait for it, or pass a longer --wait; `kfm status` shows it.",
    )


class Stopped(SystemExit):
    """A driver leaves a run where it is: its leases are released, and it can be resumed."""

    def __init__(self, at: Reached | MustSettle | None = None) -> None:
        super().__init__(None if at is None else str(at))
        self.at = at


def drive(
    steps: Steps,
    patience: Callable[[], None],
    until: Collection[Reached] = (),
    *,
    settles: bool = True,
) -> Outcome | None:
    """Run a generator of durable operations to its end; `patience` sleeps, or raises when waiting
    has gone on too long.

    Raises `Stopped` between two operations, when one of `until` has just been done, or where
    another run would be settled and `settles` is not.
    """
    try:
        while True:
            done = next(steps)
            if done in until or (isinstance(done, MustSettle) and not settles):
                steps.throw(Stopped(done))
            if done is not Reached.WAIT:
                continue
            try:
                patience()
            except Fenced as error:
                steps.throw(error)
    except StopIteration as end:
        found: Outcome | None = end.value
    return found


class Patience:
    """Sleeps a little each time, and raises when it has been asked for too long."""

    def __init__(self, seconds: float, lease: str) -> None:
        self._until, self._lease = time.monotonic() + seconds, lease

    def __call__(self) -> None:
        if time.monotonic() >= self._until:
            raise held(self._lease)
        time.sleep(POLL_S)
