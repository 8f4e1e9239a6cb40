"""The job table as workers see it: claim, finish, give back; a dead worker's jobs come back. Pools
cap, lanes share.
"""

from collections.abc import Iterable, Sequence

import msgspec

from kfm.model import PROMOTE, JobRow, Token
from kfm.store.job_rows import JobRows, job_row, kept_error, must_be_job
from kfm.store.jobs import PromotionView
from kfm.store.leases import LeaseView
from kfm.store.pools import SwitchView

__all__ = ["QueueView"]


class QueueView(JobRows):
    """Whatever a worker writes names its lease; of a job that is no longer its own it writes
    nothing.
    """

    def claim(
        self, worker: Token, limit: int, pools: Sequence[str] = (), without: Sequence[str] = ()
    ) -> list[JobRow]:
        """Up to `limit` jobs for this worker, in fair order, within what each pool has room for;
        `pools` empty: all but `without`.
        """
        LeaseView(self._store, self._db).check(worker)
        found: list[JobRow] = []
        for pool in self._all("pool_all"):
            if (
                len(found) >= limit
                or pool["paused"]
                or pool["name"] in without
                or (pools and pool["name"] not in pools)
            ):
                continue
            room = limit - len(found)
            if pool["slots"] is not None:
                self._one("pool_lock", name=pool["name"])  # nobody else counts meanwhile
                used = self._one("pool_used", pool=pool["name"])
                room = min(room, pool["slots"] - (used["jobs"] if used is not None else 0))
            if room > 0:
                found += self._claim(worker, pool["name"], room)
        return found

    def claim_one(self, worker: Token, job_id: str) -> JobRow | None:
        """This very job, whatever its pool says; None when another has it or it is switched off."""
        LeaseView(self._store, self._db).check(worker)
        job = self.of(job_id)
        free = job is not None and (
            job.state == "queued"
            or (job.state == "running" and job.owner is None and self._is_lease_free(job))
        )
        if job is None or not free or SwitchView(self._store, self._db).is_off(job):
            return None
        self._save(
            job,
            state="running",
            owner=worker.lease,
            token=worker.number,
            started_at=self._now(),
            outcome="",
        )
        return self.of(job_id)

    def _claim(self, worker: Token, pool: str, limit: int) -> list[JobRow]:
        rows = self._all("job_ready", pool=pool, limit=limit, now_ms=self._store.now_ms())
        if not rows:
            return []
        taken = {
            "state": "running",
            "owner": worker.lease,
            "token": worker.number,
            "started_at": self._now(),
            "outcome": "",
        }
        # a clock may be set back
        waited = [(r, max(0, r["now_ms"] - max(r["put_ms"], r["not_before"]))) for r in rows]
        self._do(
            "job_take",
            rows=msgspec.json.encode([[r["job_id"], wait_ms] for r, wait_ms in waited]).decode(),
            **taken,
        )
        self._do("pool_vtime", name=pool, vtime=max(r["vtime"] for r in rows))
        return [
            msgspec.structs.replace(must_be_job(r), wait_ms=wait_ms, **taken)
            for r, wait_ms in waited
        ]

    def finish(self, worker: Token, job: JobRow, outcome: str, error: str = "") -> bool:
        """The job has ended. False: it is no longer this worker's, and nothing was written."""
        ended = self._do(
            "job_finish",
            job_id=job.job_id,
            owner=worker.lease,
            token=worker.number,
            outcome=outcome,
            error=kept_error(error),
            now=self._now(),
        )
        self._follow(job)
        return bool(ended)

    def _follow(self, job: JobRow) -> None:
        """A promote job ends when nothing is left to promote, not when somebody says so."""
        if job.job_type == PROMOTE:
            PromotionView(self._store, self._db).follow(job.dataset_id)

    def note(self, job: JobRow, outcome: str, error: str) -> bool:
        """Say how a job went that has ended already. False: it has not."""
        told = {
            "job_id": job.job_id,
            "generation": job.generation,
            "outcome": outcome,
            "error": kept_error(error),
        }
        return outcome in ("succeeded", "skipped", "failed") and bool(self._do("job_note", **told))

    def finish_all(self, worker: Token, jobs: Iterable[JobRow], outcome: str) -> set[str]:
        """Jobs that ended alike. The ids of those that were still this worker's."""
        which = {
            "rows": msgspec.json.encode([[job.job_id] for job in jobs]).decode(),
            "owner": worker.lease,
            "token": worker.number,
        }
        ours = {r["job_id"] for r in self._all("job_held_all", **which)}
        self._do("job_finish_all", **which, outcome=outcome, now=self._now())
        return ours

    def fail(
        self,
        worker: Token,
        job: JobRow,
        error: str,
        *,
        retry: bool = True,
        denied: bool = False,
        until_ms: int = 0,
    ) -> bool:
        """The job did not succeed: again after a pause or at `until_ms`, or put aside; one that was
        denied has ended.
        """
        held = job_row(
            self._one("job_held", job_id=job.job_id, owner=worker.lease, token=worker.number)
        )
        if held is not None:
            self._fail(held, error, retry=retry and not denied, denied=denied, until_ms=until_ms)
            self._follow(job)
        return held is not None

    def release(self, worker: Token, jobs: Iterable[JobRow], later_ms: int = 0) -> None:
        """Give jobs back untried; they cost no attempt."""
        at = self._store.now_ms() + later_ms if later_ms else 0
        for job in jobs:
            self._do(
                "job_release",
                job_id=job.job_id,
                owner=worker.lease,
                token=worker.number,
                not_before=at,
            )
        self.wake()

    def mine(self, worker: Token) -> list[JobRow]:
        return [
            must_be_job(r) for r in self._all("job_mine", owner=worker.lease, token=worker.number)
        ]

    def _gone(self) -> list[Token]:
        """Leases of workers that are gone."""
        held = LeaseView(self._store, self._db).held()
        return [
            Token(h.name, h.epoch, h.token)
            for h in held
            if h.lapsed and h.name.startswith("worker/")
        ]

    def lost(self) -> bool:
        """Whether `reap` would find something."""
        return (
            bool(self._gone())
            or any(self._is_dead(r) for r in self._all("job_owners"))
            or any(self._is_lease_free(must_be_job(r)) for r in self._all("job_left"))
        )

    def reap(self) -> int:
        """Jobs whose worker is dead, or frozen past its lease, wait again. How many."""
        dead = [r for r in self._all("job_owners") if self._is_dead(r)]
        count = sum(
            self._do("job_lost", owner=row["owner"], token=row["token"], now=self._now())
            for row in dead
        )
        # a command that worked it by itself is gone
        left = [j for j in map(must_be_job, self._all("job_left")) if self._is_lease_free(j)]
        count += sum(self._do("job_back", job_id=job.job_id) for job in left)
        LeaseView(self._store, self._db).release(*self._gone())
        if count:
            self.wake()
        return count

    def cancelling(self, worker: Token) -> set[str]:
        return {r["job_id"] for r in self._all("job_cancelling", owner=worker.lease)}

    def next_at(self, pools: Sequence[str] = ()) -> tuple[int | None, bool]:
        """When the next job that waits for its time is due, in milliseconds since 1970; whether one
        waits to be tried again soon.
        """
        rows = [
            r
            for r in self._all("job_next", now_ms=self._store.now_ms())
            if not pools or r["pool"] in pools
        ]
        return min((int(r["at"]) for r in rows), default=None), any(r["retries"] for r in rows)

    def others(self, worker: Token) -> bool:
        """Whether jobs run elsewhere, which come back when their worker dies."""
        return self._one("job_others", owner=worker.lease) is not None
