"""The job table: what is asked for, who works on it, what became of it. Pools cap, lanes share, a dead worker's jobs come back."""

import datetime as dt
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from kfm.clock import rfc3339
from kfm.errors import UsageError
from kfm.model import ids
from kfm.model.job import Envelope, Input, Request, Trace, backoff_ms, check_inputs
from kfm.store.base import JobRow, Token
from kfm.store.views import SQL, LeaseView, View

__all__ = ["INGEST", "JobView", "envelope_of"]

INGEST = "ingest.pull_source"
_LONGEST_MS = 400_000  # no pause after a failure is longer: one that seems to be was set by a clock that was set back since
_DEFERRED_MS = 86_400_000 + _LONGEST_MS  # the same for a time that upstream named
_DEFERS_MS = 25_000  # a time that far away puts the job off; a nearer one is a failure like others, tried again then
_MINUTE_MS = 60_000  # failures within it are one
_FIELDS = JobRow.__struct_fields__
_CHANGING = tuple(f for f in _FIELDS if f not in ("job_id", "job_type", "dataset_id", "partition", "win"))
_COLUMNS = ", ".join(_FIELDS)
SQL["job_get"] = f"select {_COLUMNS} from job where job_id = :job_id /*for update*/"
SQL["job_put"] = (
    f"insert into job ({_COLUMNS}) values ({', '.join(':' + f for f in _FIELDS)}) on conflict (job_id) do update set "
    + ", ".join(f"{f} = excluded.{f}" for f in _CHANGING)
)
SQL["job_ready"] = f"""select {_COLUMNS}, :now_ms as now_ms from job where state = 'queued' and pool = :pool
  and (not_before <= :now_ms or (attempts > 0 and outcome <> 'deferred' and not_before > :now_ms + {_LONGEST_MS})
    or (outcome = 'deferred' and not_before > :now_ms + {_DEFERRED_MS})) and not exists (select 1 from switch where name = job.dataset_id or name = job.job_type)
  order by priority desc, vtime, rowid limit :limit /*for update*/ /*skip locked*/"""
SQL["job_list"] = f"""select {_COLUMNS} from job where (cast(:state as text) is null or state = :state)
  and (cast(:dataset_id as text) is null or dataset_id = :dataset_id) and (cast(:job_type as text) is null or job_type = :job_type)
  and (cast(:outcome as text) is null or outcome = :outcome) order by put_ms desc, rowid desc limit :limit"""


def envelope_of(job: JobRow) -> Envelope:
    """The documented envelope of a job."""
    return Envelope(job_id=job.job_id, job_type=job.job_type, requested_at=job.put_at, **_carried(job.envelope))


def _carried(text: str) -> dict[str, Any]:
    found = msgspec.json.decode(text)
    return {
        "requested_by": found.get("requested_by", "system"),
        "inputs": msgspec.convert(found.get("inputs", ()), tuple[Input, ...]),
        "parameters": found.get("parameters", {}),
        "trace": msgspec.convert(found.get("trace", {}), Trace),
    }


def _inputs(request: Request) -> tuple[Input, ...]:
    own = (Input(kind="dataset", id=f"kfm://dataset/{request.dataset_id}"),) if request.dataset_id else ()
    return check_inputs(request.inputs) or own


def _job_id(request: Request) -> str:
    inputs = [msgspec.to_builtins(i) for i in _inputs(request)]
    parameters = request.parameters or ({"partition": request.partition} if request.job_type == INGEST else {})
    return ids.job_id(request.job_type, inputs, parameters, request.win or request.event or None)


class JobView(View):
    """`put` while a job runs marks it `again`; its end then queues it once more."""

    # ---- asking ------------------------------------------------------------------------------------------------------
    def get(self, dataset_id: str, partition: str, win: str) -> JobRow | None:
        """The ingest job of a target. Who looks at a job first waits for its dataset, so that nobody waits the other way round."""
        self._alone(dataset_id)
        return self.of(_job_id(Request(job_type=INGEST, dataset_id=dataset_id, partition=partition, win=win)))

    def of(self, job_id: str) -> JobRow | None:
        return _row(self._one("job_get", job_id=job_id))

    def put(
        self, dataset_id: str, partition: str, win: str, *, forced: int = 0, reason: str = "", pool: str = "", requested_by: str = "system"
    ) -> JobRow:
        """Ask for the ingest of a target."""
        request = Request(
            job_type=INGEST, dataset_id=dataset_id, partition=partition, win=win, forced=forced, reason=reason, pool=pool, requested_by=requested_by,
        )  # fmt: skip
        return self.submit(request)

    def submit(self, request: Request) -> JobRow:
        """Ask for a job. Asked for twice while it waits it is one job; while it runs, it runs once more afterwards."""
        if request.dataset_id:
            self._alone(request.dataset_id)
        job_id = _job_id(request)
        old = self.of(job_id)
        if old is None or (old.state == "ended" and not request.once):
            job = self._new(job_id, request, old)
        elif old.state == "ended":
            return old
        elif old.state == "queued":
            job = msgspec.structs.replace(
                old, forced=max(old.forced, request.forced), reason=request.reason or old.reason, priority=max(old.priority, request.priority),
                not_before=0 if request.forced else old.not_before if old.attempts or old.outcome == "deferred" else min(old.not_before, request.not_before),
            )  # fmt: skip
        elif request.forced and old.owner is None and self._is_lease_free(old):  # the holder is dead: the forced command takes over
            job = msgspec.structs.replace(old, forced=1, reason=request.reason)
        else:
            job = msgspec.structs.replace(old, again=max(old.again, 1 + request.forced))
        if job != old:
            self._keep(job)
        if job.state == "queued":
            self.wake()
        return job

    def _is_lease_free(self, job: JobRow) -> bool:
        return LeaseView(self._store, self._db).is_free(f"{job.dataset_id}/{job.partition or '-'}")

    def _new(self, job_id: str, request: Request, old: JobRow | None) -> JobRow:
        pool = request.pool or (old.pool if old is not None else "default")
        if pool == "light" and request.dataset_id:
            raise UsageError("The pool light is for jobs that run inside workers.", expected="another pool", remedy="Name another one.")
        if old is None or pool != "default":
            self._do("pool_put", name=pool, slots=None)
        lane = self._one("lane_get", pool=pool, dataset_id=request.dataset_id)
        vtime = max(lane["tail"], lane["vtime"]) + 1 if lane is not None else 1
        self._do("lane_put", pool=pool, dataset_id=request.dataset_id, tail=vtime)
        carried = {
            "requested_by": request.requested_by,
            "inputs": msgspec.to_builtins(_inputs(request)),
            "parameters": request.parameters,
            "trace": {**msgspec.to_builtins(request.trace), "correlation_id": request.trace.correlation_id or str(ids.new_run_id())},
        }
        return JobRow(
            job_id=job_id, job_type=request.job_type, dataset_id=request.dataset_id, partition=request.partition, win=request.win,
            state="queued", again=0, forced=request.forced, generation=1 if old is None else old.generation + 1, reason=request.reason,
            put_at=self._now(), pool=pool, priority=request.priority, vtime=vtime, not_before=request.not_before, put_ms=self._store.now_ms(),
            envelope=msgspec.json.encode(carried).decode(), max_attempts=request.max_attempts,
        )  # fmt: skip

    # ---- the engine's own ------------------------------------------------------------------------------------------------
    def start(self, job: JobRow) -> None:
        self._do("job_start", job_id=job.job_id)

    def ack(self, dataset_id: str, partition: str, win: str) -> None:
        job = self.get(dataset_id, partition, win)
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
            self._save(job, state="queued", again=0, owner=None, cancel=0)
            self.wake()

    def failed(self, dataset_id: str, partition: str, win: str, error: str, until_ms: int = 0) -> None:
        """Again after a pause, or at `until_ms`; after too many failures it is put aside for a person."""
        job = self.get(dataset_id, partition, win)
        if job is None:
            job = self.put(dataset_id, partition, win)
        self._fail(job, error, until_ms=until_ms)

    def waiting(self, dataset_id: str) -> list[JobRow]:
        return [_must(r) for r in self._all("job_waiting", dataset_id=dataset_id)]

    # ---- the worker's own ------------------------------------------------------------------------------------------------
    def claim(self, worker: Token, limit: int, pools: Sequence[str] = (), without: Sequence[str] = ()) -> list[JobRow]:
        """Up to `limit` jobs for this worker, in fair order, within what each pool has room for; `pools` empty: all but `without`."""
        LeaseView(self._store, self._db).check(worker)
        found: list[JobRow] = []
        for pool in self._all("pool_all"):
            if len(found) >= limit or pool["paused"] or pool["name"] in without or (pools and pool["name"] not in pools):
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
        free = job is not None and (job.state == "queued" or (job.state == "running" and job.owner is None and self._is_lease_free(job)))
        if job is None or not free or self.is_off(job):
            return None
        self._save(job, state="running", owner=worker.lease, token=worker.number, started_at=self._now(), outcome="")
        return self.of(job_id)

    def _claim(self, worker: Token, pool: str, limit: int) -> list[JobRow]:
        rows = self._all("job_ready", pool=pool, limit=limit, now_ms=self._store.now_ms())
        if not rows:
            return []
        taken = {"state": "running", "owner": worker.lease, "token": worker.number, "started_at": self._now(), "outcome": ""}
        waited = [(r, max(0, r["now_ms"] - max(r["put_ms"], r["not_before"]))) for r in rows]  # a clock may be set back
        self._do("job_take", rows=msgspec.json.encode([[r["job_id"], wait_ms] for r, wait_ms in waited]).decode(), **taken)
        self._do("pool_vtime", name=pool, vtime=max(r["vtime"] for r in rows))
        return [msgspec.structs.replace(_must(r), wait_ms=wait_ms, **taken) for r, wait_ms in waited]

    def finish(self, worker: Token, job: JobRow, outcome: str, error: str = "") -> bool:
        """The job has ended. False: it is no longer this worker's, and nothing was written."""
        return bool(
            self._do(
                "job_finish",
                job_id=job.job_id,
                owner=worker.lease,
                token=worker.number,
                outcome=outcome,
                error=_kept(error),
                now=self._now(),
            )
        )

    def note(self, job: JobRow, outcome: str, error: str) -> bool:
        """Say how a job went that has ended already. False: it has not."""
        told = {"job_id": job.job_id, "generation": job.generation, "outcome": outcome, "error": _kept(error)}
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

    def fail(self, worker: Token, job: JobRow, error: str, *, retry: bool = True, denied: bool = False, until_ms: int = 0) -> bool:
        """The job did not succeed: again after a pause or at `until_ms`, or put aside; one that was denied has ended."""
        held = _row(self._one("job_held", job_id=job.job_id, owner=worker.lease, token=worker.number))
        if held is not None:
            self._fail(held, error, retry=retry and not denied, denied=denied, until_ms=until_ms)
        return held is not None

    def _fail(self, job: JobRow, error: str, *, retry: bool = True, denied: bool = False, until_ms: int = 0) -> None:
        """One failure more, unless the last one that counted is less than a minute ago; what upstream put off is no failure."""
        now = self._store.now_ms()
        common = {"owner": None, "error": _kept(error), "again": 0, "cancel": 0}
        if retry and until_ms - now > _DEFERS_MS:
            forced = job.again - 1 if job.again else job.forced
            self._save(
                job, state="queued", **common, forced=forced, not_before=min(until_ms, now + _DEFERRED_MS - _LONGEST_MS), outcome="deferred"
            )
            self.wake()
            return
        since = now - later(dt.datetime.fromisoformat(job.ended_at)) if job.attempts and job.ended_at else -1
        counts = not 0 <= since < _MINUTE_MS  # a clock that was set back counts
        common |= {"attempts": job.attempts + counts, "ended_at": self._now() if counts else job.ended_at}
        if job.again:  # asked for again meanwhile: a new generation of the question
            self._save(job, state="queued", **{**common, "attempts": 0}, forced=job.again - 1)
        elif not retry or job.attempts + counts >= job.max_attempts:
            outcome = "failed" if denied else "dead"
            self._save(job, state="ended", **{**common, "ended_at": self._now()}, outcome=outcome, forced=0)
        else:
            pause = backoff_ms(job.job_id, job.attempts + counts, 0 if counts else since)
            self._save(job, state="queued", **common, not_before=max(now + pause, until_ms), outcome="failed")
            self.wake()

    def release(self, worker: Token, jobs: Iterable[JobRow], later_ms: int = 0) -> None:
        """Give jobs back untried; they cost no attempt."""
        at = self._store.now_ms() + later_ms if later_ms else 0
        for job in jobs:
            self._do("job_release", job_id=job.job_id, owner=worker.lease, token=worker.number, not_before=at)
        self.wake()

    def mine(self, worker: Token) -> list[JobRow]:
        return [_must(r) for r in self._all("job_mine", owner=worker.lease, token=worker.number)]

    def _gone(self) -> list[Token]:
        """Leases of workers that are gone."""
        held = LeaseView(self._store, self._db).held()
        return [Token(h["name"], h["epoch"], h["token"]) for h in held if h["lapsed"] and h["name"].startswith("worker/")]

    def lost(self) -> bool:
        """Whether `reap` would find something."""
        return (
            bool(self._gone())
            or any(self._is_dead(r) for r in self._all("job_owners"))
            or any(self._is_lease_free(_must(r)) for r in self._all("job_left"))
        )

    def orphans(self, dataset_id: str | None = None) -> list[JobRow]:
        """Jobs whose worker died with them, and that no other has taken over yet."""
        running = self.listing(state="running", dataset_id=dataset_id, limit=1000)
        return [j for j in running if j.owner is not None and self._is_dead({"owner": j.owner, "token": j.token})]

    def _is_dead(self, row: Any) -> bool:
        leases = LeaseView(self._store, self._db)
        return leases.number(row["owner"]) != row["token"] or leases.is_free(row["owner"])

    def reap(self) -> int:
        """Jobs whose worker is dead, or frozen past its lease, wait again. How many."""
        dead = [r for r in self._all("job_owners") if self._is_dead(r)]
        count = sum(self._do("job_lost", owner=row["owner"], token=row["token"], now=self._now()) for row in dead)
        left = [j for j in map(_must, self._all("job_left")) if self._is_lease_free(j)]  # a command that worked it by itself is gone
        count += sum(self._do("job_back", job_id=job.job_id) for job in left)
        LeaseView(self._store, self._db).release(*self._gone())
        if count:
            self.wake()
        return count

    def cancelling(self, worker: Token) -> set[str]:
        return {r["job_id"] for r in self._all("job_cancelling", owner=worker.lease)}

    def next_at(self, pools: Sequence[str] = ()) -> tuple[int | None, bool]:
        """When the next job that waits for its time is due, in milliseconds since 1970; whether one waits to be tried again soon."""
        rows = [r for r in self._all("job_next", now_ms=self._store.now_ms()) if not pools or r["pool"] in pools]
        return min((int(r["at"]) for r in rows), default=None), any(r["retries"] for r in rows)

    def others(self, worker: Token) -> bool:
        """Whether jobs run elsewhere, which come back when their worker dies."""
        return self._one("job_others", owner=worker.lease) is not None

    # ---- people ------------------------------------------------------------------------------------------------------------
    def listing(
        self,
        state: str | None = None,
        dataset_id: str | None = None,
        job_type: str | None = None,
        outcome: str | None = None,
        limit: int = 100,
    ) -> list[JobRow]:
        rows = self._all("job_list", state=state, dataset_id=dataset_id, job_type=job_type, outcome=outcome, limit=limit)
        return [_must(r) for r in rows]

    def cancel(self, job_id: str) -> JobRow:
        """A waiting job ends; a running one is told to stop."""
        job = self._required(job_id)
        if job.state == "queued":
            self._save(job, state="ended", outcome="cancelled", ended_at=self._now(), again=0, forced=0)
        elif job.state == "running":
            self._save(job, cancel=1, again=0)
            self.wake()
        return self._required(job_id)

    def retry(self, job_id: str) -> JobRow:
        """An ended job opens its next generation; a waiting one waits no longer."""
        job = self._required(job_id)
        if job.state == "ended":
            self._save(
                job, state="queued", generation=job.generation + 1, attempts=0, losses=0, not_before=0, outcome="", error="",
                put_at=self._now(), put_ms=self._store.now_ms(), cancel=0,
            )  # fmt: skip
        elif job.state == "queued":
            self._save(job, not_before=0)
        self.wake()
        return self._required(job_id)

    def _required(self, job_id: str) -> JobRow:
        job = self.of(job_id)
        if job is None:
            raise UsageError(f"There is no job {job_id}.", expected="a job id", remedy="`kfm jobs list` shows them.")
        return job

    def depths(self) -> list[dict[str, Any]]:
        """Per pool and state: how many, how many of them wait for their time, since when the oldest waits."""
        return [dict(r) for r in self._all("job_depth", now_ms=self._store.now_ms())]

    def ended(self) -> dict[str, int]:
        return {r["outcome"]: r["jobs"] for r in self._all("job_count")}

    def forget(self, before: str) -> int:
        """Drop ended jobs of before `before` that nobody has to look at."""
        return self._do("job_forget", before=before)

    # ---- pools, switches, effects, counts ------------------------------------------------------------------------------------
    def pools(self) -> list[dict[str, Any]]:
        return [dict(r) for r in self._all("pool_all")]

    def configure_pools(self, slots: dict[str, int | None]) -> None:
        have = {p["name"]: p["slots"] for p in self.pools()}
        for name, many in {**dict.fromkeys(have, None), **slots}.items():  # one that is no longer named is not limited
            if name not in have or have[name] != many:
                self._do("pool_put", name=name, slots=many)
                self._do("pool_slots", name=name, slots=many)

    def pause_pool(self, name: str, why: str) -> bool:
        """Nothing of the pool starts while `why` is not empty."""
        return bool(self._do("pool_pause", name=name, paused=why))

    def switches(self) -> list[dict[str, Any]]:
        return [dict(r) for r in self._all("switch_all")]

    def is_off(self, job: JobRow) -> bool:
        """Whether a person has switched off the job's dataset or type."""
        return any(s["name"] in (job.dataset_id, job.job_type) for s in self.switches())

    def switch_off(self, name: str, reason: str, by_whom: str) -> None:
        self._do("switch_off", name=name, reason=reason, by_whom=by_whom, at=self._now())

    def switch_on(self, name: str) -> bool:
        found = bool(self._do("switch_on", name=name))
        self.wake()
        return found

    def effect(self, key: str, job_id: str, digest: str) -> None:
        """A keyed effect, in the transaction that ends its job."""
        self._do("effect_put", key=key, job_id=job_id, digest=digest, now=self._now())

    def receipts(self) -> list[tuple[str, str]]:
        """(path, digest) of every receipt that no channel names."""
        return [(r["key"], r["digest"]) for r in self._all("effect_receipts")]

    def loose_receipts(self, first: str, before: str) -> list[tuple[str, str]]:
        """(path, digest) of receipts that jobs wrote themselves, from `first` until before `before`; a pack is nobody's."""
        return [(r["key"], r["digest"]) for r in self._all("effect_loose", first=first, before=before)]

    def receipts_packed(self, pack: str, digest: str, paths: Sequence[str]) -> None:
        """From now on one file stands for many."""
        self.effect(pack, "", digest)
        for path in paths:
            self._do("effect_drop", key=path)

    def effects(self) -> tuple[int, int]:
        """How many keys were written, and how many times in all."""
        row = self._one("effect_sum")
        return (int(row["keys"]), int(row["times"])) if row is not None else (0, 0)

    def put_effects(self, rows: Sequence[tuple[str, str, str]]) -> None:
        """Keyed effects (key, job_id, digest), in the transaction that ends their jobs."""
        first: dict[str, tuple[str, str, str]] = {}
        again = [row for row in rows if first.setdefault(row[0], row) is not row]  # one statement may not write a key twice
        self._do("effect_put_all", rows=msgspec.json.encode(list(first.values())).decode(), now=self._now())
        for row in again:
            self.effect(*row)

    def tally(self, job_type: str, name: str, value: int = 1) -> None:
        """Count something per job type, for ever."""
        self._do("tally_add", job_type=job_type, name=name, value=value)

    def tallies(self) -> list[tuple[str, str, int]]:
        return [(r["job_type"], r["name"], r["value"]) for r in self._all("tally_all")]

    def wake(self) -> None:
        """Workers that rest look again once this transaction is durable."""
        self._store.ring_after_commit()

    # ---- small things ----------------------------------------------------------------------------------------------------------
    def _now(self) -> str:
        return rfc3339(self._store.clock.now())

    def _save(self, job: JobRow, **changes: Any) -> None:
        self._keep(msgspec.structs.replace(job, **changes))

    def _keep(self, job: JobRow) -> None:
        self._do("job_put", **msgspec.structs.asdict(job))


def _row(raw: Any) -> JobRow | None:
    return None if raw is None else JobRow(**{f: raw[f] for f in _FIELDS})


def _must(raw: Any) -> JobRow:
    found = _row(raw)
    assert found is not None
    return found


def _kept(error: str) -> str:
    """What every store can keep of it: one that refused it would leave the job in the hands of its worker for ever."""
    return error.replace("\0", "?")


def later(moment: dt.datetime) -> int:
    """A moment as milliseconds since 1970."""
    return int(moment.timestamp() * 1000)
