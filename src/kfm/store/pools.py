"""What keeps a job from starting: its pool is full or paused, or a person has switched it off."""

import msgspec

from kfm.model import JobRow, rfc3339
from kfm.store.view import View

__all__ = ["PoolRow", "PoolView", "Switch", "SwitchView"]


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


class Switch(msgspec.Struct, frozen=True, kw_only=True):
    """A dataset or a type of job that is off. Field names are column names."""

    name: str
    reason: str
    by_whom: str
    at: str


class SwitchView(View):
    """Nothing that is switched off starts."""

    def listing(self) -> list[Switch]:
        return [Switch(**r) for r in self._all("switch_all")]

    def is_off(self, job: JobRow) -> bool:
        """Whether a person has switched off the job's dataset or type."""
        return any(s.name in (job.dataset_id, job.job_type) for s in self.listing())

    def off(self, name: str, reason: str, by_whom: str) -> None:
        self._do(
            "switch_off",
            name=name,
            reason=reason,
            by_whom=by_whom,
            at=rfc3339(self._store.clock.now()),
        )

    def on(self, name: str) -> bool:
        found = bool(self._do("switch_on", name=name))
        self._store.ring_after_commit()
        return found
