"""The process of one job: reads its order from stdin, works it in a world of its own, says how it
ended on stdout.

It lives no longer than whoever started it: when stdin ends, its whole process group is gone.
"""

import contextlib
import ctypes
import os
import resource
import signal
import threading
from pathlib import Path

import msgspec

from kfm.jobs.base import NO_RECEIPT, JobContext, JobResult, job_type, parameters_of, work
from kfm.jobs.job_log import JobLog
from kfm.jobs.worker import Ended
from kfm.model import Denied, JobRow, KfmError, Trace, stop_on_signals
from kfm.model.paths import version_folder
from kfm.model.window import seconds
from kfm.upkeep.attention import freshness
from kfm.workspace.folder import Workspace, open_workspace
from kfm.workspace.targets import targets_of
from kfm.workspace.wiring import open_world
from kfm.world.world import World

__all__ = ["Order", "context_of", "main", "perform"]


class Order(msgspec.Struct, frozen=True, kw_only=True):
    """What the process of a job is told."""

    job: JobRow
    run_id: str
    workspace: str
    upstream: str | None = None
    boundary: str = ""  # the governed API that decides; nothing: this process does
    memory_mb: int = 4096


def main() -> int:
    """Take one order."""
    line = b""
    while not line.endswith(b"\n"):
        read = os.read(0, 1 << 16)  # unbuffered: a thread reads on where this ends
        if not read:
            return 1
        line += read
    order = msgspec.json.decode(line, type=Order)
    answer = os.dup(1)
    os.dup2(2, 1)  # whatever job code prints is talk, not the answer
    threading.Thread(target=_die_with_parent, daemon=True).start()
    # Linux: also when this process holds the interpreter for long
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(1, signal.SIGKILL, 0, 0, 0)
    stop_on_signals(signal.SIGTERM)
    _limit(order.memory_mb)
    ended = perform(order)
    os.write(answer, msgspec.json.encode(ended) + b"\n")
    return 0


def _die_with_parent() -> None:
    while os.read(0, 4096):
        pass
    os.killpg(os.getpgid(0), signal.SIGKILL)


def _limit(memory_mb: int) -> None:
    """Private memory, so that mapped files do not count."""
    limit = memory_mb << 20
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(
        resource.RLIMIT_DATA, (min(limit, hard) if hard != resource.RLIM_INFINITY else limit, hard)
    )


def perform(order: Order) -> Ended:
    """Work a job as its order says."""
    job = order.job
    try:
        kind = job_type(job.job_type)
        workspace = open_workspace(Path(order.workspace))
        with open_world(workspace, upstream=order.upstream, boundary=order.boundary) as world:
            carried = msgspec.json.decode(job.envelope)
            trace = msgspec.convert(carried.get("trace", {}), Trace)
            world.marks = {**world.marks, "correlation_id": trace.correlation_id}
            if trace.traceparent:
                world.marks["traceparent"] = trace.traceparent
            given = carried.get("parameters", {})
            ctx = context_of(
                workspace,
                world,
                job,
                order.run_id,
                parameters_of(kind, given),
                order.upstream,
            )
            result = work(kind, ctx)
            entry = workspace.readable(job.dataset_id) if job.dataset_id else None
            # telemetry may be lost; the job is not
            with contextlib.suppress(KfmError, OSError, ValueError):
                _signal(workspace, world, job, order.run_id, result)
    except KfmError as error:
        until_ms = int(getattr(error, "until", 0) * 1000)
        return Ended(
            status="failed",
            reason=error.happened,
            error=str(error),
            retry=not isinstance(error, Denied),
            until_ms=until_ms,
            exit_code=error.exit_code,
        )
    return Ended(
        status="later" if result.exit_code == 5 else result.status,
        reason=result.reason,
        error=result.error,
        stack=result.stack,
        retry=result.retry,
        until_ms=result.until_ms,
        zone_in=kind.zone_in,
        zone_out=kind.zone_out,
        policy_label=(entry.policy_label or "") if entry is not None else "",
        receipt="" if result.receipt == NO_RECEIPT else result.receipt,
        exit_code=result.exit_code,
    )


def _signal(
    workspace: Workspace, world: World, job: JobRow, run_id: str, result: JobResult
) -> None:
    """How large what came out is, and how fresh the dataset is now."""
    log = JobLog(workspace.path / "ledger" / "logs", world.clock)
    for output in result.outputs:
        size = _size(
            world,
            next(
                (p for p, digest in result.files.items() if digest == output.checksum), output.id
            ).removeprefix("data/"),
        )
        if size is not None:
            log.signal("artifact.size_bytes", size, job, run_id, uri=output.id)
    delta = (
        freshness(world, job.dataset_id)
        if job.dataset_id and job.job_type == "ingest.pull_source"
        else None
    )
    if delta is not None:
        log.signal(
            "freshness.delta_minutes",
            delta,
            job,
            run_id,
            target_minutes=seconds(workspace.require(job.dataset_id).freshness) / 60,
        )


def _size(world: World, uri: str) -> int | None:
    """The size of a file, or of the data files of a version, that an output names."""
    dataset_id, _, rest = uri.removeprefix("kfm://dataset/").partition("@")
    version_id, _, name = rest.partition("/")
    folder = version_folder(dataset_id, version_id)
    if not version_id:
        paths = [] if "://" in uri else [uri]
    else:
        paths = (
            [f"{folder}/{name}"]
            if name
            else [p for p in world.data.names(folder) if p.endswith(".parquet")]
        )
    found = [held.size for p in paths if (held := world.data.held(p)) is not None]
    return sum(found) if found and len(found) == len(paths) else None


def context_of(
    workspace: Workspace,
    world: World,
    job: JobRow,
    run_id: str,
    parameters: msgspec.Struct,
    upstream: str | None,
) -> JobContext:
    """What a job of this workspace may use."""
    trace = msgspec.json.decode(job.envelope).get("trace", {})
    return JobContext(
        world=world,
        job=job,
        run_id=run_id,
        parameters=parameters,
        workspace_path=workspace.path,
        correlation_id=trace.get("correlation_id", ""),
        targets=lambda dataset_id, win="", trigger="worker": targets_of(
            workspace, dataset_id, win=win, trigger=trigger
        ),
        say=lambda event, **fields: None,
        upstream=upstream,
    )


if __name__ == "__main__":
    raise SystemExit(main())
