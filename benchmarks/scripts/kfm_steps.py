"""Ours: no-op steps, each journalled in a real Journal on a real store under a held lease. argv:
folder, steps, runs at once.

Per step one durable commit (the intent), the effect, and a DONE that rides in the next step's
commit.
"""

import json
import sys
import threading
import time
from pathlib import Path

from kfm.evidence.journal import Journal
from kfm.jobs.heartbeat import Heartbeat
from kfm.model.clock import SystemClock
from kfm.model.ledger import LedgerRow
from kfm.store.sqlite import SqliteStore

folder, steps, runs = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
clock = SystemClock()
store = SqliteStore(folder / "idempotency.sqlite", clock)
heart = Heartbeat(store, 15.0)


def claim(number: int) -> Journal:
    """A run in the ledger, with its lease, as `update` claims it."""
    row = LedgerRow(
        run_id=f"01BENCH{number:019d}", wal_id=f"{number:064x}", dataset_id=f"bench_{number}", partition="", win="", state="CLAIMED",
        key="0" * 64, timestamp="2026-01-01T00:00:00Z", source_metadata="[]", pipeline_version="1.0.0", updater_id=f"http_file.bench_{number}",
        updater_version="1.0.0", spec_hash="1" * 64, transform_hash="2" * 64, input_hash="3" * 64, toolchain_digest="sha256:" + "4" * 64,
        attempt=0, forced=0, trigger_type="manual", base_version=None, base_generation=0,
    )  # fmt: skip

    def take(tx):
        tx.runs.insert(row)
        return tx.leases.take(f"{row.dataset_id}/-", f"bench:{number}", 15.0)

    token = store.transaction(take)
    assert token is not None
    heart.add(token)
    return Journal(store, clock, row, tokens=(token,))


def noop(number: int) -> int:
    return number


def nothing(tx: object, page: object) -> None:
    """A commit of what rides."""


def work(wal: Journal, first: int, count: int) -> None:
    for number in range(first, first + count):
        wal.intend("EXECUTE", f"step{number}", {"number": number})
        wal.done("EXECUTE", f"step{number}", {"out": noop(number)})


wals = [claim(number) for number in range(runs)]
for wal in wals:
    work(wal, 0, 10 if runs == 1 else 1)
    wal.commit(nothing)
shares = [steps // runs + (1 if number < steps % runs else 0) for number in range(runs)]
threads = [threading.Thread(target=work, args=(wal, 10, share)) for wal, share in zip(wals, shares)]
before = time.perf_counter()
if runs == 1:
    work(wals[0], 10, steps)
    wals[0].commit(nothing)
else:
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
took = time.perf_counter() - before
peak = next(
    int(line.split()[1])
    for line in Path("/proc/self/status").read_text().splitlines()
    if line.startswith("VmHWM:")
)

for wal, share in zip(wals, shares):  # what was measured is really there
    wal.commit(nothing)
    kept = store.read(lambda tx: tx.journals.get(wal.run.wal_id))
    assert [r.hash for r in kept] == [r.hash for r in wal.records]
    assert len(kept) == 2 * (share + (10 if runs == 1 else 1))
heart.stop()
store.close()
print(json.dumps({"per_s": steps / took, "rss_mb": peak / 1024}))
