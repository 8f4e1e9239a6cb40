"""Rows of the job table, and the two things that end an attempt: whoever asks and whoever works
share them.
"""

import datetime as dt

import msgspec

from kfm.model import PROMOTE, JobRow, backoff_ms, partition_lease, rfc3339
from kfm.store.leases import LeaseView
from kfm.store.view import SQL, Row, View

__all__ = ["JobRows", "job_row", "kept_error", "must_be_job"]

# no pause after a failure is longer: one that seems to be was set by a clock that was set back
# since
_LONGEST_MS = 400_000
_DEFERRED_MS = 86_400_000 + _LONGEST_MS  # the same for a time that upstream named
# a time that far away puts the job off; a nearer one is a failure like others, tried again then
_DEFERS_MS = 25_000
_MINUTE_MS = 60_000  # failures within it are one
_FIELDS = JobRow.__struct_fields__
_CHANGING = tuple(
    f for f in _FIELDS if f not in ("job_id", "job_type", "dataset_id", "partition", "win")
)
_COLUMNS = ", ".join(_FIELDS)
SQL["job_get"] = f"select {_COLUMNS} from job where job_id = :job_id /*for update*/"
SQL["job_put"] = (
    f"insert into job ({_COLUMNS}) values ({', '.join(':' + f for f in _FIELDS)}) on conflict"
    " (job_id) do update set " + ", ".join(f"{f} = excluded.{f}" for f in _CHANGING)
)
SQL[
    "job_ready"
] = f"""select {_COLUMNS}, :now_ms as now_ms from job where state = 'queued' and pool = :pool
  and (not_before <= :now_ms or (attempts > 0 and outcome <> 'deferred' and not_before > :now_ms + {_LONGEST_MS})
    or (job_type = 'promote' and attempts = 0 and not_before > :now_ms + {_LONGEST_MS})
    or (outcome = 'deferred' and not_before > :now_ms + {_DEFERRED_MS})) and not exists (select 1 from switch where name = job.dataset_id or name = job.job_type)
  order by priority desc, vtime, rowid limit :limit /*for update*/ /*skip locked*/"""
SQL[
    "job_list"
] = f"""select {_COLUMNS} from job where (cast(:state as text) is null or state = :state)
  and (cast(:dataset_id as text) is null or dataset_id = :dataset_id) and (cast(:job_type as text) is null or job_type = :job_type)
  and (cast(:outcome as text) is null or outcome = :outcome) order by put_ms desc, rowid desc limit :limit"""


class JobRows(View):
    """A job by its id, and how it fails."""

    def of(self, job_id: str) -> JobRow | None:
        return job_row(self._one("job_get", job_id=job_id))

    def wake(self) -> None:
        """Workers that rest look again once this transaction is durable."""
        self._store.ring_after_commit()

    def _fail(
        self,
        job: JobRow,
        error: str,
        *,
        retry: bool = True,
        denied: bool = False,
        until_ms: int = 0,
    ) -> None:
        """One failure more, unless the last one that counted is less than a minute ago; what
        upstream put off is no failure.
        """
        now = self._store.now_ms()
        common = {"owner": None, "error": kept_error(error), "again": 0, "cancel": 0}
        if retry and until_ms - now > _DEFERS_MS:
            forced = job.again - 1 if job.again else job.forced
            self._save(
                job,
                state="queued",
                **common,
                forced=forced,
                not_before=min(until_ms, now + _DEFERRED_MS - _LONGEST_MS),
                outcome="deferred",
            )
            self.wake()
            return
        since = (
            now - later(dt.datetime.fromisoformat(job.ended_at))
            if job.attempts and job.ended_at
            else -1
        )
        counts = not 0 <= since < _MINUTE_MS  # a clock that was set back counts
        common |= {
            "attempts": job.attempts + counts,
            "ended_at": self._now() if counts else job.ended_at,
        }
        if job.again:  # asked for again meanwhile: a new generation of the question
            self._save(job, state="queued", **{**common, "attempts": 0}, forced=job.again - 1)
        elif not retry or job.attempts + counts >= job.max_attempts:
            outcome = "failed" if denied else "dead"
            self._save(
                job, state="ended", **{**common, "ended_at": self._now()}, outcome=outcome, forced=0
            )
        else:
            pause = backoff_ms(job.job_id, job.attempts + counts, 0 if counts else since)
            self._save(
                job,
                state="queued",
                **common,
                not_before=max(now + pause, until_ms),
                outcome="failed",
            )
            self.wake()

    def _is_lease_free(self, job: JobRow) -> bool:
        own = (
            job.dataset_id
            if job.job_type == PROMOTE
            else partition_lease(job.dataset_id, job.partition, job.win)
        )
        return LeaseView(self._store, self._db).is_free(own)

    def _is_dead(self, row: Row) -> bool:
        leases = LeaseView(self._store, self._db)
        return leases.number(row["owner"]) != row["token"] or leases.is_free(row["owner"])

    def _now(self) -> str:
        return rfc3339(self._store.clock.now())

    def _save(self, job: JobRow, **changes: object) -> None:
        self._keep(msgspec.structs.replace(job, **changes))

    def _keep(self, job: JobRow) -> None:
        self._do("job_put", **msgspec.structs.asdict(job))


def job_row(raw: Row | None) -> JobRow | None:
    """A row of the table as a job."""
    return None if raw is None else JobRow(**{f: raw[f] for f in _FIELDS})


def must_be_job(raw: Row) -> JobRow:
    """The same of a row that was just read."""
    found = job_row(raw)
    assert found is not None
    return found


def kept_error(error: str) -> str:
    """What every store can keep of it: one that refused it would leave the job in the hands of its
    worker for ever.
    """
    return error.replace("\0", "?")


def later(moment: dt.datetime) -> int:
    """A moment as milliseconds since 1970."""
    return int(moment.timestamp() * 1000)
