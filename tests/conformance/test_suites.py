"""The suites other projects wrote, run through the adapter; counts are exact, so a shrunken suite
is noticed too.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
CHECK = ROOT.parent / "shared" / "conformance" / "check.py"
ADAPTER = Path(__file__).with_name("adapter.py")
COUNTS = {
    "jcs": 100_010,
    "json": 283,
    "dsse": 22,
    "wycheproof": 151,
    "prov": 187,
    "cron": 389,
    "webhooks": 19,
    "trace": 26,
}


@pytest.mark.needs_shared
@pytest.mark.parametrize("suite", COUNTS)
def test_the_suite_passes_whole(suite: str) -> None:
    if not CHECK.exists():
        pytest.skip("not run: the shared conformance suites are not beside this repository")
    command = [sys.executable, str(CHECK), suite, "--adapter", str(ADAPTER)]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**os.environ, "RUST_BACKTRACE": "0"},
        check=False,
    )
    assert done.stdout.splitlines() == [f"{suite}: {COUNTS[suite]} passed, 0 failed"], (
        done.stdout + done.stderr
    )
    assert done.returncode == 0
