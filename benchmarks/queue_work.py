"""The job of the queue benchmarks, and the two processes they start: one that asks for jobs, one
that works them.

    python -m benchmarks.queue_work enqueue STORE N GAP_MS FIRST
    python -m benchmarks.queue_work worker STORE NAME

The body is the peers': an optional sleep, then one appended line `id t_enqueued t_done`. Its keyed
effect is a row written in the transaction that ends the job, counted and not merely unique: a
second writing would show.
"""

import os
import sys
import time
from pathlib import Path
from typing import Any

__all__ = ["light", "open_store", "request"]

_SLEEP_S = float(os.environ.get("JOB_MS", "0")) / 1000
_lines = -1


def open_store(where: str) -> Any:
    """The store at a path, or at an address of PostgreSQL."""
    from kfm.model.clock import SystemClock

    if where.startswith("postgresql:"):
        from kfm.extras.postgres.store import PostgresStore

        return PostgresStore(where, SystemClock())
    from kfm.store.sqlite import SqliteStore

    return SqliteStore(Path(where), SystemClock())


def light(job: Any) -> tuple[tuple[str, str], ...]:
    """One job."""
    global _lines
    if _lines < 0:
        _lines = os.open(os.environ["JOBFILE"], os.O_APPEND | os.O_CREAT | os.O_WRONLY, 0o644)
    if _SLEEP_S:
        time.sleep(_SLEEP_S)
    number, _, at = job.reason.partition(" ")
    os.write(_lines, b"%d %s %.6f\n" % (int(number), at.encode(), time.time()))
    return ((f"queue:{number}", ""),)


def request(number: int) -> Any:
    """The question for job `number`, asked now."""
    from kfm.model.job import Request

    return Request(
        job_type="bench.line",
        pool="light",
        event=str(number),
        reason=f"{number} {time.time():.6f}",
        max_attempts=5,
    )


def enqueue(where: str, count: int, gap_s: float, first: int) -> None:
    store = open_store(where)
    store.read(lambda tx: None)  # the connection is the start's, not the first job's
    began = time.perf_counter()
    for number in range(first, first + count):
        asked = request(number)
        store.transaction(lambda tx: tx.jobs.submit(asked))
        if gap_s:
            time.sleep(gap_s)
    print("ENQ", time.perf_counter() - began, flush=True)
    store.close()


def worker(where: str, name: str) -> int:
    from kfm.jobs import JOB_MODULES
    from kfm.jobs.worker import Worker
    from kfm.model.clock import SystemClock

    JOB_MODULES["bench.line"] = "benchmarks.queue_work"
    store = open_store(where)
    try:
        return Worker(
            store,
            SystemClock(),
            name=name,
            slots=1,
            lease_seconds=float(os.environ.get("LEASE_S", "15")),
        ).run()
    finally:
        store.close()


if __name__ == "__main__":
    if sys.argv[1] == "enqueue":
        enqueue(sys.argv[2], int(sys.argv[3]), float(sys.argv[4]) / 1000, int(sys.argv[5]))
    else:
        raise SystemExit(worker(sys.argv[2], sys.argv[3]))
