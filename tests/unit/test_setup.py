"""Set-up says what it does, checks every digest, adds to what is there, and the demo's is the small
one.
"""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PIP = """#!/bin/sh
case "$*" in
*--version*) exit 0 ;;
*--require-hashes*requirements.lock*)
  echo "Collecting tiny==1.0 (from -r requirements.lock (line 1))"
  echo "  Downloading tiny-1.0-py3-none-any.whl (14 kB)"
  echo "  Downloading large_thing-26.0.1-cp311-cp311-manylinux_2_28_x86_64.whl (55.0 MB)"
  echo "  Using cached kept-2.0-py3-none-any.whl (12.5 MB)"
  echo "Installing collected packages: tiny, large-thing, kept"
  exit $FAILS ;;
esac
"""


def set_up(folder: Path, fails: int) -> "subprocess.CompletedProcess[str]":
    python = folder / "venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(PIP)  # stands in for an environment whose pip answers so
    python.chmod(0o755)
    command = [
        sys.executable,
        str(ROOT / "tools" / "venv.py"),
        "venv",
        "requirements.lock",
        "everything",
    ]
    return subprocess.run(
        command, cwd=folder, env={"FAILS": str(fails)}, capture_output=True, text=True, check=False
    )


def test_each_step_is_told_with_its_size(tmp_path: Path) -> None:
    done = set_up(tmp_path, 0)
    assert done.returncode == 0, done.stderr
    said = [line.strip() for line in done.stdout.splitlines()]
    assert said[:3] == [
        "set-up for everything: installing requirements.lock into venv, once",
        "fetched large_thing-26.0.1, 55 MB",
        "kept by pip kept-2.0, 12 MB",
    ]
    assert said[3].startswith("3 packages are here, 55 MB fetched; installing them")
    assert said[4].startswith("3 packages installed") and said[5].startswith("kfm itself installed")


def test_packages_that_cannot_be_had_end_it_with_what_pip_said(tmp_path: Path) -> None:
    done = set_up(tmp_path, 1)
    assert done.returncode == 1
    assert (
        "Downloading large_thing" in done.stderr
        and "Expected a package index that pip can reach" in done.stderr
    )
    assert "kfm itself" not in done.stdout


@pytest.mark.skipif(shutil.which("make") is None, reason="not run: make is not installed")
def test_the_demo_installs_its_own_lock_and_the_tests_bring_the_rest() -> None:
    def recipe(target: str) -> str:
        return subprocess.run(
            ["make", "-n", "-B", "VENV=elsewhere", target],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=True,
        ).stdout

    assert "elsewhere requirements-demo.lock" in recipe(
        "demo"
    ) and "elsewhere requirements.lock" not in recipe("demo")
    assert "elsewhere requirements.lock" in recipe("test") and "-m tests.brought" in recipe("test")
    assert all("--timeout" in recipe(name) for name in ("test", "drill")), "who hangs is named"
