"""Workers as this workspace has them, on invented data in a folder of their own."""

import json
import subprocess
import sys
from pathlib import Path


def ran(*words: str, where: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", *words], cwd=where, capture_output=True, text=True, check=False
    )


def test_a_job_is_worked_and_leaves_its_receipt(tmp_path: Path) -> None:
    ws = tmp_path / "ws"
    assert ran("kfm", "init", "ws", "--sample", where=tmp_path).returncode == 0
    job = ("run-job", "ingest.pull_source", "--dataset", "kfm://dataset/ks_earthquakes")
    done = ran("workers", *job, where=ws)
    assert done.returncode == 0, done.stderr
    told = [json.loads(path.read_text()) for path in (ws / "receipts").rglob("*.json")]
    assert "succeeded" in {receipt["status"] for receipt in told}


def test_work_does_what_the_package_does(tmp_path: Path) -> None:
    work = Path(__file__).parents[1] / "src" / "work.py"
    called = [sys.executable, str(work), "run-job", "--help"]
    by_path = subprocess.run(called, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert by_path.stdout == ran("workers", "run-job", "--help", where=tmp_path).stdout


def test_an_unknown_type_is_refused_by_name(tmp_path: Path) -> None:
    assert ran("kfm", "init", "ws", "--sample", where=tmp_path).returncode == 0
    job = ("run-job", "no.such_type", "--dataset", "kfm://dataset/ks_earthquakes")
    refused = ran("workers", *job, where=tmp_path / "ws")
    assert refused.returncode == 2 and "no.such_type" in refused.stderr
