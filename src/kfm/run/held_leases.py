"""What one working of a run holds: its leases. Taken where a signal cannot lose them, renewed beside
the work, given back however it ends.
"""

from collections.abc import Callable
from typing import Protocol, TypeVar

from kfm.model import KfmError, Token, finishing
from kfm.store.base import Tx
from kfm.world.world import World

__all__ = ["Held"]


class _Taken(Protocol):
    """What a transaction that takes a lease found."""

    @property
    def token(self) -> Token: ...


T = TypeVar("T", bound=_Taken)


class Held:
    """The leases of an update, or of a promotion, in the order they were taken."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.tokens: list[Token] = []

    @property
    def token(self) -> Token:
        """Of the lease it was begun under."""
        return self.tokens[0]

    def take(self, taking: Callable[[Tx], T | None]) -> T | None:
        """Take a lease, for the first time or again; None: there is nothing to take it for, or
        another holds it. A signal waits until the token is known here, where whoever ends gives it
        back.
        """
        with finishing:
            taken = self.world.store.transaction(taking)
            if taken is not None:
                others = [t for t in self.tokens if t.lease != taken.token.lease]
                self.tokens = [*others, self.world.hold(taken.token)]
        return taken

    def release(self, before: Callable[[Tx], None] = lambda tx: None) -> None:
        """Give back what is still ours, after `before` in the same transaction."""

        def give(tx: Tx) -> None:
            before(tx)
            tx.leases.release(*self.tokens)

        try:
            self.world.store.transaction(give)
        except KfmError:
            return  # the store is gone or full: the lock files die with this process
