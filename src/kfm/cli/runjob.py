"""Work a single job now, through the same table and the same entry point as a worker."""

import os
import secrets
import time
from functools import partial
from pathlib import Path

import msgspec

from kfm.cli.answer import Answer, Call
from kfm.cli.call import login
from kfm.cli.jobcall import boundary_of, dataset_id_of, run_here, settings_of, store_of
from kfm.cli.rebuild import MadeAgain, made_again
from kfm.cli.terminal import say, show, sign, write
from kfm.evidence.receipts import read_receipt
from kfm.evidence.run_end import FOLLOWING
from kfm.jobs.base import job_type, parameters_of
from kfm.jobs.heartbeat import Heartbeat
from kfm.jobs.job_log import JobLog, Told
from kfm.jobs.worker import LATER_MS, Ended
from kfm.model import (
    Denied,
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
from kfm.model.window import window as parse_window
from kfm.run.claim import check_switch
from kfm.store.base import Store, Tx
from kfm.workspace.folder import Workspace, open_workspace

__all__ = ["Repeated", "WorkedHere", "worked_here"]

_SIGNS = {"succeeded": "COMMITTED", "skipped": "NOOP", "later": "FENCED"}
_CODES = {"succeeded": 0, "skipped": 0, "later": Fenced.exit_code}


class Worked(msgspec.Struct, frozen=True, kw_only=True):
    """A job, and how it ended."""

    job_id: str
    job_type: str
    dataset_id: str
    status: str
    reason: str
    receipt: str | None
    error: str | None
    exit_code: int


class WorkedHere(Answer, frozen=True, kw_only=True):
    """A job that was done here, and those that followed from it."""

    jobs: list[Worked]

    @property
    def code(self) -> int:
        return max((job.exit_code for job in self.jobs), default=0)

    def tell(self, call: Call) -> None:
        if not self.jobs:
            say("Nothing waits.")
        for job in self.jobs:
            show(
                f"  {sign(_SIGNS.get(job.status, 'FAILED'))} {job.job_type:<24}"
                f" {job.dataset_id:<22} {job.status:<10} {job.reason}"
            )
            if job.receipt:
                show(f"      {job.receipt}")
            if job.status == "failed":
                say(f"      {job.error}")


class Repeated(Answer, frozen=True, kw_only=True):
    """What a receipt tells of, done once more, and what came out."""

    run_id: str
    job_type: str
    equal: bool
    then: dict[str, str]
    now: dict[str, str]

    @property
    def code(self) -> int:
        return 0 if self.equal else IntegrityError.exit_code

    def tell(self, call: Call) -> None:
        write(
            f"{sign('PASS' if self.equal else 'FAILED')} {self.job_type} of {self.run_id}:"
            f" {len(self.now)} outputs {'equal' if self.equal else 'differ'}"
        )
        for name in sorted(self.then.keys() | self.now.keys()):
            then, now = self.then.get(name), self.now.get(name)
            if then != now:
                write(f"  {name}\n    then {then}\n    now  {now}")
        if not self.equal:
            say("The receipt tells of other outputs than were made now.")


def worked_here(
    call: Call,
    type: str | None,
    dataset: str,
    partition: str,
    window: str,
    set: list[str],
    receipt: Path | None,
    no_follow: bool,
    queued: bool,
    upstream: str | None,
    boundary: str,
) -> WorkedHere | Repeated | MadeAgain:
    """One job, then the jobs that follow from it."""
    workspace, asked = open_workspace(call.workspace), boundary_of(boundary)
    if receipt is not None:
        if asked:
            raise UsageError(
                "What a receipt tells of is made again by the rules that lie here.",
                expected="--receipt, or a boundary elsewhere",
                remedy="Leave --boundary and KFM_BOUNDARY out.",
            )
        return _again(call, workspace, receipt, upstream)
    if not type:
        raise UsageError(
            "No type of job is named.",
            expected="kfm worker run-job TYPE --dataset kfm://dataset/ID",
            remedy="`kfm jobs types` lists them.",
        )
    kind = job_type(type)
    dataset_id = dataset_id_of(dataset) if dataset else ""
    pinned = (
        (Input(kind="dataset", id=f"kfm://dataset/{dataset.removeprefix('kfm://dataset/')}"),)
        if "@" in dataset
        else ()
    )
    if dataset_id:
        workspace.require(dataset_id)
    request = Request(
        job_type=kind.name,
        parameters=settings_of(set),
        requested_by=login(),
        dataset_id=dataset_id,
        partition=partition,
        win=parse_window(window, SystemClock().now()) if window else "",
        inputs=pinned,
        max_attempts=kind.max_attempts,
    )
    parameters_of(kind, request.parameters)
    return _answer(
        _worked(workspace, request, upstream, asked, follow=not no_follow, queued=queued)
    )


def _answer(done: list[tuple[JobRow, Ended]]) -> WorkedHere:
    return WorkedHere(
        jobs=[
            Worked(
                job_id=job.job_id,
                job_type=job.job_type,
                dataset_id=job.dataset_id,
                status=ended.status,
                reason=ended.reason,
                receipt=ended.receipt or None,
                error=ended.error or None,
                exit_code=_CODES.get(ended.status, ended.exit_code or 1),
            )
            for job, ended in done
        ]
    )


def _worked(
    workspace: Workspace,
    request: Request,
    upstream: str | None,
    boundary: str,
    *,
    follow: bool,
    queued: bool = False,
) -> list[tuple[JobRow, Ended]]:
    """The job and, with `follow`, what it put into the queue; `queued`: those that wait already,
    one after the other.
    """
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
            job = _waiting(store, token, request) if queued else _take(store, token, request)
            while job is not None:
                # nobody asked for more than one try, but of what a worker would try again
                work = partial(
                    _one,
                    store,
                    token,
                    workspace,
                    upstream=upstream,
                    boundary=boundary,
                    again=queued,
                )
                done.append((job, work(job)))
                while follow and done[-1][1].status in ("succeeded", "skipped"):
                    follows = store.transaction(partial(_next, token, request.dataset_id, job))
                    if follows is None:
                        break
                    done.append((follows, work(follows)))
                job = _waiting(store, token, request) if queued else None
        finally:
            heart.stop()
            store.transaction(lambda tx: tx.leases.release(token))
    return done


def _next(token: Token, dataset_id: str, job: JobRow, tx: Tx) -> JobRow | None:
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


def _waiting(store: Store, token: Token, request: Request) -> JobRow | None:
    """Take the oldest job of this type and dataset that is due; None: nothing waits."""

    def take(tx: Tx) -> JobRow | None:
        rows = tx.jobs.listing(
            state="queued", dataset_id=request.dataset_id, job_type=request.job_type
        )
        due = [row for row in rows if row.not_before <= store.now_ms()]
        taken = (
            tx.queue.claim_one(token, row.job_id) for row in sorted(due, key=lambda r: r.put_ms)
        )
        return next(filter(None, taken), None)

    return store.transaction(take)


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
    store: Store,
    token: Token,
    workspace: Workspace,
    job: JobRow,
    *,
    upstream: str | None,
    boundary: str,
    again: bool,
) -> Ended:
    run_id, began = str(ids.new_run_id()), time.monotonic()
    log = JobLog(workspace.path / "ledger" / "logs", SystemClock())
    log.tell(job, run_id, "started", Told(wait_ms=job.wait_ms or 0))
    ended: Ended = run_here(workspace, job, run_id, upstream, boundary)
    log.tell(job, run_id, ended.word, ended.told(int((time.monotonic() - began) * 1000)))

    def close(tx: Tx) -> None:
        if ended.status == "failed":
            tx.queue.fail(
                token,
                job,
                ended.error or ended.reason,
                retry=again and ended.retry,
                denied=again and ended.exit_code == Denied.exit_code,
                until_ms=ended.until_ms if again else 0,
            )
        elif ended.status == "later":
            # another run is at it; it may have been asked for before us
            tx.queue.release(token, [job], LATER_MS)
        else:
            tx.queue.finish(token, job, ended.status)

    store.transaction(close)
    return ended


# ---- from a receipt ------------------------------------------------------------------------------
def _again(
    call: Call, workspace: Workspace, receipt: Path, upstream: str | None
) -> WorkedHere | Repeated | MadeAgain:
    """Do what a receipt tells of once more, and compare the digests of what comes out."""
    try:
        told = msgspec.json.decode(read_receipt(receipt), type=Receipt)
    except (OSError, msgspec.DecodeError) as error:
        raise UsageError(
            f"{receipt.name} is not a receipt: {error}.",
            expected="a file below receipts/",
            remedy="Check the path.",
        ) from error
    if told.job_type == "ingest.pull_source":
        return made_again(call, receipt, None)
    inputs = tuple(
        Input(
            kind="dataset", id=i.id, checksum=i.checksum if i.checksum.startswith("sha256:") else ""
        )
        for i in told.inputs
        if i.kind == "dataset" and "@" in i.id
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
    job, ended = _worked(workspace, request, upstream, "", follow=False)[0]
    if ended.status == "failed" or not ended.receipt:  # given back untried: nothing to compare
        return _answer([(job, ended)])
    made = msgspec.json.decode((workspace.path / ended.receipt).read_bytes(), type=Receipt)
    then, now = ({o.id: o.checksum for o in each.outputs} for each in (told, made))
    return Repeated(
        run_id=told.run_id, job_type=told.job_type, equal=then == now, then=then, now=now
    )
