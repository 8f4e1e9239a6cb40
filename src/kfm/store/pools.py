"""Pools cap how many jobs run at once."""

import msgspec

from kfm.store.view import View

__all__ = ["PoolRow", "PoolView"]


class PoolRow(msgspec.Struct, frozen=True, kw_only=True):
    """A pool. Field names are column names."""

    name: str
    slots: int | None  # None: not limited
    vtime: float  # how much of its share it has had
    paused: str  # why nothing of it starts, or empty


class PoolView(View):
    """A pool without slots is not limited."""

    def listing(self) -> list[PoolRow]:
        return [PoolRow(**r) for r in self._all("pool_all")]

    def configure(self, slots: dict[str, int | None]) -> None:
        have = {p.name: p.slots for p in self.listing()}
        # one that is no longer named is not limited
        for name, many in {**dict.fromkeys(have, None), **slots}.items():
            if name not in have or have[name] != many:
                self._do("pool_put", name=name, slots=many)
                self._do("pool_slots", name=name, slots=many)

    def pause(self, name: str, why: str) -> bool:
        """Nothing of the pool starts while `why` is not empty."""
        return bool(self._do("pool_pause", name=name, paused=why))
