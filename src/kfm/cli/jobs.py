"""List, show, put, retry and cancel jobs."""

import contextlib
import datetime as dt
import re
from typing import NamedTuple

import msgspec

from kfm.cli.answer import Answer, Call
from kfm.cli.call import login
from kfm.cli.jobcall import dataset_id_of, settings_of, store_of
from kfm.cli.terminal import say, show, sign, table, when, write
from kfm.jobs import JOB_MODULES
from kfm.jobs.base import SAID, job_type, parameters_of
from kfm.jobs.job_log import JobLog
from kfm.model import (
    ID_PATTERN,
    DatasetEntry,
    Envelope,
    JobRow,
    Request,
    SystemClock,
    UsageError,
    rfc3339,
)
from kfm.model.ledger import tries
from kfm.model.window import window as parse_window
from kfm.store.base import Store
from kfm.store.jobs import envelope_of
from kfm.upkeep.pools import Pool, pool_rows
from kfm.workspace.folder import open_workspace

__all__ = [
    "Dead",
    "Job",
    "Jobs",
    "OneJob",
    "Pools",
    "Put",
    "Retried",
    "Types",
    "Wish",
    "asked",
    "cancelled",
    "dead",
    "listed",
    "pools",
    "put",
    "retried",
    "retried_one",
    "shown",
    "types",
]

_SIGNS = {
    "queued": "FENCED",
    "running": "RUNNING",
    "succeeded": "COMMITTED",
    "skipped": "NOOP",
    "failed": "FAILED",
    "dead": "FAILED",
    "cancelled": "NOOP",
}
_ALL = 100_000


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """A job, and how it stands in one word."""

    job_id: str
    job_type: str
    dataset_id: str
    partition: str
    win: str
    state: str
    again: int
    forced: int
    generation: int
    reason: str
    put_at: str
    pool: str
    priority: int
    not_before: str | None
    owner: str | None
    attempts: int
    losses: int
    max_attempts: int
    outcome: str
    error: str
    started_at: str | None
    ended_at: str | None
    wait_ms: int | None
    cancel: int
    word: str

    @property
    def worker(self) -> str:
        return (self.owner or "").removeprefix("worker/")

    @property
    def waits_until(self) -> str:
        """When it may begin; nothing when that is now, or was."""
        now = rfc3339(SystemClock().now())
        later = self.state == "queued" and self.not_before is not None and self.not_before > now
        return self.not_before or "" if later else ""


def _job(row: JobRow) -> Job:
    kept = {k: v for k, v in msgspec.structs.asdict(row).items() if k in Job.__struct_fields__}
    word = row.outcome if row.state == "ended" else row.state
    return Job(**kept | {"not_before": _moment(row.not_before), "word": word})


def _moment(ms: int) -> str | None:
    moment = dt.datetime.fromtimestamp(ms / 1000, dt.UTC)
    return moment.isoformat(timespec="seconds").replace("+00:00", "Z") if ms else None


# ---- list, dead ----------------------------------------------------------------------------------
class Jobs(Answer, frozen=True, kw_only=True):
    """Jobs, newest first."""

    jobs: list[Job]

    def tell(self, call: Call) -> None:
        cells = [
            (
                sign(_SIGNS.get(job.word, "?")),
                job.job_id[:8],
                job.job_type,
                job.dataset_id,
                job.word,
                when(
                    {"running": job.started_at, "ended": job.ended_at}.get(job.state) or job.put_at
                ),
                _why(job),
            )
            for job in self.jobs
        ]
        heads = ("", "job", "type", "dataset", "state", "since", "why")
        for line in table(heads, cells) if cells else ():
            show(line)
        self._tell_end()

    def _tell_end(self) -> None:
        if not self.jobs:
            say("No jobs.")


class Dead(Jobs, frozen=True, kw_only=True):
    """Jobs that were put aside, newest first."""

    def _tell_end(self) -> None:
        say(
            "`kfm jobs retry --dead` tries all of them again; `kfm jobs show JOB` says what"
            " happened."
            if self.jobs
            else "No job was put aside."
        )


def _why(job: Job) -> str:
    if job.state == "queued":
        until = f"not before {job.waits_until}" if job.waits_until else f"pool {job.pool}"
        if job.outcome == "deferred":
            return f"{until}; {job.error}"
        return f"{until}; {job.attempts} failed: {job.error}" if job.attempts else until
    if job.state == "running":
        return f"on {job.worker or 'a command'}"
    return job.error


def listed(call: Call, state: str | None, dataset: str, job_type: str | None, limit: int) -> Jobs:
    return Jobs(jobs=_found(call, dataset, job_type, limit, state=state))


def dead(call: Call, dataset: str, job_type: str | None, limit: int) -> Dead:
    return Dead(jobs=_found(call, dataset, job_type, limit, state="ended", outcome="dead"))


def _found(
    call: Call, dataset: str, job_type: str | None, limit: int, **which: str | None
) -> list[Job]:
    dataset_id = dataset_id_of(dataset) if dataset else None
    with store_of(open_workspace(call.workspace)) as store:
        rows = store.read(
            lambda tx: tx.jobs.listing(
                dataset_id=dataset_id, job_type=job_type, limit=limit, **which
            )
        )
    return [_job(row) for row in rows]


# ---- show, retry, cancel -------------------------------------------------------------------------
class OneJob(Answer, frozen=True, kw_only=True):
    """All about one job."""

    job: Job
    envelope: Envelope

    def tell(self, call: Call) -> None:
        job = self.job
        show(
            f"{sign(_SIGNS.get(job.word, '?'))} {job.job_id}  {job.job_type} "
            f" {job.word}{', told to stop' if job.cancel else ''}"
        )
        facts = {
            "dataset": job.dataset_id,
            "partition": job.partition,
            "window": job.win,
            "pool": job.pool,
            "asked for": job.put_at[:19],
            "times": str(job.generation),
            "failed": tries(job.attempts, job.max_attempts) if job.attempts else "",
            "why": job.reason,
            "waits until": job.waits_until,
            "worker": job.worker,
            "error": job.error,
        }
        for name, value in facts.items():
            if value:
                show(f"  {name:<12} {value}")
        if job.outcome in ("dead", "failed") and job.state == "ended":
            say(f"  next         `kfm jobs retry {job.job_id[:8]}` tries it again")


def shown(call: Call, what: str) -> OneJob:
    with store_of(open_workspace(call.workspace)) as store:
        return _one(_find(store, what))


def _one(row: JobRow) -> OneJob:
    return OneJob(job=_job(row), envelope=envelope_of(row))


def _find(store: Store, text: str) -> JobRow:
    exact: JobRow | None = store.read(lambda tx: tx.jobs.of(text)) if text.isascii() else None
    if exact is not None:
        return exact
    rows: list[JobRow] = store.read(lambda tx: tx.jobs.listing(limit=_ALL))
    near = [row for row in rows if text and row.job_id.startswith(text)]
    if len(near) != 1:
        what = f"{len(near)} jobs begin with {text}" if near else f"There is no job {text!r}"
        raise UsageError(
            f"{what}.", expected="the id of one job", remedy="`kfm jobs list` shows them."
        )
    return near[0]


class Retried(Answer, frozen=True, kw_only=True):
    """Jobs that were put aside and wait again."""

    retried: list[str]

    def tell(self, call: Call) -> None:
        write(f"{len(self.retried)} jobs wait again.")


def retried(call: Call, what: str | None, dead: bool) -> Retried | OneJob:
    if (what is None) is not dead:
        raise UsageError(
            "Which job is to be tried again is not said." if what is None else "--dead means all.",
            expected="kfm jobs retry JOB, or --dead",
            remedy="`kfm jobs dead` lists those that were put aside.",
        )
    if what is not None:
        return retried_one(call, what)
    with store_of(open_workspace(call.workspace)) as store:
        rows = store.read(lambda tx: tx.jobs.listing(state="ended", outcome="dead", limit=_ALL))
        for row in rows:
            store.transaction(lambda tx: tx.jobs.retry(row.job_id))
    return Retried(retried=[row.job_id for row in rows])


def retried_one(call: Call, what: str) -> OneJob:
    """Try one job again."""
    with store_of(open_workspace(call.workspace)) as store:
        job_id = _find(store, what).job_id
        return _one(store.transaction(lambda tx: tx.jobs.retry(job_id)))


def cancelled(call: Call, what: str) -> OneJob:
    workspace = open_workspace(call.workspace)
    with store_of(workspace) as store:
        before = _find(store, what)
        job: JobRow = store.transaction(lambda tx: tx.jobs.cancel(before.job_id))
    if before.state == "queued" and job.outcome == "cancelled":  # no worker will tell of it
        log = JobLog(workspace.path / "ledger" / "logs", SystemClock())
        log.signal("run.lifecycle", "queued", job, "", timestamp=job.put_at)
        log.signal("run.lifecycle", "cancelled", job, "")
    return _one(job)


# ---- put -----------------------------------------------------------------------------------------
class Put(Answer, frozen=True, kw_only=True):
    """A job that waits now."""

    job: Job

    def tell(self, call: Call) -> None:
        write(self.job.job_id)


def put(
    call: Call,
    what: str,
    dataset: str,
    set: list[str],
    partition: str,
    window: str,
    pool: str,
    priority: int,
    not_before: str,
) -> Put:
    wish = Wish(what, dataset, settings_of(set), partition, window, pool, priority, not_before)
    return asked(call, wish, login())


class Wish(NamedTuple):
    """A job that is asked for, in the words of who asks."""

    what: str
    dataset: str = ""
    parameters: dict[str, str] = {}
    partition: str = ""
    window: str = ""
    pool: str = ""
    priority: int = 0
    not_before: str = ""


def asked(call: Call, wish: Wish, by: str) -> Put:
    """Put a job for somebody."""
    what, dataset, parameters, partition, window, pool, priority, not_before = wish
    workspace, kind = open_workspace(call.workspace), job_type(what)
    dataset_id = dataset_id_of(dataset) if dataset else ""
    entry = workspace.require(dataset_id) if dataset_id else None
    if kind.name == "ingest.pull_source" and entry is None:
        raise UsageError(
            "An ingest wants a dataset.",
            expected="--dataset kfm://dataset/ID",
            remedy="`kfm dataset list` shows them.",
        )
    _check_place(entry, partition, pool, priority)
    request = Request(
        job_type=kind.name,
        parameters=parameters,
        requested_by=by,
        dataset_id=dataset_id,
        partition=partition,
        win=parse_window(window, SystemClock().now()) if window else "",
        pool=pool or (entry.pool if entry else ""),
        priority=priority,
        not_before=_milliseconds(not_before) if not_before else 0,
        max_attempts=kind.max_attempts,
    )
    parameters_of(kind, request.parameters)
    with store_of(workspace) as store:
        return Put(job=_job(store.transaction(lambda tx: tx.jobs.submit(request))))


def _check_place(entry: DatasetEntry | None, partition: str, pool: str, priority: int) -> None:
    if partition and (entry is None or partition not in entry.partitions):
        raise UsageError(
            f"There is no partition {partition}.",
            expected="one the registry names",
            remedy="`kfm dataset show ID`.",
        )
    if not re.fullmatch(f"({ID_PATTERN})?", pool) or abs(priority) > 1_000_000:
        raise UsageError(
            "That is no pool, or no priority.",
            expected="a plain name; -1000000 to 1000000",
            remedy="`kfm jobs pools` lists the pools; a higher priority comes first.",
        )


def _milliseconds(text: str) -> int:
    with contextlib.suppress(ValueError, OverflowError):
        moment = dt.datetime.fromisoformat(text)
        if moment.tzinfo is not None and moment.astimezone(dt.UTC).year > 1970:
            return int(moment.timestamp() * 1000)
    raise UsageError(
        f"{text!r} is no moment.",
        expected="RFC 3339, such as 2026-11-15T06:00:00Z",
        remedy="Write --not-before like that.",
    )


# ---- types, pools --------------------------------------------------------------------------------
class Type(msgspec.Struct, frozen=True, kw_only=True):
    """A type of job: what it is for, what it takes, what it may use up."""

    name: str
    purpose: str
    triggers: str
    inputs: str
    outputs: str
    idempotency: str
    rules: tuple[str, ...]
    zone_in: str
    zone_out: str
    timeout_s: int
    memory_mb: int
    max_attempts: int
    parameters: list[str]


class Types(Answer, frozen=True, kw_only=True):
    """Every type of job."""

    types: list[Type]

    def tell(self, call: Call) -> None:
        for kind in self.types:
            write(
                f"  {kind.name:<24} {kind.purpose}\n{'':<27}{kind.inputs} -> {kind.outputs};"
                f" {kind.triggers}"
            )
            if kind.parameters:
                write(f"{'':<27}--set {', '.join(kind.parameters)}")


def types(call: Call) -> Types:
    open_workspace(call.workspace)
    shown = (*SAID, "timeout_s", "memory_mb", "max_attempts")
    return Types(
        types=[
            Type(
                **{name: getattr(kind, name) for name in shown},
                parameters=list(kind.parameters.__struct_fields__),
            )
            for kind in map(job_type, JOB_MODULES)
        ]
    )


class Pools(Answer, frozen=True, kw_only=True):
    """Pools, their slots and what waits."""

    pools: list[Pool]

    def tell(self, call: Call) -> None:
        cells = [
            (
                sign("RUNNING" if pool.running else "NOOP"),
                pool.name,
                f"{pool.running} of {pool.slots}" if pool.slots else f"{pool.running}",
                str(pool.queued),
                f"{pool.wait_ms / 1000:.0f} s" if pool.queued else "",
                pool.paused,
            )
            for pool in self.pools
        ]
        heads = ("", "pool", "running", "waiting", "oldest", "paused")
        for line in table(heads, cells, right=("waiting",)) if cells else ():
            show(line)
        if not cells:
            say("No job was put yet, so there is no pool.")


def pools(call: Call) -> Pools:
    with store_of(open_workspace(call.workspace)) as store:
        return Pools(pools=store.read(lambda tx: pool_rows(tx, store.now_ms())))
