"""The job table: what is asked for, and what became of it. Asked for twice while it waits, it is
one job.
"""

import msgspec

from kfm.model import (
    FOREVER,
    INGEST,
    PROMOTE,
    Envelope,
    Input,
    JobRow,
    Json,
    LedgerRow,
    Request,
    Trace,
    UsageError,
    check_inputs,
    ids,
)
from kfm.store.job_rows import JobRows, must_be_job

__all__ = ["Depth", "JobView", "PromotionView", "envelope_of"]

_TRIES = 5
_GRACE_MS = 2_000  # who proposed a version goes on by himself; a worker comes if he does not
_PAUSE_MS = 60_000


class Depth(msgspec.Struct, frozen=True, kw_only=True):
    """The jobs of one pool in one state. Field names are column names."""

    pool: str
    state: str  # queued, running
    jobs: int
    oldest: int  # milliseconds since 1970: when the one was put that has waited longest
    later: int  # of them, those whose time has not come


def envelope_of(job: JobRow) -> Envelope:
    """The documented envelope of a job."""
    return Envelope(
        job_id=job.job_id, job_type=job.job_type, requested_at=job.put_at, **_carried(job.envelope)
    )


def _carried(text: str) -> Json:
    found = msgspec.json.decode(text)
    return {
        "requested_by": found.get("requested_by", "system"),
        "inputs": msgspec.convert(found.get("inputs", ()), tuple[Input, ...]),
        "parameters": found.get("parameters", {}),
        "trace": msgspec.convert(found.get("trace", {}), Trace),
    }


def _inputs(request: Request) -> tuple[Input, ...]:
    own = (
        (Input(kind="dataset", id=f"kfm://dataset/{request.dataset_id}"),)
        if request.dataset_id
        else ()
    )
    return check_inputs(request.inputs) or own


def _caused(job: JobRow, trace: Trace) -> str:
    """The envelope of a job that will run once more, for a cause of its own when there is one."""
    if not trace.correlation_id:
        return job.envelope
    carried = msgspec.json.decode(job.envelope) | {"trace": msgspec.to_builtins(trace)}
    return msgspec.json.encode(carried).decode()


def _job_id(request: Request) -> str:
    inputs = [msgspec.to_builtins(i) for i in _inputs(request)]
    parameters = request.parameters or (
        {"partition": request.partition} if request.job_type == INGEST else {}
    )
    return ids.job_id(request.job_type, inputs, parameters, request.win or request.event or None)


class JobView(JobRows):
    """`put` while a job runs marks it `again`; its end then queues it once more."""

    def get(self, dataset_id: str, partition: str, win: str) -> JobRow | None:
        """The ingest job of a target. Who looks at a job first waits for its dataset, so that
        nobody waits the other way round.
        """
        self._alone(dataset_id)
        return self.of(
            _job_id(Request(job_type=INGEST, dataset_id=dataset_id, partition=partition, win=win))
        )

    def put(
        self,
        dataset_id: str,
        partition: str,
        win: str,
        *,
        forced: int = 0,
        reason: str = "",
        pool: str = "",
        requested_by: str = "system",
    ) -> JobRow:
        """Ask for the ingest of a target."""
        request = Request(
            job_type=INGEST,
            dataset_id=dataset_id,
            partition=partition,
            win=win,
            forced=forced,
            reason=reason,
            pool=pool,
            requested_by=requested_by,
        )
        return self.submit(request)

    def submit(self, request: Request) -> JobRow:
        """Ask for a job. Asked for twice while it waits it is one job; while it runs, it runs once
        more afterwards.
        """
        if request.dataset_id:
            self._alone(request.dataset_id)
        job_id = _job_id(request)
        old = self.of(job_id)
        if old is None or (old.state == "ended" and not request.once):
            job = self._new(job_id, request, old)
        elif old.state == "ended":
            return old
        elif old.state == "queued":
            waits = bool(old.attempts) or old.outcome == "deferred"
            begins = old.not_before if waits else min(old.not_before, request.not_before)
            job = msgspec.structs.replace(
                old,
                forced=max(old.forced, request.forced),
                reason=request.reason or old.reason,
                priority=max(old.priority, request.priority),
                not_before=0 if request.forced else begins,
            )
        elif request.forced and old.owner is None and self._is_lease_free(old):
            # the holder is dead: the forced command takes over
            job = msgspec.structs.replace(old, forced=1, reason=request.reason)
        else:
            job = msgspec.structs.replace(
                old, again=max(old.again, 1 + request.forced), envelope=_caused(old, request.trace)
            )
        if job != old:
            self._keep(job)
        if job.state == "queued":
            self.wake()
        return job

    def _new(self, job_id: str, request: Request, old: JobRow | None) -> JobRow:
        pool = request.pool or (old.pool if old is not None else "default")
        if pool == "light" and request.dataset_id:
            raise UsageError(
                "The pool light is for jobs that run inside workers.",
                expected="another pool",
                remedy="Name another one.",
            )
        if old is None or pool != "default":
            self._do("pool_put", name=pool, slots=None)
        lane = self._one("lane_get", pool=pool, dataset_id=request.dataset_id)
        vtime = max(lane["tail"], lane["vtime"]) + 1 if lane is not None else 1
        self._do("lane_put", pool=pool, dataset_id=request.dataset_id, tail=vtime)
        carried = {
            "requested_by": request.requested_by,
            "inputs": msgspec.to_builtins(_inputs(request)),
            "parameters": request.parameters,
            "trace": {
                **msgspec.to_builtins(request.trace),
                "correlation_id": request.trace.correlation_id or str(ids.new_run_id()),
            },
        }
        return JobRow(
            job_id=job_id,
            job_type=request.job_type,
            dataset_id=request.dataset_id,
            partition=request.partition,
            win=request.win,
            state="queued",
            again=0,
            forced=request.forced,
            generation=1 if old is None else old.generation + 1,
            reason=request.reason,
            put_at=self._now(),
            pool=pool,
            priority=request.priority,
            vtime=vtime,
            not_before=request.not_before,
            put_ms=self._store.now_ms(),
            envelope=msgspec.json.encode(carried).decode(),
            max_attempts=request.max_attempts,
        )

    def start(self, job: JobRow) -> None:
        self._do("job_start", job_id=job.job_id)

    def ack(self, dataset_id: str, partition: str, win: str) -> None:
        self._ack(self.get(dataset_id, partition, win))

    def _ack(self, job: JobRow | None) -> None:
        if job is None or job.state == "ended":
            return
        ended = {
            "owner": None,
            "attempts": 0,
            "losses": 0,
            "not_before": 0,
            "outcome": "succeeded",
            "ended_at": self._now(),
            "error": "",
            "cancel": 0,
        }
        if job.again:
            self._save(job, state="queued", again=0, forced=job.again - 1, **ended)
            self.wake()
        else:
            self._save(job, state="ended", forced=0, **ended)

    def requeue(self, dataset_id: str, partition: str, win: str) -> None:
        """At once again, and nobody's fault: what it stood on moved."""
        job = self.get(dataset_id, partition, win)
        if job is None:
            self.put(dataset_id, partition, win)
        else:
            self._save(
                job,
                state="queued",
                again=0,
                owner=None,
                cancel=0,
                forced=max(job.forced, job.again - 1),
            )
            self.wake()

    def failed(
        self, dataset_id: str, partition: str, win: str, error: str, until_ms: int = 0
    ) -> None:
        """Again after a pause, or at `until_ms`; after too many failures it is put aside for a
        person.
        """
        job = self.get(dataset_id, partition, win)
        if job is None:
            job = self.put(dataset_id, partition, win)
        self._fail(job, error, until_ms=until_ms)

    def waiting(self, dataset_id: str) -> list[JobRow]:
        return [must_be_job(r) for r in self._all("job_waiting", dataset_id=dataset_id)]

    def orphans(self, dataset_id: str | None = None) -> list[JobRow]:
        """Jobs whose worker died with them, and that no other has taken over yet."""
        running = self.listing(state="running", dataset_id=dataset_id, limit=1000)
        return [
            j
            for j in running
            if j.owner is not None and self._is_dead({"owner": j.owner, "token": j.token})
        ]

    def listing(
        self,
        state: str | None = None,
        dataset_id: str | None = None,
        job_type: str | None = None,
        outcome: str | None = None,
        limit: int = 100,
    ) -> list[JobRow]:
        rows = self._all(
            "job_list",
            state=state,
            dataset_id=dataset_id,
            job_type=job_type,
            outcome=outcome,
            limit=limit,
        )
        return [must_be_job(r) for r in rows]

    def cancel(self, job_id: str) -> JobRow:
        """A waiting job ends; a running one is told to stop."""
        job = self._required(job_id)
        if job.state == "queued":
            self._save(
                job, state="ended", outcome="cancelled", ended_at=self._now(), again=0, forced=0
            )
        elif job.state == "running":
            self._save(job, cancel=1, again=0)
            self.wake()
        return self._required(job_id)

    def retry(self, job_id: str) -> JobRow:
        """An ended job opens its next generation; a waiting one waits no longer."""
        job = self._required(job_id)
        if job.state == "ended":
            self._save(
                job,
                state="queued",
                generation=job.generation + 1,
                attempts=0,
                losses=0,
                not_before=0,
                outcome="",
                error="",
                put_at=self._now(),
                put_ms=self._store.now_ms(),
                cancel=0,
            )
        elif job.state == "queued":
            self._save(job, not_before=0)
        self.wake()
        return self._required(job_id)

    def _required(self, job_id: str) -> JobRow:
        job = self.of(job_id)
        if job is None:
            raise UsageError(
                f"There is no job {job_id}.",
                expected="a job id",
                remedy="`kfm jobs list` shows them.",
            )
        return job

    def depths(self) -> list[Depth]:
        """What waits and what runs, per pool."""
        return [Depth(**r) for r in self._all("job_depth", now_ms=self._store.now_ms())]

    def ended(self) -> dict[str, int]:
        return {r["outcome"]: r["jobs"] for r in self._all("job_count")}

    def forget(self, before: str) -> int:
        """Drop ended jobs of before `before` that nobody has to look at."""
        return self._do("job_forget", before=before)

    def tally(self, job_type: str, name: str, value: int = 1) -> None:
        """Count something per job type, for ever."""
        self._do("tally_add", job_type=job_type, name=name, value=value)

    def tallies(self) -> list[tuple[str, str, int]]:
        return [(r["job_type"], r["name"], r["value"]) for r in self._all("tally_all")]


class PromotionView(JobView):
    """The promote job of a dataset: there as long as one of its proposals needs nobody any more."""

    def _job(self, dataset_id: str) -> JobRow | None:
        self._alone(dataset_id)
        return self.of(_job_id(Request(job_type=PROMOTE, dataset_id=dataset_id)))

    def follow(self, dataset_id: str, run_id: str = "", *, anew: bool = False) -> None:
        """Bring the job in line with the proposals. One that was given up or ended by a person
        comes back with what is due `anew`, and always once a generation is named: a frozen
        process may still write that.
        """
        found = self._one("promotions_due", dataset_id=dataset_id)
        due, named = (int(found[word] or 0) for word in ("due", "named")) if found else (0, 0)
        job, most = self._job(dataset_id), FOREVER if named else _TRIES
        if not due:
            self._ack(job)
        elif job is None or job.state == "ended":
            well = job is None or job.outcome in ("", "succeeded", "skipped")
            if anew or named or well:
                request = Request(
                    job_type=PROMOTE,
                    dataset_id=dataset_id,
                    max_attempts=most,
                    not_before=self._store.now_ms() + (_GRACE_MS if anew or well else _PAUSE_MS),
                    trace=Trace(parent_run_id=run_id or None),
                )
                self._keep(self._new(_job_id(request), request, job))
                self.wake()
        elif job.max_attempts != most:
            self._save(job, max_attempts=most)

    def take(self, row: LedgerRow) -> None:
        """Somebody is at it, under the lease of the dataset."""
        self.follow(row.dataset_id, row.run_id, anew=True)
        job = self._job(row.dataset_id)
        if job is not None:
            self.start(job)

    def failed_once_more(self, dataset_id: str, error: str) -> None:
        """Again after a pause; put aside for a person after too many failures."""
        job = self._job(dataset_id)
        if job is not None and job.state != "ended":
            self._fail(job, error)

    def owe(self) -> None:
        """Proposals that are due and have no job, of an older kfm or a store made anew, get one."""
        for row in self._all("promotions_owed"):
            self.follow(row["dataset_id"])
