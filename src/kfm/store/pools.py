"""Pools cap how many jobs run at once."""

from kfm.model.canonical import Json
from kfm.store.view import View

__all__ = ["PoolView"]


class PoolView(View):
    """A pool without slots is not limited."""

    def listing(self) -> list[Json]:
        return self._shown("pool_all")

    def configure(self, slots: dict[str, int | None]) -> None:
        have = {p["name"]: p["slots"] for p in self.listing()}
        # one that is no longer named is not limited
        for name, many in {**dict.fromkeys(have, None), **slots}.items():
            if name not in have or have[name] != many:
                self._do("pool_put", name=name, slots=many)
                self._do("pool_slots", name=name, slots=many)

    def pause(self, name: str, why: str) -> bool:
        """Nothing of the pool starts while `why` is not empty."""
        return bool(self._do("pool_pause", name=name, paused=why))
