"""`python -m benchmarks.backfill_grid --partitions 500000 --json`: plan, status and resume of a
large backfill, each as a whole process.

The backfill is half done (--done): every partition below the middle was worked, one in a hundred of
them failed. Only the store is filled by hand; the three commands are the real ones. Without
PostgreSQL its row says why.
"""

import argparse
import datetime as dt
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from kfm.cli.init import make_workspace
from kfm.jobs import backfill_windows as backfill
from kfm.jobs.backfill_plan import plan_from
from kfm.model.backfill import PartRow
from kfm.model.ids import new_run_id
from kfm.model.ledger import LedgerRow
from kfm.workspace.folder import open_workspace
from kfm.workspace.targets import targets_of
from kfm.workspace.wiring import open_world

__all__ = ["fill", "main"]

ENTRY = """dataset_id: readings
title: Readings
licence: CC0-1.0
sensitivity: public
policy_label: public
time_zone: America/Chicago
source: {kind: http_file, format: csv, url: "https://example.org/readings.csv?since={since}&until={until}", time_column: at}
business_key: [site, at]
merge: upsert
"""
PLAN = """dataset: readings
since: 1969-01-01T00:00:00Z
until: {until}
partitioning: {{window: 1h}}
expected_runtime: 20d
pool: default
acceptance: {{gates: all}}
batch: 50
stop_after: 100000
"""
STEP, COMMANDS = 20_000, ("plan", "status", "resume")


def fill(folder: Path, partitions: int, worked: int, store: str = "") -> None:
    """A workspace with a backfill of which so many partitions were worked."""
    make_workspace(folder, sample=False)
    if store:
        plain = (folder / "kfm.yml").read_text().splitlines()
        (folder / "kfm.yml").write_text(
            "\n".join(
                [line for line in plain if not line.startswith("store:")]
                + [f'store: "{store}"', ""]
            )
        )
    (folder / "data" / "registry" / "readings.yml").write_text(ENTRY)
    until = dt.datetime(1969, 1, 1, tzinfo=dt.UTC) + dt.timedelta(hours=partitions)
    place = folder / "pipelines" / "orchestration" / "backfills" / "history.yml"
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(PLAN.format(until=until.isoformat().replace("+00:00", "Z")))
    workspace = open_workspace(folder)
    plan = plan_from({**_yaml(place)}, place.name)
    with open_world(workspace) as world:
        row, _ = backfill.start(
            world, "history", plan, targets_of(workspace, "readings")[0], "system", put=False
        )
        for first in range(0, worked, STEP):
            last = min(first + STEP, worked)
            parts = [_part(row.backfill_id, n) for n in range(first, last)]
            world.store.transaction(lambda tx: _keep(tx, parts))
        world.store.transaction(
            lambda tx: tx.backfill.save(row, next_n=worked, retry_n=worked, state="stopped")
        )


def _keep(tx: Any, parts: list[PartRow]) -> None:
    """The rows of a backfill, and of the ledger, as staging would have left them."""
    tx.backfill.put_parts(parts)
    for part in parts:
        if part.state == "STAGED":
            tx.runs.insert(
                LedgerRow(
                    run_id=part.run_id, wal_id=part.run_id, dataset_id="readings", partition="", win=str(part.n), state="STAGED", key="", timestamp="",
                    source_metadata="[]", pipeline_version="", updater_id="", updater_version="", spec_hash="", transform_hash="", input_hash=str(part.n),
                    toolchain_digest="", attempt=0, forced=0, trigger_type="backfill", base_version=None, base_generation=0, backfill=part.backfill_id,
                )
            )  # fmt: skip


def _yaml(path: Path) -> dict[str, Any]:
    from kfm.workspace.config import parse

    found: dict[str, Any] = parse(path.read_bytes(), path.name)
    return found


def _part(backfill_id: str, n: int) -> PartRow:
    state = "FAILED" if n % 100 == 99 else "STAGED"
    reason = "upstream answered 503" if state == "FAILED" else ""
    return PartRow(
        backfill_id=backfill_id, n=n, state=state, run_id=str(new_run_id()), reason=reason
    )


def timed(folder: Path, *args: str) -> dict[str, Any]:
    """One command as a process of its own: seconds, peak RSS, and what it said."""
    command = [sys.executable, "-m", "kfm", "-w", str(folder), "backfill", *args, "--json"]
    began = time.perf_counter()
    child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    said = child.stdout.read()
    _, code, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(code)
    took = time.perf_counter() - began
    if child.returncode:
        raise RuntimeError(f"{' '.join(args)} ended with {child.returncode}: {said[-500:]}")
    return {
        "seconds": round(took, 3),
        "rss_mb": round(_rss(usage) / 2**20, 1),
        "said": json.loads(said),
    }


def _rss(usage: resource.struct_rusage) -> int:
    return usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def measured(
    store: str, folder: Path, partitions: int, worked: int, where: str = ""
) -> dict[str, Any]:
    fill(folder, partitions, worked, where)
    plan, status = timed(folder, "plan", "history"), timed(folder, "status", "history")
    resume, again = timed(folder, "resume", "history"), timed(folder, "status", "history")
    told = status["said"]["backfills"][0]
    assert plan["said"]["estimate"]["partitions"] == partitions == told["total"]
    assert sum(told["counts"].values()) == worked, told["counts"]
    handed = again["said"]["backfills"][0]["handed_out"]
    assert 0 < handed <= 8 * 50, handed
    found = {
        name: {k: run[k] for k in ("seconds", "rss_mb")}
        for name, run in (("plan", plan), ("status", status), ("resume", resume))
    }
    return {"store": store, "partitions": partitions, **found, "handed_out": handed}


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.backfill_grid")
    parser.add_argument("--partitions", type=int, default=500_000)
    parser.add_argument("--done", type=float, default=0.5, metavar="SHARE")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--store", choices=("sqlite", "postgres", "all"), default="all")
    args = parser.parse_args(argv)
    rows = []
    with tempfile.TemporaryDirectory(prefix="kfm-grid-") as temp:
        if args.store != "postgres":
            rows.append(
                measured(
                    "sqlite",
                    Path(temp) / "sqlite",
                    args.partitions,
                    int(args.partitions * args.done),
                )
            )
        if args.store != "sqlite":
            rows.append(_postgres(Path(temp), args.partitions, int(args.partitions * args.done)))
    if args.json:
        print(json.dumps({"rows": rows}, indent=2))
    else:
        for row in rows:
            told = row.get("error") or "  ".join(
                f"{k} {row[k]['seconds']} s {row[k]['rss_mb']} MB" for k in COMMANDS
            )
            print(f"{row['store']:<9} {told}")
    met = [
        all(row[k]["seconds"] < 1 and row[k]["rss_mb"] < 200 for k in COMMANDS)
        for row in rows
        if "error" not in row
    ]
    return 0 if all(met) else 1


def _postgres(temp: Path, partitions: int, worked: int) -> dict[str, Any]:
    """The same over a server of its own; its settings are those of a fresh installation."""
    import pytest
    from tests.given.services import private_server, schema_url

    try:
        with private_server() as server:
            return measured("postgres", temp / "postgres", partitions, worked, schema_url(server))
    except (pytest.skip.Exception, pytest.fail.Exception) as error:
        return {"store": "postgres", "error": str(error)}


if __name__ == "__main__":
    raise SystemExit(main())
