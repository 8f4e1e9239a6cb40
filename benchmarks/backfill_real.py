"""`python -m benchmarks.backfill_real --partitions 5000`: a real backfill by two workers, one
version, compared with a straight run.
"""

import argparse
import datetime as dt
import json
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

from benchmarks import backfill_grid
from kfm.cli.init import make_workspace
from kfm.workspace.folder import open_workspace
from kfm.workspace.wiring import open_world

__all__ = ["main"]

PLAN = """dataset: readings
since: 2000-01-01T00:00:00Z
until: {until}
partitioning: {{window: 1h}}
expected_runtime: 1h
pool: default
acceptance: {{gates: all}}
batch: {batch}
"""
ENTRY = (
    backfill_grid.ENTRY.replace(
        "https://example.org/readings.csv?since={since}&until={until}", "file:///inbox/{since}.csv"
    )
    + "schema: [{name: site, type: string}, {name: at, type: timestamp}, {name: level, type: number}]\n"
)
BEGIN = dt.datetime(2000, 1, 1, tzinfo=dt.UTC)


def made(folder: Path, partitions: int, batch: int) -> Path:
    """A workspace with one reading of three sites for every hour, in a file."""
    make_workspace(folder, sample=False)
    (folder / "data" / "registry" / "readings.yml").write_text(ENTRY)
    (folder / "inbox").mkdir()
    for n in range(partitions):
        (folder / "inbox" / f"{stamp(n)}.csv").write_text("site,at,level\n" + rows(n))
    plan = folder / "pipelines" / "orchestration" / "backfills" / "history.yml"
    plan.parent.mkdir(parents=True, exist_ok=True)
    plan.write_text(PLAN.format(until=stamp(partitions), batch=batch))
    return folder


def stamp(n: int) -> str:
    return (BEGIN + dt.timedelta(hours=n)).isoformat().replace("+00:00", "Z")


def rows(n: int) -> str:
    return "".join(f"S{site},{stamp(n)},{n % 97}.{site}\n" for site in range(3))


def straight(folder: Path, partitions: int) -> Path:
    """The same readings as one file, run as one window."""
    make_workspace(folder, sample=False)
    (folder / "data" / "registry" / "readings.yml").write_text(ENTRY)
    (folder / "inbox").mkdir()
    (folder / "inbox" / f"{stamp(0)}.csv").write_text(
        "site,at,level\n" + "".join(map(rows, range(partitions)))
    )
    kfm(folder, "run", "readings", "--since", stamp(0), "--until", stamp(partitions))
    return folder


def kfm(folder: Path, *args: str) -> Any:
    done = subprocess.run(
        [sys.executable, "-m", "kfm", "-w", str(folder), *args, "--json"],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(
            f"kfm {' '.join(args)} ended with {done.returncode}: {done.stderr[-1000:]}"
        )
    return json.loads(done.stdout)


def measured(temp: Path, partitions: int, batch: int, workers: int) -> dict[str, Any]:
    ws = made(temp / "ws", partitions, batch)
    began = time.perf_counter()
    kfm(ws, "backfill", "start", "history")
    command = [
        sys.executable,
        "-m",
        "workers",
        "run",
        "-w",
        str(ws),
        "--concurrency=1",
        "--until-idle",
    ]
    running = [
        subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for _ in range(workers)
    ]
    staged_s = None
    while any(worker.poll() is None for worker in running):
        time.sleep(1)
        (status,) = kfm(ws, "backfill", "status", "history")["backfills"]
        if staged_s is None and status["state"] != "running":
            staged_s = time.perf_counter() - began
        print(
            f"{time.perf_counter() - began:7.0f} s  {status['state']}  {status['counts']}",
            file=sys.stderr,
            flush=True,
        )
        time.sleep(5)
    took = time.perf_counter() - began
    (status,) = kfm(ws, "backfill", "status", "history")["backfills"]
    other = straight(temp / "straight", partitions)
    return {
        "partitions": partitions, "workers": workers, "state": status["state"], "counts": status["counts"], "generation": status["generation"],
        "staged_seconds": round(staged_s or took), "seconds": round(took), "per_second": round(partitions / (staged_s or took), 2),
        "committed_once": once(ws, partitions), "equal_to_a_straight_run": tables(ws) == tables(other),
    }  # fmt: skip


def once(ws: Path, partitions: int) -> bool:
    with open_world(open_workspace(ws)) as world:
        found = world.store.read(lambda tx: tx.runs.recent("readings", 10 * partitions))
    done = Counter(r.win for r in found if r.state == "COMMITTED" and r.win)
    return len(done) == partitions and set(done.values()) == {1}


def tables(ws: Path) -> dict[str, bytes]:
    return {
        f"{p.parent.name}/{p.name}": p.read_bytes()
        for p in (ws / "data" / "processed" / "readings").rglob("*.parquet")
    }


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.backfill_real")
    parser.add_argument("--partitions", type=int, default=5000)
    parser.add_argument("--batch", type=int, default=50)
    parser.add_argument("--workers", type=int, default=2)
    args = parser.parse_args(argv)
    with tempfile.TemporaryDirectory(prefix="kfm-real-") as temp:
        found = measured(Path(temp), args.partitions, args.batch, args.workers)
    print(json.dumps(found, indent=2))
    return (
        0
        if found["state"] == "done" and found["committed_once"] and found["equal_to_a_straight_run"]
        else 1
    )


if __name__ == "__main__":
    raise SystemExit(main())
