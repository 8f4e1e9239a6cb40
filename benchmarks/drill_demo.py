"""Drill the three sample datasets: kill everywhere, resume, compare. `python -m
benchmarks.drill_demo`; exit 1 on any failure.
"""

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import msgspec

from kfm.cli.init import make_workspace
from kfm.drill.trace import strace_works

__all__ = ["main"]

_LEAST = 30


def _kfm(workspace: Path, *args: str) -> "subprocess.CompletedProcess[bytes]":
    return subprocess.run(
        [sys.executable, "-m", "kfm", "-w", str(workspace), *args], capture_output=True, check=False
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Drill, print a table, say whether everything was equal."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--points", default="", metavar="N|all", help="as for `kfm drill`; default: its own"
    )
    args = parser.parse_args(argv)
    missing, good = strace_works(), True
    with tempfile.TemporaryDirectory(prefix="kfm-drill-demo-") as temp:
        workspace = Path(temp) / "demo"
        make_workspace(workspace, sample=True)
        ran = _kfm(workspace, "run", "--all", "--upstream", "sample")
        if ran.returncode:
            print(ran.stderr.decode(errors="replace"), file=sys.stderr)
            return 1
        names = sorted(p.stem for p in (workspace / "data" / "registry").glob("*.yml"))
        print(
            f"{'dataset':<22} {'there are':>9} {'killed at':>9} {'fired':>6} {'unequal':>8} {'versions':>8} {'seconds':>8}"
        )
        for name in names:
            said = _kfm(
                workspace,
                "drill",
                name,
                "--json",
                *(["--points", args.points] if args.points else []),
            )
            found = msgspec.json.decode(said.stdout or b"{}")
            good &= (
                said.returncode == 0
                and found.get("points", 0) == found.get("fired", -1) >= _LEAST
                and found.get("unequal") == 0
            )
            cells = [
                found.get(k, "-")
                for k in ("listed", "points", "fired", "unequal", "versions", "seconds")
            ]
            print(
                f"{name:<22} {cells[0]:>9} {cells[1]:>9} {cells[2]:>6} {cells[3]:>8} {cells[4]:>8} {cells[5]:>8}",
                flush=True,
            )
            for failure in found.get("failures", [])[:10]:
                print(
                    f"    {failure['point']}\n      step {failure['step']}: expected {failure['expected']}, got {failure['got']}"
                )
            if not found:
                print(said.stderr.decode(errors="replace"), file=sys.stderr)
    if missing:
        print(f"no system calls and no power cuts: {missing}")
        return 1
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
