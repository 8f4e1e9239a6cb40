"""List, show, retry and cancel jobs.

kfm jobs list [--state queued|running|ended] [--dataset ID] [--type TYPE]
kfm jobs show JOB
kfm jobs put TYPE --dataset kfm://dataset/ID [--set NAME=VALUE] [--pool NAME] [--priority N] [--not-before TIME]
kfm jobs retry JOB|--dead
kfm jobs cancel JOB
kfm jobs dead
kfm jobs types
kfm jobs pools
"""

import contextlib
import datetime as dt
import re
from argparse import Namespace

import msgspec

from kfm.cli.call import Parser, again, emit, login
from kfm.cli.jobcall import dataset_id_of, settings_of, store_of
from kfm.cli.terminal import say, show, sign
from kfm.jobs import JOB_MODULES
from kfm.jobs.base import SAID, job_type, parameters_of
from kfm.jobs.job_log import JobLog
from kfm.model import ID_PATTERN, JobRow, Json, Request, SystemClock, UsageError
from kfm.model.window import window as parse_window
from kfm.store.base import Store
from kfm.store.jobs import envelope_of
from kfm.upkeep.pools import pool_rows
from kfm.workspace.folder import Workspace, open_workspace

__all__ = ["configure", "main"]

_SIGNS = {
    "queued": "FENCED",
    "running": "RUNNING",
    "succeeded": "COMMITTED",
    "skipped": "NOOP",
    "failed": "FAILED",
    "dead": "FAILED",
    "cancelled": "NOOP",
}


def configure(parser: Parser) -> None:
    parser.add_argument(
        "action", choices=("list", "show", "put", "retry", "cancel", "dead", "types", "pools")
    )
    parser.add_argument(
        "what",
        nargs="?",
        default="",
        metavar="JOB|TYPE",
        help="a job id or its beginning; put: a type",
    )
    parser.add_argument(
        "--state", choices=("queued", "running", "ended"), default=None, help="list: only these"
    )
    parser.add_argument(
        "--dataset",
        default="",
        metavar="kfm://dataset/ID",
        help="list: of this dataset; put: what it works on",
    )
    parser.add_argument(
        "--type", default=None, dest="job_type", metavar="TYPE", help="list: of this type"
    )
    parser.add_argument(
        "--limit", type=int, default=50, metavar="N", help="list: how many at the most"
    )
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="put: a parameter; repeatable",
    )
    parser.add_argument("--partition", default="", help="put: one partition")
    parser.add_argument("--window", default="", metavar="SINCE/UNTIL", help="put: one window")
    parser.add_argument("--pool", default="", help="put: the pool it runs in")
    parser.add_argument(
        "--priority", type=int, default=0, metavar="N", help="put: higher comes first"
    )
    parser.add_argument(
        "--not-before", default="", metavar="TIME", help="put: RFC 3339; it waits until then"
    )
    parser.add_argument("--dead", action="store_true", help="retry: every job that was put aside")


def main(args: Namespace) -> int:
    workspace = open_workspace(args.workspace)
    if args.action == "types":
        return _types(args)
    with store_of(workspace) as store:
        if args.action in ("list", "dead"):
            return _list(store, args)
        if args.action == "pools":
            return _pools(store, workspace, args)
        if args.action == "put":
            return _put(store, workspace, args)
        return _one(store, workspace, args)


def _plain(job: JobRow) -> Json:
    found = {
        k: v
        for k, v in msgspec.to_builtins(job).items()
        if k not in ("envelope", "vtime", "put_ms", "token")
    }
    return {**found, "not_before": _moment(job.not_before), "word": _word(job)}


def _moment(ms: int) -> str | None:
    return (
        dt.datetime.fromtimestamp(ms / 1000, dt.UTC)
        .isoformat(timespec="seconds")
        .replace("+00:00", "Z")
        if ms
        else None
    )


def _word(job: JobRow) -> str:
    return job.outcome if job.state == "ended" else job.state


def _list(store: Store, args: Namespace) -> int:
    dead = args.action == "dead"
    if not 1 <= args.limit <= 1_000_000:
        raise UsageError(
            f"--limit {args.limit} is no number of jobs.",
            expected="1 to 1000000",
            remedy="Correct it.",
        )
    found = store.read(
        lambda tx: tx.jobs.listing(
            state="ended" if dead else args.state,
            dataset_id=dataset_id_of(args.dataset) if args.dataset else None,
            job_type=args.job_type,
            outcome="dead" if dead else None,
            limit=args.limit,
        )
    )
    if args.json:
        emit({"jobs": [_plain(job) for job in found]})
        return 0
    for job in found:
        show(
            f"  {sign(_SIGNS.get(_word(job), '?'))} {job.job_id[:8]}  {job.job_type:<24}"
            f" {job.dataset_id:<20} {_word(job):<10} {_why(job, store.now_ms())}"
        )
    if not found:
        say("No job was put aside." if dead else "No jobs.")
    elif dead:
        say(
            f"`{again(args, 'jobs retry --dead')}` tries all of them again;"
            f" `{again(args, 'jobs show JOB')}` says what happened."
        )
    return 0


def _why(job: JobRow, now_ms: int) -> str:
    if job.state == "queued":
        until = (
            f"not before {_moment(job.not_before)}"
            if job.not_before > now_ms
            else f"pool {job.pool}"
        )
        if job.outcome == "deferred":
            return f"{until}; {job.error}"
        return f"{until}; {job.attempts} failed: {job.error}" if job.attempts else until
    if job.state == "running":
        return (
            f"on {(job.owner or 'a command').removeprefix('worker/')} since"
            f" {(job.started_at or '')[:19]}"
        )
    return job.error or f"{(job.ended_at or '')[:19]}"


def _find(store: Store, text: str) -> JobRow:
    if not text:
        raise UsageError(
            "No job is named.", expected="a job id", remedy="`kfm jobs list` shows them."
        )
    exact: JobRow | None = store.read(lambda tx: tx.jobs.of(text)) if text.isascii() else None
    if exact is not None:
        return exact
    near: list[JobRow] = [
        j
        for j in store.read(lambda tx: tx.jobs.listing(limit=100_000))
        if j.job_id.startswith(text)
    ]
    if len(near) != 1:
        what = f"{len(near)} jobs begin with {text}" if near else f"There is no job {text}"
        raise UsageError(
            f"{what}.", expected="the id of one job", remedy="`kfm jobs list` shows them."
        )
    return near[0]


def _one(store: Store, workspace: Workspace, args: Namespace) -> int:
    if args.action == "retry" and args.dead:
        jobs = store.read(lambda tx: tx.jobs.listing(state="ended", outcome="dead", limit=100_000))
        for job in jobs:
            store.transaction(lambda tx: tx.jobs.retry(job.job_id))
        (
            emit({"retried": [j.job_id for j in jobs]})
            if args.json
            else print(f"{len(jobs)} jobs wait again.")
        )
        return 0
    job = _find(store, args.what)
    if args.action == "retry":
        job = store.transaction(lambda tx: tx.jobs.retry(job.job_id))
    elif args.action == "cancel":
        waited = job.state == "queued"
        job = store.transaction(lambda tx: tx.jobs.cancel(job.job_id))
        if waited and job.outcome == "cancelled":  # no worker will tell of it
            log = JobLog(workspace.path / "ledger" / "logs", SystemClock())
            log.signal("run.lifecycle", "queued", job, "", timestamp=job.put_at)
            log.signal("run.lifecycle", "cancelled", job, "")
    if args.json:
        emit({"job": _plain(job), "envelope": msgspec.to_builtins(envelope_of(job))})
        return 0
    show(
        f"{sign(_SIGNS.get(_word(job), '?'))} {job.job_id}  {job.job_type} "
        f" {_word(job)}{', told to stop' if job.cancel else ''}"
    )
    facts = (
        ("dataset", job.dataset_id),
        ("partition", job.partition),
        ("window", job.win),
        ("pool", job.pool),
        ("asked for", job.put_at[:19]),
        ("times", str(job.generation)),
        ("failed", job.tries if job.attempts else ""),
        ("why", job.reason),
        (
            "waits until",
            (
                _moment(job.not_before)
                if job.state == "queued" and job.not_before > store.now_ms()
                else ""
            ),
        ),
        ("worker", (job.owner or "").removeprefix("worker/")),
        ("error", job.error),
    )
    for name, value in facts:
        if value:
            show(f"  {name:<12} {value}")
    if job.outcome in ("dead", "failed") and job.state == "ended":
        say(f"  next         `{again(args, f'jobs retry {job.job_id[:8]}')}` tries it again")
    return 0


def _put(store: Store, workspace: Workspace, args: Namespace) -> int:
    kind = job_type(args.what)
    dataset_id = dataset_id_of(args.dataset) if args.dataset else ""
    entry = workspace.require(dataset_id) if dataset_id else None
    if kind.name == "ingest.pull_source" and entry is None:
        raise UsageError(
            "An ingest wants a dataset.",
            expected="--dataset kfm://dataset/ID",
            remedy="`kfm dataset list` shows them.",
        )
    if args.partition and (entry is None or args.partition not in entry.partitions):
        raise UsageError(
            f"There is no partition {args.partition}.",
            expected="one the registry names",
            remedy="`kfm dataset show ID`.",
        )
    if not re.fullmatch(f"({ID_PATTERN})?", args.pool) or abs(args.priority) > 1_000_000:
        raise UsageError(
            "That is no pool, or no priority.",
            expected="a plain name; -1000000 to 1000000",
            remedy="Correct it.",
        )
    window = parse_window(args.window, SystemClock().now()) if args.window else ""
    at = _milliseconds(args.not_before) if args.not_before else 0
    request = Request(
        job_type=kind.name,
        parameters=settings_of(args.set),
        requested_by=login(),
        dataset_id=dataset_id,
        partition=args.partition,
        win=window,
        pool=args.pool or (entry.pool if entry else ""),
        priority=args.priority,
        not_before=at,
        max_attempts=kind.max_attempts,
    )
    parameters_of(kind, request.parameters)
    job: JobRow = store.transaction(lambda tx: tx.jobs.submit(request))
    emit({"job": _plain(job)}) if args.json else print(job.job_id)
    return 0


def _milliseconds(text: str) -> int:
    with contextlib.suppress(ValueError, OverflowError):
        moment = dt.datetime.fromisoformat(text)
        if moment.tzinfo is not None and moment.astimezone(dt.UTC).year > 1970:
            return int(moment.timestamp() * 1000)
    raise UsageError(
        f"{text!r} is no moment.",
        expected="RFC 3339, such as 2026-11-15T06:00:00Z",
        remedy="Correct --not-before.",
    )


def _types(args: Namespace) -> int:
    kinds = [job_type(name) for name in JOB_MODULES]
    if args.json:
        shown = (*SAID, "timeout_s", "memory_mb", "max_attempts")
        emit(
            {
                "types": [
                    {n: getattr(k, n) for n in shown}
                    | {"parameters": list(k.parameters.__struct_fields__)}
                    for k in kinds
                ]
            }
        )
        return 0
    for kind in kinds:
        print(
            f"  {kind.name:<24} {kind.purpose}\n{'':<27}{kind.inputs} -> {kind.outputs};"
            f" {kind.triggers}"
        )
        if kind.parameters.__struct_fields__:
            print(f"{'':<27}--set {', '.join(kind.parameters.__struct_fields__)}")
    return 0


def _pools(store: Store, workspace: Workspace, args: Namespace) -> int:
    rows = store.read(lambda tx: pool_rows(tx, store.now_ms()))
    if args.json:
        emit({"pools": msgspec.to_builtins(rows)})
        return 0
    for row in rows:
        slots = f"{row.running} of {row.slots}" if row.slots else f"{row.running}"
        waits = f", the oldest for {row.wait_ms / 1000:.0f} s" if row.queued else ""
        show(
            f"  {sign('RUNNING' if row.running else 'NOOP')} {row.name:<16} {slots} running,"
            f" {row.queued} wait{waits} {row.paused}"
        )
    return 0
