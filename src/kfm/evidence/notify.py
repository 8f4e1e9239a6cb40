"""notify: receivers outside are told of generations that became official, and those who want to
know it how runs go and what the world told, each at least once.

What they are told was put beside the lineage before ★. A receiver that does not answer is asked
again later; it delays nobody but itself.
"""

from collections.abc import Callable

from kfm.model import DeliveryRow, Fenced, KfmError, Token, canonical, masked
from kfm.store.base import Tx
from kfm.world.announcement import Announcement
from kfm.world.news import MADE, MOMENTS, tell_news, told_of
from kfm.world.world import Receiver, TakesBack, World

__all__ = ["MADE", "MOMENTS", "act_of", "tell_receivers", "told_of"]

FIRST_S, LONGEST_S = 30.0, 3600.0  # the pause after the first failure, and the longest
_MOST = 300  # characters of an error that are kept


def act_of(dataset_id: str) -> str:
    """What stands for a run where a person made the generation, and no run did."""
    return f"act/{dataset_id}"


def tell_receivers(
    world: World, dataset_id: str, only: Callable[[DeliveryRow], bool] = lambda row: True
) -> int:
    """Tell what is due of a dataset; how many were told. What fails is tried again later."""
    due = world.store.read(lambda tx: tx.deliveries.due(dataset_id))
    by_receiver: dict[str, list[DeliveryRow]] = {}
    for row in filter(only, due):
        by_receiver.setdefault(row.receiver, []).append(row)
    return sum(_tell_all(world, name, rows) for name, rows in by_receiver.items())


def _tell_all(world: World, name: str, rows: list[DeliveryRow]) -> int:
    """One process tells a receiver at a time, in the order of generations, until one fails."""
    lease = f"scheduler/receiver-{name}"  # a name that no dataset has
    token = world.store.transaction(
        lambda tx: tx.leases.take(lease, world.holder, world.lease_seconds)
    )
    if token is None:
        return 0
    world.hold(token)
    told = 0
    try:
        for row in rows:
            if (done := _tell(world, token, row)) is None:
                break
            told += done
    except Fenced:
        pass  # who took over tells the rest
    finally:
        world.let_go(token)
        world.store.transaction(lambda tx: tx.leases.release(token))
    return told


def _tell(world: World, token: Token, row: DeliveryRow) -> bool | None:
    """Whether it was told; None: the receiver does not answer now, so nothing more is tried."""
    if row.generation < 0:
        return _tell_news(world, token, row)
    found = world.channel(row.dataset_id).predicate(row.generation)
    if found is None:
        return False  # not committed yet
    if (found.run_id or act_of(row.dataset_id)) != row.run_id:
        _fenced(world, token, lambda tx: tx.deliveries.mark(row, "dropped"))
        return False
    try:
        receiver: Receiver = world.receivers.opened(row.receiver)
        if found.run_id:
            receiver.tell(world, _announcement(world, row))
        elif isinstance(receiver, TakesBack):
            receiver.take_back(world, row.dataset_id)
    except KfmError as error:
        return _failed(world, token, row, error)
    _fenced(world, token, lambda tx: tx.deliveries.mark(row, "delivered"))
    return True


def _tell_news(world: World, token: Token, row: DeliveryRow) -> bool | None:
    try:
        tell_news(world, row)
    except KfmError as error:
        return _failed(world, token, row, error)
    _fenced(world, token, lambda tx: tx.deliveries.over(row))
    return True


def _failed(world: World, token: Token, row: DeliveryRow, error: KfmError) -> bool | None:
    why = masked(f"{error.happened} {error.remedy}")[:_MOST]
    if not error.retryable:
        _fenced(world, token, lambda tx: tx.deliveries.mark(row, "failed", why))
        return False
    wait = min(LONGEST_S, FIRST_S * 2 ** min(row.tries, 16))
    _fenced(world, token, lambda tx: tx.deliveries.later(row, wait, why))
    return None


def _announcement(world: World, row: DeliveryRow) -> Announcement:
    payload = world.store.read(lambda tx: tx.outbox.payload(row.run_id, row.generation))
    told = canonical.loads(payload.encode())
    return Announcement(
        dataset_id=row.dataset_id,
        generation=row.generation,
        run_id=row.run_id,
        version_id=told["version_id"],
        assets=told["assets"],
    )


def _fenced(world: World, token: Token, work: Callable[[Tx], None]) -> None:
    """Write it down, unless another process tells this receiver by now."""

    def write(tx: Tx) -> None:
        tx.leases.check(token)
        work(tx)

    world.store.transaction(write)
