"""Keep everything here fresh: a scheduler and a worker in one command, until it is stopped."""

import contextlib
import sys
import threading
from argparse import Namespace

from kfm.cli.call import Parser, upstream_flag
from kfm.cli.scheduler import make_scheduler
from kfm.cli.terminal import say, sign
from kfm.cli.worker import make_worker
from kfm.jobs.job_log import Told
from kfm.jobs.schedule.scheduler import Scheduler
from kfm.model import JobRow, KfmError, SystemClock
from kfm.workspace.folder import open_workspace
from kfm.workspace.wiring import open_world

__all__ = ["configure", "main"]

_SIGNS = {"started": "RUNNING", "succeeded": "COMMITTED", "failed": "FAILED", "skipped": "NOOP"}


def configure(parser: Parser) -> None:
    parser.add_argument(
        "--concurrency", type=int, default=2, metavar="N", help="how many jobs at once; default: 2"
    )
    upstream_flag(parser)
    parser.add_argument(
        "--until-idle", action="store_true", help="stop when nothing is left that is due"
    )


def main(args: Namespace) -> int:
    workspace = open_workspace(args.workspace)
    stop = threading.Event()
    with open_world(workspace) as world:
        scheduler, tables = make_scheduler(workspace, world)
        for problem in tables.problems:
            say(f"  {sign('FAILED', sys.stderr)} {problem.file}: {problem.what} {problem.remedy}")
        if not tables():
            say(
                "Nothing is scheduled: give a dataset a `cadence` in its registry entry. Jobs that"
                " are put by hand are worked."
            )
        worker = make_worker(
            workspace, world.store, slots=args.concurrency, upstream=args.upstream, heard=_heard
        )
        scheduler.tick()
        thread = threading.Thread(
            target=_schedule, args=(scheduler, stop), name="kfm-scheduler", daemon=True
        )
        thread.start()
        say(
            f"{sign('RUNNING', sys.stderr)} {len(tables())} schedules, {args.concurrency} jobs at"
            " once; Ctrl-C finishes what runs, twice stops it"
        )
        try:
            return worker.run(until_idle=args.until_idle)
        finally:
            stop.set()
            for _ in range(20):  # it rests until somebody rings
                if not thread.is_alive():
                    break
                with contextlib.suppress(KfmError, OSError, ValueError):
                    world.store.transaction(lambda tx: tx.jobs.wake())
                thread.join(0.5)


def _schedule(scheduler: Scheduler, stop: threading.Event) -> None:
    while not stop.is_set():
        try:
            scheduler.run(stopping=stop.is_set)
        except (KfmError, OSError, ValueError) as error:
            if stop.is_set():
                return
            say(f"{sign('FAILED', sys.stderr)} the scheduler met: {error}")
            stop.wait(5)


def _heard(job: JobRow, status: str, told: Told) -> None:
    if status == "started" and not sys.stderr.isatty():
        return
    at = SystemClock().now().astimezone().strftime("%H:%M:%S")
    took = f"{told.duration_ms / 1000:6.2f} s" if told.duration_ms else ""
    error = told.error or {}
    say(
        f"{at} {sign(_SIGNS[status], sys.stderr)} {job.job_type:<24} {job.dataset_id:<22}"
        f" {status:<10} {took}  {error.get('message') or told.reason}"
    )
