"""Work a single job now, through the same table and the same entry point as a worker."""

import os
import secrets
import time
from argparse import Namespace
from pathlib import Path

import msgspec

from kfm.cli import rebuild
from kfm.cli.call import emit, login
from kfm.cli.jobcall import dataset_id_of, run_here, settings_of, store_of
from kfm.cli.terminal import say, show, sign
from kfm.evidence.receipts import read_receipt
from kfm.evidence.run_end import FOLLOWING
from kfm.jobs.base import job_type, parameters_of
from kfm.jobs.job_log import JobLog, Told
from kfm.jobs.worker import LATER_MS, Ended
from kfm.model import (
    Fenced,
    Input,
    IntegrityError,
    JobRow,
    Receipt,
    Request,
    SystemClock,
    Token,
    UsageError,
    ids,
)
from kfm.run.claim import check_switch
from kfm.store.base import Store, Tx
from kfm.store.heartbeat import Heartbeat
from kfm.workspace.folder import Workspace

__all__ = ["run_job"]


def run_job(workspace: Workspace, args: Namespace) -> int:
    """One job, then the jobs that follow from it."""
    if args.receipt is not None:
        return _again(workspace, args)
    if not args.type:
        raise UsageError(
            "No type of job is named.",
            expected="run-job TYPE --dataset kfm://dataset/ID",
            remedy="`kfm jobs types` lists them.",
        )
    kind = job_type(args.type)
    dataset_id = dataset_id_of(args.dataset) if args.dataset else ""
    pinned = (
        (Input(kind="dataset", id=f"kfm://dataset/{args.dataset.removeprefix('kfm://dataset/')}"),)
        if "@" in args.dataset
        else ()
    )
    if dataset_id:
        workspace.require(dataset_id)
    request = Request(
        job_type=kind.name,
        parameters=settings_of(args.set),
        requested_by=login(),
        dataset_id=dataset_id,
        partition=args.partition,
        win=args.window,
        inputs=pinned,
        max_attempts=kind.max_attempts,
    )
    parameters_of(kind, request.parameters)
    ended = _worked(workspace, request, args.upstream, follow=not args.no_follow)
    return _tell(workspace, ended, args)


def _worked(
    workspace: Workspace, request: Request, upstream: str | None, *, follow: bool
) -> list[tuple[JobRow, Ended]]:
    """The job and, with `follow`, what it put into the queue."""
    done: list[tuple[JobRow, Ended]] = []
    with store_of(workspace) as store:
        name = f"worker/run-job-{os.uname().nodename}-{os.getpid()}-{secrets.token_hex(2)}"
        token = store.transaction(
            lambda tx: tx.leases.take(name, "run-job", workspace.config.lease_seconds)
        )
        if token is None:
            raise Fenced(
                f"Another process is called {name}.",
                expected="a name of its own",
                remedy="Run it again.",
            )
        heart = Heartbeat(store, workspace.config.lease_seconds)
        heart.add(token)
        try:
            job = _take(store, token, request)
            done.append((job, _one(store, token, workspace, job, upstream)))
            while follow and done[-1][1].status in ("succeeded", "skipped"):
                follows = store.transaction(lambda tx: _next(tx, token, request.dataset_id, job))
                if follows is None:
                    break
                done.append((follows, _one(store, token, workspace, follows, upstream)))
        finally:
            heart.stop()
            store.transaction(lambda tx: tx.leases.release(token))
    return done


def _next(tx: Tx, token: Token, dataset_id: str, job: JobRow) -> JobRow | None:
    """Take a job that the run of this one asked for, judging what came in or making something of
    it, unless a worker was faster.
    """
    waiting = tx.jobs.listing(state="queued", dataset_id=dataset_id) if dataset_id else []
    found = (
        j.job_id
        for j in waiting
        if j.job_type in FOLLOWING and j.put_ms >= job.put_ms and not j.attempts
    )
    job_id = next(found, None)
    return None if job_id is None else tx.queue.claim_one(token, job_id)


def _take(store: Store, token: Token, request: Request) -> JobRow:
    """Ask for a job and take it, before a worker that rests can."""

    def take(tx: Tx) -> tuple[JobRow, JobRow | None]:
        asked = tx.jobs.submit(request)
        return asked, tx.queue.claim_one(token, asked.job_id)

    job: JobRow | None
    asked, job = store.transaction(take)
    if job is None:
        store.read(lambda tx: check_switch(tx, asked.dataset_id, asked.job_type))
        raise Fenced(
            f"A worker has job {asked.job_id} already.",
            expected="it to wait",
            remedy=f"`kfm jobs show {asked.job_id}` shows it.",
        )
    return job


def _one(
    store: Store, token: Token, workspace: Workspace, job: JobRow, upstream: str | None
) -> Ended:
    run_id, began = str(ids.new_run_id()), time.monotonic()
    log = JobLog(workspace.path / "ledger" / "logs", SystemClock())
    log.tell(job, run_id, "started", Told(wait_ms=job.wait_ms or 0))
    ended: Ended = run_here(workspace, job, run_id, upstream)
    log.tell(job, run_id, ended.word, ended.told(int((time.monotonic() - began) * 1000)))

    def close(tx: Tx) -> None:
        if ended.status == "failed":
            # nobody asked for more than one try
            tx.queue.fail(token, job, ended.error or ended.reason, retry=False)
        elif ended.status == "later":
            # another run is at it; it may have been asked for before us
            tx.queue.release(token, [job], LATER_MS)
        else:
            tx.queue.finish(token, job, ended.status)

    store.transaction(close)
    return ended


def _tell(workspace: Workspace, done: list[tuple[JobRow, Ended]], args: Namespace) -> int:
    code = max(
        {"succeeded": 0, "skipped": 0, "later": 5}.get(e.status, e.exit_code or 1) for _, e in done
    )
    if args.json:
        emit(
            {
                "jobs": [
                    {
                        "job_id": j.job_id,
                        "job_type": j.job_type,
                        "dataset_id": j.dataset_id,
                        "status": e.status,
                        "reason": e.reason,
                        "receipt": e.receipt or None,
                        "error": e.error or None,
                    }
                    for j, e in done
                ]
            }
        )
        return code
    for job, ended in done:
        state = {"succeeded": "COMMITTED", "skipped": "NOOP", "later": "FENCED"}.get(
            ended.status, "FAILED"
        )
        show(
            f"  {sign(state)} {job.job_type:<24} {job.dataset_id:<22} {ended.status:<10}"
            f" {ended.reason}"
        )
        if ended.receipt:
            show(f"      {ended.receipt}")
        if ended.status == "failed":
            say(f"      {ended.error}")
    if code:
        say(f"exit {code}")
    return code


# ---- from a receipt ------------------------------------------------------------------------------
def _again(workspace: Workspace, args: Namespace) -> int:
    """Do what a receipt tells of once more, and compare the digests of what comes out."""
    try:
        told = msgspec.json.decode(read_receipt(args.receipt), type=Receipt)
    except (OSError, msgspec.DecodeError) as error:
        raise UsageError(
            f"{args.receipt.name} is not a receipt: {error}.",
            expected="a file below receipts/",
            remedy="Check the path.",
        ) from error
    if told.job_type == "ingest.pull_source":
        return rebuild.main(args)
    named = [i for i in told.inputs if i.kind == "dataset" and "@" in i.id]
    inputs = tuple(
        Input(
            kind="dataset", id=i.id, checksum=i.checksum if i.checksum.startswith("sha256:") else ""
        )
        for i in named
    )
    request = Request(
        job_type=told.job_type,
        dataset_id=told.dataset_id,
        inputs=inputs,
        parameters=told.parameters,
        reason=f"as {told.run_id}",
        event=str(ids.new_run_id()),
        requested_by="system",
    )
    job, ended = _worked(workspace, request, args.upstream, follow=False)[0]
    if ended.status == "failed" or not ended.receipt:  # given back untried: nothing to compare
        return _tell(workspace, [(job, ended)], args)
    made = msgspec.json.decode((workspace.path / ended.receipt).read_bytes(), type=Receipt)
    return _compared(told, made, args.receipt, args.json)


def _compared(told: Receipt, made: Receipt, path: Path, as_json: bool) -> int:
    then, now = ({o.id: o.checksum for o in r.outputs} for r in (told, made))
    equal = then == now
    if as_json:
        emit(
            {
                "run_id": told.run_id,
                "job_type": told.job_type,
                "equal": equal,
                "then": then,
                "now": now,
            }
        )
    else:
        print(
            f"{sign('PASS' if equal else 'FAILED')} {told.job_type} of {told.run_id}: {len(now)}"
            f" outputs {'equal' if equal else 'differ'}"
        )
        for name in sorted(then.keys() | now.keys()):
            if then.get(name) != now.get(name):
                print(f"  {name}\n    then {then.get(name)}\n    now  {now.get(name)}")
        if not equal:
            say(f"{path.name} tells of other outputs than were made now.\nexit 6")
    return 0 if equal else IntegrityError.exit_code
