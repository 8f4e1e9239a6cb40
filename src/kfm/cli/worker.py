"""Work the job table, or a single job.

kfm worker run [--concurrency 4] [--pool NAME…] [--until-idle]
kfm worker run-job TYPE --dataset kfm://dataset/ID [--window …] [--set NAME=VALUE]
kfm worker run-job --receipt FILE
kfm worker list
kfm worker metrics
"""

import os
import re
import secrets
import sys
from argparse import Namespace
from collections.abc import Callable
from pathlib import Path

from kfm.cli.call import Parser, emit, upstream_flag
from kfm.cli.jobcall import store_of
from kfm.cli.runjob import run_job
from kfm.cli.terminal import say, show, sign
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

__all__ = ["configure", "main", "make_worker"]

MOST_STEPS = 6  # of a run that may each take as long as a step may


def configure(parser: Parser) -> None:
    parser.add_argument("action", choices=("run", "run-job", "list", "metrics"))
    parser.add_argument(
        "type",
        nargs="?",
        metavar="TYPE",
        help="run-job: the type of job; `kfm jobs types` lists them",
    )
    parser.add_argument(
        "--concurrency",
        type=int,
        default=2,
        metavar="N",
        help="run: how many jobs at once; default: 2",
    )
    parser.add_argument(
        "--pool",
        action="append",
        default=[],
        metavar="NAME",
        help="run: only jobs of this pool; repeatable",
    )
    parser.add_argument(
        "--name", default="", help="run: the name of this worker; default: host and process"
    )
    parser.add_argument(
        "--until-idle", action="store_true", help="run: stop when nothing is left to do"
    )
    parser.add_argument(
        "--grace",
        default="1h",
        metavar="1h",
        help="run: how long running jobs may take after the first SIGTERM",
    )
    parser.add_argument(
        "--dataset", default="", metavar="kfm://dataset/ID", help="run-job: what the job works on"
    )
    parser.add_argument("--partition", default="", help="run-job: one partition")
    parser.add_argument("--window", default="", metavar="SINCE/UNTIL", help="run-job: one window")
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="run-job: a parameter; repeatable",
    )
    parser.add_argument(
        "--receipt",
        type=Path,
        default=None,
        metavar="FILE",
        help="run-job: do again what this receipt tells of, and compare",
    )
    parser.add_argument(
        "--no-follow",
        action="store_true",
        help="run-job: leave the jobs that follow from it in the queue",
    )
    upstream_flag(parser)


def main(args: Namespace) -> int:
    workspace = open_workspace(args.workspace)
    if args.action == "run":
        return _run(workspace, args)
    if args.action == "run-job":
        return run_job(workspace, args)
    with store_of(workspace) as store:
        return _list(store, args) if args.action == "list" else _metrics(store)


# ---- run -----------------------------------------------------------------------------------------
def _run(workspace: Workspace, args: Namespace) -> int:
    with store_of(workspace) as store:
        worker = make_worker(
            workspace,
            store,
            slots=args.concurrency,
            pools=args.pool,
            name=args.name,
            upstream=args.upstream,
            grace_s=float(seconds(args.grace)),
        )
        say(
            f"{sign('RUNNING', sys.stderr)} worker {worker.name}: {args.concurrency} at once;"
            " SIGTERM finishes what runs, twice stops it at once"
        )
        code = worker.run(until_idle=args.until_idle)
        say(f"{worker.worked} jobs worked")
    return code


def make_worker(
    workspace: Workspace,
    store: Store,
    *,
    slots: int,
    pools: list[str] | None = None,
    name: str = "",
    upstream: str | None = None,
    grace_s: float = 3600.0,
    heard: Callable[[JobRow, str, Told], None] = lambda job, status, told: None,
) -> Worker:
    """A worker of this workspace."""
    if not 1 <= slots <= 256:
        raise UsageError(
            f"--concurrency {slots} is no number of jobs.",
            expected="1 to 256",
            remedy="Correct it.",
        )
    if name and not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.@-]{0,99}", name):
        raise UsageError(
            f"{name!r} is no name of a worker.",
            expected="letters, digits, . _ @ -, at most 100",
            remedy="Correct --name.",
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
        died=lambda job, run_id, why: _receipt_of_the_dead(workspace, job, run_id, why),
        pools=pools or (),
        order={"workspace": str(workspace.path), "upstream": upstream},
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


def _receipt_of_the_dead(workspace: Workspace, job: JobRow, run_id: str, why: str) -> None:
    """A process that could not write its receipt gets one that says so."""
    if place_of(job.job_type) is None:
        return
    with open_world(workspace) as world:
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


def _metrics(store: Store) -> int:
    print(_metrics_text(store), end="")
    return 0


def _list(store: Store, args: Namespace) -> int:
    held, jobs = store.read(
        lambda tx: (tx.leases.held(), tx.jobs.listing(state="running", limit=1000))
    )
    found = [
        {
            "name": lease.name.removeprefix("worker/"),
            "state": "lost" if lease.lapsed else "working",
            "jobs": [j.job_id for j in jobs if j.owner == lease.name],
        }
        for lease in held
        if lease.name.startswith("worker/")
    ]
    if args.json:
        emit({"workers": found})
        return 0
    for worker in found:
        show(
            f"  {sign('RUNNING' if worker['state'] == 'working' else 'LATE')} {worker['name']:<32}"
            f" {worker['state']:<8} {len(worker['jobs'])} jobs"
        )
    if not found:
        say("No worker runs. `kfm up` starts a scheduler and a worker.")
    return 0
