"""Keep everything here fresh, and show it: a scheduler, a worker and a reader in one command, until
it is stopped.
"""

import contextlib
import sys
import threading
from collections.abc import Iterator

from kfm.cli.answer import Call
from kfm.cli.scheduler import make_scheduler
from kfm.cli.terminal import say, sign
from kfm.cli.until_stopped import check_writable
from kfm.cli.webhook import receiving
from kfm.cli.worker import Stopped, make_worker
from kfm.jobs.job_log import Told
from kfm.jobs.schedule.scheduler import Scheduler
from kfm.model import JobRow, KfmError, MissingExtra, SystemClock
from kfm.reader.serve import PORT, reading
from kfm.webhook.serve import Address
from kfm.workspace.config import schedule_files
from kfm.workspace.folder import Workspace, open_workspace
from kfm.workspace.wiring import open_world
from kfm.world.world import World

__all__ = ["kept_fresh"]

_SIGNS = {"started": "RUNNING", "succeeded": "COMMITTED", "failed": "FAILED", "skipped": "NOOP"}


_NEARBY = 20  # ports that are tried after the usual one, for a second workspace


def kept_fresh(
    call: Call,
    concurrency: int,
    upstream: str | None,
    port: int | None,
    until_idle: bool,
    no_webhooks: bool,
    no_serve: bool,
) -> Stopped:
    workspace = open_workspace(call.workspace)
    check_writable(workspace)
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
        _say_who_else(world)
        worker = make_worker(
            workspace, world.store, slots=concurrency, upstream=upstream, heard=_heard
        )
        scheduler.tick()
        thread = threading.Thread(
            target=_schedule, args=(scheduler, stop), name="kfm-scheduler", daemon=True
        )
        thread.start()
        say(
            f"{sign('RUNNING', sys.stderr)} {len(tables())} schedules, {concurrency} jobs at"
            " once; Ctrl-C finishes what runs, twice stops it"
        )
        try:
            # who waits until nothing is due looks at nothing meanwhile
            with (
                _told(workspace, world, no_webhooks),
                _shown(workspace, port, no_serve or until_idle),
            ):
                code = worker.run(until_idle=until_idle)
        finally:
            stop.set()
            for _ in range(20):  # it rests until somebody rings
                if not thread.is_alive():
                    break
                with contextlib.suppress(KfmError, OSError, ValueError):
                    world.store.transaction(lambda tx: tx.jobs.wake())
                thread.join(0.5)
    return Stopped(worker=worker.name, worked=worker.worked, exit_code=code)


def _say_who_else(world: World) -> None:
    """Whoever starts it twice by mistake is told."""
    held = world.store.read(lambda tx: tx.leases.held())
    others = sum(each.name.startswith("worker/") and not each.lapsed for each in held)
    if others:
        many = "a worker is" if others == 1 else f"{others} workers are"
        say(
            f"{sign('RUNNING', sys.stderr)} {many} at work here already, and this one shares the"
            " jobs: `kfm worker list`"
        )


@contextlib.contextmanager
def _told(workspace: Workspace, world: World, quiet: bool) -> Iterator[None]:
    """Receive webhooks meanwhile, where somebody may send some; whatever keeps us from that keeps
    us from nothing else.
    """
    with contextlib.ExitStack() as kept:
        thread = None
        if not quiet and schedule_files(workspace.path, "webhooks"):
            try:
                found, _ = kept.enter_context(receiving(workspace, world))
                kept.callback(found.stop)
                thread = threading.Thread(target=found.serve, name="kfm-webhook", daemon=True)
                thread.start()
            except KfmError as error:
                say(f"{sign('FAILED', sys.stderr)} webhooks: {error}")
        yield
        if thread is not None:
            found.stop()
            thread.join(15)


@contextlib.contextmanager
def _shown(workspace: Workspace, port: int | None, quiet: bool) -> Iterator[None]:
    """Show it in a browser meanwhile, to who works at this machine; whatever keeps us from that
    keeps us from nothing else.
    """
    with contextlib.ExitStack() as kept:
        if not quiet:
            at, more = (PORT, _NEARBY) if port is None else (port, 0)
            try:
                found = kept.enter_context(
                    reading(workspace, Address("127.0.0.1", at), console=True, nearby=more)
                )
                thread = threading.Thread(target=found.serve, name="kfm-reader", daemon=True)
                thread.start()
                kept.callback(thread.join, 15)
                kept.callback(found.stop)
                say(f"{sign('RUNNING', sys.stderr)} {found.address.url}/ shows it: `kfm open`")
            except MissingExtra as error:
                say(f"{sign('LATE', sys.stderr)} not shown in a browser: {error}")
            except KfmError as error:
                say(f"{sign('FAILED', sys.stderr)} not shown in a browser: {error}")
        yield


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
