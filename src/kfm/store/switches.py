"""What a person has switched off: a dataset or a type of job."""

import msgspec

from kfm.model import JobRow, rfc3339
from kfm.store.view import View

__all__ = ["Switch", "SwitchView"]


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
