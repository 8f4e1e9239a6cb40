"""The Rego suite of Open Policy Agent through our child process: every case the bare engine passes,
and no fewer.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CHECK = ROOT.parent / "shared" / "conformance" / "check.py"


def suite(*more: str) -> tuple[str, set[str]]:
    """The summary, and the names of the cases that fail."""
    command = [sys.executable, str(CHECK), "opa", "--show", "9999", *more]
    environment = {**os.environ, "RUST_BACKTRACE": "0"}
    done = subprocess.run(
        command, capture_output=True, text=True, cwd=ROOT, env=environment, timeout=300, check=False
    )
    summary, *failed = done.stdout.splitlines()
    return summary, {line.partition("', ")[0] for line in failed if line.startswith("    (")}


@pytest.mark.needs_shared
@pytest.mark.drill
def test_we_pass_what_the_bare_engine_passes() -> None:
    if not CHECK.exists():
        pytest.skip("not run: the shared conformance suites are not beside this repository")
    bare, ours = suite(), suite("--adapter", str(ROOT / "tests" / "conformance" / "adapter.py"))
    assert ours == bare
    assert ours[0] == "opa: 1175 passed, 63 failed"
