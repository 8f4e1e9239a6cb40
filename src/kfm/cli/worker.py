"""Work the job table, or a single job."""

import os
import re
import secrets
import sys
from collections.abc import Callable

import msgspec

from kfm.cli.answer import Answer, Call
from kfm.cli.jobcall import boundary_of, store_of
from kfm.cli.terminal import say, show, sign, table, write
from kfm.jobs import place_of
from kfm.jobs.base import JobResult, NoParameters, job_type, write_receipt
from kfm.jobs.job_log import JobLog, Told, metrics
from kfm.jobs.worker import Limits, Worker
from kfm.model import JobRow, SystemClock, UsageError, rfc3339
from kfm.model.window import seconds
from kfm.store.base import Store
from kfm.workspace.folder import Workspace, open_workspace
from kfm.workspace.job_process import context_of
from kfm.workspace.wiring import open_world

__all__ = ["Measured", "Stopped", "Workers", "make_worker", "measured", "worked", "workers"]

MOST_STEPS = 6  # of a run that may each take as long as a step may


# ---- run -----------------------------------------------------------------------------------------
class Stopped(Answer, frozen=True, kw_only=True, omit_defaults=True):
    """A worker that ended, and how many jobs it did."""

    worker: str
    worked: int
    exit_code: int = 0

    @property
    def code(self) -> int:
        return self.exit_code

    def tell(self, call: Call) -> None:
        say(f"{self.worked} jobs worked")


def worked(
    call: Call,
    concurrency: int,
    pool: list[str],
    name: str,
    until_idle: bool,
    grace: str,
    upstream: str | None,
    boundary: str,
) -> Stopped:
    workspace, asked = open_workspace(call.workspace), boundary_of(boundary)
    with store_of(workspace) as store:
        worker = make_worker(
            workspace,
            store,
            slots=concurrency,
            pools=pool,
            name=name,
            upstream=upstream,
            boundary=asked,
            grace_s=float(seconds(grace)),
        )
        say(
            f"{sign('RUNNING', sys.stderr)} worker {worker.name}: {concurrency} at once;"
            " SIGTERM finishes what runs, twice stops it at once"
            + (f"; {asked} decides" if asked else "")
        )
        code = worker.run(until_idle=until_idle)
    return Stopped(worker=worker.name, worked=worker.worked, exit_code=code)


def make_worker(
    workspace: Workspace,
    store: Store,
    *,
    slots: int,
    pools: list[str] | None = None,
    name: str = "",
    upstream: str | None = None,
    boundary: str = "",
    grace_s: float = 3600.0,
    heard: Callable[[JobRow, str, Told], None] = lambda job, status, told: None,
) -> Worker:
    """A worker of this workspace."""
    if not 1 <= slots <= 256:
        raise UsageError(
            f"--concurrency {slots} is no number of jobs.",
            expected="1 to 256",
            remedy="`kfm worker run --concurrency 4` works four at once.",
        )
    if name and not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.@-]{0,99}", name):
        raise UsageError(
            f"{name!r} is no name of a worker.",
            expected="letters, digits, . _ @ -, at most 100",
            remedy="Choose another --name, or leave it out.",
        )
    clock = SystemClock()

    def tell(job: JobRow, run_id: str, status: str, told: Told) -> None:
        heard(job, status, told)
        log.tell(job, run_id, status, told)

    log = JobLog(workspace.path / "ledger" / "logs", clock)
    store.transaction(
        lambda tx: tx.pools.configure(
            {pool: limits.slots for pool, limits in workspace.config.pools.items()}
        )
    )
    return Worker(
        store,
        clock,
        name=name or f"{os.uname().nodename}-{os.getpid()}-{secrets.token_hex(2)}",
        slots=slots,
        lease_seconds=workspace.config.lease_seconds,
        command=[sys.executable, "-m", "kfm.workspace.job_process"],
        tell=tell,
        limits=lambda job: _limits(workspace, job),
        died=lambda job, run_id, why: _receipt_of_the_dead(workspace, boundary, job, run_id, why),
        pools=pools or (),
        order={"workspace": str(workspace.path), "upstream": upstream, "boundary": boundary},
        beat=lambda: _write_metrics(workspace, store),
        grace_s=grace_s,
    )


def _limits(workspace: Workspace, job: JobRow) -> Limits:
    if place_of(job.job_type) is None:
        return Limits()  # its process refuses it by name
    kind = job_type(job.job_type)
    entry = (
        workspace.readable(job.dataset_id)
        if job.dataset_id and kind.name == "ingest.pull_source"
        else None
    )
    if entry is None:
        return Limits(kind.timeout_s, kind.memory_mb)
    return Limits(
        max(kind.timeout_s, MOST_STEPS * entry.source.step_limit),
        kind.memory_mb,
        "`source.max_step` in the registry entry",
    )


def _receipt_of_the_dead(
    workspace: Workspace, boundary: str, job: JobRow, run_id: str, why: str
) -> None:
    """A process that could not write its receipt gets one that says so."""
    if place_of(job.job_type) is None:
        return
    with open_world(workspace, boundary=boundary) as world:
        ctx = context_of(workspace, world, job, run_id, NoParameters(), "live")
        write_receipt(
            job_type(job.job_type),
            ctx,
            JobResult(status="failed", reason=why, error=why),
            rfc3339(world.clock.now()),
        )


def _write_metrics(workspace: Workspace, store: Store) -> None:
    path = workspace.path / "ledger" / "metrics.prom"
    temp = path.with_name(f"{path.name}.{os.getpid()}")
    path.parent.mkdir(parents=True, exist_ok=True)
    temp.write_text(_metrics_text(store))
    temp.replace(path)


def _metrics_text(store: Store) -> str:
    tallies, depths = store.read(lambda tx: (tx.jobs.tallies(), tx.jobs.depths()))
    return metrics(tallies, depths, store.now_ms())


# ---- metrics, list -------------------------------------------------------------------------------
class Measured(Answer, frozen=True, kw_only=True):
    """Counters and gauges, as Prometheus reads them."""

    metrics: str

    def tell(self, call: Call) -> None:
        write(self.metrics.removesuffix("\n"))


def measured(call: Call) -> Measured:
    # a worker is smaller without these
    from kfm.cli.slo import standings
    from kfm.telemetry.prometheus import dataset_metrics
    from kfm.telemetry.standing import last_runs
    from kfm.telemetry.unsent import sent_so_far, unsent

    workspace = open_workspace(call.workspace)
    folder = workspace.ledger / "logs"
    with open_world(workspace) as world:
        jobs = _metrics_text(world.store)
        found = standings(workspace, world)
    told = dataset_metrics(found, last_runs(folder), sent_so_far(folder), unsent(folder))
    return Measured(metrics=jobs + told)


class AtWork(msgspec.Struct, frozen=True, kw_only=True):
    """A worker and the jobs it has."""

    name: str
    state: str  # working, or lost: its lease has run out
    jobs: list[str]


class Workers(Answer, frozen=True, kw_only=True):
    """The workers, and what each does."""

    workers: list[AtWork]

    def tell(self, call: Call) -> None:
        cells = [
            (sign("RUNNING" if w.state == "working" else "LATE"), w.name, w.state, str(len(w.jobs)))
            for w in self.workers
        ]
        heads = ("", "worker", "state", "jobs")
        for line in table(heads, cells, right=("jobs",)) if cells else ():
            show(line)
        if not cells:
            say("No worker runs. `kfm up` starts a scheduler and a worker.")


def workers(call: Call) -> Workers:
    with store_of(open_workspace(call.workspace)) as store:
        held, jobs = store.read(
            lambda tx: (tx.leases.held(), tx.jobs.listing(state="running", limit=1000))
        )
    return Workers(
        workers=[
            AtWork(
                name=lease.name.removeprefix("worker/"),
                state="lost" if lease.lapsed else "working",
                jobs=[j.job_id for j in jobs if j.owner == lease.name],
            )
            for lease in held
            if lease.name.startswith("worker/")
        ]
    )
