"""Ask everything that pipelines/orchestration/policies/checks.yml lists. Exit 0: all of it holds."""

import subprocess
import sys
from pathlib import Path

import yaml

HERE = Path(__file__).parents[1]
CHECKS = yaml.safe_load((HERE / "pipelines/orchestration/policies/checks.yml").read_text())

failed = [
    check
    for check in CHECKS
    if subprocess.run([sys.executable, "-m", *check.split()], cwd=HERE).returncode
]
for check in failed:
    print(f"failed: {check}", file=sys.stderr)
sys.exit(1 if failed else 0)
