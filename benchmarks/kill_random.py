"""Kill a run at a random moment while another process retries it. `python -m benchmarks.kill_random
--rounds 200 --json`.

Each round starts from an empty workspace, so the killed run has everything to do; the other one may
be anywhere at that moment.
"""

import argparse
import contextlib
import io
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from kfm.cli import main as kfm
from kfm.cli.init import make_workspace
from kfm.drill.compare import Left, journal, look
from kfm.drill.copies import Bench
from kfm.model.clock import SystemClock
from kfm.samples.upstream import SampleUpstream
from kfm.store.sqlite import SqliteStore

__all__ = ["Found", "main"]

DATASET = "ks_earthquakes"
_LATEST_S = 0.6
_RETRIES = 5


@dataclass
class Found:
    """The worst of all rounds."""

    rounds: int = 0
    killed: int = 0  # rounds in which the run was still alive at its moment
    seed: int = 0
    versions: int = 0  # in one round
    # over all rounds: the same input gives the same version
    version_ids: list[str] = field(default_factory=list)
    ledger_rows: int = 0
    unbalanced: int = 0
    leftovers: int = 0
    failures: list[dict[str, Any]] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def ok(self) -> bool:
        worst = (
            self.versions,
            self.ledger_rows,
            len(self.version_ids),
            self.unbalanced,
            self.leftovers,
        )
        return not self.failures and worst == (1, 1, 1, 0, 0)


def _start(workspace: Path, upstream: str) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(
        [
            sys.executable,
            "-m",
            "kfm",
            "-w",
            str(workspace),
            "run",
            DATASET,
            "--upstream",
            "sample",
            "--json",
        ],
        env={**os.environ, "KFM_SAMPLE_UPSTREAM": upstream},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )


def _kill(process: "subprocess.Popen[bytes]") -> bool:
    """Kill the session; whether there was somebody to kill."""
    alive = process.poll() is None
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    return alive and process.returncode == -signal.SIGKILL


def _round(workspace: Path, upstream: str, moment: float, later: float, found: Found) -> str:
    """One kill and what follows; what went wrong."""
    victim, began = _start(workspace, upstream), time.monotonic()
    time.sleep(min(later, moment))
    other = _start(workspace, upstream)
    time.sleep(max(0.0, began + moment - time.monotonic()))
    found.killed += _kill(victim)
    for _ in range(_RETRIES):
        said, talk = other.communicate(timeout=300)
        if other.returncode == 0:
            break
        last = f"exit {other.returncode}: {(said or talk).decode(errors='replace').strip()[-300:]}"
        other = _start(workspace, upstream)
    else:
        _kill(other)
        return f"the other process did not succeed: {last}"
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(io.StringIO()):
        code = kfm(["-w", str(workspace), "doctor", "--fix", "--json"])
    return f"doctor: exit {code}: {out.getvalue()[-300:]}" if code else ""


def _unbalanced(workspace: Path, left: Left) -> bool:
    """Books that do not add up, or a ledger that does not say what the channel says."""
    store = SqliteStore(workspace / "ledger" / "idempotency.sqlite", SystemClock())
    try:
        rows = store.read(lambda tx: tx.runs.recent(DATASET, 1000))
        records = [r for row in rows for r in journal(store, workspace / "data", row)]
    finally:
        store.close()
    done = [
        msgspec.json.decode(r.payload)["books"]
        for r in records
        if r.step_id == "transform" and r.status == "DONE"
    ]
    wrong = [
        b
        for b in done
        if b["read"]
        != b["written"] + b["unchanged"] + b["quarantined"] + sum(b["dropped"].values())
    ]
    committed = sum(state == "COMMITTED" for _, state, _ in left.rows)
    return (
        bool(wrong)
        or not done
        or committed != sum(kind == "promote" for _, kind, _, _ in left.generations)
    )


def run(rounds: int, seed: int) -> Found:
    found, chance, began = Found(rounds=rounds, seed=seed), random.Random(seed), time.monotonic()
    with tempfile.TemporaryDirectory(prefix="kfm-kill-") as temp, SampleUpstream() as upstream:
        folder = Path(temp)
        make_workspace(folder / "empty", sample=True)
        for number in range(rounds):
            workspace = folder / f"round-{number:04}"
            shutil.copytree(folder / "empty", workspace)
            moment, later = chance.uniform(0, _LATEST_S), chance.uniform(0, _LATEST_S)
            wrong = _round(workspace, upstream.url, moment, later, found)
            left = look(
                workspace,
                Bench(folder, folder / "empty", DATASET, "ledger/idempotency.sqlite", "data"),
                sweep=False,
            )
            _add(found, left, _unbalanced(workspace, left))
            complaints = [
                wrong,
                *left.bad_sums,
                f"{left.open_jobs} jobs open" if left.open_jobs else "",
            ]
            if len(left.rows) != 1 or len(left.generations) != 1 or left.versions != 1:
                complaints.append(
                    f"rows {left.rows}, generations {left.generations}, versions {left.versions}"
                )
            found.failures += [
                {"round": number, "moment_s": round(moment, 4), "what": c} for c in complaints if c
            ]
            if not any(complaints):
                shutil.rmtree(workspace)
    found.seconds = round(time.monotonic() - began, 1)
    return found


def _add(found: Found, left: Left, unbalanced: bool) -> None:
    found.versions = max(found.versions, left.versions)
    found.version_ids = sorted(
        {*found.version_ids, *(version for _, _, version, _ in left.generations)}
    )
    found.ledger_rows = max(found.ledger_rows, len(left.rows))
    found.unbalanced += unbalanced
    found.leftovers += len(left.leftovers)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the rounds; exit 1 when anything is wrong."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args(argv)
    found = run(args.rounds, args.seed)
    if args.json:
        print(msgspec.json.format(msgspec.json.encode(asdict(found)), indent=2).decode())
    else:
        print(
            f"{found.rounds} rounds, {found.killed} killed at work: versions {found.versions}, ledger rows {found.ledger_rows}, "
            f"unbalanced {found.unbalanced}, leftovers {found.leftovers}, failures {len(found.failures)}   {found.seconds:.0f} s"
        )
        for failure in found.failures[:20]:
            print(f"  round {failure['round']} at {failure['moment_s']} s: {failure['what']}")
    return 0 if found.ok else 1


if __name__ == "__main__":
    sys.exit(main())
